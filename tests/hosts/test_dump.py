"""``bccn dump`` on a real segment: it shows sender and address, and Wireshark shows the same."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.command_line import bccn, ended, start
from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import BROADCAST, PORT, StartDaemon
from tests.hosts.segment import Segment
from tests.needs import require
from tests.packet_client import PacketClient, wait_until


def tapped(daemon: DaemonProcess) -> bool:
    with PacketClient(daemon.socket) as client:
        status = client.status()
        rows = json.loads(client.request("clients"))["clients"]
        return bool(status["segments"]) and any(row["tap"] for row in rows)


@pytest.mark.parametrize(
    ("address", "family", "beginning"), [(BROADCAST, "ip", "10.99.0.1:"), ("ff02::5400", "ipv6", "[fe80::")]
)
def test_dump_shows_the_address_of_each_sender(
    segment: Segment, start_daemon: StartDaemon, tmp_path: Path, address: str, family: str, beginning: str
) -> None:
    require("tshark")
    alpha, beta, _ = (start_daemon(host, "--broadcast", address, ready=False) for host in segment.hosts)
    for daemon in (alpha, beta):
        daemon.wait_until_ready()
        with PacketClient(daemon.socket) as client:
            wait_until(lambda: client.status()["segments"], "a binding to the segment")
    file = tmp_path / "beta.pcapng"
    process = start(beta, "dump", "-w", str(file), "-C", "1")
    wait_until(lambda: tapped(beta), "the tap")
    with PacketClient(alpha.socket) as client:
        client.publish("demo/x", b"from alpha")
        client.drain()
    assert ended(process)[0] == 0

    row = json.loads(bccn(beta, "dump", "-r", str(file), "--json").stdout)
    assert row["peer"].startswith(beginning)
    assert row["peer"].endswith(f":{PORT}")
    assert (row["direction"], row["verdict"], row["algorithm"]) == ("in", "ok", "hmac")
    fields = [f"{family}.src", f"{family}.dst", "udp.dstport", "udp.checksum.status", "frame.comment"]
    flags = [flag for field in fields for flag in ("-e", field)]
    seen = subprocess.run(
        ["tshark", "-n", "-o", "udp.check_checksum:TRUE", "-r", str(file), "-T", "fields", *flags],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    source = row["peer"].rpartition(":")[0].strip("[]")
    assert seen.stdout.strip("\n").split("\t") == [source, address, str(PORT), "1", "bccnd in ok"]
