"""The driver of the Python client for the conformance suite (clients/CONFORMANCE.md)."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

import bccn

SLICE = 0.02  # seconds between looks at what happened besides messages

Words = list[bytes]
Answer = Iterable[str | bytes | int]


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


class Driver:
    def __init__(self) -> None:
        self._options: dict[str, Any] = {}
        self._address: str | None = None
        self._client: bccn.Client | None = None
        self._events: deque[Answer] = deque()  # besides messages: notices, and calls of callbacks
        self._held: deque[Answer] = deque()  # the rest of what a message is reported as
        self._subscriptions: list[bccn.Subscription] = []
        self._streams: dict[str, bccn.Subscription] = {}
        self._notices: list[
            str | bytes | int
        ] = []  # kind, count and code of each that nobody has asked for yet
        self._reports = False  # notices go where they go by default
        self._last: bccn.Message | None = None
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
            return "error", error.code, str(error)

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

    def echo(self, word: bytes) -> None:
        self._options["echo"] = word == b"on"

    def reconnect(self, word: bytes) -> None:
        self._options["reconnect"] = word == b"on"

    def tap(self, word: bytes) -> None:
        self._options["tap"] = word.decode()

    def wait(self, seconds: bytes) -> None:
        self._options["wait"] = float(seconds)

    def take_name(self, name: bytes) -> None:
        self._options["name"] = name.decode()

    def report(self, word: bytes) -> None:
        self._reports = word == b"on"

    def open(self, address: bytes | None = None) -> Answer:
        self.close()
        self._address = None if address is None else os.fsdecode(address)
        return (self._connect().name,)

    def _connect(self) -> bccn.Client:
        on_notice = None if self._reports else self._noticed
        self._client = bccn.Client(self._address, **self._options, on_notice=on_notice)
        return self._client

    def _noticed(self, notice: bccn.Notice) -> None:
        self._notices += notice.kind, notice.count, "" if notice.error is None else notice.error.code
        if notice.kind in ("disconnected", "reconnected"):
            self._events.append((notice.kind,))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
        self._subscriptions, self._streams = [], {}
        self._held.clear()
        self._events.clear()
        self._notices.clear()

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
        self._subscriptions.append(self.client.subscribe(pattern.decode()))

    def callback(self, pattern: bytes) -> None:
        self._subscriptions.append(self.client.subscribe(pattern.decode(), self._called))

    def _called(self, message: bccn.Message) -> None:
        self._events.extend(self._shown("call", message))

    def stream(self, pattern: bytes) -> None:
        self.subscribe(pattern)
        self._streams[pattern.decode()] = self._subscriptions[-1]

    def take(self, pattern: bytes, seconds: bytes) -> Answer:
        if pattern.decode() not in self._streams:
            raise UsageError("there is no such stream")
        return self._next(self._streams[pattern.decode()], float(seconds))

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
        client, wanted = self.client, pattern.decode()
        for subscription in reversed(self._subscriptions):
            if subscription.pattern == wanted:
                self._subscriptions.remove(subscription)
                self._streams.pop(wanted, None)
                return subscription.close()
        raise bccn.InvalidError(f"{client.name} holds no subscription to {wanted}")

    def listen(self, word: bytes | None = None) -> None:
        if word is None:
            self.client.listen()
        else:
            self.client.listen(lambda message: self._events.extend(self._shown(word.decode(), message)))

    def watch(self, pattern: bytes) -> None:
        self.client.watch(pattern.decode(), self._told)

    def unwatch(self, pattern: bytes) -> None:
        self.client.unwatch(pattern.decode())

    def _told(self, pattern: str, wanted: bool) -> None:
        self._events.append(("wanted", pattern, "yes" if wanted else "no"))

    def heartbeat(self, seconds: bytes, text: bytes = b"") -> None:
        self.client.heartbeat(int(seconds), text.decode())

    def publish(self, channel: bytes, payload: bytes) -> None:
        self.client.publish(channel.decode(), payload)

    def publish_to(self, target: bytes, payload: bytes) -> None:
        self.client.publish_to(target.decode(), payload)

    def publish_all(self, payload: bytes) -> None:
        self.client.publish_all(payload)

    def datagram(self, datagram: bytes) -> None:
        self.client.send_datagram(datagram)

    def flood(self, channel: bytes, count: bytes, size: bytes = b"0") -> None:
        chan, least = channel.decode(), int(size)
        with self.client.batch():
            for number in range(1, int(count) + 1):
                self.client.publish(chan, str(number).ljust(least, "."))

    def barrier(self) -> None:
        self.client.barrier()

    def control(self, key: bytes, value: bytes = b"") -> Answer:
        return (self.client.control(key.decode(), value.decode()),)

    def matches(self, pattern: bytes, channel: bytes, separator: bytes) -> Answer:
        return ("yes" if bccn.matches(pattern.decode(), channel.decode(), separator.decode()) else "no",)

    def notices(self) -> Answer:
        notices, self._notices = self._notices, []
        return notices

    def dispatch(self) -> None:
        self.client.dispatch()

    def poll(self, seconds: bytes) -> Answer:
        descriptor = self.client.fileno()
        readable, _, _ = select.select([descriptor], [], [], float(seconds))
        return descriptor, "yes" if readable else "no"

    def origin(self) -> Answer:
        if self._last is None or self._last.datagram is None:
            raise UsageError("no message of the format full was printed")
        interface = self._last.interface
        return self._last.time_ns or 0, self._last.datagram, *([] if interface is None else [interface])

    def await_message(self) -> Answer:
        message = self.client.receive()
        return () if message is None else next(self._shown("msg", message))

    def lost(self) -> Answer:
        return (self.client.lost,)

    def version(self) -> Answer:
        return (bccn.__version__,)

    def status(self) -> Answer:
        return (json.dumps(self.client.status()),)

    def clients(self) -> Answer:
        return (json.dumps(self.client.clients()),)

    def sources(self) -> Answer:
        return (json.dumps(self.client.sources()),)

    def receive(self, seconds: bytes) -> Answer:
        return self._next(self.client, float(seconds))

    def _next(self, stream: bccn.Client | bccn.Subscription, seconds: float) -> Answer:
        deadline = time.monotonic() + seconds
        while True:
            for waiting in (self._held, self._events):
                if waiting:
                    return waiting.popleft()
            left = max(0.0, deadline - time.monotonic())
            if (message := stream.receive(min(left, SLICE))) is not None:
                self._held.extend(self._shown("msg", message))
            elif not left and not self._events:
                return ("timeout",)

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

    def request(self, channel: bytes, question: bytes, seconds: bytes, most: bytes | None = None) -> Answer:
        arguments = channel.decode(), question, float(seconds)
        if most is None:
            return (self.client.request(*arguments).payload,)
        return [reply.payload for reply in self.client.request_many(*arguments, int(most))]

    def ask(self, channel: bytes, question: bytes) -> Answer:
        return (self.client.request(channel.decode(), question).payload,)

    def serve(
        self, most: bytes, seconds: bytes, pattern: bytes | None = None, later: bytes | None = None
    ) -> Answer:
        served = 0
        waiting: list[bccn.Request] = []  # to be replied to when their handler has returned

        def replied(request: bccn.Request) -> bytes:
            nonlocal served
            served += 1
            return b"re:" + request.payload

        if pattern is not None:
            with self.client.serve(pattern.decode(), replied if later is None else waiting.append):
                before, last = 0, time.monotonic()
                while served < int(most) and time.monotonic() < last + float(seconds):
                    self.client.receive(min(float(seconds), SLICE))  # it goes on when a handler was called
                    while waiting:
                        self.client.reply(waiting[0], replied(waiting[0]))
                        del waiting[0]
                    if served > before:
                        before, last = served, time.monotonic()
            return (served,)
        while served < int(most) and (message := self.client.receive(float(seconds))) is not None:
            with suppress(bccn.InvalidError):
                request = bccn.Request(message)
                self.client.reply(request, replied(request))
        return (served,)

    def _shown(self, word: str, message: bccn.Message) -> Iterator[Answer]:
        """The events that a message is: what was lost before it comes first."""
        self._last = message
        if message.lost:
            yield "lost", message.lost
        if message.peer is None:
            yield word, message.channel, message.payload
        else:
            src, seq, verdict = message.src or "", message.seq or 0, message.verdict or ""
            yield word, message.channel, message.payload, src, seq, message.peer, verdict


COMMANDS: dict[str, Callable[..., Any]] = {
    "format": Driver.format,
    "pack": Driver.pack,
    "separator": Driver.separator,
    "queue": Driver.queue,
    "timeout": Driver.timeout,
    "echo": Driver.echo,
    "reconnect": Driver.reconnect,
    "tap": Driver.tap,
    "wait": Driver.wait,
    "as": Driver.take_name,
    "report": Driver.report,
    "matches": Driver.matches,
    "control": Driver.control,
    "notices": Driver.notices,
    "dispatch": Driver.dispatch,
    "poll": Driver.poll,
    "origin": Driver.origin,
    "await": Driver.await_message,
    "ask": Driver.ask,
    "open": Driver.open,
    "close": Driver.close,
    "whoami": Driver.whoami,
    "name": Driver.name,
    "sub": Driver.subscribe,
    "callback": Driver.callback,
    "stream": Driver.stream,
    "take": Driver.take,
    "cancel": Driver.cancel,
    "unsub": Driver.unsubscribe,
    "listen": Driver.listen,
    "watch": Driver.watch,
    "unwatch": Driver.unwatch,
    "heartbeat": Driver.heartbeat,
    "pub": Driver.publish,
    "pub-to": Driver.publish_to,
    "pub-all": Driver.publish_all,
    "datagram": Driver.datagram,
    "lost": Driver.lost,
    "version": Driver.version,
    "status": Driver.status,
    "clients": Driver.clients,
    "sources": Driver.sources,
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
