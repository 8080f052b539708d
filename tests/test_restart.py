"""The running program is replaced: by one that works, without anybody noticing; by one that does not, not at all."""

import json
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import BccndError, ConfigError, UnavailableError
from bccnd.restart import READY, VARIABLE, Predecessor
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, free_port, plain_socket
from tests.replaceable_daemon import ReplaceableDaemon

Start = Callable[..., ReplaceableDaemon]
KEY = b"the-key-that-all-hosts-of-this-segment-share"


@pytest.fixture
def start(tmp_path: Path, loopback_port: int) -> Iterator[Start]:
    """Starts a daemon on the loopback, with the flags given besides."""
    with ExitStack() as running:

        def start_one(*flags: str, **options: Any) -> ReplaceableDaemon:
            base = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
            return running.enter_context(ReplaceableDaemon(tmp_path, *base, *flags, **options))

        yield start_one


def row_of(client: PacketClient) -> dict[str, Any]:
    """What the daemon lists about this client."""
    name = client.request("whoami")
    rows = json.loads(client.request("clients"))["clients"]
    return next(row for row in rows if row["name"] == name)


def publish_until_held(publisher: PacketClient, chan: str, payload: bytes) -> int:
    """Numbered messages until the daemon reads no more; how many."""
    publisher.socket.settimeout(0.5)
    sent = 0
    while True:
        try:
            publisher.publish(chan, b"%d " % sent + payload)
        except TimeoutError:
            publisher.socket.settimeout(PATIENCE)
            return sent
        sent += 1


# --- what goes over to the successor ---


def test_descriptors_stay_the_same_over_many_replacements(start: Start) -> None:
    daemon = start()
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        daemon.replace()
        before = daemon.descriptors()
        for _ in range(3):
            daemon.replace()
        wait_until(lambda: daemon.descriptors() <= before, "no more descriptors than after the first")
        assert daemon.children() == []
        client.publish("a", b"still here")
        assert client.message() == ("a", b"still here")
    assert len(daemon.logged("replaced")) == 4


def test_what_a_client_has_agreed_on_stays(start: Start) -> None:
    daemon = start()
    with PacketClient(daemon.socket) as client, PacketClient(daemon.socket) as other:
        client.extend_name("worker")
        client.request("format", "full")
        client.request("separator", ".")
        client.request("queue", "packets=77 policy=block")
        client.request("echo/off")
        client.subscribe("a.>", "b", "b")
        other.publish("b", b"1")
        client.receive()
        wait_until(lambda: client.status()["rejected"] == {"own": 1}, "the message to come back")
        row, status = row_of(client), client.status()
        daemon.replace()
        after, now = row_of(client), client.status()
        assert after == row | {"seconds": after["seconds"]}
        assert after["seconds"] >= row["seconds"]
        assert client.request("queue").startswith("packets=77 ")
        assert now["pid"] != status["pid"]
        assert now["uptime"] > status["uptime"]
        for counted in ("published", "delivered", "sent"):
            assert now["counters"][counted] == status["counters"][counted] == 1
        other.publish("b", b"2")
        assert client.receive().endswith(b":b|2")
        client.send(b"UNSUB b")
        client.send(b"UNSUB b")
        client.drain()
        other.publish("b", b"3")
        other.drain()
        assert client.drain() == []


def test_a_backlog_of_megabytes_and_a_held_publisher_go_over(start: Start) -> None:
    daemon = start()
    with (
        PacketClient(daemon.socket) as slow,
        PacketClient(daemon.socket) as heavy,
        PacketClient(daemon.socket) as publisher,
        PacketClient(daemon.socket) as another,
    ):
        slow.request("queue", "packets=64 policy=block")
        slow.subscribe("local/a")
        heavy.subscribe("local/b")
        for number in range(64):
            another.publish("local/b", b"%d " % number + bytes(60_000))
        sent = publish_until_held(publisher, "local/a", bytes(60_000))
        for _ in range(2):
            daemon.replace()
        assert another.status()["queued"]["bytes"] > 3 << 20
        assert [int(heavy.message()[1].split()[0]) for _ in range(64)] == list(range(64))
        publisher.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            publisher.publish("local/a", bytes(60_000))
        numbers = [int(slow.message()[1].split()[0]) for _ in range(sent)]
        assert numbers == list(range(sent))
        publisher.publish("local/a", b"and on")
        assert slow.message() == ("local/a", b"and on")


