"""The daemon put together: relay, local side, network side, signals, time.

Rules
- Everything happens in callbacks of one event loop, and none waits. A callback reads a batch, passes it to the relay,
  and carries out the effects: it sends datagrams, and watches, resumes or closes clients.
- SIGTERM and SIGINT stop the daemon. It accepts no new clients, reads what clients have already sent, and empties the
  queues, for at most DRAIN_SECONDS.
- SIGHUP reads settings and keys again (``reload``). SIGUSR1 turns debug lines on, or off again.
- SIGUSR2 starts a new process that takes everything over (``restart``). Until it has, nothing here changes.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import structlog

from bccnd import __version__, reload, report
from bccnd.daemon import log_events
from bccnd.daemon.bus import Bus
from bccnd.daemon.faults import Watch
from bccnd.daemon.kernel import Kernel
from bccnd.daemon.links import Links, choice_of
from bccnd.daemon.metrics import Metrics
from bccnd.daemon.segments import Segments
from bccnd.errors import BccndError
from bccnd.net.clients import Clients
from bccnd.net.endpoints import Endpoints
from bccnd.net.links import LinkWatch
from bccnd.net.mmsg import BATCH, Arena
from bccnd.net.peers import process_of
from bccnd.process import fatal, logs
from bccnd.process.descriptors import allow_descriptors
from bccnd.process.health import MODE, Health
from bccnd.process.log_limit import LogLimit
from bccnd.process.sequence import SequenceFile
from bccnd.process.settings import Settings
from bccnd.process.supervision import Supervision
from bccnd.relay.core import Regions, Relay
from bccnd.relay.dedup import JUMP
from bccnd.relay.identity import Process
from bccnd.relay.moment import Moment
from bccnd.relay.session import Session
from bccnd.relay.state import Rules
from bccnd.relay.succession import restore, state_of
from bccnd.restart import Legacy, Replacement
from bccnd.wire import native
from bccnd.wire.sbus import Cmsg

DRAIN_SECONDS = 2.0

# Seconds: the loop counts whole milliseconds, and must not come too early.
ALARM_SLACK = 0.001

# With the number of a session it is the name of that client's descriptor for a successor.
CLIENT = "client/"

log = structlog.get_logger()


class Daemon:
    """One daemon on ``loop``. ``serve`` returns when a signal stops it, or when a successor has taken over.

    ``read_again`` reads settings and keys for a reload; ``watchdog``: see ``Supervision``; ``log_limit``: that of the
    log.
    """

    def __init__(
        self,
        settings: Settings,
        keys: Sequence[bytes],
        endpoints: Endpoints,
        link_watch: LinkWatch | None,
        loop: asyncio.AbstractEventLoop,
        read_again: Callable[[], tuple[Settings, Sequence[bytes]]],
        watchdog: float = 0.0,
        log_limit: LogLimit | None = None,
    ) -> None:
        self._loop = loop
        self._faults = Watch(loop)
        self._log_limit = log_limit or LogLimit(log_events.NO_PEER)
        self._settings, self._keys = settings, keys
        self._endpoints = endpoints
        self._read_again = read_again
        self._debugging = False
        self._started = loop.time()
        self._supervision = Supervision(loop, watchdog)
        self._inherited = False
        self._stop = asyncio.Event()
        self._replacement = Replacement(self._stop, self._reload, self._leave, self._resume)
        self._drops = report.Drops()
        rules = Rules(*reload.relay_settings(settings, keys))
        # A byte more, so that a longer packet is seen to be too long.
        packet = rules.packet_limit + 1
        regions = [(1, size) for size in Regions.sizes(BATCH)]
        arena = Arena.holding(Bus.needs(packet), Clients.needs(packet), *Segments.needs(), *regions)
        self.relay = Relay(
            arena.memory,
            Regions(*[arena.slots(*region)[0] for region in regions]),
            Clients(arena, packet),
            rules,
            batch=BATCH,
            host=settings.host.encode(),
            pid=os.getpid(),
            version=__version__.encode(),
            processes=_process,
            chance=random.random,
        )
        self._alarm: asyncio.TimerHandle | None = None
        self._due = inf
        self._sequence = SequenceFile(settings.sequence_file or endpoints.listener.beside("seq"))
        self.relay.begin_at(self._sequence.first)
        self.relay.begin(self._moment(), offset=random.random())  # noqa: S311 - no secret
        self._segments = Segments(
            loop,
            self.relay,
            endpoints.segments,
            arena,
            receive_bytes=settings.buffers.receive_bytes,
            copies=settings.copies,
            spread=settings.copies_spread_ms / 1000,
            settle=self._settle,
            on_relief=lambda: self._bus.relieve(),
            end_turn=lambda begun: self._bus.end_turn(begun),
        )
        self._links = Links(loop, link_watch, self._segments, choice_of(settings))
        self._kernel = Kernel(self._segments.sockets, settings.buffers.receive_bytes)
        self._metrics = Metrics(loop, self.relay, self._kernel, self._status)
        self._health = Health(loop, self._metrics.text, self._unready)
        self._metrics.reloaded(time.time())
        self._bus = Bus(
            loop,
            self.relay,
            endpoints.listener,
            arena,
            self._sequence,
            packet_limit=rules.packet_limit,
            client_bytes=settings.buffers.client_bytes,
            settle=self._settle,
            on_idle=self._idle,
        )

    @property
    def name(self) -> str:
        """The address that clients connect to."""
        return self._bus.door.name

    async def serve(self) -> None:
        """Serve until stopped or succeeded. Raises ``BccndError`` when it cannot begin."""
        loop = self._loop
        try:
            self._health.open(*_http(self._settings))
        except BccndError:
            self._bus.close()
            raise
        loop.add_signal_handler(signal.SIGUSR1, self._toggle_debug)
        self._replacement.watch()
        self._watch()
        if self.relay.sessions:
            # Inherited: the settings of this process may grant them other rights.
            self.relay.apply_rights(self._moment())
            self._settle()
        self._sequence.tick(self.relay.next_seq)
        self._segments.resume()
        self._kernel.tapped(self.relay.is_tapped)
        tick = loop.create_task(self._faults.keep(self._tick, "the tick"))
        log.info(
            "serving",
            socket=self.name,
            host=self._settings.host,
            segment=[f"{row['address']}:{row['port']}" for row in self._segments.rows()],
            integrity=self._settings.integrity,
            version=__version__,
            compiled=native.COMPILED,
        )
        self._supervision.serving(self._summary(), succeeded=self._inherited)
        succeeded = await self._replacement.ended()
        tick.cancel()
        if not succeeded:
            self._supervision.stopping()
            await self._drain()
            self._report(ending=True)
            log.info("stopped", seconds=round(loop.time() - self._started, 3))
        self._supervision.close()

    def _watch(self) -> None:
        self._bus.watch()
        self._segments.watch()
        self._links.watch()
        self._health.resume()

    def _settle(self) -> bool:
        """Carry out effects until the relay has none. True if datagrams went out and the network is congested."""
        congested = False
        while (effects := self.relay.take_effects()) is not None:
            if effects.starts or effects.beyond:
                congested |= self._segments.send(effects.starts, effects.ends, effects.beyond)
            clients = effects.clients
            if clients is None:  # nothing else has further effects
                break
            if clients.taps is not None:
                self._kernel.tapped(clients.taps)
            if clients.asked and (not clients.moved or self._bus.move(*clients.moved)):
                self._answer(*clients.asked)
            self._bus.carry_out(clients)
        if self.relay.alarm.due != self._due:
            self._set_alarm()
        return congested

    def _answer(self, session: Session, answer: Cmsg) -> None:
        """Answer a request that the relay leaves to the daemon (``OfClients.asked``), after its other effects."""
        if answer.key == b"status":
            answer = Cmsg(answer.key, json.dumps(self._status(), separators=(",", ":")).encode())
        self.relay.answer(session, answer, self._moment())

    def _set_alarm(self) -> None:
        """Set a timer for the next deadline of the relay."""
        if self._alarm:
            self._alarm.cancel()
        self._due = due = self.relay.alarm.due
        self._alarm = self._loop.call_at(due + ALARM_SLACK, self._on_deadline) if due < inf else None

    def _on_deadline(self) -> None:
        self._alarm, self._due = None, inf
        if not self._replacement.paused:
            begun = time.time_ns()
            self.relay.on_deadline(self._moment())
            self._settle()
            self._bus.end_turn(begun)

    def _moment(self) -> Moment:
        return Moment(self._loop.time(), time.time_ns())

    def _idle(self) -> None:
        if self._settings.exit_when_idle:
            self._stop.set()

    async def _tick(self) -> None:
        await asyncio.sleep(1.0)
        now = self._loop.time()
        self._metrics.tick(now, 1.0)
        self._health.tick()
        if self._replacement.paused:
            return
        self._faults.tick()
        self._sequence.tick(self.relay.next_seq)
        settings = self._settings
        self._bus.door.tick(settings.socket_permissions, settings.socket_owner, settings.socket_group)
        self._links.tick()
        self._settle()
        self._kernel.tick(now)
        self._report()
        self._supervision.ticked(self._summary())

    def _summary(self) -> str:
        """The line that ``systemctl status`` shows."""
        bindings = ", ".join(f"{row['address']}:{row['port']}" for row in self._segments.rows())
        clients = len(self.relay.sessions)
        return f"{clients} client{'s' * (clients != 1)} on {self.name}; segment {bindings}"

    def _report(self, *, ending: bool = False) -> None:
        now = self._loop.time()
        self._drops.report(self._dropped(), self._segments.errors, now)
        report.refusals(*self.relay.take_refusals())
        report.askers(self.relay.take_askers(now))
        report.slow_clients(*self.relay.take_episodes(now), now)
        for left_out in self._log_limit.left_out(ending=ending):
            log.warning("more like this", **left_out)

    def _dropped(self) -> Counter[str]:
        """Received datagrams that were dropped, by verdict, and ``unsent``, those that did not go out."""
        return Counter[str](self.relay.rejected) | Counter(unsent=self._segments.unsent)

    def _unready(self) -> str:
        """Why the daemon does not serve, in a word; empty when it does."""
        return "stopping" if self._stop.is_set() else "paused" if self._replacement.paused else ""

    def _status(self) -> dict[str, Any]:
        """What ``CMSG status`` answers: the facts about the daemon, and those that its relay adds."""
        status = {
            "version": __version__,
            "compiled": native.COMPILED,
            "host": self._settings.host,
            "pid": os.getpid(),
            "uptime": round(self._loop.time() - self._started, 3),
            "socket": self.name,
            "socket_gone": self._bus.door.socket_gone,
            "segments": self._segments.rows(),
            "local": self._settings.local,
            "kernel": self._kernel.status(),
            **self.relay.status(),
        }
        status["counters"] |= {"sent": self._segments.sent, "unsent": self._segments.unsent}
        return status

    # -- reload

    def _reload(self) -> None:
        self._supervision.reloading()
        try:
            self._apply_settings()
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked for the reload must learn of it
            self._not_reloaded(error)
        else:
            self._supervision.reloaded()

    def _apply_settings(self) -> None:
        wanted, keys = self._read_again()
        settings, changed, held = reload.applicable(self._settings, wanted)
        relay_settings = reload.relay_settings(settings, keys)
        if not self._replacement.paused:
            self._health.open(*_http(settings))
        if keys != self._keys:
            changed.append("keys")
        self._settings, self._keys, self._debugging = settings, keys, False
        self._log_from(settings.log.level)
        allow_descriptors(settings.limits.clients)
        self._segments.set_copies(settings.copies, settings.copies_spread_ms / 1000)
        self.relay.reconfigure(*relay_settings, self._moment())
        self._metrics.reloaded(time.time())
        self._links.choose(choice_of(settings))
        if not self._replacement.paused:
            self._settle()
        if held:
            log.warning("needs a restart", settings=held)
        log.info("reloaded", changed=changed, keys=len(keys))

    def _not_reloaded(self, error: Exception) -> None:
        fatal.unless_out_of_memory(error)
        self._metrics.reloaded(None)
        faults = str(error).splitlines() if isinstance(error, BccndError) else [f"a fault of ours: {error!r}"]
        for fault in faults:
            log.error("not reloaded, the old settings stay", fault=fault)
        self._supervision.reloaded(faults[0])

    def _log_from(self, level: logs.Level) -> None:
        """Log lines of this level and those above it."""
        form = self._settings.log.format
        logs.configure(level, form, limit=self._log_limit)
        fatal.prepare(json=not logs.is_for_people(form))

    def _toggle_debug(self) -> None:
        """Turn debug lines on, or off again. A reload returns to the level of the settings."""
        self._debugging = not self._debugging
        level: logs.Level = "debug" if self._debugging else self._settings.log.level
        self._log_from(level)
        log.warning("log level changed", now=level)

    # -- succession

    def _leave(self) -> Legacy:
        """Pause everything. Returns the state and the descriptors that a successor needs to go on."""
        self._bus.unwatch()
        self._links.unwatch()
        self._segments.unwatch()
        self._segments.pause()
        self._health.pause()
        self._report(ending=True)
        state = {
            "endpoints": self._endpoints.state(),
            "started": self._started,
            "socket": self._socket_settings(),
            "relay": state_of(self.relay),
            "left": self._bus.state(),
            "egresses": self._segments.state(),
            "kernel": self._kernel.state(),
            "metrics": self._health.state(),
        }
        clients = {f"{CLIENT}{number}": session.port for number, session in self.relay.sessions.items()}
        return state, self._endpoints.descriptors | self._health.descriptors | clients

    def _resume(self) -> None:
        self._segments.resume()
        self._watch()

    def inherit(self, state: dict[str, Any], descriptors: Mapping[str, int]) -> None:
        """Go on where a predecessor stopped, with its ``descriptors``."""
        self._health.inherit(state.get("metrics", {}), descriptors, *_http(self._settings))
        clients = {
            int(name.removeprefix(CLIENT)): descriptor
            for name, descriptor in descriptors.items()
            if name.startswith(CLIENT)
        }
        restore(self.relay, state["relay"], clients)
        self._bus.inherit(state.get("left", {}))
        self._segments.inherit(state["egresses"])
        if kernel := state.get("kernel"):
            self._kernel.restore(kernel)
        self._started = state["started"]
        self._inherited = True
        self._drops.pass_over(self._dropped())
        changed = [
            name for name, value in self._socket_settings().items() if state["socket"].get(name) != value
        ]
        if changed:
            log.warning("not changed while the socket is in use", settings=changed)

    def _socket_settings(self) -> dict[str, Any]:
        """The settings that only a daemon that makes its socket afresh can follow."""
        return {
            name: getattr(self._settings, name)
            for name in ("socket", "socket_mode", "socket_owner", "socket_group")
        }

    # -- the end

    async def _drain(self) -> None:
        # Not the loop's time, which stands still while a callback reads.
        deadline = time.monotonic() + DRAIN_SECONDS
        self._bus.read_the_rest(deadline)
        self.relay.end(self._moment())
        self._settle()
        while (self.relay.is_backlogged() or self._segments.busy) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._links.close()
        self._segments.close()
        self._health.close()
        self._bus.close()
        # Receivers count no loss for a jump of more than JUMP numbers, which this makes.
        self._sequence.close(self.relay.next_seq + JUMP)


def _http(settings: Settings) -> tuple[str, int]:
    """Where metrics are served, and the mode of that file."""
    return settings.metrics.listen, settings.socket_permissions or MODE


def _process(pid: int) -> Process | None:
    """What the relay wants to know of a process."""
    found = process_of(pid)
    return Process(*found) if found else None
