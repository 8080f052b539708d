"""One connection as a sequence of events: what the peer opens and asks, and which speaker answers it.

Rules
- It decides, and does no I/O: ``connect`` makes links to the daemon, ``wake`` asks the connection to send.
- ``handle`` gets the endpoint's events. What a speaker takes in one turn goes to the daemon in one go.
- An unknown channel or request is refused with an error as its reason. Nothing is refused in silence.
- ``waiting`` counts bytes that wait for the daemon, and those of the daemon that found no room in the endpoint. The
  endpoint counts what waits for the peer.
"""

from collections.abc import Callable
from itertools import islice

from bccnd import __version__
from bccnd.mux import limits
from bccnd.mux.archive import NONE
from bccnd.mux.examination import Examination
from bccnd.mux.replay import Replay, Tape
from bccnd.mux.span import parse
from bccnd.mux.speakers import Connect, Errand, Reader, Room, Session, Speaker, Subscription
from bpmux import chunks
from bpmux.endpoint import Endpoint
from bpmux.entities import Channel, Request
from bpmux.events import (
    Cancelled,
    Closed,
    Event,
    Finished,
    Message,
    Opened,
    Refused,
    Requested,
    Silent,
    Writable,
)

Lend = Callable[[], Tape | bytes]
# A kind of errand: ``Errand`` itself with its question, ``Examination`` with names.
Errands = Callable[[Room, Request, Connect, bytes], Errand]

VERSION = f"bccnd-mux {__version__}".encode()
# Bytes of an argument: pattern and times of a replay, cursor of a page of sources, clients to leave out.
ARGUMENT_LIMIT = 1024

UNKNOWN = (
    b"unknown-key the door knows: a duplex bus, streams SUB <pattern> and REPLAY <from> <to> <pattern>, "
    b"requests status, who, doctor and version"
)

BAD_ARGUMENT = b"bad-pattern it is 1 to 1024 printable characters"


def _is_argument(text: bytes) -> bool:
    """Whether an argument is printable: at a newline the daemon would answer as to a person at a terminal."""
    return 0 < len(text) <= ARGUMENT_LIMIT and text.isascii() and text.decode().isprintable()


