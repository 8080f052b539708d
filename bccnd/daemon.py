"""The daemon: sockets -> relay -> sockets, and nothing else. The composition root of ``bccnd``.

Rules
- Everything happens in callbacks of one event loop; none waits. A callback reads one batch, has the relay decide, and
  settles what the relay asks for: datagrams out, clients to watch, to resume or to close.
- Local clients and the segment take turns; the segment is read further at a turn, since its kernel buffer is the one
  that loses when it is full.
- SIGTERM and SIGINT: no new clients; what clients have already sent is read, and queues empty, within DRAIN_SECONDS.
- SIGHUP: settings and keys are read again (``reload``). SIGUSR1: debug lines on, and off again.
- SIGUSR2: a new process takes everything over (``restart``); until it has, nothing here changes.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
import uvloop

from bccnd import __version__, reload, report
from bccnd.errors import BccndError
from bccnd.net.broadcast import Segment, SegmentReader, SegmentWriter, send_slots
from bccnd.net.egress import Egress
from bccnd.net.endpoints import Endpoints
from bccnd.net.mmsg import BATCH, Arena, ReceiveTable
from bccnd.net.seqpacket import Clients, Listener, has_hung_up, peer_credentials, peer_groups, program_of
from bccnd.process import logs
from bccnd.process.configuration import check, load
from bccnd.process.keys import read_keys
from bccnd.process.sequence import SequenceFile
from bccnd.process.settings import Settings
from bccnd.relay.core import Relay
from bccnd.relay.dedup import JUMP
from bccnd.relay.identity import Peer
from bccnd.relay.session import Session
from bccnd.relay.succession import restore, state_of
from bccnd.restart import Legacy, Predecessor, Successor
from bccnd.wire.bccn1 import RECEIVE_LIMIT, SEND_LIMIT
from bccnd.wire.sbus import Cmsg

CLIENT_BATCHES = 8  # read from one client in one turn
SEGMENT_BATCHES = 4  # read in one turn: 256 datagrams, about a millisecond of work
DRAIN_SECONDS = 2.0
DRAIN_BATCHES = 64  # read from one client at the end; a client that never stops must not hold the daemon
ACCEPT_PAUSE = 1.0  # seconds without new clients once accepting failed
REPORT_SECONDS = 10.0  # between two log lines about dropped datagrams
DESCRIPTORS_SPARE = 64  # beside the clients': sockets, loop, logs, libraries
EARLY_SIGNALS = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}  # wait until there is somebody to handle them
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}  # for a successor that has begun to take over, these as well
HARMLESS = frozenset({"own", "duplicate", "late"})  # counted, but nothing to warn about

log = structlog.get_logger()


class Daemon:
    """One daemon on the running loop; ``serve`` returns when it was told to stop, or has been succeeded."""

    def __init__(
        self,
        settings: Settings,
        keys: Sequence[bytes],
        endpoints: Endpoints,
        loop: asyncio.AbstractEventLoop,
        read_again: Callable[[], tuple[Settings, Sequence[bytes]]],
    ) -> None:
        self._loop = loop
        self._settings, self._keys = settings, keys
        self._read_again = read_again
        self._reloads = 0
        self._debugging = False
        self._started = loop.time()
        self._stop = asyncio.Event()
        self._sockets: dict[int, socket.socket] = {}
        self._congested: set[Session] = set()
        self._reported: Counter[str] = Counter()
        self._reported_at = 0.0
        self._sent_before = self._unsent_before = 0  # by predecessors
        options = reload.relay_options(settings, keys)
        # A byte more, so that a longer packet is seen to be too long.
        size = Relay.packet_limit_for(options["limits"]) + 1
        arena = Arena((BATCH + 2) * (size + 256) + 2 * (BATCH + 1) * (RECEIVE_LIMIT + 256))
        self._clients = ReceiveTable(arena, size)
        self._datagrams = SegmentReader(arena, RECEIVE_LIMIT)
        slots = send_slots(arena, SEND_LIMIT)
        self.relay = Relay(
            arena.memory,
            Clients(arena, size),
            host=settings.host.encode(),
            about=self._about,
            **options,
        )
        self._sequence = SequenceFile(settings.sequence_path)
        self.relay.names.begin_at(self._sequence.first)
        self._endpoints = endpoints
        self._listener, self._segments = endpoints.listener, endpoints.segments
        self._successor: asyncio.Task[bool] | None = None
        self._paused = False
        self._spare = -1
        self._take_spare()
        self._egresses = [
            Egress(
                loop,
                SegmentWriter(arena, segment, slots),
                self._relieved,
                copies=settings.copies,
                spread=settings.copies_spread_ms / 1000,
            )
            for segment in self._segments
        ]

    @property
    def name(self) -> str:
        """What a client connects to."""
        return self._listener.name

    async def serve(self) -> None:
        loop = self._loop
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.add_signal_handler(signal.SIGUSR1, self._toggle_debug)
        loop.add_signal_handler(signal.SIGUSR2, self._begin_succession)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY_SIGNALS | STOP_SIGNALS)
        self._watch()
        if self.relay.sessions:  # inherited, with rights that these settings need not give
            self.relay.set_access(self.relay.access)
            self._settle()
        for egress in self._egresses:
            egress.resume()
        tick = loop.create_task(self._tick())
        log.info(
            "serving",
            socket=self.name,
            host=self._settings.host,
            segment=[f"{segment.address}:{segment.port}" for segment in self._segments],
            integrity=self._settings.integrity,
            version=__version__,
        )
        await self._stop.wait()
        tick.cancel()
        if not await self._succeeded():
            await self._drain()
            self._report_refusals()
            log.info("stopped", seconds=round(loop.time() - self._started, 3))

    def _watch(self) -> None:
        """Have the loop call for everything that can be read, and for the clients that have a backlog."""
        self._loop.add_reader(self._listener.socket, self._connect)
        for segment in self._segments:
            self._loop.add_reader(segment.fileno(), self._from_segment, segment)
        for session in self.relay.sessions.values():
            if not session.waits_for and session not in self._congested:
                self._loop.add_reader(session.port, self._readable, session)
            if session in self.relay.delivery.backlogged:
                self._loop.add_writer(session.port, self._to_client, session)

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._listener.socket)
        for segment in self._segments:
            self._loop.remove_reader(segment.fileno())
        for session in self.relay.sessions.values():
            self._loop.remove_reader(session.port)
            self._loop.remove_writer(session.port)

    # -- clients

    def _connect(self) -> None:
        try:
            clients = self._listener.accept()
        except OSError as error:
            self._turn_away(error)
            return
        if not clients and has_hung_up(self._listener.socket.fileno()):
            # Whoever handed it down has shut it down: readable for ever, and nobody will come.
            self._loop.remove_reader(self._listener.socket)
            log.warning("listener shut down", socket=self.name, clients=len(self.relay.sessions))
        unix_us = time.time_ns() // 1000
        self._sequence.cover(unix_us)
        for client in clients:
            pid, uid, gid = peer_credentials(client)
            program, resident = program_of(pid)
            with contextlib.suppress(OSError):
                client.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.buffers.client_bytes // 2
                )
            session = self.relay.connect(
                client.fileno(),
                Peer(pid, uid, gid, program, peer_groups(client), resident),
                now=self._loop.time(),
                unix_us=unix_us,
            )
            if session is None:
                _refuse(client, f"limit: at most {self._settings.limits.clients} clients")
                log.warning("client refused", pid=pid, uid=uid, clients=len(self.relay.sessions))
                continue
            self._sockets[session.number] = client
            self._loop.add_reader(session.port, self._readable, session)
            log.debug("client connected", name=session.name.decode(), uid=uid)

    def _turn_away(self, error: OSError) -> None:
        """Accepting failed, mostly for lack of descriptors: tell the client so by means of the spare one."""
        self._let_go_of_spare()
        try:
            for client in self._listener.accept():
                _refuse(client, "limit: the daemon is out of file descriptors")
        except OSError as again:
            # Nor does that help, and the listener stays readable: do not spin on it.
            error = again
            self._loop.remove_reader(self._listener.socket)
            self._loop.call_later(ACCEPT_PAUSE, self._accept_again)
        self._take_spare()
        log.warning("client refused", reason=error.strerror, clients=len(self.relay.sessions))

    def _accept_again(self) -> None:
        self._take_spare()
        if not self._paused and not self._stop.is_set():
            self._loop.add_reader(self._listener.socket, self._connect)

    def _take_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _let_go_of_spare(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def _readable(self, session: Session) -> None:
        """A few batches in one turn: asking once more costs less than another round of the loop."""
        for _ in range(CLIENT_BATCHES):
            if not self._from_client(session):
                return

    def _from_client(self, session: Session) -> bool:
        """Read one batch; True when there may be more."""
        try:
            starts, ends = self._clients.read(session.port)
        except OSError:
            self.relay.delivery.close(session, "gone")
            self._settle()
            return False
        if not starts:
            return False
        if starts[-1] == ends[-1] and has_hung_up(session.port):
            _strip_empty(starts, ends)
            if not starts:
                self._end(session, "")
                self._settle()  # publishers that it held
                return False
        self.relay.from_client(session, starts, ends, self._loop.time(), time.time_ns())
        sends = bool(self.relay.outgoing)
        self._settle()
        if session.number not in self._sockets:
            return False
        if sends and any(egress.congested for egress in self._egresses):
            self._congested.add(session)
        if session.waits_for or session in self._congested:
            self._loop.remove_reader(session.port)
            return False
        return True

    def _to_client(self, session: Session) -> None:
        self.relay.delivery.now = self._loop.time()
        self.relay.delivery.writable(session)
        self._settle()

    def _end(self, session: Session, reason: str) -> None:
        client = self._sockets.pop(session.number, None)
        if client is None:
            return
        self._loop.remove_reader(session.port)
        self._loop.remove_writer(session.port)
        self._congested.discard(session)
        if reason == "gone":
            self._last_words(session)
        state = report.queue_state(session)
        self.relay.disconnect(session, self._loop.time())
        client.close()
        report.client_left(session, reason, state)
        if self._settings.exit_when_idle and not self._sockets:
            self._stop.set()

    def _last_words(self, session: Session) -> None:
        """What a client had sent before it was found gone still counts."""
        for _ in range(DRAIN_BATCHES):
            try:
                starts, ends = self._clients.read(session.port)
            except ConnectionResetError:  # it left packets unread; told once, and before those it sent
                continue
            except OSError:
                return
            _strip_empty(starts, ends)
            if not starts:
                return
            self.relay.from_client(session, starts, ends, self._loop.time(), time.time_ns())

    # -- the segment

    def _from_segment(self, segment: Segment) -> None:
        for _ in range(SEGMENT_BATCHES):
            try:
                starts, ends = self._datagrams.read(segment)
            except OSError as error:
                log.warning("segment not readable", interface=segment.interface, error=error.strerror)
                return
            if starts:
                self.relay.from_segment(starts, ends, self._datagrams.peer, self._loop.time(), time.time_ns())
                self._settle()
            if len(starts) < BATCH:
                return

    def _relieved(self) -> None:
        """A congested way out has room again."""
        if any(egress.congested for egress in self._egresses):
            return
        for session in self._congested:
            if not session.waits_for:
                self._loop.add_reader(session.port, self._readable, session)
        self._congested.clear()

    # -- what the relay asks for

    def _settle(self) -> None:
        delivery = self.relay.delivery
        self._send_out()
        # Ending a session can resume others and bring its last words, so the lists are looked at again.
        while delivery.stuck or delivery.drained or delivery.resumed or delivery.closing:
            stuck, delivery.stuck = delivery.stuck, []
            drained, delivery.drained = delivery.drained, []
            resumed, delivery.resumed = delivery.resumed, []
            closing, delivery.closing = delivery.closing, []
            for session in stuck:
                if session in delivery.backlogged:
                    self._loop.add_writer(session.port, self._to_client, session)
            for session in drained:
                if session not in delivery.backlogged and session.number in self._sockets:
                    self._loop.remove_writer(session.port)
            for session in resumed:
                if session.number in self._sockets and session not in self._congested:
                    self._loop.add_reader(session.port, self._readable, session)
            for session in closing:
                self._end(session, session.closing)
            self._send_out()

    def _send_out(self) -> None:
        outgoing = self.relay.outgoing
        if outgoing:
            for egress in self._egresses:
                egress.send(outgoing)
            outgoing.clear()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self._paused:
                continue
            self.relay.tick(self._loop.time())
            self._sequence.tick(self.relay.next_seq)
            self._settle()
            self._report()
            self._report_refusals()
            now = self._loop.time()
            report.slow_clients(*self.relay.delivery.slow.reports(now), now)

    def _report(self) -> None:
        """Say what was dropped, at most one line in REPORT_SECONDS."""
        counters = self.relay.counters
        counters.sent = self._sent_before + sum([egress.sent for egress in self._egresses])
        counters.unsent = self._unsent_before + sum([egress.unsent for egress in self._egresses])
        now = self._loop.time()
        if now - self._reported_at < REPORT_SECONDS:
            return
        seen = Counter(
            {reason: count for reason, count in self.relay.rejected.items() if reason not in HARMLESS}
        )
        seen["unsent"] = counters.unsent
        new = seen - self._reported
        if new:
            self._reported_at = now
            self._reported = seen
            errors = {os.strerror(egress.error) for egress in self._egresses if egress.error}
            log.warning("datagrams dropped", **new, **({"errors": sorted(errors)} if errors else {}))

    def _report_refusals(self) -> None:
        refusals, more = self.relay.refusals.take()
        for refusal in refusals:
            log.warning("refused", **refusal)
        if more:
            log.warning("refused", more=more)

    def _about(self) -> dict[str, Any]:
        self._report()
        return {
            "version": __version__,
            "host": self._settings.host,
            "pid": os.getpid(),
            "uptime": round(self._loop.time() - self._started, 3),
            "socket": self.name,
            "segments": [
                {"address": segment.address, "port": segment.port, "interface": segment.interface}
                for segment in self._segments
            ],
        }

    # -- reload

    def _reload(self) -> None:
        self._reloads += 1
        try:
            wanted, keys = self._read_again()
            settings, changed, held = reload.applicable(self._settings, wanted)
            options = reload.relay_options(settings, keys)
        except BccndError as error:
            for fault in str(error).splitlines():
                log.error("not reloaded, the old settings stay", fault=fault)
            return
        if keys != self._keys:
            changed.append("keys")
        self._settings, self._keys, self._debugging = settings, keys, False
        logs.configure(settings.log.level, settings.log.format)
        _allow_descriptors(settings.limits.clients)
        for egress in self._egresses:
            egress.set_copies(settings.copies, settings.copies_spread_ms / 1000)
        self.relay.delivery.now = self._loop.time()
        self.relay.reconfigure(**options)
        if not self._paused:
            self._settle()
        if held:
            log.warning("needs a restart", settings=held)
        log.info("reloaded", changed=changed, keys=len(keys))

    def _toggle_debug(self) -> None:
        """Until the next time, or until a reload sets back what the settings say."""
        self._debugging = not self._debugging
        level = "debug" if self._debugging else self._settings.log.level
        logs.configure(level, self._settings.log.format)
        log.warning("log level changed", now=level)

    # -- succession

    def _begin_succession(self) -> None:
        if self._successor is None and not self._stop.is_set():
            self._successor = self._loop.create_task(self._succeed())

    async def _succeed(self) -> bool:
        """Have a new process take over; False when it could not, and everything is as before."""
        reloads = self._reloads
        try:
            successor = await Successor.start()
            await successor.hand_over(self._leave)
        except BccndError as error:
            log.error("not replaced, still serving", reason=str(error))
        except Exception:  # a fault of ours is no reason to leave everybody waiting
            log.exception("not replaced, still serving")
        else:
            log.info("replaced", pid=os.getpid(), by=successor.pid)
            if self._stop.is_set():  # asked to stop while it was too late to stop here
                os.kill(successor.pid, signal.SIGTERM)
            if self._reloads > reloads:  # it may have read the settings before
                os.kill(successor.pid, signal.SIGHUP)
            self._stop.set()
            return True
        if self._paused:
            self._resume()
        self._successor = None
        return False

    async def _succeeded(self) -> bool:
        """When it is time to stop: whether somebody has taken over. A successor that is not there yet is let go."""
        if self._successor is None:
            return False
        if not self._paused:
            self._successor.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await self._successor
        return False

    def _leave(self) -> Legacy:
        """Stop everything; what a successor needs to go on."""
        self._paused = True
        self._unwatch()
        for egress in self._egresses:
            egress.pause()
        self._report()
        self._report_refusals()
        return self._state(), self._descriptors()

    def _resume(self) -> None:
        self._paused = False
        for egress in self._egresses:
            egress.resume()
        self._watch()

    def _state(self) -> dict[str, Any]:
        return {
            "endpoints": self._endpoints.state(),
            "started": self._started,
            "socket": self._socket_settings(),
            "relay": state_of(self.relay),
            "egresses": [egress.state() for egress in self._egresses],
        }

    def _descriptors(self) -> list[int]:
        return [*self._endpoints.descriptors, *(session.port for session in self.relay.sessions.values())]

    def inherit(self, state: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Go on where a predecessor stopped; ``descriptors`` are those of its clients."""
        restore(self.relay, state["relay"], descriptors)
        for session in self.relay.sessions.values():
            self._sockets[session.number] = socket.socket(fileno=session.port)
        counters = self.relay.counters
        left = {
            tuple(way[1:]): kept
            for way, kept in zip(state["endpoints"]["segments"], state["egresses"], strict=True)
        }
        for segment, egress in zip(self._segments, self._egresses, strict=True):
            if kept := left.pop((segment.port, segment.interface), None):
                egress.restore(kept)
        counters.unsent += sum([len(kept["pending"]) for kept in left.values()])
        self._sent_before, self._unsent_before = counters.sent, counters.unsent
        self._started = state["started"]
        self._reported.update(self.relay.rejected, unsent=counters.unsent)
        changed = [
            name for name, value in self._socket_settings().items() if state["socket"].get(name) != value
        ]
        if changed:
            log.warning("not changed while the socket is in use", settings=changed)

    def _socket_settings(self) -> dict[str, Any]:
        """What only a daemon that makes its socket afresh can follow."""
        return {
            name: getattr(self._settings, name)
            for name in ("socket", "socket_mode", "socket_owner", "socket_group")
        }

    # -- the end

    async def _drain(self) -> None:
        loop = self._loop
        deadline = time.monotonic() + DRAIN_SECONDS  # the loop's own time stands still while we read
        loop.remove_reader(self._listener.socket)
        for session in list(self.relay.sessions.values()):
            for _ in range(DRAIN_BATCHES):
                if session.number not in self._sockets or time.monotonic() > deadline:
                    break
                if not self._from_client(session):
                    break
        for session in self.relay.sessions.values():
            loop.remove_reader(session.port)
        while self._unfinished() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for segment, egress in zip(self._segments, self._egresses, strict=True):
            loop.remove_reader(segment.fileno())
            egress.close()
            segment.close()
        for session in list(self.relay.sessions.values()):
            self.relay.delivery.close(session, "shutdown")
        closing, self.relay.delivery.closing = self.relay.delivery.closing, []
        for session in closing:
            self._end(session, "")
        self._sequence.close(self.relay.next_seq + JUMP)  # what lies between is no loss to anybody
        self._listener.close()
        self._let_go_of_spare()

    def _unfinished(self) -> bool:
        return bool(self.relay.delivery.backlogged) or any(egress.busy for egress in self._egresses)


