"""Where ``bccn dump`` puts datagrams: on the screen, or in a capture file."""

import contextlib
import os
import shutil
from collections.abc import Iterable
from typing import Any, Protocol

from bccnd import __version__
from bccnd.commands import dump_lines
from bccnd.commands.outcome import complain
from bccnd.commands.sightings import Packer, Sighting
from bccnd.process.standard_streams import STDOUT, OutputError, write
from bccnd.wire import pcap


class Sink(Protocol):
    """``room``: how many more bytes it may take; None for any number."""

    room: int | None

    def missing(self, count: int, /) -> bytes:
        """What to write where so many datagrams are missing."""

    def shown(self, sighting: Sighting, /) -> bytes:
        """What to write for this datagram."""

    def write(self, data: bytes, /) -> None: ...


class Screen:
    """Colours and a limited width on a terminal only; ``NO_COLOR`` is respected (no-color.org)."""

    room: int | None = None

    def __init__(self, *, verbose: bool, hexadecimal: bool, as_json: bool) -> None:
        self._verbose, self._hex, self._json = verbose, hexadecimal, as_json
        terminal = os.isatty(STDOUT)
        self._width = shutil.get_terminal_size().columns if terminal else None
        self._paint = dump_lines.Paint(on=terminal and not os.environ.get("NO_COLOR"))

    def missing(self, count: int) -> bytes:
        return dump_lines.missing(count, as_json=self._json).encode() + b"\n"

    def shown(self, sighting: Sighting) -> bytes:
        if self._json:
            return dump_lines.to_json(sighting, whole=self._hex).encode() + b"\n"
        lines = [dump_lines.line(sighting, self._width, self._paint)]
        if self._verbose:
            lines += dump_lines.details(sighting)
        if self._hex:
            lines += dump_lines.hex_dump(sighting.parts.datagram)
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")

    def write(self, data: bytes) -> None:
        write(STDOUT, data)


class CaptureFile:
    """pcapng, written at once so that Wireshark can follow. It ends with a whole packet even on a full disk."""

    def __init__(self, name: str, segments: Iterable[dict[str, Any]], limit: int | None) -> None:
        self._name = name
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = STDOUT if name == "-" else os.open(name, flags, 0o666)
        self._packer = Packer(segments)
        self._missing = 0
        self._written = 0
        self._left_out = False
        self.room = limit
        self.write(pcap.header(f"bccnd {__version__}", "bccnd tap"))

    def missing(self, count: int) -> bytes:
        """Nothing: the next packet carries the number."""
        self._missing += count
        return b""

    def shown(self, sighting: Sighting) -> bytes:
        packet = self._packer.packet(sighting, self._missing)
        if packet is None:
            if not self._left_out:
                complain("dump: messages on local channels that are too long for a datagram are left out")
            self._left_out = True
            return b""
        self._missing = 0
        return packet.serialize()

    def write(self, data: bytes) -> None:
        try:
            write(self._fd, data)
        except OSError as error:
            with contextlib.suppress(OSError):  # not a pipe
                os.ftruncate(self._fd, self._written)
            if isinstance(error, OutputError):
                raise
            raise OSError(error.errno, error.strerror, self._name) from None
        self._written += len(data)
        if self.room is not None:
            self.room -= len(data)
