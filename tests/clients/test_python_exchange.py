"""Request and reply without a daemon: tokens, when to ask, when to give up, what is whose."""

import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any

import pytest

import bccn
from bccn.client import finish
from bccn.exchange import (
    ASK_AFTER,
    ASK_EVERY,
    QUESTIONS,
    REPLIES_LIMIT,
    Exchange,
    Exchanges,
    Pending,
    Request,
    with_token,
)
from bccn.operations import Operations
from bccn.protocol import Message
from bccn.session import Session

TIMEOUT = 900.0


class ScriptedSession(Session):
    """Of a client whose daemon answers at once, on a clock of its own: ``now`` is 0 when the request is published.

    ``listeners``: how many the daemon knows of on this host; ``said``: its answer to a question for other hosts.
    ``later``: what comes, and when.
    """

    def __init__(self, listeners: str = "0", said: str = "0 asked") -> None:
        super().__init__(timeout=TIMEOUT)
        self.listeners, self.said, self.now = listeners, said, 0.0
        self._due = 0.0  # it is not gone
        self.later: list[tuple[float, Callable[[Exchange], object]]] = []
        self.asked: list[tuple[float, str]] = []
        self.sent: list[bytes] = []

    @property
    def exchange(self) -> Exchange:
        [exchange] = self._exchanges.values()
        return exchange

    async def _available(self, timeout: float | None = None) -> None: ...

    async def _transmit(self, *packets: tuple[bytes, int], **_: object) -> None:
        self.sent += [packet for packet, _ in packets]

    async def _ask(self, key: str, value: str | None = None, **_: object) -> str:
        if key != "listeners" or value is None:
            return ""
        if value == "a":
            return self.listeners
        assert value == f"a {self.exchange.token.decode()}?"
        self.asked.append((self.now, value))
        return self.said

    async def _wait(self, pending: Pending, deadline: float) -> None:  # noqa: ARG002
        if self.later and self.later[0][0] <= deadline:
            self.now, happen = self.later.pop(0)
            happen(self.exchange)
        else:
            self.now = deadline

    def times(self) -> list[float]:
        return [round(time, 6) for time, _ in self.asked]


@pytest.fixture
def request_a(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bytes]]:
    """Makes a request on ``a``; returns the payloads of its replies."""

    def make(session: ScriptedSession, wanted: int | None = 1, *, anyway: bool = False) -> list[bytes]:
        monkeypatch.setattr("bccn.operations.monotonic", lambda: session.now)
        arguments = session, "a", b"body", TIMEOUT
        try:
            if wanted == 1:
                return [finish(Operations.request(*arguments, wait_anyway=anyway)).payload]
            replies = Operations.request_many(*arguments, wanted, wait_anyway=anyway)
            return [reply.payload for reply in finish(gathered(replies))]
        finally:
            assert not session._exchanges, "it leaves nothing"

    return make


async def gathered(replies: AsyncIterator[Message]) -> list[Message]:
    return [reply async for reply in replies]


Make = Callable[..., list[bytes]]


def reply(exchange: Exchange, payload: bytes = b"yes", channel: str = "!me") -> Message:
    return Message(channel, exchange.token + b"\n" + payload)


def answer(exchange: Exchange) -> Message:
    """What a daemon with listeners says."""
    return Message("!me", exchange.token + b"?\nlisteners 2")


def test_a_request_begins_with_a_token_of_its_own(request_a: Make) -> None:
    session = ScriptedSession("1")
    session.later = [(1.0, lambda exchange: session._exchanges.take(reply(exchange)))] * 2
    assert request_a(session) == request_a(session) == [b"yes"]
    first, second = (packet.removeprefix(b"MSG a\0").removesuffix(b"\nbody") for packet in session.sent)
    assert len(first) > 16
    assert first != second
    assert Exchanges().begin("a", 1).token[:16] != first[:16], "nobody can guess it"


def test_listeners_on_this_host_need_no_question(request_a: Make) -> None:
    session = ScriptedSession("1")
    with pytest.raises(bccn.TimedOutError, match="no reply on a within 900 s"):
        request_a(session)
    assert (session.asked, session.now) == ([], TIMEOUT)


def test_other_hosts_are_asked_three_times(request_a: Make) -> None:
    session = ScriptedSession()
    with pytest.raises(bccn.NobodyListensError, match="nobody listens to a"):
        request_a(session)
    assert session.times() == [round(ASK_AFTER + n * ASK_EVERY, 6) for n in range(QUESTIONS)]
    assert round(session.now, 6) == round(ASK_AFTER + QUESTIONS * ASK_EVERY, 6)


