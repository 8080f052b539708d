"""A watch is the same in every language (``clients/PROTOCOL.md``, "Watches")."""

import socket
import threading
from pathlib import Path

from tests.clients.conftest import Start
from tests.clients.drivers import LATEST, Driver, Language, each_language, unless_lacking
from tests.clients.scripted_daemon import Reticent, ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until

# Seconds that a call waits for the daemon, where the test wants it to wait in vain; every other call is repeated.
BRIEF = 0.3


def news(driver: Driver) -> list[bytes]:
    """The next event that is not about the connection."""
    while (event := driver("recv", LATEST))[0] in (b"disconnected", b"reconnected"):
        pass
    return event


@each_language
def test_each_change_of_a_watch_is_told(
    language: Language, shared_daemon: DaemonProcess, start: Start
) -> None:
    unless_lacking(language, "watch", "a", start)
    driver = start(language)
    driver.open(shared_daemon.socket)
    assert driver.error("watch", "!here") == "bad-pattern"
    driver("sub", "watched/x")  # which does not count
    driver("watch", "watched/>")
    assert news(driver) == [b"wanted", b"watched/>", b"no"]
    with PacketClient(shared_daemon.socket) as listener:
        listener.subscribe("watched/x")
        assert news(driver) == [b"wanted", b"watched/>", b"yes"]
        driver("watch", "watched/>")
        assert news(driver) == [b"wanted", b"watched/>", b"yes"]
        driver("unwatch", "watched/>")
        driver("unwatch", "watched/>")
    with PacketClient(shared_daemon.socket) as listener:
        listener.subscribe("other/x")
        driver("watch", "other/x")
        assert news(driver) == [b"wanted", b"other/x", b"yes"]


@each_language
def test_a_new_connection_watches_again(language: Language, tmp_path: Path, start: Start) -> None:
    """And only what differs is told; the daemon's words may grow."""
    states = [b"here"]

    def answer(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"MSG end\0":
            connection.shutdown(socket.SHUT_RDWR)
            return True
        if not packet.startswith(b"CMSG watch\0"):
            return False
        pattern = packet.partition(b"\0")[2]
        connection.send(packet)
        connection.send(b"CMSG wanted\0%b %b" % (states[-1], pattern))
        return True

    with ScriptedDaemon(tmp_path / "bus", answer) as daemon:
        driver = start(language)
        driver.open(daemon.path)
        driver("watch", "a")
        driver("watch", "gone")
        assert sorted([news(driver), news(driver)]) == [
            [b"wanted", b"a", b"yes"],
            [b"wanted", b"gone", b"yes"],
        ]
        driver("unwatch", "gone")
        for state in (b"beyond", b"no", b"elsewhere"):
            states.append(state)
            asked = daemon.seen.count(b"CMSG watch\0a")
            driver("pub", "end", "")

            def asked_again(asked: int = asked) -> bool:
                assert driver("recv", 0)[0] != b"wanted"
                return daemon.seen.count(b"CMSG watch\0a") > asked

            if state == b"beyond":
                wait_until(asked_again, "the next connection")
            else:
                assert news(driver) == [b"wanted", b"a", b"no" if state == b"no" else b"yes"]
        assert daemon.seen.count(b"CMSG watch\0gone") == 1
        driver("close")


def watch_in_vain(driver: Driver, daemon: ScriptedDaemon, pattern: str) -> None:
    """Until the daemon has been asked: on a busy machine the time may be over before."""
    watch = f"CMSG watch\0{pattern}".encode()

    def pings() -> int:
        return sum(packet.startswith(b"CMSG ping\0") for packet in daemon.seen)

    while watch not in daemon.seen:
        assert driver.error("watch", pattern) == "timeout"
        if watch not in daemon.seen:
            before = pings()
            while pings() == before:  # one follows whatever the call has sent
                driver.ask("barrier")
                driver.answer()


@each_language
def test_a_watch_given_up_is_taken_back(language: Language, tmp_path: Path, start: Start) -> None:
    """But not one that was there before. What the daemon says of it late reaches nobody, and a new connection does
    not hear of it."""
    asked: list[bytes] = []

    def tell(connection: socket.socket, packet: bytes) -> bool:
        if not packet.startswith(b"CMSG watch\0"):
            return False
        pattern = packet.partition(b"\0")[2]
        again = pattern in asked and pattern == b"given-up"
        asked.append(pattern)
        connection.send(packet)
        connection.send(b"CMSG wanted\0%b %b" % (b"no" if again else b"here", pattern))
        return True

    script = Reticent(b"CMSG unwatch\0given-up", tell)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver = start(language)
        driver("timeout", str(BRIEF))
        driver.patiently("open", str(daemon.path))
        driver.patiently("watch", "held")
        assert news(driver) == [b"wanted", b"held", b"yes"]
        taken_back = daemon.seen.count(b"CMSG unwatch\0held")
        script.silence = b"CMSG watch\0"
        assert driver.error("watch", "held") == "timeout"
        watch_in_vain(driver, daemon, "given-up")
        wait_until(lambda: b"CMSG unwatch\0given-up" in daemon.seen, "the end of the watch")
        driver.patiently("watch", "given-up")
        assert news(driver) == [b"wanted", b"given-up", b"no"]
        assert daemon.seen.count(b"CMSG unwatch\0held") == taken_back
        script.silence = b"CMSG watch\0"
        watch_in_vain(driver, daemon, "lost")
        wait_until(lambda: b"CMSG unwatch\0lost" in daemon.seen, "the end of another watch")
        script.forget()
        seen = len(daemon.seen)
        daemon.hang_up()
        driver.await_reconnection()
        driver.patiently("barrier")
        watched = [packet for packet in daemon.seen[seen:] if b"watch\0" in packet]
        assert sorted(watched) == [b"CMSG watch\0given-up", b"CMSG watch\0held"]
        driver("close")


@each_language
def test_what_ends_during_a_greeting_has_ended(language: Language, tmp_path: Path, start: Start) -> None:
    """The greeting that waits for its answer has asked for it."""
    goes_on = threading.Event()
    goes_on.set()

    def wait(_: socket.socket, packet: bytes) -> bool:
        return packet.startswith(b"CMSG whoami") and not goes_on.wait(PATIENCE)

    with ScriptedDaemon(tmp_path / "bus", wait) as daemon:
        driver = start(language)
        driver("timeout", str(PATIENCE))
        driver.open(daemon.path)
        driver("watch", "a")
        driver("sub", "b")
        for ending, said in ((("unwatch", "a"), b"CMSG unwatch\0a"), (("unsub", "b"), b"UNSUB b")):
            seen = len(daemon.seen)

            def greets(seen: int = seen) -> bool:
                driver("recv", 0)
                return any(packet.startswith(b"CMSG whoami") for packet in daemon.seen[seen:])

            goes_on.clear()
            daemon.hang_up()
            wait_until(greets, "a greeting")
            driver.ask(*ending)
            wait_until(lambda: driver.waits, "what ends it")
            goes_on.set()
            driver.ok()
            driver("barrier")
            assert said in daemon.seen[seen:]
        driver("close")
