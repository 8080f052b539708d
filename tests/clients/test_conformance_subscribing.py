"""A subscribe that fails leaves nothing, in any language (``clients/PROTOCOL.md``, "A subscribe that fails").

A daemon that is stopped (SIGSTOP) takes packets and answers none.
"""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.conftest import Start
from tests.clients.drivers import LATEST, Driver, Language, each_language, unless_lacking
from tests.clients.scripted_daemon import Reticent, ScriptedDaemon
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import free_port

# Seconds that a call waits for the daemon, where the test wants it to wait in vain; every other call is repeated.
BRIEF = 0.5

RIGHTS = """\
[retain]
patterns = ["last/>"]
[[rights]]
observe = true
speak_for = true
publish = [">", "!>"]
subscribe = [{}]
"""
GRANTED = '"own/>", "last/>"'

# Messages, and the bytes of each: more than a socket holds that nobody reads, and more than a door gives credit for.
FLOOD = 2000, 1000


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """It keeps last values of ``last/>``, and lets nobody subscribe to anything but ``own/>`` and ``last/>``."""
    grant(tmp_path, GRANTED)
    flags = ("--config", str(tmp_path / "bccnd.toml"), "--broadcast", LOOPBACK_BROADCAST, "--host", "here")
    with DaemonProcess(tmp_path, *flags, "--port", str(free_port())) as running:
        yield running


def grant(folder: Path, patterns: str) -> None:
    (folder / "bccnd.toml").write_text(RIGHTS.format(patterns))


@contextmanager
def stopped(daemon: DaemonProcess) -> Iterator[None]:
    daemon.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{daemon.process.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(") ")[2].startswith("T"), "a stopped daemon")
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def started(language: Language, path: Path, start: Start, seconds: float = BRIEF) -> tuple[Driver, str]:
    """A driver with an open client whose calls wait for so many seconds, and its name."""
    driver = start(language)
    driver("timeout", str(seconds))
    return driver, driver.patiently("open", str(path))[0].decode()


def publish(daemon: DaemonProcess, channel: str, payload: bytes) -> None:
    with PacketClient(daemon.socket) as client:
        client.publish(channel, payload)
        assert client.drain() == []


def messages(driver: Driver) -> list[tuple[str, bytes]]:
    """All that the daemon has for it by now."""
    driver.patiently("barrier")
    found = []
    while (event := driver("recv", 0))[0] == b"msg":
        found.append((event[1].decode(), event[2]))
    assert event == [b"timeout"], event
    return found


def held(daemon: DaemonProcess, name: str) -> int:
    """How many patterns the daemon holds for the client of this name."""
    with PacketClient(daemon.socket) as client:
        rows = json.loads(client.request("clients"))["clients"]
    return int(next(row["subscriptions"] for row in rows if row["name"] == name))


def unsubscribe(driver: Driver, pattern: str) -> None:
    """An unsubscribe whose time is over has ended the subscription all the same."""
    driver.ask("unsub", pattern)
    word, *rest = driver.answer()
    assert word == "ok" or rest[0] == "timeout", rest


@pytest.mark.parametrize("end", ["timeout", "cancel"])
@each_language
def test_a_subscribe_given_up_leaves_nothing(
    language: Language, end: str, daemon: DaemonProcess, start: Start
) -> None:
    if end == "cancel":
        unless_lacking(language, "cancel", "a 1", start)
    publish(daemon, "last/x", b"1")
    driver, name = started(language, daemon.socket, start, BRIEF if end == "timeout" else LATEST)
    with stopped(daemon):
        if end == "timeout":
            assert driver.error("sub", "last/>") == "timeout"
        else:
            assert driver.error("cancel", "last/>", str(BRIEF)) == "cancelled"
    assert messages(driver) == []  # the last value comes with the SUB, and before the UNSUB
    assert held(daemon, name) == 0
    publish(daemon, "last/y", b"2")
    publish(daemon, f"!{name}", b"a client that only has tried does not listen")
    assert messages(driver) == []
    assert driver.error("unsub", "last/>") == "invalid"
    driver.patiently("sub", "last/>")
    publish(daemon, "last/x", b"3")
    publish(daemon, f"!{name}", b"4")
    assert messages(driver) == [("last/x", b"1"), ("last/y", b"2"), ("last/x", b"3"), (f"!{name}", b"4")]
    unsubscribe(driver, "last/>")
    assert messages(driver) == []
    assert held(daemon, name) == 0


