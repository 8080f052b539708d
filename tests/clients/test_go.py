"""The Go client beyond the conformance suite: Go's own tests, its form, its worker, what its README shows."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.clients import workers
from tests.clients.drivers import CLIENTS, RACES
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient

FOLDER = CLIENTS / "go"
pytestmark = pytest.mark.needs("go", "gofmt", "gcc")  # gcc: the race detector is linked by cgo
run = partial(workers.run, folder=FOLDER, **RACES)


def go_of_the_readme() -> list[str]:
    return re.findall(r"```go\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)


def test_its_own_tests_pass_without_races(daemon: DaemonProcess) -> None:
    said = run("go", "test", "-race", "-count=1", "-v", ".", BCCN_SOCKET=str(daemon.socket))
    assert len(re.findall(r"^    --- PASS", said, re.MULTILINE)) > 700  # vectors
    assert "--- PASS: ExampleOpen" in said
    assert "--- SKIP" not in said


def test_gofmt_and_vet_find_nothing() -> None:
    assert run("gofmt", "-l", ".") == ""
    assert run("go", "vet", "./...") == ""
    assert not (FOLDER / "go.sum").exists()  # nothing but the standard library


def test_closed_streams_do_not_get_the_bus(daemon: DaemonProcess, tmp_path: Path) -> None:
    run("go", "build", "-o", "build/worker", "./examples/worker")
    command = ["build/worker", daemon.socket]
    assert workers.sockets_for_streams(command, FOLDER, tmp_path / "log", daemon, "worker") == []


def test_the_worker_serves_beats_and_survives_a_restart(daemon: DaemonProcess, tmp_path: Path) -> None:
    run("go", "build", "-o", "build/worker", "./examples/worker")
    log = tmp_path / "worker.log"
    with workers.running(["build/worker", daemon.socket], FOLDER, log) as worker:
        name = f"here/worker/{worker.pid}"
        assert workers.output_over_a_restart(daemon, name, worker) == f"{name} is ready\n2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("worker: ")


def test_the_readme_shows_examples_that_are_run() -> None:
    """All but its first program: parts of the examples that ``go test`` runs, but for how far they are indented."""
    examples = " ".join((FOLDER / "example_test.go").read_text().split())
    _, *parts = go_of_the_readme()
    assert len(parts) > 8
    assert [part for part in parts if " ".join(part.split()) not in examples] == []


def test_the_readme_program_works(daemon: DaemonProcess, tmp_path: Path) -> None:
    program, *_ = go_of_the_readme()
    (tmp_path / "main.go").write_text(program)
    (tmp_path / "go.mod").write_text("module example\n\ngo 1.23\n")
    install = re.findall(r"go mod edit -(?:require|replace) .*", (FOLDER / "README.md").read_text())
    for line in install:
        run(*line.replace("/path/to/clients/go", str(FOLDER)).split(), folder=tmp_path)
    run("go", "build", "-o", "example", ".", folder=tmp_path)
    with subprocess.Popen(
        [tmp_path / "example"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BCCN_SOCKET": str(daemon.socket)},
    ) as example:
        assert example.stdout
        assert example.stdout.readline() == "sensors/kitchen/temperature 21.5\n"
        with PacketClient(daemon.socket) as client:
            client.publish("sensors/cellar/temperature", b"12")
            client.drain()
        assert example.stdout.readline() == "sensors/cellar/temperature 12\n"
        example.kill()
        example.wait(PATIENCE)
