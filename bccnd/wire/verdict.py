"""How a datagram is judged: every verdict there is, what it means, and how much it matters.

A verdict's value is what RECV packets, counters, metrics and recorded rows call it. Its meaning completes the phrase
"datagrams ...". The members stand in the order of the checks (``bccnd/wire/BCCN1.md``, "Receiving"): the first rule
that a datagram breaks names it.
"""

from enum import Enum, StrEnum
from typing import Self


class Weight(Enum):
    """How much a verdict matters to whoever watches the host."""

    # The datagram goes to its subscribers.
    DELIVERED = 1
    # It is dropped as it should be: a healthy segment has such datagrams.
    HARMLESS = 2
    # Something is wrong, with a program, a setting or a link.
    FAULT = 3
    # A wrong key or a stolen name: a mistake at best.
    ATTACK = 4


class Verdict(StrEnum):
    """``meaning`` completes "datagrams ..."; ``weight`` is how much the verdict matters."""

    meaning: str
    weight: Weight

    def __new__(cls, value: str, meaning: str, weight: Weight = Weight.FAULT) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.weight = weight
        return member

    # The envelope, the integrity value and the body: a datagram that breaks a rule of the protocol.
    TRUNCATED = "truncated", "longer than the protocol allows"
    MAGIC = "magic", "of another protocol"
    ENVELOPE = "envelope", "with a malformed envelope"
    LENGTH = "length", "with a wrong length"
    ALGORITHM = "algorithm", "with an unknown integrity algorithm"
    SUM = "sum", "with a malformed integrity value"
    UNAUTHENTICATED = "unauthenticated", "without the integrity value required here", Weight.ATTACK
    HMAC = "hmac", "signed with an unknown key", Weight.ATTACK
    CRC32 = "crc32", "with a wrong checksum"
    VERSION = "version", "of another version of the protocol"
    FIELDS = "fields", "without source, sequence number and channel"
    SOURCE = "source", "with a malformed source"
    SEQUENCE = "sequence", "with a malformed sequence number"
    CHANNEL = "channel", "with a malformed channel"
    TARGET = "target", "directed to a source without a name"

    # A sound datagram that is not for the clients of this host.
    OWN = "own", "sent by this host and heard again", Weight.HARMLESS
    CONFLICT = "conflict", "sent by another host under a name of this one", Weight.ATTACK
    UNKNOWN_SOURCE = "unknown-source", "from a source without a name"
    DUPLICATE = "duplicate", "received before", Weight.HARMLESS
    LATE = "late", "overtaken by later ones", Weight.HARMLESS
    REPLAYED = "replayed", "replayed, or from a source whose clock went back"
    LOCAL_CHANNEL = "local-channel", "on channels that are local here"

    # What is delivered.
    OK = "ok", "delivered", Weight.DELIVERED
    NEW = "new", "delivered, the first of their source", Weight.DELIVERED
    RESTARTED = "restarted", "delivered, the first after a restart of their source", Weight.DELIVERED
    REPAIRED = "repaired", "delivered, after they had been lost and asked for", Weight.DELIVERED
    RETAINED = "retained", "delivered as the last value of their channel", Weight.DELIVERED

    @property
    def delivered(self) -> bool:
        """Whether the datagram goes to its subscribers."""
        return self.weight is Weight.DELIVERED

    @property
    def harmless(self) -> bool:
        """Whether nobody has to look into it: it is delivered, or dropped as it should be."""
        return self.weight in (Weight.DELIVERED, Weight.HARMLESS)

    @property
    def attack(self) -> bool:
        """Whether it looks like somebody who must not speak here."""
        return self.weight is Weight.ATTACK


def verdict_of(word: str) -> Verdict | None:
    """The verdict that a record or a counter names; None for one of another version that is not known here."""
    return _BY_WORD.get(word)


_BY_WORD = {str(verdict): verdict for verdict in Verdict}


# What ``Integrity.open`` finds: the rules of the protocol.
UNSOUND = tuple(Verdict)[: list(Verdict).index(Verdict.TARGET) + 1]
DROPPED = tuple(verdict for verdict in Verdict if not verdict.delivered)
ATTACKS = frozenset(verdict for verdict in Verdict if verdict.attack)
DELIVERED = frozenset(verdict for verdict in Verdict if verdict.delivered)
HARMLESS = frozenset(verdict for verdict in Verdict if verdict.harmless)
