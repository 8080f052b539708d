"""Three hosts record what they send and receive while nftables drops some of it.

The pipeline reports the right pairs, with the loss that the kernel counted.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import PORT
from tests.hosts.recorded import BURST, TICKS, Network, publish_everywhere, recording, wait_beyond
from tests.hosts.segment import Host, Segment
from tests.packet_client import wait_until


class Loss:
    """Datagrams of one sender that a host loses, by a condition of nftables."""

    def __init__(self, receiver: Host, sender: Host, condition: str) -> None:
        self.pair = (sender.name, receiver.name)
        self._host = receiver
        self._table = f"from_{sender.name}"
        theirs = f"ip saddr {sender.address} udp dport {PORT}"
        receiver.run(
            ["nft", "-f", "-"],
            input=f"""table ip {self._table} {{
                chain incoming {{
                    type filter hook input priority 0
                    {theirs} counter
                    {theirs} {condition} counter drop
                }}
            }}""",
        )

    def counts(self) -> tuple[int, int]:
        """How many datagrams came, and how many of them were lost."""
        shown = self._host.run(["nft", "list", "table", "ip", self._table]).stdout
        came, lost = re.findall(r"packets (\d+)", shown)
        return int(came), int(lost)

    def end(self) -> int:
        """How many were lost."""
        lost = self.counts()[1]
        self._host.run(["nft", "delete", "table", "ip", self._table])
        return lost


@pytest.mark.spark
def test_the_pipeline_reports_the_true_loss_of_each_pair(
    segment: Segment, unrepairing: list[DaemonProcess], tmp_path: Path
) -> None:
    alpha, beta, gamma = segment.hosts
    with recording(unrepairing, tmp_path):
        wait_beyond()
        losses = [
            Loss(gamma, alpha, "numgen inc mod 400 < 30"),  # in bursts of 30
            Loss(alpha, beta, "numgen random mod 100 < 4"),
        ]
        publish_everywhere(unrepairing)
        for loss in losses:
            wait_until(lambda loss=loss: loss.counts()[0] >= TICKS * BURST, "all datagrams to come")
        injected = {loss.pair: loss.end() for loss in losses}
        wait_beyond()
    network = Network(tmp_path)

    pairs = network.delivery()
    lost = dict.fromkeys(((a.name, b.name) for a in segment.hosts for b in segment.hosts if a != b), 0)
    for row in pairs:  # two of a pair, if the hour ended meanwhile
        lost[row["sender"], row["receiver"]] += row["lost"]
        assert (row["basis"], row["sent"] >= row["received"] > 0) == ("record", True)
        assert row["latency_method"] == "both-ways"
        assert abs(row["clock_offset_us"]) < 100_000  # they share a clock
    assert lost == dict.fromkeys(lost, 0) | injected
    assert all(injected.values())
    bursts = {(row["sender"], row["receiver"]): row["burst_p50"] for row in pairs if row["lost"]}
    assert bursts == {("alpha", "gamma"): 30, ("beta", "alpha"): 1}

    findings = re.sub(r"<[^>]+>", "", network.page())
    assert re.search(
        r"gamma lost [\d.]+ percent of host alpha's messages between .*, in bursts of about 30", findings
    )
    assert re.search(r"alpha lost [\d.]+ percent of host beta's messages", findings)
    for one, other in pairwise(["gamma lost", "alpha lost"]):
        assert findings.index(one) < findings.index(other), "the worst comes first"
