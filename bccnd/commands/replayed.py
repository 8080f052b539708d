"""Messages out of a recording, through the door of the host that has it (``clients/BPMUX.md``, "Replays")."""

import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import bccn
from bccn.errors import rejected
from bccn.protocol import parse
from bccn_door.address import connected, fault
from bccnd.commands.outcome import complain
from bccnd.commands.streams import end_without_reader
from bccnd.commands.terminal import iso_time
from bccnd.process.standard_streams import STDOUT
from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError
from bpmux.events import Closed, Event, Message, Silent

DOOR = "unix:/run/bccnd/mux.sock"
# Bytes that the door may send before they are printed.
WINDOW = 256 * 1024
PIECE = 64 * 1024
# Seconds: poll(2) counts milliseconds in an int.
LONGEST_WAIT = 3600.0


def replayed(
    address: str | None, asked: str, deadline: float | None, *, quiet: bool = False
) -> Iterator[list[bccn.Message]]:
    """The messages of ``REPLAY <asked>`` as they come, until its end or the deadline (monotonic seconds).

    What is missing is reported on stderr. Raises what the door has against it.
    """
    address = address or os.environ.get("BCCN_CONNECT") or DOOR
    with connected(address, (None, None, None, None)) as stream:
        replay = _Replay(stream, address, asked, quiet=quiet)
        try:
            while not replay.is_over and (deadline is None or time.monotonic() < deadline):
                yield replay.read(deadline)
        except OSError as error:
            raise fault(error, address, stood=True) from None
        except BpmuxError as error:
            raise bccn.ProtocolError(f"what listens at {address} is no door: {error}") from None
    if replay.error:
        raise replay.error


class _Replay:
    is_over = False
    error: bccn.BccnError | None = None

    def __init__(self, stream: socket.socket, address: str, asked: str, *, quiet: bool) -> None:
        stream.settimeout(None)
        self._stream, self._address, self._quiet = stream, address, quiet
        self._endpoint = Endpoint(time.monotonic())
        self._channel = self._endpoint.open_stream(f"REPLAY {asked}".encode(), WINDOW)
        self._lost = 0
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        self._poll.register(STDOUT, 0)  # only for errors: the reader of the pipe has left

    def read(self, deadline: float | None) -> list[bccn.Message]:
        """What came with one read, if any did in time."""
        endpoint = self._endpoint
        while data := endpoint.data_to_send(PIECE):
            self._stream.sendall(data)
        now = time.monotonic()
        until = min(endpoint.deadline, deadline or endpoint.deadline)
        wait = 0.0 if self._pending else min(max(0.0, until - now), LONGEST_WAIT)
        ready = dict(self._poll.poll(wait * 1000 + 1))
        if STDOUT in ready:
            end_without_reader()
        events: list[Event] = []
        if self._pending or self._stream.fileno() in ready:
            data = self._stream.recv(PIECE)
            if not data:
                raise bccn.UnavailableError(f"the door at {self._address} went away")
            events = endpoint.receive(data, time.monotonic())
        elif endpoint.deadline <= time.monotonic():
            events = endpoint.expire(time.monotonic())
        return [message for event in events for message in self._heard(event)]

    @property
    def _pending(self) -> int:
        """Bytes that TLS has read of the stream, and poll(2) does not know."""
        pending = getattr(self._stream, "pending", None)
        return pending() if pending else 0

    def _heard(self, event: Event) -> Iterator[bccn.Message]:
        if isinstance(event, Message):
            self._endpoint.consumed(event.channel, len(event.payload))
            said = parse(event.payload)
            if isinstance(said, bccn.Message):
                said.lost, self._lost = self._lost, 0
                yield said
            else:
                self._note(*said)
        elif isinstance(event, Closed):
            self.is_over = True
            self.error = self.error or _reason(event.payload)
        elif isinstance(event, Silent):
            self.is_over = True
            self.error = bccn.UnavailableError(f"the door at {self._address} does not answer")

    def _note(self, key: str, value: str) -> None:
        if key == "dropped" and value.isdigit():
            self._lost += int(value)
            text = f"{value} lost: messages came faster than they were read"
        elif key == "unrecorded":
            text = f"not recorded: {_shown(value)}"
        else:
            return
        if not self._quiet:
            complain(text)


def _shown(value: str) -> str:
    since, until, why = [*value.split(" ", 2), "", ""][:3]
    with suppress(ValueError, OverflowError):
        since, until = iso_time(int(since)), iso_time(int(until))
    return f"{since} to {until}, {why}"


def _reason(payload: bytes) -> bccn.BccnError | None:
    """Why the door has closed it: nothing at its end, or ``<code> <text>``."""
    value = payload.decode("utf-8", "backslashreplace")
    code, _, text = value.partition(" ")
    if code == "unavailable":
        return bccn.UnavailableError(text, "door")
    return rejected(value.replace("limit:", "limit", 1)) if value else None
