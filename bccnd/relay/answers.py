"""What the daemon answers when somebody directs a request to it, ``!<host>/bccnd`` or ``!<host>/bccnd/<pid>``.

Rules
- The first line of a request is a token of the requester's choice, the rest is the request. The answer goes to
  ``!<requester>`` and begins with the same line. Anything else is for others, or for nobody: no answer.
- At most PER_SECOND answers, and BURST at once: who asks in the name of another must not make us flood that one.
- An answer is no request, so two daemons cannot keep each other busy.
"""

from typing import TYPE_CHECKING

from bccnd.wire.bccn1 import UNKNOWN_SRC

if TYPE_CHECKING:
    from bccnd.relay.core import Relay

TOKEN_LIMIT = 128  # bytes
PER_SECOND, BURST = 20.0, 40.0


class Answers:
    """``suppressed``: requests that the limit left without an answer."""

    def __init__(self, relay: "Relay", version: bytes) -> None:
        self._relay = relay
        self._version = version
        self._allowed, self._since = BURST, 0.0
        self.suppressed = 0

    def request(self, src: bytes, payload: bytes, now: float) -> None:
        token, _, request = payload.partition(b"\n")
        if request != b"ping" or len(token) > TOKEN_LIMIT or src == UNKNOWN_SRC or b"*" in src:
            return
        self._allowed = min(BURST, self._allowed + PER_SECOND * max(0.0, now - self._since))
        self._since = now
        if self._allowed < 1.0:
            self.suppressed += 1
            return
        self._allowed -= 1.0
        self._relay.publish(self._relay.own, b"!" + src, b"%b\npong %b" % (token, self._version))
