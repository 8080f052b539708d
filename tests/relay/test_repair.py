"""What is lost is asked for, what others ask for is sent again; nobody can make that cost much."""

import pytest

from bccnd.relay.dedup import JUMP
from bccnd.relay.repair import (
    AGAIN_SECONDS,
    BELIEVED_SECONDS,
    LINES_PER_SECOND,
    PLAIN_REACH,
    RESENT_AT_ONCE,
)
from bccnd.relay.succession import restore, state_of
from bccnd.wire.bccn1 import Message
from bccnd.wire.repair import CHANNEL, Gone, Last, Plain, Resend, last_payload, number_payloads, parse
from tests.relay.fakes import CLOCK, ELSEWHERE, Bus, FakeClient, datagram, options

SRC, DAEMON = b"there/prog/1", b"there/bccnd/9"
OTHER = b"10.0.0.3:5400"
FIRST = CLOCK + 1000


class Host:
    """A bus that repairs, with a client that hears the channel ``a`` of a source on another host."""

    def __init__(self, **values: object) -> None:
        self.bus = Bus(repair_on=True, **values)
        self.bus.begin()
        self.client = self.bus.connect(b"SUB a")
        self.said = 0
        self.daemon = 0

    def hear(self, *numbers: int, src: bytes = SRC) -> list[int]:
        """Messages of the source; what the client gets then."""
        self.bus.hear(*[datagram(src, FIRST + number, b"a", b"%d" % number) for number in numbers])
        return self.got()

    def got(self) -> list[int]:
        return [int(packet.partition(b"\0")[2]) for packet in self.client.heard()]

    def announce(self, last: int, first: int | None = None, src: bytes = SRC) -> None:
        self.tell(last_payload([(src, None if first is None else FIRST + first, FIRST + last)]))

    def tell(self, payload: bytes, src: bytes = DAEMON, peer: bytes = ELSEWHERE) -> None:
        """Something that another daemon says."""
        self.daemon += 1
        self.bus.hear(datagram(src + b"/repair", self.daemon, CHANNEL, payload), peer=peer)

    def ask(self, *ranges: range, src: bytes, host: bytes = DAEMON, peer: bytes = ELSEWHERE) -> None:
        for payload in number_payloads(b"resend", [(src, ranges)]):
            self.tell(payload, host, peer)

    def wait(self, seconds: float) -> None:
        """Let the time pass, and have done what is due."""
        until = self.bus.now + seconds
        while self.bus.relay.alarm.due <= until:
            self.bus.tick(max(0.0, self.bus.relay.alarm.due - self.bus.now))
        self.bus.tick(until - self.bus.now)

    def replace(self) -> None:
        """A successor takes over."""
        old, self.bus = self.bus, Bus(repair_on=True)
        self.bus.now, self.bus.unix_us = old.now, old.unix_us
        ports = {number: session.port for number, session in old.relay.sessions.items()}
        restore(self.bus.relay, state_of(old.relay), ports)
        self.client = FakeClient(self.bus, self.bus.relay.sessions[self.client.session.number])
        self.bus.clients[self.client.session.number] = self.client

    def sent(self) -> list[Message]:
        taken, self.bus.sent = self.bus.sent, []
        return [Message.parse(each, each.index(b"]") + 1) for each in taken]

    def asked(self) -> list[int]:
        """The numbers that were asked for since the last look."""
        requests = [parse(message.payload) for message in self.sent() if message.chan == CHANNEL]
        numbers = [each for request in requests if isinstance(request, Resend) for each in request.numbers]
        return [number - FIRST for _, ranges in numbers for part in ranges for number in part]


def repairing(**values: object) -> Host:
    """Its source is known, and that a daemon keeps what it sends."""
    host = Host(**values)
    assert host.hear(0) == [0]
    host.announce(0)
    host.sent()
    return host


