"""The daemon: sockets -> relay -> sockets, and nothing else. The composition root of ``bccnd``.

Rules
- Everything happens in callbacks of one event loop; none waits. A callback reads one batch, has the relay decide, and
  settles what the relay asks for: datagrams out, clients to watch, to resume or to close.
- Local clients and the segment take turns; the segment is read further at a turn, since its kernel buffer is the one
  that loses when it is full.
- SIGTERM and SIGINT: no new clients, what clients have already sent is read, queues are given DRAIN_SECONDS to empty.
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
from collections.abc import Sequence
from typing import Any

import structlog
import uvloop

from bccnd import __version__
from bccnd.errors import BccndError
from bccnd.net.broadcast import Segment, SegmentReader, SegmentWriter, send_slots
from bccnd.net.egress import Egress
from bccnd.net.endpoints import Endpoints
from bccnd.net.mmsg import BATCH, Arena, ReceiveTable
from bccnd.net.seqpacket import Clients, Listener, has_hung_up, peer_credentials, program_of
from bccnd.process import logs
from bccnd.process.configuration import check, load
from bccnd.process.keys import read_keys
from bccnd.process.settings import Settings
from bccnd.relay.core import Limits, Relay
from bccnd.relay.identity import Peer
from bccnd.relay.outbox import Policy
from bccnd.relay.session import Session
from bccnd.relay.succession import restore, state_of
from bccnd.restart import Legacy, Predecessor, Successor
from bccnd.wire.bccn1 import RECEIVE_LIMIT, SEND_LIMIT, Integrity, Level
from bccnd.wire.sbus import Cmsg

CLIENT_BATCHES = 8  # read from one client in one turn
SEGMENT_BATCHES = 4  # read in one turn: 256 datagrams, about a millisecond of work
DRAIN_SECONDS = 2.0
DRAIN_BATCHES = 64  # read from one client at the end; a client that never stops must not hold the daemon
REPORT_SECONDS = 10.0  # between two log lines about dropped datagrams
EARLY_SIGNALS = {  # wait until the successor of a daemon serves
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR2,
}
DESCRIPTORS_SPARE = 64  # beside the clients': sockets, loop, logs, libraries
HARMLESS = frozenset({"own", "duplicate", "late"})  # counted, but nothing to warn about

log = structlog.get_logger()


class Daemon:
    """One daemon on the running loop; ``serve`` returns when it was told to stop, or has been succeeded."""

    def __init__(
        self, settings: Settings, keys: Sequence[bytes], endpoints: Endpoints, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._started = loop.time()
        self._stop = asyncio.Event()
        self._sockets: dict[int, socket.socket] = {}
        self._congested: set[Session] = set()
        self._reported: Counter[str] = Counter()
        self._reported_at = 0.0
        self._sent_before = self._unsent_before = 0  # by predecessors
        limits = _limits(settings)
        size = (
            Relay.packet_limit_for(limits) + 1
        )  # a byte more, so that a longer packet is seen to be too long
        arena = Arena((BATCH + 2) * (size + 256) + 2 * (BATCH + 1) * (RECEIVE_LIMIT + 256))
        self._clients = ReceiveTable(arena, size)
        self._datagrams = SegmentReader(arena, RECEIVE_LIMIT)
        slots = send_slots(arena, SEND_LIMIT)
        self.relay = Relay(
            arena.memory,
            Clients(arena, size),
            Integrity(keys, Level(settings.integrity)),
            host=settings.host.encode(),
            local=[pattern.encode() for pattern in settings.local],
            limits=limits,
            about=self._about,
        )
        self._endpoints = endpoints
        self._listener, self._segments = endpoints.listener, endpoints.segments
        self._successor: asyncio.Task[bool] | None = None
        self._paused = False
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
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
        loop.add_signal_handler(signal.SIGUSR2, self._begin_succession)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY_SIGNALS)
        self._watch()
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
        for client in clients:
            pid, uid, gid = peer_credentials(client)
            with contextlib.suppress(OSError):
                client.setsockopt(
                    socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.buffers.client_bytes // 2
                )
            session = self.relay.connect(
                client.fileno(),
                Peer(pid, uid, gid, program_of(pid)),
                privileged=uid in (0, os.geteuid()),
                now=self._loop.time(),
                unix_us=time.time_ns() // 1000,
            )
            if session is None:
                _refuse(client, f"limit: at most {self._settings.limits.clients} clients")
                log.warning("client refused", pid=pid, uid=uid, clients=len(self.relay.sessions))
                continue
            self._sockets[session.number] = client
            self._loop.add_reader(session.port, self._readable, session)
            log.debug("client connected", name=session.name.decode(), uid=uid)

    def _turn_away(self, error: OSError) -> None:
        """No descriptor for a new client: use the spare one to tell it so, instead of spinning on the listener."""
        os.close(self._spare)
        try:
            for client in self._listener.accept()[:1]:
                _refuse(client, "limit: the daemon is out of file descriptors")
        except OSError as again:
            error = again
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        log.warning("client refused", reason=error.strerror, clients=len(self.relay.sessions))

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
        self.relay.disconnect(session, self._loop.time())
        client.close()
        level = log.warning if reason not in ("", "gone") else log.debug
        level(
            "client left" if reason in ("", "gone") else "client closed",
            name=session.name.decode(),
            reason=reason,
            pid=session.peer.pid,
            uid=session.peer.uid,
            dropped=session.outbox.dropped,
        )
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
            self._settle()
            self._report()

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

    # -- succession

    def _begin_succession(self) -> None:
        if self._successor is None and not self._stop.is_set():
            self._successor = self._loop.create_task(self._succeed())

    async def _succeed(self) -> bool:
        """Have a new process take over; False when it could not, and everything is as before."""
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
        loop.remove_reader(self._listener.socket)
        for session in list(self.relay.sessions.values()):
            for _ in range(DRAIN_BATCHES):
                if session.number not in self._sockets or not self._from_client(session):
                    break
        for session in self.relay.sessions.values():
            loop.remove_reader(session.port)
        deadline = loop.time() + DRAIN_SECONDS
        while self.relay.delivery.backlogged and loop.time() < deadline:
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
        self._listener.close()
        os.close(self._spare)


def _strip_empty(starts: list[int], ends: list[int]) -> None:
    """Take off the empty packets that a read gives at the end of a connection."""
    while starts and starts[-1] == ends[-1]:
        starts.pop()
        ends.pop()


def _limits(settings: Settings) -> Limits:
    queue, limits, dedup = settings.queue, settings.limits, settings.dedup
    return Limits(
        clients=limits.clients,
        subscriptions=limits.subscriptions,
        local_payload=limits.local_payload,
        channels_cached=limits.channels_cached,
        queue_packets=queue.packets,
        queue_bytes=queue.bytes,
        queue_max_packets=queue.max_packets,
        queue_max_bytes=queue.max_bytes,
        queue_total=queue.total_bytes,
        queue_policy=Policy(queue.policy),
        block_seconds=queue.block_seconds,
        sanity=dedup.sanity,
        sources=dedup.sources,
        source_seconds=dedup.seconds,
        reorder=dedup.reorder,
        unknown=dedup.unknown,
    )


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


async def _run(settings: Settings, keys: Sequence[bytes], predecessor: Predecessor | None) -> None:
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
        daemon = Daemon(settings, keys, endpoints, loop)
        if settings.socket == "@":
            sys.stdout.write(daemon.name + "\n")
            sys.stdout.flush()
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        state, descriptors = predecessor.receive()
        endpoints = Endpoints.succeed(ways, receive_bytes, state["endpoints"], descriptors)
        daemon = Daemon(settings, keys, endpoints, loop)
        daemon.inherit(state, descriptors)
        predecessor.wait_for_go()
    gc.freeze()
    await daemon.serve()


def main(argv: Sequence[str] | None = None) -> int:
    predecessor = None
    try:
        predecessor = Predecessor.from_environment(os.environ)
        invocation = load(sys.argv[1:] if argv is None else argv, os.environ)
        settings = invocation.settings
        if invocation.check_only:
            sys.stdout.write(check(invocation) + "\n")
            return 0
        logs.configure(settings.log.level, settings.log.format)
        keys = read_keys(settings.key_file) if settings.key_file else ()
        _allow_descriptors(settings.limits.clients)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, keys, predecessor))
    except BccndError as error:
        if predecessor is not None:
            predecessor.say_failed(error)
        sys.stderr.writelines(f"bccnd: {line}\n" for line in str(error).splitlines())
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