@each_language
def test_what_is_held_stays_held_once(language: Language, daemon: DaemonProcess, start: Start) -> None:
    driver, name = started(language, daemon.socket, start)
    driver.patiently("sub", "own/a/>")
    driver.patiently("sub", "own/b")
    with stopped(daemon):
        assert driver.error("sub", "own/b") == "timeout"
        assert driver.error("sub", "own/a/x") == "timeout"
        assert driver.error("sub", "own/>") == "timeout"
    for channel in ("own/a/x", "own/b", "own/c"):
        publish(daemon, channel, b"1")
    assert messages(driver) == [("own/a/x", b"1"), ("own/b", b"1")]
    assert held(daemon, name) == 2
    unsubscribe(driver, "own/b")
    assert driver.error("unsub", "own/b") == "invalid"
    for channel in ("own/a/x", "own/b"):
        publish(daemon, channel, b"2")
    assert messages(driver) == [("own/a/x", b"2")]
    assert held(daemon, name) == 1


@each_language
def test_a_refused_subscribe_leaves_nothing(language: Language, daemon: DaemonProcess, start: Start) -> None:
    driver, _ = started(language, daemon.socket, start)
    with stopped(daemon):
        assert driver.error("sub", "secret") == "timeout"
    driver.patiently("sub", "own/x")  # what the daemon has against the other belongs to nobody
    driver("timeout", str(LATEST))
    assert driver.error("unsub", "secret") == "invalid"
    name = driver.open(daemon.socket)
    assert driver.error("sub", "secret") == "refused"
    assert driver.error("unsub", "secret") == "invalid"
    publish(daemon, "secret", b"1")
    assert messages(driver) == []
    assert held(daemon, name) == 0


@each_language
def test_a_new_daemon_gets_no_failed_subscribe(
    language: Language, daemon: DaemonProcess, start: Start
) -> None:
    driver, name = started(language, daemon.socket, start)
    driver.patiently("sub", "own/a")
    driver.patiently("sub", "own/b")
    with stopped(daemon):
        assert driver.error("sub", "own/b") == "timeout"
        assert driver.error("sub", "own/c") == "timeout"
        daemon.kill()
    daemon.start()
    driver.await_reconnection()
    for channel in ("own/a", "own/b", "own/c"):
        publish(daemon, channel, b"1")
    assert messages(driver) == [("own/a", b"1"), ("own/b", b"1")]
    assert held(daemon, name) == 2
    assert driver.error("unsub", "own/c") == "invalid"
    daemon.terminate()
    assert driver.error("sub", "own/c") == "unavailable"
    daemon.start()
    driver.await_reconnection()
    assert messages(driver) == []
    assert held(daemon, name) == 2


@each_language
def test_a_subscribe_waits_for_a_new_daemon(language: Language, daemon: DaemonProcess, start: Start) -> None:
    driver, name = started(language, daemon.socket, start, LATEST)
    with stopped(daemon):
        driver.ask("sub", "own/a")
        wait_until(lambda: driver.waits, "a driver that waits for the daemon")
        daemon.kill()
    daemon.start()
    assert driver.ok() == []
    driver.await_reconnection()
    publish(daemon, "own/a", b"1")
    assert messages(driver) == [("own/a", b"1")]
    assert held(daemon, name) == 1
    driver("unsub", "own/a")
    assert driver.error("unsub", "own/a") == "invalid"
    assert held(daemon, name) == 0


@each_language
def test_a_subscribe_that_a_new_daemon_refuses_fails(
    language: Language, daemon: DaemonProcess, tmp_path: Path, start: Start
) -> None:
    driver, name = started(language, daemon.socket, start, LATEST)
    with stopped(daemon):
        driver.ask("sub", "own/a")
        wait_until(lambda: driver.waits, "a driver that waits for the daemon")
        daemon.kill()
    grant(tmp_path, '"last/>"')
    daemon.start()
    assert driver.answer()[:2] == ["error", "refused"]
    driver.await_reconnection()
    assert driver.error("unsub", "own/a") == "invalid"
    assert messages(driver) == []
    assert held(daemon, name) == 0


@each_language
def test_a_sub_without_room_never_leaves(language: Language, daemon: DaemonProcess, start: Start) -> None:
    driver, name = started(language, daemon.socket, start)
    with stopped(daemon):
        assert driver.error("flood", "own/flood", *FLOOD) == "timeout"
        assert driver.error("sub", "own/a") == "timeout"
    publish(daemon, "own/a", b"1")
    assert messages(driver) == []
    assert held(daemon, name) == 0
    assert driver.error("unsub", "own/a") == "invalid"
    driver.patiently("sub", "own/a")
    publish(daemon, "own/a", b"2")
    assert messages(driver) == [("own/a", b"2")]