def test_a_lost_message_is_asked_for_and_comes_in_its_turn():
    host = repairing()
    assert host.hear(1, 3, 4) == [1]
    host.wait(0.01)
    assert host.asked() == [2]
    assert host.hear(5) == []
    assert host.hear(2) == [2, 3, 4, 5]
    assert host.hear(6) == [6]
    (source,) = [source for src, source in host.bus.relay.state.sources if src == SRC]
    assert (source.received, source.lost, source.repaired, source.gap) == (7, 0, 1, None)


def test_a_tap_sees_that_a_message_was_repaired():
    host = repairing()
    tap = host.bus.connect(b"CMSG tap\0on", privileged=True)
    host.hear(2)
    host.wait(0.01)
    host.hear(1, 3)
    shown = [
        (recv.verdict, recv.datagram.rpartition(b"|")[2]) for recv in tap.shown() if b":a|" in recv.datagram
    ]
    assert shown == [(b"repaired", b"1"), (b"ok", b"2"), (b"ok", b"3")]


def test_a_last_message_that_was_lost_is_repaired_as_well():
    host = repairing()
    tap = host.bus.connect(b"CMSG tap\0on", privileged=True)
    host.announce(3)
    host.wait(0.01)
    assert host.hear(1, 2, 3) == [1, 2, 3]
    assert [recv.verdict for recv in tap.shown() if b":a|" in recv.datagram] == [b"repaired"] * 3
    (source,) = [source for src, source in host.bus.relay.state.sources if src == SRC]
    assert (source.received, source.lost, source.repaired, source.gap) == (4, 0, 3, None)
    assert host.bus.relay.state.sources.missed == host.bus.relay.state.sources.found == 3


def test_a_last_message_that_was_overtaken_is_not_repaired():
    host = repairing()
    host.announce(2)
    assert host.hear(1, 2) == [1, 2]
    assert host.bus.relay.repair.status()["repaired"] == 0


@pytest.mark.parametrize("heard", [1, 2, 30])
def test_numbers_that_jumped_are_no_losses(heard: int):
    """A program that outlives its daemon has numbers of a clock that went on."""
    host, begin = repairing(), 500_000
    numbers = list(range(begin, begin + heard))
    assert host.hear(*numbers) == []
    host.announce(begin + heard - 1, first=begin)
    assert host.got() == numbers
    assert host.hear(begin + 100, begin + 101, begin + 99) == []
    assert host.hear(*range(begin + heard, begin + 99))[-1] == begin + 101
    host.wait(1.0)
    assert host.asked() == []
    (source,) = [source for src, source in host.bus.relay.state.sources if src == SRC]
    assert (source.received, source.lost, source.first - FIRST, source.gap) == (103, 0, begin, None)


def test_numbers_before_a_first_one_that_may_be_kept_are_losses():
    host = repairing()
    assert host.hear(10, 11) == []
    host.announce(11, first=10)
    assert host.got() == []
    host.wait(0.01)
    assert host.asked() == list(range(1, 10))


def test_a_message_that_was_overtaken_needs_no_request():
    host = repairing()
    assert host.hear(2) == []
    assert host.hear(1) == [1, 2]
    host.wait(1.0)
    assert host.asked() == []
    assert host.bus.relay.repair.status()["repaired"] == 0


def test_what_nobody_keeps_is_never_held_back():
    host = Host()
    assert host.hear(0, 2, 3) == [0, 2, 3]
    host.wait(1.0)
    assert host.asked() == []


def test_a_new_source_is_likely_kept_by_the_daemon_of_its_host():
    host = Host()
    beat = datagram(DAEMON, 1, b"heartbeat/" + DAEMON, b"bccnd/1.2.3 repair=4096")
    host.bus.hear(beat)
    assert host.hear(0, 2) == [0]
    assert host.hear(1) == [1, 2]
    host.bus.hear(
        datagram(b"there/prog/2", 1, b"a", b"1"), datagram(b"there/prog/2", 3, b"a", b"3"), peer=OTHER
    )
    assert host.got() == [1, 3]  # it is not from there


