"""What ``bccn doctor`` concludes from facts: each check is a function from ``Facts`` to findings, and nothing more.

A check gives no finding where its facts are not known and nobody can help that. To add one: a fact (``facts``), a
function here, its name in CHECKS.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bccnd.commands.terminal import counted
from bccnd.wire.verdict import HARMLESS, Verdict, verdict_of

Row = dict[str, Any]
DATAGRAM_MTU = 1428  # the largest datagram of 1400 bytes with its IPv4 and UDP headers
CLOCK_AHEAD = 1.0  # seconds: the daemon uses a clock's microseconds, and reserves nothing beyond
LOSS_PERCENT = 1.0  # of a source, from where on somebody should look
NAMES_SHOWN = 3
DESCRIPTORS_SPARE = 0.9  # of the limit


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """``what`` was looked at, a word or two; ``remedy``: what to do, empty where there is nothing to."""

    level: Level
    what: str
    finding: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """``mode``: of permissions; None when it cannot be seen. ``fault``: what is wrong with its content."""

    path: str
    mode: int | None = None
    uid: int = 0
    missing: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known; None or empty: it is not. Sizes in bytes, times in seconds.

    ``socket``: served, missing, stale (nobody listens), denied, no-socket (something else is there), silent (connects
    and does not answer). ``status``, ``clients``, ``sources``: the daemon's answers. ``rights``: of the caller, by
    name. ``loopback``: seconds of a round trip on a local channel; ``returns``: whether a datagram sent came back
    from the segment. ``holders``: who holds the UDP port, in words. ``ahead``: of the sequence numbers before the
    clock. ``exceeds_rmem``: the daemon may have more than net.core.rmem_max. ``descriptors``: of the daemon, in use
    and limit.
    """

    version: str
    config_file: str = ""
    config_fault: str = ""
    interfaces: tuple[str, ...] = ()
    port: int = 5400
    receive_bytes: int | None = None
    key_file: KeyFile | None = None
    socket_path: str = ""
    socket: str = "served"
    detail: str = ""
    status: Row | None = None
    clients: list[Row] = field(default_factory=list)
    sources: list[Row] = field(default_factory=list)
    daemon_uid: int | None = None
    exceeds_rmem: bool = False
    rights: dict[str, bool] = field(default_factory=dict)
    loopback: float | None = None
    returns: bool | None = None
    mtus: dict[str, int] = field(default_factory=dict)
    rmem_max: int | None = None
    holders: tuple[str, ...] = ()
    ahead: float | None = None
    clock_synchronised: bool | None = None
    descriptors: tuple[int, int] | None = None


_FIND_SENDER = "see who sends them: tcpdump -A udp port 5400"
_MEND_SENDER = "mend the program that sends them"
# What to do about the verdicts in ``status["rejected"]``; the harmless ones need nothing.
REMEDIES = {
    Verdict.TRUNCATED: _FIND_SENDER,
    Verdict.MAGIC: _FIND_SENDER,
    Verdict.ENVELOPE: _MEND_SENDER,
    Verdict.LENGTH: f"{_MEND_SENDER}: the length counts the bytes after ]",
    Verdict.ALGORITHM: f"{_MEND_SENDER}: it is hmac or crc32",
    Verdict.SUM: _MEND_SENDER,
    Verdict.UNAUTHENTICATED: "give their hosts the key file, or set integrity",
    Verdict.HMAC: "compare the key files of the hosts; reload with SIGHUP",
    Verdict.CRC32: "look for a bad cable, switch or program",
    Verdict.VERSION: "bring all hosts to the same version",
    Verdict.FIELDS: _MEND_SENDER,
    Verdict.SOURCE: _MEND_SENDER,
    Verdict.SEQUENCE: _MEND_SENDER,
    Verdict.CHANNEL: _MEND_SENDER,
    Verdict.TARGET: _MEND_SENDER,
    Verdict.CONFLICT: "give every host a name of its own: host, in the settings",
    Verdict.UNKNOWN_SOURCE: "let the senders name themselves, or set dedup.unknown",
    Verdict.LOCAL_CHANNEL: "give all hosts the same setting local",
    Verdict.REPLAYED: _FIND_SENDER,
}


def _ok(what: str, finding: str) -> Finding:
    return Finding(Level.OK, what, finding)


def _warning(what: str, finding: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, what, finding, remedy)


def _problem(what: str, finding: str, remedy: str) -> Finding:
    return Finding(Level.PROBLEM, what, finding, remedy)


def configuration(facts: Facts) -> Iterable[Finding]:
    if facts.config_fault:
        yield from (
            _problem("configuration", fault, "mend it, then see: bccnd --check")
            for fault in facts.config_fault.splitlines()
        )
    else:
        sound = f"{facts.config_file}: sound" if facts.config_file else "no file; the built-in defaults hold"
        yield _ok("configuration", sound)


