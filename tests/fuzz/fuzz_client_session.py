"""The Python client: whatever a daemon sends is an event or a ``ProtocolError``, and the accounts stay right.

An input is how the client was made, then steps: it asks, or packets arrive, alone or as one PACK, or it takes
what waits, or the connection ends.
"""

from collections.abc import Iterable
from unittest import mock

import bccn
from bccn.exchange import Pending
from bccn.inbox import Held, Notice
from bccn.protocol import Control, Message, build_control, parse, unpack
from bccn.session import Entry, Session
from bccnd.wire import sbus
from tests.fuzz.fuzzer import Script
from tests.golden import entries

ASKED = ["ping", "whoami", "name", "queue", "tap", "status"]
ANSWERS = [
    b"CMSG pong\0", b"CMSG whoami\0", b"CMSG error\0", b"CMSG dropped\0", b"CMSG closing\0", b"CMSG pack\0on ",
    b"CMSG error\0refused CMSG ", b"CMSG error\0bad-pattern SUB ", b"CMSG name\0", b"MSG ", b"RECV ", b"",
]  # fmt: skip
DELIVERED = (None, "ok", "retained", "repaired")
NOTICES = {"lost", "rejected", "revoked", "closing", "disconnected", "reconnected"}


class EagerTransport:
    """Takes every packet."""

    def send_raw(self, packet: bytes, _flags: int) -> int:
        return len(packet)

    def send(self, packet: bytes) -> bool:
        return bool(packet)

    def close(self) -> None: ...


class BareSession(Session):
    """Without a socket and without a driver."""

    def _advance(self) -> None:
        with mock.patch("bccn.session.transport_to", return_value=EagerTransport()):
            super()._advance()

    async def _wait(self, pending: Pending, deadline: float) -> None:  # noqa: ARG002
        raise AssertionError("nothing here waits")


class Client:
    """A session and what it must have got."""

    def __init__(self, script: Script) -> None:
        options = script.number(16)
        self.session = BareSession(
            name="here/a/1" if options & 1 else None,
            format="full" if options & 2 else "plain",
            pack=bool(options & 4),
            queue={"packets": 9},
            timeout=1.0,
        )
        self.session._until = None if options & 8 else (0.0, 0.0)
        self.inbox = self.session._inbox
        self.inbox.add(Held("a/>"))
        self.inbox.add(Held("*", print))
        self.requests: list[Entry] = []
        self.greet()
        self.waiting = 0

    def greet(self) -> None:
        """Begin with a new connection, which takes everything."""
        self.session._let_go(None)
        self.session._due = 0.0
        self.session._advance()

    def ask(self, key: str, value: str) -> None:
        try:
            request = Entry(build_control(key, value), key=key)
        except bccn.InvalidError:
            return
        assert sbus.parse(request.packets[0])
        (self.session._unsent if self.session.connected else self.session._held).append(request)
        self.session._flush()
        self.requests.append(request)
        self.session._published += 1

    def feed(self, packet: bytes) -> None:
        expected = events(packet)
        try:
            self.session._feed(packet)
        except bccn.ProtocolError:
            assert expected is None
        else:
            assert expected is not None
            self.waiting += sum(isinstance(event, Message) for event in expected)
        # What came before the broken part of a PACK counts; where, is the same for both.
        if expected is None:
            self.waiting = len(self.inbox)

    def take(self) -> None:
        inbox = self.inbox
        while inbox.backlog:
            message, callbacks = inbox.take()
            matches = "/" not in message.channel and message.channel[:1] != "!"
            assert callbacks == ((print,) if matches and message.verdict in DELIVERED else ())
        while inbox.received:
            assert inbox.next_of(inbox.received).lost >= 0
        assert inbox.waiting_size == 0
        assert not inbox
        self.waiting = 0

    def judge(self) -> None:
        session = self.session
        assert len(self.inbox) == self.waiting
        assert session.lost >= 0
        if session._transport is not None and not session.connected and session._greeting[-1].done:
            session._greeted()
        waiting = [*session._asked, *session._unsent, *session._held]
        assert all(request.done or request in waiting for request in self.requests)
        while session._notices:
            notice = session._notices.popleft()
            assert isinstance(notice, Notice)
            assert notice.kind in NOTICES

    def end(self) -> None:
        self.session._close()
        for request in self.requests:
            assert request.done
            assert isinstance(request.value, str)
            assert request.error is None or str(request.error)
        try:
            self.session._raise_rejections()
        except (bccn.RejectedError, bccn.UnconfirmedError) as error:
            assert str(error)
        self.session._raise_rejections()
        self.take()
        self.judge()


def events(packet: bytes) -> list[Message | Control] | None:
    try:
        parts = list(unpack(packet)) if packet.startswith(b"PACK ") else [packet]
        return [parse(part) for part in parts]
    except bccn.ProtocolError:
        return None


def one_input(data: bytes) -> None:
    script = Script(data)
    client = Client(script)
    while script:
        match script.number(8):
            case 0:
                client.ask(ASKED[script.number(len(ASKED))], script.chunk().decode("utf-8", "replace"))
            case 1:
                client.take()
            case 2:
                packets = [packet_of(script) for _ in range(script.number(8))]
                client.feed(sbus.pack(packets))
            case 3:
                client.feed(script.chunk())
            case 4:
                client.greet()
            case _:
                client.feed(packet_of(script))
        client.judge()
    client.end()


def packet_of(script: Script) -> bytes:
    return ANSWERS[script.number(len(ANSWERS))] + script.chunk()


def seeds() -> Iterable[bytes]:
    packets = [
        bytes.fromhex(entry["packet"])
        for section in ("valid", "invalid")
        for entry in entries("sbus", section)
    ]
    for packet in packets:
        if len(packet) < 256:
            yield bytes([7, 3, len(packet)]) + packet
    for kind in range(len(ANSWERS)):
        for value in (
            b"",
            b"5",
            "²".encode(),
            b"on 70000",
            b"a/b\0x",
            b"local 17 ok\0BCCN1[8]a:1:a/b|",
            b"x: no",
        ):
            step = bytes([5, kind, len(value)]) + value
            yield b"\5\0\0\0" + step + b"\1\2\1" + step[1:]