def test_a_daemon_that_does_not_repair_keeps_nothing():
    host = Host()
    host.bus.hear(datagram(DAEMON, 1, b"heartbeat/" + DAEMON, b"bccnd/1.2.3"))
    assert host.hear(0, 2) == [0, 2]


def test_a_source_that_its_daemon_calls_plain_waits_no_more():
    host = repairing()
    assert host.hear(2) == []
    host.tell(b"plain\n" + SRC, src=b"elsewhere/bccnd/1")
    assert host.got() == []  # which is another's to say
    host.tell(b"plain\n" + SRC)
    assert host.got() == [2]
    assert host.hear(4) == [4]
    host.announce(4)
    assert host.hear(6) == []


def test_what_is_gone_is_waited_for_no_more():
    host = repairing()
    host.hear(2, 5)
    host.tell(b"gone\n%b %d 0,2" % (SRC, FIRST + 1))
    assert host.got() == [2]
    host.tell(b"gone\n%b %d 0" % (SRC, FIRST + 4))
    assert host.got() == [5]
    assert host.bus.relay.repair.status()["gone"] == 3


def test_what_does_not_come_is_given_up():
    host = repairing()
    assert host.hear(2, 3) == []
    host.wait(0.09)
    assert host.got() == []
    host.wait(0.02)
    assert host.got() == [2, 3]
    assert len(host.asked()) >= 3
    assert host.hear(1) == []  # too late
    (source,) = [source for src, source in host.bus.relay.state.sources if src == SRC]
    assert (source.received, source.lost, source.late, source.given_up) == (3, 0, 1, 1)


def test_what_another_asks_for_is_not_asked_for():
    host = repairing()
    host.hear(2)
    host.ask(range(FIRST + 1, FIRST + 2), src=SRC, host=b"other/bccnd/1", peer=OTHER)
    host.wait(0.01)
    assert host.asked() == []
    host.wait(0.01)
    assert host.asked() == [1]


def test_all_that_is_missing_goes_into_one_request():
    host = repairing()
    for number in range(2, 200, 2):
        host.hear(number)
    host.wait(0.012)
    requests = [message for message in host.sent() if message.chan == CHANNEL]
    assert len(requests) == 1


def test_the_last_message_is_asked_for_once_it_is_announced():
    host = repairing()
    host.announce(2)
    host.wait(0.012)
    assert host.asked() == [1, 2]
    assert host.hear(1) == [1]  # nothing is missing below it
    assert host.hear(2) == [2]
    host.wait(1.0)
    assert host.asked() == []


def test_the_only_message_of_a_source_is_asked_for():
    host = Host()
    host.announce(1, first=0)
    host.wait(0.012)
    assert host.asked() == [0, 1]
    assert host.hear(1) == []
    assert host.hear(0) == [0, 1]


def test_a_source_begins_when_it_is_heard():
    host = Host()
    host.announce(7)
    host.wait(1.0)
    assert host.asked() == []
    assert host.hear(9) == [9]


@pytest.mark.parametrize("last", [2**63, JUMP + 1, 2**64 - 1 - FIRST])
def test_numbers_out_of_reach_are_not_asked_for(last):
    host = repairing()
    host.announce(last)
    host.wait(1.0)
    assert host.asked() == []
    assert host.hear(1) == [1]


def test_a_number_beyond_all_counting_is_taken_as_today():
    host = repairing()
    host.bus.hear(datagram(SRC, 2**64 - 1, b"a", b"0"))
    assert host.got() == [0]
    assert host.hear(1) == [1]


