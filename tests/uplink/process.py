"""Real uplinks, each in a process of its own."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.command_line import bccn
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, ServiceProcess
from tests.packet_client import PATIENCE
from tests.plain_bccn import free_port

UPLINK = [sys.executable, "-m", "bccnd.uplink"]


class UplinkProcess(ServiceProcess):
    """``bccnd-uplink`` beside a daemon, whose segment it calls ``name``; its log and journal are in `folder`."""

    def __init__(
        self,
        folder: Path,
        daemon: DaemonProcess,
        carrier: str,
        *flags: str,
        name: str = "",
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] = {},
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.daemon = daemon
        self.journal = folder / "journal"
        where = ["--socket", str(daemon.socket), "--carrier", carrier, "--name", name or folder.name]
        kept = [
            "--journal",
            str(self.journal),
            "--log-format",
            "json",
            "--config",
            str(folder / "uplink.toml"),
        ]
        self.config = folder / "uplink.toml"
        self.config.touch()
        super().__init__([*prefix, *UPLINK, *where, *kept, *flags], folder / "uplink.log", environ)


def links(daemon: DaemonProcess, count: int = 1) -> list[dict[str, Any]]:
    """What ``bccn links`` shows of so many uplinks."""
    done = bccn(daemon, "links", "--json", "--wait", str(PATIENCE), "--count", str(count))
    uplinks: list[dict[str, Any]] = json.loads(done.stdout)["uplinks"]
    return uplinks


@contextmanager
def segment(folder: Path, name: str) -> Iterator[DaemonProcess]:
    """A daemon on a segment of its own: a port of the loopback."""
    (folder / name).mkdir()
    flags = ("--host", name, "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    with DaemonProcess(folder / name, *flags) as daemon:
        yield daemon
