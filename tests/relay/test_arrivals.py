"""What waited passes as if it came when it was its turn: to subscribers, taps, last values and the daemon itself."""

from bccnd.relay.gaps import RELEASED_AT_ONCE
from bccnd.wire.repair import CHANNEL, last_payload
from tests.relay.fakes import CLOCK, ELSEWHERE, Bus, FakeClient, datagram, options

SRC = b"there/prog/1"


def repairing(**values: object) -> Bus:
    """A bus that knows that a daemon keeps what SRC sends, which has sent number 0."""
    bus = Bus(repair_on=True, **values)
    bus.connect(b"SUB nothing")
    bus.hear(datagram(SRC, CLOCK, b"a", b"0"))
    bus.hear(datagram(b"there/bccnd/9/repair", 1, CHANNEL, last_payload([(SRC, None, CLOCK)])))
    return bus


def hear(bus: Bus, *numbers: int, chan: bytes = b"a") -> None:
    bus.hear(*[datagram(SRC, CLOCK + number, chan, b"%d" % number) for number in numbers])


def payloads(client: FakeClient) -> list[bytes]:
    return [packet.partition(b"\0")[2] for packet in client.heard()]


def test_channels_keep_the_order_of_their_source():
    bus = repairing()
    both = bus.connect(b"SUB a", b"SUB b")
    hear(bus, 2, 3)
    hear(bus, 4, chan=b"b")
    hear(bus, 5)
    assert both.heard() == []
    hear(bus, 1, chan=b"b")
    assert both.heard() == [b"MSG b\0001", b"MSG a\0002", b"MSG a\0003", b"MSG b\0004", b"MSG a\0005"]


def test_a_client_of_the_format_full_gets_the_datagrams():
    bus = repairing()
    client = bus.connect(b"CMSG format\0full", b"SUB a")
    hear(bus, 2)
    hear(bus, 1)
    shown = client.shown()
    assert [(recv.peer, recv.verdict, recv.datagram) for recv in shown] == [
        (ELSEWHERE, b"ok", datagram(SRC, CLOCK + number, b"a", b"%d" % number)) for number in (1, 2)
    ]


def test_other_sources_do_not_wait():
    bus = repairing()
    client = bus.connect(b"SUB a")
    hear(bus, 2)
    bus.hear(datagram(b"there/prog/2", CLOCK, b"a", b"other"))
    assert payloads(client) == [b"other"]


def test_a_heartbeat_that_waited_is_noted():
    bus = repairing()
    hear(bus, 2, chan=b"heartbeat/" + SRC)
    assert bus.relay.state.presence.get(SRC) is None
    hear(bus, 1)
    assert bus.relay.state.presence.get(SRC) is not None


def test_a_last_value_that_waited_is_kept():
    bus = repairing(retain=["a"])
    hear(bus, 2)
    hear(bus, 1)
    late = bus.connect()
    late.say(b"SUB a")
    assert payloads(late) == [b"2"]


def test_a_channel_that_became_local_meanwhile_gets_nothing():
    bus = repairing()
    client = bus.connect(b"SUB a")
    hear(bus, 2)
    bus.reconfigure(options=options(repair_on=True, local=("a",)))
    hear(bus, 1)
    assert client.heard() == []
    assert bus.relay.state.rejected == {"local-channel": 2}


def test_thousands_that_waited_come_in_parts_and_in_order():
    bus = repairing()
    client = bus.connect(b"SUB a")
    count = 3 * RELEASED_AT_ONCE
    hear(bus, *range(2, count))
    hear(bus, 1)
    assert len(payloads(client)) == RELEASED_AT_ONCE
    hear(bus, count)  # which waits behind them
    bus.tick(0.0)
    assert payloads(client) == [b"%d" % number for number in range(RELEASED_AT_ONCE + 1, count + 1)]


def test_a_long_run_holds_no_more_than_there_is_room_for():
    bus = repairing(repair_hold_messages=16)
    client = bus.connect(b"SUB a")
    for number in range(2, 34, 2):  # each behind a gap of its own
        hear(bus, number)
    hear(bus, *range(34, 94))
    assert bus.relay.state.gaps.held <= 16
    hear(bus, 93, 94)
    heard = list(map(int, payloads(client)))
    assert heard == sorted({*range(2, 34, 2), *range(34, 95)})


def test_what_waits_counts_when_it_is_passed_on():
    bus = repairing()
    bus.connect(b"SUB a")
    hear(bus, 2)
    assert bus.relay.state.counters.accepted == 2
    hear(bus, 1)
    assert bus.relay.state.counters.accepted == 4


def test_a_restart_comes_after_all_that_waited():
    bus = repairing()
    client = bus.connect(b"SUB a")
    count = RELEASED_AT_ONCE + 50
    for number in range(2, 2 + count):
        hear(bus, number)
    assert payloads(client) == []
    hear(bus, -(10**7), 1 - 10**7)
    last = [b"%d" % number for number in range(1 + count - 1, 2 + count)] + [b"-10000000", b"-9999999"]
    assert payloads(client)[-4:] == last
