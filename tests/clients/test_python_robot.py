"""The example of a robot: a sensor on a serial line, a program that joins readings, a dashboard."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.drivers import CLIENTS
from tests.daemon_process import DaemonProcess
from tests.dndm.process import DndmProcess
from tests.plain_bccn import free_address
from tests.running_program import RunningProgram

FOLDER = CLIENTS / "python"


@contextmanager
def running(role: str, daemon: DaemonProcess) -> Iterator[RunningProgram]:
    environ = [f"BCCN_SOCKET={daemon.socket}", f"PYTHONPATH={FOLDER}:{CLIENTS.parent}"]
    program = RunningProgram(["env", *environ, sys.executable, str(FOLDER / "examples" / "robot.py"), role])
    try:
        yield program
    finally:
        program.close()


def test_a_reading_comes_from_the_board_to_the_dashboard(
    shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    with (
        running("sensor", shared_daemon) as sensor,
        running("fusion", shared_daemon),
        running("dashboard", shared_daemon) as dashboard,
    ):
        address = sensor.read_line().strip()
        assert re.fullmatch(r"serial:///dev/pts/\d+/room\.north", address)
        flags = ("--listen", f"tcp://{free_address()}", "--dial", address)
        with DndmProcess(tmp_path / "gateway", shared_daemon.socket, *flags):
            assert re.fullmatch(r"house: (19|20|21)\.\d\d degrees", dashboard.read_line().strip())
