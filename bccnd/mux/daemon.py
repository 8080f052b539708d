"""Links to the daemon: SEQPACKET connections, each for one session of a peer.

    connect --> introduced --> joined --> ended

Rules
- A link first says whom it speaks for, and waits for the answer; its owner does not see that.
- Packets are read and sent in batches, through one arena that all links share: a link itself has no buffer.
- Links of a user take turns at being read (``turns.py``).
- A link is not read while its owner has no appetite. Then only one look is taken, since the daemon may have gone.
- If the daemon takes nothing more, what it has sent is still read to the end.
- JOINING links of one user join at a time, and the others wait here: until a link has joined, the daemon counts it
  against the door, which has no limit there.
- A user other than root and the door's has half of the links, so that nobody keeps the others out.
- Whatever fails, the owner learns it once, and never while it makes the link.
"""

import os
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from errno import EACCES, EAGAIN, ECONNRESET

from bccn.transport import pauses
from bccnd.mux import limits
from bccnd.mux.peer import Peer
from bccnd.mux.speakers import BATCH, GONE, WENT_AWAY, Owner, closing
from bccnd.mux.turns import Turns
from bccnd.net.clients import Clients
from bccnd.net.mmsg import Arena, ReceiveTable

# Bytes of a packet of the bus; one more shows that a packet was cut.
PACKET_LIMIT = 128 * 1024
# Packets of one read from a daemon that has gone.
BATCH_TO_THE_END = 64
# Bytes of packets that are sent with one call.
SCRATCH = 256 * 1024
# Seconds until the next try if the daemon's socket has room, and the kernel has no memory.
AGAIN_SECONDS = 0.01

BUSY = b"unavailable the daemon does not answer"
TOO_MANY = b"limit: the door has too many sessions"
TOO_MANY_OF_USER = b"limit: this user has too many sessions"
TOO_LONG = b"unavailable a packet of the daemon is too long"


