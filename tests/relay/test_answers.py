"""Requests directed to the daemon: who is answered, with what, and how often."""

import pytest

from bccnd.relay.answers import (
    KNOWN_SECONDS,
    LISTENERS_PER_SECOND,
    PINGS_PER_SECOND,
    TOGETHER_SECONDS,
    TOKEN_LIMIT,
)
from bccnd.relay.router import QUESTIONS
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, SRC_LIMIT
from tests.relay.fakes import ELSEWHERE, Bus, datagram


def answers(bus: Bus) -> list[bytes]:
    found = [sent.partition(b":!")[2] for sent in bus.sent if b"here/bccnd/0:" in sent]
    bus.sent.clear()
    return found


@pytest.mark.parametrize("target", [b"here/bccnd", b"here/bccnd/0", b"here/bccnd/*"])
def test_a_ping_from_the_segment_is_answered(target: bytes) -> None:
    bus = Bus()
    bus.hear(datagram(b"far/bccn/7", 1, b"!" + target, b"t1\nping"))
    assert answers(bus) == [b"far/bccn/7|t1\npong 1.2.3"]


def test_a_client_of_this_host_is_answered_here() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG listen", pid=7)
    client.say(b"MSG !here/bccnd\0t1\nping", b"MSG a\0x")
    assert client.heard() == [b"MSG !here/prog/7\0t1\npong 1.2.3"]


def test_the_name_that_was_inherited_answers() -> None:
    bus = Bus()
    bus.hear(datagram(b"far/x/7", 1, b"!here/bccnd/5", b"\nping"))
    assert answers(bus) == []


@pytest.mark.parametrize(
    ("src", "target", "payload"),
    [
        (b"far/x/7", b"here", b"t\nping"),
        (b"far/x/7", b"here/*", b"t\nping"),
        (b"far/x/7", b"there/bccnd", b"t\nping"),
        (b"far/x/7", b"here/bccnd/1", b"t\nping"),
        (b"far/x/7", b"here/bccnd", b"ping"),
        (b"far/x/7", b"here/bccnd", b"t\nping "),
        (b"far/x/7", b"here/bccnd", b"t\npong 1"),
        (b"far/x/7", b"here/bccnd", b"t\nlisteners"),
        (b"far/x/7", b"here/bccnd", b"t\nlisteners "),
        (b"far/x/7", b"here/bccnd", b"t\nlisteners a b"),
        (b"far/x/7", b"here/bccnd", b"t\nlisteners !?x"),
        (b"far/x/7", b"here/bccnd", b"t\nlisteners 1"[:-1] + b"\xff"),
        (b"?", b"here/bccnd", b"t\nlisteners a"),
        (b"far/x/7", b"here/bccnd", b"t" * (TOKEN_LIMIT + 1) + b"\nping"),
        (b"?", b"here/bccnd", b"t\nping"),
        (b"far/*", b"here/bccnd", b"t\nping"),
    ],
)
def test_anything_else_is_not(src: bytes, target: bytes, payload: bytes) -> None:
    bus = Bus()
    bus.hear(datagram(src, 1, b"!" + target, payload))
    assert answers(bus) == []


PONG, BUSY = b"far/x/7|t\npong 1.2.3", b"far/x/7|t\nbusy"


def test_a_flood_is_answered_in_part() -> None:
    bus = Bus()
    for first in (1, 301):
        bus.hear(*[datagram(b"far/x/7", first + seq, b"!here/bccnd", b"t\nping") for seq in range(200)])
        assert answers(bus) == [PONG] * PINGS_PER_SECOND + [BUSY] * PINGS_PER_SECOND
        bus.tick(1.0)


@pytest.mark.parametrize("src", [b"far/x/%d", b"far/x/7", b"other%d/x/1"])
def test_the_flood_of_one_host_costs_no_other_its_answer(src: bytes) -> None:
    """Under whatever names: it is the address that counts."""
    bus = Bus()
    flood = [
        datagram(src % number if b"%" in src else src, number, b"!here/bccnd", b"t\nping")
        for number in range(1, 2000)
    ]
    bus.hear(*flood, peer=ELSEWHERE)
    assert len(answers(bus)) < 500
    for number in range(3):
        bus.hear(datagram(b"there/bccn/%d" % number, 1, b"!here/bccnd", b"t\nping"), peer=b"10.0.0.9:5400")
    assert [answer[-10:] for answer in answers(bus)] == [b"pong 1.2.3"] * 3


def test_floods_of_many_hosts_cost_no_other_its_answer() -> None:
    bus = Bus()
    number = 0
    for second in range(12):
        for host in range(64):
            number += 1
            flood = [
                datagram(b"far%d/x/%d" % (host, name), number, b"!here/bccnd", b"t\nping")
                for name in range(8)
            ]
            bus.hear(*flood, peer=b"10.0.1.%d:5400" % host)
        answers(bus)
        bus.hear(datagram(b"there/bccn/1", second + 1, b"!here/bccnd", b"t\nping"), peer=b"10.0.0.9:5400")
        if second > 1:  # until then they might all have asked for the first time
            assert [answer[-10:] for answer in answers(bus)] == [b"pong 1.2.3"]
        bus.tick(1.0)


