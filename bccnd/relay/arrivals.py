"""Passes on new messages of the segment, each in its turn, and notes those that concern the daemon itself.

Rules
- A message with no missing number before it is passed on at once, from where it lies in the memory.
- A message that has to wait is copied as a datagram. It is passed on once the numbers before it have come or are
  given up (``gaps``), as if it came then: taps and clients see each source in order.
"""

from bccnd.relay.answers import Answers
from bccnd.relay.effects import Spans
from bccnd.relay.gaps import Gap, Held
from bccnd.relay.moment import Moment
from bccnd.relay.notices import Notices
from bccnd.relay.publisher import OK, Origin, Publisher
from bccnd.relay.router import HEARTBEATS, Route
from bccnd.relay.state import State
from bccnd.wire.bccn1 import RECEIVE_LIMIT, UNKNOWN_SRC
from bccnd.wire.sbus import LENGTH
from bccnd.wire.verdict import Verdict

# Messages released in one go, and the bytes of memory that they take as packets.
RELEASED_LIMIT = 64
RELEASED_BYTES = RELEASED_LIMIT * (RECEIVE_LIMIT + LENGTH.size)


class Arrivals:
    """``region``: where in the memory messages that waited are laid out as MSG packets, RELEASED_BYTES long."""

    def __init__(
        self, state: State, publisher: Publisher, notices: Notices, answers: Answers, region: int
    ) -> None:
        self._memory = state.memory
        self._router = state.router
        self._presence = state.presence
        self._gaps = state.gaps
        self._taps = state.taps
        self._counters = state.counters
        self._rejected = state.rejected
        self._publisher = publisher
        self._notices = notices
        self._answers = answers
        self._region = region

    def accept(
        self, origin: Origin, first: int, src: bytes, chan: bytes, route: Route, spans: Spans, moment: Moment
    ) -> None:
        """Pass on messages, from datagram ``first`` of their origin on."""
        self._counters.accepted += len(spans[0])
        if not self._taps and not route.size:
            self._counters.unwanted += len(spans[0])
        self._publisher.pass_on(route, spans, None, origin, moment, first)
        if route.noted:
            self.note(src, chan, spans, origin, first, moment)
        elif self._answers.open and chan.startswith(b"!"):
            for start, end in zip(*spans, strict=True):
                payload = self._memory[start + len(b"MSG ") + len(chan) + 1 : end]
                self._answers.overhear(src, chan[1:], payload, moment)

    def note(self, src: bytes, chan: bytes, spans: Spans, origin: Origin, first: int, moment: Moment) -> None:
        """Messages that were passed on and that the daemon itself makes something of."""
        for index, (start, end) in enumerate(zip(*spans, strict=True), first):
            payload = self._memory[start + len(b"MSG ") + len(chan) + 1 : end]
            if chan == HEARTBEATS + src and src != UNKNOWN_SRC:
                self._presence.beat(src, payload, moment.monotonic, origin.peer(index))
                self._notices.of_sources(moment)
            elif not chan.startswith(HEARTBEATS):
                self._answers.request(src, chan, payload, moment, origin.peer(index))

    def wait(
        self, src: bytes, seq: int, chan: bytes, origin: Origin, part: range, repaired: bool, moment: Moment
    ) -> None:
        """Hold messages, numbered from ``seq`` on, until it is their turn, which may be now."""
        gap = self._gaps.get(src)
        if gap is None:
            raise LookupError(f"no gap of {src!r}, and yet {seq} waits")
        for number, index, datagram in zip(
            range(seq, seq + len(part)), part, origin.datagrams(self._memory, part), strict=True
        ):
            held = Held(number, chan, datagram, origin.peer(index), origin.interface, repaired)
            # For each message: a run has many more than there is room for.
            if short := self._gaps.put(gap, held):
                self.release(short, moment)
        self.release(gap, moment)

    def end(self, src: bytes, moment: Moment) -> None:
        """The numbers of a source begin anew: pass on all its waiting messages first."""
        while gap := self._gaps.get(src):  # a part at a time, until it has ended
            self._gaps.abandon(gap)
            self.release(gap, moment)

    def release(self, gap: Gap, moment: Moment) -> int:
        """Pass on messages that need not wait any longer. Returns how many."""
        ready = self._gaps.ready(gap)
        if not ready:
            return 0
        self._publisher.flush(moment)
        first = 0
        for after in range(1, len(ready) + 1):
            if (
                after == len(ready)
                or after - first == RELEASED_LIMIT
                or not _alike(ready[first], ready[after])
            ):
                self._pass_on(gap.src, ready[first:after], moment)
                first = after
        return len(ready)

    def _pass_on(self, src: bytes, messages: list[Held], moment: Moment) -> None:
        """Messages on one channel that came in one way."""
        chan, interface, repaired = messages[0].chan, messages[0].interface, messages[0].repaired
        route = self._router.route(chan)
        if route.local:  # since it came
            self._rejected[Verdict.LOCAL_CHANNEL] += len(messages)
            return
        starts, ends, free = [], [], self._region
        for message in messages:
            datagram = message.datagram
            packet = b"MSG %b\0%b" % (chan, datagram[datagram.index(b"|") + 1 :])
            start = free + LENGTH.size
            free = start + len(packet)
            self._memory[start - LENGTH.size : free] = LENGTH.pack(len(packet)) + packet
            starts.append(start)
            ends.append(free)
        origin = Origin(
            [message.datagram for message in messages],
            lambda index: messages[index].peer,
            interface=interface,
            verdict=Verdict.REPAIRED if repaired else OK,
        )
        self.accept(origin, 0, src, chan, route, (starts, ends), moment)
        self._publisher.flush(moment)


def _alike(one: Held, other: Held) -> bool:
    return one.chan == other.chan and one.repaired == other.repaired and one.interface == other.interface
