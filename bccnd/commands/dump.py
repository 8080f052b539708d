"""``bccn dump``: every datagram, accepted or rejected and why, on the screen or in a capture for Wireshark."""

import argparse
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bccn
from bccnd.commands.arguments import count, name, pattern, seconds
from bccnd.commands.dump_sinks import CaptureFile, Screen, Sink
from bccnd.commands.outcome import REFUSED, TIMED_OUT, USAGE, Reporter, complain
from bccnd.commands.sightings import CUT, PORT, Sighting, Tap, from_capture
from bccnd.commands.streams import batches, reading
from bccnd.errors import BccndError, CaptureError
from bccnd.process.standard_streams import STDERR, STDIN, STDOUT
from bccnd.wire import pcap
from bccnd.wire.bccn1 import Integrity, Level
from bccnd.wire.verdict import Verdict

# Bytes of a capture read at a time.
READ_SIZE = 65536
# Room for half a second of a flood.
QUEUE: bccn.Queue = {"packets": 65536, "bytes": 16 << 20}

DESCRIPTION = """\
Show every datagram that the daemon sees, and its verdict: what comes from the
segment (in), what this host sends there (out), and what stays on this host
(local). This takes the right to tap, which root and the daemon's own user have
unless the [[rights]] of the settings say otherwise.

A PATTERN chooses channels, as for sub; '!' chooses messages to all programs,
'!host/>' those to the programs of a host. Of several options, a datagram must
meet all.
"""

EPILOG = """\
The verdict of a datagram is ok, repaired if it had been lost and was sent
again, or why the daemon rejects it: hmac, length, magic and so on. What this
host sends is shown when it is sent. It also comes back from the network, with
the verdict own, or duplicate when its sender has left; that is shown only if
--verdict names it. What daemons say to each other about lost datagrams is on
the channel !bccnd/repair.

examples:
  bccn dump 'sensors/>'
  bccn dump --rejected -v
  bccn dump --src 'mon01/>' --min-size 1000 -x
  bccn dump -w segment.pcapng -W 60
  bccn dump -w - | wireshark -k -i - -X lua_script:etc/bccn.lua
  tcpdump -i eth0 -w - udp port 5400 | bccn dump -r - --key-file keys
"""


