"""The Rust client beyond the conformance suite: its own tests, its form, its worker, programs that use the crate."""

import json
import re
import shutil
import socket
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.clients import workers
from tests.clients.drivers import CLIENTS, LANGUAGES, LATEST, QUICK_BUILD, Driver
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until

FOLDER = CLIENTS / "rust"
TARGET = FOLDER / "build"  # shared with the driver, and kept between runs
pytestmark = pytest.mark.needs("cargo", "rustfmt", "clippy-driver", "cc")
run = partial(workers.run, folder=FOLDER, CARGO_TARGET_DIR=str(TARGET), **QUICK_BUILD)

# More than the client takes while it waits for an answer: twice the 64 MiB with which it asks nothing.
FLOOD_BYTES = 200 << 20

LOOP = """
use bccn::{NoticeKind, Options};
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;

fn main() -> bccn::Result<()> {
    let (sender, notices) = channel();
    let bus = Options::new().on_notice(move |notice| sender.send(notice.kind).unwrap()).open()?;
    bus.subscribe("a")?;
    println!("ready");
    let mut polled = libc::pollfd { fd: bus.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut turns = 0;
    while !notices.try_iter().any(|kind| kind == NoticeKind::Reconnected) {
        unsafe { libc::poll(&mut polled, 1, -1) };
        while bus.try_receive()?.is_some() {}
        turns += 1;
    }
    println!("{turns}");
    Ok(())
}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds `readme` and `loop`, programs of another crate that depends on this one, as they are released: overflow
    wraps, and assertions of the debug build are gone. Their folder."""
    folder = tmp_path_factory.mktemp("crate")
    readme = re.findall(r"```rust,no_run\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)[0]
    (folder / "src/bin").mkdir(parents=True)
    (folder / "src/bin/readme.rs").write_text(readme)
    (folder / "src/bin/loop.rs").write_text(LOOP)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "other"\nversion = "1.0.0"\nedition = "2021"\n'
        f'[dependencies]\nbccn = {{ path = "{FOLDER}" }}\nlibc = "0.2"\n'
    )
    shutil.copy(FOLDER / "Cargo.lock", folder)  # the versions that are here already
    target = str(folder / "target")
    run("cargo", "build", "--release", "--quiet", "--offline", folder=folder, CARGO_TARGET_DIR=target)
    return folder / "target/release"


def test_its_own_tests_pass(daemon: DaemonProcess) -> None:
    said = run(
        "cargo", "test", "--locked", "--all-features", "--", "--show-output", BCCN_SOCKET=str(daemon.socket)
    )
    assert sum(map(int, re.findall(r"^(\d+) vectors$", said, re.MULTILINE))) > 700
    for name in (r"Running tests/bus\.rs", r"Running tests/tasks\.rs", "Doc-tests bccn"):
        passed = r".*?test result: ok\. [1-9]\d* passed; 0 failed; 0 ignored"
        assert re.search(name + passed, said, re.DOTALL), said
    assert "warning" not in said


def test_fmt_clippy_and_doc_find_nothing() -> None:
    assert run("cargo", "fmt", "--check") == ""
    run("cargo", "clippy", "--quiet", "--locked", "--all-targets", "--all-features", "--", "-D", "warnings")
    run("cargo", "doc", "--quiet", "--locked", "--no-deps", "--all-features", RUSTDOCFLAGS="-D warnings")
    tree = run("cargo", "tree", "--locked", "--edges=normal", "--prefix=none")
    assert [line.split()[0] for line in tree.splitlines()] == ["bccn", "libc"]


def test_the_package_holds_all_that_it_needs() -> None:
    files = run("cargo", "package", "--locked", "--list", "--allow-dirty").splitlines()
    assert {"Cargo.lock", "LICENSE", "README.md", "examples/worker.rs", "src/lib.rs"} <= set(files)
    assert not [name for name in files if name.startswith("build/")]


def test_the_oldest_rust_reads_the_lock_and_its_crates() -> None:
    linux = "--filter-platform=x86_64-unknown-linux-gnu"
    said = run("cargo", "metadata", "--quiet", "--locked", "--format-version=1", "--all-features", linux)
    versions = {each["name"]: each["rust_version"] for each in json.loads(said)["packages"]}
    oldest = tuple(map(int, versions["bccn"].split(".")))
    newer = {
        name: version
        for name, version in versions.items()
        if version and tuple(map(int, version.split(".")))[:2] > oldest
    }
    assert not newer
    assert "\nversion = 3\n" in (FOLDER / "Cargo.lock").read_text()


