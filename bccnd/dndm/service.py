"""The gateway put together: connections to peers, the bus, the core between them (``bccnd/beside/program.py``).

    peers -- Stream --> core.received --> effects --> Stream.send, Bus.publish, Bus.want ...
    daemon -- Bus --> core.came, core.listened ----^

Rules
- Everything happens in callbacks and tasks of one event loop. After each call of the core its effects are done.
- A link is read again when the core has worked on what came, and the daemon has taken what it published.
- Events of peers are counted, and logged within limits (``LogLimit``). A peer that cannot be reached is logged once
  for each new reason.
- When the gateway stops, peers learn it at once: TCP ends, and elsewhere adverts are taken back. What waits for them
  and for the daemon is handed over, for STOP_SECONDS at most.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import structlog

from bccnd import __version__
from bccnd.beside.asked import Asked
from bccnd.beside.program import Program, Start
from bccnd.dndm import account
from bccnd.dndm.asking import Kind
from bccnd.dndm.bus import Bus
from bccnd.dndm.carriers import Carriers
from bccnd.dndm.core import Gateway
from bccnd.dndm.effects import (
    Close,
    Dial,
    Effect,
    Met,
    Publish,
    Send,
    Silent,
    Subscribe,
    Unsubscribe,
    Unwatch,
    Watch,
)
from bccnd.dndm.settings import DndmSettings, applicable, expected, options_of
from bccnd.dndm.troubles import FORM, Troubles
from bccnd.process.descriptors import allow_descriptors
from bccnd.relay.moment import Moment
from bccnd.wire.dndm.peers import Peer

# Seconds to hand over what has come, when the gateway stops.
STOP_SECONDS = 2.0
# Seconds between two log lines about what was lost.
REPORT_SECONDS = 30.0
# Seconds between two checks whether that is done.
LOOK_AGAIN_SECONDS = 0.01
TOO_LARGE = "too large for the segment"

log = structlog.get_logger()


class Service(Program[DndmSettings]):
    """One gateway."""

    def __init__(self, start: Start[DndmSettings]) -> None:
        super().__init__(start)
        settings, loop = start.settings, self._loop
        self.core = Gateway(options_of(settings))
        self.bus = Bus(settings.socket, self)
        self.carriers = Carriers(loop, self, settings.accept, settings.bus)
        # Links that are not read; and those of them that wait for the daemon to take what they brought.
        self._held: set[int] = set()
        self._publishing: set[int] = set()
        # The peer at the other end of a link, as far as known, and its address.
        self._names: dict[int, str] = {}
        self._whence: dict[int, Peer] = {}
        self._troubles = Troubles()
        self._troubles.expect(expected(settings))
        self._asked = Asked(
            self.bus.path, lambda: not self.bus.reason, lambda name: FORM.answers(self._facts(name))
        )
        self._sent = 0
        self._lost: dict[str, int] = {}
        self._reported_at = float("-inf")
        self._too_large_told = False

    async def _open(self) -> None:
        settings = self._settings
        allow_descriptors(2 * settings.links, "bccnd-dndm")
        self.carriers.open(settings.listen)
        await self.bus.begin()

    def _begin(self) -> None:
        self._start(self.bus.run())
        self._start(self._asked.run())
        self._waking.schedule()

    # -- what peers do: the owner of carriers

    def opened(
        self, number: int, scheme: str, dialled: Peer | None, whence: Peer, *, broadcast: bool = False
    ) -> None:
        self._names[number], self._whence[number] = str(whence), whence
        if scheme == "serial" and not dialled:
            self._troubles.over(whence.place)
        self.core.connected(number, scheme, self._now(), dialled, broadcast=broadcast)
        self._act()

    def wants(self, number: int, route: str) -> bool:
        return self.core.wants(number, route)

    def not_reached(self, peer: Peer, reason: str, *, dialled: bool = True) -> None:
        if self._troubles.away(peer, reason, self._loop.time()):
            log.warning("peer not reached, trying again", peer=str(peer), reason=reason)
        if dialled:
            self.core.dial_failed(peer, self._now())
            self._act()

    def heard(self, number: int, data: bytes) -> None:
        self.core.received(number, data, self._now())
        self._act(number)

    def wrote(self, number: int) -> None:
        self.core.backlog(number, self.carriers.waiting(number), self._now())
        self._act()

    def ended(self, number: int, reason: str) -> None:
        self._release("peer gone", number, reason)
        self.core.closed(number, self._now())
        self._act()

    # -- what the bus says: its hearer

    def came(self, channel: str, payload: bytes) -> None:
        self.core.came(channel, payload, self._now())
        self._act(schedules=False)

    def listened(self, channel: str, somebody: bool) -> None:
        self.core.listened(channel, somebody, self._now())
        self._act()

    def crowded(self, kind: Kind, channel: str) -> None:
        self.core.crowded(kind, channel, self._now())
        self._act()

    def roomy(self) -> None:
        self.core.roomy()
        self._act(schedules=False)

    def published(self) -> None:
        if not self.bus.full:
            self._publishing.clear()
            self._read_on()

    # -- what follows

    def _now(self) -> Moment:
        return Moment(time.monotonic(), time.time_ns())

    def _act(self, source: int = 0, *, schedules: bool = True) -> None:
        """Carry out the effects. ``source``: the link that was read. ``schedules``: whether work may be due
        sooner."""
        publishes = False
        while effects := self.core.take():
            written = set()
            for effect in effects:
                if isinstance(effect, Send):
                    self._sent += 1
                    self.carriers.send(effect.link, effect.data)
                    written.add(effect.link)
                else:
                    publishes |= isinstance(effect, Publish)
                    self._do(effect)
            now = self._now()
            for number in written:
                self.core.backlog(number, self.carriers.waiting(number), now)
        if source and publishes and self.bus.full:
            self._publishing.add(source)
        if source in self._publishing or self.core.busy(source):
            self._held.add(source)
            self.carriers.hold(source)
        if schedules:
            self._waking.schedule()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Publish(channel, payload):
                self.bus.publish(channel, payload)
            case Watch(channel):
                self.bus.want("watch", channel)
            case Unwatch(channel):
                self.bus.leave("watch", channel)
            case Subscribe(channel):
                self.bus.want("subscribe", channel)
            case Unsubscribe(channel):
                self.bus.leave("subscribe", channel)
            case Dial(peer):
                self._start(self.carriers.dial(peer))
            case Met(link, peer):
                self._names[link] = str(peer)
                log.info("peer connected", link=link, peer=str(peer))
                self._troubles.over(peer.place, self._whence[link].place)
            case Silent(link, reason):
                self.not_reached(self._whence[link], reason, dialled=False)
            case Close(link, reason):
                self._release("peer let go", link, reason)
                self.carriers.close(link)

    def _read_on(self) -> None:
        """Read again from links that nothing holds any more."""
        for number in list(self._held):
            if number not in self._publishing and not self.core.busy(number):
                self._held.discard(number)
                self.carriers.read_on(number)

    def _release(self, event: str, number: int, reason: str) -> None:
        """Forget a link, and log that."""
        self._held.discard(number)
        self._publishing.discard(number)
        name, whence = self._names.pop(number), self._whence.pop(number)
        log.info(event, link=number, peer=name, reason=reason)
        self._troubles.ended(whence, name, reason, self._loop.time(), let_go=event == "peer let go")

    # -- time

    def _due(self) -> float:
        return self.core.due

    def _on_time(self) -> None:
        self.core.tick(self._now())
        self._act()
        self._read_on()

    def _report(self, *, ending: bool = False) -> None:
        now, lost = self._loop.time(), account.lost(self._counts(), self.bus.counts)
        if lost[TOO_LARGE] and not self._too_large_told:
            self._too_large_told = True
            log.warning(
                "messages do not fit a datagram: only peers and programs of this host can have them",
                see="local/dndm/",
            )
        more = {name: n - self._lost.get(name, 0) for name, n in lost.items() if n > self._lost.get(name, 0)}
        more.pop(TOO_LARGE, None)
        if more and (ending or now - self._reported_at >= REPORT_SECONDS):
            self._reported_at, self._lost = now, lost
            log.warning("lost", **more)

    # -- what it says of itself

    def _counts(self) -> Any:
        return account.counted(self.core.counts, self.core.links)

    def _about(self) -> dict[str, Any]:
        settings = self._settings
        return {"listen": settings.listen, "dial": settings.dial, "me": settings.me}

    def _summary(self) -> str:
        peers = sum(link.peer is not None for link in self.core.links)
        return self._unready() or f"{peers} peer{'s' * (peers != 1)}"

    def _reason(self) -> str:
        return f"no daemon: {self.bus.reason}" if self.bus.reason else ""

    def _facts(self, name: str) -> dict[str, Any]:
        """For ``bccn doctor``; ``name``: of who says it."""
        links, lost = self.core.links, account.lost(self._counts(), self.bus.counts)
        return {
            "gateway": name,
            "version": __version__,
            "state": "up",
            "bus": self._settings.bus,
            "peers": sum(link.peer is not None for link in links),
            "unheard": self.core.waiting["subscribe"],
            "unwatched": self.core.waiting["watch"],
            "not_accepted": self.carriers.refused,
            "lost": {kind: count for kind, count in lost.items() if count},
            "troubles": self._troubles.rows(links, self._loop.time()),
        }

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        from bccnd.dndm.metrics import render  # loaded only where it is used

        counts, links = self._counts(), self.core.links
        intents, interests = self.core.adverts
        snapshot = {
            "version": __version__,
            "heard": self.bus.counts["heard"],
            "published": self.bus.counts["published"],
            "sent": self._sent,
            "again": counts["again"],
            "connected": int(not self.bus.reason),
            "peers": sum(link.peer is not None for link in links),
            "links": len(links),
            "intents": intents,
            "interests": interests,
            "unheard": self.core.waiting["subscribe"],
            "unwatched": self.core.waiting["watch"],
            "waiting": sum(self.carriers.waiting(link.number) for link in links),
            "unpublished": self.bus.waiting,
            "lost": account.lost(counts, self.bus.counts),
            "closed": account.closed(counts),
            "faults": account.faults(counts),
            "latencies": account.latencies(links, self._whence, expected(self._settings)),
        }
        return render(snapshot, accept)

    # -- reload

    def _applicable(self, wanted: DndmSettings) -> tuple[DndmSettings, list[str], list[str]]:
        return applicable(self._settings, wanted)

    async def _change(self, settings: DndmSettings) -> dict[str, Any]:
        self._health.open(settings.metrics)
        self.carriers.accept = settings.accept
        self.core.reconfigure(options_of(settings))
        self._troubles.expect(expected(settings))
        self.core.roomy()
        self._act()
        return {}

    # -- the end

    async def _hand_over(self) -> None:
        """Tell peers, and give them and the daemon what waits, as far as they take it in time."""
        self.carriers.stop()
        self.core.farewell(self._now())
        self._act()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while not self.carriers.part(self.core.parts) or (self.bus.waiting and not self.bus.reason):
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _close(self) -> None:
        await self.bus.close()
        self.carriers.end()
