"""A client of a fyrehose backbone that carries the datagrams of a link (``bccnd/wire/FYREHOSE.md``, "The client").

    publish --> window --> PUSH       DELIVER --> is it ours? --> published
                                              '-> was it missing? --> came, and into the archive
    a number left out --> missing --> REQUEST     FORWARD --> the archive --> DELIVERs to who misses them

Rules
- It has no socket, clock or loop. Packets and monotonic time come in; ``take`` returns what to send, and
  ``next_deadline`` says when to call ``on_deadline``.
- The position of a message is its number, below 2**48. Each time numbers start again, as after a restart of a
  backbone without a state file, positions rise by 2**48: so they never fall, not even in a journal.
- A DELIVER is taken from the backbone, or, for a number that was asked for, from anybody: other clients answer.
  Everything else is taken only from the backbone, and an acknowledgement only with a TOKEN that was sent.
- A number far ahead or behind is believed only when SUSPECTS others are near it, and nothing plausible came in
  between. So one forged or late packet can neither restart numbers nor open a long gap. Until then such messages
  wait, and none is lost. The client knows a duplicate far behind by the hashes that it keeps.
- A KEEPALIVE without an answer is soon followed by another: a restarted backbone knows no clients. As soon as a
  silent backbone answers, everything is pushed again.
- When no KEEPALIVE was answered in the time of ``unanswered`` of them, the client is cut off: nothing is pushed or
  asked for until one is answered. Then everything that was under way is sent and asked for again.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from bccnd.errors import FyrehoseError
from bccnd.uplink.carrier import Archive, Facts, Hearer
from bccnd.uplink.fyrehose_answers import Answers
from bccnd.uplink.fyrehose_missing import AGAIN_LEAST, Missing
from bccnd.uplink.fyrehose_window import RoundTrip, Window
from bccnd.wire.fyrehose import (
    ITSELF,
    SEQ_LIMIT,
    Ack,
    Address,
    Deliver,
    Forward,
    Keepalive,
    Push,
    Request,
    parse,
    token_of,
)

# A message that is ahead by at most so many numbers is believed at once: twice what a backbone skips in a crash.
LEAP = 1 << 21
# How far behind a late duplicate may be if nothing is known about it; and the numbers whose messages are known.
LATE, RECENT = 1024, 4096
# Messages far from all others, until they are believed.
SUSPECTS = 3
# Numbers that may have been missed before the client noticed that they started again.
BEFORE = 256
# KEEPALIVEs in the time of one, while none is answered; and those whose acknowledgement is still recognized.
SOONER, TOKENS = 4, 32
# Intervals of KEEPALIVEs in which nothing came, after which the backbone may have been started again, and those
# without an acknowledgement, after which a request may not have reached it.
SILENT, ALIVE = 1.5, 2.5
# The limit of positions in a journal, which have 63 bits.
ERAS = 1 << 15

_TIME = Struct(">Q")


@dataclass(frozen=True, slots=True)
class Options:
    """``key``: the key that a TOKEN proves, if any; ``keepalive``: seconds between two KEEPALIVEs; ``unanswered``:
    after the time of so many without an answer, the client is cut off; ``tries``, ``patience``: a missing number is
    given up after so many requests, or seconds.
    """

    key: bytes = b""
    keepalive: float = 0.5
    unanswered: int = 8
    tries: int = 24
    patience: float = 10.0


class Client:
    """``chance``: a random number from 0 to 1; ``secret``: 16 random bytes or more, which make a TOKEN hard to guess
    where there is no key. ``strays``: packets dropped since the start.
    """

    def __init__(
        self, options: Options, hearer: Hearer, archive: Archive, chance: Callable[[], float], secret: bytes
    ) -> None:
        self._options, self._hearer, self._archive, self._chance = options, hearer, archive, chance
        self._key = options.key or secret
        self._round_trip = RoundTrip()
        self._window = Window(self._round_trip)
        self._answers = Answers(archive)
        self._missing: Missing | None = None
        self._past = Facts("")
        self._base = 0
        self._backbone, self._own = ITSELF, ITSELF
        self._packets: list[tuple[bytes, Address]] = []
        self._tokens: dict[bytes, float] = {}  # without an acknowledgement, and when each was sent
        self._acknowledged_at = self._heard_at = float("-inf")
        self._beat_at = float("inf")
        self._suspects: dict[int, bytes] = {}
        self._recent: list[tuple[int, int]] = []  # number -> itself, and the hash of its message
        self._full = False
        self._told = -1
        self.connected = False
        self.strays = 0

    # -- the carrier

    @property
    def room(self) -> int:
        return self._window.room if self.connected else 0

    def publish(self, number: int, datagram: bytes, now: float) -> None:
        self._window.publish(number, datagram)
        self._push(now)

    def say(self, datagram: bytes) -> None:
        if self.connected:
            self._send(Push(datagram).serialize())

    def facts(self, reason: str = "") -> Facts:
        """``reason``: why the driver considers the client cut off."""
        past, missing = self._past, self._missing
        if not self.connected:
            reason = reason or "no answer from the backbone"
        return Facts(
            "" if self.connected else reason,
            self._round_trip.smoothed,
            missing.behind if missing else 0,
            past.asked + (missing.asked if missing else 0),
            past.repaired + (missing.repaired if missing else 0),
            past.lost + (missing.lost if missing else 0),
            self._answers.answered,
            self._window.repeated,
            past.skipped + (missing.skipped if missing else 0),
        )

    # -- what the driver calls

    def begin(self, position: int) -> None:
        """Deliver positions from here on; 0 for what comes from now on."""
        self._retire()
        self._told = -1
        if position:
            self._base = position - position % SEQ_LIMIT
            self._missing = self._of_era(position % SEQ_LIMIT)

    def move(self, backbone: Address, own: Address, now: float) -> None:
        """The address of the backbone is known, or has changed; ``own``: this client's address, as far as known."""
        self._backbone, self._own = backbone, own
        self._beat_at = now
        self.on_deadline(now)

    def receive(self, packets: Iterable[tuple[bytes, Address]], now: float) -> None:
        """Take a packet, with its sender."""
        for packet, source in packets:
            try:
                self._receive(packet, source, now)
            except FyrehoseError:
                self.strays += 1
        self._work(now)

    def leave(self) -> None:
        """Send nothing more until ``move``."""
        self._beat_at = float("inf")
        self._cut_off()

    def take(self) -> list[tuple[bytes, Address]]:
        """The packets to send, each with its address."""
        taken, self._packets = self._packets, []
        return taken

    def next_deadline(self) -> float:
        due = min(self._beat_at, self._answers.next_deadline())
        if self.connected:
            due = min(due, self._window.next_deadline())
            if self._missing is not None:
                due = min(due, self._missing.next_deadline())
        return due

    def on_deadline(self, now: float) -> None:
        if now >= self._beat_at:
            self._beat(now)
        self._work(now)

    # -- what comes

    def _receive(self, packet: bytes, source: Address, now: float) -> None:
        found = parse(packet)
        trusted = source == self._backbone
        silent = now - self._heard_at > SILENT * self._options.keepalive
        if trusted:
            self._heard_at = now
        if isinstance(found, Deliver):
            self._deliver(found.seq, found.data, now, trusted=trusted)
        elif isinstance(found, Ack) and trusted:
            self._acknowledged(found.token, now, silent=silent)
        elif isinstance(found, Forward) and trusted and self._may_answer(found.address):
            self._answers.ask(found.address, found.first, found.last, now)
        else:
            self.strays += 1

    def _deliver(self, seq: int, data: bytes, now: float, *, trusted: bool) -> None:
        missing = self._missing
        if missing is None and trusted and seq:
            missing = self._missing = self._of_era(seq)
        if missing is None or not seq or not (trusted or missing.is_asked_for(seq)):
            self.strays += 1
            return
        number = self._window.came(data, now)
        if number is not None:
            self._hearer.published(number)
        if missing.next <= seq < missing.next + LEAP or seq in missing:
            self._suspects.clear()
            self._take(missing, seq, data, now, ours=number is not None)
        elif not self._is_duplicate(missing, seq, data):
            self._suspect(missing, seq, data, now)

    def _take(self, missing: Missing, seq: int, data: bytes, now: float, *, ours: bool) -> None:
        position = self._base + seq
        if seq >= missing.next and not ours and missing.catches_up:
            missing.defer(seq, now)
            self._archive.keep(position, data)
        elif missing.take(seq, now):
            self._recent[seq % RECENT] = seq, hash(data)
            self._archive.keep(position, data)
            if not ours:
                self._hearer.came(position, data)

    def _is_duplicate(self, missing: Missing, seq: int, data: bytes) -> bool:
        if seq >= missing.next:
            return False
        known, digest = self._recent[seq % RECENT]
        if known == seq:
            return digest == hash(data)
        kept = self._archive.kept(self._base + seq, self._base + seq)
        return kept[0][1] == data if kept else missing.next - seq <= LATE

    def _suspect(self, missing: Missing, seq: int, data: bytes, now: float) -> None:
        """Keep a message whose number is far from all others, or belonged to another message."""
        if any(abs(seq - other) > LEAP for other in self._suspects):
            self._suspects.clear()
        self._suspects[seq] = data
        if len(self._suspects) < SUSPECTS:
            return
        believed, self._suspects = sorted(self._suspects.items()), {}
        lowest = believed[0][0]
        if lowest < missing.next:
            missing.lost += missing.behind
            self._retire()
            self._base = min(self._base // SEQ_LIMIT + 1, ERAS - 1) * SEQ_LIMIT
            missing = self._missing = self._of_era(max(1, lowest - BEFORE))
        for each, message in believed:
            self._take(missing, each, message, now, ours=False)

    def _of_era(self, first: int) -> Missing:
        """The missing numbers of an era that begins here."""
        self._recent = [(-1, 0)] * RECENT
        return Missing(first, self._chance, self._options.tries, self._options.patience)

    def _retire(self) -> None:
        """Forget what was missing; it stays counted."""
        if self._missing is not None:
            self._past = self.facts()
            self._missing = None

    def _may_answer(self, address: Address) -> bool:
        """Whether an address may get answers: not this client, the backbone, a group, or a program of this host."""
        addr, port = address
        if not port or address in (self._own, self._backbone) or addr[0] == 0 or addr[0] >= 224:
            return False
        return addr[0] != 127 or self._own[0][0] == 127

    # -- the connection

    def _beat(self, now: float) -> None:
        options = self._options
        if now - self._acknowledged_at > options.unanswered * options.keepalive:
            self._cut_off()
        token = token_of(self._key, _TIME.pack(int(now * 1e9) % (1 << 64)))
        self._tokens[token] = now
        if len(self._tokens) > TOKENS:
            del self._tokens[next(iter(self._tokens))]
        self._beat_at = now + max(options.keepalive / SOONER, 2 * (self._round_trip.smoothed or 0.0))
        self._send(Keepalive(ITSELF, 0, token).serialize())

    def _acknowledged(self, token: bytes, now: float, *, silent: bool) -> None:
        """Take an acknowledgement. ``silent``: nothing had come for a while."""
        sent = self._tokens.get(token)
        if sent is None:
            self.strays += 1
            return
        self._tokens = {each: at for each, at in self._tokens.items() if at > sent}
        self._round_trip.measured(now - sent)
        self._acknowledged_at = now
        self._beat_at = max(now, sent + self._options.keepalive)
        if not self.connected:
            self.connected = True
            self._hearer.changed()
        elif silent:
            self._window.pause()

    def _cut_off(self) -> None:
        if self.connected:
            self.connected = False
            self._window.pause()
            if self._missing is not None:
                self._missing.restart()
            self._hearer.changed()

    # -- what goes out

    def _work(self, now: float) -> None:
        """Do everything that is due, or follows from what came."""
        if self.connected:
            if self._full and self._window.opened:
                self._full = False
                self._hearer.changed()
            self._push(now)
            self._ask(now)
        self._packets += self._answers.take(self._base, now)
        if self._missing is not None and (complete := self._base + self._missing.complete) != self._told:
            self._told = complete
            self._hearer.complete(complete)

    def _push(self, now: float) -> None:
        if self.connected:
            for datagram in self._window.take(now):
                self._send(Push(datagram).serialize())
        self._full = self._full or not self._window.room  # then the core is told when there is some

    def _ask(self, now: float) -> None:
        missing = self._missing
        if missing is not None and missing.next_deadline() <= now:
            missing.pace = max(AGAIN_LEAST, 2 * (self._round_trip.smoothed or 0.0))
            missing.alive = now - self._acknowledged_at <= ALIVE * self._options.keepalive
            for first, last in missing.ask(now, self._own_archive):
                self._send(Request(ITSELF, first, last).serialize())

    def _own_archive(self, first: int, last: int) -> Iterator[int]:
        """Pass on what went only to the archive, during a catch-up or before a restart. Yields its numbers."""
        for position, datagram in self._archive.kept(self._base + first, self._base + last):
            if self._missing is not None and position - self._base in self._missing:
                self._hearer.came(position, datagram)
                yield position - self._base

    def _send(self, packet: bytes) -> None:
        self._packets.append((packet, self._backbone))