@pytest.mark.parametrize("said", ["1 asked", "1", "0 busy"])
def test_one_question_settles_listeners_or_busy(request_a: Make, said: str) -> None:
    session = ScriptedSession(said=said)
    with pytest.raises(bccn.TimedOutError):
        request_a(session)
    assert (session.times(), session.now) == ([ASK_AFTER], TIMEOUT)


def test_local_channels_need_one_question(request_a: Make) -> None:
    session = ScriptedSession(said="0")
    with pytest.raises(bccn.NobodyListensError, match="nobody on this host listens to a"):
        request_a(session)
    assert session.times() == [ASK_AFTER]


@pytest.mark.parametrize("heard", [reply, answer])
@pytest.mark.parametrize("at", [0.01, 0.03])
def test_a_reply_or_a_listener_ends_the_questions(
    request_a: Make, heard: Callable[[Exchange], Message], at: float
) -> None:
    session = ScriptedSession()
    session.later = [(at, lambda exchange: session._exchanges.take(heard(exchange)))]
    assert len(request_a(session, 2)) == (heard is reply)
    assert session.times() == ([ASK_AFTER] if at > ASK_AFTER else [])
    assert session.now == TIMEOUT


def test_wait_anyway_asks_no_question(request_a: Make) -> None:
    session = ScriptedSession()
    with pytest.raises(bccn.TimedOutError):
        request_a(session, anyway=True)
    assert session.asked == []


def test_each_exchange_gets_its_replies_without_the_token() -> None:
    exchanges = Exchanges()
    first, second = exchanges.begin("a", None), exchanges.begin("a", None)
    for exchange, payload in ((second, b"s1"), (first, b"f1\nf2"), (second, b""), (first, b"listeners 3")):
        assert exchanges.take(reply(exchange, payload))
    assert [message.payload for message in first.replies] == [b"f1\nf2", b"listeners 3"]
    assert [message.payload for message in second.replies] == [b"s1", b""]


def test_other_messages_are_not_taken_for_replies() -> None:
    exchanges = Exchanges()
    assert not exchanges.take(Message("!me", b"\nx"))
    exchange = exchanges.begin("a", 1)
    for payload in (b"", b"\nx", b"token\nx", exchange.token[1:] + b"\nx"):
        assert not exchanges.take(Message("!me", payload))
    assert not exchange.replies


def test_own_request_to_all_is_not_a_reply() -> None:
    exchanges = Exchanges()
    exchange = exchanges.begin("!", 1)
    assert not exchanges.take(reply(exchange, b"body", channel="!"))
    assert exchanges.take(reply(exchange))
    assert [message.payload for message in exchange.replies] == [b"yes"]


def test_late_and_surplus_replies_are_dropped() -> None:
    exchanges = Exchanges()
    exchange = exchanges.begin("a", 2)
    for number in range(5):
        assert exchanges.take(reply(exchange, b"%d" % number))
    assert list(exchange.replies) == [Message("!me", b"0"), Message("!me", b"1")]
    exchange.replies.clear()
    del exchanges[exchange.token]
    assert exchanges.take(reply(exchange))
    assert not exchange.replies
    assert not exchanges


@pytest.mark.parametrize(("wanted", "came"), [(3, 2), (2, 0), (None, 0), (None, 9)])
def test_the_deadline_ends_an_exchange(request_a: Make, wanted: int | None, came: int) -> None:
    session = ScriptedSession("1")
    session.later = [
        (float(n), lambda exchange: session._exchanges.take(reply(exchange))) for n in range(came)
    ]
    assert request_a(session, wanted) == [b"yes"] * came
    assert session.now == TIMEOUT


