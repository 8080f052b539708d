"""The driver of the Python client for the conformance suite (clients/CONFORMANCE.md)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

import bccn

SLICE = 0.02  # seconds between looks at what happened besides messages

Words = list[bytes]
Answer = Iterable[str | bytes | int]

CODES = {
    bccn.InvalidError: "invalid",
    bccn.UnconfirmedError: "unconfirmed",
    bccn.UnavailableError: "unavailable",
    bccn.TimedOutError: "timeout",
    bccn.NobodyListensError: "nobody",
    bccn.ClosedError: "closed",
}


class UsageError(Exception):
    pass


class CancelledError(Exception):
    pass


def _cancel(*_: object) -> None:
    raise CancelledError("the call was cancelled")


def encoded(word: str | bytes | int) -> str:
    data = str(word).encode() if isinstance(word, int) else word.encode() if isinstance(word, str) else word
    return (
        "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x25 else f"%{byte:02X}" for byte in data) or "%"
    )


def code_of(error: bccn.BccnError) -> str:
    if isinstance(error, bccn.RejectedError):
        return error.code
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), "other")


class Driver:
    def __init__(self) -> None:
        self._options: dict[str, Any] = {}
        self._address: str | None = None
        self._client: bccn.Client | None = None
        self._events: deque[bccn.Notice] = deque()
        self._held: bccn.Message | None = None  # it comes after the report of what was lost before it
        self._is_child = False

    def run(self) -> None:
        while line := self._line():
            name, *arguments = line.removesuffix(b"\n").split(b" ")
            if name == b"exit":
                break
            words = [b"" if word == b"%" else unquote_to_bytes(word) for word in arguments]
            self._say(*self._obey(name.decode(), words))
        self.close()

    def _line(self) -> bytes:
        """Unbuffered: a child of fork reads on where its parent stopped, and the other way round."""
        line = bytearray()
        while (byte := os.read(0, 1)) and byte != b"\n":
            line += byte
        return bytes(line + byte)

    def _say(self, *words: str | bytes | int) -> None:
        os.write(1, (" ".join(map(encoded, words)) + "\n").encode())

    def _obey(self, name: str, words: Words) -> Answer:
        command: Callable[..., Answer] | None = COMMANDS.get(name)
        try:
            if command is None:
                raise UsageError("no such command")
            try:
                return "ok", *(command(self, *words) or ())
            except (TypeError, ValueError) as error:
                if isinstance(error, bccn.BccnError):
                    raise
                raise UsageError(str(error)) from None
        except UsageError as error:
            return "error", "usage", str(error)
        except CancelledError as error:
            return "error", "cancelled", str(error)
        except bccn.BccnError as error:
            return "error", code_of(error), str(error)

    # --- before open ---

    def format(self, word: bytes) -> None:
        self._options["format"] = word.decode()

    def pack(self, word: bytes) -> None:
        self._options["pack"] = word == b"on"

    def separator(self, word: bytes) -> None:
        self._options["separator"] = word.decode()

    def queue(self, *settings: bytes) -> None:
        pairs = (setting.decode().partition("=") for setting in settings)
        self._options["queue"] = {key: value for key, _, value in pairs}

    def timeout(self, seconds: bytes) -> None:
        self._options["timeout"] = float(seconds)

    def open(self, address: bytes | None = None) -> Answer:
        self.close()
        self._address = None if address is None else os.fsdecode(address)
        return (self._connect().name,)

    def _connect(self) -> bccn.Client:
        self._client = bccn.Client(self._address, **self._options, on_notice=self._noticed)
        return self._client

    def _noticed(self, notice: bccn.Notice) -> None:
        if notice.kind in ("disconnected", "reconnected"):
            self._events.append(notice)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client, self._held = None, None
        self._events.clear()

    # --- with an open client ---

    @property
    def client(self) -> bccn.Client:
        if self._client is None:
            raise bccn.ClosedError("there is no open client")
        return self._client

    def whoami(self) -> Answer:
        return (self.client.name,)

    def name(self, new: bytes) -> Answer:
        self.client.set_name(new.decode())
        return (self.client.name,)

    def subscribe(self, pattern: bytes) -> None:
        self.client.subscribe(pattern.decode())

    def cancel(self, pattern: bytes, seconds: bytes) -> Answer:
        """An exception in a signal handler ends the call."""
        previous = signal.signal(signal.SIGALRM, _cancel)
        signal.setitimer(signal.ITIMER_REAL, float(seconds))
        try:
            self.client.subscribe(pattern.decode())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        return ()

    def unsubscribe(self, pattern: bytes) -> None:
        self.client.unsubscribe(pattern.decode())

    def listen(self) -> None:
        self.client.listen()

    def heartbeat(self, seconds: bytes, text: bytes = b"") -> None:
        self.client.heartbeat(int(seconds), text.decode())

    def publish(self, channel: bytes, payload: bytes) -> None:
        self.client.publish(channel.decode(), payload)

    def send_to(self, target: bytes, payload: bytes) -> None:
        self.client.send_to(target.decode(), payload)

    def send_all(self, payload: bytes) -> None:
        self.client.send_all(payload)

    def flood(self, channel: bytes, count: bytes, size: bytes = b"0") -> None:
        chan, least = channel.decode(), int(size)
        self.client.publish_many((chan, str(i).ljust(least, ".")) for i in range(1, int(count) + 1))

    def barrier(self) -> None:
        self.client.barrier()

    def receive(self, seconds: bytes) -> Answer:
        deadline = time.monotonic() + float(seconds)
        while True:
            if self._events:
                return (self._events.popleft().kind,)
            left = max(0.0, deadline - time.monotonic())
            message = self._held or self.client.receive(min(left, SLICE))
            if message is not None:
                return self._shown(message)
            if not left and not self._events:
                return ("timeout",)

    def _shown(self, message: bccn.Message) -> Answer:
        if message.lost:
            lost, message.lost, self._held = message.lost, 0, message
            return "lost", lost
        self._held = None
        if message.peer is None:
            return "msg", message.channel, message.payload
        src, seq, verdict = message.src or "", message.seq or 0, message.verdict or ""
        return "msg", message.channel, message.payload, src, seq, message.peer, verdict

    def count(self, most: bytes, seconds: bytes) -> Answer:
        received, lost, last = 0, 0, b""
        while received < int(most) and (message := self.client.receive(float(seconds))) is not None:
            received, lost, last = received + 1, lost + message.lost, message.payload
        self._events.clear()
        return received, lost, last

    def fork(self, pattern: bytes) -> Answer:
        """The child answers here and goes on with the script; the parent's next answer is that of its exit."""
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            return (os.waitstatus_to_exitcode(status),)
        self._is_child = True
        if pattern == b"A":
            self.close()
            self._connect()
        return os.getpid(), self.client.name

    def request(self, channel: bytes, question: bytes, seconds: bytes, most: bytes = b"1") -> Answer:
        answers: list[bytes] = []
        try:
            replies = self.client.replies_to(channel.decode(), question, float(seconds), int(most))
            answers.extend(reply.payload for reply in replies)
        except bccn.TimedOutError:
            if not answers:
                raise
        return answers

    def serve(self, most: bytes, seconds: bytes) -> Answer:
        served = 0
        while served < int(most) and (message := self.client.receive(float(seconds))) is not None:
            try:
                request = bccn.Request(message)
            except bccn.InvalidError:
                continue
            self.client.reply(request, b"re:" + request.payload)
            served += 1
        return (served,)


COMMANDS: dict[str, Callable[..., Any]] = {
    "format": Driver.format,
    "pack": Driver.pack,
    "separator": Driver.separator,
    "queue": Driver.queue,
    "timeout": Driver.timeout,
    "open": Driver.open,
    "close": Driver.close,
    "whoami": Driver.whoami,
    "name": Driver.name,
    "sub": Driver.subscribe,
    "cancel": Driver.cancel,
    "unsub": Driver.unsubscribe,
    "listen": Driver.listen,
    "heartbeat": Driver.heartbeat,
    "pub": Driver.publish,
    "pub-to": Driver.send_to,
    "pub-all": Driver.send_all,
    "flood": Driver.flood,
    "barrier": Driver.barrier,
    "recv": Driver.receive,
    "count": Driver.count,
    "request": Driver.request,
    "serve": Driver.serve,
    "fork": Driver.fork,
}


if __name__ == "__main__":
    Driver().run()
    sys.exit(0)
