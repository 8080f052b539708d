"""Judges and delivers the datagrams that come from the segment, given as spans of the memory.

Rules
- A datagram is judged in this order: envelope, integrity, body, own or foreign, duplicate, local channel. Only then
  is it matched. What is dropped is counted by verdict and shown to taps only.
- Consecutive datagrams of one source on one channel, numbered without a gap, are a run. It is judged once, as far as
  the verdict is the same for all, and delivered together.
- A sound datagram is laid out beside others as a MSG packet; the rare kinds (a bridge's, crc32) become one where they
  lie. The datagram itself is copied only for those who want it whole.
"""

from collections.abc import Callable

from bccnd.errors import WireError
from bccnd.relay.arrivals import Arrivals
from bccnd.relay.identity import LocalSource
from bccnd.relay.moment import Moment
from bccnd.relay.notices import Notices
from bccnd.relay.publisher import OK, Origin, Publisher, one_by_one
from bccnd.relay.repair import Repair
from bccnd.relay.router import Route
from bccnd.relay.state import State
from bccnd.wire.batch import Run
from bccnd.wire.bccn1 import UNKNOWN_SRC, Opened
from bccnd.wire.repair import CHANNEL
from bccnd.wire.sbus import NOWHERE
from bccnd.wire.verdict import Verdict


