"""A stream ``REPLAY``: what the recorder wrote, and then, if no end is given, the live bus, without a gap.

    asking --> reading ---------------------------------> over          with an end
                  |                                        ^
                  +--> holding --> following --------------+            without one

Rules
- The daemon decides whether this user has the right, as for any client: the link subscribes, and asks who it is. It
  asks again every RIGHTS_SECONDS. Messages that come while it only reads are not passed on.
- The newest messages are in no file yet. So it reads to the end of the last file, subscribes, and *holds* what comes.
  It reads on as files appear, until the record has reached the time at which it subscribed. Then come the held
  messages that were not in the record, and then the live ones.
- A portion that is read while it holds waits for an answer of the daemon. Everything that the daemon sent before is
  then held, so a message in both is recognized by its key, and passed on once.
- What it holds is bounded. A held message that is dropped sets a time that the record has to reach. So nothing is
  missing, and a reader slower than the bus goes on with files.
- If the recorder does not go on (SEAM_SECONDS), the peer is told from when to when nothing is recorded.
- A portion is read when the peer has taken the one before; the daemon is read as for any other reader.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from bccnd.mux import limits
from bccnd.mux.portion import ITEM_BYTES, Portion, key_of, time_of, unrecorded
from bccnd.mux.span import SECOND_NS, Span
from bccnd.mux.speakers import BATCH, WENT_AWAY, Connect, Reader, Room, refusal
from bpmux.entities import Channel

# Its answer shows whether anything sent before was refused, and whose record this is.
BARRIER = b"CMSG whoami"
UNWRITTEN = "the recorder has not written it"


class Tape(Protocol):
    """The source of portions: ``bccnd.mux.archive.Loan``."""

    def now(self) -> int: ...

    def begin(self, host: str, span: Span) -> None: ...

    def next(self, taker: Callable[[Portion | bytes], None]) -> None: ...

    def after(self, seconds: float, callback: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class Replay(Reader):
    """The stream carries RECV, and the notices ``unrecorded`` and ``dropped``."""

    def __init__(self, room: Room, entity: Channel, connect: Connect, span: Span, tape: Tape) -> None:
        super().__init__(room, entity)
        self._span, self._tape = span, tape
        self._items: deque[bytes] = deque()  # for the peer
        self._weight = 0
        self._begun = self._is_asking = self._is_reading = self._is_waiting = False
        self._asked_ns = 0
        self._portion: Portion | None = None  # waits for the daemon's answer
        self._reached = span.from_ns
        self._at_end = self._is_written = self._is_drained = False
        self._looks = 0  # looks without a new file
        # The time that the record has to reach: the end, if there is one; else that of the SUB, or of what it could
        # not hold.
        self._needs = span.to_ns
        self._held: OrderedDict[bytes, bytes] | None = None
        self._held_bytes = 0
        self._follows = False
        self._last_word: bytes | None = None
        self._link = connect(self)
        self._weigh(limits.REPLAY_BYTES)

    # --- the link ---

    def joined(self) -> None:
        self._link.send((b"CMSG format\0full",))
        self._ask()

    def appetite(self) -> int:
        if self._follows:
            return super().appetite()
        is_unsent = self._items or self._rest
        return BATCH if self._held is None or not is_unsent else 0

    def received(self, packets: list[bytes]) -> None:
        if self._follows and not self._items and all(map(_is_message, packets)):  # nearly always
            self._forward(packets)
            return
        for packet in packets:
            if packet.startswith(b"RECV "):
                self._heard(packet)
            elif packet.startswith(b"CMSG dropped\0"):
                if self._follows:
                    self._put(packet)
                else:
                    self._needs_now()
            elif packet.startswith(BARRIER + b"\0"):
                self._answered(packet.partition(b"\0")[2])
            elif reason := refusal(packet):
                self._end_with(reason)
            if self._is_over:
                return
        self._pump()

    def ended(self, reason: bytes = WENT_AWAY) -> None:
        self._end_with(reason)

    def _end_with(self, reason: bytes) -> None:
        """End with this reason, once everything for the peer is passed on."""
        if self._last_word is None:
            self._last_word = reason
            self._pump()

    def _heard(self, packet: bytes) -> None:
        if not _is_message(packet):
            return
        if self._follows:
            self._put(packet)
        elif self._held is not None and (key := key_of(packet)) not in self._held:
            self._held[key] = packet
            self._hold(len(packet) + ITEM_BYTES)
            while self._held_bytes > limits.SEAM_BYTES:
                _, oldest = self._held.popitem(last=False)
                self._hold(-len(oldest) - ITEM_BYTES)
                self._needs = max(self._needs or 0, time_of(oldest))

    # --- to ask ---

    def _ask(self) -> None:
        """Ask whether this user has the right; while it holds, the answer also marks what has come until now."""
        self._is_asking = True
        sub = b"SUB " + self._span.pattern.encode()
        packets = [BARRIER] if self._held is not None else [sub, BARRIER, b"UN" + sub]
        if self._link.send(packets) != len(packets):
            self._end_with(b"unavailable the daemon takes nothing")

    def _answered(self, name: bytes) -> None:
        self._is_asking = False
        self._asked_ns = self._tape.now()
        if not self._begun:
            self._begun = True
            self._tape.begin(name.partition(b"/")[0].decode("ascii", "replace"), self._span)
        if self._held is not None and self._needs is None:
            self._needs_now()
        if self._portion is not None:
            portion, self._portion = self._portion, None
            self._weigh(-portion.weight)
            self._merge(portion)

    def _needs_now(self) -> None:
        self._needs = self._tape.now()

    def _subscribe(self) -> None:
        """Hold what comes from now on. The time of the answer is no earlier than that of the SUB."""
        self._held = OrderedDict()
        self._is_asking = True
        if self._link.send((b"SUB " + self._span.pattern.encode(), BARRIER)) != 2:
            self._end_with(b"unavailable the daemon takes nothing")

    # --- to read ---

    def _go(self) -> None:
        """Decide what is next: nothing is left for the peer."""
        if not self._begun or self._is_asking or self._is_reading or self._is_waiting or self._follows:
            return
        now = self._tape.now()
        if self._held is None and abs(now - self._asked_ns) > limits.RIGHTS_SECONDS * SECOND_NS:
            self._ask()
        elif not self._at_end:
            self._is_reading = True
            self._tape.next(self._has_read)
        elif self._needs is None:
            self._subscribe()
        elif self._reached >= self._needs:
            self._arrive()
        elif self._is_written and self._looks * limits.LOOK_SECONDS < limits.SEAM_SECONDS:
            self._looks += 1
            self._is_waiting = True
            self._tape.after(limits.LOOK_SECONDS, self._look)
        else:
            self._put(unrecorded(self._reached, self._needs, UNWRITTEN)[1])
            self._reached = self._needs
            self._pump()

    def _look(self) -> None:
        self._is_waiting = self._at_end = False
        self._pump()

    def _has_read(self, found: Portion | bytes) -> None:
        self._is_reading = self._is_drained = False
        if self._is_over:
            return
        if isinstance(found, bytes):
            self._end_with(found)
            return
        if not found.is_last:
            self._looks = 0
        if self._held is None or not found.items:
            self._merge(found)
        else:
            self._portion = found
            self._weigh(found.weight)
            self._ask()
        self._pump()

    def _merge(self, portion: Portion) -> None:
        self._reached = portion.reached_ns
        self._at_end, self._is_written = portion.is_last, portion.is_written
        for key, packet in portion.items:
            if self._held and (held := self._held.pop(key, None)) is not None:
                self._hold(-len(held) - ITEM_BYTES)
            self._put(packet)

    def _arrive(self) -> None:
        """The record has reached its time, unless the daemon has reported more to reach meanwhile."""
        if self._held is None:
            self._end_with(b"")
            return
        if not self._is_drained:
            self._is_drained = True
            self._ask()
            return
        self._follows = True
        for packet in self._held.values():
            self._put(packet)
        self._hold(-self._held_bytes)
        self._held = None
        self._pump()

    # --- the peer ---

    def _put(self, packet: bytes) -> None:
        self._items.append(packet)
        self._weigh(len(packet) + ITEM_BYTES)

    def _pump(self) -> None:
        """Pass on as much as there is credit for."""
        items = self._items
        while items and not self._is_over and (most := super().appetite()):
            packets = [items.popleft() for _ in range(min(most, len(items)))]
            self._weigh(-sum(map(len, packets)) - ITEM_BYTES * len(packets))
            self._forward(packets)
        if self._is_over or items or self._rest:
            return
        if self._last_word is not None:
            self.end(self._last_word)
        else:
            self._go()
            if not self._is_over:
                self._link.read_on()

    def go_on(self) -> None:
        if not self._is_over:
            self._forward_rest()
            self._pump()

    def _drop(self) -> None:
        if not self._is_over:
            self._tape.close()
            self._items.clear()
            self._held = self._portion = None
            self._weigh(-self._weight)
        super()._drop()

    def _hold(self, amount: int) -> None:
        self._held_bytes += amount
        self._weigh(amount)

    def _weigh(self, amount: int) -> None:
        self._weight += amount
        self._room.weigh(amount)


def _is_message(packet: bytes) -> bool:
    """Whether it is on a plain channel, and no last value, which is older. A SUB brings directed messages, too."""
    return (
        packet.startswith(b" ok\0", packet.find(b"\0") - 3) and packet.find(b":!", 0, packet.find(b"|")) < 0
    )