def test_a_flood_of_replies_raises_backlog_error(request_a: Make) -> None:
    large = bytes(1 << 20)

    def flood(exchange: Exchange) -> None:
        for _ in range(REPLIES_LIMIT // len(large) + 100):
            session._exchanges.take(reply(exchange, large))
        assert REPLIES_LIMIT < session._exchanges.waiting_size < REPLIES_LIMIT + 2 * len(large)

    session = ScriptedSession("1")
    session.later = [(1.0, flood)]
    with pytest.raises(bccn.BacklogError):
        request_a(session, None)
    assert session._exchanges.waiting_size == 0


def test_a_flood_for_one_request_leaves_the_others_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccn.exchange.REPLIES_LIMIT", 10_000)
    exchanges = Exchanges()
    flooded, other = exchanges.begin("a", None), exchanges.begin("b", 1)
    for _ in range(100):
        exchanges.take(reply(flooded))
    exchanges.take(reply(other))
    assert isinstance(flooded.error, bccn.BacklogError)
    assert exchanges.next_of(other.replies).payload == b"yes"
    assert other.error is None
    exchanges.drop(flooded.replies)
    assert exchanges.waiting_size == 0


def test_what_a_tap_shows_as_rejected_is_no_reply() -> None:
    exchanges = Exchanges()
    exchange = exchanges.begin("a", None)
    for number, verdict in enumerate(("own", "ok", "duplicate", "repaired")):
        message = Message("!me", exchange.token + b"\n%d" % number, "x", 1, "local", 1, verdict)
        assert exchanges.take(message) == (verdict in ("ok", "repaired"))
    assert [message.payload for message in exchange.replies] == [b"1", b"3"]


def test_a_rejection_belongs_to_the_request_on_its_way() -> None:
    exchanges = Exchanges()
    exchange = exchanges.begin("a", 1)
    error = bccn.RejectedError("too-large", "MSG a: 1500 bytes")
    assert not exchanges.blame(error)
    exchange.on_its_way = True
    assert not exchanges.blame(bccn.RejectedError("too-large", "MSG b: 1500 bytes"))
    assert exchanges.blame(error)
    assert exchange.error is error


def test_a_rejected_request_raises(request_a: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ScriptedSession("1")
    error = bccn.RejectedError("too-large", "MSG a: 1500 bytes")

    async def reject(*packets: object, **_: object) -> None:
        assert not packets or session._exchanges.blame(error)

    monkeypatch.setattr(session, "_transmit", reject)
    with pytest.raises(bccn.RejectedError, match="1500 bytes"):
        request_a(session)


@pytest.mark.parametrize("operation", [Operations.barrier, partial(Operations.request, channel="b")])
def test_what_is_asked_in_a_batch_has_its_own_time(
    operation: Callable[..., Coroutine[Any, Any, Any]],
) -> None:
    """Also for what the batch has gathered, while there is no room for that."""
    deadlines = []

    class InVain(Session):
        async def _wait(self, pending: Pending, deadline: float) -> None:  # noqa: ARG002
            deadlines.append(deadline)

    session = InVain(timeout=TIMEOUT)
    session._due, session.connected = 0.0, True
    assert session._batches.begin("on 65536")
    session._batches.gather(b"MSG a\0")
    with pytest.raises(bccn.TimedOutError, match="was not sent"):
        finish(operation(session, timeout=TIMEOUT / 2))
    assert deadlines
    assert max(deadlines) <= monotonic() + TIMEOUT / 2


def test_zero_replies_are_invalid() -> None:
    with pytest.raises(bccn.InvalidError):
        Exchanges().begin("a", 0)


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
    assert Request(asked(b"t\n")).reply(b"") == ("!far/x/7", b"t\n")


@pytest.mark.parametrize(
    ("payload", "src"),
    [
        (b"t1", "far/x/7"),
        (b"", "far/x/7"),
        (b"\nx", "far/x/7"),
        (b"t" * 129 + b"\nx", "far/x/7"),
        (b"t\nx", "?"),
        (b"t\nx", "far/*"),
    ],
)
def test_messages_that_are_no_requests(payload: bytes, src: str) -> None:
    with pytest.raises(bccn.InvalidError, match="is no request"):
        Request(asked(payload, src))


def test_requests_need_the_full_format() -> None:
    with pytest.raises(bccn.InvalidError, match='format="full"'):
        Request(asked(b"t\nx", None))


def test_any_payload_survives_request_and_reply() -> None:
    """Any token and payload, back through the other's eyes."""
    exchanges = Exchanges()
    for payload, said in itertools.product([b"", b"\n", b"x\ny"], [b"", b"\n\n", b"\0"]):
        exchange = exchanges.begin("a", None)
        request = Request(asked(with_token(exchange.token, payload)))
        assert request.payload == payload
        channel, body = request.reply(said)
        assert exchanges.take(Message(channel, body))
        assert exchange.replies.pop().payload == said
