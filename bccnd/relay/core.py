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

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from bccnd.relay.answers import Answers
from bccnd.relay.arrivals import RELEASED_BYTES, Arrivals
from bccnd.relay.bridge import Bridge
from bccnd.relay.client_input import ClientInput
from bccnd.relay.control import Control
from bccnd.relay.delivery import Delivery, Transport
from bccnd.relay.effects import SEALED_BYTES
from bccnd.relay.elsewhere import Elsewhere
from bccnd.relay.identity import PROGRAM, Names, ProcessTable, no_processes
from bccnd.relay.lookout import Lookout
from bccnd.relay.membership import Membership
from bccnd.relay.moment import Moment
from bccnd.relay.notices import Notices
from bccnd.relay.options import Options
from bccnd.relay.publisher import OWN_BYTES, Publisher
from bccnd.relay.repair import Repair
from bccnd.relay.rights import AccessList
from bccnd.relay.segment_input import SegmentInput
from bccnd.relay.session import Session
from bccnd.relay.state import Rules, State
from bccnd.relay.watches import Watches
from bccnd.wire.bccn1 import RECEIVE_LIMIT, Integrity
from bccnd.wire.sbus import Memory
from bccnd.wire.verdict import Verdict


class Regions(NamedTuple):
    """Where in the memory the relay writes; ``sizes`` says how many bytes each needs."""

    opened: int  # datagrams of the segment as MSG packets
    sealed: int  # datagrams to the segment
    own: int  # packets of the daemon itself
    released: int  # messages that waited for lost ones

    @staticmethod
    def sizes(batch: int) -> tuple[int, int, int, int]:
        """For batches of so many datagrams."""
        return batch * RECEIVE_LIMIT, SEALED_BYTES, OWN_BYTES, RELEASED_BYTES


def no_chance() -> float:
    """Where nothing is left to chance."""
    return 0.5


