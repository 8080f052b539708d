"""An endpoint of bpmux: any bytes, whole and cut; and two of them in a conversation that follows the rules.

Any bytes give the same events, the same answers and the same fault however they are cut and
however little is done at a time, and never more memory than
the limits allow. What follows the rules is never a fault (``tests/clients/bpmux/conversation.py``).
"""

from collections.abc import Iterable

from bpmux.chunks import NUMBER_LIMIT
from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError
from bpmux.limits import Limits
from tests.clients.bpmux.conversation import Conversation, Side
from tests.fuzz.fuzzer import Script
from tests.golden import entries

EXECUTIONS = 50
LIMITS = Limits(channels=4, requests=4, reserve=300, payload=64, unfinished=100, refused=3, replies=2000)
# Credit for the top level, so that what the endpoint opens goes out.
BEGINNING = bytes.fromhex("ed0800")
# Decisions of a conversation in which both sides open, send, grant and end.
TALKS = [bytes([1, *(turn * 37 % 256 for turn in range(first, first + 90))]) for first in range(5)]


def one_input(data: bytes) -> None:
    script = Script(data)
    if script.number(2):
        steps = script.number(64)
        Conversation(script.number).run(steps)
        return
    cuts = 1 + script.number(7)
    rest = script.rest()
    whole = outcome([rest])
    assert outcome([rest[at : at + cuts] for at in range(0, len(rest), cuts)]) == whole
    assert outcome([rest], most=cuts) == whole


def outcome(parts: list[bytes], most: int = NUMBER_LIMIT) -> tuple[list[str], bytes, str | None]:
    """Events, what is said, and the rule that was broken. There is one of each kind to talk about."""
    endpoint = Endpoint(0.0, LIMITS)
    endpoint.receive(BEGINNING, 0.0)
    endpoint.open_sink(b"k")
    endpoint.open_stream(b"s", window=40)
    duplex = endpoint.open_duplex(b"d", window=90)
    endpoint.request(b"r")
    assert duplex
    endpoint.data_to_send()
    endpoint.cancel(duplex)
    heard: list[str] = []
    rule = None
    for part in parts:
        try:
            heard += map(repr, endpoint.receive(part, 0.0, most))
            while endpoint.is_behind:
                heard += map(repr, endpoint.receive(b"", 0.0, most))
        except BpmuxError as error:
            heard += map(repr, endpoint.events())
            rule = error.rule
            break
    if rule is None:
        Conversation.check(Side(endpoint, 0))
    tables = endpoint._connection.tables
    assert endpoint.held <= LIMITS.unfinished
    assert len(tables.theirs) + len(tables.requests) <= LIMITS.channels + LIMITS.requests + LIMITS.refused + 1
    return heard, b"" if rule else endpoint.data_to_send(), rule


def seeds() -> Iterable[bytes]:
    for conversation in entries("bpmux", "conversations"):
        yield b"\x00\x02" + b"".join(bytes.fromhex(step.get("in", "")) for step in conversation["steps"])
    yield b"\x00\x00" + b"".join(bytes.fromhex(entry["chunk"]) for entry in entries("bpmux", "chunks"))
    yield from TALKS