def test_the_flood_of_one_client_costs_no_other_its_answer() -> None:
    bus = Bus()
    flooding, asking = bus.connect(b"CMSG listen"), bus.connect(b"CMSG listen", pid=7)
    flooding.say(*[b"MSG !here/bccnd\0t\nping"] * 500)
    assert asking.ask(b"MSG !here/bccnd\0t\nping") == [b"MSG !here/prog/7\0t\npong 1.2.3"]


def test_the_flood_of_one_user_costs_no_other_its_answer() -> None:
    bus = Bus()
    flooding, asking = [bus.connect(uid=7) for _ in range(300)], bus.connect(b"CMSG listen", pid=7)
    for client in flooding:
        client.say(*[b"MSG !here/bccnd\0t\nping"] * 3)
    assert asking.ask(b"MSG !here/bccnd\0t\nping") == [b"MSG !here/prog/7\0t\npong 1.2.3"]


# Beyond the share


def test_beyond_its_share_an_asker_learns_that_it_is() -> None:
    bus = crowd()
    bus.hear(*[datagram(b"far/x/7", seq, QUESTIONS, b"t\nlisteners a") for seq in range(1, 500)])
    said = answers(bus)
    assert said.count(b"far/x/7|t\nlisteners 4") == LISTENERS_PER_SECOND
    assert said.count(b"far/x/7|t\nlisteners busy") == LISTENERS_PER_SECOND
    assert len(said) == 2 * LISTENERS_PER_SECOND
    bus.hear(datagram(b"there/x/7", 1, QUESTIONS, b"t\nlisteners a"), peer=b"10.0.0.9:5400")
    assert answers(bus) == [b"there/x/7|t\nlisteners 4"]


def test_nobody_is_busy_where_nobody_listens() -> None:
    bus = Bus()
    bus.connect(b"SUB a")
    bus.hear(*[datagram(b"far/x/7", seq, QUESTIONS, b"t\nlisteners nobody/here") for seq in range(1, 500)])
    assert answers(bus) == []


# One for many


def test_one_question_serves_all_who_ask_at_once() -> None:
    bus = Bus()
    clients = [bus.connect(b"CMSG listen") for _ in range(50)]
    for client in clients:
        assert client.ask(b"CMSG listeners\0a t1") == [b"CMSG listeners\x000 asked"]
    assert len(bus.sent) == 1
    bus.hear(datagram(b"far/bccnd/1", 1, b"!" + clients[0].name, b"t1\nlisteners 3"))
    assert clients[0].heard() == [b"MSG !%b\0t1\nlisteners 3" % clients[0].name]
    bus.tick(2 * TOGETHER_SECONDS)
    for client in clients:
        assert client.ask(b"CMSG listeners\0a t2") == [b"CMSG listeners\x003 asked"]
    assert len(bus.sent) == 1


def test_what_was_answered_is_forgotten_soon() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG listen", pid=7)
    client.say(b"CMSG listeners\0a t1", b"CMSG listeners\0b t2")
    bus.hear(datagram(b"far/bccnd/1", 1, b"!here/prog/7", b"t1\nlisteners 3"))
    bus.tick(2 * KNOWN_SECONDS)
    bus.sent.clear()
    assert client.ask(b"CMSG listeners\0a t3")[-1] == b"CMSG listeners\x000 asked"
    assert len(bus.sent) == 1
    answers_ = bus.relay._segment_input._arrivals._answers
    assert (len(answers_.open), len(answers_._asked)) == (1, 1)


def test_another_daemon_that_is_busy_is_asked_no_more_for_now() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG listen", pid=7)
    client.say(b"CMSG listeners\0a t1")
    bus.hear(datagram(b"far/bccnd/1", 1, b"!here/prog/7", b"t1\nlisteners busy"))
    bus.tick(2 * TOGETHER_SECONDS)
    client.heard()
    assert client.ask(b"CMSG listeners\0a t2") == [b"CMSG listeners\x000 busy"]
    assert len(bus.sent) == 1


@pytest.mark.parametrize(
    ("src", "payload"),
    [
        (b"far/x/1", b"t1\nlisteners 3"),
        (b"far/bccnd/1", b"t2\nlisteners 3"),
        (b"far/bccnd/1", b"t1\nlisteners"),
        (b"far/bccnd/1", b"t1\nlisteners 3x"),
        (b"far/bccnd/1", b"t1\npong 3"),
        (b"far/bccnd/1", b"t1\nlisteners 99999999999999999999"),
    ],
)
def test_only_the_answer_of_a_daemon_is_taken_for_one(src: bytes, payload: bytes) -> None:
    bus = Bus()
    client = bus.connect(b"CMSG listen", pid=7)
    client.say(b"CMSG listeners\0a t1")
    bus.hear(datagram(src, 1, b"!here/prog/7", payload))
    client.heard()
    assert client.ask(b"CMSG listeners\0a t3") == [b"CMSG listeners\x000 asked"]


