"""The speakers of a connection: each channel or request of a peer is one, with its own link to the daemon.

    opened --> joining --> joined --> leaving --> over
                  |           |                     ^
                  +-----------+------- ended -------+

Rules
- A ``Session`` (a duplex ``bus``) passes packets on as they are, both ways. A ``Subscription`` (a stream ``SUB``)
  passes on messages of its pattern. An ``Errand`` (a request) asks the daemon one thing.
  ``replay.py`` and ``examination.py`` have a ``Reader`` and an ``Errand`` that take more than one question.
- Nothing is passed on before the daemon has confirmed whom the link is for.
- The daemon is read only as far as there is credit. So for a reader that grants none, messages wait in the daemon's
  queue, under the policy that the client chose, and nothing piles up here.
- A peer gets credit back when the daemon has taken its packets. Until then they wait here, within its window.
- When a peer closes a duplex, the daemon still takes what it sent, and the peer gets what the daemon still has for
  it. When a peer cancels it, or goes away, the daemon still takes what it sent.
- No socket, no clock: a link calls ``joined``, ``received``, ``takes_more`` and ``ended``, and tests do the same.
"""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from bccnd.mux import limits
from bpmux.endpoint import Endpoint
from bpmux.entities import Channel, Request

GONE = -1
# Packets of one read, and bytes of credit for each: nearly all packets are shorter than a datagram.
BATCH = 64
CREDIT_A_PACKET = 256

_MESSAGE = re.compile(rb"MSG ")
_UNDIRECTED = re.compile(rb"MSG (?!!)")

WENT_AWAY = b"unavailable the daemon went away"


class Link(Protocol):
    """One connection to the daemon."""

    def send(self, packets: Sequence[bytes]) -> int:
        """Returns how many packets were taken; if not all, ``takes_more`` is called later. GONE: no more are
        taken."""

    def read_on(self) -> None:
        """Ask for ``appetite`` again, which was 0."""

    def finish(self) -> None:
        """Send no more; what comes is still read."""

    def close(self) -> None: ...


class Owner(Protocol):
    """The owner of a link, as the link sees it."""

    def joined(self) -> None:
        """The daemon knows whom the link is for."""

    def appetite(self) -> int:
        """How many packets may be read now."""

    def received(self, packets: list[bytes]) -> None: ...

    def takes_more(self) -> None:
        """The daemon may take packets again."""

    def ended(self, reason: bytes) -> None:
        """The link has ended, or could not be made."""


Connect = Callable[[Owner], Link]


class Room(Protocol):
    """What a speaker needs of the connection that it is on."""

    endpoint: Endpoint

    def has_output(self) -> None:
        """Note that the endpoint has something to send."""

    def wait_for_room(self, speaker: "Reader") -> None:
        """Have ``go_on`` called when less waits for the peer."""

    def weigh(self, amount: int) -> None:
        """Count bytes, more or fewer, that wait for the daemon, or came from it and are not in the endpoint."""

    def leave(self, speaker: "Speaker") -> None:
        """Note that the speaker is over."""


