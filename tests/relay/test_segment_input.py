"""What comes from the segment: the hot path against the plain pair, and every way to be judged."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bccnd.errors import WireError
from bccnd.relay import dedup
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Envelope, Integrity, Level, Message
from bccnd.wire.verdict import Verdict
from tests.relay.fakes import CLOCK, ELSEWHERE, HERE, Bus, datagram
from tests.relay.rubble import datagrams

thorough = settings(deadline=None, max_examples=150)


@pytest.mark.parametrize("reorder", [0, 50])
@pytest.mark.parametrize("end", ["stays", "leaves", "renames", "returns"])
def test_own_datagrams_that_come_back_are_not_delivered_again(end: str, reorder: int):
    """Not even thousands of them, from a client that published in a hurry and left."""
    bus = Bus(reorder=reorder)
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"CMSG pack\0on", pid=7)
    publisher.say(sbus.pack([b"MSG demo/a\0%d" % number for number in range(3000)]))
    assert len(listener.heard()) == len(bus.sent) == 3000
    if end == "renames":
        publisher.say(b"CMSG name\0here/prog/7/worker")
    elif end != "stays":
        publisher.leave()
    if end == "returns":
        bus.connect(pid=7)
    bus.hear(*bus.sent, *bus.sent[-10:], peer=HERE)
    assert listener.heard() == []
    assert bus.relay.state.rejected == {"own": 3010}
    bus.hear(*bus.sent, peer=ELSEWHERE)
    assert listener.heard() == []
    assert bus.relay.state.rejected == {
        "own": 3010,
        "conflict" if end in ("stays", "returns") else "duplicate": 3000,
    }


integrities = [Integrity(), Integrity((), Level.CRC32), Integrity([b"k" * 32], Level.HMAC)]


def reads(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[bytes]]]:
    one = datagrams(integrities, [b"x", b"?", b"host/prog/1", b"", b"a b"], numbers)
    return st.lists(st.lists(one, max_size=12), max_size=4)


# Without a key a jump has to be agreed with (``dedup``), which the plain pair knows nothing of.
near = st.integers(1, dedup.NEAR)


@thorough
@given(
    case=st.one_of(
        st.tuples(reads(near), st.sampled_from(integrities)),
        st.tuples(reads(st.integers(1, 2**64)), st.just(integrities[-1])),
    )
)
def test_the_segment_brings_what_the_plain_pair_finds(case: tuple[list[list[bytes]], Integrity]):
    reads, integrity = case
    bus = Bus(integrity=integrity, local=[])
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    clients = {form: bus.connect(b"SUB ", b"CMSG format\0" + form) for form in (b"plain", b"full")}
    clients[b"packed"] = bus.connect(b"SUB ", b"CMSG pack\0on")
    last: dict[bytes, int] = {}
    for read in reads:
        expected, verdicts = [], []
        for datagram_ in read:
            try:
                envelope = Envelope.parse(datagram_)
                integrity.verify(envelope)
                if envelope.magic != b"BCCN1":
                    raise WireError(Verdict.VERSION)
                message = Message.parse(envelope.body)
            except WireError as error:
                verdicts.append(error.verdict)
                continue
            known = last.get(message.src)
            assume(integrity is integrities[-1] or message.seq <= (known or message.seq) + dedup.NEAR)
            if message.src != b"?" and known is not None and 0 <= known - message.seq < 1000:
                verdicts.append("stale")
                continue
            last[message.src] = message.seq
            verdicts.append("ok")
            expected.append(b"MSG %b\0%b" % (message.chan, message.payload))
        bus.hear(*read)
        assert clients[b"plain"].heard() == clients[b"packed"].heard() == expected
        shown = tap.shown()
        assert [recv.datagram for recv in shown] == read
        stale = {b"duplicate", b"late"}
        assert ["stale" if recv.verdict in stale else recv.verdict.decode() for recv in shown] == verdicts
        sound = [datagram_ for datagram_, verdict in zip(read, verdicts, strict=True) if verdict == "ok"]
        assert [recv.datagram for recv in clients[b"full"].shown()] == sound


def verdicts(bus: Bus, *datagrams: bytes, peer: bytes = b"10.0.0.2:5400") -> list[str]:
    """How a tap is shown them."""
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    bus.hear(*datagrams, peer=peer)
    shown = tap.shown()
    assert [(recv.peer, recv.datagram) for recv in shown] == [(peer, one) for one in datagrams]
    tap.leave()
    return [recv.verdict.decode() for recv in shown]


def test_own_name_from_another_host():
    """What was sent comes back: own. What was never sent cannot come back: somebody else has the name."""
    bus = Bus()
    listener = bus.connect(b"SUB a")
    client = bus.connect(b"MSG a\0", pid=7)
    listener.heard()
    ahead = datagram(client.name, CLOCK + 1, b"a")
    assert verdicts(bus, *bus.sent, *bus.sent, ahead, peer=HERE) == ["own", "own", "conflict"]
    assert listener.heard() == []
    client.leave()
    assert verdicts(bus, *bus.sent, peer=HERE) == ["own"]
    assert verdicts(bus, *bus.sent, ahead) == ["duplicate", "ok"]


@pytest.mark.parametrize("peer", [b"10.0.0.1:5400", b"10.0.0.1:9", b"127.0.0.1:5400", b"[fe80::1%eth0]:5400"])
def test_what_comes_back_is_known_by_where_it_comes_from(peer: bytes):
    bus = Bus(addresses=frozenset([b"10.0.0.1", b"fe80::1"]))
    bus.connect(b"MSG a\0", b"MSG a\0", pid=7)
    assert verdicts(bus, *bus.sent, peer=peer) == ["own", "own"]
    for elsewhere in (b"10.0.0.2:5400", b"10.0.0.11:5400", b"[fe80::2%eth0]:5400"):
        assert verdicts(bus, *bus.sent, peer=elsewhere) == ["conflict", "conflict"]


def test_another_program_of_this_host_may_not_bear_the_name():
    """As a second daemon does: its numbers are not those that were sent here, though its address is."""
    bus = Bus()
    client = bus.connect(b"MSG a\0", b"MSG a\0", pid=7)
    first = client.session.first_seq
    below = [datagram(client.name, first - 1, b"a"), datagram(client.name, first, b"a")]
    assert verdicts(bus, *below, peer=HERE) == ["conflict", "own"]
    assert verdicts(bus, datagram(client.name, first + 2, b"a"), peer=HERE) == ["conflict"]


def test_a_bridge_brings_back_what_was_sent_or_a_conflict():
    bus = Bus()
    client, bridge = bus.connect(b"MSG a\0", pid=7), bus.connect(privileged=True)
    forged = datagram(client.name, client.session.seq, b"a")
    assert bridge.ask(*bus.sent, forged) == [
        b"CMSG error\0bad-datagram packet: own",
        b"CMSG error\0bad-datagram packet: conflict",
    ]


def test_the_number_decides_where_addresses_are_not_known():
    bus = Bus(addresses=None)
    client = bus.connect(b"MSG a\0", pid=7)
    assert verdicts(bus, *bus.sent, datagram(client.name, client.session.seq, b"a")) == ["own", "conflict"]


def test_a_run_of_two_senders_is_judged_for_each():
    bus = Bus()
    bus.connect(b"MSG a\0", b"MSG a\0", b"MSG a\0", pid=7)
    starts, ends = bus._lay(bus.sent, bus._datagram_slots)
    bus.relay.from_segment(starts, ends, [HERE, ELSEWHERE, HERE].__getitem__, bus.moment)
    bus.settle()
    assert bus.relay.state.rejected == {"own": 2, "conflict": 1}


def test_a_run_of_one_sender_is_judged_at_once():
    bus = Bus()
    bus.connect(*[b"MSG a\0"] * 5, pid=7)
    starts, ends = bus._lay(bus.sent, bus._datagram_slots)
    peers = [HERE, HERE, HERE, ELSEWHERE, ELSEWHERE]
    asked = []

    def same_peer(index: int, count: int) -> int:
        asked.append((index, count))
        return peers[index : index + count].count(peers[index])

    bus.relay.from_segment(starts, ends, peers.__getitem__, bus.moment, same_peer=same_peer)
    bus.settle()
    assert bus.relay.state.rejected == {"own": 3, "conflict": 2}
    assert asked == [(0, 5)]


def test_local_channels_do_not_come_from_the_segment():
    bus = Bus()
    listener = bus.connect(b"SUB ")
    assert verdicts(bus, datagram(b"x", 1, b"local/a"), datagram(b"x", 2, b"a")) == ["local-channel", "ok"]
    assert listener.heard() == [b"MSG a\0"]


ONE, ANOTHER = b"10.0.0.2:5400", b"10.0.0.3:5400"


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ("deliver", ["ok"] * 4),
        ("by-address", ["ok", "duplicate", "ok", "duplicate"]),
        ("drop", ["unknown-source"] * 4),
    ],
)
def test_the_unknown_source(unknown: str, expected: list[str]):
    bus = Bus(unknown=unknown)
    listener = bus.connect(b"SUB a")
    one = datagram(b"?", 1, b"a", b"who")
    found = [
        *verdicts(bus, one, one, peer=ONE),
        *verdicts(bus, one, peer=ANOTHER),
        *verdicts(bus, one, peer=ONE),
    ]
    assert found == expected
    assert len(listener.heard()) == expected.count("ok")


def test_a_recording_is_dropped_counted_and_shown_to_taps():
    bus = Bus(replays="drop")
    listener, tap = bus.connect(b"SUB demo/>"), bus.connect(b"CMSG tap\0on", privileged=True)
    numbers = [*range(1000), *range(dedup.REACH, dedup.REACH + 1000)]
    recording = [datagram(b"there/prog/1", CLOCK + number, b"demo/x") for number in numbers]
    bus.hear(*recording)
    assert len(listener.heard()) == 2000
    tap.heard()
    bus.hear(*recording)
    assert listener.heard() == []
    assert bus.relay.state.rejected == {"replayed": 1000, "duplicate": 1000}
    assert tap.heard()[0] == b"RECV 10.0.0.2:5400 %d replayed\0" % (CLOCK * 1000) + recording[0]
