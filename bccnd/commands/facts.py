"""Gathers what ``bccn doctor`` judges: from the settings, from /proc and /sys, and by trying the bus.

Rules
- Nothing here draws conclusions; ``findings`` does. What cannot be seen is left unknown: a program of another user,
  another pid namespace, a kernel without the file.
- The bus is tried under one name, with one message on ``local/doctor/<pid>`` and one on ``doctor/<pid>``, which goes
  to the segment. No wait is longer than PATIENCE.
- What programs beside the daemon answer counts only under the name that the daemon gives them. Each name has as many
  messages as an answer may have: who sends more hides nobody else.
"""

import contextlib
import ctypes
import os
import resource
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import bccn
from bccn.transport import socket_address
from bccnd import __version__
from bccnd.beside import answers
from bccnd.beside.answers import Form
from bccnd.commands import namespaces
from bccnd.commands.outcome import remedy, silent
from bccnd.dndm import troubles
from bccnd.doctor.facts import Facts, KeyFile, Row
from bccnd.errors import BccndError, RefusedError
from bccnd.process.configuration import DEFAULT_FILE, load
from bccnd.process.keys import CREDENTIAL, read_keys
from bccnd.uplink import account

# Seconds.
PATIENCE = 2.0
# Seconds between two looks at a counter.
POLL = 0.02
# Names of programs beside the daemon whose answers are taken.
NAMES_LIMIT = 64
# The programs that hold the port and are named.
HOLDERS = 10
_CAP_NET_ADMIN = 12
# adjtimex(2): TIME_ERROR.
_CLOCK_UNSYNCHRONISED = 5
_UCRED = struct.Struct("=iII")


def gather(path: str | None, config: str | None, environ: Mapping[str, str]) -> Facts:
    """``path``: the daemon's socket; ``config``: the settings file; None for the usual ones."""
    facts = _configured(Facts(__version__, socket_path=bccn.socket_path(path)), config, environ)
    facts = replace(
        facts,
        rmem_max=_number(Path("/proc/sys/net/core/rmem_max")),
        mtus=_mtus(),
        clock_synchronised=_clock_synchronised(),
    )
    facts = _connected(facts)
    if facts.elsewhere:  # what we see of the network is not what the daemon sees
        return replace(facts, mtus={}, rmem_max=None)
    own = facts.status["pid"] if facts.status else None
    return replace(facts, holders=tuple(_holders(facts.port, own))[:HOLDERS])


# -- the settings


def _configured(facts: Facts, config: str | None, environ: Mapping[str, str]) -> Facts:
    file = config or environ.get("BCCND_CONFIG") or (str(DEFAULT_FILE) if DEFAULT_FILE.exists() else "")
    argv = ["--socket", facts.socket_path, *(["--config", file] if file else [])]
    try:
        settings = load(argv, environ).settings
    except BccndError as error:
        return replace(facts, config_file=file, config_fault=str(error))
    return replace(
        facts,
        config_file=file,
        interfaces=settings.interfaces,
        port=settings.port,
        receive_bytes=settings.buffers.receive_bytes,
        hold_bytes=settings.repair.hold_bytes,
        subscriptions_limit=settings.limits.subscriptions,
        key_file=_key_file(settings.key_file),
        rights_by_program=tuple(sorted({grant.program for grant in settings.rights if grant.program})),
    )


def _key_file(path: Path | None) -> KeyFile | None:
    if path is None or str(path).startswith(CREDENTIAL):  # a credential is visible to the unit alone
        return None
    try:
        status = path.stat()
    except FileNotFoundError:
        return KeyFile(str(path), missing=True)
    except OSError:
        return KeyFile(str(path))
    fault = ""
    if os.access(path, os.R_OK):
        try:
            read_keys(path)
        except RefusedError:
            pass  # for its owner or mode, as we see them; the daemon may be another user
        except BccndError as error:
            fault = str(error)
    return KeyFile(str(path), stat.S_IMODE(status.st_mode), status.st_uid, fault=fault)


# -- the bus


