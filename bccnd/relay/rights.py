"""What a client may do: publish, subscribe, tap, bridge, take a name, block, observe, speak for others.

Rules
- A ``Grant`` is one entry of the configuration: the clients it is for, and what it gives them. All conditions it
  names must hold; a grant without conditions is for every client. The grants for a client add up; what none gives is
  refused.
- The uid and the groups are the kernel's (SO_PEERCRED, SO_PEERGROUPS), from when the client connected. The name of
  the program is not: its owner can change it. A client whose program is unknown matches no grant that names one.
- A pattern of ``publish`` that begins with "!" is for directed channels, matched by what follows the "!"; "!" alone
  is the channel of all clients. Other patterns never match those. A client that may subscribe to anything may also
  listen; "!" in ``subscribe`` gives only that.
- A subscription must lie within one granted pattern (``pattern.covers``): a client never gets part of what it asked
  for without knowing.
- A client that asks how many a message would reach, or watches that, needs the right to publish it: the answer is for
  publishers, and reveals that others read. A client always sees itself. To see the daemon's counters, other clients
  and sources it needs ``observe``. ``tap`` includes that, since a tap sees all of them send.
- ``block`` is a right, since such a reader holds publishers that are not its own. Where nothing is configured, each
  user may hold its own publishers (``block_own``), and only the owners may hold those of others: a stranger stops
  nobody.
- A bridged datagram keeps its source, whichever that is, but the bridge must have the right to publish on its
  channel. With ``bridge`` a client may also subscribe to directed channels of others, by a pattern that begins with
  "!": it carries them to where they are answered. Nobody else hears what is directed to others, but taps.
- ``speak_for`` is the right to declare to which user a connection belongs. A door has it, since it connects for
  programs that cannot do so themselves. From then on the connection has the rights of that user, and no others.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from bccnd.relay.identity import Peer
from bccnd.relay.pattern import covers, is_directed, matches
from bccnd.wire.sbus import shown

# The channel of all clients, and the right to listen.
ALL = b"!"
# Decisions remembered for each set of grants: publishers are few, and keep to few channels.
CHANNELS_DECIDED = 1024
# Characters of a reason that are logged: a channel in it can have a thousand.
REASON_LIMIT = 200
# Refusals logged from one look to the next: a program that starts over and over must not fill a disk.
REFUSALS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Grant:
    """``program``: a name, or with a final ``*`` what it begins with; ``resident``: only for processes of the pid
    namespace of the daemon.
    """

    uid: int | None = None
    gid: int | None = None
    program: bytes | None = None
    resident: bool = False
    publish: tuple[bytes, ...] = ()
    subscribe: tuple[bytes, ...] = ()
    tap: bool = False
    bridge: bool = False
    name: tuple[bytes, ...] = ()
    block: bool = False
    block_own: bool = False
    observe: bool = False
    speak_for: bool = False

    def is_for(self, peer: Peer) -> bool:
        return (
            self.uid in (None, peer.uid)
            and (self.gid is None or self.gid == peer.gid or self.gid in peer.groups)
            and (self.program is None or self._is_program(peer.program, self.program))
            and (peer.resident or not self.resident)
        )

    @staticmethod
    def _is_program(program: bytes, wanted: bytes) -> bool:
        if wanted.endswith(b"*"):
            return program.startswith(wanted[:-1]) and program != b""
        return program == wanted != b""


def unrestricted(owners: Iterable[int]) -> list[Grant]:
    """The rights where nothing is configured. A program that may open the socket may publish, subscribe and observe
    everything. Rights that concern others (to speak for them, take their names, hold them, tap and bridge) are for
    the ``owners`` (uids), who could read the key anyway.

    A root of another pid namespace may be no more than root of a container.
    """
    return [
        Grant(publish=(b">", ALL, b"!>"), subscribe=(b">",), block_own=True, observe=True),
        *(
            Grant(uid=uid, resident=True, tap=True, bridge=True, name=(b">",), block=True, speak_for=True)
            for uid in owners
        ),
    ]


class Rights:
    """What the grants for a client give together. Clients with the same grants share one."""

    __slots__ = (
        "__weakref__",
        "_decided",
        "_name",
        "_publish",
        "_subscribe",
        "block",
        "block_all",
        "bridge",
        "may_listen",
        "observe",
        "publish_all",
        "speak_for",
        "tap",
    )

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        grants = list(grants)
        self._publish = {pattern for grant in grants for pattern in grant.publish}
        self._subscribe = {pattern for grant in grants for pattern in grant.subscribe}
        self._name = {pattern for grant in grants for pattern in grant.name}
        self.publish_all = b">" in self._publish  # on every plain channel
        self._decided: dict[bytes, bool] = {}
        self.may_listen = bool(self._subscribe)
        self.tap = any(grant.tap for grant in grants)
        self.bridge = any(grant.bridge for grant in grants)
        self.block_all = any(grant.block for grant in grants)
        self.block = self.block_all or any(grant.block_own for grant in grants)
        self.observe = self.tap or any(grant.observe for grant in grants)
        self.speak_for = any(grant.speak_for for grant in grants)

    def may_publish(self, channel: bytes) -> bool:
        """``channel``: a valid one, of any form."""
        if self.publish_all and channel[:1] != b"!":
            return True
        allowed = self._decided.get(channel)
        if allowed is None:
            allowed = any(_may_publish(pattern, channel) for pattern in self._publish)
            if len(self._decided) >= CHANNELS_DECIDED:
                self._decided.clear()  # to find the oldest would cost more than to decide anew
            self._decided[channel] = allowed
        return allowed

    def may_publish_all(self, separator: bytes, pattern: bytes) -> bool:
        """On every plain channel that the pattern matches."""
        return any(covers(granted, pattern, separator) for granted in self._publish if granted[:1] != b"!")

    def may_subscribe(self, pattern: bytes, separator: bytes) -> bool:
        if is_directed(pattern):
            return self.bridge
        return any(granted != ALL and covers(granted, pattern, separator) for granted in self._subscribe)

    def may_be_named(self, name: bytes) -> bool:
        """Beyond the names that every client may take (``identity``)."""
        return any(matches(pattern, b"/", name) for pattern in self._name)


def _may_publish(pattern: bytes, channel: bytes) -> bool:
    if pattern == ALL or channel == ALL:
        return pattern == channel
    if channel.startswith(b"!"):
        return pattern.startswith(b"!") and matches(pattern[1:], b"/", channel[1:])
    return not pattern.startswith(b"!") and matches(pattern, b"/", channel)


class AccessList:
    """All grants of the configuration."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._grants = tuple(grants)
        self._rights: WeakValueDictionary[tuple[Grant, ...], Rights] = WeakValueDictionary()

    def missed(self, peer: Peer) -> str:
        """What a refusal adds for a client whose program is unknown where grants name programs; else empty."""
        if peer.program or not peer.pid or not any(grant.program for grant in self._grants):
            return ""
        return " (the program left before it could be looked at, and no grant that names one is for it)"

    def rights_of(self, peer: Peer) -> Rights:
        matching = tuple(grant for grant in self._grants if grant.is_for(peer))
        rights = self._rights.get(matching)
        if rights is None:
            rights = self._rights[matching] = Rights(matching)
        return rights


