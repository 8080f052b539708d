"""The daemon on bad days of its sockets: clients that leave in a hurry, no descriptors, a listener shut down."""

import asyncio
import json
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bccnd.daemon import bus
from bccnd.daemon.service import Daemon
from bccnd.net.bindings import Binding
from bccnd.net.endpoints import Endpoints
from bccnd.net.listener import Listener
from bccnd.process.configuration import load
from bccnd.relay.session import Session
from bccnd.wire import sbus
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, die_with_parent
from tests.packet_client import PATIENCE, PacketClient, wait_until


@contextmanager
def stopped(daemon: DaemonProcess) -> Iterator[None]:
    """The daemon finds at once whatever happened meanwhile."""
    daemon.process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{daemon.process.pid}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the daemon to stop")
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def roomy(client: PacketClient) -> None:
    """Let it send all of a test's packets while the daemon reads none."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


def numbered(count: int) -> list[tuple[str, bytes]]:
    return [("last/words", b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("count", [1, 64, 150], ids=["one", "a batch", "more"])
def test_last_words_of_a_client_that_left_packets_unread(daemon: DaemonProcess, count: int) -> None:
    """The kernel makes such an end a reset, which is told before what the client sent."""
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("last/>")
        with PacketClient(daemon.socket) as hasty:
            roomy(hasty)
            hasty.subscribe("busy/>")
            listener.publish("busy/x", b"never read")
            listener.drain()
            with stopped(daemon):
                for chan, payload in numbered(count):
                    hasty.publish(chan, payload)
                hasty.close()
        assert [listener.message() for _ in range(count)] == numbered(count)
        wait_until(lambda: listener.status()["clients"] == 1, "the client to be forgotten")


@pytest.mark.parametrize("count", [1, 150], ids=["one", "more than a batch"])
def test_last_words_of_a_client_that_a_delivery_finds_gone(daemon: DaemonProcess, count: int) -> None:
    with PacketClient(daemon.socket) as listener, PacketClient(daemon.socket) as busy:
        listener.subscribe("last/>")
        with PacketClient(daemon.socket) as hasty:
            roomy(hasty)
            hasty.subscribe("busy/>")
            busy.drain()
            with stopped(daemon):
                busy.publish("busy/x", b"finds it gone")  # read first, since it came first
                for chan, payload in numbered(count):
                    hasty.publish(chan, payload)
                hasty.close()
        assert [listener.message() for _ in range(count)] == numbered(count)
        wait_until(lambda: listener.status()["clients"] == 2, "the client to be forgotten")


# --- the listener ---


def test_last_words_that_find_the_next_client_gone(daemon: DaemonProcess) -> None:
    count = 300
    with PacketClient(daemon.socket) as listener, ExitStack() as row:
        listener.subscribe(f"row/{count}")
        clients = [row.enter_context(PacketClient(daemon.socket)) for _ in range(count)]
        for number, client in enumerate(clients):
            client.subscribe(f"row/{number}")
        with stopped(daemon):
            for number, client in enumerate(clients):
                client.publish(f"row/{number + 1}")
            row.close()
        assert listener.message() == (f"row/{count}", b"")
        wait_until(lambda: listener.status()["clients"] == 1, "the clients to be forgotten")


def test_without_descriptors_new_clients_wait(daemon: DaemonProcess) -> None:
    """Not even the spare descriptor helps below a limit that is lower than what is open."""
    pid = daemon.process.pid
    with PacketClient(daemon.socket) as old:
        old.drain()
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with PacketClient(daemon.socket) as new:
            assert_quiet_and_serving(daemon.log_file, old, "client refused")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            assert new.drain() == []
        with PacketClient(daemon.socket) as later:
            assert later.drain() == []


def test_a_listener_shut_down_by_its_owner_harms_no_client(tmp_path: Path, loopback_port: int) -> None:
    """A descriptor that was handed down is still its owner's too."""
    path, log = tmp_path / "handed-down.sock", tmp_path / "log"
    with ExitStack() as opened:
        handed = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        handed.bind(str(path))
        handed.listen()
        command = [
            sys.executable,
            "-m",
            "bccnd.daemon",
            "--socket",
            f"fd:{handed.fileno()}",
            "--host",
            "here",
        ]
        command += ["--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
        process = opened.enter_context(
            subprocess.Popen(
                command,
                pass_fds=[handed.fileno()],
                stderr=opened.enter_context(log.open("wb")),
                preexec_fn=die_with_parent,
            )
        )
        opened.callback(process.kill)
        with PacketClient(path) as client:
            client.drain()
            handed.shutdown(socket.SHUT_RDWR)
            assert_quiet_and_serving(log, client, "listener shut down")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def assert_quiet_and_serving(log: Path, client: PacketClient, line: str) -> None:
    """The daemon has logged that it accepts nobody, does not do so at every turn of its loop, and still answers."""
    wait_until(lambda: line in log.read_text(), line)
    for _ in range(200):
        client.drain()
    assert log.read_text().count(line) < 20
    assert "Traceback" not in log.read_text()


# --- the end with everybody stuck ---


def test_sigterm_while_a_publisher_is_held(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as subscriber, PacketClient(daemon.socket) as publisher:
        subscriber.request("queue", "packets=10 policy=block")
        subscriber.subscribe("flood/>")
        publisher.socket.setblocking(False)
        wait_until(lambda: is_held(publisher), "the publisher to be held")
        assert daemon.terminate() == 0


def is_held(publisher: PacketClient) -> bool:
    """Fills its socket; whether the daemon leaves it full."""
    with suppress(BlockingIOError):
        while True:
            publisher.publish("flood/x", bytes(1000))
    return not select.select([], [publisher.socket], [], 0.2)[1]


# --- inside one process: what must not be left to the next tick, or to chance ---


class InProcess:
    """A daemon on the test's own loop; clients talk to it from other threads, or while the loop stands still."""

    def __init__(self, daemon: Daemon, path: Path) -> None:
        self.daemon = daemon
        self.path = path
        self.opened = ExitStack()

    async def client(self) -> PacketClient:
        return self.opened.enter_context(await asyncio.to_thread(PacketClient, self.path))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.fixture
async def in_process(
    tmp_path: Path, loopback_port: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[InProcess]:
    async def never(_: Daemon) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Daemon, "_tick", never)
    path = tmp_path / "bus.sock"
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    settings = load([*flags, "--socket", str(path)], {}).settings
    endpoints = Endpoints.open(
        [Binding(LOOPBACK_BROADCAST, loopback_port)], 1 << 20, lambda: Listener.open(str(path), 0o600)
    )
    daemon = Daemon(settings, (), endpoints, None, asyncio.get_running_loop(), lambda: (settings, ()))
    serving = asyncio.create_task(daemon.serve())
    running = InProcess(daemon, path)
    with running.opened:
        yield running
    daemon._stop.set()
    await serving


async def test_a_client_closed_while_congested_is_not_read_again(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor may be another client's by then."""
    monkeypatch.setattr(bus, "ALONE_NS", 1 << 63)  # always read by the batch
    daemon = in_process.daemon
    broken = await in_process.client()
    assert await asyncio.to_thread(broken.request, "pack", "on")
    daemon._segments._egresses[0].congested = True
    broken.publish("demo/x", b"one batch with what follows")
    broken.send(b"PACK \xff\xff\xff\xff")
    await in_process.until(lambda: not daemon.relay.sessions)
    assert daemon._bus._held_back == set()
    daemon._segments._egresses[0].congested = False
    daemon._segments._relieved()
    other = await in_process.client()
    assert await asyncio.to_thread(other.drain) == []


async def test_a_held_publisher_goes_on_when_the_client_leaves(in_process: InProcess) -> None:
    daemon = in_process.daemon
    subscriber, publisher = await in_process.client(), await in_process.client()
    await asyncio.to_thread(subscriber.request, "queue", "packets=10 policy=block")
    await asyncio.to_thread(subscriber.subscribe, "flood/>")
    publisher.socket.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        while not any(session.waits_for for session in daemon.relay.sessions.values()):
            with suppress(BlockingIOError):
                publisher.publish("flood/x", bytes(1000))
            await asyncio.sleep(0)
    subscriber.socket.shutdown(socket.SHUT_WR)  # the end, without a reset
    await in_process.until(lambda: len(daemon.relay.sessions) == 1)
    publisher.socket.settimeout(PATIENCE)
    assert await asyncio.to_thread(publisher.drain) == []


def test_a_shell_may_write_several_lines_at_once(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as plain, PacketClient(daemon.socket) as shell:
        plain.subscribe("a", "b")
        shell.send(b"SUB own\nMSG a x\nMSG b y\nMSG own z\n")
        assert [plain.message(), plain.message()] == [("a", b"x"), ("b", b"y")]
        assert shell.receive() == b"MSG own z\n"


# --- the file of the socket ---


def lines(daemon: DaemonProcess, event: str) -> list[dict[str, object]]:
    return [line for line in map(json.loads, daemon.log.splitlines()) if line["event"] == event]


@pytest.mark.parametrize("lock_too", [False, True], ids=["the socket", "its lock too"])
def test_a_deleted_socket_file_is_made_again(daemon: DaemonProcess, lock_too: bool) -> None:
    mode = daemon.socket.stat().st_mode
    with PacketClient(daemon.socket) as old:
        old.subscribe("a")
        daemon.socket.unlink()
        if lock_too:
            Path(f"{daemon.socket}.lock").unlink()
        wait_until(daemon.socket.exists, "the file")
        wait_until(daemon._answers, "the new socket")
        with PacketClient(daemon.socket) as new:
            new.publish("a", b"x")
            assert old.message() == ("a", b"x")
            assert new.status()["socket_gone"] is False
    assert daemon.socket.stat().st_mode == mode
    assert len(lines(daemon, "socket file made again")) == 1
    assert daemon.terminate() == 0
    assert not daemon.socket.exists()


def test_who_waits_at_a_deleted_socket_is_served(daemon: DaemonProcess) -> None:
    with ExitStack() as clients:
        with stopped(daemon):
            waiting = [clients.enter_context(PacketClient(daemon.socket)) for _ in range(100)]
            daemon.socket.unlink()
        wait_until(daemon.socket.exists, "the file")
        for client in waiting:
            assert client.drain() == []


def test_the_socket_of_another_daemon_is_left_alone(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as client, ExitStack() as ending:
        for path in (daemon.socket, Path(f"{daemon.socket}.lock")):
            path.unlink()
        other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ending.enter_context(other)
        other.bind(str(daemon.socket))
        other.listen()
        theirs = daemon.socket.stat().st_ino
        wait_until(lambda: client.status()["socket_gone"], "the daemon to notice")
        (line,) = lines(daemon, "socket file gone: nobody can connect")
        assert "another program serves this socket" in str(line["reason"])
        assert client.drain() == []
        assert daemon.terminate() == 0
        assert daemon.socket.stat().st_ino == theirs


# --- programs that leave at once ---


def test_a_program_that_left_is_refused_with_that_reason(tmp_path: Path, loopback: list[str]) -> None:
    settings = tmp_path / "bccnd.toml"
    settings.write_text('[[rights]]\nprogram = "python*"\npublish = [">"]\n[[rights]]\nuid = 1\n')
    daemon = DaemonProcess(tmp_path, *loopback, "--config", str(settings))
    hasty = "import socket, sys; c = socket.socket(1, 5); c.connect(sys.argv[1]); c.send(b'MSG a\\0x')"
    with daemon:
        with stopped(daemon):
            subprocess.run([sys.executable, "-c", hasty, str(daemon.socket)], check=True)
        wait_until(lambda: lines(daemon, "refused"), "the refusal")
    (line,) = lines(daemon, "refused")
    assert line["program"] == ""
    assert "the program left before it could be looked at" in str(line["reason"])


async def test_a_client_with_packets_left_has_one_turn_a_round(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two turns the loop looks after everybody else."""
    monkeypatch.setattr(bus, "TURN_SECONDS", 1e-6)
    turns = 0
    take_turn = bus.Bus._take_turn

    def counted(self: bus.Bus, session: Session) -> bool:
        nonlocal turns
        turns += 1
        return take_turn(self, session)

    monkeypatch.setattr(bus.Bus, "_take_turn", counted)
    client = await in_process.client()
    assert await asyncio.to_thread(client.request, "pack", "on")
    client.send(sbus.pack([b"SUB a*", b"UNSUB a*"] * 2900))
    await in_process.until(lambda: turns)
    for _ in range(6):
        before = turns
        await asyncio.sleep(0)
        assert turns - before <= 1
    await in_process.until(lambda: not in_process.daemon._bus._turns._left)


async def test_last_words_behind_a_reset_are_read_at_the_end(in_process: InProcess) -> None:
    daemon = in_process.daemon
    listener, hasty = await in_process.client(), await in_process.client()
    await asyncio.to_thread(listener.subscribe, "last/>")
    await asyncio.to_thread(hasty.subscribe, "busy/>")
    listener.publish("busy/x", b"never read")
    await asyncio.to_thread(listener.drain)
    hasty.publish("last/x", b"words")
    hasty.close()
    daemon._bus.read_the_rest(time.monotonic() + PATIENCE)
    assert listener.message() == ("last/x", b"words")