def test_a_tap_and_clients_of_every_format_go_over(start: Start) -> None:
    daemon = start()
    with (
        PacketClient(daemon.socket) as tap,
        PacketClient(daemon.socket) as packed,
        PacketClient(daemon.socket) as lines,
    ):
        tap.request("tap", "on")
        packed.request("pack", "on")
        packed.subscribe(">")
        lines.send(b"SUB >\n")
        lines.send(b"CMSG ping\n")
        assert lines.receive() == b"CMSG pong \n"
        daemon.replace()
        pack = b"PACK \0\0\0\x09MSG a\0one\0\0\0\x09MSG a\0two"
        packed.send(pack)
        assert packed.receive() == pack
        assert [lines.receive(), lines.receive()] == [b"MSG a one\n", b"MSG a two\n"]
        assert [tap.receive()[-6:], tap.receive()[-6:]] == [b":a|one", b":a|two"]


def test_a_thousand_clients_go_over(start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    daemon = start()
    with ExitStack() as connections:
        clients = [connections.enter_context(PacketClient(daemon.socket)) for _ in range(1000)]
        for number, client in enumerate(clients):
            client.send(b"SUB to/%d" % number)
            client.send(b"SUB all")
            client.drain()
        daemon.replace()
        with PacketClient(daemon.socket) as publisher:
            publisher.publish("all", b"hello")
            for number in range(1000):
                publisher.publish(f"to/{number}", b"%d" % number)
            for number, client in enumerate(clients):
                assert client.message() == ("all", b"hello")
                assert client.message() == (f"to/{number}", b"%d" % number)


@pytest.mark.parametrize("where", ["@", "@bccnd-test-{pid}"])
def test_an_abstract_socket_goes_over(tmp_path: Path, loopback_port: int, where: str) -> None:
    where = where.format(pid=os.getpid())
    daemon = ReplaceableDaemon(
        tmp_path, "--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port),
        "--socket", where,
    )  # fmt: skip
    daemon.launch()
    wait_until(lambda: daemon.logged("serving"), "the daemon")
    name = daemon.logged("serving")[0]["socket"]
    with PacketClient(name) as client:
        daemon.signal(signal.SIGUSR2)
        daemon.follow_by(client)
    with PacketClient(name) as client:
        assert client.drain() == []
    assert daemon.terminate() == 0
    assert {line["socket"] for line in daemon.logged("serving")} == {name}


def test_a_socket_that_was_handed_down_goes_over(start: Start, tmp_path: Path) -> None:
    handed_down = f"""
import os, socket
if {VARIABLE!r} not in os.environ:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind({str(tmp_path / "bus.sock")!r})
    os.dup2(made.detach(), 99)
"""
    daemon = start("--socket", "fd:99", begin_with=handed_down)
    with PacketClient(daemon.socket) as client:
        for _ in range(2):
            daemon.replace()
        assert client.drain() == []
    assert daemon.terminate() == 0
    assert (tmp_path / "bus.sock").exists()  # not ours to remove


def test_the_last_of_many_removes_the_socket_and_not_that_of_another(start: Start, tmp_path: Path) -> None:
    daemon = start()
    daemon.replace()
    (tmp_path / "bus.sock").rename(tmp_path / "moved.sock")
    (tmp_path / "bus.sock").write_text("another's")
    daemon.socket = tmp_path / "moved.sock"
    daemon.replace()  # not even a missing file keeps it from being replaced
    assert daemon.terminate() == 0
    assert (tmp_path / "bus.sock").read_text() == "another's"


def test_it_leaves_when_idle_after_a_replacement_as_before(tmp_path: Path, loopback_port: int) -> None:
    daemon = ReplaceableDaemon(
        tmp_path, "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port), "--exit-when-idle"
    )
    daemon.launch()
    wait_until(lambda: daemon.logged("serving"), "the daemon")
    with PacketClient(daemon.socket) as client:
        daemon.signal(signal.SIGUSR2)
        daemon.follow_by(client)
        assert client.drain() == []
    assert daemon.wait() == 0


# --- what a replacement changes ---


def test_the_successor_has_the_settings_of_now(start: Start, tmp_path: Path, loopback_port: int) -> None:
    """Another port, key, integrity, limits; what cannot change, the path of the socket, is told."""
    file, keys, port = tmp_path / "bccnd.toml", tmp_path / "keys", free_port()
    file.write_text("")
    keys.touch(0o600)
    keys.write_bytes(KEY)
    daemon = ReplaceableDaemon(
        tmp_path, "--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--config", str(file),
        environ={"BCCND_PORT": str(loopback_port)}, begin_with="import os; os.environ.pop('BCCND_PORT', None)",
    )  # fmt: skip
    file.write_text(f"port = {loopback_port}\n")
    with daemon, PacketClient(daemon.socket) as client, plain_socket(port) as neighbour:
        client.subscribe("a")
        file.write_text(
            f'port = {port}\nkey_file = "{keys}"\nsocket_mode = "0600"\n[limits]\nsubscriptions = 1\n'
        )
        daemon.replace()
        (way,) = client.status()["segments"]
        assert (way["address"], way["port"], way["interface"]) == (LOOPBACK_BROADCAST, port, "lo")
        client.publish("a", b"signed")
        assert neighbour.recv(2048).endswith(b":a|signed")
        assert client.message() == ("a", b"signed")
        neighbour.sendto(datagram("there", 1, "a", b"forged"), (LOOPBACK_BROADCAST, port))
        neighbour.sendto(datagram("there", 1, "a", b"true", KEY), (LOOPBACK_BROADCAST, port))
        assert client.message() == ("a", b"true")
        client.send(b"SUB one/too/many")
        assert client.receive().startswith(b"CMSG error\0limit ")
    (told,) = daemon.logged("not changed while the socket is in use")
    assert told["settings"] == ["socket_mode"]


def test_systemd_is_told_who_serves_before_the_old_process_ends(start: Start, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(PATIENCE)
        # The old program stays until the test lets it go, so that the order is seen.
        linger = """
import os, time, bccnd.restart
told = bccnd.restart.notify
def notify(*lines):
    told(*lines)
    while not os.path.exists(os.environ["LEAVE"]):
        time.sleep(0.01)
bccnd.restart.notify = notify
"""
        leave = tmp_path / "leave"
        daemon = start(environ={"NOTIFY_SOCKET": address, "LEAVE": str(leave)}, begin_with=linger)
        old = daemon.pid
        daemon.signal(signal.SIGUSR2)
        told = [b""]
        while not told[-1].startswith(b"MAINPID="):
            told.append(systemd.recv(4096))
        with PacketClient(daemon.socket) as client:
            assert told[-1] == b"MAINPID=%d" % client.status()["pid"]
        assert daemon.process.poll() is None
        leave.touch()
        assert daemon.follow() != old


# --- during a replacement ---

HOLD = """
import os, time
from bccnd.restart import Predecessor
wait = Predecessor.wait_for_go
def hold(self):
    open(os.environ["TAKING"], "w").close()
    while not os.path.exists(os.environ["GO_ON"]):
        time.sleep(0.005)
    wait(self)
Predecessor.wait_for_go = hold
"""


def test_clients_may_come_go_and_talk_while_nobody_serves(start: Start, tmp_path: Path) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    with PacketClient(daemon.socket) as stays, PacketClient(daemon.socket) as leaves:
        stays.subscribe("a")
        leaves.drain()
        daemon.signal(signal.SIGUSR2)
        wait_until(taking.exists, "a successor that takes over")
        stays.publish("a", b"said while nobody listened")
        leaves.publish("a", b"last words")
        leaves.close()
        with PacketClient(daemon.socket) as comes:
            comes.send(b"SUB a")
            comes.send(b"MSG b\0x")
            go_on.touch()
            daemon.follow()
            comes.drain()
            assert sorted(stays.messages()) == [("a", b"last words"), ("a", b"said while nobody listened")]
            wait_until(lambda: stays.status()["clients"] == 2, "that the client that left is forgotten")


def test_sigterm_while_the_successor_starts_is_the_end_of_both(start: Start) -> None:
    daemon = start()
    daemon.begin_with("import time; time.sleep(60)")
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        daemon.signal(signal.SIGUSR2)
        wait_until(daemon.children, "a successor")
        (successor,) = daemon.children()
        client.publish("a", b"before the end")
        assert daemon.terminate() == 0
        assert client.message() == ("a", b"before the end")
        assert client.receive() == b"CMSG closing\0shutdown"
    assert not Path(f"/proc/{successor}").exists()


def test_sigterm_in_the_middle_of_the_hand_over_is_for_the_successor(start: Start, tmp_path: Path) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        daemon.signal(signal.SIGUSR2)
        wait_until(taking.exists, "a successor that takes over")
        (successor,) = daemon.children()
        client.publish("a", b"before the end")
        daemon.signal(signal.SIGTERM)
        go_on.touch()
        assert daemon.wait() == 0
        assert client.message() == ("a", b"before the end")
        assert client.receive() == b"CMSG closing\0shutdown"
        daemon.pid = successor
        assert daemon.wait() == 0
    assert not daemon.socket.exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_to_the_successor_waits_until_it_serves(start: Start, tmp_path: Path, signum: int) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    with PacketClient(daemon.socket) as client:
        daemon.signal(signal.SIGUSR2)
        wait_until(taking.exists, "a successor that takes over")
        (successor,) = daemon.children()
        os.kill(successor, signum)
        go_on.touch()
        assert daemon.wait() == 0
        daemon.pid = successor
        if signum == signal.SIGTERM:
            assert client.receive() == b"CMSG closing\0shutdown"
            assert daemon.wait() == 0
        else:
            assert daemon.follow() != successor
            assert client.drain() == []


def test_a_second_sigusr2_while_the_first_is_at_work_starts_nobody_else(start: Start, tmp_path: Path) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    daemon.signal(signal.SIGUSR2)
    wait_until(daemon.children, "a successor")
    daemon.signal(signal.SIGUSR2)
    wait_until(taking.exists, "a successor that takes over")
    (successor,) = daemon.children()
    daemon.signal(signal.SIGUSR2)
    go_on.touch()
    assert daemon.follow() == successor
    assert daemon.children() == []


# --- what goes wrong ---

IMPATIENT = "import bccnd.restart as it; it.HANDOVER_SECONDS = 1.0; it.PATIENCE = "
INSTEAD_OF_GO = "import os, socket, time\nfrom bccnd.restart import TAKEN, Predecessor\ndef wait(self):\n"
PATCHED = "\nPredecessor.wait_for_go = wait"

FEW_DESCRIPTORS = """
import resource
from bccnd.restart import Predecessor
receive = Predecessor._receive_descriptors
def receive_few(self):
    resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
    return receive(self)
Predecessor._receive_descriptors = receive_few
"""

FAILURES = {
    "ends at once": ("raise SystemExit(7)", "left with code 7"),
    "hangs at the start": ("import time; time.sleep(60)", "not ready within 1 seconds"),
    "closes the conversation and hangs": (
        f"import os, time; os.close(int(os.environ[{VARIABLE!r}])); time.sleep(60)",
        "left with code -9",
    ),
    "talks nonsense": (
        f"import os; os.write(int(os.environ[{VARIABLE!r}]), b'hello'); raise SystemExit(8)",
        "left with code 8",
    ),
    "dies while it takes over": (f"{INSTEAD_OF_GO}    os._exit(9){PATCHED}", "left with code 9"),
    "hangs while it takes over": (
        f"{INSTEAD_OF_GO}    time.sleep(60){PATCHED}",
        "not done with taking over within 1 seconds",
    ),
    "dies with GO unread": (
        f"{INSTEAD_OF_GO}    self._talk.send(TAKEN); self._talk.recv(9, socket.MSG_PEEK); os._exit(9){PATCHED}",
        "left with code 9",
    ),
    "hangs with GO unread": (
        f"{INSTEAD_OF_GO}    self._talk.send(TAKEN); time.sleep(60){PATCHED}",
        "not serving within 1 seconds",
    ),
    "cannot read the state": (
        "import bccnd.relay.succession as it; it.FORMAT = 0",
        "cannot take over state of format 1",
    ),
    "may not open as many files": (
        FEW_DESCRIPTORS,
        "too few file descriptors",
    ),
}


@pytest.mark.parametrize(("successor", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_successor_that_fails_changes_nothing(start: Start, successor: str, reason: str) -> None:
    daemon = start(begin_with=IMPATIENT + ("1.0" if "not ready" in reason else "30.0"))
    with PacketClient(daemon.socket) as client, PacketClient(daemon.socket) as other:
        client.subscribe("a")
        for number in range(8):
            other.publish("a", b"%d" % number)
        before = daemon.descriptors()
        daemon.begin_with(successor)
        daemon.signal(signal.SIGUSR2)
        wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
        assert reason in daemon.logged("not replaced, still serving")[0]["reason"]
        assert [number for _, number in client.messages()] == [b"%d" % number for number in range(8)]
        assert client.status()["pid"] == daemon.pid
        assert daemon.children() == []
        wait_until(lambda: daemon.descriptors() <= before, "no more descriptors than before")
        other.publish("a", b"still served")
        assert client.message() == ("a", b"still served")


def test_wrong_settings_are_told_and_change_nothing(tmp_path: Path, loopback_port: int) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text(f'host = "here"\nbroadcast = "{LOOPBACK_BROADCAST}"\nport = {loopback_port}\n')
    with ReplaceableDaemon(tmp_path, "--config", str(file)) as daemon:
        file.write_text("port = 99999\n")
        daemon.signal(signal.SIGUSR2)
        wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
        (told,) = daemon.logged("not replaced, still serving")
        assert "port" in told["reason"]
        assert str(file) in told["reason"]
        with PacketClient(daemon.socket) as client:
            assert client.status()["segments"][0]["port"] == loopback_port


@pytest.mark.parametrize(
    ("begin_with", "reason"),
    [
        (
            "import sys; sys.executable = '/nonexistent/python'",
            "cannot start /nonexistent/python: No such file",
        ),
        ("import sys; sys.orig_argv[1:] = ['/nonexistent/bccnd']", "left with code 2"),
    ],
    ids=["interpreter", "program"],
)
def test_a_program_that_is_not_there_any_more(start: Start, begin_with: str, reason: str) -> None:
    daemon = start(begin_with=begin_with)
    daemon.signal(signal.SIGUSR2)
    wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
    assert reason in daemon.logged("not replaced, still serving")[0]["reason"]
    with PacketClient(daemon.socket) as client:
        assert client.status()["pid"] == daemon.pid


@pytest.mark.parametrize(
    "fault",
    [
        "import bccnd.daemon.service as it\nit.state_of = lambda relay: 1 / 0",
        "import bccnd.daemon.service as it\nit.state_of = lambda relay: it",
    ],
    ids=["state", "pickling"],
)
def test_a_fault_of_our_own_leaves_nobody_waiting(start: Start, fault: str) -> None:
    daemon = start(begin_with=fault)
    with PacketClient(daemon.socket) as client:
        client.drain()
        for tries in range(1, 3):
            daemon.signal(signal.SIGUSR2)
            wait_until(lambda n=tries: len(daemon.logged("not replaced, still serving")) == n, "a line")
            assert client.drain() == []
            assert daemon.children() == []
    assert "exception" in daemon.logged("not replaced, still serving")[0]
    assert daemon.terminate() == 0
    daemon.log_file.write_text("")  # the traceback was wanted


def test_without_a_free_descriptor_it_is_not_replaced_and_goes_on(start: Start) -> None:
    daemon = start()
    with PacketClient(daemon.socket) as client:
        client.drain()
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (daemon.descriptors(), hard))
        daemon.signal(signal.SIGUSR2)
        wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
        assert "Too many open files" in daemon.logged("not replaced, still serving")[0]["reason"]
        assert client.drain() == []
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (soft, hard))
        daemon.replace()
        assert client.drain() == []


def test_when_the_old_program_dies_in_the_middle_the_successor_serves(start: Start) -> None:
    """With everything in hand, and no word from it any more."""
    dies = """
import os, signal
from bccnd.restart import TAKEN, Successor
expect = Successor._expect
async def and_die(self, word):
    await expect(self, word)
    if word == TAKEN:
        os.kill(os.getpid(), signal.SIGKILL)
Successor._expect = and_die
"""
    daemon = start(begin_with=dies)
    daemon.begin_with("")
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        assert daemon.replace()
        client.publish("a", b"still served")
        assert client.message() == ("a", b"still served")


def test_when_the_old_program_dies_before_the_successor_leaves_too(start: Start) -> None:
    """There is nothing to take over; whoever starts daemons here starts one afresh."""
    daemon = start(
        begin_with="import os, bccnd.daemon.service as it\nit.state_of = lambda relay: os.kill(os.getpid(), 9)"
    )
    with PacketClient(daemon.socket) as client:
        client.drain()
        daemon.signal(signal.SIGUSR2)
        assert daemon.wait() == -signal.SIGKILL
        assert client.receive() == b""
    wait_until(lambda: "bccnd: the daemon to succeed has left" in daemon.log, "the successor's last line")


# --- the conversation ---


def test_the_variable_is_taken_out_of_the_environment() -> None:
    assert Predecessor.from_environment({}) is None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {VARIABLE: str(theirs.detach()), "OTHER": "1"}
    predecessor = Predecessor.from_environment(environ)
    assert predecessor is not None
    assert environ == {"OTHER": "1"}
    with ours:
        predecessor.say_failed(BccndError("no luck"))
        assert ours.recv(100) == b"failed no luck"
    predecessor.wait_for_go()  # it is gone: ours to serve


@pytest.mark.parametrize("number", ["x", "-1", "9999", "0x1"])
def test_a_variable_set_by_hand_is_one_clear_line(number: str) -> None:
    with pytest.raises(ConfigError, match="not by hand"):
        Predecessor.from_environment({VARIABLE: number})


def test_a_state_that_names_anything_but_plain_values_is_refused() -> None:
    import array
    import pickle

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    predecessor = Predecessor(theirs)
    with ours, theirs, os.fdopen(os.memfd_create("state"), "wb") as stream:
        pickle.dump({"run": os.system}, stream)
        stream.flush()
        ours.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stream.fileno()]))])
        with pytest.raises(BccndError, match="only plain values"):
            predecessor.receive()
        assert ours.recv(100) == READY


