"""Every client does the same: each language alone, and each pair of languages, with a real daemon.

The tests speak to drivers in the script of ``clients/CONFORMANCE.md``. ``drivers.py`` lists the languages.
"""

import signal
from pathlib import Path

import pytest

from tests.clients.conftest import Start
from tests.clients.drivers import LANGUAGES, LATEST, PYTHON_DOOR, Language, each_language, unless_lacking
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PacketClient, crowd, wait_until

REFERENCE = LANGUAGES[0]
EVERY_BYTE = bytes(range(256))
QUEUE = 8  # packets
# Seconds that a request waits for a reply which does not come.
BRIEF = 0.3
# Messages: more than QUEUE packets, the socket and what a client reads ahead can hold.
FLOOD = 20_000

# C++ speaks by the library of C.
SPEAKERS = [each for each in LANGUAGES if each.name != "c++"]
PAIRS = [*((a, b) for a in SPEAKERS for b in SPEAKERS), (REFERENCE, PYTHON_DOOR), (PYTHON_DOOR, REFERENCE)]
each_pair = pytest.mark.parametrize(("sends", "receives"), PAIRS, ids=str)


@pytest.fixture
def bus(shared_daemon: DaemonProcess) -> Path:
    """The socket of a daemon that the tests share."""
    return shared_daemon.socket


# --- each language alone ---