class Conversation:
    """``turned_away``: the reason why this peer is not served; empty for one that is.

    ``is_over``: the peer has left, or does not answer any more. ``lend`` gives a replay its loan, or the reason why
    not.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        connect: Connect,
        wake: Callable[[], None],
        turned_away: bytes = b"",
        lend: Lend = lambda: NONE,
    ) -> None:
        self.endpoint = endpoint
        self.waiting = 0
        self.is_over = self.is_silent = False
        self._connect = connect
        self._wake = wake
        self._lend = lend
        self._turned_away = turned_away
        self._speakers: dict[Channel | Request, Speaker] = {}
        self._sessions: dict[Channel, Session] = {}  # those of them that take messages
        self._leaving: set[Speaker] = set()  # their peer is gone, and not all it sent is taken
        self._dirty: dict[Session, None] = {}
        self._crowded: dict[Reader, None] = {}
        self._errands: dict[Request, tuple[Errands, bytes]] = {}  # those that wait for their turn
        self._errands_out = 0
        if turned_away:
            self.part(turned_away)

    def __len__(self) -> int:
        """The number of links."""
        return len(self._speakers) + len(self._leaving)

    # --- what comes ---

    def handle(self, events: list[Event]) -> None:
        sessions, dirty = self._sessions, self._dirty
        for event in events:
            if type(event) is Message:
                session = sessions.get(event.channel)
                if session is not None:
                    session.take(event.payload)
                    dirty[session] = None
            else:
                self._other(event)
        if dirty:
            self._dirty = {}
            for session in dirty:
                session.push()

    def _other(self, event: Event) -> None:
        match event:
            case Opened(channel, payload):
                self._opened(channel, payload)
            case Requested(request, payload):
                self._requested(request, payload)
            case Writable(channel):
                if speaker := self._speakers.get(channel):
                    speaker.go_on()
            case Closed(entity) if speaker := self._speakers.get(entity):
                speaker.closed()
            case Cancelled(entity):
                self._cancelled(entity)
            case Refused(entity) if speaker := self._speakers.get(entity):
                speaker.lost()
            case Silent(entity) if entity is self.endpoint.top:
                self.is_silent = self.is_over = True
            case Finished():
                self.is_over = True
        if isinstance(event, Closed | Cancelled) and event.entity is self.endpoint.top:
            self.part()

    def _opened(self, channel: Channel, payload: bytes) -> None:
        word, _, rest = payload.partition(b" ")
        if self._turned_away:
            self._refuse(channel, self._turned_away)
        elif payload == b"bus" and channel.kind == chunks.DUPLEX:
            self._speakers[channel] = self._sessions[channel] = Session(self, channel, self._connect)
        elif word == b"SUB" and channel.kind == chunks.STREAM:
            if _is_argument(rest):
                self._speakers[channel] = Subscription(self, channel, self._connect, rest)
            else:
                self._refuse(channel, BAD_ARGUMENT)
        elif word == b"REPLAY" and channel.kind == chunks.STREAM:
            self._replay(channel, rest)
        else:
            self._refuse(channel, UNKNOWN)

    def _replay(self, channel: Channel, asked: bytes) -> None:
        if not _is_argument(asked):
            self._refuse(channel, BAD_ARGUMENT)
            return
        tape = self._lend()
        if isinstance(tape, bytes):
            self._refuse(channel, tape)
            return
        try:
            span = parse(asked.decode(), tape.now())
        except ValueError as error:
            tape.close()
            self._refuse(channel, str(error).encode())
            return
        self._speakers[channel] = Replay(self, channel, self._connect, span, tape)

    def _requested(self, request: Request, payload: bytes) -> None:
        word, _, rest = payload.partition(b" ")
        if self._turned_away:
            self.endpoint.close(request, self._turned_away)
        elif payload == b"version":
            self.endpoint.respond(request, VERSION)
        elif payload == b"status":
            self._errand(request, Errand, b"CMSG status")
        elif word == b"doctor" and len(rest) <= ARGUMENT_LIMIT:
            self._errand(request, Examination, rest)
        elif word == b"who" and len(rest) <= ARGUMENT_LIMIT:
            self._errand(request, Errand, b"CMSG sources\0" + rest if rest else b"CMSG sources")
        else:
            self.endpoint.close(request, UNKNOWN)

    def _errand(self, request: Request, kind: Errands, asked: bytes) -> None:
        if self._errands_out < limits.ERRANDS:
            self._errands_out += 1
            self._speakers[request] = kind(self, request, self._connect, asked)
        else:
            self._errands[request] = kind, asked
            self.waiting += len(asked)

    def _take_errand(self, request: Request) -> tuple[Errands, bytes]:
        """Take an errand out of the line. Returns its kind and its question."""
        kind, asked = self._errands.pop(request)
        self.waiting -= len(asked)
        return kind, asked

    def _cancelled(self, entity: Channel | Request) -> None:
        if speaker := self._speakers.get(entity):
            speaker.cancelled()
        elif isinstance(entity, Request) and entity in self._errands:
            self._take_errand(entity)

    def _refuse(self, channel: Channel, reason: bytes) -> None:
        if channel.kind != chunks.SINK:
            self.endpoint.close(channel, reason)
        if channel.kind != chunks.STREAM:
            self.endpoint.cancel(channel, reason)

    # --- for the speakers ---

    def has_output(self) -> None:
        self._wake()

    def wait_for_room(self, speaker: Reader) -> None:
        self._crowded[speaker] = None

    def weigh(self, amount: int) -> None:
        self.waiting += amount

    def leave(self, speaker: Speaker) -> None:
        self._speakers.pop(speaker.entity, None)
        self._leaving.discard(speaker)
        if isinstance(speaker, Reader):
            self._sessions.pop(speaker.entity, None)
            self._crowded.pop(speaker, None)
        if isinstance(speaker, Errand):
            self._errands_out -= 1
            while self._errands and self._errands_out < limits.ERRANDS and not self.is_over:
                request = next(iter(self._errands))
                self._errand(request, *self._take_errand(request))

    def sent(self) -> None:
        """The peer has taken something: as many speakers that wait for room go on as there is room for."""
        endpoint, crowded = self.endpoint, self._crowded
        is_full = endpoint.queued > limits.QUEUED
        able = (each for each in crowded if not (is_full and endpoint.waiting(each.entity)))
        going = list(islice(able, max(0, -(-(limits.READY - endpoint.ready) // limits.READ_ON))))
        for speaker in going:
            crowded.pop(speaker, None)
            speaker.go_on()
        if going and crowded:
            self._wake()  # if they have nothing to say, nothing else would let the next ones go on

    # --- the end ---

    def part(self, reason: bytes = b"") -> None:
        """End everything that is open, and tell the peer the reason."""
        for speaker in list(self._speakers.values()):
            if reason:
                speaker.end(reason)
        self.endpoint.close(self.endpoint.top, reason)
        self.endpoint.cancel(self.endpoint.top, reason)
        self._wake()

    def lost(self) -> None:
        """The connection is gone: the daemon still gets what the peer had sent."""
        self.is_over = True
        for request in list(self._errands):
            self._take_errand(request)
        self._leaving = set(self._speakers.values())
        self._speakers.clear()
        self._sessions.clear()
        for speaker in list(self._leaving):
            speaker.lost()

    def abandon(self) -> None:
        """Give up what the daemon has not taken by now."""
        for speaker in [*self._speakers.values(), *self._leaving]:
            speaker.end()
