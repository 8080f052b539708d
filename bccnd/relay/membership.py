"""The connected clients: they come, take names and rights, tap, and go.

Rules
- A client continues the numbers of its name, or starts a jump above those of another host that had the name before.
- Datagrams of a client under a name that it gave up may still come back from the segment: the table of sources
  remembers them.
- A process may take a limited number of names, one after the other: each can beat and leave a trace on every host.
- A client that speaks for another says so before it does anything else. From then on it is that client, as if it had
  just connected: for its rights, its names, the accounts of its user and all who look.
- A change of rights disconnects nobody. A client learns which rights it loses by ``CMSG revoked``. It keeps the name
  that it has taken until it takes another.
"""

from dataclasses import dataclass, replace

from bccnd.errors import PacketError
from bccnd.relay.allowance import Allowance
from bccnd.relay.dedup import JUMP
from bccnd.relay.delivery import Delivery
from bccnd.relay.identity import LocalSource, Peer
from bccnd.relay.moment import Moment
from bccnd.relay.notices import Notices
from bccnd.relay.options import Policy
from bccnd.relay.outbox import Outbox
from bccnd.relay.presence import Event
from bccnd.relay.session import Session
from bccnd.relay.state import State
from bccnd.relay.watches import Watches
from bccnd.wire.bccn1 import SEQ_LIMIT
from bccnd.wire.sbus import Cmsg

# To one client at once: a client with too many unread answers would be closed.
REVOCATIONS_LIMIT = 1000
# Names that a process may take by CMSG name: a program takes one for each connection, and some for its threads.
NAMES_PER_SECOND, NAMES_AT_ONCE = 1.0, 64
# Processes whose names are counted: as many as there can be clients.
PROCESSES_LIMIT = 65536


