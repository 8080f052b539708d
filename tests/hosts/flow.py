"""Numbered messages at a steady rate from one process to another, which counts them itself.

    python -m tests.hosts.flow publish ADDRESS SOURCES RATE COUNT
    python -m tests.hosts.flow subscribe ADDRESS SOURCES COUNT SECONDS

ADDRESS is ``bus:PATH`` of a daemon, or ``nats:HOST:PORT``. Each source is a connection of its own with a channel of
its own, ``flow/<n>``, on which it publishes COUNT messages at RATE a second: its number, and when it was due. It then
prints ``sent``, and says ``end`` on the channel again and again until its input ends: so nobody waits for a last
message that was lost. The subscriber prints ``ready``, and one JSON object (``Counted``) at the end of all channels,
or after SECONDS. What is left of an earlier flow does not count.
"""

import json
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from select import select
from typing import Any, Self

from tests.daemon_process import mortal
from tests.packet_client import PATIENCE, PacketClient
from tests.subscriber import unpacked

ROOT = Path(__file__).parents[2]
PAYLOAD = 100  # bytes
END = b"end"
END_SECONDS = 0.05
# A subscriber that hears nothing for so long gives up; each line of a program may take so long.
SILENCE = 120.0
PERCENTILES = 50.0, 99.0, 99.9


@dataclass(frozen=True)
class Counted:
    """``received``: different numbers; ``doubled``: messages that came again; ``disordered``: those that came after a
    later one; ``delays``: seconds from when a message was due, for each of PERCENTILES, and the longest.
    """

    expected: int
    received: int
    doubled: int
    disordered: int
    delays: list[float]

    @property
    def wrong(self) -> int:
        return self.doubled + self.disordered

    @property
    def share(self) -> float:
        return self.received / self.expected


# -- the test's side


