"""What the daemon says by itself: presence notices, and heartbeats.

    local/presence/<event>/<src>    a source of the segment or a client of this host came, fell silent or left
    heartbeat/<src>                 the daemon and the clients that asked for it are there, or are leaving

Rules
- Presence notices stay on this host whatever the settings say, only the daemon publishes them, and none is retained.
  Only a pattern that begins with PREFIX gets them: neither ``>`` nor ``local/>`` does, as neither asks for them.
- No notice is written when nobody has such a pattern.
- A client's heartbeat is published in its name, and only where the client itself may publish.
- However many clients beat together, and however many hear it, the others have their turn after BEATS_STEPS.
"""

from typing import Any

from bccnd.relay.heartbeat import LEAVING
from bccnd.relay.identity import LocalSource
from bccnd.relay.listing import as_json
from bccnd.relay.moment import Moment
from bccnd.relay.presence import Event
from bccnd.relay.publisher import Publisher
from bccnd.relay.router import HEARTBEATS
from bccnd.relay.router import NOTICES as PREFIX
from bccnd.relay.session import Session
from bccnd.relay.state import State

# In steps: what the heartbeats of a call may cost, a quarter of a call for a client (``client_input``), as a delivery
# to one who reads slowly takes several; and what a heartbeat costs that nobody hears.
BEATS_STEPS = 2048
BEAT_STEPS = 64
# What the last words of all clients may cost when the daemon ends: a second of its few, where hearers are slow. Whose
# word is not said is found silent.
LAST_STEPS = 1 << 17


class Notices:
    def __init__(self, state: State, publisher: Publisher) -> None:
        self._publisher = publisher
        self._outgoing = state.outgoing
        self._router, self._sources, self._presence = state.router, state.sources, state.presence
        self._heartbeats, self._own = state.heartbeats, state.own
        self._ended = False

    def of_sources(self, moment: Moment) -> None:
        """Report what has happened to sources of the segment."""
        for event, src, life in self._presence.take_events():
            source = self._sources.get(src)
            peer, interval = source.peer if source else "", round(life.interval, 3)
            about = {"peer": peer, "version": life.version or None, "heartbeat": interval or None}
            self._say(event, src, about, moment)

    def of_client(self, event: Event, name: bytes, session: Session, moment: Moment) -> None:
        if self._ended:  # all leave, and whom each is announced to as well
            return
        peer = session.peer
        about = {"peer": "local", "program": peer.shown_program, "pid": peer.pid, "uid": peer.uid}
        self._say(event, name, about, moment)

    def beat(self, moment: Moment) -> None:
        """Send the heartbeats that are due, or the first of them: the others stay due."""
        outgoing, until = self._outgoing, self._outgoing.steps + BEATS_STEPS
        for source, text in self._heartbeats.due(moment.monotonic):
            self._heartbeat(source, text, moment)
            outgoing.steps += BEAT_STEPS
            if outgoing.steps >= until:
                return

    def leave(self, source: LocalSource, moment: Moment) -> None:
        """The source leaves in order. If it beats, nobody has to wait for its next beat to find out."""
        if source in self._heartbeats:
            self._heartbeat(source, LEAVING, moment)

    def leave_all(self, moment: Moment) -> None:
        """The daemon ends in order, and nobody beats from now on. Its own word comes last."""
        self._ended = True
        outgoing, until = self._outgoing, self._outgoing.steps + LAST_STEPS
        for source in sorted(self._heartbeats, key=lambda source: source is self._own):
            if outgoing.steps < until or source is self._own:
                self._heartbeat(source, LEAVING, moment)
                outgoing.steps += BEAT_STEPS
            self._heartbeats.stop(source)

    def _heartbeat(self, source: LocalSource, text: bytes, moment: Moment) -> None:
        chan = HEARTBEATS + source.name
        if not isinstance(source, Session) or source.rights.may_publish(chan):
            self._publisher.say(source, chan, text, moment)

    def _say(self, event: Event, src: bytes, about: dict[str, Any], moment: Moment) -> None:
        chan = b"%b%b/%b" % (PREFIX, event.encode(), src)
        if self._router.route(chan).size:
            notice = {"event": str(event), "src": src.decode(), **about, "unix_ns": moment.unix_ns}
            self._publisher.say(self._own, chan, as_json(notice), moment)