@dataclass(eq=False)
class Membership:
    _state: State
    _delivery: Delivery
    _notices: Notices
    _watches: Watches

    def __post_init__(self) -> None:
        self._allowances: dict[tuple[int, int], Allowance] = {}  # by uid and pid

    def connect(self, port: int, peer: Peer, moment: Moment) -> Session | None:
        """A new client, or None when there are too many."""
        state = self._state
        if len(state.sessions) >= state.rules.options.limits.clients:
            return None
        state.last_number += 1
        session = self.admit(state.last_number, port, peer, moment.monotonic)
        self._appear(session, state.names.assign(peer, session), moment.unix_ns // 1000, moment)
        return session

    def admit(self, number: int, port: int, peer: Peer, now: float) -> Session:
        """A session without a name yet."""
        state = self._state
        session = Session(number, port, peer, rights=state.rules.access.rights_of(peer), now=now)
        session.outbox = self._outbox_of(session)
        state.sessions[number] = state.ports[port] = session
        return session

    def _outbox_of(self, session: Session) -> Outbox:
        """A new one, on the account of its user."""
        account, options = self._state.ledger.account_of(session.peer.uid), self._state.rules.options.queue
        limits = {"max_packets": options.packets, "max_size": options.bytes}
        return Outbox(account, session.lost_notice, **limits, policy=options.policy)

    def adopt(self, session: Session) -> None:
        """The session is as a predecessor left it: take it in everywhere, and go on with what waits for it."""
        if session.tap:
            self._state.taps.append(session)
        self.size_queue(session)
        if session.outbox:
            self._delivery.backlogged.add(session)
            self._state.outgoing.clients.watch.append(session)

    def disconnect(self, session: Session, moment: Moment) -> None:
        """Forget a client; what waited for it is dropped."""
        state = self._state
        self._leave(session, moment)
        state.heartbeats.stop(session)
        state.names.release(session.name, session.seq)
        self.set_tap(session, False)
        state.router.leave(session)
        self._watches.leave(session)
        self._delivery.forget(session, moment.monotonic)
        del state.sessions[session.number], state.ports[session.port]
        self._notices.of_client(Event.LEFT, session.name, session, moment)

    def speak_for(self, session: Session, peer: Peer, moment: Moment) -> None:
        """The client is ``peer`` from now on. Raises ``PacketError`` once it has done anything as who it was."""
        state, outbox = self._state, session.outbox
        acted = (
            session.published or session.listening or session.tap or session.queue_asked or session.watches
        )
        if acted or session in state.heartbeats or outbox or outbox.left:
            raise PacketError(
                "bad-value", "it comes before anything else, and the client waits for the answer"
            )
        here = session.peer.resident and state.names.lives_here(peer.pid, peer.uid)
        self._leave(session, moment)
        state.names.release(session.name, session.seq)
        self._notices.of_client(Event.LEFT, session.name, session, moment)
        state.outgoing.clients.moved = session, session.peer
        session.peer = replace(peer, resident=here)
        session.rights = state.rules.access.rights_of(session.peer)
        session.refused.clear()
        session.outbox = self._outbox_of(session)
        self._appear(session, state.names.assign(session.peer, session), session.seq, moment)

    def rename(self, session: Session, name: bytes, moment: Moment) -> None:
        """Give the client another src; its numbers go forward (``bccnd/wire/BCCN1.md``, "Forked programs")."""
        names, old = self._state.names, session.name
        if name != old and not self._may_take_a_name(session, moment.monotonic):
            raise PacketError("limit", f"at most {NAMES_AT_ONCE} names at once, and then one a second")
        names.rename(old, name, session.peer, session.rights.may_be_named(name), session.seq)
        if name != old:
            self._leave(session, moment)
            names.begin_at(session.seq)
            self._state.router.renamed(session, old, name)
            self._notices.of_client(Event.LEFT, old, session, moment)
            self._appear(session, name, session.seq, moment)

    def _may_take_a_name(self, session: Session, now: float) -> bool:
        """Each name that beats takes a place on every host: they are counted for the process, which may reconnect."""
        process = session.peer.uid, session.peer.pid
        allowance = self._allowances.pop(process, None) or Allowance(NAMES_PER_SECOND, NAMES_AT_ONCE)
        self._allowances[process] = allowance
        if len(self._allowances) > PROCESSES_LIMIT:
            # That of the one that renamed itself longest ago.
            del self._allowances[next(iter(self._allowances))]
        return allowance.take(now)

    def _appear(self, session: Session, name: bytes, wanted: int, moment: Moment) -> None:
        session.name = name
        self.begin_numbers(session, wanted)
        self._notices.of_client(Event.APPEARED, name, session, moment)

    def _leave(self, session: Session, moment: Moment) -> None:
        """Give up the name, under which nothing more is sent."""
        self._notices.leave(session, moment)
        sent = range(session.first_seq, session.seq)
        if sent:
            self._state.sources.remember(session.name, sent, moment.monotonic)

    def begin_numbers(self, source: LocalSource, wanted: int) -> None:
        """Continue above the numbers that were heard under the name, or a jump above those of another host.

        So receivers neither drop its messages as old nor count the numbers in between as losses.
        """
        first = self._state.names.first_seq(wanted)
        known = self._state.sources.get(source.name)
        if known and first <= known.last + JUMP < SEQ_LIMIT // 2:  # a forged number must not use ours up
            first = known.last + (1 if known.last in known.ours else JUMP + 1)
        source.seq = source.first_seq = first

    def size_queue(self, session: Session) -> None:
        """What the client asked for, within the maxima, and the defaults where it did not."""
        asked, options, outbox = session.queue_asked, self._state.rules.options.queue, session.outbox
        outbox.max_packets = min(asked.get("packets", options.packets), options.max_packets)
        outbox.max_size = min(asked.get("bytes", options.bytes), options.max_bytes)
        outbox.policy = Policy(asked.get("policy", options.policy))
        self._delivery.release_unless_blocking(session)

    def set_tap(self, session: Session, on: bool, *, interface: bool = False) -> None:
        taps = self._state.taps
        session.tap_interface = interface
        if session.tap is not on:
            session.tap = on
            taps[:] = [tap for tap in self._state.sessions.values() if tap.tap]
            self._state.outgoing.clients.taps = bool(taps)
            self._state.router.service_changed(session)

    def apply_rights(self, moment: Moment) -> None:
        """Decide anew what each client may do. It learns what it loses, ``CMSG revoked NUL <packet>``."""
        router = self._state.router
        for session in list(self._state.sessions.values()):
            session.rights = rights = self._state.rules.access.rights_of(session.peer)
            session.refused.clear()
            revoked = []
            if session.tap and not rights.tap:
                self.set_tap(session, False)
                revoked.append(b"CMSG tap")
            if session.listening and not rights.may_listen:
                router.stop_listening(session)
                revoked.append(b"CMSG listen")
            if session.queue_asked.get("policy") == Policy.BLOCK and not rights.block:
                del session.queue_asked["policy"]
                self.size_queue(session)
                revoked.append(b"CMSG queue policy=block")
            for separator, pattern in list(session.subscriptions):
                if not rights.may_subscribe(pattern, separator):
                    router.revoke(session, (separator, pattern))
                    revoked.append(b"SUB " + pattern)
            revoked += [b"CMSG watch " + pattern for pattern in self._watches.revoke(session)]
            if len(revoked) > REVOCATIONS_LIMIT:
                revoked[REVOCATIONS_LIMIT:] = [b"and %d more" % (len(revoked) - REVOCATIONS_LIMIT)]
            for packet in revoked:
                self._delivery.answer(session, Cmsg(b"revoked", packet), moment)
