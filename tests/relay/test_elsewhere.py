"""What daemons ask each other about watched patterns, and answer."""

from typing import Any

import pytest

from bccnd.relay.elsewhere import (
    DAEMONS_LIMIT,
    LEASE_SECONDS,
    LEASED_BYTES,
    LONG,
    PATTERN_BYTES,
    PATTERNS_PER_SECOND,
    QUESTION_BYTES,
    QUESTIONS_PER_SECOND,
    RENEW_SECONDS,
)
from bccnd.relay.router import QUESTIONS
from bccnd.relay.succession import restore, state_of
from tests.golden import entries, golden
from tests.relay.fakes import ELSEWHERE, Bus, FakeClient, datagram, options
from tests.relay.segment import Segment, message_of

FAR = b"far/bccnd/1"


def watching(segment: Segment, host: bytes, *patterns: bytes) -> FakeClient:
    client = segment[host].connect(*[b"CMSG watch\0" + pattern for pattern in patterns])
    segment.wait(0.4, 0.02)
    client.heard()
    return client


def answers(bus: Bus) -> list[bytes]:
    """What the daemon said to another one since the last look."""
    said = [message_of(sent) for sent in bus.sent]
    bus.sent.clear()
    return [message.payload for message in said if message.chan == b"!" + FAR]


def ask(bus: Bus, seq: int, question: bytes, src: bytes = FAR, peer: bytes = ELSEWHERE) -> None:
    bus.hear(datagram(src, seq, QUESTIONS, question), peer=peer)
    wait(bus, 0.02)


def wait(bus: Bus, seconds: float) -> None:
    for _ in range(round(seconds / 0.01)):
        bus.tick(0.01)


# What is learned from others


def test_the_first_and_the_last_listener_elsewhere_are_told():
    segment = Segment(b"one", b"two", b"three")
    client = watching(segment, b"one", b"a/>", b"b")
    first, second = segment[b"two"].connect(b"SUB a/x"), segment[b"three"].connect(b"SUB >")
    segment.wait(0.1, 0.01)
    assert client.heard() == [b"CMSG wanted\0elsewhere a/>", b"CMSG wanted\0elsewhere b"]
    first.leave()
    segment.wait(0.2, 0.01)
    assert client.heard() == []
    second.say(b"UNSUB >")
    segment.wait(0.1, 0.01)
    assert client.heard() == [b"CMSG wanted\0no a/>", b"CMSG wanted\0no b"]


def test_between_this_host_and_others_nobody_is_told_no():
    segment = Segment(b"one", b"two")
    client = watching(segment, b"one", b"a")
    here = segment[b"one"].connect(b"SUB a")
    segment.wait(0.1, 0.01)
    segment[b"two"].connect(b"SUB a")
    segment.wait(5.0, 0.05)
    assert client.heard() == [b"CMSG wanted\0here a"]
    here.leave()
    segment.wait(0.4, 0.01)
    assert client.heard() == [b"CMSG wanted\0elsewhere a"]


def test_a_daemon_that_vanishes_is_a_listener_that_goes():
    cut: list[bytes] = []
    segment = Segment(b"one", b"two", loses=lambda host, _datagram, _times: host in cut)
    client = watching(segment, b"one", b"a")
    segment[b"two"].connect(b"SUB a")
    segment.wait(0.2, 0.01)
    assert client.heard() == [b"CMSG wanted\0elsewhere a"]
    cut.append(b"one")
    segment.wait(LEASE_SECONDS - RENEW_SECONDS, 0.05)
    assert client.heard() == []
    segment.wait(2 * RENEW_SECONDS, 0.05)
    assert client.heard() == [b"CMSG wanted\0no a"]


