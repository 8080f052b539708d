"""The relay: packets of local clients and datagrams of the segment in, deliveries and datagrams out.

    from_client ---> client_input ---.                  .---> Transport: packets to clients
                                      >-- publisher ---<
    from_segment --> segment_input --'                  '---> take_effects(): datagrams, and what the caller has to do

Rules
- Pure decisions: what was read lies in the memory and is given as spans, the time is given as a ``Moment`` and kept
  nowhere. Packets to clients leave through ``Transport``; everything else the caller takes as ``Effects``, after each
  call, and carries out before the next.
- Timers are data: the caller comes back at ``alarm.due`` and calls ``on_deadline``.
- This module puts the parts together, and decides nothing. ``state`` says what is known, each other module one thing
  that is done.
- The hot paths, ``from_client`` and ``from_segment``, decide once for all that is alike among what was read together.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from bccnd.relay.answers import Answers
from bccnd.relay.client_input import ClientInput
from bccnd.relay.control import Control
from bccnd.relay.deadlines import Alarm
from bccnd.relay.dedup import Sources
from bccnd.relay.delivery import Delivery, Transport
from bccnd.relay.effects import SEALED_BYTES, Effects, Outgoing
from bccnd.relay.heartbeat import Heartbeats
from bccnd.relay.identity import PROGRAM, LocalSource, Names, Peer
from bccnd.relay.membership import Membership
from bccnd.relay.moment import Moment
from bccnd.relay.notices import Notices
from bccnd.relay.options import Options
from bccnd.relay.outbox import Ledger
from bccnd.relay.presence import Presence
from bccnd.relay.publisher import OWN_BYTES, Publisher
from bccnd.relay.retained import Retained
from bccnd.relay.rights import AccessList
from bccnd.relay.router import Router
from bccnd.relay.segment_input import Batch, SegmentInput
from bccnd.relay.session import Session
from bccnd.relay.slow import Episode
from bccnd.relay.state import Rules, State
from bccnd.wire.bccn1 import RECEIVE_LIMIT, Integrity, Level
from bccnd.wire.sbus import NOWHERE, Cmsg, Memory


class Regions(NamedTuple):
    """Where in the memory the relay writes; ``sizes`` says how many bytes each needs.

    ``opened``: datagrams of the segment as MSG packets; ``sealed``: datagrams to the segment; ``own``: packets of the
    daemon itself.
    """

    opened: int
    sealed: int
    own: int

    @staticmethod
    def sizes(batch: int) -> tuple[int, int, int]:
        """For batches of so many datagrams."""
        return batch * RECEIVE_LIMIT, SEALED_BYTES, OWN_BYTES


class Relay:
    """``batch``: datagrams read with one call; ``pid``, ``version``: of the daemon, which is a source of its own.

    Calls that come with each packet go straight to their parts: ``from_client`` is ``ClientInput.read``,
    ``take_effects`` is ``Effects.take``. ``alarm.due`` is when to call ``on_deadline`` next, in monotonic seconds:
    never too late, now and then too early.
    """

    def __init__(
        self,
        memory: Memory,
        regions: Regions,
        transport: Transport,
        rules: Rules,
        *,
        batch: int,
        host: bytes,
        pid: int = 0,
        version: bytes = b"",
    ) -> None:
        options = rules.options
        names = Names(host)
        retained = Retained(options.retain)
        sources = Sources(options.dedup, authenticated=_is_authenticated(rules.integrity))
        self._version = version
        self._offset = 0.0
        effects = Effects()
        self.alarm = alarm = Alarm()
        self.state = state = State(
            rules,
            LocalSource(b"%b/%b/%d" % (host, PROGRAM, pid)),
            names,
            Router(names, options.local, cache_limit=options.limits.channels_cached, retained=retained.wants),
            sources,
            retained,
            Presence(
                sources.heard,
                options.heartbeat,
                _watched(options),
                alarm,
                authenticated=_is_authenticated(rules.integrity),
            ),
            Heartbeats(alarm),
            Ledger(options.queue.total_bytes),
        )
        names.hold(state.own.name, state.own)
        outgoing = Outgoing(effects, memory, regions.sealed)
        self._delivery = delivery = Delivery(
            memory, transport, state.ledger, effects, state.ports, alarm, rules.packet_limit
        )
        self._publisher = publisher = Publisher(
            memory, regions.own, rules, state.router, retained, state.taps, delivery, outgoing
        )
        self._notices = notices = Notices(
            publisher, state.router, sources, state.presence, state.heartbeats, state.own
        )
        answers = Answers(publisher, state.router, names, state.own, version)
        self.membership = Membership(state, delivery, notices, effects)
        control = Control(state, self.membership, delivery, answers, notices, effects)
        opened = regions.opened, regions.opened + batch * RECEIVE_LIMIT
        self._segment_input = SegmentInput(memory, opened, state, publisher, notices, answers)
        self.from_client = ClientInput(
            memory, state, publisher, delivery, control, self._segment_input, answers, effects, outgoing
        ).read
        self.take_effects = effects.take

    # -- the way in

    def from_segment(
        self,
        starts: list[int],
        ends: list[int],
        peer: Callable[[int], bytes],
        moment: Moment,
        interface: bytes = NOWHERE,
    ) -> None:
        """Datagrams read with one call, as spans of the memory; ``peer(i)`` is ``ip:port`` of the i-th."""
        self._segment_input.read(Batch(starts, ends, peer, interface), moment)

    # -- the way out

    def writable(self, session: Session, moment: Moment) -> None:
        """A client with a backlog has room again."""
        self._delivery.writable(session, moment.monotonic)

    def answer(self, session: Session, answer: Cmsg, moment: Moment) -> None:
        """The answer to a request that was for the caller (``Effects.asked``)."""
        self._delivery.answer(session, answer, moment.monotonic)

    def close(self, session: Session, reason: str) -> None:
        """Have a client disconnected. It gets the reason if it can still read."""
        self._delivery.close(session, reason)

    # -- time

    def begin(self, moment: Moment, offset: float = 0.0) -> None:
        """To be called once, before the daemon says anything itself.

        ``offset``: after which part of their interval its heartbeats begin.
        """
        self.membership.begin_numbers(self.state.own, moment.unix_ns // 1000)
        self._offset = offset
        self._beat(moment)

    def on_deadline(self, moment: Moment) -> None:
        """Do what is due."""
        now = moment.monotonic
        self._delivery.on_deadline(now, self.state.rules.options.queue.block_seconds)
        self.state.sources.on_deadline(now)
        self._notices.beat(moment)
        self.state.presence.on_deadline(now)
        self._notices.of_sources(moment)
        self.alarm.due = min(
            self.state.heartbeats.next_deadline(),
            self.state.presence.next_deadline(),
            self.state.sources.next_deadline(),
            self._delivery.next_deadline(),
        )

    def end(self, moment: Moment) -> None:
        """The daemon stops in order."""
        self._notices.leave_all(moment)

    # -- clients come and go

    @property
    def sessions(self) -> dict[int, Session]:
        """By their number, in the order in which they came."""
        return self.state.sessions

    def connect(self, port: int, peer: Peer, moment: Moment) -> Session | None:
        """A new client, or None when there are too many."""
        return self.membership.connect(port, peer, moment)

    def disconnect(self, session: Session, moment: Moment) -> None:
        """Forget a client; what waited for it is dropped."""
        self.membership.disconnect(session, moment)

    def is_backlogged(self, session: Session | None = None) -> bool:
        """Whether something waits for the client, or for any."""
        backlogged = self._delivery.backlogged
        return bool(backlogged) if session is None else session in backlogged

    @property
    def next_seq(self) -> int:
        """No number from here on has been used by anybody here."""
        state = self.state
        used = [session.seq for session in state.sessions.values()]
        return max([state.names.first_seq(0), state.own.seq, *used])

    # -- settings

    def reconfigure(self, options: Options, integrity: Integrity, access: AccessList, moment: Moment) -> None:
        """Other keys, rights, channels and limits from now on; ``local_payload`` stays, memory is laid out for it.

        Nobody is disconnected: limits on clients and subscriptions hold for new ones. A client keeps the queue that
        it asked for, within the new maxima; for a client that asked for none the new defaults hold.
        """
        state = self.state
        state.rules.replace(options, integrity, access)
        state.ledger.limit = options.queue.total_bytes
        state.retained.limit(options.retain)
        state.router.reconfigure(options.local, cache_limit=options.limits.channels_cached)
        authenticated = _is_authenticated(integrity)
        state.sources.configure(options.dedup, authenticated=authenticated)
        self.alarm.due = 0.0
        for session in state.sessions.values():
            self.membership.size_queue(session)
        state.presence.configure(options.heartbeat, _watched(options), authenticated=authenticated)
        self._beat(moment)
        self.apply_rights(moment)

    def apply_rights(self, moment: Moment) -> None:
        """Decide anew what each client may do."""
        self.membership.apply_rights(moment)

    def _beat(self, moment: Moment) -> None:
        """Have the daemon's own heartbeats come as the settings say."""
        heartbeats, own = self.state.heartbeats, self.state.own
        seconds = self.state.rules.options.heartbeat.seconds
        beat = heartbeats.get(own)
        if not seconds:
            heartbeats.stop(own)
        elif beat is None or beat.seconds != seconds:
            text = PROGRAM + b"/" + self._version
            heartbeats.begin(own, seconds, text, moment.monotonic + self._offset * seconds)

    # -- reports

    def take_refusals(self) -> tuple[list[dict[str, Any]], int]:
        """Refusals to be logged, and how many more there were."""
        return self.state.refusals.take()

    def take_episodes(self, now: float) -> tuple[list[Episode], list[Episode]]:
        """The slow clients that have begun to be slow since this was last asked, and those that are over it."""
        return self._delivery.slow.reports(now)

    def status(self) -> dict[str, Any]:
        """The relay's part of ``CMSG status``."""
        state, delivery = self.state, self._delivery
        return {
            "src": state.own.name.decode(),
            "integrity": state.rules.integrity.required,
            "clients": len(state.sessions),
            "slow": len(delivery.slow),
            "subscriptions": state.router.subscriptions,
            "sources": len(state.sources),
            "queued": {"packets": state.ledger.packets, "bytes": state.ledger.bytes},
            "retained": {"channels": len(state.retained), "bytes": state.retained.size},
            "counters": {
                **asdict(state.counters),
                "delivered": state.ledger.delivered - state.ledger.dropped,
                "dropped": state.ledger.dropped,
            },
            "rejected": dict(state.rejected),
            "refused": dict(state.refusals.counts),
        }


def _is_authenticated(integrity: Integrity) -> bool:
    return integrity.required is Level.HMAC


def _watched(options: Options) -> int:
    """How many sources presence watches: those that beat are few among those that are heard."""
    return options.dedup.sources // 4
