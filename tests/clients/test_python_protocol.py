"""The Python client without I/O: packets, patterns, and the session between what is wanted and what is answered."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccn import matches
from bccn.errors import InvalidError, ProtocolError, RefusedError, RejectedError, UnavailableError
from bccn.protocol import (
    PACK,
    Control,
    Message,
    Packer,
    build_control,
    build_msg,
    build_sub,
    build_unsub,
    parse,
    unpack,
)
from bccn.session import Session
from bccnd.errors import PacketError
from bccnd.relay import pattern as router
from tests.golden import golden

# --- patterns ---


@pytest.mark.parametrize("entry", golden("patterns", "matches"))
def test_patterns_match_as_the_daemon_says(entry: dict[str, Any]) -> None:
    assert matches(entry["pattern"], entry["channel"], entry["separator"]) is entry["matches"]


PATTERNS = st.text(alphabet="ab*>/.!", max_size=12)


@given(PATTERNS, PATTERNS.filter(bool), st.sampled_from("/."))
def test_client_and_daemon_agree_on_every_pattern(pattern: str, channel: str, separator: str) -> None:
    try:
        router.check(pattern.encode(), separator.encode())
    except PacketError:
        return  # the daemon takes no such subscription
    expected = not channel.startswith("!") and router.matches(
        pattern.encode(), separator.encode(), channel.encode()
    )
    assert matches(pattern, channel, separator) is expected


# --- packets ---


def of_type(*types: str) -> list[Any]:
    return [param for param in golden("sbus", "valid") if param.values[0]["type"] in types]


@pytest.mark.parametrize("entry", of_type("MSG"))
def test_deliveries_are_read(entry: dict[str, Any]) -> None:
    packet = bytes.fromhex(entry["packet"])
    message = parse(packet)
    assert isinstance(message, Message)
    assert message.payload == bytes.fromhex(entry["payload"])
    if entry["chan"].isascii():
        assert message.channel == entry["chan"]
        assert build_msg(message.channel, message.payload) == packet


@pytest.mark.parametrize("entry", of_type("RECV"))
def test_full_deliveries_are_read(entry: dict[str, Any]) -> None:
    message = parse(bytes.fromhex(entry["packet"]))
    assert isinstance(message, Message)
    assert (message.peer, message.time_ns, message.verdict) == (
        entry["peer"],
        int(entry["unix_ns"]),
        entry["verdict"],
    )
    assert message.datagram == bytes.fromhex(entry["datagram"])


def named(kind: str, section: str, begin: str) -> list[Any]:
    return [param for param in golden(kind, section) if param.values[0]["name"].startswith(begin)]


@pytest.mark.parametrize("entry", named("sbus", "invalid", "RECV: "))
def test_broken_full_deliveries_are_a_protocol_error(entry: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        parse(bytes.fromhex(entry["packet"]))


@pytest.mark.parametrize("entry", golden("bccn1", "valid"))
def test_every_sound_datagram_is_read(entry: dict[str, Any]) -> None:
    datagram = bytes.fromhex(entry["datagram"])
    message = parse(b"RECV 10.0.0.1:5400 17 ok\0" + datagram)
    assert isinstance(message, Message)
    assert (message.src, str(message.seq), message.channel, message.payload, message.mode) == (
        entry["src"],
        str(int(entry["seq"])),
        entry["chan"],
        bytes.fromhex(entry["payload"]),
        entry["mode"],
    )


@pytest.mark.parametrize("entry", of_type("PACK"))
def test_packs_are_taken_apart(entry: dict[str, Any]) -> None:
    packets = [bytes.fromhex(packet) for packet in entry["packets"]]
    assert list(unpack(bytes.fromhex(entry["packet"]))) == packets


@pytest.mark.parametrize(
    "entry", [param for param in of_type("SUB", "UNSUB") if param.values[0]["canonical"]]
)
def test_subscriptions_are_built(entry: dict[str, Any]) -> None:
    build = build_sub if entry["type"] == "SUB" else build_unsub
    assert build(entry["pattern"]) == bytes.fromhex(entry["packet"])


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: b"RECV a 1 ok\0BCCN1[3]" + tail))
def test_hostile_packets_are_read_or_are_a_protocol_error(packet: bytes) -> None:
    try:
        event = parse(packet)
    except ProtocolError:
        return
    assert isinstance(event, Message | Control)


@given(st.lists(st.binary(max_size=40)), st.integers(0, 120))
def test_packing_keeps_every_packet_in_order_and_every_pack_small(packets: list[bytes], limit: int) -> None:
    packer = Packer(limit)
    counted = [out for packet in packets for out in packer.add(b"x" + packet)] + packer.flush()
    sent = [out for out, _ in counted]
    assert all(len(out) <= limit for out in sent if out.startswith(PACK))
    unpacked = [part for out in sent for part in (unpack(out) if out.startswith(PACK) else [out])]
    assert unpacked == [b"x" + packet for packet in packets]
    assert sum(count for _, count in counted) == len(packets)
    assert packer.flush() == []


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0\x02a", b"\0\0\0\x01ab", b"\xff\xff\xff\xff"])
def test_a_broken_pack_is_a_protocol_error(tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(unpack(PACK + tail))


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_msg("a\0b", b""),
        lambda: build_msg("caf\N{LATIN SMALL LETTER E WITH ACUTE}", b""),
        lambda: build_sub("a b"),
        lambda: build_sub("a\n"),
        lambda: build_unsub("a\0b"),
        lambda: build_control(""),
        lambda: build_control("a b", "c"),
    ],
)
def test_what_the_framing_cannot_carry_is_refused_before_it_is_sent(build: Any) -> None:
    with pytest.raises(InvalidError):
        build()


def test_messages_show_and_compare_what_they_are() -> None:
    message = Message("!a/b", b"hi", src="h/p/1", seq=3)
    assert (message.mode, message.text) == ("directed", "hi")
    assert repr(message) == "Message('!a/b', b'hi', src='h/p/1', seq=3)"
    assert message == Message("!a/b", b"hi", src="h/p/1", seq=3)
    assert message != Message("!a/b", b"hi")
    assert Message("!", b"").mode == "all"


# --- the session ---


def answer(session: Session, *answers: str) -> None:
    for text in answers:
        session.feed(b"CMSG " + text.replace("|", "\0", 1).encode())


def test_the_greeting_says_all_that_is_wanted() -> None:
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


def test_what_the_daemon_has_against_a_greeting_is_told() -> None:
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


def test_answers_go_to_requests_in_their_order() -> None:
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


def test_a_right_that_is_taken_back_is_a_notice() -> None:
    session = Session()
    _, request = session.ask("tap", "on")
    answer(session, "revoked|SUB demo/>")
    assert [(notice.kind, str(notice), notice.count) for notice in session.notices] == [
        ("revoked", "no right any more to SUB demo/>", 1)
    ]
    assert not request.done


def test_a_notice_of_a_newer_daemon_answers_nothing() -> None:
    session = Session()
    _, request = session.ask("whoami")
    answer(session, "weather|sunny")
    assert not request.done


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "1_0", ""])
def test_what_is_no_number_is_taken_for_none(number: str) -> None:
    session = Session(pack=True)
    session.greeting()
    answer(session, f"dropped|{number}", f"pack|on {number}", "whoami|h/p/1")
    assert session.greeted() == []
    assert (session.lost, session.pack_limit) == (0, 0)


def test_losses_stand_where_they_are() -> None:
    session = Session()
    session.feed(b"MSG a\x001")
    answer(session, "dropped|3", "dropped|2")
    session.feed(b"MSG a\x007")
    session.feed(b"MSG a\x008")
    assert [message.lost for message in session.backlog] == [0, 5, 0]
    assert session.lost == 5
    assert [notice.count for notice in session.notices] == [3, 2]


def test_a_rejected_message_is_a_notice_and_the_next_barriers_error() -> None:
    session = Session()
    answer(session, "error|too-large MSG a: 9", "error|refused MSG b: no")
    assert [notice.kind for notice in session.notices] == ["rejected", "rejected"]
    with pytest.raises(RejectedError, match="MSG a: 9; so were 1 more") as caught:
        session.raise_rejections()
    assert caught.value.code == "too-large"
    session.raise_rejections()


def test_messages_not_known_to_have_been_taken_are_in_doubt() -> None:
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


def test_a_broken_connection_answers_all_that_was_asked() -> None:
    session = Session()
    woken: list[str] = []
    _, request = session.ask("status")
    request.wakers.append(lambda: woken.append("woken"))
    session.disconnected("gone")
    assert woken == ["woken"]
    with pytest.raises(UnavailableError, match="gone"):
        request.result()


def test_messages_go_to_the_callbacks_that_match_and_otherwise_to_who_receives() -> None:
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


def test_a_forked_child_has_its_own_name_and_nothing_pending() -> None:
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
def test_the_account_of_waiting_messages_returns_to_zero(payloads: list[bytes]) -> None:
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