@pytest.mark.parametrize("lost", [b"wanted 1", b"wanted 0", b"\nwatch "])
def test_what_was_lost_comes_with_the_next_question(lost: bytes) -> None:
    losing: list[bytes] = []
    segment = Segment(b"one", b"two", loses=lambda _host, sent, _times: any(each in sent for each in losing))
    client = watching(segment, b"one", b"a")
    other = segment[b"two"].connect()
    for packet, told in ((b"SUB a", b"CMSG wanted\0elsewhere a"), (b"UNSUB a", b"CMSG wanted\0no a")):
        losing.append(lost)
        other.say(packet)
        segment.wait(0.2, 0.01)
        losing.clear()
        segment.wait(RENEW_SECONDS + 0.2, 0.02)
        assert client.heard() == [told]


def test_local_channels_are_never_asked_about():
    segment = Segment(b"one", b"two")
    segment[b"two"].connect(b"SUB local/>", b"SUB local/a")
    segment.said.clear()
    client = segment[b"one"].connect(b"CMSG watch\0local/a", b"CMSG watch\0local/b/>")
    segment.wait(1.0, 0.02)
    assert client.heard() == [b"CMSG wanted\0no local/a", b"CMSG wanted\0no local/b/>"]
    assert not any(b"\nwatch " in said for said in segment.said)
    client = watching(segment, b"one", b"*/a", b">")
    segment.wait(RENEW_SECONDS, 0.05)
    assert client.heard() == [], "nor do local listeners count elsewhere"


def test_questions_are_full_and_few():
    segment = Segment(b"one")
    client = segment[b"one"].connect(*[b"CMSG watch\0channel/%04d/>" % number for number in range(500)])
    segment.wait(1.0, 0.01)
    client.heard()
    segment.said.clear()
    segment.wait(RENEW_SECONDS, 0.01)
    asked = [said for said in segment.said if b"\nwatch " in said]
    assert sum(said.count(b"channel/") for said in asked) == 500
    assert len(asked) <= 500 * 15 // (QUESTION_BYTES - 15) + 1
    assert all(len(said) <= 1400 for said in asked)


def test_who_comes_and_goes_asks_nothing_anew():
    segment = Segment(b"one")
    watching(segment, b"one", b"a")
    segment.said.clear()
    other = segment[b"one"].connect()
    for _ in range(10):
        other.say(b"SUB a")
        segment.wait(0.06, 0.01)
        other.say(b"UNSUB a")
        segment.wait(0.06, 0.01)
    assert sum(b"\nwatch " in said for said in segment.said) <= 1


def test_forged_answers_change_nothing():
    bus = Bus()
    client = bus.connect(b"CMSG watch\0a")
    bus.tick(0.0)
    bus.tick(0.0)
    (question,) = [message_of(sent).payload for sent in bus.sent if b"\nwatch " in sent]
    token = question.partition(b"\n")[0]
    said = [b"wanted 11", b"wanted 2", b"wanted ", b"wanted", b"wanted 1 ", b"listeners 1"]
    wrong = [(FAR, token + b"\n" + each) for each in said]
    wrong += [(FAR, b"other\nwanted 1"), (b"far/x/1", token + b"\nwanted 1"), (b"?", token + b"\nwanted 1")]
    for number, (src, payload) in enumerate(wrong):
        bus.hear(datagram(src, number + 1, b"!here/bccnd/0", payload))
    wait(bus, 0.1)
    assert client.heard() == []
    bus.hear(datagram(FAR, 100, b"!here/bccnd/0", token + b"\nwanted 1"))
    bus.tick(0.0)
    assert client.heard() == [b"CMSG wanted\0elsewhere a"]


# What others are told


def test_a_question_is_answered_once_somebody_listens():
    bus = Bus()
    ask(bus, 1, b"t\nwatch 5 /\na/>\nb\nc.>")
    assert answers(bus) == []
    listener = bus.connect(b"SUB b")
    wait(bus, 0.1)
    assert answers(bus) == [b"t\nwanted 010"]
    ask(bus, 2, b"t\nwatch 5 /\na/>\nb\nc.>")
    assert answers(bus) == [b"t\nwanted 010"]
    listener.leave()
    wait(bus, 0.1)
    ask(bus, 3, b"t\nwatch 5 /\na/>\nb\nc.>")
    assert answers(bus) == [b"t\nwanted 000"] * 2