class Speaker:
    """What all kinds share. Each kind makes its link itself, when it is ready."""

    _link: Link

    def __init__(self, room: Room, entity: Channel | Request) -> None:
        self.entity = entity
        self._room = room
        self._endpoint = room.endpoint
        self._is_over = False

    # --- from the link ---

    def appetite(self) -> int:
        return BATCH

    def takes_more(self) -> None:
        """Only a session has packets that wait."""

    def ended(self, reason: bytes = WENT_AWAY) -> None:
        self.end(reason)

    # --- from the peer ---

    def go_on(self) -> None:
        """There is credit again, or room."""
        if not self._is_over:
            self._link.read_on()

    def closed(self) -> None:
        """The peer sends no more."""

    def cancelled(self) -> None:
        """The peer takes no more."""
        self._drop()

    def lost(self) -> None:
        """The peer is gone, and the endpoint with it."""
        self._drop()

    # --- to end ---

    def end(self, reason: bytes = b"") -> None:
        """Tell the peer the reason, and be over."""
        if not self._is_over:
            self._say(reason)
            self._drop()
            self._room.has_output()

    def _say(self, reason: bytes) -> None:
        self._endpoint.close(self.entity, reason)

    def _drop(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._link.close()
            self._room.leave(self)


class Reader(Speaker):
    """A speaker that passes packets of the daemon on to a channel."""

    entity: Channel

    def __init__(self, room: Room, entity: Channel) -> None:
        super().__init__(room, entity)
        self._rest: list[bytes] = []  # read, and without room: at most what a socket holds
        self._ending: bytes | None = None  # the link has ended, and not all of it is passed on

    def appetite(self) -> int:
        endpoint, channel = self._endpoint, self.entity
        credit = endpoint.room(channel)
        if not credit:
            endpoint.await_credit(channel)
            return 0
        if self._rest:
            return 0
        is_full = endpoint.queued > limits.QUEUED
        if endpoint.ready > limits.READY or (is_full and endpoint.waiting(channel)):
            self._room.wait_for_room(self)
            return 0
        if is_full:
            return 1
        return min(BATCH, credit // CREDIT_A_PACKET + 1)

    def go_on(self) -> None:
        self._forward_rest()
        if self._ending is not None and not self._rest:
            self.end(self._ending)
        super().go_on()

    def ended(self, reason: bytes = WENT_AWAY) -> None:
        if self._rest:
            self._ending = reason
        else:
            self.end(reason)

    def _forward(self, packets: list[bytes]) -> None:
        if self._rest:
            self._keep(self._rest + packets)
            return
        taken = self._endpoint.send_each(self.entity, packets)
        self._keep(packets[taken:])
        self._room.has_output()

    def _forward_rest(self) -> None:
        if rest := self._rest:
            self._keep([])
            self._forward(rest)

    def _keep(self, packets: list[bytes]) -> None:
        """Keep these packets, in place of those kept before."""
        if packets or self._rest:
            self._room.weigh(_weight(packets) - _weight(self._rest))
            self._rest = packets

    def _drop(self) -> None:
        self._keep([])
        super()._drop()


class Session(Reader):
    """A duplex ``bus``: one client of the daemon."""

    def __init__(self, room: Room, entity: Channel, connect: Connect) -> None:
        super().__init__(room, entity)
        self._waiting: list[bytes] = []  # the daemon has not taken these
        self._weight = 0
        self._is_joined = self._is_blocked = self._is_closed = self._is_deaf = False
        self._link = connect(self)
        self._endpoint.set_window(entity, limits.WINDOW)

    # --- from the peer ---

    def take(self, packet: bytes) -> None:
        if not packet:
            self.end(b"bad-packet no packet of the bus is empty")
            return
        self._waiting.append(packet)
        self._weigh(len(packet) + limits.PACKET_BYTES)
        if self._weight > limits.SESSION_WAITING:
            self.end(b"limit: too many packets wait for the daemon")

    def push(self) -> None:
        """Send the daemon what has come from the peer."""
        waiting = self._waiting
        if not self._is_joined or self._is_blocked or self._is_over:
            return
        if waiting:
            went = self._link.send(waiting)
            if went == GONE:
                return  # what the daemon sent is read to the end, then ``ended`` comes
            size = sum(map(len, waiting[:went]))
            self._is_blocked = went < len(waiting)
            del waiting[:went]
            self._weigh(-size - went * limits.PACKET_BYTES)
            if not self._is_deaf:
                self._endpoint.consumed(self.entity, size)
                self._room.has_output()
        if not waiting:
            self._all_taken()

    def closed(self) -> None:
        self._is_closed = True
        self.push()

    def cancelled(self) -> None:
        self.push()
        self._is_closed = self._is_deaf = True
        self._keep([])
        if not self._waiting:
            self.end()  # even before it has joined: there is nothing to send to the daemon
        elif not self._is_over:
            self._link.read_on()
            self.push()

    def lost(self) -> None:
        self.cancelled()

    def _all_taken(self) -> None:
        if self._is_deaf:
            self.end()
        elif self._is_closed:
            self._link.finish()

    # --- from the daemon ---

    def joined(self) -> None:
        self._is_joined = True
        self.push()

    def takes_more(self) -> None:
        self._is_blocked = False
        self.push()

    def appetite(self) -> int:
        return BATCH if self._is_deaf else super().appetite()

    def received(self, packets: list[bytes]) -> None:
        if not self._is_deaf:
            self._forward(packets)

    def ended(self, reason: bytes = WENT_AWAY) -> None:
        super().ended(b"" if self._is_closed else reason)

    def _say(self, reason: bytes) -> None:
        super()._say(reason)
        self._endpoint.cancel(self.entity, reason)

    def _drop(self) -> None:
        self._waiting = []
        self._weigh(-self._weight)
        super()._drop()

    def _weigh(self, amount: int) -> None:
        self._weight += amount
        self._room.weigh(amount)


class Subscription(Reader):
    """A stream ``SUB <pattern>``: a client with one subscription. It gets MSG, and the notice ``dropped``."""

    def __init__(self, room: Room, entity: Channel, connect: Connect, pattern: bytes) -> None:
        super().__init__(room, entity)
        self._pattern = pattern
        # A SUB makes the daemon deliver directed messages, too.
        self._is_wanted = (_MESSAGE if pattern.startswith(b"!") else _UNDIRECTED).match
        self._link = connect(self)

    def joined(self) -> None:
        # Both fit a socket that is still empty.
        self._link.send((b"SUB " + self._pattern,))

    def received(self, packets: list[bytes]) -> None:
        wanted = self._is_wanted
        if all(map(wanted, packets)):
            self._forward(packets)
            return
        for packet in packets:
            if packet.startswith(b"MSG "):
                if wanted(packet):
                    self._forward([packet])
            elif packet.startswith(b"CMSG dropped\0"):
                self._forward([packet])
            elif reason := refusal(packet):
                self._ending = reason
        if self._ending is not None and not self._rest:
            self.end(self._ending)


class Errand(Speaker):
    """A request: one question to the daemon, and its answer."""

    entity: Request

    def __init__(self, room: Room, entity: Request, connect: Connect, question: bytes) -> None:
        super().__init__(room, entity)
        self._question = question
        self._link = connect(self)

    def joined(self) -> None:
        self._link.send((self._question,))

    def received(self, packets: list[bytes]) -> None:
        head, _, answer = packets[0].partition(b"\0")
        if self._answers(head):
            self._answer(answer)
        else:
            self.end(refusal(packets[0]) or WENT_AWAY)

    def _answers(self, head: bytes) -> bool:
        return self._question.partition(b"\0")[0] == head

    def _answer(self, answer: bytes) -> None:
        self._endpoint.respond(self.entity, answer)
        self._drop()
        self._room.has_output()


def _weight(packets: list[bytes]) -> int:
    return sum(map(len, packets)) + limits.PACKET_BYTES * len(packets)


def refusal(packet: bytes) -> bytes:
    """The reason in a packet that refuses or ends something; empty for any other."""
    head, _, text = packet.partition(b"\0")
    if head == b"CMSG error":
        return text
    if head == b"CMSG revoked":
        return b"refused " + text
    if head == b"CMSG closing":
        return closing(text)
    return b""


def closing(reason: bytes) -> bytes:
    """The daemon's reason for closing a connection, as the reason of a Close."""
    return (
        reason
        if reason.startswith(b"limit: ")
        else b"unavailable the daemon closes the connection: " + reason
    )
