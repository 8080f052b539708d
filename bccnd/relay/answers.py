"""What daemons ask each other, and answer: is one there, and does anybody listen to a channel.

Rules
- The first line of a request is a token that the requester chose, the rest is the request. The answer goes to
  ``!<requester>`` and begins with the same line. Nothing else is answered.

      directed to ``!<host>/bccnd[/<pid>]``    ping                -> pong <version>
                                               listeners <chan>    -> listeners <n>
      to all daemons, on QUESTIONS             listeners <chan>    -> listeners <n>, but for n = 0: silence

- Listeners are the clients that a message would reach now, without the requester; and the daemon itself, where a
  message is directed to it. Taps see everything and do not count. Only its own host learns of a local channel.
- Answers are limited to so many a second, and so are questions for clients (``CMSG listeners`` with a token): whoever
  asks in the name of somebody else must not make this daemon flood that one.
- A source that is called a daemon gets no answer, as a daemon asks nothing for itself: two never keep each other
  busy.
"""

from dataclasses import dataclass

from bccnd.relay.identity import PROGRAM, LocalSource, Names
from bccnd.relay.moment import Moment
from bccnd.relay.publisher import Publisher
from bccnd.relay.router import QUESTIONS, Router
from bccnd.relay.session import Session
from bccnd.relay.state import LOCAL_PEER
from bccnd.wire.bccn1 import UNKNOWN_SRC, split_target, valid_chan

TOKEN_LIMIT = 128  # bytes
# Pings answered a second, and at once: a person asks, or a watchdog.
PER_SECOND, BURST = 20.0, 40.0
# Questions asked, and answered, a second: a program asks one for each request that is slow.
LISTENERS_PER_SECOND = 200.0


class Allowance:
    """So many a second, ``burst`` at once."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left, self._since = burst, 0.0

    def take(self, now: float) -> bool:
        """Whether there is one left."""
        self._left = min(self._burst, self._left + self._per_second * max(0.0, now - self._since))
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


@dataclass(eq=False)
class Answers:
    """``own``: the daemon as a source; ``version``: what it says to a ping."""

    _publisher: Publisher
    _router: Router
    _names: Names
    _own: LocalSource
    _version: bytes

    def __post_init__(self) -> None:
        self._pings = Allowance(PER_SECOND, BURST)
        self._counts = Allowance(LISTENERS_PER_SECOND, LISTENERS_PER_SECOND)
        self._questions = Allowance(LISTENERS_PER_SECOND, LISTENERS_PER_SECOND)

    def request(
        self, src: bytes, chan: bytes, payload: bytes, moment: Moment, peer: bytes = LOCAL_PEER
    ) -> None:
        """A message directed to the daemon, or on QUESTIONS. Beyond the allowance there is no answer."""
        token, _, request = payload.partition(b"\n")
        if len(token) > TOKEN_LIMIT or src == UNKNOWN_SRC or b"*" in src or src.split(b"/")[1:2] == [PROGRAM]:
            return
        to_all = chan == QUESTIONS
        word, _, about = request.partition(b" ")
        if request == b"ping" and not to_all:
            answer, allowance = b"pong " + self._version, self._pings
        elif word == b"listeners" and valid_chan(about):
            asker = self._names.get(src)
            hidden = asker is None and self._router.route(about).local
            count = 0 if hidden else self.listeners(about, asker)
            if to_all and not count:
                return
            answer, allowance = b"listeners %d" % count, self._counts
        else:
            return
        if allowance.take(moment.monotonic):
            self._publisher.say(self._own, b"!" + src, b"%b\n%b" % (token, answer), moment)

    def ask(self, session: Session, chan: bytes, token: bytes, moment: Moment) -> str:
        """Ask the other daemons for their listeners to ``chan`` in the name of a client, who gets the answers.

        ``asked``; ``busy``, if too much is being asked; empty, if no message on the channel leaves this host.
        """
        if not self.leaves(chan):
            return ""
        if not self._questions.take(moment.monotonic):
            return "busy"
        self._publisher.say(session, QUESTIONS, b"%b\nlisteners %b" % (token, chan), moment)
        return "asked"

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
