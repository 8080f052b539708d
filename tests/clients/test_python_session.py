"""The session of the Python client: what is wanted, what was asked, what came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccn.errors import InvalidError, RefusedError, RejectedError, UnavailableError
from bccn.protocol import Message, build_msg
from bccn.session import Session


def answer(session: Session, *answers: str) -> None:
    for text in answers:
        session.feed(b"CMSG " + text.replace("|", "\0", 1).encode())


def test_the_greeting_has_every_setting() -> None:
    session = Session(
        name="h/p/1",
        format="full",
        pack=True,
        echo=False,
        separator=".",
        queue={"packets": 5, "policy": "block"},
    )
    session.subscribe("a.b", None)
    session.subscribe("a.b", print)
    session.listen(None)
    assert session.greeting() == [
        b"CMSG name\0h/p/1",
        b"CMSG separator\0.",
        b"CMSG format\0full",
        b"CMSG pack\0on",
        b"CMSG echo/off",
        b"CMSG queue\0packets=5 policy=block",
        b"CMSG listen",
        b"SUB a.b",
        b"SUB a.b",
        b"CMSG whoami",
    ]
    answer(
        session,
        "name|h/p/1",
        "separator|.",
        "format|full",
        "pack|on 65536",
        "echo/off|",
        "queue|x",
        "listen|",
    )
    assert session.greeted() is None
    answer(session, "whoami|h/p/1")
    assert session.greeted() == []
    assert (session.name, session.pack_limit) == ("h/p/1", 65536)


def test_a_rejected_greeting_returns_its_errors() -> None:
    session = Session(name="x")
    session.subscribe("a*b", None)
    session.greeting()
    answer(
        session,
        "error|name-taken CMSG name: x is another",
        "error|bad-pattern SUB a*b: never",
        "whoami|h/p/1",
    )
    errors = session.greeted()
    assert errors is not None
    assert [getattr(error, "code", "") for error in errors] == ["name-taken", "bad-pattern"]


def test_answers_come_in_the_order_of_requests() -> None:
    session = Session()
    _, first = session.ask("ping", "1")
    _, second = session.ask("status")
    _, third = session.ask("ping", "2")
    answer(session, "pong|1", "error|refused CMSG status: no", "error|bad-pattern SUB x: no", "pong|2")
    assert first.result() == "1"
    with pytest.raises(RefusedError, match="no"):
        second.result()
    with pytest.raises(RejectedError, match="SUB x"):
        third.result()


def test_a_revoked_right_is_a_notice() -> None:
    session = Session()
    _, request = session.ask("tap", "on")
    answer(session, "revoked|SUB demo/>")
    assert [(notice.kind, str(notice), notice.count) for notice in session.notices] == [
        ("revoked", "no longer allowed: SUB demo/>", 1)
    ]
    assert not request.done


def test_an_unknown_notice_answers_nothing() -> None:
    session = Session()
    _, request = session.ask("whoami")
    answer(session, "weather|sunny")
    assert not request.done


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "1_0", ""])
def test_numbers_that_are_none_are_ignored(number: str) -> None:
    session = Session(pack=True)
    session.greeting()
    answer(session, f"dropped|{number}", f"pack|on {number}", "whoami|h/p/1")
    assert session.greeted() == []
    assert (session.lost, session.pack_limit) == (0, 0)


def test_lost_messages_count_in_the_next_one() -> None:
    session = Session()
    session.feed(b"MSG a\x001")
    answer(session, "dropped|3", "dropped|2")
    session.feed(b"MSG a\x007")
    session.feed(b"MSG a\x008")
    assert [message.lost for message in session.backlog] == [0, 5, 0]
    assert session.lost == 5
    assert [notice.count for notice in session.notices] == [3, 2]


def test_a_rejection_is_a_notice_and_a_barrier_error() -> None:
    session = Session()
    answer(session, "error|too-large MSG a: 9", "error|refused MSG b: no")
    assert [notice.kind for notice in session.notices] == ["rejected", "rejected"]
    with pytest.raises(RejectedError, match="MSG a: 9; 1 more rejected") as caught:
        session.raise_rejections()
    assert caught.value.code == "too-large"
    session.raise_rejections()


def test_unconfirmed_messages_are_in_doubt() -> None:
    session = Session()
    session.published += 2
    session.ask("ping")
    answer(session, "pong|")
    session.published += 3
    session.disconnected("gone")
    assert session.notices[-1].count == 3
    with pytest.raises(UnavailableError, match="up to 3"):
        session.raise_rejections()
    session.raise_rejections()


def test_a_lost_connection_ends_all_requests() -> None:
    session = Session()
    woken: list[str] = []
    _, request = session.ask("status")
    request.wakers.append(lambda: woken.append("woken"))
    session.disconnected("gone")
    assert woken == ["woken"]
    with pytest.raises(UnavailableError, match="gone"):
        request.result()


def test_messages_go_to_matching_callbacks_or_receive() -> None:
    session = Session()

    def one(_: Message) -> None: ...

    def two(_: Message) -> None: ...

    session.subscribe("a/>", one)
    session.subscribe("a/b", two)
    session.subscribe("a/c", None)
    assert session.route("a/b") == ((one, two), False)
    assert session.route("a/c") == ((one,), True)
    assert session.route("!") == ((), True)
    session.listen(two)
    assert session.route("!h") == ((two,), False)
    session.unsubscribe("a/b")
    assert session.route("a/b") == ((one,), False)
    with pytest.raises(InvalidError):
        session.unsubscribe("a/b")


def test_a_forked_child_starts_with_nothing_pending() -> None:
    session = Session()
    session.greeting()
    answer(session, "whoami|h/p/1")
    session.greeted()
    session.feed(b"MSG a\x001")
    session.published += 1
    session.forked(4711)
    assert session.wanted_name == "h/p/1/4711"
    assert not session.waiting
    assert not session.unsettled


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_the_size_of_what_waits_returns_to_zero(payloads: list[bytes]) -> None:
    session = Session()
    session.subscribe("taken", lambda _: None)
    for number, payload in enumerate(payloads):
        session.feed(build_msg(("taken", "received")[number % 2], payload))
    assert session.waiting_size >= sum(map(len, payloads))
    while session.backlog:
        session.take()
    assert len(session.received) == len(payloads) // 2
    while session.received:
        session.next_received()
    assert session.waiting_size == 0
