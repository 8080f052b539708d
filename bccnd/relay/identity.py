"""Who a local client is on the segment: its src (``bccnd/wire/BCCN1.md``, "Sources", "Forked programs").

Rules
- The kernel's word for the peer gives ``<host>/<program>/<pid>``. A second connection of the same process is
  ``<host>/<program>/<pid>/c2`` and so on. A peer of another pid namespace has no pid here (the kernel says 0) and
  gets a tag of its own, ``n1``, ``n2`` ..., which no other client ever had.
- A name is held by one client at a time.
- A client may extend its own name by ``/<tag>``, and a fork child, whose connection is its own, may call itself
  ``<parent>/<own pid>``: any name below ``<host>/<program>/`` that ends in its pid. Anything else needs a right.
- Sequence numbers of a new name start at the clock (microseconds since the epoch) and never below any number
  handed out under a name that was given up, nor below what a run before this one may have used (``begin_at``). So
  they go forward over reconnects, restarts, names that are handed on, and clock steps.
"""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from bccnd.errors import DeniedError, PacketError
from bccnd.wire.bccn1 import SRC_LIMIT, UNKNOWN_SRC, matches_target, split_target, valid_src

# The program of the daemon itself, as a source.
PROGRAM = b"bccnd"
# With a host of 64 bytes a name leaves room for tags below SRC_LIMIT.
PROGRAM_LIMIT = 32
_NOT_IN_A_TOKEN = re.compile(rb"[^!-~]|[/:|*?!]")


@dataclass(frozen=True, slots=True)
class Peer:
    """The kernel's word for who connected (SO_PEERCRED); ``pid`` is 0 where it cannot be seen from here.

    ``program``: what it calls itself, empty when unknown. ``groups``: its supplementary groups (SO_PEERGROUPS).
    ``resident``: it is known to live in the daemon's own pid namespace.
    """

    pid: int
    uid: int
    gid: int
    program: bytes
    groups: frozenset[int] = frozenset()
    resident: bool = False


def token(text: bytes, limit: int, otherwise: bytes) -> bytes:
    """``text`` as one token of a src: what must not be in it becomes "_"."""
    return _NOT_IN_A_TOKEN.sub(b"_", text)[:limit] or otherwise


class LocalSource:
    """A source of this host: a client, or the daemon itself.

    ``seq``: the number of its next message to the segment; ``first_seq``: of the first under this name;
    ``local_seq``: of its next message on a local channel.
    """

    __slots__ = ("first_seq", "local_seq", "name", "seq")

    def __init__(self, name: bytes = b"") -> None:
        self.name = name
        self.seq = self.first_seq = 0
        self.local_seq = 1


class Names:
    """The names in use on this host and who holds each."""

    def __init__(self, host: bytes) -> None:
        self.host = host
        self._holders: dict[bytes, LocalSource] = {}
        self._tags = 0  # handed out so far
        self._seq_floor = 0

    def __len__(self) -> int:
        return len(self._holders)

    def get(self, name: bytes) -> LocalSource | None:
        return self._holders.get(name)

    def hold(self, name: bytes, holder: LocalSource) -> None:
        """Give ``holder``, who is no client, this name."""
        self._holders[name] = holder

    def assign(self, peer: Peer, holder: LocalSource) -> bytes:
        """Give ``holder`` the first free name that its credentials lead to."""
        base = self._base(peer)
        if not peer.pid:
            self._tags += 1
            base += b"n%d" % self._tags
        name = base
        for connection in itertools.count(2):
            if name not in self._holders:
                break
            name = base + b"/c%d" % connection
        self._holders[name] = holder
        return name

    def rename(self, old: bytes, new: bytes, peer: Peer, granted: bool, next_seq: int) -> None:
        """Move the holder of ``old``, which has come to ``next_seq``, to ``new``, or raise ``PacketError``.

        ``granted``: it has the right to this name, wherever that stands.
        """
        holder = self._holders[old]
        if not valid_src(new) or b"*" in new or new.endswith(b"/") or new == UNKNOWN_SRC:
            limit = f"a name is 1 to {SRC_LIMIT} ASCII characters without white space, ':', '|', '*' or a final '/'"
            raise PacketError("bad-name", limit)
        if self._holders.get(new, holder) is not holder:
            raise PacketError("name-taken", f"{new.decode()} is another client of this host")
        if not granted and new != old and not self._own(new, peer):
            raise DeniedError("name", f"no right to {new.decode()}, which is not below the client's own name")
        self.release(old, next_seq)
        self._holders[new] = holder

    def release(self, name: bytes, next_seq: int) -> None:
        del self._holders[name]
        self._seq_floor = max(self._seq_floor, next_seq)

    def begin_at(self, seq: int) -> None:
        """Numbers below ``seq`` may have been used by those who ran here before."""
        self._seq_floor = max(self._seq_floor, seq)

    def first_seq(self, wanted: int) -> int:
        return max(wanted, self._seq_floor)

    def directed(self, target: bytes) -> list[LocalSource]:
        """The holders that a directed message to ``target`` is for (``bccnd/wire/BCCN1.md``, "Directed targets")."""
        exact, value = split_target(target)
        if exact:
            return [self._holders[value]] if value in self._holders else []
        return [holder for name, holder in self._holders.items() if matches_target(target, name)]

    def state(self) -> tuple[int, int]:
        """What a successor of this daemon must know beside who holds which name."""
        return self._tags, self._seq_floor

    def restore(self, state: tuple[int, int], holders: Iterable[tuple[bytes, LocalSource]]) -> None:
        self._tags, self._seq_floor = state
        self._holders = dict(holders)

    def _base(self, peer: Peer) -> bytes:
        stem = b"%b/%b/" % (self.host, token(peer.program, PROGRAM_LIMIT, b"unknown"))
        return stem + b"%d" % peer.pid if peer.pid else stem

    def _own(self, name: bytes, peer: Peer) -> bool:
        if not peer.pid:
            return False
        base = self._base(peer)
        stem, _, pid = base.rpartition(b"/")
        return (
            name == base
            or name.startswith(base + b"/")
            or (name.startswith(stem + b"/") and name.rpartition(b"/")[2] == pid)
        )
