"""``bccn`` as people run it: a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.daemon_process import DaemonProcess, mortal
from tests.packet_client import PATIENCE, PacketClient, wait_until

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "bccnd.cli"]
# doctor and top wait two seconds for a daemon, and doctor as long for what comes back: a busy machine may take them.
PATIENT = [
    sys.executable,
    "-c",
    f"""
import sys
from bccnd.cli import main
from bccnd.commands import facts, top
facts.PATIENCE = top.PATIENCE = {PATIENCE}
sys.exit(main())
""",
]
HOUR = 3600
# An hour has passed as soon as there is a file of this name.
WITH_CLOCK = f"""
import os, sys, time
clock, true_time = sys.argv.pop(1), time.monotonic
time.monotonic = lambda: true_time() + {HOUR} * os.path.exists(clock)
from bccnd.cli import main
sys.exit(main())
"""


def environment(socket: Path | str) -> dict[str, str]:
    found = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "clients" / "python"), found]))
    return {**os.environ, "BCCN_SOCKET": str(socket), "PYTHONPATH": path, "COLUMNS": "80"}


def bccn(
    daemon: DaemonProcess | Path, *arguments: str, stdin: bytes = b"", command: Sequence[str] = COMMAND
) -> subprocess.CompletedProcess[bytes]:
    """Run to its end."""
    socket = daemon if isinstance(daemon, Path) else daemon.socket
    return subprocess.run(
        [*command, *arguments],
        input=stdin,
        capture_output=True,
        env=environment(socket),
        timeout=PATIENCE * 2,
        check=False,
    )


def start(
    daemon: DaemonProcess | Path, *arguments: str, command: Sequence[str] = COMMAND, **settings: Any
) -> subprocess.Popen[bytes]:
    """Start in the background; pipes unless ``settings`` say otherwise."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        mortal([*command, *arguments]),
        env=environment(daemon if isinstance(daemon, Path) else daemon.socket),
        **pipes | settings,
    )


def start_with_clock(daemon: DaemonProcess, clock: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """The same. ``hour_passes`` ends its time, however long the test takes until then."""
    return start(daemon, *arguments, command=[sys.executable, "-c", WITH_CLOCK, str(clock)])


def hour_passes(daemon: DaemonProcess, clock: Path, channel: str, is_noticed: Callable[[], object]) -> None:
    """A message on this channel, which it hears and passes over, has it look at its clock."""
    clock.touch()
    wait_until(lambda: publish(daemon, (channel, b"")) or is_noticed(), "it to see that its time is over")


def subscriptions(daemon: DaemonProcess) -> int:
    with PacketClient(daemon.socket) as client:
        return int(client.status()["subscriptions"])


def subscriber(daemon: DaemonProcess, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    """``bccn sub`` once its one pattern is in force."""
    process = start(daemon, "sub", *arguments, **settings)
    wait_until(lambda: process.poll() is not None or subscriptions(daemon) == 1, "the subscription")
    assert process.poll() is None, process.communicate()
    return process


def publish(daemon: DaemonProcess, *messages: tuple[str, bytes]) -> None:
    with PacketClient(daemon.socket) as client:
        for channel, payload in messages:
            client.publish(channel, payload)
        client.drain()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """(exit code, stdout, stderr)"""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err.decode()
