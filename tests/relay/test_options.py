"""What can be set about a relay: the defaults fit together, and every field says what it is and how far it goes."""

from dataclasses import fields
from typing import get_args, get_origin

import pytest

from bccnd.relay.options import Dedup, Heartbeat, Limits, Options, Queue, Retain

TABLES = (Queue, Limits, Retain, Dedup, Heartbeat)


def test_the_defaults_fit_together():
    options = Options()
    queue = options.queue
    assert queue.packets <= queue.max_packets
    assert options.limits.local_payload < queue.bytes <= queue.max_bytes <= queue.total_bytes
    assert options.retain.channels < queue.packets
    assert options.retain.bytes < queue.bytes
    assert options.dedup.reorder < options.dedup.sanity


@pytest.mark.parametrize("table", TABLES)
def test_every_field_is_described_and_bounded(table):
    for field in fields(table):
        assert field.metadata["description"].endswith("."), field.name
        if field.type in (int, float):
            assert field.metadata["ge"] <= field.default, field.name
            # The maxima bound packets and bytes.
            assert "le" in field.metadata or table is Queue, field.name
        elif get_origin(field.type) is tuple:
            assert field.metadata["max_length"] > 0, field.name
        else:
            assert field.default in (get_args(field.type) or field.type), field.name


@pytest.mark.parametrize(
    ("replays", "authenticated", "dropped"),
    [("auto", True, True), ("auto", False, False), ("drop", False, True), ("accept", True, False)],
)
def test_replays_are_dropped_where_nobody_can_forge(replays, authenticated, dropped):
    assert Dedup(replays=replays).drops_replays(authenticated=authenticated) is dropped
