"""What a relay knows: what the settings say, and its tables. Nothing here decides anything.

Each table has a module of its own, which says its rules. A module that decides is given the tables it needs; only
``membership``, ``control`` and ``succession`` concern them all.
"""

from collections import Counter
from dataclasses import dataclass, field

from bccnd.relay.crowd import address_of
from bccnd.relay.dedup import Sources
from bccnd.relay.heartbeat import Heartbeats
from bccnd.relay.identity import LocalSource, Names
from bccnd.relay.options import Options
from bccnd.relay.outbox import Ledger
from bccnd.relay.presence import Presence
from bccnd.relay.retained import Retained
from bccnd.relay.rights import AccessList, Refusals
from bccnd.relay.router import Router
from bccnd.relay.session import Session
from bccnd.wire.batch import Codec
from bccnd.wire.bccn1 import CHAN_LIMIT, Integrity
from bccnd.wire.native import codec_of
from bccnd.wire.verdict import Verdict

# The peer in RECV of what a client of this host sent.
LOCAL_PEER = b"local"
# A datagram from an address of this kind has not left the host, whatever the links are.
LOOPBACK = b"127."


class Rules:
    """What the settings say at the moment. A reload changes it in place, for everybody who holds it."""

    def __init__(self, options: Options, integrity: Integrity, access: AccessList) -> None:
        self.packet_limit = packet_limit(options)  # of a daemon's life: memory is laid out for it
        self.replace(options, integrity, access)

    def replace(self, options: Options, integrity: Integrity, access: AccessList) -> None:
        self.options = options
        self.integrity = integrity
        self.codec: Codec = codec_of(integrity)
        self.access = access


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


@dataclass(slots=True)
class State:
    """``sessions``: by their number; ``ports``: by their port; ``taps``: those that tap; ``own``: the daemon
    itself as a source; ``last_number``: of the youngest session; ``addresses``: of this host, None if the system does
    not say.
    """

    rules: Rules
    own: LocalSource
    names: Names
    router: Router
    sources: Sources
    retained: Retained
    presence: Presence
    heartbeats: Heartbeats
    ledger: Ledger
    sessions: dict[int, Session] = field(default_factory=dict)
    ports: dict[int, Session] = field(default_factory=dict)
    taps: list[Session] = field(default_factory=list)
    last_number: int = 0
    counters: Counters = field(default_factory=Counters)
    rejected: Counter[Verdict] = field(default_factory=Counter)
    refusals: Refusals = field(default_factory=Refusals)
    addresses: frozenset[bytes] | None = None

    def is_here(self, peer: bytes) -> bool:
        """Whether this host sent from there, as far as is known. What a bridge of this host brings counts as sent
        here: only its number says whether it has come back.
        """
        if self.addresses is None or peer == LOCAL_PEER:
            return True
        address = address_of(peer)
        return address in self.addresses or address.startswith(LOOPBACK)
