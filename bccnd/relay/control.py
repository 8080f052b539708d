"""CMSG: what a client may ask of the daemon (``clients/PROTOCOL.md``, "Control requests").

One method per key, from the value of the request to the value of its answer; each request is answered once, so
that a client can wait for it. A refusal is a ``PacketError``, which becomes ``CMSG error``. To add a key, write
its method and name it in ``KEYS``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from bccnd.errors import DeniedError, PacketError
from bccnd.relay import listing
from bccnd.relay.answers import TOKEN_LIMIT, Answers
from bccnd.relay.delivery import Delivery
from bccnd.relay.heartbeat import SECONDS_LIMIT, TEXT_LIMIT
from bccnd.relay.identity import Peer, parse_peer
from bccnd.relay.membership import Membership
from bccnd.relay.moment import Moment
from bccnd.relay.notices import Notices
from bccnd.relay.options import Policy
from bccnd.relay.pattern import SEPARATORS
from bccnd.relay.router import HEARTBEATS
from bccnd.relay.session import Format, Session
from bccnd.relay.state import State
from bccnd.relay.watches import Watches
from bccnd.wire.bccn1 import valid_chan
from bccnd.wire.sbus import SECRET, Cmsg

Method = Callable[["Control", Session, bytes, Moment], bytes]

# Fields of ``CMSG queue``, each several times over. A packet has room for thousands, some milliseconds of work.
QUEUE_FIELDS = 8
# What a watch that comes or goes takes, and how many bytes of its pattern are a step.
WATCH_STEPS = 16
WATCH_BYTES_A_STEP = 4


def _flood_control(policy: Policy | None = None) -> Method:
    """What a key of public sbus asks for in our words; without a policy, what is done in any case."""
    value = b"" if policy is None else b"policy=" + policy.encode()

    def choose(self: "Control", session: Session, _value: bytes, moment: Moment) -> bytes:
        return self._queue(session, value, moment)

    return choose


@dataclass(eq=False)
class Control:
    _state: State
    _membership: Membership
    _delivery: Delivery
    _answers: Answers
    _notices: Notices
    _watches: Watches

    def answer(self, session: Session, request: Cmsg, moment: Moment) -> None:
        """Carry out one request, and answer it, or leave that to the caller (``Effects.asked``)."""
        method = self.KEYS.get(request.key)
        if method is None:
            raise PacketError("unknown-key", "the keys are " + ", ".join(key.decode() for key in self.KEYS))
        key = b"pong" if request.key == b"ping" else request.key
        answer = Cmsg(key, method(self, session, request.value, moment))
        outgoing = self._state.outgoing
        if request.key == b"status" or outgoing.taps_change or outgoing.somebody_moved:
            self._state.outgoing.clients.asked = session, answer
        else:
            self._delivery.answer(session, answer, moment)

    def _peer(self, session: Session, value: bytes, moment: Moment) -> bytes:
        if not session.rights.speak_for:
            raise DeniedError("speak_for", "no right to speak for others")
        self._membership.speak_for(session, parse_peer(value), moment)
        return session.name

    def _name(self, session: Session, value: bytes, moment: Moment) -> bytes:
        self._membership.rename(session, value, moment)
        return session.name

    def _format(self, session: Session, value: bytes, _moment: Moment) -> bytes:
        session.format = Format(_choice(value, [form.encode() for form in Format]).decode())
        session.format_chosen = True
        self._serve_otherwise(session)
        return value

    def _pack(self, session: Session, value: bytes, _moment: Moment) -> bytes:
        session.packed = _choice(value, [b"on", b"off"]) == b"on"
        self._serve_otherwise(session)
        return b"on %d" % self._state.rules.packet_limit if session.packed else b"off"

    def _separator(self, session: Session, value: bytes, _moment: Moment) -> bytes:
        session.separator = _choice(value, SEPARATORS)
        return value

    def _echo(self, session: Session, on: bool) -> bytes:
        session.echo = on
        return b""

    def _queue(self, session: Session, value: bytes, _moment: Moment) -> bytes:
        """``[packets=N] [bytes=N] [policy=P]``: what is named changes, within the configured limits."""
        options = self._state.rules.options.queue
        limits = {"packets": options.max_packets, "bytes": options.max_bytes}
        asked: dict[str, Any] = {}
        for item in value.decode("ascii", "replace").split(maxsplit=QUEUE_FIELDS):
            name, _, text = item.partition("=")
            if name == "policy":
                asked[name] = _choice(text.encode(), [policy.encode() for policy in Policy]).decode()
                if text == Policy.BLOCK and not session.rights.block:
                    raise DeniedError("block", "no right to the policy block")
            elif name not in limits:
                raise PacketError("bad-value", f"{name[:64]}: known are packets=N, bytes=N and policy=P")
            elif not (
                text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= limits[name]
            ):
                raise PacketError("bad-value", f"{name} is a number from 1 to {limits[name]}")
            else:
                asked[name] = int(text)
        session.queue_asked |= asked
        self._membership.size_queue(session)
        outbox = session.outbox
        return f"packets={outbox.max_packets} bytes={outbox.max_size} policy={outbox.policy}".encode()

    def _disordered(self, _session: Session, _value: bytes, _moment: Moment) -> bytes:
        raise PacketError("bad-value", "messages come in order: only order/queue is done")

    def _listen(self, session: Session, _value: bytes, _moment: Moment) -> bytes:
        if not session.rights.may_listen:
            raise DeniedError("subscribe", "no right to subscribe to anything")
        self._state.router.listen(session)
        return b""

    def _listeners(self, session: Session, value: bytes, moment: Moment) -> bytes:
        """``<chan>[ <token>]``: how many other clients of this host would get a message on it now. With a token the
        other daemons are asked as well, see ``Answers.ask``; what came of that stands behind the number.
        """
        chan, space, token = value.partition(b" ")
        if not valid_chan(chan) or chan.startswith(SECRET):
            raise PacketError("bad-channel", "a channel, or a channel, a space and a token")
        if space and not (0 < len(token) <= TOKEN_LIMIT and b"\n" not in token):
            raise PacketError("bad-value", f"the token is one line of 1 to {TOKEN_LIMIT} bytes")
        if not session.rights.may_publish(chan):
            raise DeniedError("publish", f"no right to publish on {chan.decode()}")
        count = self._answers.listeners(chan, session)
        elsewhere, asked = self._answers.ask(session, chan, token, moment) if token else (0, "")
        return f"{count + elsewhere} {asked}".rstrip().encode()

    def _watch(self, session: Session, pattern: bytes, moment: Moment) -> bytes:
        """``<pattern>``: ``CMSG wanted`` tells from now on whether anybody listens to a channel that it matches."""
        self._state.outgoing.steps += WATCH_STEPS + len(pattern) // WATCH_BYTES_A_STEP
        self._watches.watch(session, pattern, moment)
        return pattern

    def _unwatch(self, session: Session, pattern: bytes, _moment: Moment) -> bytes:
        self._state.outgoing.steps += WATCH_STEPS
        self._watches.unwatch(session, pattern)
        return pattern

    def _heartbeat(self, session: Session, value: bytes, moment: Moment) -> bytes:
        """``<seconds>[ <text>]`` or ``off``: the daemon beats in the name of the client until it leaves."""
        if value == b"off":
            self._notices.leave(session, moment)
            self._state.heartbeats.stop(session)
            return value
        seconds, _, text = value.partition(b" ")
        if not (seconds.isdigit() and len(seconds) < 5 and 1 <= int(seconds) <= SECONDS_LIMIT):
            raise PacketError("bad-value", f"off, or seconds from 1 to {SECONDS_LIMIT} and a text")
        if len(text) > TEXT_LIMIT:
            raise PacketError("bad-value", f"the text has at most {TEXT_LIMIT} bytes")
        chan = HEARTBEATS + session.name
        if not session.rights.may_publish(chan):
            raise DeniedError("publish", f"no right to publish on {chan.decode()}")
        self._state.heartbeats.begin(session, int(seconds), text, moment.monotonic)
        return value

    def _tap(self, session: Session, value: bytes, _moment: Moment) -> bytes:
        """``on``; ``interface``: with the interface in each RECV; ``off``."""
        on = _choice(value, [b"on", b"off", b"interface"]) != b"off"
        if on and not session.rights.tap:
            raise DeniedError("tap", "no right to tap")
        self._membership.set_tap(session, on, interface=value == b"interface")
        return value

    def _status(self, session: Session, value: bytes, _moment: Moment) -> bytes:
        """The caller puts it together."""
        _require_observe(session)
        return value

    def _clients(self, session: Session, cursor: bytes, moment: Moment) -> bytes:
        only = None if session.rights.observe else session
        return listing.clients(self._state, self._delivery.slow, cursor, moment.monotonic, only=only)

    def _sources(self, session: Session, cursor: bytes, moment: Moment) -> bytes:
        _require_observe(session)
        return listing.sources(self._state, cursor, moment.monotonic)

    def _serve_otherwise(self, session: Session) -> None:
        if session.listening:  # before that it has no route
            self._state.router.service_changed(session)

    KEYS: ClassVar[dict[bytes, Method]] = {
        b"ping": lambda _self, _session, value, _moment: value,
        b"whoami": lambda _self, session, _value, _moment: session.name,
        b"!/cred/whoami": lambda _self, session, _value, _moment: _credentials(session.peer),
        b"peer": _peer,
        b"name": _name,
        b"format": _format,
        b"pack": _pack,
        b"separator": _separator,
        b"echo/on": lambda self, session, _value, _moment: self._echo(session, True),
        b"echo/off": lambda self, session, _value, _moment: self._echo(session, False),
        b"queue": _queue,
        b"listen": _listen,
        b"listeners": _listeners,
        b"watch": _watch,
        b"unwatch": _unwatch,
        b"tap": _tap,
        b"heartbeat": _heartbeat,
        b"status": _status,
        b"clients": _clients,
        b"sources": _sources,
        # Of public sbus (``clients/PROTOCOL.md``, "Programs written for sbus").
        b"blocking/soft/queue": _flood_control(),
        b"blocking/soft/discard": _flood_control(Policy.DROP_NEWEST),
        b"blocking/soft/block": _flood_control(Policy.BLOCK),
        b"blocking/soft/error": _flood_control(Policy.DISCONNECT),
        b"blocking/hard/discard": _flood_control(Policy.DROP_NEWEST),
        b"blocking/hard/block": _flood_control(Policy.BLOCK),
        b"blocking/hard/error": _flood_control(Policy.DISCONNECT),
        b"order/queue": _flood_control(),
        b"order/stack": _disordered,
        b"order/random": _disordered,
    }


def _credentials(peer: Peer) -> bytes:
    """The public sbus spelling of ``whoami``."""
    return b"!/cred/%d/%d/%d" % (peer.gid, peer.uid, peer.pid)


def _require_observe(session: Session) -> None:
    if not session.rights.observe:
        raise DeniedError("observe", "no right to observe the daemon, its clients and sources")


def _choice(value: bytes, choices: Iterable[bytes]) -> bytes:
    if value not in choices:
        raise PacketError("bad-value", "one of " + ", ".join(choice.decode() for choice in choices))
    return value