def test_an_answer_is_as_the_vectors_have_it():
    (entry,) = [entry for entry in entries("watches", "answers") if len(entry["wanted"]) == 1]
    bus = Bus()
    bus.connect(b"SUB a")
    ask(bus, 1, entry["text"].partition("\n")[0].encode() + b"\nwatch 5 /\na")
    assert answers(bus) == [bytes.fromhex(entry["payload"])]


def test_a_lease_ends():
    bus = Bus()
    ask(bus, 1, b"t\nwatch 1 /\na")
    wait(bus, 1.1)
    bus.connect(b"SUB a")
    wait(bus, 0.2)
    assert answers(bus) == []
    elsewhere = bus.relay.watches._elsewhere
    assert (elsewhere._leases, elsewhere._latest, elsewhere._leased, len(elsewhere._held)) == ({}, {}, 0, 0)


@pytest.mark.parametrize(
    ("src", "question"),
    [
        (b"far/x/1", b"t\nwatch 5 /\na"),
        (b"?", b"t\nwatch 5 /\na"),
        (b"far/bccnd/*", b"t\nwatch 5 /\na"),
        (FAR, b"t\nwatch 5 /"),
        (FAR, b"t\nwatch 5 :\na"),
        (FAR, b"t\nwatch x /\na"),
        (FAR, b"t\nwatch 55555 /\na"),
        (FAR, b"t\nwatch 5 /\na\n!here"),
        (FAR, b"t\nwatch 5 /\na b"),
        (FAR, b"t\nwatch\na"),
        (FAR, b"t" * 129 + b"\nwatch 5 /\na"),
        (FAR, b"watch 5 /\na"),
        (FAR, b"t\nlisteners a"),
    ],
)
def test_anything_else_is_no_question(src: bytes, question: bytes) -> None:
    bus = Bus()
    bus.connect(b"SUB a")
    ask(bus, 1, question, src)
    assert not [each for each in map(message_of, bus.sent) if each.chan.startswith(b"!")]


def test_a_client_cannot_ask_so():
    bus = Bus()
    bus.connect(b"SUB a")
    client = bus.connect(b"CMSG listen")
    client.say(b"MSG bccnd/ask\0t\nwatch 5 /\na")
    wait(bus, 0.1)
    assert client.heard() == []


def test_a_flood_of_questions_costs_no_other_host_its_answer():
    bus = Bus()
    bus.connect(b"SUB a")
    for number in range(1, 4 * QUESTIONS_PER_SECOND):
        bus.hear(datagram(FAR, number, QUESTIONS, b"%d\nwatch 9 /\na" % number))
    wait(bus, 0.5)
    assert len(answers(bus)) <= QUESTIONS_PER_SECOND
    bus.hear(datagram(b"else/bccnd/1", 1, QUESTIONS, b"t\nwatch 9 /\na"), peer=b"10.0.0.9:5400")
    wait(bus, 0.5)
    assert any(message_of(sent).chan == b"!else/bccnd/1" for sent in bus.sent)


