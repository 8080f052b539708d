"""What comes from the segment: datagrams, as places in the memory they were read into.

Rules
- A datagram is judged in this order: envelope, integrity, body, own or foreign, duplicate, local channel. Only then
  is it matched. What is dropped is counted by reason and shown to taps only.
- Consecutive datagrams of one source on one channel, numbered without a gap, are a burst: judged once, as far as the
  verdict is the same for all, and delivered together.
- A sound datagram is laid out beside others as a MSG packet; what is seldom (a bridge's, crc32) becomes one where it
  lies. The datagram itself is copied only for who wants it whole.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bccnd.errors import WireError
from bccnd.relay.dedup import Verdict
from bccnd.relay.delivery import Run
from bccnd.relay.retained import Kept
from bccnd.relay.router import HEARTBEATS
from bccnd.wire.batch import Burst
from bccnd.wire.bccn1 import UNKNOWN_SRC, Opened
from bccnd.wire.sbus import NOWHERE

if TYPE_CHECKING:
    from bccnd.relay.core import Relay

REFUSED = "refused"  # of a bridged datagram: its channel is not for this bridge


@dataclass(slots=True)
class Batch:
    """Datagrams read with one call, as places in the memory; ``peer(i)`` is ``ip:port`` of the i-th.

    ``interface``: by which they came, or NOWHERE.
    """

    starts: list[int]
    ends: list[int]
    peer: Callable[[int], bytes]
    now: float
    unix_ns: int
    interface: bytes = NOWHERE


class SegmentInput:
    """``room``: where in the memory sound datagrams are laid out as MSG packets."""

    def __init__(self, relay: "Relay", room: tuple[int, int]) -> None:
        self._relay = relay
        self._memory = relay.memory
        self._room = room

    def read(self, batch: Batch) -> None:
        relay, run = self._relay, Run()
        relay.counters.received += len(batch.starts)
        for part in relay.codec.open(self._memory, batch.starts, batch.ends, self._room):
            if isinstance(part, int):
                self._one(run, batch, part)
            else:
                self._burst(run, batch, part)
        relay.delivery.hand_over(run, None)

    def _burst(self, run: Run, batch: Batch, burst: Burst) -> None:
        index, src, seq, chan, starts, ends = burst
        done, count = 0, len(starts)
        while done < count:
            reason, same = self.judge(src, seq + done, chan, count - done, batch, index + done)
            if reason:
                self._reject(run, batch, index + done, same, reason)
            elif same == count:
                self._accept(run, batch, index, src, chan, starts, ends)
            else:
                part = slice(done, done + same)
                self._accept(run, batch, index + done, src, chan, starts[part], ends[part])
            done += same

    def _one(self, run: Run, batch: Batch, index: int) -> None:
        """A datagram that is not sound, or in a form that is seldom seen."""
        start, end = batch.starts[index], batch.ends[index]
        datagram = self._memory[start:end]
        try:
            opened = self._relay.integrity.open(datagram)
        except WireError as error:
            self._reject(run, batch, index, 1, error.verdict)
            return
        src, seq, chan = opened[:3]
        reason, _ = self.judge(src, seq, chan, 1, batch, index)
        if reason:
            self._reject(run, batch, index, 1, reason)
            return
        first = self.place(opened, start)
        self._accept(run, batch, index, src, chan, [first], [end], [datagram])

    def judge(
        self,
        src: bytes,
        seq: int,
        chan: bytes,
        count: int,
        batch: Batch,
        index: int,
    ) -> tuple[str, int]:
        """Why ``count`` sound datagrams with the numbers from ``seq`` on are not to be delivered, or an empty text;
        and on how many of them, one or more, this is the verdict. ``index``: of the first in the batch.
        """
        relay = self._relay
        holder = relay.names.get(src)
        if holder is not None:
            ours = min(holder.seq - seq, count)
            return ("own", ours) if ours > 0 else ("conflict", count)
        if src == UNKNOWN_SRC and relay.limits.unknown != "by-address":
            if relay.limits.unknown == "drop":
                return "unknown-source", count
        else:
            key = src if src != UNKNOWN_SRC else b"? " + batch.peer(index).rpartition(b":")[0]
            if key is not src:
                count = 1  # the next may be of another address
            verdict, count = relay.sources.observe_burst(key, seq, count, batch.now)
            if verdict is not Verdict.ACCEPTED:
                if verdict is not Verdict.NEW and verdict is not Verdict.RESTARTED:
                    return verdict.value, count
                relay.sources.place(key, batch.peer(index))
                if verdict is Verdict.RESTARTED:
                    relay.presence.restarted(key, batch.now)
        return ("local-channel" if relay.router.audience(chan).local else ""), count

    def _reject(self, run: Run, batch: Batch, index: int, count: int, reason: str) -> None:
        relay = self._relay
        relay.rejected[reason] += count
        if relay.delivery.taps:
            relay.delivery.hand_over(run, None)
            self._show(run, batch, index, self._datagrams(batch, index, count), reason.encode())
            relay.delivery.show_taps(run, None)

    def _accept(
        self,
        run: Run,
        batch: Batch,
        index: int,
        src: bytes,
        chan: bytes,
        starts: list[int],
        ends: list[int],
        datagrams: list[bytes] | None = None,
    ) -> None:
        """Deliver what has been laid out at ``starts`` and ``ends``, from datagram ``index`` of the batch on.

        ``datagrams``: the same as they came, where the batch has them no more.
        """
        relay, count = self._relay, len(starts)
        delivery = relay.delivery
        relay.counters.accepted += count
        audience = relay.router.audience(chan)
        if audience is not run.audience:
            delivery.hand_over(run, None)
            run.audience = audience
        whole = bool(audience.full or delivery.taps)
        if whole or audience.retained or audience.noted:
            datagrams = datagrams or self._datagrams(batch, index, count)
            if audience.retained:
                at, payload = index + count - 1, ends[-1] - starts[-1] - len(b"MSG ") - len(chan) - 1
                kept = Kept(batch.peer(at), batch.unix_ns, datagrams[-1], len(datagrams[-1]) - payload)
                relay.retained.keep(chan, kept)
        if audience.size or delivery.taps:
            run.starts += starts
            run.ends += ends
            if whole and datagrams:
                self._show(run, batch, index, datagrams, b"ok", full=bool(audience.full))
        else:
            relay.counters.unwanted += count
        if audience.noted:
            delivery.hand_over(run, None)
            for start, end in zip(starts, ends, strict=True):
                self.note(src, chan, self._memory[start + len(b"MSG ") + len(chan) + 1 : end], batch.now)

    def _datagrams(self, batch: Batch, index: int, count: int) -> list[bytes]:
        """``count`` of the batch from ``index`` on, as they came."""
        places = zip(batch.starts[index : index + count], batch.ends[index : index + count], strict=True)
        return [self._memory[start:end] for start, end in places]

    def _show(
        self,
        run: Run,
        batch: Batch,
        index: int,
        datagrams: list[bytes],
        verdict: bytes,
        *,
        full: bool = False,
    ) -> None:
        peers = [batch.peer(at) for at in range(index, index + len(datagrams))]
        self._relay.delivery.show(run, peers, batch.unix_ns, verdict, batch.interface, datagrams, full=full)

    def note(self, src: bytes, chan: bytes, payload: bytes, now: float) -> None:
        """A message that was delivered and that the daemon itself makes something of."""
        if chan == HEARTBEATS + src and src != UNKNOWN_SRC:
            self._relay.presence.beat(src, payload, now)
        elif not chan.startswith(HEARTBEATS):
            self._relay.answers.request(src, chan, payload, now)

    def place(self, opened: Opened, start: int) -> int:
        """Make a datagram in the memory a MSG packet, where its channel and payload already lie; where it begins."""
        _, _, _, chan_at, payload_at = opened
        memory = self._memory
        first = start + chan_at - 4  # what stands before a channel is never shorter
        memory[first : first + 4] = b"MSG "
        memory[start + payload_at - 1 : start + payload_at] = b"\0"
        return first
