"""What each check of ``bccn doctor`` finds in literal facts."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from bccnd.doctor import findings
from bccnd.doctor.facts import Facts, KeyFile
from bccnd.doctor.finding import Finding, Level
from bccnd.doctor.findings import CHECKS, REMEDIES, examine
from bccnd.wire.verdict import DROPPED, HARMLESS

BINDING = {"address": "255.255.255.255", "port": 5400, "interface": "eth0", "family": "inet", "error": None}
STATUS = {
    "version": "0.1.0", "host": "here", "pid": 7, "segments": [BINDING], "kernel": {"dropped": 0, "filtered": 9},
    "counters": {"unsent": 0}, "rejected": {"own": 5, "duplicate": 1},
    "repair": {
        "on": True, "askers": [], "refused": 0, "given_up": 0, "gone": 0, "repaired": 4, "resent": 2,
        "held": {"messages": 0, "bytes": 0},
    },
}  # fmt: skip
KEY = KeyFile("/etc/bccnd/keys", 0o600, 0)
HEALTHY = Facts(
    "0.1.0",
    config_file="/etc/bccnd/bccnd.toml",
    receive_bytes=1 << 20,
    subscriptions_limit=1024,
    key_file=KEY,
    socket_path="/run/bccnd/bus.sock",
    status=STATUS,
    daemon_uid=0,
    rights={"publish": True, "subscribe": True, "tap": True},
    loopback=0.0004,
    returns=True,
    mtus={"eth0": 1500},
    rmem_max=1 << 20,
    ahead=-0.1,
    clock_synchronised=True,
    descriptors=(20, 20000),
)
AWAY = Facts("0.1.0", config_file="", socket_path="/x", socket="missing")


def client(name: str, dropped: int = 0, slow: float | None = None) -> dict[str, Any]:
    return {"name": name, "dropped": dropped, "queued": 4, "slow": slow}


def source(src: str, received: int, lost: int, peer: str = "10.0.0.2:5400") -> dict[str, Any]:
    return {"src": src, "received": received, "lost": lost, "peer": peer}


def with_status(**more: Any) -> Facts:
    return replace(HEALTHY, status={**STATUS, **more})


def repairing(**more: Any) -> Facts:
    return with_status(repair=STATUS["repair"] | more)


ASKER = {"host": "b", "peer": "10.0.0.2", "asked": 300, "sent": 9000, "seconds": 10.0}
DAEMON = source("b/bccnd/1", 9, 0) | {"repair": 4096}


def test_a_healthy_bus_has_nothing_but_ok() -> None:
    found = examine(replace(HEALTHY, clients=[client("a")], sources=[source("b", 1000, 1)]))
    assert {finding.level for finding in found} == {Level.OK}
    assert len(found) == len(CHECKS) - 5  # no other holder, rights by program, other network, uplink, gateway
    assert not [finding for finding in found if finding.remedy]


Check = Callable[[Facts], Iterable[Finding]]
GATE = {"host": "gate", "address": "10.0.0.2"}


@pytest.mark.parametrize(
    ("check", "facts", "level", "text", "remedy"),
    [
        (findings.configuration, replace(AWAY, config_fault="port: bad"), "problem", "port: bad", "bccnd --check"),
        (findings.configuration, AWAY, "ok", "no file; the built-in defaults apply", ""),
        (findings.key_file, replace(HEALTHY, key_file=KeyFile("/k", missing=True)), "problem", "/k: no such file",
         "openssl rand -hex 32 > /k"),
        (findings.key_file, replace(HEALTHY, key_file=KeyFile("/k", 0o644)), "problem", "mode 0644 lets others at it",
         "chmod 600 /k"),
        (findings.key_file, replace(HEALTHY, key_file=KeyFile("/k", 0o600, 5)), "problem", "belongs to uid 5",
         "chown root /k"),
        (findings.key_file, replace(HEALTHY, key_file=KeyFile("/k", 0o600, 5), daemon_uid=5), "ok", "uid 5", ""),
        (findings.key_file, replace(HEALTHY, key_file=KeyFile("/k", 0o600, fault="/k: holds no key")), "problem",
         "/k: holds no key", "--check"),
        (findings.key_file, replace(HEALTHY, key_file=KeyFile("/k")), "ok", "only root can look at it", ""),
        (findings.repair, repairing(), "ok", "4 messages repaired, 2 sent again for others", ""),
        (findings.repair, repairing(on=False), "ok", "off", ""),
        (findings.repair, replace(repairing(on=False), sources=[DAEMON]), "warning",
         "off here, though others repair (b/bccnd/1)", "repair.on = true in the settings, and reload with SIGHUP"),
        (findings.repair, repairing(askers=[ASKER]), "warning", "b (10.0.0.2) asked for 300 of 9000 sent in 10 s",
         "ip -s link"),
        (findings.repair, repairing(askers=[ASKER | {"sent": 0}]), "warning", "asked for 300 in 10 s", "bccn doctor"),
        (findings.repair, replace(repairing(), sources=[source("a", 960, 0) | {"repaired": 40}]), "warning",
         "1 source with loss that was repaired: a (4.2%)", "its link"),
        (findings.repair, replace(repairing(), sources=[source("a", 960, 40) | {"repaired": 40}]), "ok", "", ""),
        (findings.repair, replace(repairing(), sources=[source("a", 960, 0) | {"repaired": 9}]), "ok", "", ""),
        (findings.repair, repairing(refused=1), "warning", "1 datagram not sent again", "repair.rate"),
        (findings.repair, repairing(given_up=2), "warning", "2 messages did not come in time", "bccn who"),
        (findings.repair, repairing(gone=2), "warning", "no longer kept where they were sent", "repair.numbers"),
        (findings.repair, replace(repairing(held={"messages": 5, "bytes": 95}), hold_bytes=100), "warning",
         "95 bytes wait for missing messages, of 100 allowed", "repair.hold_bytes"),
        (findings.repair, replace(repairing(held={"messages": 5, "bytes": 90}), hold_bytes=100), "ok", "", ""),
        (findings.subscriptions, replace(HEALTHY, clients=[client("a") | {"subscriptions": 921}]), "ok",
         "no client is near the limit of 1024", ""),
        (findings.subscriptions, replace(HEALTHY, clients=[client("g") | {"subscriptions": 1022, "watches": 1000}]),
         "warning", "few left of the 1024 that a client may have: g (1022 subscriptions), g (1000 watches)",
         "raise limits.subscriptions"),
        (findings.socket, AWAY, "problem", "/x: not there", "systemctl start bccnd"),
        (findings.socket, replace(AWAY, socket="stale"), "problem", "nobody listens", "systemctl start bccnd"),
        (findings.socket, replace(AWAY, socket="deleted", detail="bccnd (pid 7)"), "problem",
         "its file was deleted, and bccnd (pid 7) still listens there", "restart what made the socket"),
        (findings.socket, replace(AWAY, socket="busy"), "problem", "too many programs connect", "journalctl"),
        (findings.socket, replace(AWAY, socket="denied"), "problem", "no permission", "socket_mode"),
        (findings.socket, replace(AWAY, socket="no-socket"), "problem", "not a socket of bccnd", "--socket PATH"),
        (findings.socket, replace(AWAY, socket="silent", detail="timed out"), "problem", "timed out", "journalctl"),
        (findings.network, replace(HEALTHY, elsewhere=True, daemon_pid=7), "warning", "another network namespace",
         "nsenter --net=/proc/7/ns/net bccn --socket /run/bccnd/bus.sock doctor"),
        (findings.network, replace(HEALTHY, elsewhere=True), "warning", "not judged here",
         "run in its namespace: bccn"),
        (findings.interfaces, replace(HEALTHY, elsewhere=True, mtus={"eth0": 68}, interfaces=("eth0",)), "ok",
         "in its own network namespace", ""),
        (findings.rights_by_program, replace(HEALTHY, rights_by_program=("door", "lamp")), "ok",
         "granted by program: door, lamp; one that leaves at once is unknown, and refused", ""),
        (findings.rights_by_program, replace(with_status(refused={"publish": 4}), rights_by_program=("door",)),
         "warning", "(4 refusals so far)", "grant by uid or gid"),
        (findings.daemon, with_status(version="0.0.9"), "warning", "this is bccn 0.1.0", "USR2"),
        (findings.rights, replace(HEALTHY, rights={"publish": False, "subscribe": True, "tap": True}), "warning",
         "you may subscribe, tap; not publish", "[[rights]]"),
        (findings.rights, replace(HEALTHY, rights={"publish": True, "subscribe": True, "tap": False}), "ok",
         "you may publish, subscribe; not tap", ""),
        (findings.round_trip, replace(HEALTHY, loopback=None), "problem", "did not come", "log"),
        (findings.interfaces, with_status(segments=[]), "problem", "no socket to the segment", "ip -br link"),
        (findings.interfaces, with_status(segments=[BINDING | {"error": "Network is down"}]), "problem",
         "eth0: 255.255.255.255, port 5400: Network is down", "ip -br addr"),
        (findings.interfaces, replace(HEALTHY, mtus={"eth0": 1400}), "warning", "MTU 1400 is below 1428",
         "ip link set eth0 mtu 1500"),
        (findings.segment, replace(HEALTHY, returns=False), "warning", "did not come back", "UDP port 5400"),
        (findings.buffers, replace(HEALTHY, rmem_max=212992), "warning", "allows 212992 of the 1048576 bytes",
         "sysctl -w net.core.rmem_max=1048576"),
        (findings.buffers, replace(HEALTHY, rmem_max=212992, exceeds_rmem=True), "ok", "dropped nothing", ""),
        (findings.buffers, with_status(kernel={"dropped": 1}), "warning", "dropped 1 datagram:", "rmem_max"),
        (findings.port, replace(AWAY, holders=("nc (pid 12)",)), "warning", "UDP 5400 is held by nc (pid 12)",
         "SO_REUSEADDR"),
        (findings.port, replace(HEALTHY, holders=("nc (pid 12)",)), "ok", "also used by nc (pid 12)", ""),
        (findings.clock, replace(HEALTHY, ahead=3600.4), "warning", "3600 s behind", "synchronised"),
        (findings.clock, replace(HEALTHY, clock_synchronised=False), "warning", "not synchronised", "chrony"),
        (findings.descriptors, replace(HEALTHY, descriptors=(950, 1000)), "warning", "950 of 1000", "LimitNOFILE"),
        (findings.clients, replace(HEALTHY, clients=[client("a", 9, 2.5), client("b")]), "warning",
         "1 too slow now: a (4 wait, 9 lost)", "[queue]"),
        (findings.clients, replace(HEALTHY, clients=[client("a", 9)]), "warning", "lost messages: a (9)", "bccn top"),
        (findings.rejected, with_status(rejected={"hmac": 3, "own": 2}), "warning",
         "3 datagrams signed with an unknown key (hmac)", "compare the key files"),
        (findings.rejected, with_status(rejected={"news": 1}), "warning",
         "1 datagram for a reason unknown here (news)", "log"),
        (findings.rejected, with_status(counters={"unsent": 2}), "warning", "2 datagrams could not be sent",
         "bccn status"),
        (findings.sources, replace(HEALTHY, sources=[source("a", 98, 2), source("b", 1, 0)]), "warning",
         "1 of 2 with loss: a (2.0%)", "repair on both sides"),
        (findings.sources, replace(HEALTHY, sources=[source("a", 1, 0) | {"state": "silent"}]), "warning",
         "1 source fell silent: a", "bccn who"),
        (findings.sources, replace(HEALTHY, sources=[source("left", 0, 9, peer="")]), "ok", "0 sources heard", ""),
        (findings.sources, replace(HEALTHY, sources=[source("a", 9, 0), source("b", 9, 0) | {"relayed": GATE}]), "ok",
         "2 sources heard, none with loss; 1 of other segments, relayed by gate", ""),
    ],
)  # fmt: skip
def test_each_check_finds_its_fault(check: Check, facts: Facts, level: str, text: str, remedy: str) -> None:
    found = [finding for finding in check(facts) if text in finding.finding]
    assert [finding.level for finding in found] == [level], list(check(facts))
    assert remedy in found[0].remedy
    assert bool(found[0].remedy) == (level != "ok")


def test_missing_interfaces_are_reported_but_no_patterns() -> None:
    found = list(findings.interfaces(replace(HEALTHY, interfaces=("eth1", "wl*", "eth0"))))
    assert [finding.finding for finding in found if finding.level == "warning"] == [
        "eth1 is configured but not in use"
    ]


def test_a_daemon_that_denies_access_may_hold_the_port() -> None:
    assert not list(findings.port(replace(AWAY, socket="denied", holders=("a program of uid 0",))))


def test_several_names_are_cut_short() -> None:
    [found] = findings.sources(replace(HEALTHY, sources=[source(f"s{at}", 50, 50 + at) for at in range(5)]))
    assert found.finding == "5 of 5 with loss: s4 (51.9%), s3 (51.5%), s2 (51.0%) and 2 more"


def test_without_a_daemon_its_checks_say_nothing() -> None:
    assert [finding.what for finding in examine(AWAY)] == ["configuration", "socket"]


def test_every_fault_has_a_remedy() -> None:
    assert set(REMEDIES) == set(DROPPED) - HARMLESS


def test_the_answers_of_a_daemon_are_enough() -> None:
    """A door has no more."""
    found = examine(
        Facts("0.1.0", status=STATUS, clients=[client("a", slow=1.0)], sources=[source("b", 9, 0)])
    )
    assert {finding.what for finding in found} == {
        "daemon", "interfaces", "receive buffer", "rejected", "sources", "repair", "clients"
    }  # fmt: skip
    assert [finding.what for finding in found if finding.level != Level.OK] == ["clients"]
