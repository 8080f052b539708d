"""What comes from the segment: datagrams, as places in the memory they were read into.

Rules
- A datagram is judged in this order: envelope, integrity, body, own or foreign, duplicate, local channel. Only then
  is it matched. What is dropped is counted by reason and shown to taps only.
- A datagram that is delivered becomes a MSG packet where it lies; it is copied only for who wants it whole.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bccnd.errors import WireError
from bccnd.relay.dedup import Verdict
from bccnd.relay.delivery import Run
from bccnd.relay.retained import Kept
from bccnd.relay.rights import Rights
from bccnd.relay.router import HEARTBEATS
from bccnd.wire.bccn1 import UNKNOWN_SRC, Opened
from bccnd.wire.sbus import Recv

if TYPE_CHECKING:
    from bccnd.relay.core import Relay

LOCAL_PEER = b"local"  # in RECV, for what a client of this host sent
REFUSED = "refused"  # of a bridged datagram: its channel is not for this bridge


class SegmentInput:
    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._memory = relay.memory

    def read(
        self, starts: list[int], ends: list[int], peer: Callable[[int], bytes], now: float, unix_ns: int
    ) -> None:
        """Datagrams read with one call, as places in the memory; ``peer(i)`` is ``ip:port`` of the i-th."""
        memory, delivery = self._memory, self._relay.delivery
        run = Run()
        kept = noted = False
        self._relay.counters.received += len(starts)
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            datagram = memory[start:end]
            judged = self.judge(datagram, now, peer, index)
            if isinstance(judged, str):
                self._relay.rejected[judged] += 1
                if delivery.taps:
                    delivery.hand_over(run, None)
                    self._show(Recv(peer(index), unix_ns, judged.encode(), datagram))
                continue
            self._relay.counters.accepted += 1
            audience = self._relay.router.audience(judged[2])
            if audience is not run.audience:
                delivery.hand_over(run, None)
                run.audience = audience
                kept, noted = audience.retained, audience.noted
            if kept:
                self._relay.retained.keep(judged[2], Kept(peer(index), unix_ns, datagram, judged[4]))
            if audience.size or delivery.taps:
                self.place(run, judged, start, end)
                if audience.full or delivery.taps:
                    run.full.append(Recv(peer(index), unix_ns, b"ok", datagram).serialize())
            else:
                self._relay.counters.unwanted += 1
            if noted:
                delivery.hand_over(run, None)
                self.note(judged, datagram, now)
        delivery.hand_over(run, None)

    def judge(
        self,
        datagram: bytes,
        now: float,
        peer: Callable[[int], bytes],
        index: int,
        bridge: Rights | None = None,
    ) -> Opened | str:
        """The fields of a datagram that is to be delivered, or why it is not. ``bridge``: of who brought it."""
        try:
            opened = self._relay.integrity.open(datagram)
        except WireError as error:
            return error.reason
        src, seq, chan = opened[:3]
        if bridge is not None and not bridge.may_publish(chan):
            return REFUSED  # before it leaves a trace in the table of sources
        holder = self._relay.names.get(src)
        if holder is not None:
            return "own" if seq < holder.seq else "conflict"
        if src == UNKNOWN_SRC and self._relay.limits.unknown != "by-address":
            if self._relay.limits.unknown == "drop":
                return "unknown-source"
        else:
            key = src if src != UNKNOWN_SRC else b"? " + peer(index).rpartition(b":")[0]
            verdict = self._relay.sources.observe(key, seq, now)
            if verdict is not Verdict.ACCEPTED:
                if verdict is not Verdict.NEW and verdict is not Verdict.RESTARTED:
                    return verdict.value
                self._relay.sources.place(key, peer(index))
                if verdict is Verdict.RESTARTED:
                    self._relay.presence.restarted(key, now)
        if self._relay.router.audience(chan).local:
            return "local-channel"
        return opened

    def note(self, opened: Opened, datagram: bytes, now: float) -> None:
        """A message that was delivered and that the daemon itself makes something of."""
        src, _, chan, _, payload_at = opened
        if chan == HEARTBEATS + src and src != UNKNOWN_SRC:
            self._relay.presence.beat(src, datagram[payload_at:], now)
        elif chan.startswith(b"!"):
            self._relay.answers.request(src, datagram[payload_at:], now)

    def place(self, run: Run, opened: Opened, start: int, end: int) -> None:
        """Make the datagram in the memory a MSG packet, where its channel and payload already lie."""
        _, _, _, chan_at, payload_at = opened
        memory = self._memory
        first = start + chan_at - 4  # what stands before a channel is never shorter
        memory[first : first + 4] = b"MSG "
        memory[start + payload_at - 1 : start + payload_at] = b"\0"
        run.starts.append(first)
        run.ends.append(end)

    def _show(self, packet: Recv) -> None:
        for tap in self._relay.delivery.taps:
            self._relay.delivery.send(tap, [packet.serialize()], None)