class SegmentInput:
    """``region``: where in the memory sound datagrams are laid out as MSG packets, from its begin to its end."""

    def __init__(
        self,
        state: State,
        publisher: Publisher,
        notices: Notices,
        arrivals: Arrivals,
        repair: Repair,
        region: tuple[int, int],
    ) -> None:
        self._state = state
        self._memory = state.memory
        self._rules = state.rules
        self._names = state.names
        self._router = state.router
        self._gaps = state.gaps
        self._sources = state.sources
        self._presence = state.presence
        self._taps = state.taps
        self._counters = state.counters
        self._rejected = state.rejected
        self._publisher = publisher
        self._notices = notices
        self._arrivals = arrivals
        self._repair = repair
        self._region = region

    def read(
        self,
        starts: list[int],
        ends: list[int],
        peer: Callable[[int], bytes],
        moment: Moment,
        interface: bytes = NOWHERE,
        same_peer: Callable[[int, int], int] = one_by_one,
    ) -> None:
        """Datagrams read with one call, as spans of the memory; ``peer(i)`` is ``ip:port`` of the i-th.

        ``same_peer``: as in ``Origin``.
        """
        origin = Origin((starts, ends), peer, same_peer, interface)
        self._counters.received += len(starts)
        for part in self._rules.codec.open(self._memory, starts, ends, self._region):
            if isinstance(part, int):
                self._one(origin, part, starts[part], ends[part], moment)
            else:
                self._run(origin, part, moment)
        self._publisher.flush(moment)

    def _run(self, origin: Origin, run: Run, moment: Moment) -> None:
        index, src, seq, chan, starts, ends = run
        if chan == CHANNEL and self._repair.is_from_daemon(src):
            self._hear(origin, run, moment)
            return
        route = self._router.cached.get(chan) or self._router.route(chan)
        done, count = 0, len(starts)
        while done < count:
            first = index + done
            verdict, same = self.judge(src, seq + done, route, count - done, origin, first, moment)
            if verdict is OK:
                spans = (
                    (starts, ends)
                    if same == count
                    else (starts[done : done + same], ends[done : done + same])
                )
                self._arrivals.accept(origin, first, src, chan, route, spans, moment)
            elif verdict is None or verdict is Verdict.REPAIRED:
                part, repaired = range(first, first + same), verdict is not None
                self._arrivals.wait(src, seq + done, chan, origin, part, repaired, moment)
            else:
                self._drop(origin, range(first, first + same), verdict, moment)
                if verdict is Verdict.LOCAL_CHANNEL and (gap := self._gaps.get(src)):
                    self._arrivals.release(gap, moment)  # it may have been the missing one
            done += same

    def _one(self, origin: Origin, index: int, start: int, end: int, moment: Moment) -> None:
        """A datagram that is not sound, or of a rare kind."""
        datagram = self._memory[start:end]  # which the memory no longer holds once it is a packet
        alone = Origin([datagram], lambda _: origin.peer(index), interface=origin.interface)
        try:
            opened = self._rules.integrity.open(datagram)
        except WireError as error:
            self._drop(alone, range(1), error.verdict, moment)
        else:
            src, seq, chan = opened[:3]
            self._run(alone, (0, src, seq, chan, [self.make_message(opened, start)], [end]), moment)

    def _hear(self, origin: Origin, run: Run, moment: Moment) -> None:
        """A message of daemons about repair; nobody counts the loss of these."""
        index, src, seq, chan, starts, ends = run
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            part = range(index + at, index + at + 1)
            if holder := self._names.holders.get(src):
                verdict, _ = self._under_our_name(holder, seq + at, 1, origin, part.start)
                self._drop(origin, part, verdict, moment)
                continue
            payload = self._memory[start + len(b"MSG ") + len(chan) + 1 : end]
            verdict = self._repair.hear(src, seq + at, payload, moment, origin.peer(part.start))
            if verdict is OK:
                self._counters.accepted += 1
                self._publisher.pass_on(
                    self._router.route(chan), ([start], [end]), None, origin, moment, part.start
                )
            else:
                self._drop(origin, part, verdict, moment)

    def judge(
        self,
        src: bytes,
        seq: int,
        route: Route,
        count: int,
        origin: Origin,
        index: int,
        moment: Moment,
        bridge: tuple[str, str] | None = None,
    ) -> tuple[Verdict | None, int]:
        """The verdict on ``count`` sound datagrams with the numbers from ``seq`` on, and on how many of them, one or
        more, it is the same: OK, or why they are dropped; None or REPAIRED for what is to ``wait`` its turn
        (``arrivals``). The first is ``index`` of their origin. ``bridge``: as ``Sources.observe_run`` takes it.
        """
        holder = self._names.holders.get(src)
        if holder is not None:
            return self._under_our_name(holder, seq, count, origin, index)
        key = src
        if src == UNKNOWN_SRC:
            unknown = self._rules.options.dedup.unknown
            if unknown == "drop":
                return Verdict.UNKNOWN_SOURCE, count
            if unknown != "by-address":
                return (Verdict.LOCAL_CHANNEL if route.local else OK), count
            key = b"? " + origin.peer(index).rpartition(b":")[0]
            count = 1  # the next may be of another address
        now = moment.monotonic
        verdict, count = self._sources.observe_run(key, seq, count, now, origin.peer, index, bridge)
        if verdict is not OK and verdict is not None and verdict is not Verdict.REPAIRED:
            if verdict is Verdict.OWN and not self._state.is_here(origin.peer(index)):
                return Verdict.DUPLICATE, count
            if not verdict.delivered:
                return verdict, count
            self._arrivals.end(key, moment)
            if verdict is Verdict.RESTARTED:
                self._presence.restarted(key, moment.monotonic)
                self._notices.of_sources(moment)
            verdict = OK
        return (Verdict.LOCAL_CHANNEL if route.local else verdict), count

    def _under_our_name(
        self, holder: LocalSource, seq: int, count: int, origin: Origin, index: int
    ) -> tuple[Verdict, int]:
        """A datagram that this host sent comes back from an address of this host. Any other is from a second sender
        with the same name: another host, or another program on this one.
        """
        sender = origin.peer(index)
        ours = 0
        if self._state.is_here(sender):
            if holder.first_seq <= seq < holder.seq:
                ours = min(holder.seq - seq, count)
            elif self._sources.has_sent(holder.name, seq):
                ours = 1
        verdict, same = (Verdict.OWN, ours) if ours else (Verdict.CONFLICT, 1 if seq < holder.seq else count)
        return verdict, origin.same_peer(index, same) if same > 1 else 1

    def _drop(self, origin: Origin, part: range, verdict: Verdict, moment: Moment) -> None:
        self._rejected[verdict] += len(part)
        if self._taps:
            self._publisher.show_dropped(origin, part, verdict, moment)

    def make_message(self, opened: Opened, start: int) -> int:
        """Make a datagram in the memory a MSG packet, where its channel and payload already lie; where it begins."""
        _, _, _, chan_at, payload_at = opened
        memory = self._memory
        first = start + chan_at - 4  # what stands before a channel is never shorter
        memory[first : first + 4] = b"MSG "
        memory[start + payload_at - 1 : start + payload_at] = b"\0"
        return first