def _strip_empty(starts: list[int], ends: list[int]) -> None:
    """Take off the empty packets that a read gives at the end of a connection."""
    while starts and starts[-1] == ends[-1]:
        starts.pop()
        ends.pop()


def _refuse(client: socket.socket, reason: str) -> None:
    with contextlib.suppress(OSError):
        client.send(Cmsg(b"closing", reason.encode()).serialize())
    client.close()


def _allow_descriptors(clients: int) -> None:
    """Raise the soft limit as far as the clients need and the hard limit lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients + DESCRIPTORS_SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            log.warning("few file descriptors", allowed=allowed, wanted=wanted, remedy="raise LimitNOFILE")


def _read(argv: Sequence[str]) -> tuple[Settings, Sequence[bytes]]:
    settings = load(argv, os.environ).settings
    return settings, read_keys(settings.key_file) if settings.key_file else ()


async def _run(argv: Sequence[str], predecessor: Predecessor | None) -> None:
    read = partial(_read, argv)
    settings, keys = read()
    loop = asyncio.get_running_loop()
    ways = [(settings.broadcast, settings.port, interface) for interface in settings.interfaces or [None]]
    receive_bytes = settings.buffers.receive_bytes
    # What lives from the start is not worth looking at again. Done before anybody waits for us: it takes longer than
    # all that follows.
    gc.collect()
    gc.freeze()
    if predecessor is None:
        endpoints = Endpoints.open(
            ways,
            receive_bytes,
            lambda: Listener.open(
                settings.socket, settings.socket_permissions, settings.socket_owner, settings.socket_group
            ),
        )
        daemon = Daemon(settings, keys, endpoints, loop, read)
        if settings.socket == "@":
            sys.stdout.write(daemon.name + "\n")
            sys.stdout.flush()
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        state, descriptors = predecessor.receive()
        endpoints = Endpoints.succeed(ways, receive_bytes, state["endpoints"], descriptors)
        daemon = Daemon(settings, keys, endpoints, loop, read)
        daemon.inherit(state, descriptors)
        predecessor.wait_for_go()
    gc.freeze()
    await daemon.serve()


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    predecessor = None
    try:
        predecessor = Predecessor.from_environment(os.environ)
        invocation = load(argv, os.environ)
        if invocation.check_only:
            sys.stdout.write(check(invocation) + "\n")
            return 0
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        logs.configure(invocation.settings.log.level, invocation.settings.log.format)
        _allow_descriptors(invocation.settings.limits.clients)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(argv, predecessor))
    except BccndError as error:
        if predecessor is not None:
            predecessor.say_failed(error)
        sys.stderr.writelines(f"bccnd: {line}\n" for line in str(error).splitlines())
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
