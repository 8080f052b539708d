"""Takes datagrams of other segments from bridges, judges them like those of this one, and sends them here.

    client_input --> runs --> judged --> new: sealed with our key, and kept --> segment, clients
                                    '--> here before: kept, counted, answered now and then

Rules
- Source, number, channel and payload stay as they are, and so does the datagram if it is sealed as this segment wants
  it. It may come without a sum, or with a lesser one, and is sealed then. A sum that it has must be right.
- Consecutive datagrams of one source on one channel, numbered without a gap, are a run: judged and sealed together.
- A source may have gaps, since a bridge may leave messages out. Receivers learn at once which numbers never come
  (``gone``, after the datagrams), and which sources are relayed (``relayed``, before them, or after the first).
- A message that was here before goes nowhere: two bridges of one segment bring everything twice. It is kept all the
  same, so that this host can send all of it again, whichever bridge was first.
- The whole cost of a datagram counts in the turn of the bridge. Its entries in the tables count as the bridge's own.
"""

from collections.abc import Callable, Iterable
from math import inf

from bccnd.errors import DeniedError, PacketError, WireError
from bccnd.relay.accounts import Source
from bccnd.relay.arrivals import Arrivals
from bccnd.relay.dedup import JUMP, WINDOW
from bccnd.relay.effects import Sealed, Spans
from bccnd.relay.moment import Moment
from bccnd.relay.publisher import OK, Origin, Publisher, from_here
from bccnd.relay.repair import Repair
from bccnd.relay.router import Route
from bccnd.relay.segment_input import SegmentInput
from bccnd.relay.session import Session
from bccnd.relay.state import LOCAL_PEER, State
from bccnd.wire.batch import Run
from bccnd.wire.bccn1 import SEND_LIMIT, UNKNOWN_SRC, Opened
from bccnd.wire.repair import CHANNEL, number_payloads, relayed_payloads
from bccnd.wire.sbus import SECRET
from bccnd.wire.verdict import Verdict

# What a datagram looks like on the local socket.
BEGINNING = b"BCCN"
# Datagrams that are taken apart together: as many as receivers read with one call, so that they learn in the same
# call which numbers never come.
PART = 64
# What a run takes beside its messages in steps of the client's turn, and each message beside its deliveries.
RUN_STEPS = 40
BRIDGED_STEPS = 6
# What a message takes for each tap: the datagram is made, and shown with its verdict; and if the daemon answers it.
TAP_STEPS = 5
QUESTION_STEPS = 16
# Seconds after which it is said again that a source is relayed, as long as it speaks; and after the first time.
SAY_SECONDS, SAY_AGAIN_SECONDS = 15.0, 1.0
# Seconds between two answers to one bridge that what it brings was here before.
ANSWER_SECONDS = 1.0
# Verdicts on what was here before: a bridge need not do anything about it.
AGAIN = frozenset([Verdict.DUPLICATE, Verdict.LATE, Verdict.OWN, Verdict.REPLAYED])
# Those of them that another bridge may have brought.
BROUGHT = frozenset([Verdict.DUPLICATE, Verdict.LATE])
# What a signature adds to a datagram.
SUM_BYTES = len(":hmac=") + 16

# Answers one packet of a client with an error.
Refuse = Callable[[Session, PacketError, Moment], None]


