"""Two endpoints that talk at random: what they do, in which order bytes arrive and where they are cut is drawn.

``number(below)`` draws; it is hypothesis's, or a fuzzer's. A conversation follows the rules, so that no endpoint may
find a fault in it. It holds what was said against what was heard, at each step and at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from bpmux.endpoint import Endpoint
from bpmux.entities import Channel, Request, State
from bpmux.events import (
    Cancelled,
    Closed,
    Ended,
    Event,
    Message,
    Opened,
    Refused,
    Requested,
    Responded,
)
from bpmux.limits import Limits

Number = Callable[[int], int]
SIZES = (0, 1, 2, 3, 9, 40)


@dataclass
class Way:
    """One way of a channel: what its sender has put in and its receiver has got."""

    said: list[bytes] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    whole: bool = True  # nobody has cut it short


@dataclass
class Side:
    endpoint: Endpoint
    window: int
    channels: dict[bytes, Channel] = field(default_factory=dict)
    asked: dict[bytes, Request] = field(default_factory=dict)
    requests: dict[bytes, Request] = field(default_factory=dict)
    on_its_way: bytearray = field(default_factory=bytearray)
    ended: int = 0


class Conversation:
    """``ways``: by the name of a channel and the side that sends."""

    def __init__(self, number: Number) -> None:
        self.number = number
        limits = [Limits(reserve=(1, 6, 64 * 1024)[number(3)], queue=4096) for _ in range(2)]
        self.sides = [Side(Endpoint(0.0, each), (1, 5, 64 * 1024)[number(3)]) for each in limits]
        self.ways: dict[tuple[bytes, int], Way] = {}
        self.answers: dict[bytes, bytes] = {}
        self.count = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            who = self.number(2)
            if self.number(3) == 0:
                self.deliver(1 - who, 1 + self.number(64))
            else:
                DEEDS[self.number(len(DEEDS))](self, who)
        self.end()

    # --- what a side does ---

    def open(self, who: int) -> None:
        side, name = self.sides[who], self.name()
        kind = self.number(3)
        if kind == 0:
            channel = side.endpoint.open_sink(name)
        else:
            channel = (side.endpoint.open_stream if kind == 1 else side.endpoint.open_duplex)(
                name, side.window
            )
        assert channel
        side.channels[name] = channel
        self.ways[name, 0], self.ways[name, 1] = Way(), Way()

    def send(self, who: int) -> None:
        name, channel = self.some_channel(who)
        if channel and channel.sending is not State.ABSENT:
            messages = []
            for _ in range(1 + self.number(3)):
                self.count += 1
                messages.append(b"%d " % self.count + bytes(SIZES[self.number(len(SIZES))]))
            taken = self.sides[who].endpoint.send_each(channel, messages)
            self.ways[name, who].said += messages[:taken]

    def close(self, who: int) -> None:
        name, channel = self.some_channel(who)
        if channel and channel.sending is not State.ABSENT:
            at_once = self.number(2) == 0
            if at_once and channel.sending is State.OPEN:
                self.ways[name, who].whole = False
            self.sides[who].endpoint.close(channel, self.payload(), at_once=at_once)

    def cancel(self, who: int) -> None:
        name, channel = self.some_channel(who)
        if channel and channel.receiving is not State.ABSENT:
            self.ways[name, 1 - who].whole = False
            self.sides[who].endpoint.cancel(channel, self.payload())

    def ask(self, who: int) -> None:
        side, name = self.sides[who], self.name()
        request = side.endpoint.request(name)
        assert request
        side.asked[name] = request

    def respond(self, who: int) -> None:
        side = self.sides[who]
        if name := self.some(side.requests):
            if self.number(4) == 0:
                side.endpoint.close(side.requests.pop(name), self.payload())
                return
            answer = name + self.payload()
            if side.endpoint.respond(side.requests.pop(name), answer):
                self.answers[name] = answer

    def withdraw(self, who: int) -> None:
        side = self.sides[who]
        if name := self.some(side.asked):
            side.endpoint.cancel(side.asked.pop(name), self.payload())

    def beat(self, who: int) -> None:
        side = self.sides[who]
        _, channel = self.some_channel(who)
        if channel and channel.receiving is State.OPEN and channel.is_open:
            side.endpoint._ping(channel)

    # --- what arrives ---

    def deliver(self, who: int, size: int) -> bool:
        """Up to ``size`` bytes arrive at a side. Whether there were any."""
        source, side = self.sides[1 - who], self.sides[who]
        source.on_its_way += source.endpoint.data_to_send(size)
        data = bytes(source.on_its_way[:size])
        del source.on_its_way[:size]
        events = side.endpoint.receive(data, 0.0, 1 + self.number(99))
        while side.endpoint.is_behind:
            events += side.endpoint.receive(b"", 0.0, 1 + self.number(99))
        for event in events:
            self.hear(who, event)
        self.check(side)
        return bool(data)

    def hear(self, who: int, event: Event) -> None:
        side = self.sides[who]
        if isinstance(event, Opened):
            side.channels[event.payload] = event.channel
            if event.channel.receiving is State.OPEN:
                side.endpoint.set_window(event.channel, side.window)
        elif isinstance(event, Requested):
            side.requests[event.payload] = event.request
        elif isinstance(event, Message):
            way = self.ways[self.name_of(who, event.channel), 1 - who]
            way.heard.append(event.payload)
            assert event.payload == way.said[len(way.heard) - 1]
            side.endpoint.consumed(event.channel, len(event.payload))
        elif isinstance(event, Responded):
            name = next(name for name, each in side.asked.items() if each is event.request)
            assert event.payload == self.answers[name]
            del side.asked[name]
        elif isinstance(event, Closed) and isinstance(event.entity, Channel):
            way = self.ways[self.name_of(who, event.entity), 1 - who]
            assert way.said == way.heard or not way.whole
        elif isinstance(event, Cancelled) and isinstance(event.entity, Request):
            name = next((name for name, each in side.requests.items() if each is event.entity), None)
            if name:  # it may be answered, and the answer not yet sent
                del side.requests[name]
        elif isinstance(event, Ended):
            side.ended += 1
            if isinstance(event.entity, Channel):
                del side.channels[self.name_of(who, event.entity)]
            elif name := next((name for name, each in side.asked.items() if each is event.entity), None):
                del side.asked[name]
        assert not isinstance(event, Refused)

    @staticmethod
    def check(side: Side) -> None:
        connection = side.endpoint._connection
        channels = [
            connection.tables.top,
            *connection.tables.ours.values(),
            *connection.tables.theirs.values(),
        ]
        requests = [*connection.tables.asked.values(), *connection.tables.requests.values()]
        lanes = [lane for each in channels for lane in (each.lane, each.cancelling)]
        lanes += [each.lane for each in requests]
        assert side.endpoint.queued == sum(lane.size for lane in lanes)
        assert all(channel.account.credit >= 0 and channel.credit >= 0 for channel in channels)
        assert side.endpoint.held == sum(len(each.kept) for each in connection.unfinished._payloads.values())

    # --- the end ---

    def end(self) -> None:
        """Everybody ends everything; then there is nothing left, however little credit there was."""
        self.settle()
        for name in {name for name, _ in self.ways}:
            for who, side in enumerate(self.sides):
                if channel := side.channels.get(name):
                    if channel.sending is not State.ABSENT:
                        side.endpoint.close(channel)
                    elif channel.receiving is not State.ABSENT and self.number(2):
                        self.ways[name, 1 - who].whole = False
                        side.endpoint.cancel(channel)
        for side in self.sides:
            for request in side.requests.values():
                side.endpoint.respond(request, b"at the end")
            for request in side.asked.values():
                side.endpoint.cancel(request)
            side.asked, side.requests = {}, {}
        self.settle()
        for side in self.sides:
            tables = side.endpoint._connection.tables
            assert [tables.ours, tables.theirs, tables.asked, tables.requests] == [{}, {}, {}, {}]
            assert not side.channels
            assert (side.endpoint.queued, side.endpoint.held, tables.refused) == (0, 0, 0)
        for way in self.ways.values():
            assert way.said == way.heard or not way.whole
        assert self.sides[0].endpoint.work + self.sides[1].endpoint.work > 1

    def settle(self) -> None:
        while self.deliver(0, 4096) | self.deliver(1, 4096):
            pass

    # --- what to do it with ---

    def name(self) -> bytes:
        self.count += 1
        return b"n%d" % self.count

    def payload(self) -> bytes:
        return bytes(SIZES[self.number(len(SIZES))])

    def some(self, named: dict[bytes, Request] | dict[bytes, Channel]) -> bytes | None:
        return sorted(named)[self.number(len(named))] if named else None

    def some_channel(self, who: int) -> tuple[bytes, Channel | None]:
        name = self.some(self.sides[who].channels)
        return (name, self.sides[who].channels[name]) if name else (b"", None)

    def name_of(self, who: int, channel: Channel) -> bytes:
        return next(name for name, each in self.sides[who].channels.items() if each is channel)


DEEDS: tuple[Callable[[Conversation, int], None], ...] = (
    Conversation.open,
    Conversation.send,
    Conversation.send,
    Conversation.close,
    Conversation.cancel,
    Conversation.ask,
    Conversation.respond,
    Conversation.withdraw,
    Conversation.beat,
)
