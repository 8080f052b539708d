"""The questions of daemons to each other, and the answers: is one there, and does anybody listen to a channel?

Rules
- The first line of a request is a token that the requester chose, the rest is the request. The answer goes to
  ``!<requester>`` and begins with the same line. Nothing else is answered.

      directed to ``!<host>/bccnd[/<pid>]``    ping                -> pong <version>, or busy
                                               listeners <chan>    -> listeners <n>, or listeners busy
      to all daemons, on QUESTIONS             listeners <chan>    -> the same, but for n = 0: silence

- A client of this host needs the right to publish on the channel that it asks about, here and elsewhere
  (``client_input`` looks, by ``asked_about``): the daemons elsewhere do not know its rights.
- Listeners are the clients that a message would reach now, without the requester; and the daemon itself, where a
  message is directed to it. Taps see everything and do not count. Only its own host learns of a local channel.
- The number of answers in a second is limited, and so is that of questions for clients (``CMSG listeners`` with a
  token): an asker that uses the name of another must not make this daemon flood that one. Each host that asks, by its
  address, has its own share, and each asker a share of its host's. So a flood costs its own host, and nobody else.
  Half of all is kept for hosts that ask seldom, so that they get answers however many others flood (``allowance``).
  The users of this host have shares like hosts, since a user may have any number of names.
- An asker that has used up its share gets the answer ``busy``, as often as it got answers before. Then the daemon is
  silent.
- One question serves all clients here that ask the same. Within TOGETHER_SECONDS no second question follows on a
  channel, and the answer of another daemon holds for KNOWN_SECONDS. So a host asks a few times a second for each
  channel, however many of its clients ask.
- A source with the name of a daemon asks about watches only (``elsewhere``), and gets no other answer: so two daemons
  never keep each other busy.
"""

from dataclasses import dataclass

from bccnd.relay.allowance import Shares
from bccnd.relay.crowd import address_of
from bccnd.relay.elsewhere import Elsewhere
from bccnd.relay.identity import PROGRAM, LocalSource, Names
from bccnd.relay.moment import Moment
from bccnd.relay.publisher import Publisher
from bccnd.relay.router import QUESTIONS, Router
from bccnd.relay.session import Session
from bccnd.relay.state import LOCAL_PEER
from bccnd.wire.bccn1 import UNKNOWN_SRC, split_target, valid_chan

TOKEN_LIMIT = 128  # bytes
# Pings of one asker answered a second: a person asks, or a watchdog.
PINGS_PER_SECOND = 20
# Questions of one asker asked, and answered, a second: a program asks one for each request that is slow.
LISTENERS_PER_SECOND = 200
# Half of the pause after which a client asks again (``clients/PROTOCOL.md``, "Request and reply"): each that asks
# three times has at least one question of its time sent.
TOGETHER_SECONDS = 0.05
# As long as clients wait for an answer, and some more.
KNOWN_SECONDS = 0.5
BUSY = -1


def calls_a_daemon(chan: bytes) -> bool:
    """Whether messages on this channel are requests to daemons, here or elsewhere."""
    directed = chan.startswith(b"!") and split_target(chan[1:])[1].split(b"/")[1:2] == [PROGRAM]
    return directed or chan == QUESTIONS


def asked_about(payload: bytes) -> bytes | None:
    """The channel that a request to a daemon asks about, if it does."""
    word, _, about = payload.partition(b"\n")[2].partition(b" ")
    return about if word == b"listeners" and valid_chan(about) else None


@dataclass(slots=True)
class _Asked:
    """What is known of a channel: when it was last asked about, and what was answered last, a number or BUSY."""

    at: float
    answer: int = 0
    answered: float = float("-inf")