def key_file(facts: Facts) -> Iterable[Finding]:
    key, what = facts.key_file, "key file"
    if key is None:
        return
    if key.missing:
        yield _problem(
            what, f"{key.path}: no such file", f"make one: umask 077; openssl rand -hex 32 > {key.path}"
        )
    elif key.mode is None:
        yield _ok(what, f"{key.path}: not for me to see; root can look at it")
    elif key.mode & 0o077:
        yield _problem(what, f"{key.path}: mode {key.mode:04o} lets others at it", f"chmod 600 {key.path}")
    elif facts.daemon_uid is not None and key.uid not in (0, facts.daemon_uid):
        yield _problem(
            what, f"{key.path}: belongs to uid {key.uid}, not to root or the daemon", f"chown root {key.path}"
        )
    elif key.fault:
        yield _problem(what, key.fault, "see: bccnd --check")
    else:
        yield _ok(what, f"{key.path}: mode {key.mode:04o}, uid {key.uid}")


def socket(facts: Facts) -> Iterable[Finding]:
    path, what = facts.socket_path, "socket"
    start = "start the daemon: systemctl start bccnd, or: bccnd &"
    match facts.socket:
        case "served":
            yield _ok(what, path)
        case "missing":
            yield _problem(what, f"{path}: not there", start)
        case "stale":
            yield _problem(what, f"{path}: nobody listens; its daemon has ended without tidying up", start)
        case "denied":
            remedy = "ask for the group of the socket (ls -l), or set socket_mode, socket_group"
            yield _problem(what, f"{path}: no permission to connect", remedy)
        case "no-socket":
            yield _problem(
                what, f"{path}: {facts.detail or 'not a socket of bccnd'}", "name another: --socket PATH"
            )
        case _:
            yield _problem(what, f"{path}: {facts.detail}", "see its log: journalctl -u bccnd")


