"""Three hosts record what they send and receive while nftables drops some of it.

The pipeline reports the right pairs, with the loss that the kernel counted.
"""

import html
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import PORT
from tests.hosts.segment import Host, Segment
from tests.packet_client import PacketClient, wait_until
from tests.recorder_process import RecorderProcess

# Each host publishes BURST messages ten times a second, TICKS times.
TICKS, BURST = 60, 40
# Seconds recorded before and after: only what every host surely recorded counts.
BEYOND = 5.0
PIPELINE_SECONDS = 600


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


@pytest.fixture
def recorders(daemons: list[DaemonProcess], tmp_path: Path) -> Iterator[list[RecorderProcess]]:
    with ExitStack() as running:
        yield [
            running.enter_context(
                RecorderProcess(
                    tmp_path / daemon.socket.parent.name,
                    daemon.socket,
                    "--rotate-seconds=3",
                    output=tmp_path / "recorded",
                )
            )
            for daemon in daemons
        ]


def until(moment: float) -> None:
    wait_until(lambda: time.monotonic() >= moment, "time to pass", seconds=2 * BEYOND)


def publish_everywhere(daemons: list[DaemonProcess]) -> None:
    begun = time.monotonic()
    with ExitStack() as open_clients:
        clients = [open_clients.enter_context(PacketClient(daemon.socket)) for daemon in daemons]
        for tick in range(TICKS):
            until(begun + tick / 10)
            for client in clients:
                for number in range(BURST):
                    client.publish("demo/numbers", b"%d" % (tick * BURST + number))
        for client in clients:
            client.drain()


@pytest.mark.spark
def test_the_pipeline_reports_the_true_loss_of_each_pair(
    segment: Segment, daemons: list[DaemonProcess], recorders: list[RecorderProcess], tmp_path: Path
) -> None:
    alpha, beta, gamma = segment.hosts
    until(time.monotonic() + BEYOND)
    losses = [
        Loss(gamma, alpha, "numgen inc mod 400 < 30"),  # in bursts of 30
        Loss(alpha, beta, "numgen random mod 100 < 4"),
    ]
    publish_everywhere(daemons)
    for loss in losses:
        wait_until(lambda loss=loss: loss.counts()[0] >= TICKS * BURST, "all datagrams to come")
    injected = {loss.pair: loss.end() for loss in losses}
    until(time.monotonic() + BEYOND)
    for recorder in recorders:
        assert recorder.terminate() == 0

    output = tmp_path / "network"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bccnd.pipeline.cli", "run", "--master=local[2]"),
            *(f"--input={tmp_path / 'recorded'}", f"--output={output}"),
        ],
        capture_output=True,
        text=True,
        timeout=PIPELINE_SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr

    pairs = ds.dataset(output / "tables" / "delivery").to_table().to_pylist()
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

    page = html.unescape((output / "report.html").read_text())
    findings = re.sub(r"<[^>]+>", "", page)
    assert re.search(
        r"gamma lost [\d.]+ percent of host alpha's messages between .*, in bursts of about 30", findings
    )
    assert re.search(r"alpha lost [\d.]+ percent of host beta's messages", findings)
    for one, other in pairwise(["gamma lost", "alpha lost"]):
        assert findings.index(one) < findings.index(other), "the worst comes first"
