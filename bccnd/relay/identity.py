"""The src of each local client, its name on the segment (``clients/PROTOCOL.md``, "Names and numbers").

A name is an address: a message to it can be a secret, and everything below a name hears what is sent to ``<name>/*``
and, mostly, to the name itself (``bccnd/wire/BCCN1.md``, "Directed targets"). So this module decides which client
may have which name.

Rules
- The kernel's word for the peer gives ``<host>/<program>/<pid>``. A second connection of the same process is
  ``<host>/<program>/<pid>/c/2`` and so on: a name that ends in a number is an exact target, and nobody below it hears
  what is sent to it.
- A name is held by one client at a time. The program ``bccnd`` is the daemon's alone, whoever asks.
- A name at or below ``<host>/<program>/<pid>`` never stands above or below one of another uid, unless by a right. A
  client whose name would is called by a tag, ``<host>/<program>/n1``, ``n2`` ..., which no other client ever had; and
  so is a peer of another pid namespace, which has no pid here (the kernel says 0).
- A client takes its own name and what is below it. A fork child, whose connection is its own, takes
  ``<parent>/<pid>``: the pid is its own, in any pid namespace it is in, and the kernel says that the parent is its
  kin (``Process``). Anything else needs a right.
- Sequence numbers of a new name start at the clock (microseconds since the epoch) and never below any number
  handed out under a name that was given up, nor below what a run before this one may have used (``begin_at``). So
  they go forward over reconnects, restarts, names that are handed on, and clock steps.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from bccnd.errors import DeniedError, PacketError
from bccnd.relay.ordered import OrderedKeys
from bccnd.wire.bccn1 import SRC_LIMIT, UNKNOWN_SRC, split_target
from bccnd.wire.sbus import shown

# The program of the daemon itself, as a source.
PROGRAM = b"bccnd"
# With a host of 64 bytes a name leaves room for tags below SRC_LIMIT.
PROGRAM_LIMIT = 32
# Tokens of a name up to the pid: below them a name belongs to the process of that pid.
TOKENS_OF_A_PROCESS = 3
# The highest number of a user, group or process: the one above stands for none.
ID_MOST = 2**32 - 2
# Parents that are looked at to find one: each is read from the system, and families are few deep.
GENERATIONS = 8
_NOT_IN_A_TOKEN = re.compile(rb"[^!-~]|[/:|*?!]")
# What a client may call itself is printed on terminals of others: no control characters, no empty token that hides
# the next.
_NAME = re.compile(rb"[!-)+-9;-{}~]{1,%d}" % SRC_LIMIT)
# With as many further groups as count (``bccnd/net/peers.py``).
_PEER = re.compile(rb"(\d{1,10}) (\d{1,10}(?:,\d{1,10}){0,1024}) (\d{1,10}) ([^\0]{0,%d})" % PROGRAM_LIMIT)
_PID = re.compile(rb"[1-9][0-9]{0,9}")
# What stands behind the name of a process for its further connections.
_FURTHER = re.compile(rb"/c/([1-9][0-9]{0,9})")


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

    @property
    def shown_program(self) -> str:
        """For rows, notices and logs, which others print."""
        return shown(self.program[:PROGRAM_LIMIT]).decode()


@dataclass(frozen=True, slots=True)
class Process:
    """What the kernel says of a process at this moment. ``uid``: the effective one; ``pids``: its own, in each pid
    namespace that it is in; ``resident``: it lives in that of the daemon. A number of 0 is unknown.
    """

    uid: int
    parent: int
    group: int
    session: int
    pids: frozenset[int]
    resident: bool


# Asks the kernel about the process of this pid. None when it has gone or is hidden.
ProcessTable = Callable[[int], Process | None]


def no_processes(_pid: int) -> Process | None:
    """Where nothing is known of processes."""
    return None


def token(text: bytes, limit: int, otherwise: bytes) -> bytes:
    """``text`` as one token of a src: what must not be in it becomes "_"."""
    return _NOT_IN_A_TOKEN.sub(b"_", text)[:limit] or otherwise


def parse_peer(value: bytes) -> Peer:
    """``<uid> <gid>[,<gid>...] <pid> <program>`` (``clients/PROTOCOL.md``, "Speaking for others"). The pid is 0 for
    one that has none here, and the program may be empty. Raises ``PacketError``.
    """
    found = _PEER.fullmatch(value)
    if found is None:
        form = f"<uid> <gid>[,<gid>...] <pid> <program>, the program of at most {PROGRAM_LIMIT} bytes"
        raise PacketError("bad-value", form)
    uid, pid, gid, *groups = map(int, (found[1], found[3], *found[2].split(b",")))
    if max(uid, pid, gid, *groups) > ID_MOST:
        raise PacketError("bad-value", f"the numbers are at most {ID_MOST}")
    return Peer(pid, uid, gid, found[4], frozenset(groups))


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


@dataclass(slots=True)
class _Family:
    """The names at and below ``<host>/<program>/<pid>`` that are in use: how many clients of each uid hold one, and
    the numbers for further connections of the process, ``/c/<number>``: from ``fresh`` on none was given, below it
    the ``returned`` ones are mostly free. So the thousandth connection costs what the second does.
    """

    uids: Counter[int] = field(default_factory=Counter)
    fresh: int = 2
    returned: list[int] = field(default_factory=list)  # a heap

    def numbers(self) -> Iterator[int]:
        """Those that may be free, the lowest first; each is given once."""
        while self.returned:
            yield heappop(self.returned)
        while True:
            self.fresh += 1
            yield self.fresh - 1

    def take_back(self, number: int) -> None:
        if number < self.fresh:
            heappush(self.returned, number)
            # A client that takes such a name by itself, again and again, gives it back as often.
            if len(self.returned) > self.fresh:
                self.returned = sorted(set(self.returned))


class Names:
    """The names in use on this host and who holds each."""

    def __init__(self, host: bytes, processes: ProcessTable = no_processes) -> None:
        self.host = host
        self._processes = processes
        # By name, to be looked up only.
        self.holders: dict[bytes, LocalSource] = {}
        self._peers: dict[bytes, Peer] = {}  # of the holders that are clients
        self._families: dict[bytes, _Family] = {}  # of these, by the name of their process
        self._ordered = OrderedKeys()  # what is below a name lies side by side
        self._tags = 0  # handed out so far
        self._seq_floor = 0

    def __len__(self) -> int:
        return len(self.holders)

    def hold(self, name: bytes, holder: LocalSource, peer: Peer | None = None) -> None:
        """Give this name, which is free, to ``holder``; one without a peer is not a client."""
        self.holders[name] = holder
        self._ordered.add(name)
        if peer is not None:
            self._peers[name] = peer
            self._families.setdefault(_process_of(name), _Family()).uids[peer.uid] += 1

    def assign(self, peer: Peer, holder: LocalSource) -> bytes:
        """Give ``holder`` the first free name that its credentials lead to."""
        base = self._base(peer)
        if peer.pid and self._is_among_its_own(base, peer.uid):
            name = base if base not in self.holders else self._further(base)
        else:
            name = self._fresh(base.rpartition(b"/")[0], peer.uid)
        self.hold(name, holder, peer)
        return name

    def _further(self, base: bytes) -> bytes:
        """The name of a further connection of the process that holds ``base``."""
        numbers = self._families.setdefault(base, _Family()).numbers()
        return next(name for number in numbers if (name := b"%b/c/%d" % (base, number)) not in self.holders)

    def lives_here(self, pid: int, uid: int) -> bool:
        """Whether a process of this user has the pid, in the daemon's own pid namespace."""
        process = self._processes(pid) if pid else None
        return process is not None and process.resident and process.uid == uid

    def rename(self, old: bytes, new: bytes, peer: Peer, granted: bool, next_seq: int) -> None:
        """Move the holder of ``old``, which has come to ``next_seq``, to ``new``, or raise ``PacketError``.

        ``granted``: it has the right to this name, wherever that stands.
        """
        holder = self.holders[old]
        if not _NAME.fullmatch(new) or b"" in new.split(b"/") or new == UNKNOWN_SRC:
            limit = f"a name is 1 to {SRC_LIMIT} printable ASCII characters without ':', '|', '*' or an empty part"
            raise PacketError("bad-name", limit)
        if new.split(b"/")[1:2] == [PROGRAM]:
            raise DeniedError("name", f"no right to {new.decode()}: the daemon alone is called bccnd")
        if self.holders.get(new, holder) is not holder:
            raise PacketError("name-taken", f"{new.decode()} is another client of this host")
        if not granted and new != old:
            if not self._is_own(new, peer) and not self._is_branch(new, peer):
                raise DeniedError(
                    "name", f"no right to {new.decode()}, which is not below the client's own name"
                )
            if not self._is_among_its_own(new, peer.uid):
                raise DeniedError("name", f"no right to {new.decode()}, beside names of another user")
        self.release(old, next_seq)
        self.hold(new, holder, peer)

    def release(self, name: bytes, next_seq: int) -> None:
        del self.holders[name]
        self._ordered.remove(name)
        peer = self._peers.pop(name, None)
        if peer is not None:
            self._leave_family(name, peer.uid)
        self._seq_floor = max(self._seq_floor, next_seq)

    def _leave_family(self, name: bytes, uid: int) -> None:
        process = _process_of(name)
        family = self._families[process]
        family.uids[uid] -= 1
        if not family.uids[uid]:
            del family.uids[uid]
        if not family.uids:
            del self._families[process]
        elif further := _FURTHER.fullmatch(name, len(process)):
            family.take_back(int(further[1]))

    def begin_at(self, seq: int) -> None:
        """Numbers below ``seq`` may have been used by those who ran here before."""
        self._seq_floor = max(self._seq_floor, seq)

    def first_seq(self, wanted: int) -> int:
        return max(wanted, self._seq_floor)

    def directed(self, target: bytes) -> list[LocalSource]:
        """The holders that a directed message to ``target`` is for (``bccnd/wire/BCCN1.md``, "Directed targets")."""
        exact, value = split_target(target)
        names = [value] if value in self.holders else []
        if not exact:
            names += self._below(value)
        return [self.holders[name] for name in names]

    def state(self) -> tuple[int, int]:
        """What a successor of this daemon must know beside who holds which name."""
        return self._tags, self._seq_floor

    def restore(
        self, state: tuple[int, int], holders: Iterable[tuple[bytes, LocalSource, Peer | None]]
    ) -> None:
        self._tags, self._seq_floor = state
        self.holders, self._peers, self._families, self._ordered = {}, {}, {}, OrderedKeys()
        for name, holder, peer in holders:
            self.hold(name, holder, peer)

    def _below(self, name: bytes) -> Iterator[bytes]:
        """The names in use that go on with a ``/``."""
        return self._ordered.beginning(name + b"/")

    def _base(self, peer: Peer) -> bytes:
        program = token(peer.program, PROGRAM_LIMIT, b"unknown")
        if program == PROGRAM:
            program += b"_"
        return b"%b/%b/%d" % (self.host, program, peer.pid)

    def _fresh(self, stem: bytes, uid: int) -> bytes:
        """A name that no client had before, unless it took it by a right."""
        while True:
            self._tags += 1
            name = stem + b"/n%d" % self._tags
            if name not in self.holders and self._is_among_its_own(name, uid):
                return name

    def _is_among_its_own(self, name: bytes, uid: int) -> bool:
        """Whether nobody of another uid has a name above this one, from the pid on, or below it, or the name."""
        tokens = name.split(b"/")
        if len(tokens) >= TOKENS_OF_A_PROCESS:
            family = self._families.get(_process_of(name))
            if family is None or family.uids.keys() <= {uid}:  # as mostly, and that is seen at once
                return True
        above = [b"/".join(tokens[:count]) for count in range(TOKENS_OF_A_PROCESS, len(tokens) + 1)]
        near = (self._peers.get(each) for each in [*above, *self._below(name)])
        return all(peer is None or peer.uid == uid for peer in near)

    def _is_own(self, name: bytes, peer: Peer) -> bool:
        base = self._base(peer)
        return bool(peer.pid) and (name == base or name.startswith(base + b"/"))

    def _is_branch(self, name: bytes, peer: Peer) -> bool:
        """Whether it is ``<parent>/<own pid>``, and the parent is kin of the client: in use by one who is, or in the
        form in which names are given, so that a child may come back before its parent.
        """
        parent, _, pid = name.rpartition(b"/")
        if not peer.pid or not _PID.fullmatch(pid):
            return False
        process = self._processes(peer.pid)
        if process is not None and process.uid != peer.uid:
            process = None  # it is not what connected, or not as who it connected
        if int(pid) != peer.pid and (process is None or int(pid) not in process.pids):
            return False
        holder = self._peers.get(parent)
        if holder is not None:
            alike = holder.uid == peer.uid and holder.pid != 0
            return alike and (process is None or self._is_kin(process, holder.pid))
        tokens = parent.split(b"/")
        given = len(tokens) >= TOKENS_OF_A_PROCESS and tokens[0] == self.host and _PID.fullmatch(tokens[2])
        return process is not None and bool(given) and self._is_kin(process, int(tokens[2]))

    def _is_kin(self, process: Process, pid: int) -> bool:
        """Whether ``pid`` is of the same uid and an ancestor, or of the same process group or session. A leader of
        these that has gone is kin: while they exist, nobody else is given its pid.
        """
        if pid in process.pids:
            return True
        other = self._processes(pid)
        if other is None:
            return pid in (process.group, process.session)
        if other.uid != process.uid:
            return False
        if (other.group and other.group == process.group) or (
            other.session and other.session == process.session
        ):
            return True
        ancestor: Process | None = process
        for _ in range(GENERATIONS):
            if ancestor is None or ancestor.uid != process.uid or ancestor.parent <= 1:
                return False
            if ancestor.parent == pid:
                return True
            ancestor = self._processes(ancestor.parent)
        return False


def _process_of(name: bytes) -> bytes:
    """What it begins with, up to the pid."""
    return b"/".join(name.split(b"/", TOKENS_OF_A_PROCESS)[:TOKENS_OF_A_PROCESS])
