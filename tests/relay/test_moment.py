"""The time of a call: two clocks, of which one decides and the other is only shown."""

from bccnd.relay.moment import Moment
from tests.relay.fakes import Bus, datagram


def test_both_clocks_have_their_unit():
    moment = Moment(1.5, 1_800_000_000_000_000_000)
    assert (moment.monotonic, moment.unix_ns) == (1.5, 1_800_000_000_000_000_000)


def test_unix_time_is_shown_and_decides_nothing():
    """A client hears what the clock says; a clock that jumps neither repeats a heartbeat nor silences a source."""
    bus = Bus(heartbeat_seconds=10)
    bus.begin()
    tap = bus.connect(b"CMSG tap\0on", b"SUB local/presence/silent/>", privileged=True)
    bus.hear(datagram(b"far/x/1", 1, b"heartbeat/far/x/1"))
    bus.tick(0.0)
    bus.sent.clear()
    tap.heard()
    for jump in (86_400 * 10**6, -2 * 86_400 * 10**6):
        bus.unix_us += jump
        bus.tick(0.0)
        bus.hear(datagram(b"far/x/2", 2 + jump, b"a") if jump > 0 else b"noise")
        (shown,) = tap.heard()
        assert shown.split(b" ")[2] == b"%d" % (bus.unix_us * 1000)
    assert bus.sent == []
