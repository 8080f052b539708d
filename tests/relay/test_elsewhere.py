"""What daemons ask each other about watched patterns, and answer."""

from typing import Any

import pytest

from bccnd.relay.elsewhere import (
    LEASE_SECONDS,
    LEASED_BYTES,
    PATTERN_BYTES,
    QUESTION_BYTES,
    QUESTIONS_PER_SECOND,
    RENEW_SECONDS,
)
from bccnd.relay.router import QUESTIONS
from tests.golden import entries, golden
from tests.relay.fakes import ELSEWHERE, Bus, FakeClient, datagram
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
    assert (elsewhere._leases, elsewhere._leased, elsewhere._sizes) == ({}, 0, {})


@pytest.mark.parametrize(
    ("src", "question"),
    [
        (b"far/x/1", b"t\nwatch 5 /\na"),
        (b"?", b"t\nwatch 5 /\na"),
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
    assert answers(bus) == []


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


def test_hosts_share_what_is_remembered():
    bus = Bus()
    most = LEASED_BYTES // (PATTERN_BYTES + 1000)
    for number in range(1, most):
        bus.hear(datagram(FAR, number, QUESTIONS, b"%d\nwatch 9 /\n%b" % (number, b"x" * 1000)))
        bus.tick(0.01)
    elsewhere = bus.relay.watches._elsewhere
    assert elsewhere._leased <= LEASED_BYTES // 2
    assert elsewhere._sizes == {b"10.0.0.2": elsewhere._leased}
    ask(bus, 1, b"t\nwatch 9 /\na", b"else/bccnd/1", b"10.0.0.9:5400")
    assert elsewhere._sizes[b"10.0.0.9"]


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
