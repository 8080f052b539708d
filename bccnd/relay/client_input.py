"""Handles the packets that come from the local bus: those of one client at a time, as spans of the memory.

Rules
- Consecutive messages with one route are published together. Only the first on each channel is looked up, and asked
  for rights. What comes between messages (SUB, CMSG, ...) sees everything before it done.
- Reading stops early when the datagrams of this call fill their region, when a request needs the caller
  (``OfClients.asked``), when the client must read its answers first, and after STEPS: then other clients have their
  turn. The caller takes the effects and comes back with the packets that are left.
- Retained messages are delivered once their pattern is in force, a page at a time. The SUB is done again until the
  last page is out, so nothing that its client sent after it is done before. Messages of others are delivered as they
  come meanwhile; a value that such a message replaces is not delivered any more.
- A small message that was read alone, as most are where little happens, takes the shortest path (``_publish_alone``).
- A client that takes no more gets no page either, once half of its queue is full.
- A wrong packet is answered and counted, and has no other effect; only broken framing closes the client.
"""

from dataclasses import dataclass

from bccnd.errors import DeniedError, FramingError, PacketError
from bccnd.relay.answers import Answers, asked_about, calls_a_daemon
from bccnd.relay.bridge import QUESTION_STEPS, TAP_STEPS, Bridge
from bccnd.relay.control import Control
from bccnd.relay.delivery import Delivery
from bccnd.relay.effects import Spans
from bccnd.relay.moment import Moment
from bccnd.relay.pattern import is_directed, may_meet, pattern_cost
from bccnd.relay.publisher import Publisher
from bccnd.relay.retained import Kept, Scan
from bccnd.relay.router import HEARTBEATS, NOTICES, Route
from bccnd.relay.session import LINES, Format, Session
from bccnd.relay.state import LARGE, State
from bccnd.wire import sbus
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, valid_chan
from bccnd.wire.native import alike, unpack
from bccnd.wire.sbus import PACK, SECRET, Cmsg

# What a call may cost, in steps of about a quarter of a microsecond: some two milliseconds. A message is a step and
# those of its deliveries; a request is REQUEST_STEPS, and one for every 8 bytes of its answer; a channel that is
# looked up is what the search takes. Nothing that is asked for with one packet costs more than a page of rows.
STEPS = 8192
REQUEST_STEPS = 16
# What a pattern that comes or goes takes beside that, and how many of its bytes are a step.
PATTERN_STEPS = 16
PATTERN_BYTES_A_STEP = 4
# Last values in a page, and bytes of them; what it takes to look at one, and to send it.
PAGE_ROWS = 256
PAGE_BYTES = 64 << 10
LOOK_STEPS = 6
ROW_STEPS = 4
# Bytes that are looked through for lines in a step: most of them may be line ends.
LINE_BYTES_A_STEP = 16

# What is around the channel in a MSG packet, before the payload: ``MSG <chan> NUL``.
AROUND_CHAN = len(b"MSG \0")

# So many packets are enough to go on with: no more of what was read is taken apart before they are done.
APART = 4096

# What the patterns of all clients take is at most what those of so many clients may.
WHOLE = 64

# Packets of one client that are left: their spans, the index of the first, and of the first that may hold several.
Left = tuple[Spans, int, int]


