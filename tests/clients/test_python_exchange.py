"""Request and reply without a daemon: tokens, when to ask, when to give up, what is whose."""

import itertools

import pytest

import bccn
from bccn.exchange import (
    ASK_AFTER,
    ASK_EVERY,
    QUESTIONS,
    REPLIES_LIMIT,
    Exchange,
    Exchanges,
    Request,
    request_in,
)
from bccn.protocol import Message


def begin(
    exchanges: Exchanges, channel: str = "a", wanted: int | None = 1, *, anyway: bool = False
) -> Exchange:
    return exchanges.begin(channel, b"body", 100.0, 900.0, wanted=wanted, anyway=anyway)


def reply(exchange: Exchange, payload: bytes = b"yes", channel: str = "!me") -> Message:
    return Message(channel, exchange.token + b"\n" + payload)


def answer(exchange: Exchange) -> Message:
    """What a daemon with listeners says."""
    return Message("!me", exchange.token + b"?\nlisteners 2")


def asked_at(exchange: Exchange, answers: str = "0 asked", until: float = 1000.0) -> list[float]:
    """When the daemons are asked, of somebody who looks when ``until`` says."""
    times = []
    now = 100.0
    while now < until:
        if exchange.must_ask(now):
            times.append(round(now - 100.0, 6))
            exchange.asked(answers)
        now = exchange.until
    return times


def test_a_request_begins_with_a_token_of_its_own() -> None:
    exchanges = Exchanges()
    first, second = begin(exchanges), begin(exchanges)
    assert first.packet == b"MSG a\0" + first.token + b"\nbody"
    assert first.token != second.token
    assert begin(Exchanges()).token[:16] != first.token[:16], "nobody can guess it"
    assert first.question == f"a {first.token.decode()}?"


def test_listeners_on_this_host_need_no_question() -> None:
    exchange = begin(Exchanges())
    exchange.published("1", 100.0)
    assert not exchange.must_ask(999.0)
    assert exchange.until == 1000.0


def test_other_hosts_are_asked_three_times() -> None:
    exchange = begin(Exchanges())
    assert not exchange.must_ask(999.0), "it is not published yet"
    exchange.published("0", 100.0)
    with pytest.raises(bccn.NobodyListensError, match="nobody listens to a"):
        asked_at(exchange)
    assert not exchange.must_ask(100.0 + ASK_AFTER + QUESTIONS * ASK_EVERY - 0.001)


def test_questions_are_asked_at_their_times() -> None:
    exchange = begin(Exchanges())
    exchange.published("0", 100.0)
    last = 100.0 + ASK_AFTER + QUESTIONS * ASK_EVERY
    assert asked_at(exchange, until=last - 1e-6) == [
        round(ASK_AFTER + n * ASK_EVERY, 6) for n in range(QUESTIONS)
    ]


@pytest.mark.parametrize("said", ["1 asked", "1", "0 busy"])
def test_one_question_settles_listeners_or_busy(said: str) -> None:
    exchange = begin(Exchanges())
    exchange.published("0", 100.0)
    assert asked_at(exchange, said) == [ASK_AFTER]
    assert exchange.until == 1000.0


def test_local_channels_need_one_question() -> None:
    exchange = begin(Exchanges())
    exchange.published("0", 100.0)
    with pytest.raises(bccn.NobodyListensError, match="nobody on this host listens to a"):
        asked_at(exchange, "0")


@pytest.mark.parametrize("heard", [reply, answer])
def test_a_reply_or_a_listener_ends_the_questions(heard: type) -> None:
    exchanges = Exchanges()
    exchange = begin(exchanges, wanted=2)
    exchange.published("0", 100.0)
    assert exchange.must_ask(100.0 + ASK_AFTER)
    assert exchanges.take(heard(exchange))
    assert not exchange.must_ask(999.0)


def test_wait_anyway_asks_no_question() -> None:
    exchange = begin(Exchanges(), anyway=True)
    exchange.published("0", 100.0)
    assert not exchange.must_ask(999.0)


def test_each_exchange_gets_its_replies_without_the_token() -> None:
    exchanges = Exchanges()
    first, second = begin(exchanges, wanted=None), begin(exchanges, wanted=None)
    for exchange, payload in ((second, b"s1"), (first, b"f1\nf2"), (second, b""), (first, b"listeners 3")):
        assert exchanges.take(reply(exchange, payload))
    assert [message.payload for message in first.replies] == [b"f1\nf2", b"listeners 3"]
    assert [message.payload for message in second.replies] == [b"s1", b""]


def test_other_messages_are_not_taken_for_replies() -> None:
    exchanges = Exchanges()
    assert not exchanges.take(Message("!me", b"\nx"))
    exchange = begin(exchanges)
    for payload in (b"", b"\nx", b"token\nx", exchange.token[1:] + b"\nx"):
        assert not exchanges.take(Message("!me", payload))
    assert not exchange.replies