def test_numbers_that_were_never_sent_hold_nothing_back():
    host = repairing()
    host.announce(1000)
    host.wait(0.012)
    assert host.asked() == list(range(1, 1001))
    host.tell(b"gone\n%b %d 0-999" % (SRC, FIRST + 1))
    assert host.hear(1, 2, 3) == [1, 2, 3]
    host.wait(1.0)
    assert host.asked() == []
    (source,) = [source for src, source in host.bus.relay.state.sources if src == SRC]
    assert (source.received, source.lost) == (4, 0)


def test_nothing_is_asked_for_where_nobody_listens():
    host = repairing()
    host.client.leave()
    host.bus.hear(datagram(SRC, FIRST + 2, b"a"))
    host.wait(1.0)
    assert host.asked() == []


def test_a_restart_releases_what_waits():
    host = repairing(replays="accept")
    assert host.hear(2) == []
    host.bus.hear(datagram(SRC, 1, b"a", b"1"))
    assert host.got() == [2, 1]


def test_a_jump_too_far_to_ask_for_holds_nothing_back():
    host = repairing()
    host.hear(2)
    host.hear(2 * JUMP)  # a stray, with which the next agrees
    assert host.hear(2 * JUMP + 1)[-1] == 2 * JUMP + 1
    assert host.hear(2 * JUMP + 2) == [2 * JUMP + 2]


def test_a_stray_waits_for_what_was_lost_before_it():
    host = repairing()
    assert host.hear(100) == []
    host.wait(0.012)
    assert host.asked() == list(range(1, 100))
    assert host.hear(*range(1, 100)) == list(range(1, 101))


def test_a_forged_stray_delays_only_itself():
    host = repairing()
    assert host.hear(1000) == []
    assert host.hear(1, 2, 3) == [1, 2, 3]
    host.wait(0.2)
    assert host.got() == [1000]
    assert host.hear(4, 5) == [4, 5]


def test_what_waits_and_what_is_kept_go_over_to_a_successor():
    host = repairing()
    host.hear(2)
    speaker = host.bus.connect(b"CMSG echo\0off")
    speaker.say(b"MSG b\0kept")
    (kept,) = [message for message in host.sent() if message.chan == b"b"]
    host.replace()
    host.ask(range(kept.seq, kept.seq + 1), src=kept.src)
    host.wait(0.012)
    sent = host.sent()
    assert kept in sent
    assert host.hear(1) == [1, 2]


# -- what others ask for


class Sender(Host):
    """A bus with a client that has sent ``count`` messages."""

    def __init__(self, count: int = 3, **values: object) -> None:
        super().__init__(**values)
        self.speaker: FakeClient = self.bus.connect(b"CMSG echo\0off")
        for number in range(count):
            self.speaker.say(b"MSG b\0%d" % number)
        self.messages = [message for message in self.sent() if message.chan == b"b"]
        self.first = self.messages[0].seq
        self.wait(1.0)
        self.announced = [message.payload for message in self.sent()]

    def again(self) -> list[int]:
        return [message.seq - self.first for message in self.sent() if message.chan == b"b"]


def test_a_host_that_asks_for_much_is_named():
    host = Sender(count=200)
    assert host.bus.relay.take_askers(host.bus.now) == []
    host.ask(range(host.first, host.first + 150), src=host.speaker.name)
    host.wait(10.0)
    (asker,) = host.bus.relay.take_askers(host.bus.now)
    assert (asker.host, asker.peer, asker.asked, asker.sent) == ("there", "10.0.0.2", 150, 0)
    (row,) = host.bus.relay.status()["repair"]["askers"]
    assert row["peer"] == "10.0.0.2"


def test_who_asks_for_what_is_not_kept_does_not_ask_for_much():
    host = Sender()
    host.ask(range(host.first + 1000, host.first + 9000), src=host.speaker.name)
    host.wait(10.0)
    assert host.bus.relay.take_askers(host.bus.now) == []


def test_what_is_asked_for_is_sent_again_byte_for_byte():
    host = Sender()
    host.ask(range(host.first + 1, host.first + 3), src=host.speaker.name)
    host.wait(0.002)
    assert host.sent() == host.messages[1:]