def test_the_worker_serves_beats_and_survives_a_restart(daemon: DaemonProcess, tmp_path: Path) -> None:
    run("cargo", "build", "--quiet", "--locked", "--all-features", "--examples")
    log = tmp_path / "worker.log"
    with workers.running([TARGET / "debug/examples/worker", daemon.socket], FOLDER, log) as worker:
        name = f"here/worker/{worker.pid}"
        assert workers.output_over_a_restart(daemon, name, worker) == f"{name} is ready\n2 done\n"
    assert log.read_text().splitlines() == workers.told_of_a_restart("worker: ")


def test_the_readme_program_works_and_tells_of_a_restart(
    programs: Path, daemon: DaemonProcess, tmp_path: Path
) -> None:
    log = tmp_path / "stderr"
    with workers.running(
        ["env", f"BCCN_SOCKET={daemon.socket}", programs / "readme"], FOLDER, log
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"sensors/kitchen/temperature 21.5\n"
        with PacketClient(daemon.socket) as client:
            client.publish("sensors/cellar/temperature", b"12")
            client.drain()
        assert process.stdout.readline() == b"sensors/cellar/temperature 12\n"
        assert log.read_text() == ""
        daemon.terminate()
        daemon.start()
        told = workers.told_of_a_restart("bccn: ")
        wait_until(lambda: log.read_text().splitlines() == told, "the notices on stderr")


def test_a_poll_loop_waits_for_the_daemon_without_spinning(
    programs: Path, daemon: DaemonProcess, tmp_path: Path
) -> None:
    log = tmp_path / "stderr"
    with workers.running(["env", f"BCCN_SOCKET={daemon.socket}", programs / "loop"], FOLDER, log) as process:
        assert workers.turns_over_a_restart(daemon, process) < 100


def test_a_call_ends_in_time_whatever_comes(tmp_path: Path) -> None:
    part = b"CMSG revoked\0SUB a"
    flood = b"PACK " + 3000 * (len(part).to_bytes(4) + part)

    def script(connection: socket.socket, packet: bytes) -> bool:
        if not packet.startswith(b"CMSG heartbeat"):
            return False
        try:
            while True:
                connection.send(flood)
        except OSError:  # the client has left
            return True

    (rust,) = [each for each in LANGUAGES if each.name == "rust"]
    with ScriptedDaemon(tmp_path / "bus", script) as scripted, Driver(rust, tmp_path / "log") as driver:
        driver("timeout", "0.5")
        driver.patiently("open", str(scripted.path))
        assert driver.error("heartbeat", 1) == "timeout"


def test_messages_without_an_end_before_an_answer_are_bounded(tmp_path: Path) -> None:
    message = b"MSG a\0" + bytes(64_000)

    def script(connection: socket.socket, packet: bytes) -> bool:
        if not packet.startswith(b"CMSG heartbeat"):
            return False
        with suppress(OSError):  # the client has left
            for _ in range(FLOOD_BYTES // len(message)):
                connection.send(message)
        return True

    (rust,) = [each for each in LANGUAGES if each.name == "rust"]
    with ScriptedDaemon(tmp_path / "bus", script) as scripted, Driver(rust, tmp_path / "log") as driver:
        driver("timeout", LATEST)
        driver.open(scripted.path)
        assert driver.error("heartbeat", 1) == "backlog"
        driver("close")


def test_a_greeting_without_an_answer_holds_no_call(tmp_path: Path) -> None:
    ended = threading.Event()

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG"):
            connection.shutdown(socket.SHUT_RDWR)
            ended.set()
        return any(each.startswith(b"MSG") for each in scripted.seen)

    (rust,) = [each for each in LANGUAGES if each.name == "rust"]
    with ScriptedDaemon(tmp_path / "bus", script) as scripted, Driver(rust, tmp_path / "log") as driver:
        driver("timeout", 3600)
        driver.open(scripted.path)
        driver("pub", "a", "x")
        assert ended.wait(PATIENCE)
        assert driver.error("request", "a", "x", "0.5") == "unavailable"
