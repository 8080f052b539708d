"""Tables of sources as the tests of ``dedup`` need them, and what they are told."""

from typing import Any

from hypothesis import strategies as st

from bccnd.relay.accounts import Source
from bccnd.relay.dedup import JUMP, WINDOW, Sources
from bccnd.relay.options import Dedup
from bccnd.wire.verdict import Verdict

DELIVERED = {Verdict.OK, Verdict.NEW, Verdict.RESTARTED}
SRC = b"host/prog/1"

# Steps that stay close, reach the edges of window and sanity, and leap.
steps = st.one_of(
    st.integers(-3, 4),
    st.integers(-220, 220),
    st.sampled_from([-WINDOW - 1, -WINDOW, 1 - WINDOW, WINDOW, WINDOW + 1, JUMP, JUMP + 1, -JUMP]),
)


def numbers_from(first: int, moves: list[int]) -> list[int]:
    """Sequence numbers, each a step away from one before."""
    numbers = [first]
    for move in moves:
        numbers.append(min(2**64 - 1, max(0, numbers[-1] + move)))
    return numbers


def rules(**values: Any) -> Dedup:
    return Dedup(**{"replays": "accept"} | values)


def table(**values: Any) -> Sources:
    return Sources(rules(**values), authenticated=True)


def keyless(**values: Any) -> Sources:
    return Sources(rules(**values), authenticated=False)


def configure(known: Sources, **values: Any) -> None:
    known.configure(rules(**values), authenticated=True)


def heard(sources: Sources, *numbers: int, src: bytes = SRC, now: float = 0.0) -> list[Verdict]:
    return [sources.observe(src, number, now) for number in numbers]


def known(sources: Sources, src: bytes = SRC) -> Source:
    source = sources.get(src)
    assert source is not None
    return source


def account(sources: Sources, src: bytes = SRC) -> tuple[int, int, int, int]:
    """How many were received, lost, late and duplicates."""
    source = known(sources, src)
    return source.received, source.lost, source.late, source.duplicates
