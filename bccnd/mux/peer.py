"""The process that a connection speaks for (``clients/PROTOCOL.md``, "Speaking for others")."""

from dataclasses import dataclass

# Bytes of a program's name; the kernel's has 15.
PROGRAM_LIMIT = 32
# The daemon takes no more gids. Those that are left out grant nothing.
GROUPS_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Peer:
    """``groups``: the primary gid first. ``pid``: 0 for a process that is not of this host."""

    uid: int
    groups: tuple[int, ...]
    pid: int = 0
    program: bytes = b""

    @property
    def introduction(self) -> bytes:
        groups = b",".join(b"%d" % gid for gid in self.groups[:GROUPS_LIMIT])
        program = self.program.replace(b"\0", b"_").replace(b"\n", b"_")[:PROGRAM_LIMIT]
        return b"CMSG peer\0%d %b %d %b" % (self.uid, groups, self.pid, program)
