"""The checks of ``bccn doctor``, and of a door's page. Each check is a function from ``Facts`` to findings, and
nothing more.

A check says nothing where its facts are unknown. To add a check, add what it needs to ``Facts`` and ``gather``, write
a function here, or in ``programs``, and name it in CHECKS.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from bccnd.doctor.facts import Facts, Row
from bccnd.doctor.finding import NAMES_SHOWN, Finding, names_of, ok, problem, warning
from bccnd.doctor.loss import loss_of
from bccnd.doctor.programs import gateways, uplinks
from bccnd.process.standard_streams import counted
from bccnd.wire.verdict import HARMLESS, Verdict, verdict_of

# The largest datagram, 1400 bytes, with its IPv4 and UDP headers.
DATAGRAM_MTU = 1428
# Seconds. Sequence numbers follow the clock; when they are further ahead, it was set back.
CLOCK_AHEAD = 1.0
# Percent of loss of a source that is worth a warning.
LOSS_PERCENT = 1.0
# The part of a limit that may be in use without a warning.
SPARE = 0.9

_FIND_SENDER = "see who sends them: tcpdump -A udp port 5400"
_CORRECT_SENDER = "correct the program that sends them"
# What to do about the verdicts in ``status["rejected"]``; the harmless ones need nothing.
REMEDIES = {
    Verdict.TRUNCATED: _FIND_SENDER,
    Verdict.MAGIC: _FIND_SENDER,
    Verdict.ENVELOPE: _CORRECT_SENDER,
    Verdict.LENGTH: f"{_CORRECT_SENDER}: the length counts the bytes after ]",
    Verdict.ALGORITHM: f"{_CORRECT_SENDER}: it is hmac or crc32",
    Verdict.SUM: _CORRECT_SENDER,
    Verdict.UNAUTHENTICATED: "give their hosts the key file, or set integrity",
    Verdict.HMAC: "compare the key files of the hosts; reload with SIGHUP",
    Verdict.CRC32: "look for a bad cable, switch or program",
    Verdict.VERSION: "bring all hosts to the same version",
    Verdict.FIELDS: _CORRECT_SENDER,
    Verdict.SOURCE: _CORRECT_SENDER,
    Verdict.SEQUENCE: _CORRECT_SENDER,
    Verdict.CHANNEL: _CORRECT_SENDER,
    Verdict.TARGET: _CORRECT_SENDER,
    Verdict.CONFLICT: "give every host a name of its own: host, in the settings",
    Verdict.UNKNOWN_SOURCE: "let the senders name themselves, or set dedup.unknown",
    Verdict.LOCAL_CHANNEL: "give all hosts the same setting local",
    Verdict.REPLAYED: _FIND_SENDER,
}


def configuration(facts: Facts) -> Iterable[Finding]:
    if facts.config_fault:
        yield from (
            problem("configuration", fault, "correct it, then run: bccnd --check")
            for fault in facts.config_fault.splitlines()
        )
    elif facts.config_file is not None:
        sound = f"{facts.config_file}: sound" if facts.config_file else "no file; the built-in defaults apply"
        yield ok("configuration", sound)


def key_file(facts: Facts) -> Iterable[Finding]:
    key, what = facts.key_file, "key file"
    if key is None:
        return
    if key.missing:
        yield problem(
            what, f"{key.path}: no such file", f"make one: umask 077; openssl rand -hex 32 > {key.path}"
        )
    elif key.mode is None:
        yield ok(what, f"{key.path}: only root can look at it")
    elif key.mode & 0o077:
        yield problem(what, f"{key.path}: mode {key.mode:04o} lets others at it", f"chmod 600 {key.path}")
    elif facts.daemon_uid is not None and key.uid not in (0, facts.daemon_uid):
        yield problem(
            what, f"{key.path}: belongs to uid {key.uid}, not to root or the daemon", f"chown root {key.path}"
        )
    elif key.fault:
        yield problem(what, key.fault, "see: bccnd --check")
    else:
        yield ok(what, f"{key.path}: mode {key.mode:04o}, uid {key.uid}")


def socket(facts: Facts) -> Iterable[Finding]:
    path, what = facts.socket_path, "socket"
    start = "start the daemon: systemctl start bccnd, or: bccnd &"
    if not path:
        return
    match facts.socket:
        case "served":
            yield ok(what, path)
        case "missing":
            yield problem(what, f"{path}: not there", start)
        case "stale":
            yield problem(what, f"{path}: nobody listens; its daemon did not stop cleanly", start)
        case "deleted":
            remedy = "bccnd makes its file again within seconds; if it does not, restart what made the socket"
            remedy += ": systemctl restart bccnd.socket bccnd, or bccnd alone; until then who is connected "
            remedy += "stays so"
            yield problem(
                what, f"{path}: its file was deleted, and {facts.detail} still listens there", remedy
            )
        case "busy":
            remedy = "see whether it is stuck, or which program connects over and over: journalctl -u bccnd"
            yield problem(what, f"{path}: too many programs connect, and the daemon accepts none", remedy)
        case "denied":
            remedy = "join the group of the socket (ls -l), or set socket_mode and socket_group"
            yield problem(what, f"{path}: no permission to connect", remedy)
        case "no-socket":
            yield problem(
                what, f"{path}: {facts.detail or 'not a socket of bccnd'}", "name another: --socket PATH"
            )
        case _:
            yield problem(what, f"{path}: {facts.detail}", facts.remedy or "see its log: journalctl -u bccnd")


def daemon(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    version, what = facts.status["version"], "daemon"
    title = f"bccnd {version} on {facts.status['host']}, pid {facts.status['pid']}"
    if version == facts.version:
        yield ok(what, title)
    else:
        remedy = "systemctl kill --kill-whom=main -s USR2 bccnd replaces it, and no client notices"
        yield warning(what, f"{title}: this is bccn {facts.version}", f"if the daemon is the older: {remedy}")


def rights(facts: Facts) -> Iterable[Finding]:
    if not facts.rights:
        return
    may = [right for right, granted in facts.rights.items() if granted]
    lacking = [right for right, granted in facts.rights.items() if not granted and right != "tap"]
    text = f"you may {', '.join(may) or 'do nothing'}"
    if lacking:
        yield warning(
            "rights", f"{text}; not {', '.join(lacking)}", "to grant it: [[rights]] in the settings"
        )
    else:
        yield ok("rights", text if facts.rights.get("tap", True) else f"{text}; not tap")


def rights_by_program(facts: Facts) -> Iterable[Finding]:
    """The daemon does not learn the program of a client that leaves at once."""
    if not facts.rights_by_program or facts.status is None:
        return
    what, refused = "rights", sum(facts.status.get("refused", {}).values())
    text = f"granted by program: {names_of(facts.rights_by_program)}; one that leaves at once is unknown, and refused"
    if refused:
        remedy = "grant by uid or gid instead, or let such a program stay until its ping is answered"
        yield warning(what, f"{text} ({counted(refused, 'refusal')} so far)", remedy)
    else:
        yield ok(what, text)


def network(facts: Facts) -> Iterable[Finding]:
    if facts.elsewhere:
        there = (
            f"nsenter --net=/proc/{facts.daemon_pid}/ns/net " if facts.daemon_pid else "in its namespace: "
        )
        text = (
            "the daemon is in another network namespace: its interfaces, buffers and port are not judged here"
        )
        yield warning(
            "network", text, f"to have them judged, run {there}bccn --socket {facts.socket_path} doctor"
        )


def round_trip(facts: Facts) -> Iterable[Finding]:
    if facts.loopback is not None:
        yield ok("local bus", f"a message took {facts.loopback * 1000:.1f} ms to the daemon and back")
    elif facts.rights.get("publish") and facts.rights.get("subscribe"):
        yield problem(
            "local bus", "a message did not come back from the daemon", "see its log: journalctl -u bccnd"
        )


def interfaces(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    rows, what = facts.status["segments"], "interfaces"
    if not rows:
        yield problem(
            what, "no socket to the segment is open", "see interfaces in the settings, and: ip -br link"
        )
    for row in rows:
        name = row.get("interface") or "by the routing table"
        binding = f"{name}: {row['address']}, port {row['port']}"
        if row.get("error"):
            yield problem(what, f"{binding}: {row['error']}", "see: ip -br addr; ip route; nft list ruleset")
        elif facts.elsewhere:
            yield ok(what, f"{binding}, in its own network namespace")
        elif row.get("interface") in facts.mtus and facts.mtus[name] < DATAGRAM_MTU:
            remedy = f"ip link set {name} mtu 1500: a datagram in fragments is lost more easily"
            yield warning(what, f"{binding}: MTU {facts.mtus[name]} is below {DATAGRAM_MTU}", remedy)
        else:
            yield ok(what, binding)
    open_ones = {row.get("interface") for row in rows}
    for name in facts.interfaces:
        if name not in open_ones and not facts.elsewhere and not set(name) & set("*?["):
            yield warning(what, f"{name} is configured but not in use", f"see: ip addr show {name}")


def segment(facts: Facts) -> Iterable[Finding]:
    if facts.returns is None:
        return
    if facts.returns:
        yield ok("segment", "a datagram from this host came back to it")
    else:
        remedy = f"let UDP port {facts.port} in and out: nft list ruleset, iptables -L"
        yield warning("segment", "a datagram from this host did not come back to it", remedy)


def buffers(facts: Facts) -> Iterable[Finding]:
    wanted, allowed, what = facts.receive_bytes, facts.rmem_max, "receive buffer"
    dropped = facts.status.get("kernel", {}).get("dropped", 0) if facts.status else 0
    more = "raise net.core.rmem_max and buffers.receive_bytes"
    if wanted and allowed is not None and allowed < wanted and not facts.exceeds_rmem:
        remedy = f"sysctl -w net.core.rmem_max={wanted}, then restart bccnd"
        yield warning(what, f"net.core.rmem_max allows {allowed} of the {wanted} bytes configured", remedy)
        more = "see above"
    if dropped:
        yield warning(what, f"the kernel dropped {counted(dropped, 'datagram')}: the buffer was full", more)
    elif facts.status:
        yield ok(what, "the kernel dropped nothing")


def port(facts: Facts) -> Iterable[Finding]:
    # In these states the daemon probably holds the port itself.
    if not facts.holders or facts.socket in ("denied", "silent", "busy", "deleted"):
        return
    others = ", ".join(facts.holders[:NAMES_SHOWN])
    if facts.socket == "served":
        yield ok("port", f"UDP {facts.port} also used by {others}")
    else:
        remedy = "bccnd can share it if that sets SO_REUSEADDR; if bccnd does not start, end that program"
        yield warning("port", f"UDP {facts.port} is held by {others}", remedy)


def clock(facts: Facts) -> Iterable[Finding]:
    what = "clock"
    if facts.ahead is not None and facts.ahead > CLOCK_AHEAD:
        remedy = "nothing is broken: the numbers go on from where they were; keep the clock synchronised"
        yield warning(what, f"{facts.ahead:.0f} s behind our sequence numbers: it was set back", remedy)
    if facts.clock_synchronised is False:
        remedy = "run chrony or systemd-timesyncd; set sequence_file for a restart after the clock went back"
        yield warning(what, "not synchronised, according to the kernel", remedy)
    elif facts.clock_synchronised:
        yield ok(what, "synchronised")


def descriptors(facts: Facts) -> Iterable[Finding]:
    if facts.descriptors is None:
        return
    used, limit = facts.descriptors
    text = f"{used} of {limit} in use"
    if used > SPARE * limit:
        yield warning("descriptors", text, "raise LimitNOFILE= of the unit, or lower limits.clients")
    else:
        yield ok("descriptors", text)


def clients(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    slow = [row for row in facts.clients if row["slow"] is not None]
    losers = [row for row in facts.clients if row["dropped"] and row["slow"] is None]
    if slow:
        names = names_of(f"{row['name']} ({row['queued']} wait, {row['dropped']} lost)" for row in slow)
        remedy = "let it read faster, subscribe to less, or have a larger queue: CMSG queue, or [queue]"
        yield warning("clients", f"{len(slow)} too slow now: {names}", remedy)
    if losers:
        names = names_of(f"{row['name']} ({row['dropped']})" for row in losers)
        yield warning("clients", f"too slow earlier, and lost messages: {names}", "watch: bccn top -s drops")
    if not slow and not losers:
        yield ok("clients", f"{counted(len(facts.clients), 'other client')}, none too slow")


def subscriptions(facts: Facts) -> Iterable[Finding]:
    limit, what = facts.subscriptions_limit, "subscriptions"
    if facts.status is None or limit is None:
        return
    counts = [(row["name"], row.get(kind, 0), kind) for row in facts.clients for kind in (what, "watches")]
    crowded = [f"{name} ({count} {kind})" for name, count, kind in counts if count > SPARE * limit]
    if crowded:
        remedy = (
            "raise limits.subscriptions and reload bccnd, then a bccnd-dndm that is named; or use patterns"
        )
        yield warning(what, f"few left of the {limit} that a client may have: {names_of(crowded)}", remedy)
    else:
        yield ok(what, f"no client is near the limit of {limit}")


def rejected(facts: Facts) -> Iterable[Finding]:
    if facts.status is None:
        return
    counts = {word: n for word, n in facts.status["rejected"].items() if n and word not in HARMLESS}
    for word, count in sorted(counts.items(), key=lambda item: -item[1]):
        verdict = verdict_of(word)
        meaning = verdict.meaning if verdict else "for a reason unknown here"
        remedy = REMEDIES[verdict] if verdict else "see the daemon's log: journalctl -u bccnd"
        yield warning("rejected", f"{counted(count, 'datagram')} {meaning} ({word})", remedy)
    unsent = facts.status["counters"]["unsent"]
    if unsent:
        remedy = "a link was down or too slow: bccn status shows which"
        yield warning("sending", f"{counted(unsent, 'datagram')} could not be sent", remedy)
    if not counts and not unsent:
        yield ok("rejected", "no datagram that is worth a look")


def sources(facts: Facts) -> Iterable[Finding]:
    heard = [row for row in facts.sources if row["peer"]]
    lossy = [(loss_of(row).after, row) for row in heard]
    lossy = sorted((each for each in lossy if each[0] >= LOSS_PERCENT), key=lambda each: -each[0])
    if lossy:
        names = names_of(f"{row['src']} ({loss:.1f}%)" for loss, row in lossy)
        remedy = "of one host: its link; of all: our receive buffer or link; repair on both sides helps"
        yield warning("sources", f"{len(lossy)} of {len(heard)} with loss: {names}", remedy)
    silent = [row["src"] for row in heard if row.get("state") == "silent"]
    if silent:
        remedy = "see: bccn who; look at those hosts and their links"
        yield warning("sources", f"{counted(len(silent), 'source')} fell silent: {names_of(silent)}", remedy)
    if facts.status is not None and not lossy and not silent:
        yield ok("sources", f"{counted(len(heard), 'source')} heard, none with loss{_relays(heard)}")


def _relays(heard: Iterable[Row]) -> str:
    """How many sources come from other segments, and which hosts relay them."""
    by = Counter(row["relayed"]["host"] for row in heard if row.get("relayed"))
    return f"; {by.total()} of other segments, relayed by {names_of(sorted(by))}" if by else ""


def repair(facts: Facts) -> Iterable[Finding]:
    told, what = (facts.status or {}).get("repair"), "repair"
    if not told:
        return
    others = [row["src"] for row in facts.sources if row.get("repair")]
    if not told["on"]:
        if others:
            text = f"off here, though others repair ({names_of(others)}): what this host loses stays lost"
            yield warning(what, text, "set repair.on = true in the settings, and reload with SIGHUP")
        else:
            yield ok(what, "off")
        return
    troubles = [*_askers(told), *_mended(facts.sources), *_unrepaired(told, facts.hold_bytes)]
    yield from troubles
    if not troubles:
        yield ok(
            what, f"{counted(told['repaired'], 'message')} repaired, {told['resent']} sent again for others"
        )


def _askers(told: Row) -> Iterable[Finding]:
    """Report hosts that miss much of what this one sends."""
    for row in told["askers"]:
        of = f" of {row['sent']} sent" if row["sent"] else ""
        text = f"{row['host']} ({row['peer']}) asked for {row['asked']}{of} in {row['seconds']:.0f} s"
        yield warning("repair", text, "its link or its receive buffer: run bccn doctor and ip -s link there")
    if told["refused"]:
        text = (
            f"{counted(told['refused'], 'datagram')} not sent again: others asked for more than their share"
        )
        yield warning("repair", text, "see which host: this list, or the log; after bursts raise repair.rate")


def _mended(sources: Iterable[Row]) -> Iterable[Finding]:
    """Report loss that was repaired."""
    losses = [(loss_of(row), row) for row in sources if row["peer"] and row.get("repaired")]
    mended = [(loss.before, row) for loss, row in losses if loss.before >= LOSS_PERCENT > loss.after]
    if mended:
        worst = sorted(mended, key=lambda each: -each[0])
        names = names_of(f"{row['src']} ({loss:.1f}%)" for loss, row in worst)
        text = f"{counted(len(mended), 'source')} with loss that was repaired: {names}"
        remedy = "of one host: its link; of all: our receive buffer or link (ip -s link)"
        yield warning("repair", text, remedy)


def _unrepaired(told: Row, hold_bytes: int | None) -> Iterable[Finding]:
    """Report messages that this host missed and did not get."""
    if told["given_up"]:
        text = f"{counted(told['given_up'], 'message')} did not come in time"
        remedy = "see whose: bccn who; look at this host's link and buffer: ip -s link; or raise repair.hold_seconds"
        yield warning("repair", text, remedy)
    if told["gone"]:
        text = f"{counted(told['gone'], 'message')} missed here and no longer kept where they were sent"
        yield warning("repair", text, "raise repair.numbers and repair.source_bytes there")
    if hold_bytes and told["held"]["bytes"] > SPARE * hold_bytes:
        text = f"{told['held']['bytes']} bytes wait for missing messages, of {hold_bytes} allowed"
        yield warning("repair", text, "raise repair.hold_bytes, or lower repair.hold_seconds")


CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    configuration, key_file, socket, daemon, network, port, rights, rights_by_program, round_trip, interfaces,
    segment, buffers, rejected, sources, repair, clients, subscriptions, uplinks, gateways, clock, descriptors,
)  # fmt: skip


def examine(facts: Facts) -> list[Finding]:
    """All findings, ordered so that a fault comes before what it explains."""
    return [finding for check in CHECKS for finding in check(facts)]