class _Program:
    def __init__(self, prefix: Sequence[str], *arguments: object) -> None:
        command = [*prefix, sys.executable, "-m", "tests.hosts.flow", *map(str, arguments)]
        self.process = subprocess.Popen(
            mortal(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def line(self) -> str:
        """The next one that it prints."""
        assert self.process.stdout is not None
        readable, _, _ = select([self.process.stdout], [], [], SILENCE)
        assert readable, f"nothing of {self.process.args!r} within {SILENCE:g} s"
        return self.process.stdout.readline().decode().removesuffix("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self.process:
            if kind is not None or self.process.stdin is None:
                self.process.kill()
            else:
                self.process.stdin.close()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()


class Publisher(_Program):
    """It publishes at once; a context manager that ends it."""

    def __init__(
        self, address: str, *, rate: float, count: int, sources: int = 1, prefix: Sequence[str] = ()
    ) -> None:
        super().__init__(prefix, "publish", address, sources, rate, count)

    def wait(self) -> None:
        """Until everything was handed over once."""
        assert self.line() == "sent"


class Subscriber(_Program):
    """One that is ready when this returns; a context manager that ends it."""

    def __init__(
        self,
        address: str,
        *,
        count: int,
        sources: int = 1,
        prefix: Sequence[str] = (),
        seconds: float = SILENCE,
    ) -> None:
        super().__init__(prefix, "subscribe", address, sources, count, seconds)
        assert self.line() == "ready"

    def result(self) -> Counted:
        """What it has seen, once everything has ended."""
        return Counted(**json.loads(self.line()))


# -- the program's side


class Bus:
    """A client of a daemon. Of two instances of one program each has its own numbers."""

    def __init__(self, path: str, seconds: float) -> None:
        self._client = PacketClient(path, seconds=seconds)

    def subscribe(self, pattern: str) -> None:
        self._client.request("queue", "policy=block")
        self._client.request("pack", "on")
        self._client.subscribe(pattern)

    def publish(self, chan: bytes, payload: bytes) -> None:
        self._client.send(b"MSG %b\0%b" % (chan, payload))

    def messages(self) -> Iterator[tuple[bytes, bytes]]:
        """(channel, payload) of each, until the connection ends."""
        while packet := self._client.receive():
            for each in unpacked(packet):
                head, _, payload = each.partition(b"\0")
                if head.startswith(b"MSG "):
                    yield head[4:], payload


class Nats:
    """A client of nats-server (docs.nats.io, "Client Protocol")."""

    def __init__(self, address: str, seconds: float) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = self._socket.makefile("rb", buffering=1 << 16)
        self._input.readline()  # INFO
        self._socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def subscribe(self, pattern: str) -> None:
        self._socket.sendall(b"SUB %b 1\r\n" % pattern.replace("/", ".").encode())
        self._wait()

    def publish(self, chan: bytes, payload: bytes) -> None:
        self._socket.sendall(b"PUB %b %d\r\n%b\r\n" % (chan.replace(b"/", b"."), len(payload), payload))

    def messages(self) -> Iterator[tuple[bytes, bytes]]:
        while line := self._input.readline():
            if line.startswith(b"MSG "):
                subject, _, size = line[4:].split()
                yield subject.replace(b".", b"/"), self._input.read(int(size) + 2)[:-2]
            elif line.startswith(b"PING"):
                self._socket.sendall(b"PONG\r\n")

    def _wait(self) -> None:
        self._socket.sendall(b"PING\r\n")
        while (line := self._input.readline()) != b"PONG\r\n":
            if not line:
                raise ConnectionError("nats-server has closed the connection")


KINDS: dict[str, Callable[[str, float], Bus | Nats]] = {"bus": Bus, "nats": Nats}


def connect(address: str, seconds: float = SILENCE) -> Bus | Nats:
    """``seconds``: that a call may take."""
    kind, _, where = address.partition(":")
    return KINDS[kind](where, seconds)


def publish(address: str, sources: int, rate: float, count: int) -> None:
    clients = [(b"flow/%d" % number, connect(address)) for number in range(sources)]
    padding = b"x" * PAYLOAD
    begun = time.monotonic()
    for number in range(count):
        due = begun + number / rate
        while (left := due - time.monotonic()) > 0:
            time.sleep(left)
        payload = (b"%d %.6f " % (number, due) + padding)[:PAYLOAD]
        for chan, client in clients:
            client.publish(chan, payload)
    _say("sent")
    while not select([sys.stdin], [], [], END_SECONDS)[0]:
        for chan, client in clients:
            client.publish(chan, b"%b %.6f " % (END, begun))


def subscribe(address: str, sources: int, count: int, seconds: float) -> None:
    client = connect(address, seconds)
    client.subscribe("flow/>")
    begun = time.monotonic()
    _say("ready")
    messages = _since(begun, _until_silent(client.messages()))
    counted = count_messages(messages, sources, seconds, time.monotonic)
    _say(json.dumps({"expected": sources * count, **counted}))


def _until_silent(messages: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    with suppress(TimeoutError):
        yield from messages


def _since(begun: float, messages: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Without those of an earlier flow, of which the last may have been lost, and repaired late."""
    for chan, payload in messages:
        if float(payload.split(b" ", 2)[1]) >= begun:
            yield chan, payload


def count_messages(
    messages: Iterator[tuple[bytes, bytes]], sources: int, seconds: float, clock: Callable[[], float]
) -> dict[str, Any]:
    """The fields of ``Counted``, but for what is expected."""
    last: dict[bytes, int] = {}
    seen: dict[bytes, set[int]] = {}
    delays, ended = array("d"), set[bytes]()
    doubled = disordered = 0
    until = clock() + seconds
    for chan, payload in messages:
        if clock() > until:
            break
        word, due, _ = payload.split(b" ", 2)
        if word == END:
            ended.add(chan)
            if len(ended) == sources:
                break
            continue
        number, numbers = int(word), seen.setdefault(chan, set())
        if number in numbers:
            doubled += 1
            continue
        disordered += number < last.get(chan, -1)
        last[chan] = number
        numbers.add(number)
        delays.append(clock() - float(due))
    ranked = sorted(delays) or [0.0]
    return {
        "received": len(delays),
        "doubled": doubled,
        "disordered": disordered,
        "delays": [ranked[max(0, ceil(len(ranked) * share / 100) - 1)] for share in (*PERCENTILES, 100.0)],
    }


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(role: str, address: str, sources: str, *rest: str) -> None:
    if role == "publish":
        rate, count = rest
        publish(address, int(sources), float(rate), int(count))
    else:
        count, seconds = rest
        subscribe(address, int(sources), int(count), float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