class Relay:
    """``batch``: datagrams read with one call; ``pid``, ``version``: of the daemon, which is a source of its own;
    ``processes``: asked about a client that wants a name below its parent's; ``chance``: a random number from 0 to 1.

    Most calls go straight to their parts, and are described there. ``alarm.due`` is when to call ``on_deadline``
    next, in monotonic seconds: never too late, now and then too early.
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
        processes: ProcessTable = no_processes,
        chance: Callable[[], float] = no_chance,
    ) -> None:
        self._version = version
        self._offset = 0.0
        self.state = state = State(memory, regions.sealed, rules, Names(host, processes), pid, chance)
        self.alarm = state.alarm
        self.sessions = state.sessions
        self._delivery = delivery = Delivery(state, transport)
        self._publisher = publisher = Publisher(state, delivery, regions.own)
        self.notices = notices = Notices(state, publisher)
        lookout = Lookout(state.router, rules, state.outgoing, state.alarm)
        self.elsewhere = elsewhere = Elsewhere(publisher, lookout, state.own, state.alarm)
        self.watches = watches = Watches(state, delivery, lookout, elsewhere)
        answers = Answers(publisher, state.router, state.names, state.own, version, elsewhere)
        self.membership = members = Membership(state, delivery, notices, watches)
        control = Control(state, members, delivery, answers, notices, watches)
        opened = regions.opened, regions.opened + batch * RECEIVE_LIMIT
        arrivals = Arrivals(state, publisher, notices, answers, regions.released)
        self.repair = Repair(state, publisher, arrivals)
        self._segment_input = segment = SegmentInput(state, publisher, notices, arrivals, self.repair, opened)
        bridge = Bridge(state, publisher, segment, arrivals, self.repair, opened)
        self.from_client = ClientInput(state, publisher, delivery, control, bridge, answers).read
        self.from_segment = segment.read
        self.take_effects, self.outgoing = state.outgoing.take, state.outgoing
        self.begin_at, self.first_seq = state.names.begin_at, state.names.first_seq
        self.answer, self.close = delivery.answer, delivery.close
        self.writable, self.holding, self.keep_left = delivery.writable, delivery.holding, delivery.keep_left
        self.connect, self.disconnect = members.connect, members.disconnect
        self.apply_rights = members.apply_rights
        self.end = notices.leave_all  # the daemon stops in order
        # What the log reports: refusals, and how many more there were; slow clients that begin to be, and that were;
        # hosts that ask for much to be sent again.
        self.take_refusals, self.take_episodes = state.refusals.take, delivery.slow.reports
        self.take_askers = self.repair.take_askers

    def begin(self, moment: Moment, offset: float = 0.0) -> None:
        """Called once, before the daemon says anything; ``offset``: the part of an interval before its heartbeats."""
        for source in (self.state.own, self.state.repair_source):
            self.membership.begin_numbers(source, moment.unix_ns // 1000)
        self._offset = offset
        self._beat(moment)

    def on_deadline(self, moment: Moment) -> None:
        """Do what is due."""
        now = moment.monotonic
        self._delivery.on_deadline(now, self.state.rules.options.queue)
        self.state.sources.on_deadline(now)
        self.notices.beat(moment)
        self.state.presence.on_deadline(now)
        self.notices.of_sources(moment)
        self.notices.of_waiting_clients(moment)
        self.repair.on_deadline(moment)
        self.watches.on_deadline(moment)
        state, own = self.state, (self._delivery, self.notices, self.repair, self.watches)
        timed = (state.heartbeats, state.presence, state.sources, *own)
        self.alarm.due = min(each.next_deadline() for each in timed)

    def is_backlogged(self, session: Session | None = None) -> bool:
        """Whether something waits for the client, or for any."""
        backlogged = self._delivery.backlogged
        return bool(backlogged) if session is None else session in backlogged

    @property
    def options(self) -> Options:
        """Those in force."""
        return self.state.rules.options

    @property
    def is_tapped(self) -> bool:
        return bool(self.state.taps)

    @property
    def rejected(self) -> Counter[Verdict]:
        """How many datagrams were rejected, by verdict."""
        return self.state.rejected

    def set_addresses(self, addresses: frozenset[bytes]) -> None:
        """The addresses of this host, as the peers of its datagrams are written."""
        self.state.addresses = addresses

    @property
    def next_seq(self) -> int:
        """No number from here on has been used by anybody here."""
        used = [session.seq for session in self.sessions.values()]
        return max(self.state.names.first_seq(0), self.state.own.seq, self.state.repair_source.seq, *used)

    def reconfigure(self, options: Options, integrity: Integrity, access: AccessList, moment: Moment) -> None:
        """Other keys, rights, channels and limits from now on; ``local_payload`` stays, memory is laid out for it.

        Nobody is disconnected: limits on clients and subscriptions hold for new ones.
        """
        state = self.state
        if integrity != state.rules.integrity:
            state.sent.clear()
        state.rules.replace(options, integrity, access)
        state.gaps.configure(options.repair)
        state.sent.configure(options.repair)
        self.repair.configure(options.repair)
        state.ledger.limit = options.queue.total_bytes
        state.retained.limit(options.retain)
        state.router.reconfigure(options.local, cache_limit=options.limits.channels_cached)
        state.sources.configure(options.dedup, authenticated=state.rules.authenticated)
        self.alarm.due = 0.0
        for session in self.sessions.values():
            self.membership.size_queue(session)
        state.presence.configure(options.heartbeat, state.rules.watched)
        self._beat(moment)
        self.apply_rights(moment)
        self.watches.settings_changed(moment)

    def _beat(self, moment: Moment) -> None:
        """Have the daemon's own heartbeats come as the settings say."""
        heartbeats, own = self.state.heartbeats, self.state.own
        seconds = self.state.rules.options.heartbeat.seconds
        beat, repair = heartbeats.get(own), self.state.rules.options.repair
        text = PROGRAM + b"/" + self._version + (b" repair=%d" % repair.numbers if repair.on else b"")
        if not seconds:
            heartbeats.stop(own)
        elif beat is None or (beat.seconds, beat.text) != (seconds, text):
            heartbeats.begin(own, seconds, text, moment.monotonic + self._offset * seconds)

    def figures(self) -> dict[str, int]:
        """What metrics say besides ``status``."""
        state = self.state
        return {
            "missed": state.sources.missed + state.gaps.missed,
            "found": state.sources.found,
            "restarted": state.sources.restarted,
            "taps": len(state.taps),
        }

    def status(self) -> dict[str, Any]:
        """The relay's part of ``CMSG status``."""
        state, ledger = self.state, self.state.ledger
        handed = {"delivered": ledger.delivered - ledger.dropped, "dropped": ledger.dropped}
        return {
            "src": state.own.name.decode(),
            "integrity": state.rules.integrity.required,
            "reorder": state.rules.options.dedup.reorder,
            "clients": len(state.sessions),
            "slow": len(self._delivery.slow),
            "subscriptions": state.router.subscriptions,
            "watches": len(self.watches),
            "sources": len(state.sources),
            "queued": {"packets": ledger.packets, "bytes": ledger.bytes},
            "retained": {"channels": len(state.retained), "bytes": state.retained.size},
            "repair": self.repair.status(),
            "counters": asdict(state.counters) | handed,
            "rejected": dict(state.rejected),
            "refused": dict(state.refusals.counts),
        }
