"""libbccn beyond the conformance suite: the golden vectors, both headers, its worker, its installation."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.clients import workers
from tests.clients.drivers import CLIENTS, Driver, Language, building
from tests.daemon_process import DaemonProcess, die_with_parent
from tests.packet_client import PATIENCE, PacketClient, wait_until

FOLDER = CLIENTS / "c"
TOOLS = ("make", "gcc", "g++")

pytestmark = pytest.mark.needs(*TOOLS)
run = partial(workers.run, folder=FOLDER)


def make(*targets: str) -> str:
    with building(FOLDER):
        return run("make", "--silent", "CC=gcc", "CXX=g++", *targets)


def test_golden_vectors() -> None:
    said = make("check")
    count, _, rest = said.partition(" ")
    assert int(count) > 700
    assert rest == "vectors, 0 wrong\n"


def test_callbacks_descriptors_signals_and_errors(daemon: DaemonProcess) -> None:
    make("build/behaviour")
    assert run("build/behaviour", daemon.socket) == ""


def test_broken_connections_full_sockets_and_malformed_packets(daemon: DaemonProcess) -> None:
    make("build/inside")
    assert run("build/inside", daemon.socket) == ""


def test_the_cpp_header(daemon: DaemonProcess) -> None:
    make("build/headers")
    assert run("build/headers", daemon.socket) == "sound\n"


def test_closed_streams_do_not_get_the_bus(daemon: DaemonProcess, tmp_path: Path) -> None:
    make("build/worker")
    command = ["build/worker", daemon.socket]
    assert workers.sockets_for_streams(command, FOLDER, tmp_path / "log", daemon, "worker") == []


def test_the_worker_serves_beats_and_survives_a_restart(daemon: DaemonProcess, tmp_path: Path) -> None:
    make("build/worker")
    log = tmp_path / "worker.log"
    with workers.running(["build/worker", daemon.socket], FOLDER, log) as worker:
        name = f"here/worker/{worker.pid}"
        assert workers.output_over_a_restart(daemon, name, worker) == f"{name} is ready\n2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("worker: ")


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_an_installed_library_serves_programs(daemon: DaemonProcess, tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    make("install", f"DESTDIR={root}", "PREFIX=/usr")
    settings = dict(
        line.split(": ", 1)
        for line in (root / "usr/lib/pkgconfig/bccn.pc").read_text().splitlines()
        if ": " in line
    )
    assert settings["Libs"] == "-L${libdir} -lbccn"
    libraries, headers = root / "usr/lib", root / "usr/include"
    program = tmp_path / "driver"
    # The driver includes the header beside its own folder; here it has to be the installed one.
    (tmp_path / "src").mkdir()
    source = (FOLDER / "conformance/driver.c").read_text().replace('"../bccn.h"', "<bccn.h>")
    (tmp_path / "src/driver.c").write_text(source)
    library = [str(libraries / "libbccn.a")] if kind == "static" else [f"-L{libraries}", "-lbccn"]
    run(
        "gcc",
        "-std=c99",
        "-Wall",
        "-Werror",
        f"-I{headers}",
        "-o",
        program,
        tmp_path / "src/driver.c",
        *library,
    )
    language = Language(
        "c", folder="c", toolchain=TOOLS, run=(str(program),), environ={"LD_LIBRARY_PATH": str(libraries)}
    )
    with Driver(language, tmp_path / "stderr") as driver:
        driver.open(daemon.socket)
        driver("sub", "a")
        driver("pub", "a", "hello")
        assert driver("recv", 5) == [b"msg", b"a", b"hello"]


@pytest.mark.parametrize(("language", "compiler"), [("c", "gcc -std=c99"), ("cpp", "g++ -std=c++17")])
def test_the_readme_programs_work(
    daemon: DaemonProcess, tmp_path: Path, language: str, compiler: str
) -> None:
    make("build/libbccn.a")
    found = re.search(rf"```{language}\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert found
    (tmp_path / f"readme.{language}").write_text(found[1])
    program = [f"-I{FOLDER}", "-o", "readme", f"readme.{language}", str(FOLDER / "build/libbccn.a")]
    run(*compiler.split(), "-Wall", "-Wextra", "-Werror", *program, folder=tmp_path)
    command, environ = [tmp_path / "readme"], {**os.environ, "BCCN_SOCKET": str(daemon.socket)}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, preexec_fn=die_with_parent
    ) as process:
        if language == "cpp":  # which only receives
            wait_until(
                lambda: workers.is_subscribed(daemon, f"here/readme/{process.pid}"),
                "the program to subscribe",
            )
            with PacketClient(daemon.socket) as client:
                client.publish("sensors/kitchen/temperature", b"21.5")
                client.drain()
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert output.decode().strip().endswith(" 21.5")