class Daemon:
    """The daemon's address, and what all links to it share. ``links``: how many there are; ``most``: their limit."""

    def __init__(self, loop: AbstractEventLoop, path: str, most: int) -> None:
        self.loop = loop
        self.path = path
        self.links = 0
        self.most = most
        self._owners = frozenset((0, os.geteuid()))
        self._of_user: Counter[int] = Counter()
        self._joining: Counter[int] = Counter()
        self._waiting: dict[int, OrderedDict[DaemonLink, None]] = {}  # to join, by user
        self.packets_in = self.packets_out = 0
        self.reading = Turns(loop, limits.PACKETS, BATCH)
        self.arena = Arena.holding(ReceiveTable.needs(PACKET_LIMIT + 1), Clients.needs(SCRATCH))
        self.receiving = ReceiveTable(self.arena, PACKET_LIMIT + 1)
        self.sending = Clients(self.arena, SCRATCH)

    @property
    def address(self) -> str:
        return "\0" + self.path[1:] if self.path.startswith("@") else self.path

    def connector(self, peer: Peer) -> "Callable[[Owner], DaemonLink]":
        """A function that makes links for one peer."""
        return lambda owner: DaemonLink(self, owner, peer)

    # --- places ---

    def admit(self, uid: int) -> bytes:
        """Count a link. Returns why it must end, or nothing if it may join."""
        self.links += 1
        self._of_user[uid] += 1
        if self.links > self.most:
            return TOO_MANY
        is_one_of_many = uid not in self._owners and self._of_user[uid] > max(1, self.most // 2)
        return TOO_MANY_OF_USER if is_one_of_many else b""

    def give_back(self, uid: int) -> None:
        self.links -= 1
        self._of_user[uid] -= 1
        if not self._of_user[uid]:
            del self._of_user[uid]

    def may_join(self, link: "DaemonLink", uid: int) -> bool:
        """Whether the link may join now. If not, its ``join`` is called when it has its turn."""
        if self._joining[uid] >= limits.JOINING:
            self._waiting.setdefault(uid, OrderedDict())[link] = None
            return False
        self._joining[uid] += 1
        return True

    def gives_up(self, link: "DaemonLink", uid: int) -> None:
        """The link ends; it may still have waited for its turn."""
        if (waiting := self._waiting.get(uid)) is not None:
            waiting.pop(link, None)
            if not waiting:
                del self._waiting[uid]

    def has_joined(self, uid: int) -> None:
        """The link has joined, or has ended meanwhile: the next one has its turn."""
        self._joining[uid] -= 1
        if not self._joining[uid]:
            del self._joining[uid]
        if waiting := self._waiting.get(uid):
            link, _ = waiting.popitem(last=False)
            if not waiting:
                del self._waiting[uid]
            self._joining[uid] += 1
            link.join()


class DaemonLink:
    """One connection, for ``owner``."""

    __slots__ = (
        "_attempts", "_daemon", "_deadline", "_has_turn", "_is_finished", "_is_joined", "_is_joining", "_is_read",
        "_is_sent_to", "_owner", "_peer", "_retry", "_socket",
    )  # fmt: skip

    def __init__(self, daemon: Daemon, owner: Owner, peer: Peer) -> None:
        self._daemon = daemon
        self._owner: Owner | None = owner
        self._peer = peer
        self._socket: socket.socket | None = None
        self._is_joined = self._is_joining = self._is_sent_to = self._is_finished = False
        self._is_read = self._has_turn = False  # the loop watches it, or it waits for its turn
        self._attempts: Iterator[float] = pauses()
        self._deadline: TimerHandle | None = daemon.loop.call_later(limits.JOINING_SECONDS, self._end, BUSY)
        reason = daemon.admit(peer.uid)
        self._retry: TimerHandle | None = None
        if reason:
            self._retry = daemon.loop.call_later(0, self._end, reason)
        elif daemon.may_join(self, peer.uid):
            self.join()

    # --- to join ---

    def join(self) -> None:
        self._is_joining = True
        self._retry = self._daemon.loop.call_later(0, self._connect)

    def _end_joining(self) -> None:
        if self._is_joining:
            self._is_joining = False
            self._daemon.has_joined(self._peer.uid)

    def _connect(self) -> None:
        self._retry = None
        try:
            made = socket.socket(
                socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
        except OSError as error:
            self._end(f"unavailable the door has no socket for it: {error.strerror}".encode())
            return
        answer = made.connect_ex(self._daemon.address)
        if answer:
            made.close()
            if answer == EAGAIN:  # the daemon is there, and has not yet accepted all that connect
                self._retry = self._daemon.loop.call_later(next(self._attempts), self._connect)
            else:
                self._end(unreached(self._daemon.path, answer))
            return
        self._socket = made
        if self._daemon.sending.send(made.fileno(), self._peer.introduction) != 1:
            self._end(WENT_AWAY)
            return
        self.read_on()

    def _greeted(self, packet: bytes) -> None:
        head, _, text = packet.partition(b"\0")
        if head == b"CMSG peer":
            self._is_joined = True
            if self._deadline:
                self._deadline.cancel()
                self._deadline = None
            self._end_joining()
            if self._owner:
                self._owner.joined()
        elif head == b"CMSG error":
            self._end(text)
        elif head == b"CMSG closing":
            self._end(closing(text))
        else:
            self._end(WENT_AWAY)

    # --- to read ---

    def read_on(self) -> None:
        if self._socket is not None and not self._is_read and not self._has_turn:
            self._is_read = True
            self._daemon.loop.add_reader(self._socket, self._on_readable)

    def _stop_reading(self) -> None:
        if self._socket is not None and self._is_read:
            self._is_read = False
            self._daemon.loop.remove_reader(self._socket)

    def _on_readable(self) -> None:
        if not self._daemon.reading.take(self._peer.uid, self._turn):
            self._has_turn = True
            self._stop_reading()

    def _turn(self, share: int) -> int:
        """Read ``share`` packets at most. Returns the work done."""
        self._has_turn = False
        if self._owner is None:
            return 0
        before = self._daemon.packets_in
        most = min(share, self._owner.appetite()) if self._is_joined else 1
        if not most:
            self._look()
            return 1
        self._read(most)
        self.read_on()
        return 1 + self._daemon.packets_in - before

    def _read(self, most: int) -> bool:
        """Pass on up to so many packets. False if there are none, or the link is over."""
        if self._socket is None or self._owner is None:
            return False
        table, memory = self._daemon.receiving, self._daemon.arena.memory
        try:
            descriptor = self._socket.fileno()
            starts, ends = table.read_one(descriptor) if most == 1 else table.read(descriptor, most)
        except OSError as error:
            if error.errno == ECONNRESET:
                self._read_anew()
                return True
            self._end(WENT_AWAY)
            return False
        if not starts:
            return False
        packets = [memory[start:end] for start, end in zip(starts, ends, strict=True)]
        ends_here = not all(packets)
        if ends_here:
            del packets[packets.index(b"") :]
        if packets:
            self._daemon.packets_in += len(packets)
            if max(map(len, packets)) > PACKET_LIMIT:
                self._end(TOO_LONG)
                return False
            if self._is_joined:
                self._owner.received(packets)
            else:
                self._greeted(packets[0])
        if ends_here:
            self._end(WENT_AWAY)
        return not ends_here

    def _look(self) -> None:
        """The owner wants no packets. Check only whether the daemon has gone."""
        assert self._socket is not None  # noqa: S101 - it is readable
        try:
            if not self._socket.recv(1, socket.MSG_PEEK):
                self._end(WENT_AWAY)
                return
        except BlockingIOError:
            pass
        except OSError:
            self._read_anew()
            return
        self._stop_reading()

    def _read_anew(self) -> None:
        """Read on after a reset, which is reported once: what the daemon had sent is still there.

        The loop stops watching a descriptor with an error, and starts again once all its watches are removed.
        """
        assert self._socket is not None  # noqa: S101 - it was read
        loop = self._daemon.loop
        self._stop_reading()
        loop.remove_writer(self._socket)
        self.read_on()
        if self._is_sent_to and self._retry is None:
            loop.add_writer(self._socket, self._on_writable)

    # --- to send ---

    def send(self, packets: Sequence[bytes]) -> int:
        if self._socket is None:
            return GONE
        went = self._daemon.sending.send_each(self._socket.fileno(), packets)
        if went == GONE:
            self._daemon.loop.call_soon(self._read_to_the_end)
            return GONE
        self._daemon.packets_out += went
        if went < len(packets) and not self._is_sent_to:
            self._is_sent_to = True
            if went:
                self._daemon.loop.add_writer(self._socket, self._on_writable)
            else:  # the kernel may lack memory though the socket has room, and no event tells when that changes
                self._retry = self._daemon.loop.call_later(AGAIN_SECONDS, self._wait_for_room)
        return went

    def _wait_for_room(self) -> None:
        self._retry = None
        if self._socket is not None:
            self._daemon.loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        if self._socket is not None and self._owner is not None:
            self._is_sent_to = False
            self._daemon.loop.remove_writer(self._socket)
            self._owner.takes_more()

    def finish(self) -> None:
        if self._socket is not None and not self._is_finished:
            self._is_finished = True
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self._read_to_the_end()

    # --- the end ---

    def _read_to_the_end(self) -> None:
        """Read what the daemon sent before it went away: at most what its socket holds."""
        while self._read(BATCH_TO_THE_END):
            pass
        self._end(WENT_AWAY)

    def _end(self, reason: bytes) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            self._let_go()
            owner.ended(reason)

    def close(self) -> None:
        if self._owner is not None:
            self._owner = None
            self._let_go()

    def _let_go(self) -> None:
        self._daemon.gives_up(self, self._peer.uid)
        self._end_joining()
        self._daemon.give_back(self._peer.uid)
        for timer in (self._deadline, self._retry):
            if timer is not None:
                timer.cancel()
        if self._socket is not None:
            self._stop_reading()
            self._daemon.loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None


def unreached(path: str, answer: int) -> bytes:
    """Why there is no connection to the daemon, as ``unavailable``: it may be there in a moment."""
    if answer == EACCES:
        return f"unavailable the door may not open {path}: run bccnd-mux as root or as the user of bccnd".encode()
    return f"unavailable no daemon at {path}: {os.strerror(answer)}".encode()