class Refusals:
    """Counted by right; kept to be logged once per client and right, at most REFUSALS_KEPT until they are taken.

    When so many are kept, the user with most gives up its last for one who has fewer: nobody hides what others try.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._kept: list[dict[str, Any]] = []
        self._beyond = 0

    def count(self, name: bytes, peer: Peer, right: str, reason: str, *, first: bool) -> None:
        """``first``: of this right, for this client."""
        self.counts[right] += 1
        if first and self._has_room(peer.uid):
            who = {"name": name.decode(), "pid": peer.pid, "uid": peer.uid, "program": peer.shown_program}
            self._kept.append(
                who | {"right": right, "reason": shown(reason[:REASON_LIMIT].encode()).decode()}
            )

    def _has_room(self, uid: int) -> bool:
        """Whether one of this user is kept, in place of another's if need be."""
        if len(self._kept) < REFUSALS_KEPT:
            return True
        self._beyond += 1
        users = [kept["uid"] for kept in self._kept]
        most = max(users, key=users.count)
        if users.count(most) <= users.count(uid) + 1:
            return False
        del self._kept[len(users) - 1 - users[::-1].index(most)]
        return True

    def take(self) -> tuple[list[dict[str, Any]], int]:
        """Those to be logged, as the fields of a line each, and how many more there were."""
        taken = self._kept, self._beyond
        self._kept, self._beyond = [], 0
        return taken
