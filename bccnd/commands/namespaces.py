"""Where the daemon behind a socket is: which process it is, and whether it sees the network that we see.

A pathname socket can be reached from any network namespace that has the file. ``bccn doctor`` would then judge its
own interfaces instead of the daemon's.

Rules
- Nothing is guessed: what the kernel does not show us is None.
- /proc/net/unix shows the sockets of our network namespace alone, also those whose files have gone (proc(5)).
"""

from pathlib import Path

# /proc/net/unix: the flag of a listening socket (__SO_ACCEPTCON), and the type SOCK_SEQPACKET.
_LISTENING, _SEQPACKET = 0x10000, 5


def listening_inode(path: str, table: Path = Path("/proc/net/unix")) -> int | None:
    """The inode of the socket of our network namespace that listens at ``path``, whether or not the file is there.

    0 if there is none, None if that cannot be seen.
    """
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[7] == path and _listens(fields[3], fields[4]):
            return int(fields[6])
    return 0


def _listens(flags: str, kind: str) -> bool:
    try:
        return bool(int(flags, 16) & _LISTENING) and int(kind, 16) == _SEQPACKET
    except ValueError:  # a file name with a newline in it
        return False


def process_of(listening: int, reported: int) -> int | None:
    """The pid of the daemon, as we see it; None if we do not.

    ``listening``: of who made the socket listen (SO_PEERCRED), which may be a service manager or the program before a
    replacement; ``reported``: as the daemon has it in its own pid namespace.
    """
    if _own_pid(listening) == reported:
        return listening
    return reported if _own_pid(reported) == reported and _is_daemon(reported) else None


def in_other_network(pid: int | None, path: str) -> bool | None:
    """Whether the daemon is in another network namespace than we are. ``pid``: of ``process_of``."""
    if pid is not None:
        try:
            return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        except OSError:  # of another user
            pass
    inode = None if path.startswith("@") else listening_inode(path)
    return None if inode is None else inode == 0


def _own_pid(pid: int) -> int | None:
    """The pid that a process has in its own pid namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = status.partition("\nNSpid:")[2].partition("\n")[0].split()
    return int(found[-1]) if found else None


def _is_daemon(pid: int) -> bool:
    try:
        return b"bccnd" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
