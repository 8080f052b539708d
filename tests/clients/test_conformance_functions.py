"""The functions of a client are the same in every language (``clients/PROTOCOL.md``, "The functions of a client")."""

import json
from pathlib import Path

import pytest

import bccn
from tests.clients.conftest import Start
from tests.clients.drivers import LANGUAGES, LATEST, Driver, Language, each_language, unless_lacking
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import datagram

REFERENCE = LANGUAGES[0]
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


@each_language
def test_serve_replies_what_the_handler_returns(language: Language, bus: Path, start: Start) -> None:
    driver, asker = start(language), start(REFERENCE)
    driver("format", "full")
    driver.open(bus)
    asker.open(bus)
    driver.ask("serve", 2, LATEST, "served/x")
    with PacketClient(bus) as other:
        wait_until(lambda: other.request("listeners", "served/x") == "1", "the program serves")
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