@each_language
def test_messages_for_a_failed_subscribe_reach_nobody(
    language: Language, tmp_path: Path, start: Start
) -> None:
    """Those from before it failed neither, nor those from between its SUB and its UNSUB."""
    unanswered: list[bytes] = []

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet in (b"SUB a", b"UNSUB a"):
            connection.send(b"MSG a\0it has no room for names")
        if packet == b"SUB a":
            unanswered.append(packet)
        elif packet == b"UNSUB a":
            for late in unanswered[1:]:
                connection.send(late.replace(b"ping", b"pong"))
            unanswered.clear()
        elif unanswered:
            unanswered.append(packet)
        else:
            return False
        return True

    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver, _ = started(language, daemon.path, start)
        try:
            driver.patiently("sub", "b")
            while b"SUB a" not in daemon.seen:  # on a busy machine the time may be over before
                assert driver.error("sub", "a") == "timeout"
                assert messages(driver) == []
        finally:
            driver("close")  # or the daemon would wait for it
    asked = [
        packet
        for packet in daemon.seen
        if packet in (b"SUB a", b"UNSUB a") or packet.startswith(b"CMSG ping")
    ]
    at = asked.index(b"SUB a")
    assert [packet[:5] for packet in asked[at : at + 4]] == [b"SUB a", b"CMSG ", b"UNSUB", b"CMSG "]
    assert asked.count(b"SUB a") == asked.count(b"UNSUB a") == 1


@pytest.mark.parametrize("room", [1, 2, 3])
@each_language
def test_an_unsub_without_room_goes_when_there_is_some(
    language: Language, room: int, tmp_path: Path, start: Start
) -> None:
    """The socket takes so many packets more: of the SUB and its ping, and of the UNSUB and its ping, or fewer."""
    may_read, flooded = threading.Semaphore(0), list[bytes]()

    def script(_: socket.socket, packet: bytes) -> bool:
        if flooded or packet.startswith(b"MSG "):
            flooded.append(packet)
            may_read.acquire()
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver, _ = started(language, daemon.path, start)
        driver.patiently("watch", "w")
        try:
            assert driver.error("flood", "flood", *FLOOD) == "timeout"
            wait_until(lambda: daemon.seen[-1].startswith(b"MSG "), "a daemon that has read of the flood")
            read = len(daemon.seen)
            may_read.release(room)
            wait_until(lambda: len(daemon.seen) == read + room, "room for some packets")
            assert driver.error("sub", "a") == "timeout"
            if room == 1:
                assert driver.error("unwatch", "w") == "timeout"
        finally:
            may_read.release(2 * FLOOD[0])
        try:
            assert messages(driver) == []
            driver.patiently("sub", "b")
        finally:
            driver("close")
    asked = [packet for packet in daemon.seen if packet in (b"SUB a", b"UNSUB a", b"SUB b")]
    assert asked in ([b"SUB a", b"UNSUB a", b"SUB b"], [b"SUB b"])
    assert daemon.seen.count(b"CMSG unwatch\0w") == (room == 1)


@each_language
def test_a_listen_given_up_leaves_nothing(language: Language, tmp_path: Path, start: Start) -> None:
    """The daemon then delivers what is for all, and the client drops it; what waits already, too."""
    sent: list[bytes] = []

    def deliver(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            connection.send(b"MSG !\0" + packet.partition(b"\0")[2])
        return False

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.rstrip(b"\0") == b"CMSG listen" and not sent:
            sent.append(packet)
            connection.send(b"MSG !\0early")
        return late(connection, packet)

    late = Reticent(b"MSG ", deliver)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver, _ = started(language, daemon.path, start)
        try:
            late.silence = b"CMSG listen"
            assert driver.error("listen", "first") == "timeout"
            driver.patiently("pub", "x", "late")
            assert messages(driver) == []
            driver.patiently("listen")
            driver.patiently("pub", "x", "now")
            assert messages(driver) == [("!", b"now")]
        finally:
            driver("close")  # or the daemon would wait for it


@each_language
def test_a_new_connection_that_listens_for_replies_only(
    language: Language, tmp_path: Path, start: Start
) -> None:
    """The first connection ends before it answers, and the second answers late: what is for all reaches nobody."""
    asked: list[bytes] = []

    def deliver(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            connection.send(b"MSG !\0for all")
        return False

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.rstrip(b"\0") == b"CMSG listen":
            asked.append(packet)
            late.silence = b"CMSG listen"
            if len(asked) == 1:
                late.forget()
                connection.shutdown(socket.SHUT_RDWR)
                return True
        return late(connection, packet)

    late = Reticent(b"MSG ", deliver)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver, _ = started(language, daemon.path, start, PATIENCE)
        try:
            while len(asked) < 2:
                assert driver.error("request", "a", "?", BRIEF) in ("timeout", "unavailable")
            driver("pub", "x", "")
            driver.await_reconnection()
            assert messages(driver) == []
        finally:
            late.forget()
            driver("close")
