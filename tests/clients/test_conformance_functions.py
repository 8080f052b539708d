"""The functions of a client are the same in every language (``clients/PROTOCOL.md``, "The functions of a client")."""

import json
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import bccn
from tests.clients.conftest import Start
from tests.clients.drivers import (
    LANGUAGES,
    LATEST,
    Driver,
    Language,
    each_language,
    unless_lacking,
)
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram

REFERENCE = LANGUAGES[0]
# Seconds: longer than the test waits for an answer of the driver.
FOREVER = 3600
# What is asked of this program they receive and reply to: a subscription is ended by its pattern, and "!" is none.
SERVE_PATTERNS = ("c", "c++", "perl", "shell")
# Messages: more than the queue, the socket and what a client reads ahead can hold.
FLOOD = 20_000


@pytest.fixture
def bus(shared_daemon: DaemonProcess) -> Path:
    """The socket of a daemon that the tests share."""
    return shared_daemon.socket


def json_of(driver: Driver, command: str) -> object:
    return json.loads(driver(command)[0])


@each_language
def test_the_library_knows_its_version(language: Language, start: Start) -> None:
    assert start(language)("version") == [bccn.__version__.encode()]


@each_language
def test_a_callback_and_the_stream_get_a_message_once(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    driver("callback", "both/*")
    driver("callback", "both/>")
    driver("sub", "both/x")
    driver("sub", "both/*")
    for channel in ("both/x", "both/x/y"):
        driver("pub", channel, "1")
    driver("barrier")
    events = [driver("recv", LATEST) for _ in range(4)]
    assert sorted(events) == [
        [b"call", b"both/x", b"1"],
        [b"call", b"both/x", b"1"],
        [b"call", b"both/x/y", b"1"],
        [b"msg", b"both/x", b"1"],
    ]
    assert driver("recv", 0) == [b"timeout"]


@each_language
def test_to_unsubscribe_ends_the_last_of_a_pattern(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    driver("sub", "twice/x")
    driver("callback", "twice/x")
    driver("unsub", "twice/x")
    driver("pub", "twice/x", "1")
    driver("barrier")
    assert driver("recv", LATEST) == [b"msg", b"twice/x", b"1"]
    assert driver("recv", 0) == [b"timeout"]
    driver("unsub", "twice/x")
    driver("pub", "twice/x", "2")
    driver("barrier")
    assert driver("recv", 0) == [b"timeout"]


@each_language
def test_a_subscription_is_a_stream_once_it_is_read(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "stream", "own/x", start)
    driver = start(language)
    driver.open(bus)
    driver("stream", "own/>")
    driver("sub", "own/x")
    for payload in ("1", "2"):
        driver("pub", "own/x", payload)
    driver("pub", "own/y", "3")
    driver("barrier")
    # Until now all of it waits in the stream of the client.
    assert driver("recv", LATEST) == [b"msg", b"own/x", b"1"]
    # The rest moves over; the other subscription keeps its copy.
    assert driver("take", "own/>", LATEST) == [b"msg", b"own/x", b"2"]
    assert driver("take", "own/>", LATEST) == [b"msg", b"own/y", b"3"]
    assert driver("take", "own/>", 0) == [b"timeout"]
    assert driver("recv", LATEST) == [b"msg", b"own/x", b"2"]
    assert driver("recv", 0) == [b"timeout"]
    driver("pub", "own/y", "4")
    driver("barrier")
    assert driver("recv", 0) == [b"timeout"]
    assert driver("take", "own/>", LATEST) == [b"msg", b"own/y", b"4"]
    driver("unsub", "own/>")
    driver("pub", "own/y", "5")
    driver("barrier")
    assert driver("recv", 0) == [b"timeout"]


@each_language
def test_echo_off_keeps_own_messages_away(language: Language, bus: Path, start: Start) -> None:
    driver, other = start(language), start(REFERENCE)
    driver("echo", "off")
    driver.open(bus)
    other.open(bus)
    driver("sub", "echo/x")
    driver("pub", "echo/x", "own")
    driver("barrier")
    other("pub", "echo/x", "another's")
    assert driver("recv", LATEST) == [b"msg", b"echo/x", b"another's"]
    assert driver("recv", 0) == [b"timeout"]


@each_language
def test_without_reconnect_calls_fail_at_once(
    language: Language, daemon: DaemonProcess, start: Start
) -> None:
    driver = start(language)
    driver("reconnect", "off")
    driver("timeout", LATEST)
    driver.open(daemon.socket)
    driver("sub", "a")
    daemon.terminate()
    daemon.start()
    assert driver.error("barrier") == "unavailable"
    assert driver.error("pub", "a", "x") == "unavailable"
    assert driver.error("sub", "b") == "unavailable"


@each_language
def test_what_a_call_could_not_hand_over_is_never_sent(
    language: Language, daemon: DaemonProcess, start: Start
) -> None:
    driver = start(language)
    driver("timeout", "0.2")
    driver.patiently("open", str(daemon.socket))
    daemon.terminate()
    for command in (("pub", "a", "x"), ("barrier",), ("heartbeat", 1), ("flood", "a", 3)):
        assert driver.error(*command) == "unavailable"
    daemon.start()
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("a")
        driver.await_reconnection()
        driver.patiently("barrier")  # of what was refused at once nobody doubts where it is
        driver.patiently("pub", "a", "end")
        driver.patiently("barrier")
        assert listener.messages() == [("a", b"end")]


@each_language
def test_a_new_daemon_learns_all_that_is_wanted(language: Language, tmp_path: Path, start: Start) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            connection.shutdown(socket.SHUT_RDWR)
        return False

    wanted = [
        ("format", "full"),
        ("separator", "."),
        ("queue", "packets=8", "policy=drop-newest"),
        *(option for option in (("pack", "on"), ("tap", "on")) if option[0] not in language.lacks),
    ]
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver = start(language)
        for option in (*wanted, ("echo", "off")):
            driver(*option)
        driver.open(daemon.path)
        try:
            driver("name", "desk/x/1")
            driver("heartbeat", 60, "fine")
            assert driver("control", "some/key", "once") == [b"once"]  # which nobody repeats
            driver("listen")
            for pattern in ("a", "b", "a", "c"):
                driver("sub", pattern)
            driver("unsub", "b")
            driver("pub", "x", "the end of this connection")
            driver.await_reconnection()
        finally:
            driver("close")  # or the daemon would wait for it
    at = next(index for index, packet in enumerate(daemon.seen) if packet.startswith(b"MSG "))
    greeting = [packet.rstrip(b"\0") for packet in daemon.seen[at + 1 :]]
    # A door says whom it speaks for.
    greeting = [packet for packet in greeting if not packet.startswith((b"CMSG ping", b"CMSG peer"))]
    options = [f"CMSG {name}\0{' '.join(values)}".encode() for name, *values in wanted]
    others = ["echo/off", "heartbeat\x0060 fine", "listen", "name\0desk/x/1", "whoami"]
    controls = [f"CMSG {key}".encode() for key in others]
    assert sorted(greeting) == sorted([*options, *controls, b"SUB a", b"SUB a", b"SUB c"])


@each_language
def test_status_clients_and_sources_are_json(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "status", "", start)
    driver, other = start(language), start(REFERENCE)
    names = {driver.open(bus), other.open(bus)}
    status, clients, sources = (json_of(driver, command) for command in ("status", "clients", "sources"))
    assert isinstance(status, dict)
    assert status["version"]
    assert isinstance(clients, list)
    assert names <= {row["name"] for row in clients}
    assert isinstance(sources, list)


@each_language
def test_all_pages_of_clients_come_as_one_array(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "clients", "", start)
    driver = start(language)
    driver.open(bus)
    crowd = [PacketClient(bus) for _ in range(300)]
    try:
        crowd[-1].drain()
        pages = json_of(driver, "clients")
    finally:
        for each in crowd:
            each.close()
    assert isinstance(pages, list)
    numbers = [row["id"] for row in pages if "id" in row] or [row["name"] for row in pages]
    assert len(numbers) == len(set(numbers)) > 300


@each_language
def test_a_datagram_from_elsewhere_is_passed_on(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "datagram", "x", start)
    driver, other = start(language), start(REFERENCE)
    driver.open(bus)
    other("format", "full")
    other.open(bus)
    other("sub", "far/x")
    source = f"far/{language}/1"  # of its own: the daemon drops what it knows
    driver("datagram", datagram(source, 77, "far/x", b"from far"))
    driver("barrier")
    assert other("recv", LATEST)[:5] == [b"msg", b"far/x", b"from far", source.encode(), b"77"]


@each_language
def test_a_tap_gets_what_nobody_subscribed_to(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "tap", "on", start)
    driver = start(language)
    for option in (("tap", "on"), ("format", "full")):
        driver(*option)
    name = driver.open(bus)
    driver("pub", "tapped/x", "1")
    while (event := driver("recv", LATEST))[1:4] != [b"tapped/x", b"1", name.encode()]:
        assert event[0] in (b"msg", b"lost"), event


@pytest.mark.parametrize(
    "packet",
    [b"PACK \0\0\1\0", b"nonsense", b"MSG a", b"RECV local\0", b"RECV local 1x ok\0BCCN1[3]a:1:b|"],
    ids=["pack", "word", "msg", "recv", "time"],
)
@each_language
def test_an_unreadable_packet_ends_the_connection(
    language: Language, packet: bytes, tmp_path: Path, start: Start
) -> None:
    """Nothing behind it is received. The call that met it fails, or is repeated on the next connection."""
    said = list[bytes]()

    def script(connection: socket.socket, said_now: bytes) -> bool:
        if said_now == b"SUB a" and not said:
            said.append(said_now)
            with suppress(ConnectionError):  # the client has left
                connection.send(packet)
                connection.send(b"MSG a\0behind it")
        return False

    driver = start(language)
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        driver.open(scripted.path)
        try:
            driver("pub", "b", "x")
            driver.ask("sub", "a")
            answer = driver.answer()
            assert answer[:2] in (["ok"], ["error", "protocol"])
            if answer[0] == "error":
                driver("sub", "a")
            assert driver.error("barrier") == "unconfirmed"
            driver("barrier")
            while (event := driver("recv", 0)) != [b"timeout"]:
                assert event in ([b"disconnected"], [b"reconnected"])
        finally:
            driver("close")
    assert scripted.seen.count(b"SUB a") == 2
    assert len([each for each in scripted.seen if each.startswith(b"CMSG whoami")]) > 1


@each_language
def test_a_receive_does_not_wait_for_a_connection(language: Language, tmp_path: Path, start: Start) -> None:
    """It ends in time while the daemon does not answer a new connection, which goes on in the next call."""
    ended, may_answer = threading.Event(), threading.Event()

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet == b"MSG end\0":
            connection.shutdown(socket.SHUT_RDWR)
            ended.set()
        elif ended.is_set():
            may_answer.wait()
        return False

    driver = start(language)
    driver("timeout", FOREVER)
    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        driver.open(scripted.path)
        driver("sub", "a")
        greeted = len(scripted.seen)
        driver("pub", "end", "")
        try:
            while len(scripted.seen) < greeted + 2:  # the daemon holds what the next connection says
                assert driver("recv", "0.05") in ([b"disconnected"], [b"timeout"])
            assert driver("recv", "0.05") in ([b"disconnected"], [b"timeout"])
            assert driver("recv", 0) == [b"timeout"]
            may_answer.set()
            assert driver.error("barrier") == "unconfirmed"
        finally:
            may_answer.set()
            driver("close")
    assert scripted.seen.count(b"SUB a") == 2


@each_language
def test_a_tap_that_asks_gets_what_is_directed(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "tap", "on", start)
    driver, other = start(language), start(REFERENCE)
    for option in (("tap", "on"), ("format", "full")):
        driver(*option)
    name = driver.open(bus)
    other.open(bus)
    assert driver.error("request", "local/tapped", "?", LATEST) == "nobody"
    other("pub-to", name, "you")
    other("pub-to", "some/body/else", "another")
    other("pub-all", "all")
    other("barrier")
    driver("barrier")
    came = []
    while (event := driver("recv", 0)) != [b"timeout"]:
        came += event[1:2] if event[-1] == b"ok" else []  # its own host's come back from the segment, too
    channels = [f"!{name}".encode(), b"!some/body/else", b"!"]
    assert [channel for channel in came if channel in channels] == channels


@each_language
def test_no_callback_gets_what_a_tap_shows_as_rejected(
    language: Language, tmp_path: Path, start: Start
) -> None:
    unless_lacking(language, "tap", "on", start)

    def script(connection: socket.socket, packet: bytes) -> bool:
        if packet.startswith(b"MSG "):
            for verdict in (b"duplicate", b"ok", b"repaired", b"hmac"):
                connection.send(b"RECV local 1 %b\0BCCN1[5]x:1:a|" % verdict)
        return False

    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver = start(language)
        for option in (("tap", "on"), ("format", "full")):
            driver(*option)
        driver.open(daemon.path)
        try:
            driver("callback", "a")
            driver("pub", "b", "x")
            events = [driver("recv", LATEST) for _ in range(4)]
        finally:
            driver("close")  # or the daemon would wait for it
    assert sorted((event[0], event[-1]) for event in events) == [
        (b"call", b"ok"),
        (b"call", b"repaired"),
        (b"msg", b"duplicate"),
        (b"msg", b"hmac"),
    ]


@each_language
def test_serve_replies_what_the_handler_returns(language: Language, bus: Path, start: Start) -> None:
    driver, asker = start(language), start(REFERENCE)
    driver("format", "full")
    driver.open(bus)
    asker.open(bus)
    driver.ask("serve", 2, LATEST, "served/x")
    with PacketClient(bus) as other:
        wait_until(lambda: other.request("listeners", "served/x") == "1", "the program serves")
        if language.name != "shell":  # its driver ends with the first that is no request
            for message in (b"", b"not a request", b"\nno token", b"t" * 129 + b"\nno token"):
                other.publish("served/x", message)
            other.drain()
    for question in (b"first", b""):
        assert asker("request", "served/x", question, LATEST) == [b"re:" + question]
    assert driver.ok() == [b"2"]


@each_language
def test_a_last_value_is_not_served_again(
    language: Language, tmp_path: Path, loopback_port: int, start: Start
) -> None:
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    with DaemonProcess(tmp_path, *flags, environ={"BCCND_RETAIN__PATTERNS": '["last/>"]'}) as daemon:
        driver, asker = start(language), start(REFERENCE)
        driver("format", "full")
        driver.open(daemon.socket)
        asker.open(daemon.socket)
        with PacketClient(daemon.socket) as other:
            other.publish("last/x", b"token\nold")
            other.drain()
            driver.ask("serve", 1, LATEST, "last/x")
            wait_until(lambda: other.request("listeners", "last/x") == "1", "the program serves")
        assert asker("request", "last/x", "new", LATEST) == [b"re:new"]
        assert driver.ok() == [b"1"]


@each_language
def test_requests_to_this_program_and_to_all_are_served(language: Language, bus: Path, start: Start) -> None:
    driver, asker = start(language), start(REFERENCE)
    driver("format", "full")
    name = driver.open(bus)
    asker.open(bus)
    if language.name in SERVE_PATTERNS:
        assert driver.error("serve", 1, 0, "!") == "bad-pattern"
        driver("listen")
        driver.ask("serve", 2, LATEST)
    else:
        driver.ask("serve", 2, LATEST, "!")
    with PacketClient(bus) as other:
        wait_until(lambda: other.request("listeners", f"!{name}") == "1", "the program serves")
    assert asker("request", f"!{name}", "me", LATEST) == [b"re:me"]
    assert b"re:all" in asker("request", "!", "all", LATEST)
    assert driver.ok() == [b"2"]


@each_language
def test_to_serve_without_full_is_invalid(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    assert driver.error("serve", 1, 0, "served/y") == "invalid"


@each_language
def test_many_replies_may_be_none(language: Language, bus: Path, start: Start) -> None:
    driver, silent = start(language), PacketClient(bus)
    driver.open(bus)
    silent.subscribe("many/silent")
    assert driver("request", "many/silent", "?", 0.3, 2) == []
    assert driver.error("request", "many/nobody", "?", LATEST, 2) == "nobody"
    silent.close()


@each_language
def test_replies_end_while_the_daemon_is_asked(language: Language, tmp_path: Path, start: Start) -> None:
    """A daemon that answers only when the time is over is no error: no reply has come."""
    seconds, held = 0.03, set[bytes]()
    answers = {b"CMSG listen": b"", b"CMSG listeners": b"0", b"CMSG listeners?": b"0 asked"}

    def script(connection: socket.socket, packet: bytes) -> bool:
        key = packet.partition(b"\0")[0] + (b"?" if packet.endswith(b"?") else b"")
        if key not in answers:
            return False
        if key not in held:
            held.add(key)
            time.sleep(2 * seconds)  # the client's time began before this packet was sent
        connection.send(b"%b\0%b" % (key.rstrip(b"?"), answers[key]))
        return True

    driver = start(language)
    driver("timeout", LATEST)
    with ScriptedDaemon(tmp_path / "bus", script) as daemon:
        driver.open(daemon.path)
        try:
            while len(held) < len(answers):  # the last question is asked when there is time left for it
                assert driver("request", "late/x", "?", seconds, 1) == []
                seconds *= 1.2
            held.remove(b"CMSG listeners")
            assert driver.error("request", "late/x", "?", 0.04) == "timeout"
        finally:
            driver("close")


@each_language
def test_the_number_of_lost_messages_is_kept(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver("queue", "packets=8", "policy=drop-newest")
    driver.open(bus)
    assert driver("lost") == [b"0"]
    driver("sub", "fast/x")
    received = lost = 0
    with PacketClient(bus) as other:
        # What was lost is reported before the next message that comes.
        for count in (FLOOD, 1):
            for _ in range(count):
                other.publish("fast/x")
            other.drain()
            driver("barrier")
            counted = driver("count", FLOOD, 0)
            received, lost = received + int(counted[0]), lost + int(counted[1])
    assert received + lost == FLOOD + 1
    assert driver("lost") == [str(lost).encode()]
