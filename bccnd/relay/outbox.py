"""The packets that one client has not taken yet.

Rules
- Messages and answers leave in the order they came. Answers (to the client's own requests) are never dropped; a
  client that has too many unread ones is not read from until it has caught up (the relay sees to that).
- Messages are bounded in number and bytes per client. What all clients hold together is bounded too (``Ledger``),
  with the answers, and with the memory that an entry takes beside its bytes. The user who holds most gives first
  (``delivery``), so every user has a share, whatever the number of its clients.
- When one more does not fit, the client's policy decides: ``drop-oldest``, ``drop-newest``, ``disconnect``, or
  ``block``: it is taken from a local publisher, which waits (``delivery``), and ``drop-newest`` for what comes from
  the network.
- Several messages in one PACK are a ``CountedPack``: one entry, which counts as its messages and is dropped as a
  whole. So the backlog of a client that agreed to packing costs per PACK.
- Where messages are missing there is a gap, which is delivered as a notice with their number, in their place. A
  gap grows until the client takes it, so an episode of any length is one notice.
- What was read of a client and waits for its next turn (``daemon.turns``) is in its account, too, and in that of all.
- The ledger holds no packets and no bytes when every outbox has been cleared.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate, groupby, islice
from math import inf
from typing import Any
from weakref import WeakValueDictionary

from bccnd.relay.options import Policy

# Unread answers, and their bytes, after which a client is not read from.
ANSWERS_LIMIT = 64
ANSWERS_BYTES = 32 << 10
# What an entry takes beside its bytes: the header of a bytes object and its place in the queue.
ENTRY_BYTES = 48
# With ``block``, half of this may wait when publishers go on: about what one read of theirs gives.
AHEAD_PACKETS = 64
AHEAD_BYTES = 128 << 10
# What the reads of some publishers may add beyond the limits before they wait.
BEYOND_BYTES = 1 << 20


class Outcome(Enum):
    QUEUED = 1
    DROPPED = 2  # it, or an older one in its place
    OVERFLOW = 3  # not queued; the client is to be disconnected


@dataclass(eq=False, slots=True, weakref_slot=True)
class Account:
    """What the outboxes of one user hold; the fields are as in ``Ledger``.

    ``most``: no client of it could give more, as far as is known.
    """

    ledger: "Ledger"
    bytes: int = 0
    entries: int = 0
    left: int = 0
    most: float = inf

    @property
    def held(self) -> int:
        """Bytes of messages and answers, with the memory that the entries take."""
        return self.bytes + self.entries * ENTRY_BYTES


@dataclass(slots=True)
class Ledger:
    """What all outboxes hold together, and the most they may, in bytes.

    ``packets``: messages; ``bytes``: of messages and answers; ``left``: bytes of packets that were read and wait for
    a turn; ``delivered``: messages handed over so far, with those that the outboxes have ``dropped`` since.
    """

    limit: int
    packets: int = 0
    bytes: int = 0
    entries: int = 0
    left: int = 0
    delivered: int = 0
    dropped: int = 0
    # Of users with clients.
    _accounts: WeakValueDictionary[int, Account] = field(default_factory=WeakValueDictionary)

    def account_of(self, uid: int) -> Account:
        """The account of a user, for as long as an outbox has it."""
        account = self._accounts.get(uid)
        if account is None:
            account = self._accounts[uid] = Account(self)
        return account

    def excess(self, size: int, entries: int = 1) -> int:
        """By how many bytes so many more entries, of this size in all, pass the limit; 0 or less if they fit."""
        return self.bytes + self.left + size + (self.entries + entries) * ENTRY_BYTES - self.limit


class CountedPack:
    """A PACK packet and how many messages are in it."""

    __slots__ = ("messages", "packet")

    def __init__(self, packet: bytes, messages: int) -> None:
        self.packet = packet
        self.messages = messages

    def __len__(self) -> int:
        return len(self.packet)


class _Answer(bytes):
    """An answer among the messages: never dropped."""

    __slots__ = ()


class _Gap:
    """So many messages are missing here."""

    __slots__ = ("lost",)

    def __init__(self, lost: int) -> None:
        self.lost = lost


class Outbox:
    """The queue of one client: ``packets`` messages of ``size`` bytes in all, and ``answers`` of ``answers_size``.

    ``notice`` renders a gap as the packet that reports it to the client. What goes out is, in this order: the
    answers that dropping passed over, the gap that it left at the head, the entries.
    """

    __slots__ = (
        "_entries",
        "_front",
        "_gap",
        "_ledger",
        "_notice",
        "account",
        "answers",
        "answers_size",
        "dropped",
        "entries",
        "left",
        "max_packets",
        "max_size",
        "packets",
        "policy",
        "size",
    )

    def __init__(
        self,
        account: Account,
        notice: Callable[[int], bytes],
        *,
        max_packets: int,
        max_size: int,
        policy: Policy,
    ) -> None:
        self.account = account
        self._ledger = account.ledger
        self._notice = notice
        self.max_packets = max_packets
        self.max_size = max_size
        self.policy = policy
        self.packets = self.size = self.entries = self.answers = self.answers_size = self.dropped = (
            self.left
        ) = 0
        self._front: list[_Answer] = []  # a deque, mostly empty, would be a sixth of what a client costs
        self._gap = 0
        self._entries: deque[bytes | CountedPack | _Gap] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries or self._front or self._gap)

    @property
    def relaxed(self) -> bool:
        """Little waits: whoever was held may go on. Room is waited for under ``block`` only."""
        if self.answers * 2 > ANSWERS_LIMIT or self.answers_size * 2 > ANSWERS_BYTES:
            return False
        return self.policy is not Policy.BLOCK or (
            self.packets * 2 <= min(self.max_packets, AHEAD_PACKETS)
            and self.size * 2 <= min(self.max_size, AHEAD_BYTES)
        )

    @property
    def wants_rest(self) -> bool:
        """So many answers are unread that the client is to ask for no more."""
        return self.answers > ANSWERS_LIMIT or self.answers_size > ANSWERS_BYTES

    @property
    def held(self) -> int:
        """Bytes that it holds, with the memory that the entries take."""
        return self.size + self.answers_size + (self.entries + self.answers) * ENTRY_BYTES + self.left

    @property
    def waiting(self) -> int:
        """The same without what is left."""
        return self.held - self.left

    @property
    def givable(self) -> int:
        """What it gives to a client of its user: nothing of what publishers wait for (``block``), within the client's
        limits and what some reads of theirs bring beyond; nor what is left of a publisher that reads its answers.
        """
        if self.policy is Policy.BLOCK and self.size <= self.max_size + BEYOND_BYTES:
            return 0
        return self.held if self.answers else self._droppable

    @property
    def _droppable(self) -> int:
        return self.size + self.entries * ENTRY_BYTES

    def can_hold(self, entry: bytes | CountedPack) -> bool:
        """Whether it could be queued if nothing else were."""
        return _messages(entry) <= self.max_packets and len(entry) <= self.max_size

    def put(self, entry: bytes | CountedPack, *, publisher_waits: bool = False) -> Outcome:
        """Queue a message, or a PACK of them, by the client's policy.

        ``publisher_waits``: the publisher can be held, so that under ``block`` the message is taken beyond the
        limit; the messages read from it with one call are the most by which it passes the limit.
        """
        size, messages = len(entry), _messages(entry)
        if self._lacks_room(size, messages):
            if self.policy is Policy.DISCONNECT:
                return Outcome.OVERFLOW
            if self.policy is Policy.DROP_OLDEST and self._could_have_room(entry):
                while self._drop_oldest():
                    if not self._lacks_room(size, messages):
                        self._append(entry, size, messages)
                        return Outcome.DROPPED
            if self.policy is not Policy.BLOCK or not publisher_waits:
                self._drop_newest(messages)
                return Outcome.DROPPED
        self._append(entry, size, messages)
        return Outcome.QUEUED

    def put_group(self, packets: Sequence[bytes], size: int) -> bool:
        """The same for messages that come together, ``size`` bytes in all, at a fraction of the cost, if all can be
        queued; else False, and nothing was done."""
        messages = len(packets)
        if self._lacks_room(size, messages, messages):
            if self.policy is not Policy.DROP_OLDEST:
                return False
            if messages > self.max_packets or size > self.max_size:
                return self._put_end(packets)
            if self._ledger.excess(size, messages) > self.size + self.entries * ENTRY_BYTES:
                return False
            self._make_room(size, messages)
        self._entries.extend(packets)
        self._account(size, messages, messages)
        return True

    def _put_end(self, packets: Sequence[bytes]) -> bool:
        """Queue as many of the last messages as can be held, as if each had displaced the oldest; or return False."""
        sizes = list(accumulate(map(len, islice(reversed(packets), self.max_packets))))
        count = bisect_right(sizes, self.max_size)
        if (
            max(map(len, packets)) > self.max_size
            or self._ledger.excess(sizes[count - 1], count) > self._droppable
        ):
            return False
        self._make_room(self.max_size, self.max_packets)  # nothing stays
        self._gap += len(packets) - count
        self._count_dropped(len(packets) - count)
        self._entries.extend(packets[-count:])
        self._account(sizes[count - 1], count, count)
        return True

    def answer(self, packet: bytes) -> None:
        self._entries.append(_Answer(packet))
        self._account_answers(len(packet), 1)

    def keep_left(self, size: int) -> None:
        """So many bytes were read of the client and wait for its next turn; 0 for none."""
        self._ledger.left += size - self.left
        self.account.left += size - self.left
        self.left = size

    def give(self, size: int) -> int:
        """Drop messages until so many bytes are free, or none is left, by the client's policy: the oldest or the
        newest. Returns how many were lost.
        """
        before, aim = self.dropped, self.held - size
        if self.policy is Policy.DROP_OLDEST:
            while self.held > aim and self._drop_oldest():
                pass
            return self.dropped - before
        answers: list[_Answer] = []
        lost = 0
        while self._entries and self.held > aim:
            entry = self._entries.pop()
            if isinstance(entry, _Answer):
                answers.append(entry)
            elif isinstance(entry, _Gap):
                lost += entry.lost
            else:
                self._forget(entry)
                self._count_dropped(_messages(entry))
                lost += _messages(entry)
        if lost:
            self._entries.append(_Gap(lost))
        self._entries.extend(reversed(answers))
        return self.dropped - before

    def next_packets(self, limit: int) -> list[bytes]:
        """The next packets to send, at most ``limit``; they stay until ``sent`` says that they went."""
        packets: list[bytes] = [*self._front]
        if self._gap:
            packets.append(self._notice(self._gap))
        packets += [
            entry
            if isinstance(entry, bytes)
            else entry.packet
            if isinstance(entry, CountedPack)
            else self._notice(entry.lost)
            for entry in islice(self._entries, limit)
        ]
        return packets[:limit]

    def sent(self, count: int) -> None:
        """The first ``count`` of ``next_packets`` have gone."""
        answers = min(count, len(self._front))
        self._account_answers(-sum(map(len, self._front[:answers])), -answers)
        del self._front[:answers]
        count -= answers
        if count and self._gap:
            self._gap = 0
            count -= 1
        messages = size = 0
        for _ in range(count):
            entry = self._entries.popleft()
            if type(entry) is bytes:
                messages += 1
                size += len(entry)
            else:
                self._forget(entry)
        self._account(-size, -messages, -messages)

    def clear(self, *, gone: bool = False) -> None:
        """What was for it is dropped; ``gone``: so has the client, which is freed without a collection."""
        self._notice = b"%d".__mod__ if gone else self._notice
        self._count_dropped(self.packets)
        while self._entries:
            self._forget(self._entries.popleft())
        self._front.clear()
        self._account_answers(-self.answers_size, -self.answers)
        self._gap = 0

    def state(self) -> dict[str, Any]:
        """The queue in plain values, for a successor of this daemon: (kind, what it holds) in order.

        Everybody waits meanwhile, so messages that follow each other are one list, of which no entry is touched here.
        """
        return {
            "limits": (self.max_packets, self.max_size, self.policy.value),
            "dropped": self.dropped,
            "front": [bytes(answer) for answer in self._front],
            "gap": self._gap,
            "entries": list(self._plain_entries()),
        }

    def _plain_entries(self) -> Iterator[tuple[str, Any]]:
        if set(map(type, self._entries)) == {bytes}:  # as mostly, and that is seen at a third of the cost
            yield "messages", list(self._entries)
            return
        for kind, entries in groupby(self._entries, type):
            if kind is bytes:
                yield "messages", list(entries)
            else:
                yield from map(_plain, entries)

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a queue; whatever the limits are now, nothing of it is dropped."""
        self.max_packets, self.max_size, policy = state["limits"]
        self.policy = Policy(policy)
        self.dropped = state["dropped"]
        self._gap = state["gap"]
        self._front.extend(map(_Answer, state["front"]))
        self._account_answers(sum(map(len, self._front)), len(self._front))
        for kind, value in state["entries"]:
            if kind == "messages":
                self._entries.extend(value)
                self._account(sum(map(len, value)), len(value), len(value))
            elif kind == "answer":
                self.answer(value)
            elif kind == "gap":
                self._entries.append(_Gap(value))
            elif kind == "bundle":
                packet, messages = value
                self._append(CountedPack(packet, messages), len(packet), messages)
            else:
                self._append(value, len(value), 1)

    def _lacks_room(self, size: int, messages: int, entries: int = 1) -> bool:
        return (
            self.packets + messages > self.max_packets
            or self.size + size > self.max_size
            or self._ledger.excess(size, entries) > 0
        )

    def _could_have_room(self, entry: bytes | CountedPack) -> bool:
        """Whether dropping messages would make room; not where one alone is too large, or others took it all."""
        return self.can_hold(entry) and self._ledger.excess(len(entry)) <= self._droppable

    def _append(self, entry: bytes | CountedPack, size: int, messages: int) -> None:
        self._entries.append(entry)
        self._account(size, messages, 1)

    def _account(self, size: int, messages: int, entries: int) -> None:
        self.packets += messages
        self.size += size
        self.entries += entries
        ledger, account = self._ledger, self.account
        ledger.packets += messages
        ledger.bytes += size
        ledger.entries += entries
        account.bytes += size
        account.entries += entries

    def _account_answers(self, size: int, answers: int) -> None:
        self.answers += answers
        self.answers_size += size
        ledger, account = self._ledger, self.account
        ledger.bytes += size
        ledger.entries += answers
        account.bytes += size
        account.entries += answers

    def _forget(self, entry: bytes | CountedPack | _Gap) -> None:
        """Take what has left the entries out of the accounts."""
        if isinstance(entry, _Answer):
            self._account_answers(-len(entry), -1)
        elif not isinstance(entry, _Gap):
            self._account(-len(entry), -_messages(entry), -1)

    def _make_room(self, size: int, messages: int) -> None:
        """Drop the oldest until so many messages fit, of so many bytes; they do once all are dropped."""
        most_packets, most_bytes = self.max_packets - messages, self.max_size - size
        excess = self._ledger.excess(size, messages)
        packets, left, entries = self.packets, self.size, 0
        while packets > most_packets or left > most_bytes or excess > 0:
            entry = self._entries.popleft()
            if isinstance(entry, _Answer):
                self._front.append(entry)
            elif isinstance(entry, _Gap):
                self._gap += entry.lost
            else:
                packets -= 1 if type(entry) is bytes else _messages(entry)
                left -= len(entry)
                entries += 1
                excess -= len(entry) + ENTRY_BYTES
        dropped = self.packets - packets
        self._account(left - self.size, -dropped, -entries)
        self._gap += dropped
        self._count_dropped(dropped)

    def _drop_oldest(self) -> bool:
        """Drop the oldest entry with messages; False when there is none. Each answer is passed over at most once."""
        while self._entries:
            entry = self._entries.popleft()
            if isinstance(entry, _Answer):
                self._front.append(entry)
            elif isinstance(entry, _Gap):
                self._gap += entry.lost
            else:
                self._forget(entry)
                self._gap += _messages(entry)
                self._count_dropped(_messages(entry))
                return True
        return False

    def _drop_newest(self, messages: int) -> None:
        last = self._entries[-1] if self._entries else None
        if isinstance(last, _Gap):
            last.lost += messages
        elif last is None and self._gap:
            self._gap += messages
        else:
            self._entries.append(_Gap(messages))
        self._count_dropped(messages)

    def _count_dropped(self, messages: int) -> None:
        self.dropped += messages
        self._ledger.dropped += messages


def _messages(entry: bytes | CountedPack) -> int:
    return entry.messages if isinstance(entry, CountedPack) else 1


def _plain(entry: bytes | CountedPack | _Gap) -> tuple[str, Any]:
    """An entry that is no message."""
    if isinstance(entry, CountedPack):
        return "bundle", (entry.packet, entry.messages)
    return ("gap", entry.lost) if isinstance(entry, _Gap) else ("answer", bytes(entry))