@each_language
def test_a_client_receives_what_it_publishes(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    driver("sub", "own/x")
    for payload in (b"", b"hello", b"\0", b"\n", b"two words\r\n", b"%", EVERY_BYTE, b"x" * 1300):
        driver("pub", "own/x", payload)
        assert driver("recv", LATEST) == [b"msg", b"own/x", payload]
    driver("pub", "own/other", "not subscribed")
    driver("barrier")
    assert driver("recv", 0) == [b"timeout"]


@each_language
def test_64_kib_on_a_local_channel(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    driver("sub", "local/big")
    payload = EVERY_BYTE * 256
    driver("pub", "local/big", payload)
    assert driver("recv", LATEST) == [b"msg", b"local/big", payload]


@each_language
def test_unsubscribe_takes_back_one_subscription(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    driver("sub", "a/>")
    driver("sub", "a/x")
    driver("unsub", "a/>")
    driver("pub", "a/y", "1")
    driver("pub", "a/x", "2")
    driver("barrier")
    assert driver("recv", LATEST) == [b"msg", b"a/x", b"2"]
    driver("unsub", "a/x")
    driver("pub", "a/x", "3")
    driver("barrier")
    assert driver("recv", 0) == [b"timeout"]
    assert driver.error("unsub", "a/x") == "invalid"


@pytest.mark.parametrize(
    ("separator", "pattern", "heard"),
    [
        ("/", "w/*/c", ["w/b/c"]),
        ("/", "w/>", ["w/b", "w/b/c", "w/b.c"]),
        ("/", "w/b", ["w/b"]),
        ("/", "w/b*", ["w/b", "w/b.c"]),
        (".", "w/b.*", ["w/b.c"]),
    ],
)
@each_language
def test_patterns(
    language: Language, bus: Path, start: Start, separator: str, pattern: str, heard: list[str]
) -> None:
    driver = start(language)
    driver("separator", separator)
    driver.open(bus)
    driver("sub", pattern)
    for channel in ("w", "w/b", "w/b/c", "w/b.c"):
        driver("pub", channel, channel)
    assert driver.messages() == [(channel, channel.encode()) for channel in heard]


@each_language
def test_errors_have_their_codes(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    assert driver.error("open", "/nonexistent/bus.sock") == "unavailable"
    assert driver.error("pub", "a", "b") == "closed"
    driver.open(bus)
    assert driver.error("sub", "ab*c") == "bad-pattern"
    assert driver.error("sub", "two words") in ("invalid", "bad-pattern")
    assert driver.error("name", "no name") == "bad-name"
    assert driver.error("nonsense") == "usage"
    assert driver("recv", 0) == [b"timeout"]
    driver("close")
    driver("queue", "policy=nonsense")
    assert driver.error("open", str(bus)) == "bad-value"


@each_language
def test_a_busy_daemon_is_tried_again(language: Language, tmp_path: Path, start: Start) -> None:
    """It is there, but more programs connect than it has accepted: that is not "no daemon"."""
    path, driver = tmp_path / "bus", start(language)
    daemon = ScriptedDaemon(path, lambda *_: False, backlog=0)
    with crowd(path):
        driver.ask("open", str(path))
        wait_until(lambda: driver.waits, "a driver that waits for the daemon")
    with daemon:
        assert driver.ok() == [b"here/test/1"]
        driver("close")


@each_language
def test_the_next_barrier_fails_with_the_rejection(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    driver("sub", "ok/>")
    driver("pub", "demo/x", b"x" * 1500)
    driver("pub", "bad channel", "")
    driver("pub", "ok/x", "sound")
    assert driver.error("barrier") == "too-large"
    driver("barrier")
    assert driver("recv", LATEST) == [b"msg", b"ok/x", b"sound"]


@each_language
def test_a_barrier_follows_all_earlier_messages(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    driver.open(bus)
    driver("sub", "flood/one")
    driver("flood", "flood/one", 500)
    driver("barrier")
    assert driver("count", 500, 0) == [b"500", b"0", b"500"]  # all are here: nothing is waited for


@each_language
def test_asking_keeps_messages_in_order(language: Language, bus: Path, start: Start) -> None:
    driver = start(language)
    if "pack" not in language.lacks:
        driver("pack", "on")
    driver.open(bus)
    driver("sub", "order/>")
    driver("flood", "order/x", 20)
    assert driver("recv", LATEST) == [b"msg", b"order/x", b"1"]  # of a packed packet
    driver("barrier")
    driver("flood", "order/x", 20)
    driver("name", driver("whoami")[0] + b"/tag")
    assert driver.messages() == [("order/x", b"%d" % i) for i in [*range(2, 21), *range(1, 21)]]


@each_language
def test_names(language: Language, bus: Path, start: Start) -> None:
    driver, other = start(language), start(REFERENCE)
    name = driver.open(bus)
    host, _, pid = name.split("/")
    assert (host, int(pid) > 1, driver("whoami")) == ("here", True, [name.encode()])
    assert driver("name", f"{name}/tag") == [f"{name}/tag".encode()]
    other.open(bus)
    assert other.error("name", f"{name}/tag") == "name-taken"
    other("listen")
    other("name", "some/other")
    assert driver.error("name", "some/other") == "name-taken"
    assert driver("whoami") == [f"{name}/tag".encode()]


@each_language
def test_a_heartbeat(language: Language, bus: Path, start: Start) -> None:
    driver, other = start(language), start(REFERENCE)
    name = driver.open(bus)
    other.open(bus)
    other("sub", f"heartbeat/{name}")
    driver("heartbeat", 60, "doing fine")
    assert other("recv", LATEST) == [b"msg", f"heartbeat/{name}".encode(), b"doing fine"]
    driver("heartbeat", 0)
    driver("heartbeat", 60)
    assert [other("recv", LATEST)[1:] for _ in range(2)] == [
        [f"heartbeat/{name}".encode(), text] for text in (b"leaving", b"")
    ]


@pytest.mark.parametrize("pack", ["on", "off"])
@each_language
def test_a_slow_reader_learns_what_it_lost(language: Language, bus: Path, start: Start, pack: str) -> None:
    if pack == "on":
        unless_lacking(language, "pack", pack, start)
    driver, other = start(language), start(REFERENCE)
    driver("pack", pack)
    driver("queue", f"packets={QUEUE}", "policy=drop-newest")
    driver.open(bus)
    driver("sub", "fast/>")
    other("pack", "on")
    other.open(bus)
    total = FLOOD * 3 if pack == "on" else FLOOD  # packed more of them fit into the socket
    other("flood", "fast/x", total)
    other("barrier")
    driver("barrier")  # all that the daemon kept for it has come
    assert driver("recv", LATEST) == [b"msg", b"fast/x", b"1"]
    received, lost, last = map(int, driver("count", total, 0))
    # The gap follows the last message; one that reads ahead knows of every gap before it.
    assert last == received + 1 or (language.reads_ahead and last == received + 1 + lost)
    other("pub", "fast/x", "next")
    event = driver("recv", LATEST)
    if event[0] == b"lost":
        lost += int(event[1])
        event = driver("recv", LATEST)
    assert event == [b"msg", b"fast/x", b"next"]
    assert 0 < lost == total - received - 1
    other("pub", "fast/x", "after")
    assert driver("recv", LATEST) == [b"msg", b"fast/x", b"after"]


# --- the connection ---


@each_language
def test_clients_resubscribe_with_a_new_daemon(
    language: Language, daemon: DaemonProcess, start: Start
) -> None:
    driver, other = start(language), start(REFERENCE)
    driver("format", "full")
    name = driver.open(daemon.socket)
    driver("name", f"{name}/tag")
    driver("sub", "a/>")
    driver("sub", "b/>")
    driver("unsub", "b/>")
    driver("listen")
    daemon.terminate()
    daemon.start()
    driver.await_reconnection()
    assert driver("whoami") == [f"{name}/tag".encode()]
    sender = other.open(daemon.socket)
    other("pub", "b/x", "no more")
    other("pub", "a/x", "hello")
    other("pub-to", f"{name}/tag", "still me")
    assert driver("recv", LATEST)[:4] == [b"msg", b"a/x", b"hello", sender.encode()]
    assert driver("recv", LATEST)[1:3] == [f"!{name}/tag".encode(), b"still me"]


@each_language
def test_publishing_goes_on_with_a_new_daemon(
    language: Language, daemon: DaemonProcess, start: Start
) -> None:
    driver = start(language)
    driver.open(daemon.socket)
    driver("pub", "a", "before")
    driver("barrier")
    daemon.terminate()
    daemon.start()
    with PacketClient(daemon.socket) as listener:
        listener.subscribe("a")
        driver("pub", "a", "after")
        driver("barrier")
        assert listener.messages() == [("a", b"after")]


@each_language
def test_a_barrier_reports_what_a_lost_daemon_may_have_lost(
    language: Language, daemon: DaemonProcess, start: Start
) -> None:
    driver = start(language)
    driver.open(daemon.socket)
    daemon.process.send_signal(signal.SIGSTOP)
    driver("pub", "a", "perhaps")
    daemon.kill()
    daemon.start()
    assert driver.error("barrier") == "unconfirmed"
    driver("barrier")


@each_language
def test_messages_before_the_disconnection_are_received(
    language: Language, daemon: DaemonProcess, start: Start
) -> None:
    driver, other = start(language), start(REFERENCE)
    driver.open(daemon.socket)
    driver("sub", "a")
    driver("pub", "b", "")
    other.open(daemon.socket)
    other("pub", "a", "last words")
    other("barrier")
    daemon.process.send_signal(signal.SIGSTOP)
    driver("pub", "b", "never read: so the end is a connection reset")
    daemon.kill()
    daemon.start()
    assert driver("recv", LATEST) == [b"msg", b"a", b"last words"]
    driver.await_reconnection()


# --- fork ---


@each_language
def test_a_child_opens_a_client_of_its_own(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "fork", "A", start)
    driver, other = start(language), start(REFERENCE)
    driver("format", "full")
    name = driver.open(bus)
    driver("sub", "forked/>")
    pid, child = driver("fork", "A")
    assert child.decode() == f"{name.rpartition('/')[0]}/{pid.decode()}"
    driver("pub", "forked/x", "the child's")
    driver("barrier")
    assert driver("recv", 0) == [b"timeout"]  # it has not subscribed
    driver.ask("exit")
    assert driver.ok() == [b"0"]
    assert driver("recv", LATEST)[:4] == [b"msg", b"forked/x", b"the child's", child]
    other.open(bus)
    other("pub", "forked/x", "still there")
    assert driver("recv", LATEST)[:3] == [b"msg", b"forked/x", b"still there"]
    assert driver("whoami") == [name.encode()]


@each_language
def test_a_child_goes_on_with_its_parents_client(language: Language, bus: Path, start: Start) -> None:
    unless_lacking(language, "fork", "B", start)
    driver, other = start(language), start(REFERENCE)
    name = driver.open(bus)
    driver("sub", "forked/>")
    driver("listen")
    driver("pub", "forked/x", "the parent's")
    driver("barrier")  # received, but not taken
    pid, child = driver("fork", "B")
    assert child.decode() == f"{name}/{pid.decode()}"
    other.open(bus)
    other("pub", "forked/x", "for both")
    assert driver("recv", LATEST) == [b"msg", b"forked/x", b"for both"]
    other("pub-to", name, "for the parent")
    other("pub-to", f"{name}/{pid.decode()}", "for the child")
    other("pub-to", f"{name}/*", "for all below")
    other("barrier")
    assert driver.messages() == [
        (f"!{name}/{pid.decode()}", b"for the child"),
        (f"!{name}/*", b"for all below"),
    ]
    driver.ask("exit")
    assert driver.ok() == [b"0"]
    assert driver.messages() == [
        ("forked/x", b"the parent's"),
        ("forked/x", b"for both"),
        (f"!{name}", b"for the parent"),
        (f"!{name}/*", b"for all below"),
    ]
    assert driver("whoami") == [name.encode()]


# --- each pair ---


@each_pair
def test_messages_between_languages(sends: Language, receives: Language, bus: Path, start: Start) -> None:
    """Packed, if both can: those of the other pairs go one by one."""
    can_pack = not any("pack" in each.lacks for each in (sends, receives))
    sender, receiver = start(sends), start(receives)
    for each in (sender, receiver):
        each("pack", "on" if can_pack else "off")
    sender.open(bus)
    receiver.open(bus)
    receiver("sub", "pair/>")
    sender("pub", "pair/x", EVERY_BYTE)
    assert receiver("recv", LATEST) == [b"msg", b"pair/x", EVERY_BYTE]
    sender("flood", "pair/many", 2000)
    sender("barrier")
    assert receiver("count", 2000, LATEST) == [b"2000", b"0", b"2000"]
    assert receiver("recv", 0) == [b"timeout"]


@each_pair
def test_full_format_names_the_sender(sends: Language, receives: Language, bus: Path, start: Start) -> None:
    sender, receiver = start(sends), start(receives)
    receiver("format", "full")
    name = sender.open(bus)
    receiver.open(bus)
    receiver("sub", "pair/*")
    for payload in (b"|]:[", b""):
        sender("pub", "pair/x", payload)
    first, second = (receiver("recv", LATEST) for _ in range(2))
    for event, payload in ((first, b"|]:["), (second, b"")):
        assert event[:4] == [b"msg", b"pair/x", payload, name.encode()]
        assert event[5:] == [b"local", b"ok"]
    assert int(second[4]) == int(first[4]) + 1


@each_pair
def test_directed_messages_and_messages_to_all(
    sends: Language, receives: Language, bus: Path, start: Start
) -> None:
    sender, receiver = start(sends), start(receives)
    sender.open(bus)
    name = receiver.open(bus)
    sender("pub-all", "nobody listens yet")
    sender("barrier")
    receiver("listen")
    sender("pub-to", name, "you")
    sender("pub-to", name.rpartition("/")[0], "all of the program")
    sender("pub-to", "some/body/else", "not you")
    sender("pub-all", EVERY_BYTE)
    sender("barrier")
    assert receiver.messages() == [
        (f"!{name}", b"you"),
        (f"!{name.rpartition('/')[0]}", b"all of the program"),
        ("!", EVERY_BYTE),
    ]


@each_pair
def test_request_and_reply(sends: Language, receives: Language, bus: Path, start: Start) -> None:
    asker, server, second = start(sends), start(receives), start(REFERENCE)
    asker.open(bus)
    for each in (server, second):
        each("format", "full")
        each.open(bus)
        each("sub", "ask/both")
    server("sub", "ask/one")
    server.ask("serve", 2, LATEST)
    for question in (b"first line\nsecond", EVERY_BYTE):
        assert asker("request", "ask/one", question, LATEST) == [b"re:" + question]
    assert server.ok() == [b"2"]
    server.ask("serve", 1, LATEST)
    second.ask("serve", 1, LATEST)
    assert asker("request", "ask/both", "", LATEST, 2) == [b"re:", b"re:"]
    assert [server.ok(), second.ok()] == [[b"1"], [b"1"]]
    assert asker("recv", 0) == [b"timeout"]


@each_language
def test_a_request_where_nobody_listens(language: Language, bus: Path, start: Start) -> None:
    driver, other = start(language), start(REFERENCE)
    driver.open(bus)
    assert driver.error("request", "local/nobody", "?", LATEST) == "nobody"  # which does not leave the host
    assert driver.error("request", "nobody/here", "?", LATEST) == "nobody"
    assert driver.error("request", "nobody/here", b"x" * 1500, LATEST) == "too-large"
    other.open(bus)
    other("sub", "ask/silent")
    assert driver.error("request", "ask/silent", "?", BRIEF) == "timeout"
    driver("barrier")


@each_language
def test_an_asker_keeps_its_other_messages(language: Language, bus: Path, start: Start) -> None:
    driver, server = start(language), start(REFERENCE)
    name = driver.open(bus)
    server("format", "full")
    server.open(bus)
    server("sub", "ask/late")
    with PacketClient(bus) as witness:
        witness.subscribe("ask/late")

        def ask_in_vain(question: str) -> int:
            """How many requests have been published: on a busy machine the first time may be over before."""
            came = 0
            while not came:
                assert driver.error("request", "ask/late", question, BRIEF) == "timeout"
                driver("barrier")
                came = len(witness.messages())
            return came

        late = ask_in_vain("first")
        server("pub-to", name, "it listens for answers only")
        assert server("serve", late, LATEST) == [b"%d" % late]  # too late: nobody waits for it any more
        server("barrier")
        assert driver.messages() == []
        driver("sub", "other/>")
        driver("pub", "other/x", "before")
        late = ask_in_vain("second")
    driver.ask("request", "ask/late", "third", LATEST)
    server.ask("serve", late + 1, LATEST)
    assert driver.ok() == [b"re:third"]
    assert server.ok() == [b"%d" % (late + 1)]
    server("pub", "other/x", "after")
    server("pub-to", name, "who subscribes listens")
    server("barrier")
    assert driver.messages() == [
        ("other/x", b"before"),
        ("other/x", b"after"),
        (f"!{name}", b"who subscribes listens"),
    ]