def _connected(facts: Facts) -> Facts:
    """Add the state of the socket, and what the daemon behind it says."""
    path = facts.socket_path
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with probe:
        probe.settimeout(PATIENCE)
        try:
            _connect(probe, path)
            pid, uid, _ = _UCRED.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        except OSError as error:
            # Also of what is no socket: the state says it.
            refused = isinstance(error, ConnectionRefusedError)
            detail = "" if refused else error.strerror or str(error)
            facts = replace(facts, socket=_state_of(path, error), detail=detail)
            return _deleted(facts) if facts.socket in ("missing", "stale", "no-socket") else facts
    try:
        with bccn.Client(path, format="full", reconnect=False, timeout=PATIENCE, on_notice=silent) as bus:
            return _asked(replace(facts, daemon_uid=uid), bus, pid)
    except bccn.BccnError as error:
        return replace(facts, socket="silent", detail=str(error), remedy=remedy(error))


def _connect(probe: socket.socket, path: str) -> None:
    """Connect, waiting while as many programs wait to be accepted as may: then connect(2) returns EAGAIN."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return probe.connect(socket_address(path))
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL)


def _state_of(path: str, error: OSError) -> str:
    """``Facts.socket`` of a socket that cannot be connected to."""
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, PermissionError):
        return "denied"
    if isinstance(error, BlockingIOError):
        return "busy"
    if isinstance(error, ConnectionRefusedError):
        if path.startswith("@"):
            return "missing"
        with contextlib.suppress(OSError):
            return "stale" if Path(path).is_socket() else "no-socket"
    return "silent" if isinstance(error, TimeoutError) else "no-socket"  # EPROTOTYPE: of another type


def _deleted(facts: Facts) -> Facts:
    """Look for a daemon that listens at this path though its file has gone, or is another one's now."""
    inode = namespaces.listening_inode(str(Path(facts.socket_path).absolute()))
    if facts.socket_path.startswith("@") or not inode:
        return facts
    daemon = next(
        (f"{_program(pid)} (pid {pid})" for pid, held in _open_sockets() if held == inode), "a process"
    )
    return replace(facts, socket="deleted", detail=daemon)


def _asked(facts: Facts, bus: bccn.Client, listening: int) -> Facts:
    """``listening``: the pid of who made the socket listen."""
    rights = {"publish": True, "subscribe": True, "tap": _may_tap(bus)}
    loopback = _round_trip(bus, rights)
    try:
        status = bus.status()
    except bccn.RefusedError:
        return replace(facts, rights=rights | {"observe": False}, loopback=loopback)
    pid = namespaces.process_of(listening, status["pid"])
    returns, ahead = _sent_out(bus, bool(status["segments"])) if rights["publish"] else (None, None)
    uplinks, gateways = _beside(bus) if rights["publish"] else ([], [])
    return replace(
        facts,
        status=status,
        port=next((row["port"] for row in status["segments"]), facts.port),  # flags may have set another
        clients=[row for row in bus.clients() if row["name"] != bus.name],
        sources=bus.sources(),
        rights=rights,
        loopback=loopback,
        ahead=ahead,
        returns=returns,
        elsewhere=namespaces.in_other_network(pid, facts.socket_path) is True,
        daemon_pid=pid,
        exceeds_rmem=pid is not None and _may_exceed(pid),
        descriptors=None if pid is None else _descriptors(pid),
        uplinks=uplinks,
        gateways=gateways,
    )


def _beside(bus: bccn.Client) -> tuple[list[Row], list[Row]]:
    """What uplinks and gateways of this host say of themselves: each under the name that the daemon gives it."""
    said: dict[Form, dict[str, list[Row]]] = {account.FORM: {}, troubles.FORM: {}}
    whole: set[str] = set()
    with contextlib.suppress(bccn.BccnError):  # nobody answers, or we have no right to hear it
        listeners = int(bus.control("listeners", answers.CHANNEL))
        for reply in bus.request_many(answers.CHANNEL, b"", PATIENCE):
            for form, by_name in said.items():
                part = form.read(reply.payload)
                name = str(reply.src)
                if part is None or part[form.program] != name:
                    continue
                if name not in by_name and len(by_name) == NAMES_LIMIT:
                    continue
                taken = by_name.setdefault(name, [])
                if len(taken) <= form.most:
                    taken.append(part)
                    whole |= {name} if form.gathered(taken, only_whole=True) else set()
            if len(whole) >= listeners:
                break
    uplinks, gateways = (
        [program for name in sorted(by_name) for program in form.gathered(by_name[name])]
        for form, by_name in said.items()
    )
    return uplinks, gateways