# Who listens


def crowd() -> Bus:
    """Subscribed to ``a`` are a plain, a full, a lines and a packing client, and a tap."""
    bus = Bus()
    for packet in (b"CMSG ping", b"CMSG format\0full", b"CMSG format\0lines", b"CMSG pack\0on"):
        bus.connect(packet, b"SUB a", b"SUB >")
    bus.connect(b"SUB a", b"CMSG tap\0on", privileged=True)
    return bus


@pytest.mark.parametrize(
    ("chan", "listeners"),
    [
        (b"a", 4),
        (b"b", 4),
        (b"local/a", 0),
        (b"!", 4),
        (b"!here", 4),
        (b"!here/prog/11", 1),
        (b"!here/bccnd", 1),
        (b"!here/bccnd/0", 1),
        (b"!here/bccnd/1", 0),
        (b"!far/prog/11", 0),
        (b"heartbeat/x", 4),
        (b"local/presence/left/x", 0),
    ],
)
def test_listeners_are_counted_for_other_hosts(chan: bytes, listeners: int) -> None:
    bus = crowd()
    bus.hear(datagram(b"far/x/7", 1, b"!here/bccnd", b"t1\nlisteners " + chan))
    assert answers(bus) == [b"far/x/7|t1\nlisteners %d" % listeners]
    bus.hear(datagram(b"far/x/7", 2, QUESTIONS, b"t2\nlisteners " + chan))
    assert answers(bus) == ([b"far/x/7|t2\nlisteners %d" % listeners] if listeners else [])


def test_former_listeners_are_not_counted() -> None:
    bus = Bus()
    first, second = bus.connect(b"SUB a"), bus.connect(b"SUB a", b"SUB a")
    question = [datagram(b"far/x/7", seq, b"!here/bccnd", b"\nlisteners a") for seq in range(1, 9)]
    bus.hear(question[0])
    first.leave()
    bus.hear(question[1])
    second.say(b"UNSUB a")
    bus.hear(question[2])
    second.say(b"UNSUB a")
    bus.hear(question[3])
    assert [answer[-1:] for answer in answers(bus)] == [b"2", b"1", b"1", b"0"]


@pytest.mark.parametrize("chan", [QUESTIONS, b"!here/bccnd"])
def test_local_asker_does_not_count_itself(chan: bytes) -> None:
    bus = Bus()
    bus.connect(b"SUB local/a")
    asking = bus.connect(b"SUB local/a", pid=7)
    assert asking.ask(b"MSG %b\0t\nlisteners local/a" % chan) == [b"MSG !here/prog/7\0t\nlisteners 1"]


@pytest.mark.parametrize(
    ("chan", "payload"),
    [(QUESTIONS, b"t\nping"), (QUESTIONS, b"listeners a"), (QUESTIONS + b"/", b"t\nlisteners a")],
)
def test_all_daemons_can_be_asked_for_listeners_only(chan: bytes, payload: bytes) -> None:
    bus = crowd()
    bus.hear(datagram(b"far/x/7", 1, chan, payload))
    assert answers(bus) == []


@pytest.mark.parametrize("src", [b"far/bccnd/1", b"far/bccnd", b"far/bccnd/1/2"])
@pytest.mark.parametrize("payload", [b"t\nping", b"t\nlisteners a", b"t\nlisteners 3"])
def test_daemons_do_not_answer_each_other(src: bytes, payload: bytes) -> None:
    bus = crowd()
    bus.hear(datagram(src, 1, b"!here/bccnd/0", payload))
    assert answers(bus) == []


def test_flood_of_questions_leaves_pings_their_answers() -> None:
    bus = crowd()
    bus.hear(*[datagram(b"far/x/7", seq, QUESTIONS, b"t\nlisteners a") for seq in range(1, 500)])
    answers(bus)
    bus.hear(datagram(b"far/x/7", 500, b"!here/bccnd", b"t\nping"))
    assert len(answers(bus)) == 1


def test_the_longest_question_fits_a_datagram() -> None:
    bus = Bus()
    name = b"s" * SRC_LIMIT
    client = bus.connect(b"CMSG name\0" + name, privileged=True)
    token, chan = b"t" * TOKEN_LIMIT, b"c" * CHAN_LIMIT
    assert client.ask(b"CMSG listeners\0%b %b" % (chan, token)) == [b"CMSG listeners\x000 asked"]
    (sent,) = bus.sent
    assert sent.endswith(b":bccnd/ask|%b\nlisteners %b" % (token, chan))
    assert len(sent) + len(b":hmac=0123456789abcdef") <= SEND_LIMIT
