"""What a relay knows: what the settings say, its tables, and the effects of a call. Nothing here decides anything.

Each table has a module of its own, which says its rules.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from bccnd.relay.announcements import Announcements
from bccnd.relay.crowd import address_of
from bccnd.relay.deadlines import Alarm
from bccnd.relay.dedup import Sources
from bccnd.relay.effects import Outgoing
from bccnd.relay.gaps import Gaps
from bccnd.relay.heartbeat import Heartbeats
from bccnd.relay.identity import PROGRAM, LocalSource, Names
from bccnd.relay.options import Options
from bccnd.relay.outbox import Ledger
from bccnd.relay.presence import Presence
from bccnd.relay.retained import Retained
from bccnd.relay.rights import AccessList, Refusals
from bccnd.relay.router import Router
from bccnd.relay.sent import Sent
from bccnd.relay.session import Session
from bccnd.wire.batch import Codec
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, SEQ_LIMIT, SRC_LIMIT, Integrity, Level
from bccnd.wire.native import codec_of
from bccnd.wire.repair import SOURCE_END
from bccnd.wire.sbus import Memory
from bccnd.wire.verdict import Verdict

# Bytes of a message for which each of its deliveries is a step more.
LARGE = 1024
# The peer in RECV of what a client of this host sent.
LOCAL_PEER = b"local"
# A datagram from an address of this kind has not left the host, whatever the links are.
LOOPBACK = b"127."


class Rules:
    """What the settings say at the moment. A reload changes it in place, for everybody who holds it.

    ``watched``: how many sources presence watches: those that beat are few among those that are heard. ``small``: a
    MSG packet of so many bytes is within every limit, whoever sends it where, and not LARGE.
    """

    def __init__(self, options: Options, integrity: Integrity, access: AccessList) -> None:
        self.packet_limit = packet_limit(options)  # of a daemon's life: memory is laid out for it
        self.replace(options, integrity, access)

    def replace(self, options: Options, integrity: Integrity, access: AccessList) -> None:
        self.options = options
        self.integrity = integrity
        self.authenticated = integrity.required is Level.HMAC
        self.codec: Codec = codec_of(integrity)
        # What a bridge brings may carry less than is required here: it is sealed anew.
        self.bridged = Integrity(integrity.keys)
        self.bridged_codec: Codec = codec_of(self.bridged)
        self.access = access
        self.watched = options.dedup.sources // 4
        around = integrity.overhead + SRC_LIMIT + len(b":%d:" % SEQ_LIMIT)
        self.small = min(options.limits.local_payload, SEND_LIMIT - around, LARGE - 1)


def packet_limit(options: Options) -> int:
    """The longest packet that a client may send or is sent, a PACK included."""
    return len(b"MSG ") + CHAN_LIMIT + 1 + options.limits.local_payload


@dataclass(slots=True)
class Counters:
    """Since the start; messages, not calls."""

    published: int = 0  # taken from local clients
    received: int = 0  # datagrams from the segment
    accepted: int = 0  # of those, sound and new
    unwanted: int = 0  # of those, without a subscriber here
    errors: int = 0  # packets of clients that were answered with an error
    bridged: int = 0  # messages of elsewhere that bridges brought
    bridged_again: int = 0  # those that this host or segment had had; they went nowhere


class State:
    """``pid``: of the daemon, which is a source of its own; ``sealed``: the region of ``Outgoing``; ``chance``: a
    random number from 0 to 1.
    """

    def __init__(
        self,
        memory: Memory,
        sealed: int,
        rules: Rules,
        names: Names,
        pid: int,
        chance: Callable[[], float],
    ) -> None:
        options = rules.options
        self.memory = memory
        self.rules = rules
        self.outgoing = Outgoing(memory, sealed)
        self.alarm = alarm = Alarm()
        self.own = LocalSource(b"%b/%b/%d" % (names.host, PROGRAM, pid))
        self.names = names
        names.hold(self.own.name, self.own)
        self.repair_source = LocalSource(b"%b/%b" % (self.own.name, SOURCE_END))
        names.hold(self.repair_source.name, self.repair_source)
        self.retained = Retained(options.retain)
        self.router = Router(
            names,
            options.local,
            cache_limit=options.limits.channels_cached,
            retained=self.retained.wants,
            meter=self.outgoing,
        )
        self.gaps = Gaps(options.repair, alarm, chance)
        self.announcements = Announcements(alarm)
        self.sent = Sent(memory, options.repair, self.announcements)
        self.sources = Sources(options.dedup, self.gaps, authenticated=rules.authenticated)
        self.sources.is_here = self.is_here
        self.presence = Presence(
            self.sources.heard,
            options.heartbeat,
            rules.watched,
            alarm,
        )
        self.heartbeats = Heartbeats(alarm)
        self.ledger = Ledger(options.queue.total_bytes)
        self.sessions: dict[int, Session] = {}  # by their number, in the order in which they came
        self.ports: dict[int, Session] = {}
        self.taps: list[Session] = []
        self.last_number = 0  # of the youngest session
        self.counters = Counters()
        self.rejected: Counter[Verdict] = Counter()
        self.refusals = Refusals()
        # Of this host; None if the system does not say.
        self.addresses: frozenset[bytes] | None = None

    def is_here(self, peer: bytes) -> bool:
        """Whether this host sent from there, as far as is known. What a bridge of this host brings counts as sent
        here: only its number says whether it has come back.
        """
        if self.addresses is None or peer == LOCAL_PEER:
            return True
        address = address_of(peer)
        return address in self.addresses or address.startswith(LOOPBACK)
