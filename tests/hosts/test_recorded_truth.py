"""Hosts in which everything is wrong that a report once blamed on others: it names the right ones, and only them.

br0   alpha (10.99.0.1)   beta (10.99.0.2)   gamma, another key   delta, deaf      br1   epsilon
      alpha is on br1, too (10.98.0.1). The first copy of some messages of beta is lost before alpha, and the
      second comes late.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import KEY, PORT, StartDaemon
from tests.hosts.recorded import Network, publish_everywhere, recording, wait_beyond
from tests.hosts.segment import Host, Segment, ip
from tests.hosts.test_links import plug, wait_for_interfaces

OTHER_KEY = b"a-key-that-no-other-host-of-this-segment-has"
# Messages come so fast that the second copy of one comes after the first of others.
COPIES = {"BCCND_COPIES": "2", "BCCND_COPIES_SPREAD_MS": "30"}
# A burst has 40 messages: nothing of its first half is waited for any more once 16 have come after it. What is lost
# at its end is asked for.
FEW_HELD = {"BCCND_REPAIR__HOLD_MESSAGES": "16"}


@pytest.fixture
def networks() -> Iterator[Segment]:
    """Five hosts; the last is on a bridge of its own, which the first is on as well."""
    with Segment(("alpha", "beta", "gamma", "delta", "epsilon")) as made:
        alpha, epsilon = made.hosts[0], made.hosts[4]
        switch = alpha.namespace.removesuffix("alpha") + "switch"
        ip("-n", switch, "link", "add", "br1", "type", "bridge")
        ip("-n", switch, "link", "set", "br1", "up")
        ip("-n", epsilon.namespace, "link", "delete", "eth0")
        plug(alpha, "eth1", "10.98.0.1/24", switch, "br1")
        plug(epsilon, "eth0", "10.98.0.2/24", switch, "br1")
        yield made


def filtered(host: Host, rule: str) -> None:
    chain = f"type filter hook input priority 0; udp dport {PORT} {rule} drop;"
    host.run(["nft", "-f", "-"], input=f"table ip truth {{ chain incoming {{ {chain} }}; }}")


@pytest.mark.spark
def test_the_report_accuses_the_right_hosts_and_only_them(
    networks: Segment, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    alpha, beta, gamma, delta, _ = networks.hosts
    daemons: list[DaemonProcess] = []
    for host in networks.hosts:
        key = OTHER_KEY if host is gamma else KEY
        environ = {alpha: FEW_HELD, beta: COPIES}.get(host, {})
        daemons.append(start_daemon(host, ready=False, key=key, environ=environ))
    for daemon in daemons:
        daemon.wait_until_ready()
    wait_for_interfaces(daemons[0], "eth0", "eth1")
    filtered(delta, f"ip saddr != {delta.address}")
    with recording(daemons, tmp_path):
        wait_beyond()
        # A second copy comes some 40 datagrams after the first: it is never lost with it.
        filtered(alpha, f"ip saddr {beta.address} numgen inc mod 29 == 0")
        publish_everywhere(daemons)
        wait_beyond()
    network = Network(tmp_path)

    sums: dict[tuple[str, str], list[int]] = {}
    repaired = 0
    for row in network.delivery():
        of = sums.setdefault((row["sender"], row["receiver"]), [0, 0, 0])
        for place, name in enumerate(("sent", "lost", "late")):
            of[place] += row[name]
        if (row["sender"], row["receiver"]) == ("beta", "alpha"):
            repaired += row["repaired"]
    near = {"alpha", "beta", "gamma", "delta"}
    assert {pair for pair in sums if "epsilon" in pair} == {("alpha", "epsilon"), ("epsilon", "alpha")}
    assert sums.keys() >= {(one, other) for one in near for other in near if one != other}
    for (sender, receiver), (sent, lost, _) in sums.items():
        if receiver in ("gamma", "delta") or sender == "gamma":
            assert lost == sent > 0, (sender, receiver)
        elif (sender, receiver) != ("beta", "alpha"):
            assert lost == 0, (sender, receiver)
    _, lost, late = sums["beta", "alpha"]
    assert lost >= late > 0, sums

    findings = [line for line in network.said.splitlines() if line.startswith(("Problem", "Warning"))]
    assert findings[0].startswith("Problem: Host gamma has another key than")
    assert findings[1].startswith("Problem: Host delta heard nothing")
    assert re.search(rf"daemon of host alpha dropped {late:,} messages? of host beta as late", network.said)
    assert repaired > 0, "what was lost on the way is told apart"
    assert re.search("lost on the way came after all; half of them took at most", network.said)
    assert "signed with an unknown key" not in network.said
    assert "silent" not in network.said
    assert "Host gamma has another key" in network.page()