@dataclass(eq=False)
class ClientInput:
    _state: State
    _publisher: Publisher
    _delivery: Delivery
    _control: Control
    _bridge: Bridge
    _answers: Answers

    def __post_init__(self) -> None:
        self._memory = self._state.memory
        self._rules = self._state.rules
        self._router = self._state.router
        self._outgoing = self._state.outgoing
        self._counters = self._state.counters
        self._taps = self._state.taps

    def read(
        self, session: Session, moment: Moment, packets: Spans, at: int = 0, flat: int = 0
    ) -> Left | None:
        """Packets of one client, read with one call, as spans of the memory.

        Returns those that are left: the caller carries out the effects and gives them back.
        """
        self._outgoing.steps = 0
        if len(packets[0]) == 1 and self._publish_alone(session, packets, moment):
            return None
        return self._read_each(session, moment, packets, at, flat)

    def _publish_alone(self, session: Session, packets: Spans, moment: Moment) -> bool:
        """Publish the only packet the shortest way, which does just what the long one would. False, and nothing is
        done, unless it is what most are that come alone: a small message on a simple channel that was looked up.
        """
        (start,), (end,) = packets
        if end - start > self._rules.small or self._taps:
            return False
        # Whatever the format of the client: nothing with a NUL consists of lines, and no PACK begins with MSG.
        head, nul, _ = self._memory[start:end].partition(b"\0")
        word, _, chan = head.partition(b" ")
        route = self._router.cached.get(chan)
        if route is None or not (route.simple and session.rights.publish_all and word == b"MSG" and nul):
            return False
        self._outgoing.steps = route.steps
        self._counters.published += 1
        session.published += 1
        self._publisher.publish_alone(session, route, packets, moment)
        return True

    def _read_each(self, session: Session, moment: Moment, packets: Spans, at: int, flat: int) -> Left | None:
        outgoing, published_before = self._outgoing, session.published
        several = session.packed or session.format is LINES
        starts, ends = packets
        count = len(starts)
        while at < count:
            if several and at >= flat:
                packets, flat = self._taken_apart(session, starts[at:], ends[at:])
                (starts, ends), at, count = packets, 0, len(packets[0])
                if outgoing.steps >= STEPS:
                    break
                continue
            index = at
            try:
                chan, end = self._head(session, starts[at], ends[at])
                if chan is not None or self._bridge.is_datagram(starts[at], ends[at]):
                    at = self._publish(session, packets, at, chan, end, moment)
                    if at < count and not (outgoing.room and outgoing.steps < STEPS):
                        break
                else:
                    at += 1
                    outgoing.steps += REQUEST_STEPS
                    self._publisher.flush(moment)
                    if self._is_typed_ahead(session, starts[index], end):
                        lines = self._lines(starts[index], end)
                        packets = starts, ends = lines[0] + starts[at:], lines[1] + ends[at:]
                        index, at, flat, count, end = 0, 1, len(lines[0]), len(starts), ends[0]
                    self._other(session, starts[index], end, moment)
                    several = session.packed or session.format is LINES
                    if session.scan is not None:
                        at -= 1  # the SUB again
                        if session in session.waits_for:
                            break
                    if outgoing.is_asked or outgoing.steps >= STEPS or session.outbox.wants_rest:
                        break
            except PacketError as error:
                at = count if isinstance(error, FramingError) else index + 1  # what follows cannot be trusted
                outgoing.steps += REQUEST_STEPS
                self._refuse(session, error, moment)
                several = session.packed or session.format is LINES  # a typed SUB chooses it, refused or not
                if outgoing.steps >= STEPS or session.outbox.wants_rest:
                    break
        self._publisher.flush(moment)
        self._counters.published += session.published - published_before
        return (packets, at, flat) if at < count else None

    def _taken_apart(self, session: Session, starts: list[int], ends: list[int]) -> tuple[Spans, int]:
        """The same packets with the first ones taken apart, PACKs and the lines of a client in that format; and how
        many packets these have become. A PACK that is broken stays as it is.
        """
        memory = self._memory
        flat: Spans = [], []
        done = 0
        for start, end in zip(starts, ends, strict=True):
            if len(flat[0]) >= APART or self._outgoing.steps >= STEPS:
                break
            inside: Spans | None = None
            if session.packed and end - start >= len(PACK) and memory[start : start + len(PACK)] == PACK:
                inside = unpack(memory, start, end)
            elif session.format is LINES:
                inside = self._lines(start, end)
            flat[0].extend(inside[0] if inside else [start])
            flat[1].extend(inside[1] if inside else [end])
            done += 1
        return (flat[0] + starts[done:], flat[1] + ends[done:]), len(flat[0])

    def _is_typed_ahead(self, session: Session, start: int, end: int) -> bool:
        """Whether the first packet of a shell goes on with other lines behind its SUB."""
        if session.format_chosen or session.packed or session.format is LINES:
            return False
        return self._memory[start : start + 4] == b"SUB " and len(self._lines(start, end)[0]) > 1

    def _lines(self, start: int, end: int) -> Spans:
        """What a shell writes at once is read at once: each line is a packet."""
        spans = sbus.lines(self._memory[start:end])
        if spans != [(0, end - start)]:
            self._outgoing.steps += (end - start) // LINE_BYTES_A_STEP
        return [start + first for first, _ in spans], [start + last for _, last in spans]

    def _publish(
        self, session: Session, packets: Spans, first: int, chan: bytes | None, end: int, moment: Moment
    ) -> int:
        """Publish a MSG packet, and those that follow it with the same route; or datagrams of elsewhere, if there is
        no channel. ``end``: of the first. Returns the index of the next.
        """
        if chan is None:
            self._outgoing.steps += REQUEST_STEPS
            return self._bridge.take(session, packets, first, STEPS, moment, self._refuse)
        memory, (starts, ends) = self._memory, packets
        ends[first] = end  # without the end of a typed line
        size = ends[first] - starts[first]
        route, longest = self._publishable(session, chan, size)
        after, count = first + 1, len(starts)
        # What its length costs, and its taps; and about as much for those like it.
        more = route.size * (size // LARGE) if size >= LARGE else 0
        asks = not route.ordinary and calls_a_daemon(chan)
        if self._taps and not route.private:
            more += TAP_STEPS * len(self._taps)
        if asks:
            self._check_question(session, chan, memory[starts[first] + len(chan) + AROUND_CHAN : ends[first]])
            more += QUESTION_STEPS
        steps = route.steps + more
        if after < count and not asks:
            after = self._alike(session, packets, first, chan, route, longest, route.shared_steps + more)
            if after > first + 1:
                steps = (route.shared_steps + more) * (after - first) + len(route.packed)
        session.published += after - first
        self._outgoing.steps += steps
        if first or after < count:
            packets = starts[first:after], ends[first:after]
        self._publisher.publish(session, route, packets, session, moment)
        if route.noted:
            for start, end in zip(*packets, strict=True):
                chan, _, payload = memory[start + 4 : end].partition(b"\0")
                if not chan.startswith(HEARTBEATS):
                    self._answers.request(session.name, chan, payload, moment)
        return after

    def _alike(
        self,
        session: Session,
        packets: Spans,
        first: int,
        chan: bytes,
        route: Route,
        longest: tuple[int, int],
        cost: int,
    ) -> int:
        """Up to which index packets are published with the first; ``cost``: of each, in steps."""
        memory, (starts, ends) = self._memory, packets
        several = route.open and session.rights.publish_all and not route.noted
        routes = self._router.cached if several else {chan: route}
        # No further than there is room or time: each part of many messages would cost as much as all of them.
        most = (STEPS - self._outgoing.steps) // cost
        if not route.local:
            most = min(most, self._outgoing.room)
        if len(starts) - first <= most:
            return alike(memory, packets, first + 1, routes, route, longest)
        if most > 1:
            near = slice(first, first + most)
            return first + alike(memory, (starts[near], ends[near]), 1, routes, route, longest)
        return first + 1

    def _head(self, session: Session, start: int, end: int) -> tuple[bytes | None, int]:
        """The channel of a MSG packet, None for another packet; and where the packet ends."""
        memory = self._memory
        nul = memory.find(b"\0", start, end)
        if nul >= 0:
            head = memory[start:nul]
            return head[4:] if head[:4] == b"MSG " else None, end
        if memory[start : min(start + 4, end)] != b"MSG ":
            return None, end
        if session.format is not LINES:
            raise PacketError("bad-packet", "packet: MSG needs a NUL between channel and payload")
        message = sbus.Msg.parse_line(memory[start + 4 : end])
        nul = start + 4 + len(message.chan)
        memory[nul : nul + 1] = b"\0"
        return message.chan, nul + 1 + len(message.payload)

    def _publishable(self, session: Session, chan: bytes, size: int) -> tuple[Route, tuple[int, int]]:
        """The route of ``chan``, and how long a MSG packet to it, and its payload, may be.

        ``size``: of the whole packet.
        """
        rules = self._rules
        route = self._router.cached.get(chan)
        if route is None or not (route.open and session.rights.publish_all):
            route = self._permitted(session, chan)
        if route.local:
            limit, payload = rules.options.limits.local_payload, size - len(chan) - AROUND_CHAN
            if payload > limit:
                raise _too_large(chan, payload, "of payload", limit, cut=size > rules.packet_limit)
            return route, (rules.packet_limit, limit)
        # Beside the envelope and "<src>:<seq>:" a datagram has as many bytes as the packet but for "MSG ".
        around = rules.integrity.overhead + len(b"%b:%d:" % (session.name, session.seq)) - len(b"MSG ")
        if size + around > SEND_LIMIT:
            digit = size + around - rules.integrity.overhead > 9999  # the length of the body has one more
            cut = size > rules.packet_limit
            raise _too_large(chan, size + around + digit, "on the wire", SEND_LIMIT, cut=cut)
        return route, (SEND_LIMIT - around, SEND_LIMIT)

    def _permitted(self, session: Session, chan: bytes) -> Route:
        """The route of ``chan``, which may be no channel, and not the client's to publish on."""
        route = self._router.known(chan)
        if route is None and not valid_chan(chan):
            shown = chan[:64].decode("ascii", "backslashreplace")
            raise PacketError(
                "bad-channel", f"MSG {shown}: 1 to {CHAN_LIMIT} ASCII characters, no white space, ':', '|'"
            )
        if chan.startswith(SECRET):
            text = f"MSG {chan.decode()}: a secret key of sbus; nothing on it is delivered or sent"
            raise PacketError("bad-channel", text)
        if not session.rights.may_publish(chan):
            raise DeniedError("publish", f"MSG {chan.decode()}: no right to publish there")
        if chan.startswith(NOTICES):
            raise DeniedError("publish", f"MSG {chan.decode()}: only the daemon publishes there")
        if route is None:
            route = self._router.route(chan)
        return route

    def _check_question(self, session: Session, chan: bytes, request: bytes) -> None:
        """Refuse a request to daemons about a channel that the client has no right to ask about."""
        about = asked_about(request)
        if about is not None and (about.startswith(SECRET) or not session.rights.may_publish(about)):
            text = f"MSG {chan.decode()}: no right to publish on {about.decode()}, which it asks about"
            raise DeniedError("publish", text)

    def _other(self, session: Session, start: int, end: int, moment: Moment) -> None:
        """Anything but MSG. A refusal names the packet that it answers."""
        packet, named = sbus.parse(self._memory[start:end]), b"packet"
        try:
            match packet:
                case sbus.Sub(pattern, typed):
                    named = b"SUB " + pattern
                    self._subscribe(session, pattern, typed, moment)
                case sbus.Unsub(pattern):
                    named = b"UNSUB " + pattern
                    self._outgoing.steps += PATTERN_STEPS + len(pattern) // PATTERN_BYTES_A_STEP
                    self._router.unsubscribe(session, pattern)
                case Cmsg(key):
                    named = b"CMSG " + key
                    self._control.answer(session, packet, moment)
                case sbus.Pack() if session.packed:
                    raise FramingError("bad-packet", "one PACK inside another")
                case sbus.Pack():
                    raise PacketError("not-agreed", "PACK has to be agreed on by CMSG pack")
                case _:
                    raise PacketError("bad-packet", "RECV is what the daemon sends")
        except PacketError as error:
            error.text = f"{named[:80].decode('ascii', 'backslashreplace')}: {error.text}"
            raise

    def _subscribe(self, session: Session, pattern: bytes, typed: bool, moment: Moment) -> None:
        """Put a pattern in force, and send the first page of what it finds; or the next page, done again."""
        scan = session.scan
        if scan is None:
            self._outgoing.steps += PATTERN_STEPS + len(pattern) // PATTERN_BYTES_A_STEP
            key = session.separator, pattern
            held = key in session.subscriptions
            if not held:  # once more takes no room
                self._check_room(session, pattern)
            if typed and not session.format_chosen and session.format is not LINES:
                session.format = LINES  # a person at a terminal
                self._router.service_changed(session)
            if not session.rights.may_subscribe(pattern, session.separator):
                if is_directed(pattern):
                    raise DeniedError("bridge", "only a bridge gets what is directed to others")
                raise DeniedError("subscribe", "no right to all that it matches")
            self._router.subscribe(session, pattern)
            if held or session.tap or not self._state.retained or is_directed(pattern):
                return
            scan = self._state.retained.matching(pattern, session.separator)
            others = [other for other in session.subscriptions if other != key]
            scan.alone = not any(may_meet(pattern, other) for _, other in others)
            self._outgoing.steps += 2 * len(others)
        session.scan = scan if self._send_page(session, scan, moment) else None

    def _send_page(self, session: Session, scan: Scan, moment: Moment) -> bool:
        """Send a page of what a pattern finds of last values, but for those that another one of the client has found.
        Whether there may be more.
        """
        if session.closing or (scan.separator, scan.pattern) not in session.subscriptions:
            return False
        outgoing, outbox = self._outgoing, session.outbox
        # What fits, and one row in any case: a client that takes little is to get to the end, too.
        most = max(1, min(PAGE_ROWS, outbox.max_packets // 2, outbox.max_packets - outbox.packets))
        room = min(PAGE_BYTES, outbox.max_size // 2, outbox.max_size - outbox.size)
        packets: list[bytes] = []
        for row in scan:
            outgoing.steps += LOOK_STEPS
            if row and (scan.alone or self._router.matching(session, row[0]) == 1):
                packet = _retained_packet(session.format, *row)
                outgoing.steps += ROW_STEPS * (1 + len(packet) // LARGE)
                room -= len(packet)
                if packets and room < 0:
                    scan.place = row[0]  # the first of the next page
                    break
                packets.append(packet)
            if len(packets) == most or outgoing.steps >= STEPS:
                break
        if packets:
            self._delivery.send(session, packets, None, moment.monotonic)
            half_full = outbox.packets * 2 >= outbox.max_packets or outbox.size * 2 >= outbox.max_size
            if half_full and scan.place is not None:
                self._delivery.holding.hold(session, session, moment.monotonic)
        return scan.place is not None

    def _check_room(self, session: Session, pattern: bytes) -> None:
        """Patterns are bounded in number and bytes: those of a client, and those of all.

        A user must leave as much free as it takes. So it has at most half of the whole, and the user with most is
        refused first. Each user always has a part as large as if there were one user for each client.
        """
        limits, size = self._rules.options.limits, pattern_cost(pattern)
        if len(session.subscriptions) >= limits.subscriptions:
            raise PacketError("limit", f"at most {limits.subscriptions} patterns a client")
        if session.footprint + size > limits.subscription_bytes:
            raise PacketError(
                "limit", f"the patterns of a client take at most {limits.subscription_bytes} bytes"
            )
        whole, uid = limits.subscription_bytes * WHOLE, session.peer.uid
        of_user, left = self._router.footprints[uid] + size, whole - self._router.footprint - size
        if of_user > max(left, whole // limits.clients):
            raise PacketError("limit", "the patterns of a user take at most as much as they leave for others")

    def _refuse(self, session: Session, error: PacketError, moment: Moment) -> None:
        self._publisher.flush(moment)
        self._counters.errors += 1
        if isinstance(error, DeniedError):
            error.text += self._state.rules.access.missed(session.peer)
            first = error.right not in session.refused
            self._state.refusals.count(session.name, session.peer, error.right, error.text, first=first)
            session.refused.add(error.right)
        text = str(error).encode("ascii", "backslashreplace")
        self._delivery.answer(session, Cmsg(b"error", text), moment)
        if isinstance(error, FramingError):
            self._delivery.close(session, "framing")


def _retained_packet(form: Format, chan: bytes, message: Kept) -> bytes:
    if form is Format.FULL:
        return message.recv().serialize()
    return message.msg(chan).serialize_line() if form is LINES else message.msg(chan).serialize()


def _too_large(chan: bytes, size: int, what: str, limit: int, *, cut: bool) -> PacketError:
    """``cut``: the rest of the packet was cut off when it was read, all but a byte too many."""
    found = f"more than {size - 1}" if cut else str(size)
    return PacketError("too-large", f"MSG {chan.decode()}: {found} bytes {what}, at most {limit}")
