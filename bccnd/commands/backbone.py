"""``bccn backbone``: look into a fyrehose backbone, of ours or another, as a plain client of it."""

import argparse
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import bccn
from bccnd.commands import payload
from bccnd.commands.arguments import count, seconds
from bccnd.commands.outcome import DONE, TIMED_OUT, complain
from bccnd.errors import BccndError, FyrehoseError
from bccnd.process.keys import read_keys
from bccnd.process.standard_streams import printable, say
from bccnd.wire.fyrehose import (
    DATA_LIMIT,
    ITSELF,
    NOJOURNAL,
    PACKET_LIMIT,
    TOKEN_BYTES,
    Ack,
    Deliver,
    Keepalive,
    Packet,
    Push,
    parse,
    token_of,
)

ACTIONS = ("push", "follow", "status")
# Seconds between two KEEPALIVEs; the protocol asks for one a second at least.
BEAT = 0.5
# Seconds without an answer after which ``follow``, which goes on, says so.
SILENT_SECONDS = 2.0
# Of a message that is printed; the rest is left out.
SHOWN_BYTES = 1024
_URL = re.compile(r"fyrehose://([^/:\s]+):([0-9]{1,5})/?")

DESCRIPTION = """\
Speak to the fyrehose backbone at URL, such as fyrehose://10.1.0.1:4900, as a
plain client does. It needs no daemon.

  push    send PAYLOAD, and wait until it comes back with its sequence number
  follow  print each message after its sequence number; report missing ones
          on stderr
  status  show whether it answers, how fast, and what it delivers meanwhile

Exits with 3 if the backbone did not answer, or the message did not come back.
"""
EPILOG = """\
examples:
  bccn backbone status fyrehose://10.1.0.1:4900
  bccn backbone follow fyrehose://10.1.0.1:4900 -C 10
  bccn backbone push fyrehose://10.1.0.1:4900 hello
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help="push, follow or status")
    parser.add_argument("url", metavar="URL", help="fyrehose://HOST:PORT; IPv4 only")
    payload.add_arguments(parser, "of push: the message")
    parser.add_argument("-C", "--count", metavar="N", type=count, help="of follow: exit after N messages")
    parser.add_argument(
        "-W",
        "--wait",
        metavar="S",
        type=seconds,
        help="give up after S seconds; of status: look for S seconds",
    )
    parser.add_argument("--key-file", metavar="FILE", help="keys; the TOKEN proves the first")


def run(arguments: argparse.Namespace) -> int:
    given = (arguments.payload, arguments.message, arguments.file)
    if arguments.action != "push" and (
        any(each is not None for each in given) or arguments.stdin or arguments.empty
    ):
        raise bccn.InvalidError(f"backbone: {arguments.action} takes no message; push does")
    if arguments.action != "follow" and arguments.count is not None:
        raise bccn.InvalidError(f"backbone: {arguments.action} takes no -C; follow does")
    message = payload.read(arguments, "backbone") if arguments.action == "push" else b""
    if len(message) > DATA_LIMIT:
        raise bccn.InvalidError(f"backbone: a message has at most {DATA_LIMIT} bytes")
    with _Client(_address(arguments.url), arguments.key_file) as client:
        match arguments.action:
            case "push":
                return _push(client, message, arguments.wait if arguments.wait is not None else 3.0)
            case "follow":
                return _follow(client, arguments.count, arguments.wait)
            case _:
                return _status(client, arguments.wait if arguments.wait is not None else 2.0)


def _address(url: str) -> tuple[str, int]:
    found = _URL.fullmatch(url)
    if not found or not 0 < int(found[2]) < 65_536:
        raise bccn.InvalidError("backbone: URL is fyrehose://HOST:PORT, such as fyrehose://10.1.0.1:4900")
    try:
        return socket.gethostbyname(found[1]), int(found[2])
    except UnicodeError:  # a part of the name that is empty, or longer than 63 bytes
        raise bccn.InvalidError(f"backbone: {printable(found[1])}: is no name of a host") from None
    except OSError as error:
        raise bccn.InvalidError(f"backbone: {printable(found[1])}: {error.strerror}") from None


def _key(file: str) -> bytes:
    try:
        return read_keys(Path(file))[0]
    except BccndError as error:
        raise bccn.InvalidError(f"backbone: {error}") from None


class _Client:
    """A subscriber that keeps nothing. ``took``: milliseconds of each KEEPALIVE until its acknowledgement."""

    def __init__(self, address: tuple[str, int], key_file: str | None) -> None:
        self._key = _key(key_file) if key_file else b""
        # What to say while no KEEPALIVE is acknowledged.
        self.no_answer = (
            f"no answer from {address[0]}:{address[1]}: no backbone is there, UDP does not pass, "
            f"or {'--key-file has another key' if key_file else 'it has keys, and wants --key-file'}"
        )
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(address)
        self._sent: dict[bytes, float] = {}
        self._beat_at = 0.0
        self.took: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def packets(self, wait: float | None) -> Iterator[Packet | None]:
        """What comes, for so many seconds, or for ever; None now and then. Sends KEEPALIVEs meanwhile."""
        end = time.monotonic() + wait if wait is not None else float("inf")
        while (now := time.monotonic()) < end:
            if now >= self._beat_at:
                self._beat(now)
            self.socket.settimeout(max(0.001, min(end, self._beat_at) - now))
            try:
                packet = parse(self.socket.recv(PACKET_LIMIT))
            except (TimeoutError, FyrehoseError, ConnectionRefusedError):
                yield None
                continue
            if isinstance(packet, Ack) and packet.token in self._sent:
                self.took.append(1000 * (time.monotonic() - self._sent.pop(packet.token)))
            yield packet

    def push(self, message: bytes) -> None:
        self._send(Push(message).serialize())

    def _beat(self, now: float) -> None:
        chosen = os.urandom(TOKEN_BYTES)
        token = token_of(self._key, chosen[:8]) if self._key else chosen
        self._sent = {token: now}
        self._beat_at = now + BEAT
        self._send(Keepalive(ITSELF, NOJOURNAL, token).serialize())

    def _send(self, packet: bytes) -> None:
        try:
            self.socket.send(packet)
        except ConnectionRefusedError:  # of an earlier packet; this one was not sent
            with suppress(ConnectionRefusedError):
                self.socket.send(packet)


def _push(client: _Client, message: bytes, wait: float) -> int:
    pushed = False
    for packet in client.packets(wait):
        if isinstance(packet, Ack) and not pushed:
            client.push(message)
            pushed = True
        elif isinstance(packet, Deliver) and pushed and packet.data == message:
            say(f"#{packet.seq}")
            return DONE
    complain(client.no_answer if not pushed else "it did not come back: it may be published or not")
    return TIMED_OUT


def _follow(client: _Client, most: int | None, wait: float | None) -> int:
    last = shown = 0
    begun, said = time.monotonic(), False
    for packet in client.packets(wait):
        if not (client.took or said) and time.monotonic() - begun > SILENT_SECONDS:
            complain(f"{client.no_answer}; trying on")
            said = True
        if not isinstance(packet, Deliver):
            continue
        if last and packet.seq > last + 1:
            complain(f"missing: #{last + 1} to #{packet.seq - 1}")
        last = max(last, packet.seq)
        left_out = len(packet.data) - SHOWN_BYTES
        more = f" ... {left_out} bytes more" if left_out > 0 else ""
        say(f"#{packet.seq} {printable(packet.data[:SHOWN_BYTES])}{more}")
        shown += 1
        if shown == most:
            return DONE
    if not client.took and not said:
        complain(client.no_answer)
    return DONE if client.took and most is None else TIMED_OUT


def _status(client: _Client, wait: float) -> int:
    messages = size = last = 0
    for packet in client.packets(wait):
        if isinstance(packet, Deliver):
            messages, size, last = messages + 1, size + len(packet.data), max(last, packet.seq)
    took = client.took
    if not took:
        complain(client.no_answer)
        return TIMED_OUT
    mean = sum(took) / len(took)
    say(f"answers    {len(took)}, round trip min/avg/max {min(took):.3f}/{mean:.3f}/{max(took):.3f} ms")
    say(
        f"delivered  {messages} messages, {size} bytes in {wait:g} s"
        + (f", the last #{last}" if last else "")
    )
    return DONE
