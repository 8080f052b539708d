"""The peers of the local socket: who they are, and whether they are still there.

Rules
- What is known of a peer comes from the kernel (SO_PEERCRED, SO_PEERGROUPS), never from the peer.
- /proc is read only if it shows our own pid namespace: otherwise the same pid belongs to another process there.
- The name of a program is gone with its process. So it is read first, as soon as a client is accepted. It does not
  count if the process that connected has gone and its pid is another's (SO_PEERPIDFD, from Linux 6.5 on).
"""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import termios
from array import array
from errno import ESRCH
from functools import cache
from pathlib import Path
from typing import NamedTuple

_SO_PEERGROUPS = 59
_SO_PEERPIDFD = 77

# Bytes: a name has at most 15 and a newline.
_COMM_LIMIT = 64

# As many as a Windows domain gives a user, some 100 kB in memory. The kernel allows 65,536, which are 6 MB for each
# connection, and a user with subordinate gids can have them all.
GROUPS_LIMIT = 1024

_libc = ctypes.CDLL(None)
_CREDENTIALS = struct.Struct("iII")  # pid_t, uid_t, gid_t


class Identity(NamedTuple):
    """What the kernel says of a client. ``program`` is empty, and ``resident`` false, when its process has left."""

    pid: int
    uid: int
    gid: int
    program: bytes
    groups: frozenset[int]
    resident: bool


def identify(client: socket.socket) -> Identity:
    """To be called right after accept(2): many programs send one message and leave."""
    pid, uid, gid = peer_credentials(client)
    program, resident = program_of(pid)
    if program and _is_anothers(client, pid):
        program, resident = b"", False
    return Identity(pid, uid, gid, program, peer_groups(client), resident)


def _is_anothers(client: socket.socket, pid: int) -> bool:
    """Whether the pid of the process that connected is that of another process now; False before Linux 6.5.

    A dead one that nobody has waited for still has its pid and its name.
    """
    try:
        pidfd = client.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        return error.errno == ESRCH and Path(f"/proc/{pid}").exists()
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return Path(f"/proc/{pid}").exists()
    except OSError:  # there, and another user's
        return False
    finally:
        os.close(pidfd)
    return False


def peer_credentials(client: socket.socket) -> tuple[int, int, int]:
    """pid, uid and gid of the peer when it connected. The pid is 0 for one of another pid namespace."""
    pid, uid, gid = _CREDENTIALS.unpack(
        client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, uid, gid


def peer_groups(client: socket.socket) -> frozenset[int]:
    """The supplementary groups of the peer when it connected; none before Linux 4.13, which cannot say.

    Of a peer with more than GROUPS_LIMIT these are the lowest: it is found in no other.
    """
    room = ctypes.c_uint32(0)
    _libc.getsockopt(client.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, None, ctypes.byref(room))
    groups = (ctypes.c_uint32 * (room.value // 4))()  # by libc, since the socket module stops at 256 groups
    if _libc.getsockopt(client.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(room)):
        return frozenset()
    return frozenset(groups[:GROUPS_LIMIT])  # which the kernel keeps sorted


def program_of(pid: int) -> tuple[bytes, bool]:
    """The kernel's name for the program of a process, and whether the process is in our own pid namespace.

    The name is empty when the process has gone or is hidden.
    """
    program = b""
    try:
        here = _own_namespaces()
        if not pid or here > 1:
            return b"", False
        program = _comm(pid)
        return program, _namespaces(pid) == here
    except OSError:
        return program, False


def _comm(pid: int) -> bytes:
    """By the fewest calls, as each may come too late."""
    comm = os.open(f"/proc/{pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(comm, _COMM_LIMIT).rstrip(b"\n")
    finally:
        os.close(comm)


def process_of(pid: int) -> tuple[int, int, int, int, frozenset[int], bool] | None:
    """What the kernel says of a process now: its effective uid, the pids of its parent, process group and session,
    as seen from here, its own pids, in each pid namespace it is in, and whether it is in our own. A pid that cannot
    be seen is 0.

    None when the process has gone or is hidden.
    """
    try:
        if pid <= 0 or _own_namespaces() > 1:
            return None
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    # Not by splitlines, as the name of a program may hold what looks like a line to that.
    lines = (line.partition(b":") for line in status.split(b"\n"))
    numbers = {
        key: [int(number) for number in values.split()]
        for key, _, values in lines
        if key in (b"Uid", b"PPid", b"NSpid", b"NSpgid", b"NSsid")
    }
    group, session = (numbers.get(key, [0])[0] for key in (b"NSpgid", b"NSsid"))
    own = numbers.get(b"NSpid", [])
    return numbers[b"Uid"][1], numbers[b"PPid"][0], group, session, frozenset(own) | {pid}, len(own) <= 1


@cache
def _own_namespaces() -> int:
    return _namespaces("self")


def _namespaces(process: int | str) -> int:
    """How many pid namespaces a process is in, from that of /proc down; 0 on a kernel without them."""
    status = Path(f"/proc/{process}/status").read_bytes()
    return len(status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split())


def has_hung_up(fd: int) -> bool:
    """Whether the peer has closed or shut down its sending side. This distinguishes the end from an empty packet."""
    poller = select.poll()
    poller.register(fd, select.POLLRDHUP)
    return bool(poller.poll(0))


def unread_bytes(fd: int) -> int:
    """The bytes of all packets that wait to be read; packets without bytes may wait besides."""
    waiting = array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, waiting)
    return waiting[0]
