"""The Java client beyond the conformance suite: its own tests and documents, its worker, what its README shows."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.clients import workers
from tests.clients.door import Door
from tests.clients.drivers import CLIENTS, JVM, LANGUAGES, build
from tests.daemon_process import DaemonProcess
from tests.mux.certificates import Certificates
from tests.mux.test_record import record, rows
from tests.packet_client import PATIENCE, PacketClient
from tests.plain_bccn import free_port

FOLDER = CLIENTS / "java"
JAVA = ("java", *JVM)
PROGRAMS = "build/main:build/programs"
pytestmark = pytest.mark.needs("java", "javac", "javadoc", "openssl")
run = partial(workers.run, folder=FOLDER)

QUICK = [f"-J{flag}" for flag in JVM]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build(next(language for language in LANGUAGES if language.name == "java"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "door", "own")


@pytest.fixture(scope="module")
def by_tls() -> str:
    return f"tls://127.0.0.1:{free_port(socket.SOCK_STREAM)}"


@pytest.fixture(scope="module")
def door(
    shared_daemon: DaemonProcess,
    made: Certificates,
    by_tls: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Door]:
    """A door that lets in programs of this host, and the one with the certificate ``own`` as this user.

    It has a recording.
    """
    folder = tmp_path_factory.mktemp("door")
    texts = enumerate((b"one", b"two"), 1)
    recorded = [rows(at, channel="orders/17", payload=text) for at, text in texts]
    record(folder / "recorded", (0, 10, recorded)).end()
    certificate, key = made.files("door")
    files = ("--certificate", str(certificate), "--key", str(key), "--authorities", str(made.ca))
    files += ("--recorded", str(folder / "recorded"))
    door = Door(folder, shared_daemon.socket, "--listen", by_tls, *files)
    user = f"user = {os.getuid()}\ngroups = [{os.getgid()}]\n"
    door.config.write_text(f'[[mux.peers]]\nname = "own"\n{user}')
    with door:
        yield door


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of Java's own tests, which see what is inside the package."""
    folder = tmp_path_factory.mktemp("checks")
    sources = sorted(map(str, FOLDER.glob("tests/**/*.java")))
    run("javac", *QUICK, "-Xlint:all", "-Werror", "-cp", "build/main", "-d", str(folder), *sources)
    return f"build/main:{folder}"


def java_of_the_readme() -> list[str]:
    return re.findall(r"```java\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)


def test_its_own_tests_pass(checks: str, door: Door, made: Certificates, by_tls: str) -> None:
    said = run(*JAVA, "-cp", checks, "bccn.AllChecks", str(made.folder), by_tls, BCCN_CONNECT=door.address)
    count, failed = re.findall(r"^(\d+) tests, (\d+) failed$", said, re.MULTILINE)[0]
    assert (int(count) > 980, failed) == (True, "0"), said  # vectors, most of them


def test_its_documentation_is_whole(tmp_path: Path) -> None:
    source = ("--module-source-path", "bccn=src/main/java", "--module", "bccn")
    said = run("javadoc", *QUICK, "-quiet", "-Xdoclint:all", "-Werror", "-d", str(tmp_path), *source)
    assert said == ""
    assert (tmp_path / "bccn/bccn/Bccn.html").exists()


def test_the_worker_serves_beats_and_survives_a_restart(daemon: DaemonProcess, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with Door(tmp_path, daemon.socket) as door:
        command = [*JAVA, "-cp", PROGRAMS, "Worker", door.address]
        with workers.running(command, FOLDER, log) as worker:
            name = f"here/java/{worker.pid}"
            assert workers.output_over_a_restart(daemon, name, worker) == f"{name} is ready\n2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("worker: ")


def test_a_worker_that_is_interrupted_leaves_in_order(door: Door, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    command = [*JAVA, "-cp", PROGRAMS, "Worker", door.address]
    assert workers.end_at_ctrl_c(command, FOLDER, log) == ("0 done\n", 130)
    assert log.read_text() == ""


def test_the_recipes_of_the_readme_work(checks: str, door: Door) -> None:
    """All but its first program are parts of the recipes, but for how far they are indented."""
    recipes = " ".join((FOLDER / "tests/Recipes.java").read_text().split())
    _, *parts = java_of_the_readme()
    assert len(parts) > 10
    assert [part for part in parts if " ".join(part.split()) not in recipes] == []
    said = run(*JAVA, "-cp", checks, "Recipes", BCCN_CONNECT=door.address).splitlines()
    assert said == [
        "doors/front open",
        "doors/back open",
        "callback open",
        "flow first",
        "flow last",
        "orders/new",
        "orders/paid",
        "to this program",
        "somebody looks: true",
        "HELLO",
        "done",
        "2024-10-04T12:00:00.000000001Z one",
        "2024-10-04T12:00:00.000000002Z two",
        "true",
        "too large",
        "nobody listens to demo/nobody",
        "cancelled true",
    ]


def test_the_readme_program_works(door: Door, shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    program, *_ = java_of_the_readme()
    (tmp_path / "First.java").write_text(program)
    path = f"{FOLDER}/build/main"
    run("javac", *QUICK, "-p", path, "--add-modules", "bccn", "First.java", folder=tmp_path)
    command = ["java", *JVM, "-cp", f"{path}:{tmp_path}", "First"]
    with subprocess.Popen(
        ["env", f"BCCN_CONNECT={door.address}", *command], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout
        assert first.stdout.readline() == "sensors/kitchen/temperature 21.5\n"
        with PacketClient(shared_daemon.socket) as client:
            client.publish("sensors/cellar/temperature", b"12")
            client.drain()
        assert first.stdout.readline() == "sensors/cellar/temperature 12\n"
        first.kill()
        first.wait(PATIENCE)


def test_maven_and_the_library_say_the_same_version() -> None:
    version = re.findall(r"<version>(.*?)</version>", (FOLDER / "pom.xml").read_text())[0]
    assert f'VERSION = "{version}"' in (FOLDER / "src/main/java/bccn/Bccn.java").read_text()
    assert f"<version>{version}</version>" in (FOLDER / "README.md").read_text()