def test_a_number_is_sent_again_once_in_a_while():
    host = Sender()
    numbers = range(host.first, host.first + 3)
    for peer in (ELSEWHERE, OTHER):
        host.ask(numbers, src=host.speaker.name, peer=peer)
    host.wait(AGAIN_SECONDS / 2)
    assert host.again() == [0, 1, 2]
    host.wait(AGAIN_SECONDS)
    host.ask(numbers, src=host.speaker.name)
    host.wait(0.002)
    assert host.again() == [0, 1, 2]


def test_much_is_sent_again_a_batch_at_a_time():
    host = Sender(count=3 * RESENT_AT_ONCE)
    host.ask(range(host.first, host.first + 3 * RESENT_AT_ONCE), src=host.speaker.name)
    host.bus.tick(0.0)
    assert host.again() == list(range(RESENT_AT_ONCE))
    host.wait(1.0)
    assert host.again() == list(range(RESENT_AT_ONCE, 3 * RESENT_AT_ONCE))


def test_what_is_not_kept_is_gone():
    host = Sender(count=200, repair_numbers=64)
    host.ask(range(host.first, host.first + 300), src=host.speaker.name)
    host.wait(0.1)
    sent = host.sent()
    gone = [parse(message.payload) for message in sent if message.payload.startswith(b"gone")]
    numbers = {
        number - host.first
        for message in gone
        for _, ranges in message.numbers
        for r in ranges
        for number in r
    }
    again = {message.seq - host.first for message in sent if message.chan == b"b"}
    assert numbers | again == set(range(300))
    assert not numbers & again
    assert 199 in again


def test_plain_programs_see_no_number_that_looks_like_a_restart():
    host = Sender(count=2 * PLAIN_REACH)
    host.bus.hear(datagram(b"plain", 1, b"a"), peer=OTHER)
    host.ask(range(host.first, host.first + 2 * PLAIN_REACH), src=host.speaker.name)
    host.wait(1.0)
    assert host.again() == list(range(PLAIN_REACH, 2 * PLAIN_REACH))


def test_what_waits_to_be_sent_again_minds_plain_programs():
    host = Sender(count=2 * PLAIN_REACH)
    host.ask(range(host.first, host.first + 2), src=host.speaker.name)
    host.wait(0.1)
    assert host.again() == [0, 1], "everybody was believed to repair"
    host.bus.hear(datagram(b"plain", 1, b"a"), peer=OTHER)
    host.wait(BELIEVED_SECONDS - 0.11)
    host.ask(range(host.first, host.first + 2 * PLAIN_REACH), src=host.speaker.name)
    host.wait(1.0)
    assert set(range(PLAIN_REACH)) - set(host.again()), "what was left when that was noticed"


def test_where_everybody_repairs_all_that_is_kept_is_sent_again():
    host = Sender(count=2 * PLAIN_REACH)
    host.ask(range(host.first, host.first + 2 * PLAIN_REACH), src=host.speaker.name)
    host.wait(1.0)
    assert host.again() == list(range(2 * PLAIN_REACH))


def test_a_source_of_this_host_that_is_not_kept_is_called_plain():
    host = Sender()
    host.ask(range(5, 6), src=b"here/plain/7")
    host.ask(range(5, 6), src=b"nobody/prog/1")
    host.wait(0.002)
    said = [parse(message.payload) for message in host.sent()]
    assert said == [Plain((b"here/plain/7",))]


def test_what_the_daemon_says_itself_is_not_kept():
    host = Sender()
    own = host.bus.relay.state.own
    host.ask(range(own.first_seq, own.seq), src=own.name)
    host.wait(0.002)
    assert host.again() == []