def daemon(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    version, what = facts.status["version"], "daemon"
    title = f"bccnd {version} on {facts.status['host']}, pid {facts.status['pid']}"
    if version == facts.version:
        yield _ok(what, title)
    else:
        remedy = "systemctl kill --kill-whom=main -s USR2 bccnd (clients do not notice)"
        yield _warning(
            what, f"{title}: not ours, {facts.version}", f"replace it if it is the older: {remedy}"
        )


def rights(facts: Facts) -> Iterable[Finding]:
    if not facts.rights:
        return
    may = [right for right, granted in facts.rights.items() if granted]
    lacking = [right for right, granted in facts.rights.items() if not granted and right != "tap"]
    text = f"I may {', '.join(may) or 'nothing'}"
    if lacking:
        yield _warning(
            "rights", f"{text}; not {', '.join(lacking)}", "if I should: [[rights]] in the settings"
        )
    else:
        yield _ok("rights", text if facts.rights.get("tap", True) else f"{text}; not tap")


def round_trip(facts: Facts) -> Iterable[Finding]:
    if facts.loopback is not None:
        yield _ok("local bus", f"a message to myself took {facts.loopback * 1000:.1f} ms")
    elif facts.rights.get("publish") and facts.rights.get("subscribe"):
        yield _problem(
            "local bus", "a message to myself did not come", "see the daemon's log: journalctl -u bccnd"
        )


def interfaces(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    rows, what = facts.status["segments"], "interfaces"
    if not rows:
        yield _problem(
            what, "no way to the segment is open", "see interfaces in the settings, and: ip -br link"
        )
    for row in rows:
        name = row.get("interface") or "by the routing table"
        way = f"{name}: {row['address']}, port {row['port']}"
        if row.get("error"):
            yield _problem(what, f"{way}: {row['error']}", "see: ip -br addr; ip route; nft list ruleset")
        elif row.get("interface") in facts.mtus and facts.mtus[name] < DATAGRAM_MTU:
            remedy = f"ip link set {name} mtu 1500; fragments are lost more easily"
            yield _warning(what, f"{way}: MTU {facts.mtus[name]} is below {DATAGRAM_MTU}", remedy)
        else:
            yield _ok(what, way)
    open_ones = {row.get("interface") for row in rows}
    for name in facts.interfaces:
        if name not in open_ones and not set(name) & set("*?["):
            yield _warning(what, f"{name} is configured and not in use", f"see: ip addr show {name}")


def segment(facts: Facts) -> Iterable[Finding]:
    if facts.returns is None:
        return
    if facts.returns:
        yield _ok("segment", "a datagram of mine came back to this host")
    else:
        remedy = f"let UDP port {facts.port} in and out: nft list ruleset, iptables -L"
        yield _warning("segment", "a datagram of mine did not come back to this host", remedy)


def buffers(facts: Facts) -> Iterable[Finding]:
    wanted, allowed, what = facts.receive_bytes, facts.rmem_max, "receive buffer"
    dropped = facts.status.get("kernel", {}).get("dropped", 0) if facts.status else 0
    more = "raise net.core.rmem_max and buffers.receive_bytes"
    if wanted and allowed is not None and allowed < wanted and not facts.exceeds_rmem:
        remedy = f"sysctl -w net.core.rmem_max={wanted}, then restart bccnd"
        yield _warning(what, f"net.core.rmem_max allows {allowed} of the {wanted} bytes configured", remedy)
        more = "see above"
    if dropped:
        yield _warning(what, f"the kernel dropped {counted(dropped, 'datagram')}: the buffer was full", more)
    elif facts.status:
        yield _ok(what, "the kernel dropped nothing")


def port(facts: Facts) -> Iterable[Finding]:
    if not facts.holders or facts.socket in ("denied", "silent"):  # then it is the daemon, as like as not
        return
    others = ", ".join(facts.holders[:NAMES_SHOWN])
    if facts.status is not None:
        yield _ok("port", f"UDP {facts.port} also used by {others}")
    else:
        remedy = "bccnd can share it only if SO_REUSEADDR is set there: end it if bccnd does not start"
        yield _warning("port", f"UDP {facts.port} is held by {others}", remedy)


def clock(facts: Facts) -> Iterable[Finding]:
    what = "clock"
    if facts.ahead is not None and facts.ahead > CLOCK_AHEAD:
        remedy = "nothing to mend: numbers go on from where they were; keep the clock synchronised"
        yield _warning(what, f"behind our sequence numbers by {facts.ahead:.0f} s: it was set back", remedy)
    if facts.clock_synchronised is False:
        remedy = "run chrony or systemd-timesyncd; a restart after the clock went back needs sequence_file"
        yield _warning(what, "not synchronised, says the kernel", remedy)
    elif facts.clock_synchronised:
        yield _ok(what, "synchronised")


def descriptors(facts: Facts) -> Iterable[Finding]:
    if facts.descriptors is None:
        return
    used, limit = facts.descriptors
    text = f"{used} of {limit} in use"
    if used > DESCRIPTORS_SPARE * limit:
        yield _warning("descriptors", text, "raise LimitNOFILE= of the unit, or lower limits.clients")
    else:
        yield _ok("descriptors", text)


def clients(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    slow = [row for row in facts.clients if row["slow"] is not None]
    losers = [row for row in facts.clients if row["dropped"] and row["slow"] is None]
    if slow:
        names = _names(f"{row['name']} ({row['queued']} wait, {row['dropped']} lost)" for row in slow)
        remedy = "let it read faster, want less, or have a larger queue: CMSG queue, or [queue]"
        yield _warning("clients", f"{len(slow)} too slow now: {names}", remedy)
    if losers:
        names = _names(f"{row['name']} ({row['dropped']})" for row in losers)
        yield _warning("clients", f"too slow before, and lost messages: {names}", "watch: bccn top -s drops")
    if not slow and not losers:
        yield _ok("clients", f"{counted(len(facts.clients), 'other client')}, none too slow")


def rejected(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    counts = {word: n for word, n in facts.status["rejected"].items() if n and word not in HARMLESS}
    for word, count in sorted(counts.items(), key=lambda item: -item[1]):
        verdict = verdict_of(word)
        meaning = verdict.meaning if verdict else "for a reason unknown here"
        remedy = REMEDIES[verdict] if verdict else "see the daemon's log: journalctl -u bccnd"
        yield _warning("rejected", f"{counted(count, 'datagram')} {meaning} ({word})", remedy)
    unsent = facts.status["counters"]["unsent"]
    if unsent:
        remedy = "a link was down or too slow: bccn status tells which way"
        yield _warning("sending", f"{counted(unsent, 'datagram')} not taken by the network", remedy)
    if not counts and not unsent:
        yield _ok("rejected", "no datagram that should not have been")


def sources(facts: Facts) -> Iterable[Finding]:
    heard = [row for row in facts.sources if row["peer"]]
    lossy = [(100 * row["lost"] / (row["lost"] + row["received"] or 1), row) for row in heard]
    lossy = sorted((each for each in lossy if each[0] >= LOSS_PERCENT), key=lambda each: -each[0])
    if lossy:
        names = _names(f"{row['src']} ({loss:.1f}%)" for loss, row in lossy)
        remedy = "of one host: its link; of all: our receive buffer or link; copies = 2 helps against loss"
        yield _warning("sources", f"{len(lossy)} of {len(heard)} with loss: {names}", remedy)
    silent = [row["src"] for row in heard if row.get("state") == "silent"]
    if silent:
        remedy = "see who is there: bccn who; look at those hosts and their links"
        yield _warning("sources", f"{counted(len(silent), 'source')} fell silent: {_names(silent)}", remedy)
    if facts.status is not None and not lossy and not silent:
        yield _ok("sources", f"{counted(len(heard), 'source')} heard, none with loss")


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else ""
    return ", ".join(listed[:NAMES_SHOWN]) + more


CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    configuration, key_file, socket, daemon, port, rights, round_trip, interfaces, segment, buffers, rejected,
    sources, clients, clock, descriptors,
)  # fmt: skip


def examine(facts: Facts) -> list[Finding]:
    """All findings, in the order in which one fault explains the next."""
    return [finding for check in CHECKS for finding in check(facts)]
