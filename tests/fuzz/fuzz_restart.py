"""The bytes of a predecessor's state give plain values or a ``BccndError``, and never call anything."""

import pickle
import pickletools
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from bccnd.errors import BccndError
from bccnd.restart import load_state
from tests.fuzz.fuzzer import HERE

PLAIN = (dict, list, tuple, set, frozenset, bytes, bytearray, str, int, float, bool, type(None))
MOST_MEMO = 100_000  # a pickle may name a place in its memo that takes gigabytes; what we sent does not


def one_input(data: bytes) -> None:
    if is_greedy(data):
        return
    try:
        state = load_state(BytesIO(data))
    except BccndError as error:
        assert str(error).isprintable()
    else:
        assert isinstance(state, dict)
        assert all(isinstance(value, PLAIN) for value in flat(state, set()))


def is_greedy(data: bytes) -> bool:
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in ("PUT", "LONG_BINPUT") and argument > MOST_MEMO:
                return True
    except Exception:  # noqa: BLE001 - pickletools gives up in many ways, each at a byte that the unpickler refuses
        return False
    return False


def flat(value: Any, seen: set[int]) -> Iterable[Any]:
    """Everything in it; a pickle can hold itself."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    if isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            yield from flat(item, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from flat(item, seen)


def seeds() -> Iterable[bytes]:
    plain = {
        "format": 1,
        "sessions": [{"name": b"a", "since": 1.5, "tap": False}],
        "names": (1, 2**70),
        "no": None,
    }
    for protocol in range(6):
        yield pickle.dumps(plain, protocol)
        yield pickle.dumps({"now": HERE}, protocol)
        yield pickle.dumps({"now": print}, protocol)
        yield pickle.dumps([1, {2, 3}, bytearray(b"x")], protocol)
    yield pickle.dumps(plain, 4)[:-9]
