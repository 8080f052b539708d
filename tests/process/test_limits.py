"""The tables that bound what is held: their defaults fit together, and what contradicts itself is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from bccnd.process.limits import MIB, Dedup, Limits, Queue


def test_the_defaults_fit_together() -> None:
    queue, limits = Queue(), Limits()
    assert queue.packets <= queue.max_packets
    assert limits.local_payload < queue.bytes <= queue.max_bytes <= queue.total_bytes
    assert Dedup().reorder < Dedup().sanity


@pytest.mark.parametrize(
    ("table", "values", "rule"),
    [
        (Queue, {"max_packets": 10, "packets": 11}, "at most queue.max_packets, which is 10"),
        (Queue, {"max_bytes": MIB, "bytes": 2 * MIB}, f"at most queue.max_bytes, which is {MIB}"),
        (Dedup, {"sanity": 8, "reorder": 8}, "less than dedup.sanity, which is 8"),
        (Limits, {"clients": 0}, "greater than or equal to 1"),
        (Limits, {"client": 1}, "not permitted"),
    ],
)
def test_what_contradicts_itself_is_refused(table: Any, values: dict[str, int], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        table(**values)
