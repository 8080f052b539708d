"""The relay: packets of local clients and datagrams of the segment in, deliveries and datagrams out.

Pure decisions: what was read lies in ``memory`` and is given as offsets, time is given, and what leaves goes through
``Delivery`` (to clients) or into ``outgoing`` (to the segment; the caller takes it after each call).

Rules
- Here is who is connected, what they may do and what they hold; ``client_input`` and ``segment_input`` read,
  ``control`` answers, ``router`` and ``delivery`` pass on.
- Nothing is settled here: after each call the caller acts on ``outgoing`` and on the lists of ``delivery``.
- The hot paths, ``from_client`` and ``from_segment``, decide once for all that is alike among what was read together,
  and make no object per message but the datagram on its way out.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bccnd.relay.answers import Answers
from bccnd.relay.client_input import ClientInput
from bccnd.relay.dedup import JUMP, Sources
from bccnd.relay.delivery import Delivery, Transport
from bccnd.relay.heartbeat import Heartbeats, Rhythm
from bccnd.relay.identity import Names, Peer
from bccnd.relay.limits import Limits
from bccnd.relay.notices import Notices
from bccnd.relay.outbox import Ledger, Outbox, Policy
from bccnd.relay.own_source import PROGRAM, OwnSource, publish
from bccnd.relay.presence import Event, Presence
from bccnd.relay.retained import Retained
from bccnd.relay.rights import AccessList, Refusals, unrestricted
from bccnd.relay.router import Router
from bccnd.relay.segment_input import Batch, SegmentInput
from bccnd.relay.session import Session
from bccnd.wire.bccn1 import CHAN_LIMIT, SEQ_LIMIT, Integrity
from bccnd.wire.native import codec_of
from bccnd.wire.sbus import NOWHERE, Cmsg, Memory

REVOCATIONS_TOLD = 1000  # to one client at once: a client with too many unread answers would be closed


@dataclass(slots=True)
class Counters:
    """Since the start; messages, not calls."""

    published: int = 0  # taken from local clients
    received: int = 0  # datagrams from the segment
    accepted: int = 0  # of those, sound and new
    unwanted: int = 0  # of those, matching nobody here
    errors: int = 0  # packets of clients that were answered with an error
    sent: int = 0  # datagrams to the segment
    unsent: int = 0  # of ``outgoing``, what the network did not take


class Relay:
    """``memory``: where everything that is read lies; ``room``: of it, for a batch of datagrams on their way in, each
    with RECEIVE_LIMIT bytes; ``about``: what ``status`` says of the daemon around it; ``pid``: of the daemon, for the
    name of its own as a source."""

    def __init__(
        self,
        memory: Memory,
        transport: Transport,
        integrity: Integrity,
        *,
        host: bytes,
        pid: int = 0,
        version: bytes = b"",
        room: tuple[int, int] = (0, 0),
        rhythm: Rhythm | None = None,
        local: Sequence[bytes] = (b"local/>",),
        retain: Sequence[bytes] = (),
        limits: Limits | None = None,
        access: AccessList | None = None,
        about: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.memory = memory
        self.integrity = integrity
        self.codec = codec_of(integrity)
        self.limits = limits = limits or Limits()
        self.access = access or AccessList(unrestricted([0]))
        self.about = about
        self.packet_limit = self.packet_limit_for(limits)
        self.names: Names[Session | OwnSource] = Names(host)
        self.retained = Retained(retain, channels=limits.retain_channels, size=limits.retain_bytes)
        self.router = Router(
            self.names, local, cache_limit=limits.channels_cached, retained=self.retained.wants
        )
        self.sources = Sources(**limits.source_rules())
        self.delivery = Delivery(
            memory, transport, Ledger(limits.queue_total), packet_limit=self.packet_limit
        )
        self.counters = Counters()
        self.rejected: Counter[str] = Counter()
        self.refusals = Refusals()
        self.sessions: dict[int, Session] = {}
        self.outgoing: list[bytes] = []
        self.on_taps: Callable[[bool], None] = lambda _tapped: (
            None
        )  # at once: the client's answer waits for it
        self.last_number = 0
        self.unix_ns = 0  # the clock when the caller last told it
        self.own = OwnSource(host, pid)
        self.heartbeats = Heartbeats(self)
        self.rhythm = rhythm or Rhythm()
        self.notices = Notices(self)
        self.presence = Presence(self._heard, self.notices.of_source)
        self.presence.configure(limits.sources // 4, self.rhythm.misses)
        self._version = version
        self.answers = Answers(self, version)
        self._offset = 0.0
        self.names.hold(self.own.name, self.own)
        self._segment_input = SegmentInput(self, room)
        self._client_input = ClientInput(self, self._segment_input)

    @staticmethod
    def packet_limit_for(limits: Limits) -> int:
        """The longest packet that a client may send or is sent, a PACK included."""
        return len(b"MSG ") + CHAN_LIMIT + 1 + limits.local_payload

    def reconfigure(
        self,
        *,
        integrity: Integrity,
        local: Sequence[bytes],
        retain: Sequence[bytes],
        limits: Limits,
        access: AccessList,
        rhythm: Rhythm,
    ) -> None:
        """Other keys, rights, channels and limits from now on; ``local_payload`` stays, memory is laid out for it.

        Nobody is disconnected: limits on clients and subscriptions hold for new ones. A client keeps the queue that
        it asked for, within the new maxima; for who asked for none the new defaults hold.
        """
        self.integrity = integrity
        self.codec = codec_of(integrity)
        self.limits = limits
        self.delivery.ledger.limit = limits.queue_total
        self.retained.limit(retain, channels=limits.retain_channels, size=limits.retain_bytes)
        self.router.reconfigure(local, cache_limit=limits.channels_cached)
        self.sources.configure(**limits.source_rules())
        for session in self.sessions.values():
            self.size_queue(session)
        self.rhythm = rhythm
        self.presence.configure(limits.sources // 4, rhythm.misses)
        self._beat(self.delivery.now)
        self.set_access(access)

    def size_queue(self, session: Session) -> None:
        """What the client asked for, within the maxima, and the defaults where it did not."""
        asked, limits, outbox = session.queue_asked, self.limits, session.outbox
        outbox.max_packets = min(asked.get("packets", limits.queue_packets), limits.queue_max_packets)
        outbox.max_size = min(asked.get("bytes", limits.queue_bytes), limits.queue_max_bytes)
        outbox.policy = Policy(asked.get("policy", limits.queue_policy))
        self.delivery.release_unless_blocking(session)

    # -- clients come and go

    def connect(self, port: int, peer: Peer, *, now: float, unix_us: int) -> Session | None:
        """A new client, or None when there are too many."""
        if len(self.sessions) >= self.limits.clients:
            return None
        self.last_number += 1
        session = self.admit(self.last_number, port, peer, now=now)
        session.name = self.names.assign(peer, session)
        self._begin_numbers(session, unix_us)
        self.delivery.now, self.unix_ns = now, unix_us * 1000
        self.notices.of_client(Event.APPEARED, session.name, session)
        return session

    def begin(self, unix_us: int, *, now: float, offset: float = 0.0) -> None:
        """To be called once, with the clock, before the daemon says anything itself.

        ``offset``: after which part of their interval its heartbeats begin.
        """
        self._begin_numbers(self.own, unix_us)
        self._offset = offset
        self._beat(now)

    def _beat(self, now: float) -> None:
        """Have the daemon's own heartbeats come as the settings say."""
        seconds = self.rhythm.seconds
        beat = self.heartbeats.get(self.own)
        if not seconds:
            self.heartbeats.stop(self.own)
        elif beat is None or beat.seconds != seconds:
            text = PROGRAM + b"/" + self._version
            self.heartbeats.begin(self.own, seconds, text, now + self._offset * seconds)

    def publish(self, source: Session | OwnSource, chan: bytes, payload: bytes) -> None:
        """What the daemon says by itself, in its own name or that of a client."""
        publish(self, source, chan, payload)

    def end(self, now: float) -> None:
        """The daemon stops in order."""
        self.delivery.now = now
        self.heartbeats.leave_all()

    def admit(self, number: int, port: int, peer: Peer, *, now: float) -> Session:
        """A session without a name yet."""
        session = Session(number, port, peer, rights=self.access.rights_of(peer), now=now)
        session.outbox = Outbox(
            self.delivery.ledger,
            session.lost_notice,
            max_packets=self.limits.queue_packets,
            max_size=self.limits.queue_bytes,
            policy=self.limits.queue_policy,
        )
        self.sessions[number] = session
        self.delivery.ports[port] = session
        return session

    def disconnect(self, session: Session, now: float) -> None:
        """Forget a client; what waited for it is dropped."""
        self.delivery.now = now
        self.heartbeats.leave(session)
        self.heartbeats.stop(session)
        self._remember(session, now)
        self.names.release(session.name, session.seq)
        self.set_tap(session, False)
        self.router.leave(session)
        self.delivery.forget(session)
        del self.sessions[session.number]
        self.notices.of_client(Event.LEFT, session.name, session)

    def rename(self, session: Session, name: bytes, now: float) -> None:
        """Give the client another src; its numbers go forward (``bccn.txt``, "Fork handling", pattern B)."""
        old = session.name
        self.names.rename(old, name, session.peer, session.rights.may_be_named(name), session.seq)
        if name != old:
            self.heartbeats.leave(session)
            self.names.begin_at(session.seq)
            self._remember(session, now)
            session.name = name
            self._begin_numbers(session, session.seq)
            self.router.names_changed()
            self.notices.of_client(Event.LEFT, old, session)
            self.notices.of_client(Event.APPEARED, name, session)

    def _begin_numbers(self, session: Session | OwnSource, wanted: int) -> None:
        """Go on behind what was heard under the name, or a jump behind another host that had it before.

        Those who hear it then neither drop it as old nor take what lies between for losses.
        """
        first = self.names.first_seq(wanted)
        known = self.sources.get(session.name)
        if known and first <= known.last + JUMP < SEQ_LIMIT // 2:  # a forged number must not use ours up
            first = known.last + (1 if known.last in known.ours else JUMP + 1)
        session.seq = session.first_seq = first

    @property
    def next_seq(self) -> int:
        """No number from here on has been used by anybody here."""
        return max(
            [self.names.first_seq(0), self.own.seq, *(session.seq for session in self.sessions.values())]
        )

    def _remember(self, session: Session, now: float) -> None:
        """What the client has sent under the name that it gives up may still come back from the segment."""
        if session.seq > session.first_seq:
            self.sources.remember(session.name, range(session.first_seq, session.seq), now)

    def set_access(self, access: AccessList) -> None:
        """Decide anew what each client may do. It is told what it loses, ``CMSG revoked NUL <packet>``.

        The name that it has taken it keeps until it takes another.
        """
        self.access = access
        for session in list(self.sessions.values()):
            session.rights = rights = access.rights_of(session.peer)
            session.refused.clear()
            revoked = []
            if session.tap and not rights.tap:
                self.set_tap(session, False)
                revoked.append(b"CMSG tap")
            if session.listening and not rights.may_listen:
                self.router.deafen(session)
                revoked.append(b"CMSG listen")
            for separator, pattern in list(session.subscriptions):
                if not rights.may_subscribe(pattern, separator):
                    self.router.revoke(session, (separator, pattern))
                    revoked.append(b"SUB " + pattern)
            if len(revoked) > REVOCATIONS_TOLD:
                revoked[REVOCATIONS_TOLD:] = [b"and %d more" % (len(revoked) - REVOCATIONS_TOLD)]
            for packet in revoked:
                self.delivery.answer(session, Cmsg(b"revoked", packet))

    def _heard(self, src: bytes) -> float | None:
        """When anything was last heard of a source."""
        source = self.sources.get(src)
        return source.heard if source else None

    def set_tap(self, session: Session, on: bool, *, interface: bool = False) -> None:
        session.tap_interface = interface
        if session.tap is not on:
            session.tap = on
            self.delivery.taps = [tap for tap in self.sessions.values() if tap.tap]
            self.on_taps(bool(self.delivery.taps))
            self.router.service_changed()

    def tick(self, now: float, unix_ns: int) -> None:
        """To be called about once a second."""
        self.delivery.now, self.unix_ns = now, unix_ns
        self.delivery.cut_off_stalled(self.limits.block_seconds)
        self.sources.expire(now)
        self.heartbeats.tick(now)
        self.presence.tick(now)

    # -- what is read

    def from_client(
        self, session: Session, starts: list[int], ends: list[int], now: float, unix_ns: int
    ) -> None:
        """Packets of one client, read with one call, as places in the memory."""
        self.delivery.now, self.unix_ns = now, unix_ns
        published_before = session.published
        self._client_input.read(session, starts, ends, now, unix_ns)
        self.counters.published += session.published - published_before

    def from_segment(
        self,
        starts: list[int],
        ends: list[int],
        peer: Callable[[int], bytes],
        now: float,
        unix_ns: int,
        interface: bytes = NOWHERE,
    ) -> None:
        """Datagrams read with one call, as places in the memory; ``peer(i)`` is ``ip:port`` of the i-th."""
        self.delivery.now, self.unix_ns = now, unix_ns
        self._segment_input.read(Batch(starts, ends, peer, now, unix_ns, interface))
