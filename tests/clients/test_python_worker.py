"""The example worker of the Python client."""

import sys
from pathlib import Path

import pytest

from tests.clients import workers
from tests.clients.drivers import CLIENTS
from tests.daemon_process import DaemonProcess

FOLDER = CLIENTS / "python"


def test_the_worker_survives_its_daemon(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    log = tmp_path / "worker.log"
    command = [sys.executable, "examples/worker.py", daemon.socket]
    with workers.running(command, FOLDER, log) as worker:
        assert worker.stdout
        ready = worker.stdout.readline().decode()
        name = ready.split(" ")[0]  # here/<what the interpreter is called>/<pid>
        assert (ready, name.split("/")[::2]) == (f"{name} is ready\n", ["here", str(worker.pid)])
        assert workers.output_over_a_restart(daemon, name, worker) == "2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("")
