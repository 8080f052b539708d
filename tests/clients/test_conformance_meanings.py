"""Names, options, notices and states mean the same in every language (``clients/PROTOCOL.md``, "The functions of a
client"): the rows of its tables that the other files of the suite do not need for anything."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.conftest import Start
from tests.clients.drivers import LANGUAGES, LATEST, Driver, Language, each_language, unless_lacking
from tests.clients.scripted_daemon import Reticent, ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until

REFERENCE = LANGUAGES[0]
# Seconds that a call waits for the daemon, where the test wants it to wait in vain; every other call is repeated.
BRIEF = 0.5

# What a daemon has to say besides answers, and the notice that each is: kind, count and code.
SAYINGS = (
    (b"CMSG error\0refused MSG a: no right", [b"rejected", b"1", b"refused"]),
    (b"CMSG dropped\x003", [b"lost", b"3", b""]),
    (b"CMSG revoked\0SUB a", [b"revoked", b"1", b""]),
    (b"CMSG closing\0shutdown", [b"closing", b"0", b""]),
)


@pytest.fixture
def bus(shared_daemon: DaemonProcess) -> Path:
    """The socket of a daemon that the tests share."""
    return shared_daemon.socket


def notices(driver: Driver) -> list[list[bytes]]:
    """Kind, count and code of each since they were asked for last."""
    words = driver("notices")
    return [words[i : i + 3] for i in range(0, len(words), 3)]


@contextmanager
def talkative_daemon(path: Path) -> Iterator[ScriptedDaemon]:
    """It says all of SAYINGS when a message comes, and ends the connection."""

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            for saying, _ in SAYINGS:
                connection.send(saying)
            connection.shutdown(socket.SHUT_RDWR)
        return False

    with ScriptedDaemon(path, script) as daemon:
        yield daemon


@each_language
def test_functions_without_a_message(language: Language, bus: Path, start: Start) -> None:
    """matches; control; the name and the address that open is told."""
    driver = start(language)
    for pattern, channel, separator, matches in (
        ("a/*/c", "a/b/c", "/", b"yes"),
        ("a/*/c", "a/b", "/", b"no"),
        ("a/>", "a.b", "/", b"no"),
        ("a.>", "a.b", ".", b"yes"),
        (">", "!relay01", "/", b"no"),
    ):
        assert driver("matches", pattern, channel, separator) == [matches]
    name = f"here/conformance/{language.name.replace('+', 'p')}"
    driver("as", name)
    assert driver.open(bus) == name
    assert driver("control", "whoami") == [name.encode()]
    assert b"packets=7" in driver("control", "queue", "packets=7")[0].split()
    assert driver.error("control", "nonsense/key") == "unknown-key"
    assert driver.error("control", "no key") == "invalid"
    other = start(language)
    other("as", name)
    assert other.error("open", str(bus)) == "name-taken"


@each_language
def test_open_waits_for_a_daemon(
    language: Language, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the address of the environment, where it is told no other."""
    path = tmp_path / "bus"
    monkeypatch.setenv("BCCN_SOCKET", str(path))
    driver = start(language)
    assert driver.error("open") == "unavailable"
    driver("wait", LATEST)
    driver.ask("open")
    wait_until(lambda: driver.waits, "a driver that waits for the daemon")
    with ScriptedDaemon(path, lambda *_: False):
        assert driver.ok() == [b"here/test/1"]
        driver("close")


@each_language
def test_calls_without_a_timeout(language: Language, bus: Path, start: Start) -> None:
    """receive waits for ever, and request for the timeout of the client."""
    driver, other = start(language), start(REFERENCE)
    driver("timeout", BRIEF)
    driver.patiently("open", str(bus))
    other.open(bus)
    other("sub", "patience/silent")
    if "ask" not in language.lacks:
        assert driver.error("ask", "patience/silent", "?") == "timeout"
    driver.patiently("sub", "patience/x")
    driver.ask("await")
    while other("recv", 1.5 * BRIEF) != [b"timeout"]:
        pass  # the request; that took longer than the timeout of the client
    other("pub", "patience/x", "at last")
    assert driver.ok() == [b"msg", b"patience/x", b"at last"]
    unless_lacking(language, "ask", "a b", start)


@each_language
def test_a_handler_may_reply_later(language: Language, bus: Path, start: Start) -> None:
    driver, asker = start(language), start(REFERENCE)
    driver("format", "full")
    driver.open(bus)
    asker.open(bus)
    driver.ask("serve", 2, LATEST, "later/x", "later")
    with PacketClient(bus) as other:
        wait_until(lambda: other.request("listeners", "later/x") == "1", "the program serves")
    for question in (b"first\nsecond", b""):
        assert asker("request", "later/x", question, LATEST) == [b"re:" + question]
    assert driver.ok() == [b"2"]