class Bridge:
    """``region``: that of ``SegmentInput``."""

    def __init__(
        self,
        state: State,
        publisher: Publisher,
        segment: SegmentInput,
        arrivals: Arrivals,
        repair: Repair,
        region: tuple[int, int],
    ) -> None:
        self._state = state
        self._memory = state.memory
        self._rules = state.rules
        self._router = state.router
        self._sources = state.sources
        self._sent = state.sent
        self._outgoing = state.outgoing
        self._counters = state.counters
        self._publisher = publisher
        self._segment = segment
        self._arrivals = arrivals
        self._repair = repair
        self._region = region
        self._here = state.names.host.decode(), LOCAL_PEER.decode()
        # To be said behind the datagrams of this part: sources that are new, and what was left out.
        self._new: list[bytes] = []
        self._left_out: dict[bytes, list[range]] = {}

    def is_datagram(self, start: int, end: int) -> bool:
        """Whether the packet there is one for ``take``. Behind a short one may lie what is left of another."""
        return self._memory[start : min(start + len(BEGINNING), end)] == BEGINNING

    def take(
        self, session: Session, packets: Spans, first: int, most: int, moment: Moment, refuse: Refuse
    ) -> int:
        """Pass on the datagrams from packet ``first`` on, as many as there are and the call has room for, and as
        ``most`` steps allow. Returns the index of the next packet.
        """
        if not session.rights.bridge:
            raise DeniedError("bridge", "packet: no right to bridge datagrams")
        outgoing = self._outgoing
        self._publisher.flush(moment)  # the region may hold what was read before
        starts, ends = self._part(packets, first)
        parts = self._rules.bridged_codec.open(self._memory, starts, ends, self._region)
        self._say_relayed([part[1] for part in parts if not isinstance(part, int)], moment)
        done = 0
        for part in parts:
            after = part + 1 if isinstance(part, int) else part[0] + len(part[4])
            if isinstance(part, int) or not self._is_simple(session, part, starts, ends):
                while done < after and outgoing.steps < most:
                    self._alone(session, starts[done], ends[done], most, moment, refuse)
                    done += 1
            else:
                done += self._run(session, part, None, most, moment, refuse)
            if session.outbox.wants_rest:
                outgoing.steps += most  # the client is to read its answers first: its turn ends
            if done < after or not outgoing.room or outgoing.steps >= most:
                break
        self._publisher.flush(moment)
        self._say_rest(moment)
        return first + done

    def _part(self, packets: Spans, first: int) -> Spans:
        """The datagrams that are taken apart together."""
        starts, ends = packets
        after, last = first + 1, min(first + PART, len(starts))
        while after < last and self.is_datagram(starts[after], ends[after]):
            after += 1
        return starts[first:after], ends[first:after]

    def _is_simple(self, session: Session, run: Run, starts: list[int], ends: list[int]) -> bool:
        """Whether a run may go on as a whole: nothing in it is refused, and all of it is sealed anew, or would be
        sealed to the same bytes.
        """
        first, src, seq, chan, begins, afters = run
        route = self._router.cached.get(chan) or self._router.route(chan)
        if route.local or (not (route.open and session.rights.publish_all) and not _may_bring(session, chan)):
            return False
        # What the body of a datagram has beside its payload, less what its MSG packet has beside that.
        fields = len(src) + len(b"%d" % seq) + len(b"::|") - len(b"MSG \0")
        sums, longest = set(), 0
        last = first + len(begins)
        for start, end, begin, after in zip(
            starts[first:last], ends[first:last], begins, afters, strict=True
        ):
            body = after - begin + fields
            digits = 3 if 100 <= body < 1000 else len(str(body))
            sums.add(end - start - body - digits - len(b"BCCN1[]"))
            longest = max(longest, body)
        overhead = self._rules.integrity.overhead
        signed = SUM_BYTES if overhead - self._rules.bridged.overhead == SUM_BYTES else 0
        is_sealed_alike = sums in ({0}, {signed})
        return is_sealed_alike and longest + overhead <= SEND_LIMIT and src != UNKNOWN_SRC

    def _alone(
        self, session: Session, start: int, end: int, most: int, moment: Moment, refuse: Refuse
    ) -> None:
        """One datagram, of whatever kind."""
        self._outgoing.steps += RUN_STEPS
        try:
            opened, datagram = self._sealed(self._memory[start:end])
            src, seq, chan = opened[:3]
            self._check(session, chan)
            packet = self._segment.make_message(opened, start)
        except PacketError as error:
            refuse(session, error, moment)
        else:
            run = 0, src, seq, chan, [packet], [end]
            self._run(session, run, datagram, most, moment, refuse)

    def _sealed(self, datagram: bytes) -> tuple[Opened, bytes]:
        """What a datagram holds, and what it is here: the same, if it carries what is required."""
        integrity = self._rules.integrity
        _check_size(datagram)
        try:
            try:
                return integrity.open(datagram), datagram
            except WireError as error:
                if error.verdict is not Verdict.UNAUTHENTICATED:
                    raise
                opened = self._rules.bridged.open(datagram)
        except WireError as error:
            raise PacketError("bad-datagram", f"packet: {error.verdict}") from None
        sealed = integrity.seal(datagram[datagram.index(b"]") + 1 :])
        _check_size(sealed)
        return opened, sealed

    def _check(self, session: Session, chan: bytes) -> None:
        """Refuse a datagram before it leaves a trace in the table of sources."""
        if chan.startswith(SECRET):
            raise PacketError("bad-channel", "packet: a secret key of sbus is not sent")
        if chan == CHANNEL:
            raise PacketError("bad-channel", "packet: what daemons say about loss is for their own segment")
        if not _may_bring(session, chan):
            raise DeniedError("publish", "packet: no right to publish on the channel of the datagram")
        if self._router.route(chan).local:
            raise PacketError("bad-datagram", f"packet: {Verdict.LOCAL_CHANNEL}")

    def _run(
        self, session: Session, run: Run, alone: bytes | None, most: int, moment: Moment, refuse: Refuse
    ) -> int:
        """Judge a run and pass on what is new of it. Returns how many messages were done.

        ``alone``: the only one as it is to leave; None to have them sealed.
        """
        _, src, seq, chan, starts, ends = run
        outgoing, taps = self._outgoing, len(self._state.taps)
        route = self._router.cached.get(chan) or self._router.route(chan)
        cost = BRIDGED_STEPS + route.steps + TAP_STEPS * taps + QUESTION_STEPS * route.noted
        outgoing.steps += RUN_STEPS
        count = min(len(starts), max(1, min((most - outgoing.steps) // cost, outgoing.room)))
        outgoing.steps += cost * count
        done = known = 0  # from ``known`` on it was here before
        while done < count:
            source = self._sources.get(src)
            last = source.last if source else None
            verdict, same = self._segment.judge(
                src, seq + done, route, count - done, _FROM_HERE, 0, moment, self._here
            )
            after = done + same
            if verdict not in BROUGHT:
                if known < done:
                    part = starts[known:done], ends[known:done]
                    self._keep_known(session, src, seq + known, part, alone, moment)
                known = after
            if verdict is OK or verdict is None or verdict is Verdict.REPAIRED:
                strayed = source is not None and source.strays and seq + done not in source.strays
                if last is None or strayed or (source and source.last < last):  # its numbers have begun anew
                    self._sent.begin_anew(src, seq + done)
                    if source and source.brought >= seq + done:
                        source.brought = -1
                self._note_relayed(src, range(seq + done, seq + after), source, last, moment)
                part = (starts, ends) if same == len(starts) else (starts[done:after], ends[done:after])
                self._pass_on(session, src, seq + done, chan, route, part, alone, verdict, moment)
            elif verdict in AGAIN:
                self._answer_again(session, verdict, same, moment, refuse)
            else:
                for _ in range(same):
                    refuse(session, PacketError("bad-datagram", f"packet: {verdict}"), moment)
            done = after
        if known < done:
            part = starts[known:done], ends[known:done]
            self._keep_known(session, src, seq + known, part, alone, moment)
        return done

    def _pass_on(
        self,
        session: Session,
        src: bytes,
        seq: int,
        chan: bytes,
        route: Route,
        packets: Spans,
        alone: bytes | None,
        verdict: Verdict | None,
        moment: Moment,
    ) -> None:
        """New messages of one verdict: to the segment, and to the clients of this host in their turn."""
        count = len(packets[0])
        sealed: Sealed
        if alone is None:
            sealed = self._outgoing.seal(self._rules.codec, src, seq, packets)
        else:
            sealed = [alone]
            self._outgoing.add(alone)
        self._keep(session, src, seq, sealed, moment)
        session.published += count
        self._counters.bridged += count
        origin = None
        if verdict is not OK or route.whole or route.noted or self._state.taps:
            origin = Origin(sealed, source=session)
        if origin and verdict is not OK:
            self._arrivals.wait(src, seq, chan, origin, range(count), verdict is not None, moment)
            return
        self._publisher.pass_on(route, packets, session, origin, moment, 0)
        if origin and route.noted:
            self._arrivals.note(src, chan, packets, origin, 0, moment)

    def _keep_known(
        self, session: Session, src: bytes, seq: int, packets: Spans, alone: bytes | None, moment: Moment
    ) -> None:
        """Keep messages of a relayed source that another bridge of this segment has brought before."""
        source = self._sources.get(src)
        if not self._sent.on or source is None or source.relay is None:
            return
        if source.brought != -1:
            self._note_skipped(src, source, range(source.brought + 1, min(seq, source.last + 1)))
        source.brought = max(source.brought, seq + len(packets[0]) - 1)
        codec = self._rules.codec
        sealed = [alone] if alone else codec.datagrams(src, seq, self._memory, *packets)
        self._keep(session, src, seq, sealed, moment)

    def _keep(self, session: Session, src: bytes, seq: int, sealed: Sealed, moment: Moment) -> None:
        if not self._sent.on or src == UNKNOWN_SRC:
            return
        record = self._sent.get(src)
        if record is None or record.last < seq:
            self._sent.keep(src, session.peer.uid, seq, sealed, moment.monotonic)

    def _note_relayed(
        self, src: bytes, brought: range, source: Source | None, last: int | None, moment: Moment
    ) -> None:
        """Messages that were ``brought`` are new: plan what to announce about them. ``source``: the account, with
        the ``last`` number before them; None if there was none.
        """
        seq = brought.start
        if source is None or last is None:
            source = self._sources.get(src)
            if source is None:  # it has no name
                return
            last = seq - 1
        if source.relay_said == -inf:
            source.relay_said = moment.monotonic + SAY_AGAIN_SECONDS - SAY_SECONDS
            self._new.append(src)
        before = source.brought
        source.brought = max(before, brought[-1])
        if -1 < before < seq and (record := self._sent.get(src)):
            if source.gap is not None:  # what is missing here another may have brought
                record.passed = seq
            elif before < last:  # another has brought the last one
                record.passed = last + 1
        if seq - last == 1 or source.gap is not None or before == -1 or not self._sent.on:
            return
        numbers = range(max(before, last) + 1, seq)
        if numbers.start < seq < numbers.start + JUMP:
            said = self._left_out.setdefault(src, [numbers])
            if said[-1].stop <= numbers.start:
                said.append(numbers)

    def _note_skipped(self, src: bytes, source: Source, numbers: range) -> None:
        """The bridge brings numbers after these, but not these. If another may have brought one, none is gone."""
        record = self._sent.get(src)
        if not numbers or record is None:
            return
        is_told = source.gap is None and source.last - numbers.start < WINDOW
        if not is_told or source.seen >> source.last - numbers[-1] & (1 << len(numbers)) - 1:
            record.passed = max(record.passed, numbers.stop)

    def _say_relayed(self, names: Iterable[bytes], moment: Moment) -> None:
        """Announce that sources which were relayed before still are."""
        now, due = moment.monotonic, []
        for src in names:
            source = self._sources.get(src)
            if source and source.relay and -inf < source.relay_said <= now - SAY_SECONDS:
                source.relay_said = now
                due.append(src)
        for payload in relayed_payloads(due) if due else ():
            self._repair.say(payload, moment)

    def _say_rest(self, moment: Moment) -> None:
        """Announce what receivers need to know about the datagrams before this."""
        if self._new:
            new, self._new = self._new, []
            for payload in relayed_payloads(new):
                self._repair.say(payload, moment)
        if self._left_out:
            left_out, self._left_out = self._left_out, {}
            for src, numbers in left_out.items():
                if (record := self._sent.get(src)) and numbers[0].start < record.first:
                    record.passed = numbers[0].start  # it may be asked for them again
            for payload in number_payloads(b"gone", left_out.items()):
                self._repair.say(payload, moment)

    def _answer_again(
        self, session: Session, verdict: Verdict, count: int, moment: Moment, refuse: Refuse
    ) -> None:
        """Count messages that were here before, and answer some of them: another bridge brings all of them, too."""
        self._counters.bridged_again += count
        session.brought_again += count
        if moment.monotonic >= session.answered_again:
            session.answered_again = moment.monotonic + ANSWER_SECONDS
            more, session.brought_again = session.brought_again - 1, 0
            others = f", and {more} like it since the last such answer" if more else ""
            refuse(session, PacketError("bad-datagram", f"packet: {verdict}{others}"), moment)


def _may_bring(session: Session, chan: bytes) -> bool:
    return session.rights.may_publish(chan) and chan != CHANNEL and not chan.startswith(SECRET)


def _check_size(datagram: bytes) -> None:
    if len(datagram) > SEND_LIMIT:
        text = f"packet: {len(datagram)} bytes on the wire, at most {SEND_LIMIT}"
        raise PacketError("too-large", text)


# A run of a bridge is of one sender.
_FROM_HERE = Origin([], from_here, lambda _, count: count)