@pytest.mark.parametrize("unread", [False, True])
def test_a_conversation_that_ends_early_is_told_as_such(unread: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        predecessor = Predecessor(theirs)

        def end() -> None:
            ours.recv(100, 0 if not unread else socket.MSG_PEEK)
            ours.close()

        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(UnavailableError, match="has left"):
            predecessor.receive()
        ending.join()


def test_who_is_there_is_the_same_before_and_after(start: Start, tmp_path: Path, loopback_port: int) -> None:
    """Heartbeats go on under the same name, the daemon's and its clients'; nobody appears, leaves or restarts."""
    folder = tmp_path / "there"
    folder.mkdir()
    beating = {"BCCND_HEARTBEAT__SECONDS": "1"}
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    here = ReplaceableDaemon(tmp_path, "--host", "here", *flags, environ=beating)
    there = DaemonProcess(folder, "--host", "there", *flags, environ=beating)
    with there, PacketClient(there.socket) as watcher:
        watcher.subscribe("local/presence/>")
        with here, PacketClient(here.socket) as client:
            name, src = client.request("whoami"), client.status()["src"]
            client.request("heartbeat", "1 fine")
            first = {f"heartbeat/{name}", f"heartbeat/{src}"}
            appeared = {watcher.message()[0] for _ in range(2)}
            assert appeared == {f"local/presence/appeared/{each}" for each in (name, src)}
            for _ in range(2):
                here.replace()
            assert client.status()["src"] == src
            with PacketClient(there.socket) as listener:
                listener.subscribe("heartbeat/here/>")
                assert {listener.message()[0] for _ in range(6)} == first
            told = [packet.partition(b"\0")[0] for packet in watcher.drain()]
            assert not [channel for channel in told if b"/here/" in channel]
