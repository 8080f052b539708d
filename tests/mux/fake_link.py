"""Links to a daemon that is the test, and a conversation whose peer is another endpoint."""

from collections.abc import Sequence
from typing import Any

from bccnd.mux.conversation import Conversation
from bccnd.mux.speakers import GONE, Owner
from bpmux.endpoint import Endpoint
from bpmux.entities import Channel, Request
from bpmux.events import Cancelled, Closed, Event, Message, Responded


class FakeLink:
    """``taken``: what the daemon has; ``room``: how many packets it takes; ``unread``: what it has for the owner."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.taken: list[bytes] = []
        self.room = 1_000_000
        self.unread: list[bytes] = []
        self.is_finished = self.is_closed = self.is_gone = False

    def send(self, packets: Sequence[bytes]) -> int:
        assert not self.is_closed
        if self.is_gone:
            return GONE
        went = min(len(packets), self.room)
        self.room -= went
        self.taken += packets[:went]
        return went

    def read_on(self) -> None:
        """As the loop does: as long as there is something, and an appetite for it."""
        while self.unread and not self.is_closed and (most := self.owner.appetite()):
            packets, self.unread = self.unread[:most], self.unread[most:]
            self.owner.received(packets)

    def finish(self) -> None:
        self.is_finished = True

    def close(self) -> None:
        self.is_closed = True

    # --- the daemon ---

    def say(self, *packets: bytes) -> None:
        self.unread += packets
        self.read_on()

    def take(self, room: int = 1_000_000) -> None:
        self.room = room
        self.owner.takes_more()


class Talk:
    """A peer and the conversation with it; ``links`` in the order in which they were made."""

    def __init__(self, turned_away: bytes = b"", **options: Any) -> None:
        self.links: list[FakeLink] = []
        self.peer = Endpoint(0.0)
        self.endpoint = Endpoint(0.0)
        self.wakes = 0
        self.conversation = Conversation(self.endpoint, self._connect, self._wake, turned_away, **options)
        self.seen: list[Event] = []
        self.seen = self.settle()

    def _connect(self, owner: Owner) -> FakeLink:
        self.links.append(FakeLink(owner))
        return self.links[-1]

    def _wake(self) -> None:
        self.wakes += 1

    def settle(self) -> list[Event]:
        """Let both talk until they are silent. What the peer has seen since the last call."""
        turns = -1
        while turns != self.wakes or self.peer.has_data_to_send or self.endpoint.has_data_to_send:
            turns = self.wakes
            self.conversation.handle(self.endpoint.receive(self.peer.data_to_send(), 0.0))
            self.seen += self.peer.receive(self.endpoint.data_to_send(), 0.0)
            self.conversation.handle(self.endpoint.events())
            self.conversation.sent()
            self.seen += self.peer.events()
        seen, self.seen = self.seen, []
        return seen

    def bus(self, window: int = 1 << 20) -> tuple[Channel, FakeLink]:
        """A session that the daemon knows."""
        channel = self.peer.open_duplex(b"bus", window)
        assert channel
        self.settle()
        self.links[-1].owner.joined()
        return channel, self.links[-1]

    def stream(self, payload: bytes, window: int = 1 << 20) -> Channel:
        channel = self.peer.open_stream(payload, window)
        assert channel
        return channel

    def ask(self, payload: bytes) -> Request:
        request = self.peer.request(payload)
        assert request
        return request


def messages(seen: list[Event]) -> list[bytes]:
    return [event.payload for event in seen if isinstance(event, Message)]


def endings(seen: list[Event], entity: Channel | Request) -> list[bytes]:
    """Why it was closed, and why it was cancelled."""
    return [
        event.payload for event in seen if isinstance(event, Closed | Cancelled) and event.entity is entity
    ]


def answers(seen: list[Event]) -> list[bytes]:
    return [event.payload for event in seen if isinstance(event, Responded)]
