"""What numbers of sources of other segments say, and one that was forged there can do."""

import pytest

from bccnd.relay.dedup import JUMP
from bccnd.wire.bccn1 import Integrity, Level
from tests.relay.fakes import CLOCK, Bus, datagram
from tests.relay.segment import Segment, bridge_of, bring
from tests.relay.sources import SRC, account, known


def said(number: int) -> bytes:
    return datagram(SRC, CLOCK + number, b"a", b"%d" % number)


@pytest.mark.parametrize("integrity", [Integrity(), Integrity([b"k" * 32], Level.HMAC)])
@pytest.mark.parametrize("step", [1, 40])
@pytest.mark.parametrize("forged", [5003, JUMP + 5, 10**15])
def test_one_forged_number_silences_no_relayed_source(forged: int, step: int, integrity: Integrity):
    """A key of this segment says nothing about what was forged on another."""
    lost: list[bytes] = []

    def loses(host: bytes, one: bytes, times: int) -> bool:
        is_lost = host == b"here" and one.endswith(b"|%d" % (300 * step)) and not times
        lost.extend([one] if is_lost else [])
        return is_lost

    segment = Segment(b"gate", b"here", integrity=integrity, loses=loses)
    bridge, reader = bridge_of(segment[b"gate"]), segment[b"here"].connect(b"SUB a")
    segment.wait(0.01)
    numbers = list(range(0, 400 * step, step))
    at = [120, 121, 250]
    for index, number in enumerate(numbers):
        bring(bridge, [said(number)])
        if index in at:
            bring(bridge, [said(number + forged + index)])
        segment.wait(0.001)
    segment.wait(0.5)
    got = [int(packet.partition(b"\0")[2]) for packet in reader.heard()]
    assert [each for each in got if each in numbers] == numbers
    assert len(lost) == 1
    received, _, late, duplicates = account(segment[b"here"].relay.state.sources)
    assert (received, late, duplicates) == (len(got), 0, 0)


def test_a_bridge_that_is_far_behind_restarts_nothing():
    """A number of a clock that has gone back is a message of before, whether a key is required or not."""
    bus = Bus(dedup_replays="auto")
    bridge = bridge_of(bus)
    bring(bridge, [said(100_000)])
    assert bring(bridge, [said(1)]) == [b"CMSG error\0bad-datagram packet: replayed"]
    assert known(bus.relay.state.sources).restarts == 0
