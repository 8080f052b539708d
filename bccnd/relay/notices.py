"""What the daemon says by itself: presence notices, and heartbeats.

    local/presence/<event>/<src>    a source of the segment or a client of this host came, fell silent or left
    heartbeat/<src>                 the daemon and the clients that asked for it are there, or are leaving

Rules
- Presence notices stay on this host whatever the settings say, only the daemon publishes them, and none is retained.
  Only a pattern that begins with PREFIX gets them: neither ``>`` nor ``local/>`` does, as neither asks for them.
- No notice is written when nobody has such a pattern.
- A client's heartbeat is published in its name, and only where the client itself may publish.
"""

import json
from dataclasses import dataclass
from typing import Any

from bccnd.relay.dedup import Sources
from bccnd.relay.heartbeat import LEAVING, Heartbeats
from bccnd.relay.identity import LocalSource
from bccnd.relay.moment import Moment
from bccnd.relay.presence import Event, Life, Presence
from bccnd.relay.publisher import Publisher
from bccnd.relay.router import HEARTBEATS, Router
from bccnd.relay.router import NOTICES as PREFIX
from bccnd.relay.session import Session


@dataclass(eq=False)
class Notices:
    """``own``: the daemon as a source."""

    _publisher: Publisher
    _router: Router
    _sources: Sources
    _presence: Presence
    _heartbeats: Heartbeats
    _own: LocalSource

    def of_sources(self, moment: Moment) -> None:
        """Report what has happened to sources of the segment."""
        for event, src, life in self._presence.take_events():
            chan = b"%b%b/%b" % (PREFIX, event.encode(), src)
            if self._is_wanted(chan):
                self._say(chan, event, src, self._about_source(src, life), moment)

    def of_client(self, event: Event, name: bytes, session: Session, moment: Moment) -> None:
        chan = b"%b%b/%b" % (PREFIX, event.encode(), name)
        if self._is_wanted(chan):
            peer = session.peer
            program = peer.program.decode("ascii", "replace")
            about = {"peer": "local", "program": program, "pid": peer.pid, "uid": peer.uid}
            self._say(chan, event, name, about, moment)

    def beat(self, moment: Moment) -> None:
        """Send the heartbeats that are due."""
        for source, text in self._heartbeats.due(moment.monotonic):
            self._heartbeat(source, text, moment)

    def leave(self, source: LocalSource, moment: Moment) -> None:
        """The source leaves in order. If it beats, nobody has to wait for its next beat to find out."""
        if source in self._heartbeats:
            self._heartbeat(source, LEAVING, moment)

    def leave_all(self, moment: Moment) -> None:
        """The daemon ends in order, and nobody beats from now on. Its own word comes last."""
        for source in sorted(self._heartbeats, key=lambda source: source is self._own):
            self._heartbeat(source, LEAVING, moment)
            self._heartbeats.stop(source)

    def _heartbeat(self, source: LocalSource, text: bytes, moment: Moment) -> None:
        chan = HEARTBEATS + source.name
        if not isinstance(source, Session) or source.rights.may_publish(chan):
            self._publisher.say(source, chan, text, moment)

    def _is_wanted(self, chan: bytes) -> bool:
        return self._router.route(chan).size > 0

    def _about_source(self, src: bytes, life: Life) -> dict[str, Any]:
        source = self._sources.get(src)
        return {
            "peer": source.peer if source else "",
            "version": life.version or None,
            "heartbeat": round(life.interval, 3) or None,
        }

    def _say(self, chan: bytes, event: Event, src: bytes, about: dict[str, Any], moment: Moment) -> None:
        notice = {"event": str(event), "src": src.decode(), **about, "unix_ns": moment.unix_ns}
        self._publisher.say(self._own, chan, json.dumps(notice, separators=(",", ":")).encode(), moment)