@dataclass(eq=False)
class Answers:
    """``own``: the daemon as a source; ``version``: what it says to a ping."""

    _publisher: Publisher
    _router: Router
    _names: Names
    _own: LocalSource
    _version: bytes
    _elsewhere: Elsewhere

    def __post_init__(self) -> None:
        # Of each kind what is answered, and how often ``busy`` is.
        self._pings = Shares(PINGS_PER_SECOND), Shares(PINGS_PER_SECOND)
        self._counts = Shares(LISTENERS_PER_SECOND), Shares(LISTENERS_PER_SECOND)
        self._questions = Shares(LISTENERS_PER_SECOND)
        self._asked: dict[bytes, _Asked] = {}  # by channel, the one asked about longest ago first
        # Questions that may still be answered: (name of the client, token) -> channel and when. Empty, it costs the
        # segment's messages nothing.
        self.open: dict[tuple[bytes, bytes], tuple[bytes, float]] = {}

    def request(
        self, src: bytes, chan: bytes, payload: bytes, moment: Moment, peer: bytes = LOCAL_PEER
    ) -> None:
        """A message of ``peer`` directed to the daemon, or on QUESTIONS."""
        if _is_daemon(src):
            self._elsewhere.hear(src, chan, payload, moment, peer)
            return
        token, _, request = payload.partition(b"\n")
        if len(token) > TOKEN_LIMIT or src == UNKNOWN_SRC or b"*" in src:
            return
        to_all = chan == QUESTIONS
        word, _, about = request.partition(b" ")
        asker = self._names.holders.get(src)
        if request == b"ping" and not to_all:
            answer, busy, shares = b"pong " + self._version, b"busy", self._pings
        elif word == b"listeners" and valid_chan(about):
            hidden = asker is None and self._router.route(about).local
            count = 0 if hidden else self.listeners(about, asker)
            if to_all and not count:
                return
            answer, busy, shares = b"listeners %d" % count, b"listeners busy", self._counts
        else:
            return
        host = b"%d" % asker.peer.uid if isinstance(asker, Session) else address_of(peer)
        if not shares[0].take(host, src, moment.monotonic):
            answer = busy
            if not shares[1].take(host, src, moment.monotonic):
                return
        self._publisher.say(self._own, b"!" + src, b"%b\n%b" % (token, answer), moment)

    def ask(self, session: Session, chan: bytes, token: bytes, moment: Moment) -> tuple[int, str]:
        """Ask the other daemons for their listeners to ``chan`` in the name of a client, who gets the answers.

        How many there are as far as others have said lately, and ``asked``; ``busy``, if too much is being asked;
        empty, if no message on the channel leaves this host.
        """
        if not self.leaves(chan):
            return 0, ""
        now = moment.monotonic
        self._forget(now)
        asked = self._asked.get(chan)
        if asked and now - asked.answered < KNOWN_SECONDS:
            return (0, "busy") if asked.answer == BUSY else (asked.answer, "asked")
        if asked and now - asked.at < TOGETHER_SECONDS:
            return 0, "asked"
        if not self._questions.take(b"%d" % session.peer.uid, session.name, now):
            return 0, "busy"
        self._asked.pop(chan, None)
        self._asked[chan] = _Asked(now)
        self.open.pop((session.name, token), None)
        self.open[session.name, token] = chan, now
        self._publisher.say(session, QUESTIONS, b"%b\nlisteners %b" % (token, chan), moment)
        return 0, "asked"

    def overhear(self, src: bytes, target: bytes, payload: bytes, moment: Moment) -> None:
        """A message directed to ``target``, which may be the answer to a question of a client."""
        self._forget(moment.monotonic)
        token, _, answer = payload.partition(b"\n")
        question = self.open.get((target, token))
        word, _, count = answer.partition(b" ")
        asked = question and self._asked.get(question[0])
        if not asked or word != b"listeners" or not _is_daemon(src):
            return
        if count == b"busy":
            asked.answer, asked.answered = BUSY, moment.monotonic
        elif count.isdigit() and len(count) < 10:
            asked.answer, asked.answered = max(asked.answer, int(count)), moment.monotonic

    def listeners(self, chan: bytes, asker: LocalSource | None = None) -> int:
        """How many a message on this (valid) channel would reach here, but for ``asker``."""
        route = self._router.route(chan)
        calls_us = route.noted and chan.startswith(b"!")
        return route.size - (isinstance(asker, Session) and route.serves(asker)) + calls_us

    def leaves(self, chan: bytes) -> bool:
        """Whether anybody elsewhere can get messages on the channel: not if it is local, nor a name of this host."""
        host, target = self._names.host, split_target(chan[1:])[1]
        here = chan.startswith(b"!") and (target == host or target.startswith(host + b"/"))
        return not here and not any(self._router.route(each).local for each in (chan, QUESTIONS))

    def _forget(self, now: float) -> None:
        """What is older than KNOWN_SECONDS. The tables hold what may be asked in that time, and no more."""
        while self.open and now - next(iter(self.open.values()))[1] > KNOWN_SECONDS:
            del self.open[next(iter(self.open))]
        while self._asked:
            chan, asked = next(iter(self._asked.items()))
            if now - max(asked.at, asked.answered) <= KNOWN_SECONDS:
                return
            del self._asked[chan]


def _is_daemon(src: bytes) -> bool:
    return src.split(b"/")[1:2] == [PROGRAM]