def test_requests_beyond_the_share_of_a_host_are_not_looked_at():
    host = Sender()
    request = [range(2 * number, 2 * number + 1) for number in range(200)]
    for _ in range(1000):
        host.ask(*request, src=host.speaker.name)
    heard = host.bus.relay.repair.status()["heard"]
    assert heard * len(request) <= 2 * LINES_PER_SECOND
    host.sent()
    host.ask(range(host.first, host.first + 1), src=host.speaker.name, host=b"other/bccnd/1", peer=OTHER)
    host.wait(0.002)
    assert host.again() == [0]


def test_what_one_host_has_sent_again_is_bounded():
    host = Sender(count=3000, repair_rate=1024)
    for _ in range(40):
        host.ask(range(host.first, host.first + 3000), src=host.speaker.name)
        host.wait(0.02)
    assert len(host.again()) <= 1024
    assert host.bus.relay.repair.status()["refused"] > 0


def test_a_copy_of_a_request_is_a_duplicate():
    host = Sender()
    (payload,) = number_payloads(b"resend", [(host.speaker.name, [range(host.first, host.first + 1)])])
    request = datagram(DAEMON + b"/repair", 5, CHANNEL, payload)
    host.bus.hear(request, request)
    assert host.bus.relay.state.rejected == {"duplicate": 1}
    assert host.bus.relay.repair.status()["heard"] == 1


def test_nobody_but_a_daemon_is_heard():
    host = Sender()
    (payload,) = number_payloads(b"resend", [(host.speaker.name, [range(host.first, host.first + 1)])])
    host.bus.hear(datagram(b"there/prog/1/repair", 5, CHANNEL, payload))
    host.wait(0.01)
    assert host.again() == []


def test_no_subscriber_sees_any_of_it():
    host = Sender()
    everything = host.bus.connect(b"SUB >", b"CMSG listen")
    host.ask(range(host.first, host.first + 1), src=host.speaker.name)
    host.wait(1.0)
    assert everything.heard() == []


def test_another_key_forgets_what_was_signed_with_the_old_one():
    host = Sender()
    host.bus.reconfigure(integrity=type(host.bus.integrity)([b"k" * 16]))
    assert host.bus.relay.repair.status()["kept"] == {"sources": 0, "bytes": 0}


def test_switched_off_it_neither_asks_nor_answers():
    host = repairing()
    assert host.hear(2) == []
    host.bus.reconfigure(options=options(repair_on=False))
    host.wait(0.01)
    assert host.got() == [2]
    assert host.hear(4) == [4]
    host.announce(9)
    host.wait(1.0)
    assert host.asked() == []


def test_the_heartbeat_says_what_is_kept():
    host = Host(heartbeat_seconds=1, repair_numbers=128)
    host.wait(1.1)
    beats = {message.payload for message in host.sent() if message.chan.startswith(b"heartbeat/")}
    assert beats == {b"bccnd/1.2.3 repair=128"}


def test_whoever_speaks_is_announced():
    host = Sender()
    assert [parse(payload) for payload in host.announced] == [
        Last(((host.speaker.name, host.first, host.first + 2),))
    ] * 3
    host.wait(1000.0)
    assert host.sent() == []


def test_what_is_forgotten_before_its_turn_is_gone():
    host = Host()
    sender = host.bus.connect()
    for _ in range(100):
        sender.say(b"MSG b\0x")
    record = host.bus.relay.state.sent.get(sender.session.name)
    assert record
    first = record.first
    host.sent()
    host.ask(range(first + 60, first + 90), src=record.name)
    host.ask(range(first + 10, first + 40), src=record.name)
    host.bus.relay.state.sent.clear()  # as when the key changes
    host.sent()
    host.wait(0.05)
    said = [(message.chan, parse(message.payload)) for message in host.sent()]
    gone = (range(first + 60, first + 90),), (range(first + 10, first + 40),)
    assert said == [(CHANNEL, Gone(tuple((record.name, ranges) for ranges in gone)))]