def _may_tap(bus: bccn.Client) -> bool:
    try:
        bus.control("tap", "on")
    except bccn.RefusedError:
        return False
    bus.control("tap", "off")
    return True


def _subscribed(bus: bccn.Client, channel: str) -> bool:
    try:
        bus.subscribe(channel)
    except bccn.RefusedError:
        return False
    return True


def _published(bus: bccn.Client, channel: str) -> bool:
    bus.publish(channel)
    try:
        bus.barrier()
    except bccn.RefusedError:
        return False
    return True


def _received(bus: bccn.Client, channel: str) -> bccn.Message | None:
    deadline = time.monotonic() + PATIENCE
    while message := bus.receive(max(deadline - time.monotonic(), 0)):
        if message.channel == channel:
            break
    return message


def _round_trip(bus: bccn.Client, rights: dict[str, bool]) -> float | None:
    """Seconds for a message to ourselves; notes in ``rights`` which of those it takes are lacking."""
    channel = f"local/doctor/{os.getpid()}"
    rights["subscribe"] = _subscribed(bus, channel)
    began = time.monotonic()
    rights["publish"] = _published(bus, channel)
    if rights["publish"] and rights["subscribe"] and _received(bus, channel):
        return time.monotonic() - began
    return None


def _sent_out(bus: bccn.Client, outside: bool) -> tuple[bool | None, float | None]:
    """Whether a datagram we send comes back, and how far its number is ahead of the clock; None where unknown.

    ``outside``: whether the daemon has a socket to the segment.
    """
    channel = f"doctor/{os.getpid()}"
    before = bus.status()["rejected"].get("own", 0)
    subscribed = _subscribed(bus, channel)
    if not _published(bus, channel):
        return None, None
    message = _received(bus, channel) if subscribed else None
    ahead = message.seq / 1e6 - time.time() if message and message.seq else None
    if not outside:
        return None, ahead
    deadline = time.monotonic() + PATIENCE
    while bus.status()["rejected"].get("own", 0) <= before:
        if time.monotonic() > deadline:
            return False, ahead
        time.sleep(POLL)
    return True, ahead


# -- the system


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _mtus() -> dict[str, int]:
    found = {name: _number(Path("/sys/class/net", name, "mtu")) for _, name in socket.if_nameindex()}
    return {name: mtu for name, mtu in found.items() if mtu is not None}


def _clock_synchronised() -> bool | None:
    """As adjtimex(2) says."""
    buffer = ctypes.create_string_buffer(512)  # struct timex, and more; modes 0 only reads
    state: int = ctypes.CDLL(None).adjtimex(buffer)
    return None if state < 0 else state != _CLOCK_UNSYNCHRONISED


def _may_exceed(pid: int) -> bool:
    """Whether a process may have a larger receive buffer than net.core.rmem_max allows."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_NET_ADMIN & 1)


def _descriptors(pid: int) -> tuple[int, int] | None:
    """(in use, limit) of a process; None if we may not see them."""
    try:
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except OSError:
        return None
    return used, limit


def _holders(port: int, own: int | None) -> Iterator[str]:
    """The holders of the UDP port besides the process ``own``: ``nc (pid 12)``, or ``a program of uid 5``."""
    inodes = dict(_udp_sockets(port))
    if not inodes:
        return
    for pid, inode in _open_sockets():
        if inode in inodes:
            del inodes[inode]
            if pid != own:
                yield f"{_program(pid)} (pid {pid})"
    if own is None or os.geteuid() == 0:
        for uid in sorted(set(inodes.values())):
            yield f"a program of uid {uid}"


def _udp_sockets(port: int) -> Iterator[tuple[int, int]]:
    """(inode, uid) of the sockets bound to a port (proc(5), /proc/net/udp)."""
    for table in "udp", "udp6":
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port:
                    yield int(fields[9]), int(fields[7])


def _open_sockets() -> Iterator[tuple[int, int]]:
    """(pid, inode) of the sockets of all processes that we may look into. One that ends meanwhile has none."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            for target in _open_files(process / "fd"):
                if target.startswith("socket:["):
                    yield int(process.name), int(target[8:-1])


def _open_files(descriptors: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in descriptors.iterdir():
            with contextlib.suppress(OSError):
                yield str(entry.readlink())


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a program"