def fill(bus: Bus, hosts: int) -> None:
    """Have these hosts ask in turn, for as much as there is."""
    size = 100 * (PATTERN_BYTES + 7)
    for number in range(1, LEASED_BYTES // size + 20):
        host = number % hosts
        patterns = b"\n".join([b"%d/%05d" % (host % 10, each) for each in range(100)])
        bus.hear(
            datagram(b"h%d/bccnd/1" % host, number, QUESTIONS, b"%d\nwatch 10 /\n%b" % (number, patterns)),
            peer=b"10.0.1.%d:5400" % host,
        )
        bus.tick(0.03)


@pytest.mark.parametrize("hosts", [1, 12])
def test_hosts_that_ask_for_all_leave_a_newcomer_its_part(hosts: int) -> None:
    bus = Bus()
    bus.connect(b"SUB a")
    fill(bus, hosts)
    elsewhere = bus.relay.elsewhere
    assert elsewhere._leased <= LEASED_BYTES < elsewhere._leased + 60_000, "all is taken"
    bus.sent.clear()
    for number in range(1, 4):
        question = b"%d\nwatch 9 /\na\n%b" % (number, b"\n".join([b"%d" % each for each in range(100)]))
        ask(bus, number, question, b"else/bccnd/1", b"10.0.0.9:5400")
        wait(bus, 0.3)
    said = [message_of(sent) for sent in bus.sent]
    assert {each.payload[:1] for each in said if each.chan == b"!else/bccnd/1"} == {b"1", b"2", b"3"}
    assert elsewhere._leased <= LEASED_BYTES


def test_hosts_with_equal_parts_take_nothing_from_each_other():
    bus = Bus()
    fill(bus, 2)
    elsewhere = bus.relay.elsewhere
    before = {name: lease for name, lease in elsewhere._leases.items() if lease.token < b"5"}
    fill(bus, 2)
    assert all(elsewhere._leases.get(name, lease) is lease for name, lease in before.items())


def test_questions_that_change_take_no_answer_back():
    segment = Segment(b"one", b"two")
    segment[b"two"].connect(*[b"SUB c%03d/*/x" % number for number in range(400)])
    patterns = [b"c%03d/>" % number for number in range(150)]
    client = watching(segment, b"one", *patterns)
    segment.wait(RENEW_SECONDS + 1.0, 0.01)
    client.heard()
    # The next questions are others, with patterns on both sides of those that stood in one.
    client.say(b"CMSG watch\0b/>", *[b"CMSG unwatch\0" + each for each in patterns[::3]])
    segment.wait(2 * RENEW_SECONDS + 0.5, 0.002)
    told = [each for each in client.heard() if each.startswith(b"CMSG wanted")]
    assert told == [b"CMSG wanted\0no b/>"]


def test_a_successor_tells_that_the_last_listener_went():
    bus = Bus()
    listener = bus.connect(b"SUB a")
    ask(bus, 1, b"t\nwatch 5 /\na\nb")
    assert answers(bus) == [b"t\nwanted 10"]
    data = state_of(bus.relay)
    bus.relay = bus.new_relay()
    restore(bus.relay, data, {session["number"]: listener.port for session in data["sessions"]})
    listener.session = bus.relay.sessions[listener.session.number]
    bus.sent.clear()
    listener.say(b"UNSUB a")
    wait(bus, 0.2)
    assert answers(bus)[-1:] == [b"t\nwanted 00"]
    wait(bus, 5.0)
    assert not bus.relay.elsewhere._leases


def test_what_is_local_no_more_is_found():
    bus = Bus(local=("a/>",))
    bus.connect(b"SUB a/b")
    ask(bus, 1, b"t\nwatch 9 /\n>")
    wait(bus, 0.1)
    assert answers(bus) == []
    bus.reconfigure(options=options(local=()))
    wait(bus, 0.1)
    assert answers(bus) == [b"t\nwanted 1"]
    bus.reconfigure(options=options(local=("a/>",)))
    wait(bus, 0.1)
    assert answers(bus) == [b"t\nwanted 0"]


# What others may cost


def test_patterns_that_come_and_go_are_asked_about_no_more():
    """Whoever takes its watches back before others are asked has no more questions than it may."""
    bus = Bus()
    client, sent = bus.connect(), 0
    for turn in range(100):
        patterns = [b"%b/%d/%d" % (b"y" * 900, turn, each) for each in range(50)]
        client.say(*[b"CMSG watch\0" + each for each in patterns])
        bus.tick(0.006)
        client.say(*[b"CMSG unwatch\0" + each for each in patterns])
        client.heard()
        bus.tick(0.004)
        sent += sum(b"\nwatch " in each for each in bus.sent)
        bus.sent.clear()
    elsewhere = bus.relay.elsewhere
    assert sent <= 2 * PATTERNS_PER_SECOND * LONG // 900
    assert len(elsewhere._waiting) + len(elsewhere._asked) <= PATTERNS_PER_SECOND


def test_a_renewal_waits_for_no_more_than_what_is_being_asked():
    bus = Bus()
    bus.connect(b"CMSG watch\0a")
    wait(bus, RENEW_SECONDS - 0.05)
    waiting = bus.relay.elsewhere._waiting
    waiting.extend(((b"/", b"other/%d" % number),) for number in range(100))
    bus.relay.elsewhere._set("send", bus.now)
    bus.sent.clear()
    wait(bus, 0.5)
    assert not waiting
    assert sum(b"\nwatch 5 /\na" in sent for sent in bus.sent) == 1


def test_daemons_that_say_that_somebody_listens_are_bounded():
    bus = Bus()
    client = bus.connect(b"CMSG watch\0a")
    wait(bus, 0.1)
    (token,) = {message_of(sent).payload.partition(b"\n")[0] for sent in bus.sent if b"\nwatch " in sent}
    for number in range(100):
        bus.hear(datagram(b"x%d/bccnd/1" % number, 1, b"!here/bccnd/0", token + b"\nwanted 1"))
    (asked,) = bus.relay.elsewhere._asked.values()
    assert len(asked.by) == DAEMONS_LIMIT
    wait(bus, 0.3)
    assert client.heard()[-1:] == [b"CMSG wanted\0elsewhere a"]
    bus.sent.clear()
    for number in range(DAEMONS_LIMIT):
        bus.hear(datagram(b"x%d/bccnd/1" % number, 2, b"!here/bccnd/0", token + b"\nwanted 0"))
    wait(bus, 0.05)
    assert any(b"\nwatch " in sent for sent in bus.sent), "the others are asked again"
    bus.hear(datagram(b"x99/bccnd/1", 2, b"!here/bccnd/0", token + b"\nwanted 1"))
    wait(bus, 0.5)
    assert client.heard() == [], "somebody was there all the time"


def test_a_flood_of_answers_is_not_read_to_the_end():
    bus = Bus()
    client = bus.connect(*[b"CMSG watch\0%d" % number for number in range(200)])
    wait(bus, 0.05)
    elsewhere, read = bus.relay.elsewhere, 0
    token, keys = max(elsewhere._tokens.items(), key=lambda each: len(each[1]))
    for number in range(1, 2000):
        digit = b"01"[number % 2 : number % 2 + 1]
        bus.hear(datagram(FAR, number, b"!here/bccnd/0", token + b"\nwanted " + digit * len(keys)))
        read += any(FAR in asked.by for asked in elsewhere._asked.values()) is bool(number % 2)
    assert read < 2000 * 3 // 4
    bus.hear(
        datagram(b"else/bccnd/1", 1, b"!here/bccnd/0", token + b"\nwanted " + b"1" * len(keys)),
        peer=b"10.0.0.9:5400",
    )
    wait(bus, 0.1)
    assert client.heard()[-1].startswith(b"CMSG wanted\0elsewhere ")


def test_new_patterns_of_a_daemon_are_limited():
    bus = Bus()
    patterns = b"\n".join([b"%d" % each for each in range(200)])
    begun = 0
    for number in range(1, 200):
        bus.hear(datagram(FAR, number, QUESTIONS, b"%d\nwatch 0 /\n%b" % (number, patterns)))
        begun += len(bus.relay.elsewhere._leases)
        bus.tick(0.004)
    assert 0 < begun * 200 <= PATTERNS_PER_SECOND


# The vectors


@pytest.mark.parametrize("entry", golden("watches", "questions"))
def test_each_question_of_the_vectors_is_taken(entry: dict[str, Any]) -> None:
    bus = Bus()
    ask(bus, 1, bytes.fromhex(entry["payload"]))
    (lease,) = bus.relay.watches._elsewhere._leases.values()
    assert [watch.key for watch in lease.watches] == [
        (entry["separator"].encode(), pattern.encode()) for pattern in entry["patterns"]
    ]


def test_no_other_question_of_the_vectors_is_taken() -> None:
    bus = Bus()
    for number, entry in enumerate(entries("watches", "no_questions"), 1):
        ask(bus, number, bytes.fromhex(entry["payload"]))
    assert bus.relay.watches._elsewhere._leases == {}
