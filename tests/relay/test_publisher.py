"""The daemon as a source: its name is taken, its numbers go forward, what it says reaches whom it concerns."""

import pytest

from bccnd.relay.succession import restore, state_of
from tests.relay.fakes import CLOCK, HERE, Bus, datagram


def test_daemon_holds_its_name() -> None:
    bus = Bus()
    assert bus.relay.state.own.name == b"here/bccnd/0"
    twin = bus.connect(pid=0, program=b"bccnd")
    assert twin.session.name != bus.relay.state.own.name


def test_numbers_begin_at_the_clock_or_after_an_earlier_run() -> None:
    bus = Bus()
    bus.begin()
    assert bus.relay.state.own.seq == CLOCK
    later = Bus()
    later.relay.state.names.begin_at(CLOCK + 5)
    later.begin()
    assert later.relay.state.own.seq == CLOCK + 5


def test_own_echo_is_own_and_an_impostor_a_conflict() -> None:
    bus = Bus()
    bus.begin()
    bus.say(bus.relay.state.own, b"a", b"x")
    bus.settle()
    echo = bus.sent.pop()
    assert echo.endswith(b"here/bccnd/0:%d:a|x" % CLOCK)
    assert bus.relay.next_seq == CLOCK + 1
    bus.hear(echo, peer=HERE)
    bus.hear(datagram(b"here/bccnd/0", CLOCK + 1, b"a", b"y"))
    assert bus.relay.state.rejected == {"own": 1, "conflict": 1}


def test_every_format_and_taps_get_it_and_local_stays_local() -> None:
    bus = Bus()
    bus.begin()
    plain = bus.connect(b"SUB >")
    lines = bus.connect(b"CMSG format\0lines", b"SUB >")
    full = bus.connect(b"CMSG format\0full", b"SUB >")
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    bus.unix_us = 7
    bus.say(bus.relay.state.own, b"local/a", b"x")
    bus.settle()
    assert bus.sent == []
    assert bus.relay.state.own.seq == CLOCK
    assert plain.heard() == [b"MSG local/a\0x"]
    assert lines.heard() == [b"MSG local/a x\n"]
    shown = b"RECV local 7000 ok\0BCCN1[24]here/bccnd/0:1:local/a|x"
    assert full.heard() == tap.heard() == [shown]


def test_name_and_numbers_stay_over_a_replacement() -> None:
    bus = Bus()
    bus.begin()
    bus.say(bus.relay.state.own, b"a", b"x")
    state = state_of(bus.relay)
    state["own"]["name"] = b"here/bccnd/77"
    successor = Bus()
    restore(successor.relay, state, {})
    own = successor.relay.state.own
    assert (own.name, own.seq, own.first_seq) == (b"here/bccnd/77", CLOCK + 1, CLOCK)
    assert successor.relay.state.names.holders.get(b"here/bccnd/77") is own
    assert successor.relay.state.names.holders.get(b"here/bccnd/0") is None


def test_predecessor_without_a_source_leaves_the_name() -> None:
    state = state_of(Bus().relay)
    del state["own"]
    successor = Bus()
    successor.begin()
    restore(successor.relay, state, {})
    assert successor.relay.state.names.holders.get(b"here/bccnd/0") is successor.relay.state.own
    assert successor.relay.state.own.seq == CLOCK


def test_local_numbers_count_what_is_seen_whole() -> None:
    """Else a client of the format full would take what nobody saw for losses."""
    bus = Bus()
    publisher = bus.connect(b"MSG local/a\0", b"MSG local/a\0")
    full = bus.connect(b"CMSG format\0full", b"SUB local/>")
    publisher.say(b"MSG local/a\0", b"MSG local/a\0")
    shown = [bus.integrity.open(recv.datagram) for recv in full.shown()]
    assert [seq for _, seq, *_ in shown] == [1, 2]


@pytest.mark.parametrize("form", [b"on", b"interface"])
def test_a_tap_in_lines_shows_nothing_that_a_terminal_obeys(form: bytes):
    bus = Bus()
    tap = bus.connect(b"SUB x\n", b"CMSG tap\0" + form, privileged=True)
    bus.connect().say(b"MSG a\0\x1b[2J")
    bus.hear(b"\x1b]0;x\x07")
    sound, broken = tap.heard()
    assert sound.startswith(b"RECV local ")
    assert sound.endswith(b":a|\\x1b[2J\n")
    assert broken.endswith(b" \\x1b]0;x\\x07\n")


@pytest.mark.parametrize("tapping", [b"on", b"interface"])
def test_a_repaired_message_is_ok_to_clients_alone(tapping: bytes) -> None:
    """A reply that was repaired is a reply: clients take a message for one by the verdict ``ok``."""
    bus = Bus(repair_on=True)
    full = bus.connect(b"CMSG format\0full", b"SUB a")
    tap = bus.connect(b"CMSG tap\0" + tapping, privileged=True)
    bus.hear(datagram(b"b/bccnd/1/repair", 1, b"!bccnd/repair", b"last\nb/prog/2 1-1"))
    bus.hear(*(datagram(b"b/prog/2", number, b"a", b"x") for number in (1, 3)))
    bus.tick(0.02)  # it asks
    bus.hear(datagram(b"b/prog/2", 2, b"a", b"x"))
    assert [each.verdict for each in full.shown()] == [b"ok"] * 3
    seen = [each.verdict for each in tap.shown() if b":a|x" in each.datagram]
    assert seen == [b"ok", b"repaired", b"ok"]
