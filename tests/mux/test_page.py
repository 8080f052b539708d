"""The page in a browser, before a door and its daemon; and its modules that need no document, in Node."""

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bccn
from tests.clients.door import Door
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.mux.browser import Browser
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, free_port
from tests.request_server import serving

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "bccnd/mux/page"
# Where tests/run.sh puts the type checker, which is no part of the project.
CHECKER = ROOT / ".venv/typescript/node_modules"
TAB, ENTER, RIGHT, DOWN = "\ue004", "\ue007", "\ue014", "\ue015"
# What floods it, as the page promises: so many channels, and messages in one go and the pause behind it, in seconds.
FLOOD_CHANNELS, FLOOD_BATCH, FLOOD_PAUSE = 1000, 200, 0.02
# A user with few rights.
GUEST = 12_345
# Roles of whatever somebody can do something with, and of regions: each has a name.
NAMED = {"button", "textbox", "combobox", "link", "table", "treegrid", "region", "navigation"}
CHROMIUM = pytest.mark.needs("chromium", "chromedriver")


@pytest.mark.needs("node")
def test_its_pure_modules_do_what_they_say() -> None:
    """In one process, which takes a tenth of one for each file."""
    files = sorted((Path(__file__).parent / "page").glob("*.test.mjs"))
    ran = subprocess.run(
        ["node", "--test-reporter=tap", "--input-type=module"],
        input="".join(f"import {json.dumps(str(path))};" for path in files),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert re.search(r"^# fail 0$", ran.stdout, re.MULTILINE), ran.stdout
    assert int(re.findall(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)[0]) >= len(files) == 12


def test_its_types_are_right() -> None:
    """The client's are tested beside it; by way of the link its declarations are not found."""
    require(str(CHECKER / ".bin/tsc"))
    ran = subprocess.run(
        [CHECKER / ".bin/tsc", "--project", PAGE, "--typeRoots", CHECKER / "@types"],
        cwd=PAGE,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    faults = [line for line in ran.stdout.splitlines() if not line.startswith("client/")]
    assert (faults, ran.stderr) == ([], "")


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """GUEST may do little, and root all that it may without rights."""
    folder = tmp_path_factory.mktemp("daemon")
    config = folder / "bccnd.toml"
    config.write_text(
        '[[rights]]\nuid = 0\npublish = [">", "!", "!>"]\nsubscribe = [">", "!"]\nname = [">"]\n'
        "observe = true\nblock = true\nspeak_for = true\n"
        f'[[rights]]\nuid = {GUEST}\nsubscribe = ["local/>"]\n'
    )
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    with DaemonProcess(folder, "--config", str(config), *flags) as running:
        yield running


@pytest.fixture(scope="module")
def door(shared_daemon: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Its settings name no tokens: it makes one."""
    started = Door(tmp_path_factory.mktemp("page"), shared_daemon.socket, "--web", f"127.0.0.1:{free_port()}")
    started.config.write_text("[mux]\nweb_publish = true\n")
    with started:
        yield started


@pytest.fixture(scope="module")
def address(door: Door) -> str:
    """As the log of the door says it."""
    found = door.logged("serving")[-1]["web"]
    assert isinstance(found, str)
    return found


@pytest.fixture(scope="module")
def opening(door: Door, address: str) -> str:
    """The address with the token in the file that the log of the door names."""
    return f"{address}#token={Path(door.logged('serving')[-1]['token_file']).read_text().strip()}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture
def phone(browser: Browser) -> Iterator[Browser]:
    browser.resize(390, 844)
    yield browser
    browser.resize(1280, 900)
    browser.prefer("light")


def text(browser: Browser, id_: str) -> str:
    found = browser.run(f"return document.getElementById({id_!r})?.textContent ?? ''")
    assert isinstance(found, str)
    return found


def shows(browser: Browser, id_: str, what: str) -> None:
    wait_until(lambda: what in text(browser, id_), f"{what!r} at {id_}")


@CHROMIUM
def test_a_token_of_the_address_is_kept_and_not_shown(browser: Browser, address: str, opening: str) -> None:
    browser.go(opening)
    shows(browser, "state", "connected as ")
    assert browser.run("return location.href") == address
    browser.go(address)
    shows(browser, "state", "connected as ")
    browser.run("sessionStorage.clear()")
    browser.go(f"{address}#token=sixteen-letters-9")
    shows(browser, "refusal", "does not know this token")
    assert browser.run("return document.activeElement.id") == "token"
    browser.press(opening.rpartition("=")[2] + ENTER)
    shows(browser, "state", "connected as ")
    wait_until(lambda: browser.run("return document.activeElement.tagName") == "H1", "the way on by keys")


@CHROMIUM
def test_channels_and_messages_are_shown(
    browser: Browser, opening: str, shared_daemon: DaemonProcess
) -> None:
    browser.log()
    enter(browser, opening)
    with PacketClient(shared_daemon.socket) as other:
        publish_until(other, lambda: "local" in text(browser, "channels"))
        browser.run("document.querySelector('#channels tr').focus()")
        browser.press(RIGHT + DOWN + RIGHT + DOWN)
        shows(browser, "channels", "kitchen")
        assert "<b>21.5</b>" in text(browser, "channels")
        shows(browser, "tail", "local/page/kitchen")
        assert browser.run("return document.querySelectorAll('#tail b').length") == 0
        assert browser.run("return document.activeElement.getAttribute('aria-level')") == "3"
        other.publish("local/cellar")
        shows(browser, "channels", "cellar")
        assert "kitchen" in browser.run("return document.activeElement.textContent")
        shows(browser, "clients", "/page/")
        shows(browser, "sound-findings", "daemon: bccnd ")
    assert browser.log() == []


@CHROMIUM
def test_it_publishes_and_pauses(browser: Browser, opening: str, shared_daemon: DaemonProcess) -> None:
    browser.log()
    browser.go(opening)
    wait_until(lambda: browser.run("return !document.getElementById('publish').hidden"), "a box")
    with PacketClient(shared_daemon.socket) as other:
        other.subscribe("local/page/>")
        publish(browser, "local/page/cellar", "one")
        assert other.message() == ("local/page/cellar", b"one")
        shows(browser, "tail", "local/page/cellar one")
        browser.run("document.getElementById('pause').click()")
        publish(browser, "local/page/cellar", "two")
        assert other.message() == ("local/page/cellar", b"two")
        wait_until(lambda: "Paused; 0 " not in text(browser, "tail-note"), "what has passed")
        assert "two" not in text(browser, "tail")
        publish(browser, "no channel", "")
        shows(browser, "publish-note", "Not published on no channel: ")
        browser.run(
            "const box = document.getElementById('contains'); box.value = 'nowhere';"
            "box.dispatchEvent(new Event('input')); document.getElementById('pause').click()"
        )
        shows(browser, "tail-note", "No message that contains nowhere yet.")
        browser.run(
            "const box = document.getElementById('contains'); box.value = '';"
            "box.dispatchEvent(new Event('input'))"
        )
        shows(browser, "tail", "local/page/cellar one")
    assert browser.log() == []


@CHROMIUM
def test_a_token_that_may_do_little_is_told_so(
    browser: Browser, opening: str, door: Door, shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    """The door comes again, and makes another user of the same token."""
    browser.go(opening)
    wait_until(lambda: browser.run("return !document.getElementById('publish').hidden"), "a box")
    door.terminate()
    settings = door.config.read_text()
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(opening.rpartition("=")[2])
    guest = f'[[mux.tokens]]\nname = "guest"\nfile = "{token}"\nuser = {GUEST}\ngroups = [{GUEST}]\n'
    door.config.write_text(guest)
    door.start()
    try:
        wait_until(lambda: browser.run("return document.getElementById('publish').hidden"), "no box")
        enter(browser, opening)
        assert browser.run("return document.getElementById('publish-link').hidden")
        shows(browser, "channels-note", "no right to all channels")
        shows(browser, "pattern-fault", "no right to >")
        for note in ("doctor-note", "hosts-note"):
            shows(browser, note, "not have the right to see this")
        shows(browser, "clients", "here/guest/")
        follow(browser, "local/guest")
        with PacketClient(shared_daemon.socket) as other:
            publish_until(other, lambda: "local/guest" in text(browser, "tail"), "local/guest")
    finally:
        door.terminate()
        door.config.write_text(settings)
        door.start()
    browser.log()  # it tells of attempts to connect


@CHROMIUM
def test_uplinks_and_gateways_are_asked_when_somebody_wants_that(
    browser: Browser, opening: str, shared_daemon: DaemonProcess
) -> None:
    enter(browser, opening)
    uplink = json.dumps({"uplink": "here/bccnd-uplink/1", "segment": "east", "state": "up"})
    gateway: dict[str, object] = {"state": "up", "peers": 2}
    with (
        serving(shared_daemon, "bccnd/links", lambda _: uplink),
        serving(shared_daemon, "local/bccnd/facts", lambda _: json.dumps(gateway)) as name,
    ):
        gateway["gateway"] = name
        browser.run("document.getElementById('look').focus()")
        browser.press(ENTER)
        shows(browser, "links", "here/bccnd-uplink/1eastup")
        shows(browser, "links", f"{name}up")
        assert browser.run("return document.activeElement.id") == "look"


@CHROMIUM
def test_hosts_that_lose_open_to_their_sources(
    browser: Browser, opening: str, shared_daemon: DaemonProcess
) -> None:
    with PacketClient(shared_daemon.socket) as other, socket.socket(type=socket.SOCK_DGRAM) as plain:
        port = other.status()["segments"][0]["port"]
        other.subscribe("plant/>")
        for src, seq in [("press/plc/1", 1), ("press/plc/1", 4), ("mill/plc/2", 1)]:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            plain.sendto(datagram(src, seq, "plant/speed", b"7"), (LOOPBACK_BROADCAST, port))
            other.message()
    enter(browser, opening)
    wait_until(lambda: rows(browser, "hosts")[:1] == ["▸ press (1)"], "the host that lost")
    assert "▸ mill (1)" in rows(browser, "hosts")
    browser.run("document.querySelector('#hosts .fold').focus()")
    browser.press(" ")
    assert rows(browser, "hosts")[:2] == ["▾ press (1)", "press/plc/1"]
    was = text(browser, "hosts")
    wait_until(lambda: text(browser, "hosts") != was, "the next answer")
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    shows(browser, "findings", "press/plc/1")


@CHROMIUM
def test_a_wrong_pattern_is_explained_and_the_last_stays(
    browser: Browser, opening: str, shared_daemon: DaemonProcess
) -> None:
    browser.log()
    enter(browser, opening)
    with PacketClient(shared_daemon.socket) as other:
        follow(browser, "local/tail/>")
        publish_until(other, lambda: "local/tail/here" in text(browser, "tail"), "local/tail/here")
        follow(browser, "local/*x")
        shows(browser, "pattern-fault", "local/*x is no pattern: '*' must be followed")
        assert browser.run("return document.getElementById('pattern').getAttribute('aria-invalid')") == "true"
        publish_until(other, lambda: "local/tail/there" in text(browser, "tail"), "local/tail/there")
        assert "local/page" not in text(browser, "tail")
        follow(browser, ">")
        wait_until(lambda: not text(browser, "pattern-fault"), "no complaint")
    assert browser.log() == []


@CHROMIUM
def test_a_flood_does_not_freeze_it(browser: Browser, opening: str, shared_daemon: DaemonProcess) -> None:
    enter(browser, opening)
    follow(browser, "local/page/>")
    with flood(shared_daemon), PacketClient(shared_daemon.socket) as other:
        shows(browser, "sampling", "sampling")
        shows(browser, "rate", " of which it reads ")
        for path in ("local", "local/flood"):
            wait_until(lambda path=path: opened(browser, path), f"the row {path}")
        count = "return document.querySelectorAll('#channels tr').length"
        wait_until(lambda: browser.run(count) >= FLOOD_CHANNELS, "a row for each channel")
        # Rows have their figures when they come in sight.
        last = row_of(f"local/flood/c{FLOOD_CHANNELS - 1}")
        assert browser.run(f"return {last}.cells[2].textContent") == ""
        browser.run(f"{last}.scrollIntoView()")
        wait_until(lambda: browser.run(f"return {last}.cells[2].textContent"), "a value at the end")
        # The tail has a subscription of its own, and misses nothing of what it follows.
        for number in range(20):
            other.publish("local/page/kitchen", b"number-%d." % number)
        shows(browser, "tail", "number-19.")
        assert [each for each in range(20) if f"number-{each}." not in text(browser, "tail")] == []
        shows(browser, "sampling", "sampling")


@CHROMIUM
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_no_need_to_scroll_sideways(phone: Browser, opening: str, scheme: str) -> None:
    phone.prefer(scheme)
    enter(phone, opening)
    shows(phone, "clients", "/page/")
    assert phone.run("return document.documentElement.scrollWidth") <= 390
    wide = "return [...document.querySelectorAll('button, input, select, h2, p, a')].filter(each =>"
    assert phone.run(f"{wide} each.getBoundingClientRect().right > 390).map(each => each.id)") == []
    ground = phone.run("return getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", ground))) < 128) == (scheme == "dark")


@CHROMIUM
def test_all_is_reached_by_keys_and_has_a_name(
    browser: Browser, opening: str, shared_daemon: DaemonProcess
) -> None:
    enter(browser, opening)
    with PacketClient(shared_daemon.socket) as other:
        publish_until(other, lambda: "local" in text(browser, "channels"))
    shows(browser, "sound-findings", "daemon")
    wanted = browser.run(
        "return [...document.querySelectorAll('#views a, button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter(each => each.checkVisibility()).map((each, at) => (each.dataset.reached = '', each)).length"
    )
    assert wanted > 15
    missed = "return [...document.querySelectorAll('[data-reached=\"\"]')].map(each => each.outerHTML)"
    for _ in range(3 * wanted):  # rows come and go
        browser.press(TAB)
        browser.run("document.activeElement.dataset.reached = 'yes'")
        if not browser.run(missed):
            break
    assert browser.run(missed) == []
    named = browser.names()
    assert [role for role, name in named if role in NAMED and not name] == []
    assert {role for role, _ in named} >= NAMED


def enter(browser: Browser, opening: str) -> None:
    browser.go("about:blank")  # the same address would load nothing
    browser.go(opening)
    shows(browser, "state", "connected as ")


def rows(browser: Browser, id_: str) -> list[str]:
    """What the first cell of each says."""
    found = browser.run(
        f"return [...document.getElementById({id_!r}).rows].map(row => row.cells[0].textContent)"
    )
    assert isinstance(found, list)
    return found


def opened(browser: Browser, path: str) -> bool:
    """Whether the row of the tree is open by now; opens it if it is there."""
    open_it = f"const row = {row_of(path)}; if (row?.ariaExpanded === 'false') row.click();"
    return bool(browser.run(f"{open_it} return row?.ariaExpanded === 'true'"))


def row_of(path: str) -> str:
    """The row of a channel in the tree, as a script says it."""
    return f"document.querySelector('#channels tr[data-path=\"{path}\"]')"


def follow(browser: Browser, pattern: str) -> None:
    browser.run(
        f"const box = document.getElementById('pattern'); box.value = {pattern!r};"
        "box.dispatchEvent(new Event('change'));"
    )


@contextmanager
def flood(daemon: DaemonProcess) -> Iterator[None]:
    """Publishes on many channels, steadily, until the end, or as long as anybody waits for something."""
    end = time.monotonic() + 2 * PATIENCE
    is_over = threading.Event()

    def publish() -> None:
        with bccn.Client(str(daemon.socket), pack=True) as bus:
            number = 0
            while not is_over.wait(FLOOD_PAUSE) and time.monotonic() < end:
                with bus.batch():
                    for _ in range(FLOOD_BATCH):
                        bus.publish(f"local/flood/c{number % FLOOD_CHANNELS}", b"%d" % number)
                        number += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        yield
    finally:
        is_over.set()
        publisher.join(PATIENCE)
    assert not publisher.is_alive()


def publish(browser: Browser, channel: str, payload: str) -> None:
    browser.run(
        f"document.getElementById('publish-channel').value = {channel!r};"
        f"document.getElementById('publish-payload').value = {payload!r};"
        "document.getElementById('publishing').requestSubmit();"
    )


def publish_until(
    other: PacketClient, condition: Callable[[], Any], channel: str = "local/page/kitchen"
) -> None:
    def is_so() -> Any:
        other.publish(channel, json.dumps("<b>21.5</b>").encode())
        return condition()

    wait_until(is_so, "what was published")
