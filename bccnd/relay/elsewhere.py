"""Finds out whether somebody on another host listens to watched patterns: daemons ask each other, and remember the
answers (``bccnd/wire/BCCN1.md``, "Watches").

    we, on QUESTIONS          <token>LFwatch <seconds> <separator>LF<pattern>LF<pattern>...
    who has listeners, to us  <token>LFwanted <a digit for each pattern: 1 or 0>      and again at each change

Rules
- A question is a lease: a daemon that hears it watches the patterns for so many seconds, and reports changes. A
  daemon without listeners is silent until it has some; so is one that does not know the question.
- A question is asked ASKS times, ASK_SECONDS apart; without an answer by then nobody listens. Then the lease is
  renewed every RENEW_SECONDS, for all patterns together, which also makes up for lost datagrams. An answer holds for
  LEASE_SECONDS: a daemon that vanishes counts as a listener that leaves.
- A pattern that nobody watches any more is remembered until the next renewal, if its questions were all asked: so a
  watch that comes and goes asks nothing again.
- An answer has a digit for each pattern, and a 0 takes back a 1. The questions of an asker change with each pattern
  that it begins to watch. So a new lease starts from what its daemon was told about the same patterns in another.
- Only daemons ask and are answered, and an answer is never answered: so two never keep each other busy.
- Questions on behalf of a user are limited like those about listeners (``allowance``). So is the cost of a host that
  asks: its questions, their new patterns and our answers a second, and the time that its own answers take.
- When all leases take LEASED_BYTES, the host with most gives up first (``shares``): no host can displace the question
  of one with less.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bccnd.errors import PacketError
from bccnd.relay import pattern as patterns
from bccnd.relay import shares
from bccnd.relay.allowance import Shares
from bccnd.relay.crowd import address_of
from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.identity import LocalSource
from bccnd.relay.lookout import Key, Lookout, Watch
from bccnd.relay.moment import Moment
from bccnd.relay.publisher import Publisher
from bccnd.relay.router import QUESTIONS
from bccnd.relay.session import Session

ASKS, ASK_SECONDS = 3, 0.1
RENEW_SECONDS = 2.0
# Two renewals may be lost.
LEASE_SECONDS = 5
LEASE_MOST = 10
# Bytes of the patterns of a question: with header and token it fits a datagram.
QUESTION_BYTES = 1080
# Questions sent in one go, and the pause before the next.
QUESTIONS_A_TURN, TURN_SECONDS = 8, 0.01
# New patterns a second: of a client, to ask others about; of a daemon that asks here, 4 us each. A long pattern of a
# client counts as several.
PATTERNS_PER_SECOND = 4000
LONG = 32
# Questions of one daemon a second that are taken, and answered.
QUESTIONS_PER_SECOND = 250
# Answers of one daemon a second, 5 us each. One with more than DIGITS digits counts as several.
ANSWERS_PER_SECOND, DIGITS = 2000, 16
# Bytes that the patterns of others take here, and bytes of a pattern in addition to its own.
LEASED_BYTES = 4 << 20
PATTERN_BYTES = 512
# Daemons with listeners to a pattern that are remembered: more would change nothing as long as one of these has
# listeners. When none has any more, all are asked again.
DAEMONS_LIMIT = 8
TOKEN_LIMIT = 128

Question = tuple[Key, ...]  # of one separator


@dataclass(eq=False, slots=True)
class _Asked:
    """A pattern: its watches here, how often others were asked, and which daemons (``by``) have listeners, until
    when. ``crowded``: more daemons have some. ``answer``: whether somebody listens, None before that is known.
    """

    watches: dict[Watch, None] = field(default_factory=dict)
    asks: int = 0
    by: dict[bytes, float] = field(default_factory=dict)
    crowded: bool = False
    answer: bool | None = None


@dataclass(eq=False, slots=True)
class _Lease:
    """The question of another daemon."""

    src: bytes
    token: bytes
    host: bytes
    size: int
    watches: list[Watch] = field(default_factory=list)
    has_answered: bool = False

    @property
    def name(self) -> bytes:
        return _name(self.src, self.token)

    @property
    def state(self) -> bytes:
        return b"".join([b"1" if watch.listened else b"0" for watch in self.watches])


class Elsewhere:
    """``own``: the daemon as a source; ``on_change``: called with a watch whose answer has changed."""

    def __init__(self, publisher: Publisher, lookout: Lookout, own: LocalSource, alarm: Alarm) -> None:
        self._publisher, self._lookout, self._own = publisher, lookout, own
        self.on_change: Callable[[Watch, Moment], None] = lambda _watch, _moment: None
        self._asked: dict[Key, _Asked] = {}
        self._unsettled: dict[Key, None] = {}
        self._waiting: deque[Question] = deque()  # to be sent
        # The tokens of the questions since the last renewal, and since the one before; and the question of each
        # token.
        self._young: dict[Question, bytes] = {}
        self._old: dict[Question, bytes] = {}
        self._tokens: dict[bytes, Question] = {}
        self._last_token = 0
        self._users = Shares(PATTERNS_PER_SECOND)
        self._questions, self._answers = Shares(QUESTIONS_PER_SECOND), Shares(QUESTIONS_PER_SECOND)
        self._begun, self._heard = Shares(PATTERNS_PER_SECOND), Shares(ANSWERS_PER_SECOND)
        self._leases: dict[bytes, _Lease] = {}
        self._latest: dict[tuple[bytes, Key], Watch] = {}  # by daemon, of its leases
        self._leased = 0
        self._held = shares.Shares()  # of that
        self._due: Deadlines[str | _Lease] = Deadlines(alarm)

    # -- what we ask

    def want(self, watch: Watch, now: float) -> None:
        """Nobody here listens: ask the other hosts."""
        asked = self._asked.get(watch.key)
        if asked is None:
            asked = self._asked[watch.key] = _Asked()
            self._unsettled[watch.key] = None
            self._set("ask", now)
            self._set("renew", now + RENEW_SECONDS)
        asked.watches[watch] = None

    def forget(self, watch: Watch) -> None:
        """Stop asking for this watch: somebody here listens, or it has ended."""
        if asked := self._asked.get(watch.key):
            asked.watches.pop(watch, None)

    def listened(self, key: Key) -> bool | None:
        """Whether somebody elsewhere listens; None if that is not known yet."""
        asked = self._asked.get(key)
        return asked.answer if asked else None

    def next_deadline(self) -> float:
        return self._due.next

    def on_deadline(self, moment: Moment) -> None:
        now = moment.monotonic
        while (due := self._due.pop(now)) is not None:
            if isinstance(due[0], _Lease):
                self._end(due[0])
            elif due[0] == "ask":
                self._ask(moment)
            elif due[0] == "renew":
                self._renew(moment)
            else:
                self._send(moment)

    def _ask(self, moment: Moment) -> None:
        """Ask about patterns without an answer, and take silence for no."""
        keys, silent = [], []
        if self._waiting:  # silence means nothing before the question is sent
            self._set("ask", moment.monotonic + ASK_SECONDS)
            return
        for key in list(self._unsettled):
            asked = self._asked.get(key)
            if asked is None or asked.answer is not None:
                del self._unsettled[key]
            elif not asked.watches:
                del self._unsettled[key], self._asked[key]
            elif asked.asks >= ASKS:
                del self._unsettled[key]
                silent.append(asked)
            elif self._may_ask(key, next(iter(asked.watches)).owner, moment):
                asked.asks += 1
                keys.append(key)
        self._waiting.extend(_questions(keys))
        self._send(moment)
        for asked in silent:
            self._decide(asked, moment)
        if self._unsettled:
            self._set("ask", moment.monotonic + ASK_SECONDS)

    def _may_ask(self, key: Key, owner: Session, moment: Moment) -> bool:
        count = 1 + len(key[1]) // LONG
        return self._users.take(b"%d" % owner.peer.uid, owner.name, moment.monotonic, count)

    def _renew(self, moment: Moment) -> None:
        """Ask about everything again; forget patterns without a watch, and daemons that are silent."""
        now = moment.monotonic
        for key in [key for key, asked in self._asked.items() if not asked.watches]:
            del self._asked[key]
            self._unsettled.pop(key, None)
        for key, asked in self._asked.items():
            asked.by = {src: until for src, until in asked.by.items() if until > now}
            if asked.answer and not asked.by:
                self._nobody_left(key, asked, moment)
        if not self._asked:
            self._young, self._old, self._tokens = {}, {}, {}
        elif self._waiting:  # soon, so that no lease ends because much else is asked about
            self._set("renew", now + ASK_SECONDS)
        else:
            self._young, self._old = {}, self._young
            self._tokens = {token: question for question, token in self._old.items()}
            self._waiting.extend(_questions([key for key in self._asked if key not in self._unsettled]))
            self._send(moment)
            self._set("renew", now + RENEW_SECONDS)

    def _send(self, moment: Moment) -> None:
        """Send some of the questions."""
        for _ in range(min(QUESTIONS_A_TURN, len(self._waiting))):
            question = self._waiting.popleft()
            token = self._young.get(question) or self._old.get(question) or self._new_token(moment)
            self._young[question] = token
            self._tokens[token] = question
            text = b"%b\nwatch %d %b\n" % (token, LEASE_SECONDS, question[0][0])
            text += b"\n".join([pattern for _, pattern in question])
            self._publisher.say(self._own, QUESTIONS, text, moment)
        if self._waiting:
            self._set("send", moment.monotonic + TURN_SECONDS)

    def _new_token(self, moment: Moment) -> bytes:
        self._last_token += 1
        return b"%d.%d" % (moment.unix_ns // 1000, self._last_token)

    def _nobody_left(self, key: Key, asked: _Asked, moment: Moment) -> None:
        """None of the daemons that are remembered has listeners any more."""
        if asked.crowded:
            asked.crowded, asked.asks, asked.answer = False, 0, None
            self._unsettled[key] = None
            self._set("ask", moment.monotonic)
        else:
            self._decide(asked, moment)

    def _decide(self, asked: _Asked, moment: Moment) -> None:
        answer = bool(asked.by)
        if answer is not asked.answer:
            asked.answer = answer
            for watch in list(asked.watches):
                self.on_change(watch, moment)

    def _set(self, what: str, due: float) -> None:
        if self._due.get(what) is None:
            self._due.set(what, due)

    # -- what we hear

    def hear(self, src: bytes, chan: bytes, payload: bytes, moment: Moment, peer: bytes) -> None:
        """Take a question or an answer of another daemon."""
        token, _, rest = payload.partition(b"\n")
        word, _, rest = rest.partition(b" ")
        if len(token) > TOKEN_LIMIT or b"*" in src:
            return
        if word == b"watch" and chan == QUESTIONS:
            self._lend(src, token, rest, moment, address_of(peer))
        elif word == b"wanted" and chan != QUESTIONS:
            self._learn(src, token, rest, moment, address_of(peer))

    def _learn(self, src: bytes, token: bytes, digits: bytes, moment: Moment, host: bytes) -> None:
        keys = self._tokens.get(token)
        if keys is None or len(digits) != len(keys) or digits.strip(b"01"):
            return
        if not self._heard.take(host, src, moment.monotonic, 1 + len(digits) // DIGITS):
            return
        for key, digit in zip(keys, digits, strict=True):
            asked = self._asked.get(key)
            if asked is None:
                continue
            if digit == ord("1"):
                if src in asked.by or len(asked.by) < DAEMONS_LIMIT:
                    asked.by[src] = moment.monotonic + LEASE_SECONDS
                else:
                    asked.crowded = True
                self._decide(asked, moment)
            elif asked.by.pop(src, None) is not None and not asked.by:
                self._nobody_left(key, asked, moment)

    def _lend(self, src: bytes, token: bytes, rest: bytes, moment: Moment, host: bytes) -> None:
        head, *wanted = rest.split(b"\n")
        seconds, _, separator = head.partition(b" ")
        if not (seconds.isdigit() and len(seconds) < 4 and separator in patterns.SEPARATORS and wanted):
            return
        if not self._questions.take(host, src, moment.monotonic):
            return
        lease = self._leases.get(_name(src, token))
        if lease is None:
            lease = self._begin(src, token, [(separator, pattern) for pattern in wanted], moment, host)
            if lease is None:
                return
        self._answer(lease, moment)
        until = moment.monotonic + min(int(seconds), LEASE_MOST)
        self._due.set(lease, until)

    def _begin(self, src: bytes, token: bytes, keys: list[Key], moment: Moment, host: bytes) -> _Lease | None:
        try:
            for separator, pattern in keys:
                patterns.check(pattern, separator)
        except PacketError:
            return None
        size = len(src) + len(token) + sum([len(pattern) + PATTERN_BYTES for _, pattern in keys])
        if not self._begun.take(host, src, moment.monotonic, len(keys)) or not self._make_room(host, size):
            return None
        return self._remember(_Lease(src, token, host, size), keys, moment.monotonic)

    def _make_room(self, host: bytes, size: int) -> bool:
        """Whether ``size`` more bytes of this host may be remembered; the host with most gives up leases for it."""
        while self._leased + size > LEASED_BYTES:
            if self._held.of(host) + size > self._held.most:
                return False
            self._end(self._leases[self._held.giver()])
        return True

    def _remember(self, lease: _Lease, keys: list[Key], now: float) -> _Lease:
        self._leases[lease.name] = lease
        self._held.add(lease.host, lease.src, lease.name, lease.size)
        self._leased += lease.size
        for key in keys:
            watch = Watch(key, lease, lease.host)
            if before := self._latest.get((lease.src, key)):
                watch.listened, watch.seen, watch.witness = before.listened, before.seen, before.witness
            self._latest[lease.src, key] = watch
            lease.watches.append(watch)
            self._lookout.add(watch, now)
        return lease

    def _end(self, lease: _Lease) -> None:
        del self._leases[lease.name]
        self._due.remove(lease)
        self._leased -= lease.size
        self._held.remove(lease.host, lease.src, lease.name, lease.size)
        for watch in lease.watches:
            self._lookout.remove(watch)
            if self._latest.get((lease.src, watch.key)) is watch:
                del self._latest[lease.src, watch.key]

    def state(self) -> list[tuple[Any, ...]]:
        """The leases, for a successor, so that askers still learn when an answer changes."""
        return [
            (
                *(each.src, each.token, each.host, each.size, self._due.get(each)),
                *(each.has_answered, each.state),
                *(watch.key for watch in each.watches),
            )
            for each in self._leases.values()
        ]

    def restore(self, leases: Iterable[tuple[Any, ...]]) -> None:
        for src, token, host, size, until, has_answered, state, *keys in leases:
            lease = self._remember(_Lease(src, token, host, size, has_answered=has_answered), keys, 0.0)
            for watch, digit in zip(lease.watches, state, strict=True):
                watch.listened = digit == ord("1")
            self._due.set(lease, until)

    def looked(self, changed: list[Watch], moment: Moment) -> None:
        """Report watches of others whose answer has changed here."""
        for lease in {watch.owner: None for watch in changed if isinstance(watch.owner, _Lease)}:
            self._answer(lease, moment)

    def _answer(self, lease: _Lease, moment: Moment) -> None:
        """Answer, if there is something to say. Beyond its host's share, the asker learns it when it asks again."""
        state = lease.state
        if not (lease.has_answered or b"1" in state):
            return
        if self._answers.take(lease.host, lease.src, moment.monotonic):
            lease.has_answered = True
            self._publisher.say(self._own, b"!" + lease.src, b"%b\nwanted %b" % (lease.token, state), moment)


def _name(src: bytes, token: bytes) -> bytes:
    """The name of a lease."""
    return src + b"\n" + token


def _questions(keys: list[Key]) -> list[Question]:
    """Questions about these patterns: one separator in each, and as many patterns as fit."""
    questions: list[list[Key]] = []
    for separator in patterns.SEPARATORS:
        room = 0
        for key in [key for key in keys if key[0] == separator]:
            room -= len(key[1]) + 1
            if room < 0:
                questions.append([])
                room = QUESTION_BYTES - len(key[1]) - 1
            questions[-1].append(key)
    return [tuple(question) for question in questions]