def verdicts(text: str) -> frozenset[str]:
    """The words that are separated by commas."""
    known = {*map(str, Verdict), CUT}
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(
                f"no verdict is called {word!r}; they are {', '.join(sorted(known))}"
            )
    return frozenset(words)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("patterns", metavar="PATTERN", type=pattern, nargs="*", help="only on these channels")
    only = parser.add_argument_group("which datagrams")
    only.add_argument(
        "--src",
        metavar="PATTERN",
        type=pattern,
        action="append",
        default=[],
        help="only of sources that match",
    )
    only.add_argument(
        "--peer",
        metavar="ADDR",
        action="append",
        default=[],
        help="only from this sender: IP, IP:PORT or local",
    )
    verdict = only.add_mutually_exclusive_group()
    verdict.add_argument("--verdict", metavar="WORD[,WORD]", type=verdicts, help="only with these verdicts")
    verdict.add_argument("--rejected", action="store_true", help="only those that are rejected")
    only.add_argument("--min-size", metavar="N", type=count, default=0, help="only of N bytes or more")
    only.add_argument("--max-size", metavar="N", type=count, help="only of N bytes or less")
    end = parser.add_argument_group("when it ends")
    end.add_argument("-C", "--count", metavar="N", type=count, help="exit after N datagrams")
    end.add_argument("-W", "--wait", metavar="S", type=seconds, help="exit after S seconds, with exit code 3")
    end.add_argument("--size", metavar="N", type=count, help="with -w: exit before the file exceeds N bytes")
    output = parser.add_argument_group("output")
    output.add_argument("-v", "--verbose", action="store_true", help="show each part on a line of its own")
    output.add_argument("-x", "--hex", action="store_true", help="add a hex dump of each datagram")
    output.add_argument("--json", action="store_true", help="print a JSON object for each datagram")
    output.add_argument(
        "-w", "--write", metavar="FILE", type=name, help="write a pcapng capture instead; - is stdout"
    )
    source = parser.add_argument_group("from a file")
    source.add_argument(
        "-r", "--read", metavar="FILE", type=name, help="read a capture, pcap or pcapng; - is stdin"
    )
    source.add_argument("--key-file", metavar="FILE", type=name, help="require an hmac by one of these keys")
    source.add_argument(
        "--port", metavar="N", type=count, default=PORT, help=f"the port of the segment (default {PORT})"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.write and (arguments.verbose or arguments.hex or arguments.json):
        complain("dump: -v, -x and --json do not go with -w, which writes a capture")
        return USAGE
    if arguments.write == "-" and os.isatty(STDOUT):
        complain("dump: a capture is not for a terminal; pipe it: bccn dump -w - | wireshark -k -i -")
        return USAGE
    if arguments.size and not arguments.write:
        complain("dump: --size needs -w")
        return USAGE
    if arguments.wait is not None and arguments.read:
        complain("dump: -W does not go with -r: a file ends by itself")
        return USAGE
    if arguments.key_file and not arguments.read:
        complain("dump: --key-file needs -r; the daemon itself checks what comes from the segment")
        return USAGE
    if arguments.read and arguments.write and _same_file(arguments.read, arguments.write):
        complain(f"dump: -w {arguments.write} would overwrite the file that is read")
        return USAGE
    try:
        return _from_file(arguments) if arguments.read else _from_tap(arguments)
    except CaptureError as error:
        complain(f"dump: {arguments.read}: {error}")
        return USAGE
    except BccndError as error:
        complain(f"dump: {error}")
        return error.exit_code


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except FileNotFoundError:
        return False


def _from_tap(arguments: argparse.Namespace) -> int:
    deadline = None if arguments.wait is None else time.monotonic() + arguments.wait
    revoked, report = [], Reporter()

    def notice(event: bccn.Notice) -> None:
        if event.kind == "revoked":
            revoked.append(event)
        if event.kind != "lost":  # the output says where
            report(event)

    try:
        bus = _tapping(arguments.socket, notice)
    except bccn.RefusedError:
        complain(
            "dump: no right to tap: run it as root or the daemon's user, or set tap = true in [[rights]]"
        )
        return REFUSED
    with bus:
        try:
            status = bus.status()
        except bccn.RefusedError:
            if revoked:  # and reported
                return REFUSED
            raise
        tap = Tap(status)
        output = Output(arguments, status["segments"])
        if os.isatty(STDERR):
            where = f" into {arguments.write}" if arguments.write else ""
            complain(f"tapping the daemon on {status['host']}{where}; Ctrl-C ends it")
        for messages in batches(bus, deadline):
            if output.take(tap.sighting(message) for message in messages):
                return 0
            if revoked:
                return REFUSED
    wanted = "" if arguments.count is None else f" of {arguments.count}"
    complain(f"dump: timed out after {arguments.wait:g} s and {output.taken}{wanted} datagrams")
    return TIMED_OUT


def _tapping(socket: str | None, notice: Callable[[bccn.Notice], None]) -> bccn.Client:
    try:
        return bccn.Client(socket, format="full", pack=True, tap="on", queue=QUEUE, on_notice=notice)
    except bccn.RefusedError:
        raise
    except bccn.RejectedError:  # the settings of the daemon allow only shorter queues
        return bccn.Client(socket, format="full", pack=True, tap="on", on_notice=notice)


def _from_file(arguments: argparse.Namespace) -> int:
    integrity = Integrity()
    if arguments.key_file:
        from bccnd.process.keys import read_keys

        integrity = Integrity(read_keys(Path(arguments.key_file)), Level.HMAC)
    output = Output(arguments)
    reader = pcap.Reader()
    fd = STDIN if arguments.read == "-" else os.open(arguments.read, os.O_RDONLY | os.O_CLOEXEC)
    while data := _read(fd, arguments.read):
        sightings = (from_capture(packet, arguments.port, integrity) for packet in reader.feed(data))
        if output.take(sighting for sighting in sightings if sighting is not None):
            return 0
    reader.finish()
    return 0


def _read(fd: int, name: str) -> bytes:
    with reading("stdin" if name == "-" else name):
        return os.read(fd, READ_SIZE)


class Output:
    """Writes the datagrams that are wanted; ``taken`` counts them."""

    def __init__(self, arguments: argparse.Namespace, segments: Iterable[dict[str, Any]] = ()) -> None:
        self._filter = Filter(arguments)
        self._count: int | None = arguments.count
        self._sink: Sink = (
            CaptureFile(arguments.write, segments, arguments.size)
            if arguments.write
            else Screen(verbose=arguments.verbose, hexadecimal=arguments.hex, as_json=arguments.json)
        )
        self.taken = 0

    def take(self, sightings: Iterable[Sighting]) -> bool:
        """Write the wanted ones. Returns whether the output is complete: enough datagrams, or no room for more."""
        sink, data = self._sink, bytearray()
        try:
            for sighting in sightings:
                if sighting.missing:
                    data += sink.missing(sighting.missing)
                if not self._filter.wants(sighting):
                    continue
                shown = sink.shown(sighting)
                if sink.room is not None and len(data) + len(shown) > sink.room:
                    return True
                data += shown
                self.taken += 1
                if self.taken == self._count:
                    return True
        finally:
            sink.write(bytes(data))  # even if the capture breaks off here
        return False


class Filter:
    """The datagrams that the options choose."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._patterns: list[str] = arguments.patterns
        self._sources: list[str] = arguments.src
        self._peers: list[str] = arguments.peer
        self._verdicts: frozenset[str] = arguments.verdict or frozenset()
        self._rejected: bool = arguments.rejected
        self._least: int = arguments.min_size
        self._most: int | None = arguments.max_size

    def wants(self, sighting: Sighting) -> bool:
        size = len(sighting.parts.datagram)
        return (
            self._wants_verdict(sighting)
            and self._least <= size
            and (self._most is None or size <= self._most)
            and (not self._peers or self._wants_peer(sighting.peer))
            and (not self._patterns or _among(self._patterns, sighting.parts.chan))
            and (not self._sources or _among(self._sources, sighting.parts.src))
        )

    def _wants_verdict(self, sighting: Sighting) -> bool:
        if self._verdicts:
            return sighting.verdict in self._verdicts
        return sighting.rejected if self._rejected else not sighting.echo

    def _wants_peer(self, peer: str) -> bool:
        host = peer.rpartition(":")[0].strip("[]")
        return any(wanted.strip("[]") in (peer, host, host.partition("%")[0]) for wanted in self._peers)


def _among(patterns: Iterable[str], name: bytes | None) -> bool:
    """As rights are matched: a name after ``!`` by the pattern after ``!``, and ``!`` alone only by itself."""
    if name is None:
        return False
    text = name.decode("ascii", "backslashreplace")
    if not text.startswith("!"):
        return any(bccn.matches(pattern, text) for pattern in patterns if not pattern.startswith("!"))
    return any(
        pattern == text or (pattern[1:] and bccn.matches(pattern[1:], text[1:]) and text != "!")
        for pattern in patterns
        if pattern.startswith("!")
    )