@each_language
def test_another_listen_replaces_the_callback(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    name = driver.open(bus)
    adds = language.name == "go"  # as a callback is a goroutine there, it adds one
    for words, before in ((["first"], []), (["second"], ["first"]), ([], ["first", "second"])):
        driver("listen", *words)
        driver("pub-to", name, "you")
        driver("barrier")
        wanted = [*(before if adds else []), *(words or ["msg"])]
        events = [driver("recv", LATEST) for _ in wanted]
        assert sorted(events) == sorted([word.encode(), f"!{name}".encode(), b"you"] for word in wanted)
        assert driver("recv", 0) == [b"timeout"]


@each_language
def test_a_message_has_its_time_and_its_datagram(language: Language, tmp_path: Path, start: Start) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            interface = b" eth7" if "tap" not in language.lacks else b""
            connection.send(b"RECV local 1234567890123456789 ok%b\0BCCN1[5]x:1:a|" % interface)
        return False

    driver = start(language)
    driver("format", "full")
    if "tap" not in language.lacks:
        driver("tap", "interface")
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver.open(daemon.path)
        try:
            driver("sub", "a")
            driver("pub", "b", "x")
            assert driver("recv", LATEST) == [b"msg", b"a", b"", b"x", b"1", b"local", b"ok"]
            time_ns, text, *interface = driver("origin")
        finally:
            driver("close")  # or the daemon would wait for it
    # A clock of C++ may count in longer steps.
    assert (int(time_ns) // 1000, text) == (1234567890123456, b"BCCN1[5]x:1:a|")
    assert interface == ([] if "tap" in language.lacks else [b"eth7"])


@each_language
def test_a_select_loop_learns_what_comes(language: Language, tmp_path: Path, start: Start) -> None:
    """By one descriptor, over reconnections, too."""
    unless_lacking(language, "poll", "0", start)

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            connection.shutdown(socket.SHUT_RDWR)
        return False

    def polled(seconds: float) -> bytes:
        descriptor, readable = driver("poll", seconds)
        assert descriptor == first
        return readable

    def is_quiet() -> bool:
        assert driver("recv", 0) == [b"timeout"]
        return polled(0) == b"no"

    driver = start(language)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver.open(daemon.path)
        try:
            first = driver("poll", 0)[0]
            driver("sub", "a")
            for _ in range(2):
                wait_until(is_quiet, "a descriptor that is not readable")
                daemon.say(b"MSG a\0x")
                assert polled(LATEST) == b"yes"
                assert driver("recv", LATEST) == [b"msg", b"a", b"x"]
                driver("pub", "end", "")
                driver.await_reconnection()
        finally:
            driver("close")


@each_language
def test_dispatch_calls_back_and_drops_the_rest(language: Language, tmp_path: Path, start: Start) -> None:
    unless_lacking(language, "dispatch", "", start)

    def script(connection: socket.socket, packet: bytes) -> bool:
        for channel in (b"stream", b"callback") if packet.startswith(b"MSG ") else ():
            connection.send(b"MSG %b\0x" % channel)
        return False

    driver = start(language)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver.open(daemon.path)
        try:
            driver("sub", "stream")
            driver("callback", "callback")
            driver("pub", "a", "")
            driver("barrier")
            driver("dispatch")
            assert driver("recv", 0) == [b"call", b"callback", b"x"]
            kept = language.folder == "python"  # up to 1 MiB
            assert driver("recv", 0) == ([b"msg", b"stream", b"x"] if kept else [b"timeout"])
            assert notices(driver) == ([] if kept else [[b"unclaimed", b"1", b""]])
        finally:
            driver("close")


@each_language
def test_notices_have_a_kind_a_count_and_a_code(language: Language, tmp_path: Path, start: Start) -> None:
    driver = start(language)
    driver("timeout", LATEST)
    with talkative_daemon(tmp_path / "bus") as daemon:
        driver.open(daemon.path)
        try:
            driver("pub", "a", "")
            driver.await_reconnection()
            assert driver("recv", 0) == [b"timeout"]  # a loss may keep its place among the messages
            came = notices(driver)
            assert driver.error("barrier") == "refused"
        finally:
            driver("close")
    connection = [[b"disconnected", b"1", b""], [b"reconnected", b"0", b""]]
    assert [each for each in came if each in connection] == connection
    assert sorted(each for each in came if each not in connection) == sorted(notice for _, notice in SAYINGS)


@each_language
def test_notices_are_reported_by_default(language: Language, tmp_path: Path, start: Start) -> None:
    driver = start(language)
    driver("report", "on")
    driver.reports = True
    with talkative_daemon(tmp_path / "bus") as daemon:
        driver.open(daemon.path)
        try:
            driver("pub", "a", "")
            driver.error("barrier")
            assert driver("recv", 0) == [b"timeout"]
            texts = ("no right", "lost", "no longer allowed", "shutdown")
            wait_until(lambda: all(text in driver.log for text in texts), "reports of all notices")
        finally:
            driver("close")


@each_language
def test_what_was_revoked_is_asked_for_again(language: Language, tmp_path: Path, start: Start) -> None:
    """By the next connection, whose daemon may refuse it; what else is held stays in force."""

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            connection.send(b"CMSG revoked\0SUB a")
            connection.shutdown(socket.SHUT_RDWR)
            revoked.append(packet)
        elif packet == b"SUB a" and revoked:
            connection.send(b"CMSG error\0refused SUB a: no right")
        elif packet == b"UNSUB a":
            connection.send(b"CMSG error\0not-subscribed UNSUB a: the client holds no such pattern")
        return False

    revoked: list[bytes] = []
    driver = start(language)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver.open(daemon.path)
        try:
            driver("sub", "a")
            driver("sub", "b")
            driver("pub", "end", "")
            driver.await_reconnection()
            came = notices(driver)
            daemon.say(b"MSG b\0x")
            assert driver("recv", LATEST) == [b"msg", b"b", b"x"]
            driver.ask("unsub", "a")
            assert driver.answer()[:2] == (["ok"] if language.name == "go" else ["error", "not-subscribed"])
            assert driver.error("unsub", "a") == "invalid"
        finally:
            driver("close")
    assert [each for each in came if each[0] in (b"revoked", b"rejected")] == [
        [b"revoked", b"1", b""],
        [b"rejected", b"1", b"refused"],
    ]
    assert daemon.seen.count(b"SUB a") == daemon.seen.count(b"SUB b") == 2


@each_language
def test_a_request_ends_in_its_own_time(language: Language, tmp_path: Path, start: Start) -> None:
    """Whatever the daemon has not answered by then, and however long other calls wait for it."""

    def count(connection: socket.socket, packet: bytes) -> bool:
        key, _, value = packet.partition(b"\0")
        if key == b"MSG end":
            connection.send(b"MSG !\0it listens for replies only")
        if key == b"CMSG listeners":
            connection.send(key + (b"\x000 asked" if b" " in value else b"\x000"))
        return key == b"CMSG listeners"

    script = Reticent(b"MSG end\0", count)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver = start(language)
        driver("timeout", str(10 * PATIENCE))
        driver.open(daemon.path)
        try:
            for silence in (b"CMSG listen", b"CMSG ping", b"CMSG listeners\0a", b"CMSG listeners\0a "):
                script.silence = silence
                assert driver.error("request", "a", "?", "0.1") == "timeout"
                driver("pub", "end", "")
            script.silence = b"CMSG listeners\0a"
            assert driver("request", "a", "?", "0.1", 2) == []
            driver("pub", "end", "")
            assert driver.messages() == []
        finally:
            script.forget()
            driver("close")


@each_language
def test_a_request_in_vain_forgets_no_rejection(language: Language, tmp_path: Path, start: Start) -> None:
    def judge(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"MSG bad\0":
            connection.send(b"CMSG error\0too-large MSG bad: it does not fit")
        if packet.startswith(b"CMSG listeners\0"):
            connection.send(b"CMSG listeners\x000")
        return packet.startswith((b"MSG ", b"CMSG listeners\0"))

    script = Reticent(b"MSG end\0", judge)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver = start(language)
        driver("timeout", str(PATIENCE))
        driver.open(daemon.path)
        try:
            driver("pub", "bad", "")
            script.silence = b"CMSG listeners\0a"
            assert driver.error("request", "a", "?", "0.1") == "timeout"
            driver("pub", "end", "")
            assert driver.error("barrier") == "too-large"
            driver("barrier")
        finally:
            script.forget()
            driver("close")


@each_language
def test_a_full_daemon_has_a_word(language: Language, tmp_path: Path, start: Start) -> None:
    """It closes what it has no place for, and a door passes that on."""

    def close(connection: socket.socket, _: bytes) -> bool:
        connection.send(b"CMSG closing\0limit: at most 1 clients")
        connection.shutdown(socket.SHUT_RDWR)
        return True

    with ScriptedDaemon(tmp_path / "bus", close) as daemon:
        driver = start(language)
        # For so long the shell tries again.
        driver("timeout", str(PATIENCE if language.needs_door else BRIEF))
        assert driver.error("open", str(daemon.path)) == ("limit" if language.needs_door else "unavailable")