def test_own_request_to_all_is_not_a_reply() -> None:
    exchanges = Exchanges()
    exchange = begin(exchanges, "!")
    assert not exchanges.take(reply(exchange, b"body", channel="!"))
    assert exchanges.take(reply(exchange))
    assert [message.payload for message in exchange.replies] == [b"yes"]


def test_late_and_surplus_replies_are_dropped() -> None:
    exchanges = Exchanges()
    exchange = begin(exchanges, wanted=2)
    for number in range(5):
        assert exchanges.take(reply(exchange, b"%d" % number))
    assert [exchange.next_reply(), exchange.next_reply(), exchange.next_reply()] == [
        Message("!me", b"0"),
        Message("!me", b"1"),
        None,
    ]
    assert exchange.over(0.0)
    exchanges.end(exchange)
    assert exchanges.take(reply(exchange))
    assert not exchange.replies
    assert not exchanges


@pytest.mark.parametrize(
    ("wanted", "came", "complaint"),
    [(1, 0, "no reply on a"), (3, 2, "2 of 3 replies on a"), (None, 0, ""), (None, 9, "")],
)
def test_the_deadline_ends_an_exchange(wanted: int | None, came: int, complaint: str) -> None:
    exchanges = Exchanges()
    exchange = begin(exchanges, wanted=wanted)
    for _ in range(came):
        exchanges.take(reply(exchange))
    assert not exchange.over(999.9)
    if complaint:
        with pytest.raises(bccn.TimedOutError, match=complaint):
            exchange.over(1000.0)
    else:
        assert exchange.over(1000.0)


def test_a_flood_of_replies_raises_backlog_error() -> None:
    exchanges = Exchanges()
    exchange = begin(exchanges, wanted=None)
    message = reply(exchange)
    for _ in range(REPLIES_LIMIT + 100):
        exchanges.take(Message(message.channel, message.payload))
    assert len(exchange.replies) == REPLIES_LIMIT + 1
    with pytest.raises(bccn.BacklogError):
        exchange.next_reply()


def test_a_rejection_belongs_to_the_request_on_its_way() -> None:
    exchanges = Exchanges()
    exchange = begin(exchanges)
    error = bccn.RejectedError("too-large", "MSG a: 1500 bytes")
    assert not exchanges.blame(error)
    exchange.on_its_way = True
    assert not exchanges.blame(bccn.RejectedError("too-large", "MSG b: 1500 bytes"))
    assert exchanges.blame(error)
    with pytest.raises(bccn.RejectedError):
        exchange.published("0", 100.0)
    assert not exchanges.blame(error)


def test_zero_replies_are_invalid() -> None:
    with pytest.raises(bccn.InvalidError):
        begin(Exchanges(), wanted=0)


# What others ask


def asked(payload: bytes, src: str | None = "far/x/7") -> Message:
    return Message("a", payload, src, 3, "local", 5, "ok", b"datagram")


def test_a_request_is_parsed_and_answered() -> None:
    message = asked(b"t1\nline\nline")
    message.lost = 4
    request = Request(message)
    assert (request.token, request.payload, request.lost) == (b"t1", b"line\nline", 4)
    assert (request.channel, request.src, request.seq, request.peer) == ("a", "far/x/7", 3, "local")
    assert (request.time_ns, request.verdict, request.datagram) == (5, "ok", b"datagram")
    assert request.reply("é") == ("!far/x/7", b"t1\n\xc3\xa9")
    assert Request(asked(b"\n")).reply(b"") == ("!far/x/7", b"\n")


@pytest.mark.parametrize(
    ("payload", "src"),
    [
        (b"t1", "far/x/7"),
        (b"", "far/x/7"),
        (b"t" * 129 + b"\nx", "far/x/7"),
        (b"t\nx", "?"),
        (b"t\nx", "far/*"),
    ],
)
def test_messages_that_are_no_requests(payload: bytes, src: str) -> None:
    with pytest.raises(bccn.InvalidError, match="is no request"):
        Request(asked(payload, src))
    assert request_in(asked(payload, src)) is None


def test_requests_need_the_full_format() -> None:
    with pytest.raises(bccn.InvalidError, match='format="full"'):
        Request(asked(b"t\nx", None))


def test_any_payload_survives_request_and_reply() -> None:
    """Any token and payload, back through the other's eyes."""
    exchanges = Exchanges()
    for payload, said in itertools.product([b"", b"\n", b"x\ny"], [b"", b"\n\n", b"\0"]):
        exchange = exchanges.begin("a", payload, 0.0, 1.0, wanted=None, anyway=False)
        request = Request(asked(exchange.packet.partition(b"\0")[2]))
        assert request.payload == payload
        channel, body = request.reply(said)
        assert exchanges.take(Message(channel, body))
        assert exchange.replies.pop().payload == said
