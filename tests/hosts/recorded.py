"""What hosts record while they publish to each other, and what the pipeline makes of it."""

import html
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.daemon_process import DaemonProcess
from tests.packet_client import PacketClient, wait_until
from tests.recorder_process import RecorderProcess
from tests.spark import joined

# Each host publishes BURST messages ten times a second, TICKS times.
TICKS, BURST = 60, 40
# Seconds recorded before and after: only what every host surely recorded counts.
BEYOND = 5.0
PIPELINE_SECONDS = 600


def wait_beyond() -> None:
    _until(time.monotonic() + BEYOND)


def _until(moment: float) -> None:
    wait_until(lambda: time.monotonic() >= moment, "time to pass", seconds=2 * BEYOND)


def publish_everywhere(daemons: Sequence[DaemonProcess]) -> None:
    begun = time.monotonic()
    with ExitStack() as open_clients:
        clients = [open_clients.enter_context(PacketClient(daemon.socket)) for daemon in daemons]
        for tick in range(TICKS):
            _until(begun + tick / 10)
            for client in clients:
                for number in range(BURST):
                    client.publish("demo/numbers", b"%d" % (tick * BURST + number))
        for client in clients:
            client.drain()


@contextmanager
def recording(daemons: Sequence[DaemonProcess], folder: Path) -> Iterator[None]:
    """One recorder a daemon, all with the same output below ``folder``; each ends with code 0."""
    with ExitStack() as running:
        recorders = []
        for daemon in daemons:
            own, output = folder / daemon.socket.parent.name, folder / "recorded"
            own.mkdir(exist_ok=True)
            recorder = RecorderProcess(own, daemon.socket, "--rotate-seconds=3", output=output)
            recorders.append(running.enter_context(recorder))
        yield
        assert {recorder.terminate() for recorder in recorders} == {0}


class Network:
    """The tables and the report that the pipeline makes of what was recorded below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "network"
        done = joined.run(
            [
                *(sys.executable, "-m", "bccnd.pipeline.cli", "run", "--master=local[2]"),
                *(f"--input={folder / 'recorded'}", f"--output={self._output}"),
            ],
            PIPELINE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        self.said = done.stdout

    def delivery(self) -> list[dict[str, Any]]:
        """A row of each pair of hosts and hour."""
        return self.table("delivery")

    def table(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = ds.dataset(self._output / "tables" / name).to_table().to_pylist()
        return rows

    def page(self) -> str:
        return html.unescape((self._output / "report.html").read_text())
