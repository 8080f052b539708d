"""Presence notices: ``local/presence/<event>/<src>`` says here who came, fell silent or left.

Rules
- About sources of the segment (``presence``) and about the clients of this host, which appear and leave.
- They stay on this host whatever the settings say, only the daemon publishes them, and none is retained. Only a
  pattern that begins with PREFIX gets them: neither ``>`` nor ``local/>`` does, as neither asks for them.
- Nothing is encoded when nobody has such a pattern.
"""

import json
from typing import TYPE_CHECKING, Any

from bccnd.relay.presence import Event, Life
from bccnd.relay.router import NOTICES as PREFIX
from bccnd.relay.session import Session

if TYPE_CHECKING:
    from bccnd.relay.core import Relay


class Notices:
    def __init__(self, relay: "Relay") -> None:
        self._relay = relay

    def of_source(self, event: Event, src: bytes, life: Life) -> None:
        chan = b"%b%b/%b" % (PREFIX, event.encode(), src)
        if self._is_wanted(chan):
            source = self._relay.sources.get(src)
            about = {
                "peer": source.peer if source else "",
                "version": life.version or None,
                "heartbeat": round(life.interval, 3) or None,
            }
            self._publish(chan, event, src, about)

    def of_client(self, event: Event, name: bytes, session: Session) -> None:
        chan = b"%b%b/%b" % (PREFIX, event.encode(), name)
        if self._is_wanted(chan):
            peer = session.peer
            about = {
                "peer": "local",
                "program": peer.program.decode("ascii", "replace"),
                "pid": peer.pid,
                "uid": peer.uid,
            }
            self._publish(chan, event, name, about)

    def _is_wanted(self, chan: bytes) -> bool:
        return self._relay.router.audience(chan).size > 0

    def _publish(self, chan: bytes, event: Event, src: bytes, about: dict[str, Any]) -> None:
        notice = {"event": str(event), "src": src.decode(), **about, "unix_ns": self._relay.unix_ns}
        self._relay.publish(self._relay.own, chan, json.dumps(notice, separators=(",", ":")).encode())
