"""The page in a browser, before a door and its daemon; and its modules that need no document, in Node."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.door import Door
from tests.daemon_process import DaemonProcess
from tests.mux.browser import Browser
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import free_port
from tests.request_server import serving

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "bccnd/mux/page"
# Where tests/run.sh puts the type checker, which is no part of the project.
CHECKER = ROOT / ".venv/typescript/node_modules"
TOKEN = "sixteen-letters-1"  # noqa: S105 - of this test alone
RIGHT, DOWN = "\ue014", "\ue015"
CHROMIUM = pytest.mark.needs("chromium", "chromedriver")


@pytest.mark.needs("node")
def test_its_pure_modules_do_what_they_say() -> None:
    files = [str(path) for path in sorted((Path(__file__).parent / "page").glob("*.test.mjs"))]
    ran = subprocess.run(
        ["node", "--test", "--test-reporter=tap", *files],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert re.search(r"^# fail 0$", ran.stdout, re.MULTILINE), ran.stdout
    assert int(re.findall(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)[0]) >= len(files) == 7


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
def address(shared_daemon: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    port = free_port()
    door = Door(folder, shared_daemon.socket, "--web", f"127.0.0.1:{port}")
    door.config.write_text(
        "[mux]\nweb_publish = true\n"
        f'[[mux.tokens]]\nname = "board"\nfile = "{tokens}"\nuser = 0\ngroups = [0]\n'
    )
    with door:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


def text(browser: Browser, id_: str) -> str:
    found = browser.run(f"return document.getElementById({id_!r})?.textContent ?? ''")
    assert isinstance(found, str)
    return found


def shows(browser: Browser, id_: str, what: str) -> None:
    wait_until(lambda: what in text(browser, id_), f"{what!r} at {id_}")


@CHROMIUM
def test_a_token_of_the_address_is_kept_and_not_shown(browser: Browser, address: str) -> None:
    browser.go(f"{address}#token={TOKEN}")
    shows(browser, "state", "connected as ")
    assert browser.run("return location.href") == address
    browser.go(address)
    shows(browser, "state", "connected as ")
    browser.run("sessionStorage.clear()")
    browser.go(f"{address}#token=sixteen-letters-9")
    shows(browser, "refusal", "refused")
    assert browser.run("return document.activeElement.id") == "token"


@CHROMIUM
def test_channels_and_messages_are_shown(
    browser: Browser, address: str, shared_daemon: DaemonProcess
) -> None:
    browser.log()
    browser.go(f"{address}#token={TOKEN}")
    shows(browser, "state", "connected as ")
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
        shows(browser, "clients", "/board/")
    assert browser.log() == []


@CHROMIUM
def test_it_publishes_and_pauses(browser: Browser, address: str, shared_daemon: DaemonProcess) -> None:
    browser.log()
    browser.go(f"{address}#token={TOKEN}")
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
        shows(browser, "publish-note", "channel")
    assert browser.log() == []


@CHROMIUM
def test_uplinks_are_asked_when_somebody_wants_that(
    browser: Browser, address: str, shared_daemon: DaemonProcess
) -> None:
    browser.go(f"{address}#token={TOKEN}")
    shows(browser, "state", "connected as ")
    uplink = json.dumps({"uplink": "here/bccnd-uplink/1", "segment": "east", "state": "up"})
    with serving(shared_daemon, "bccnd/links", lambda _: uplink):
        browser.run("document.getElementById('look').click()")
        shows(browser, "links", "here/bccnd-uplink/1eastup")


def publish(browser: Browser, channel: str, payload: str) -> None:
    browser.run(
        f"document.getElementById('publish-channel').value = {channel!r};"
        f"document.getElementById('publish-payload').value = {payload!r};"
        "document.getElementById('publishing').requestSubmit();"
    )


def publish_until(other: PacketClient, condition: Callable[[], Any]) -> None:
    def is_so() -> Any:
        other.publish("local/page/kitchen", json.dumps("<b>21.5</b>").encode())
        return condition()

    wait_until(is_so, "what was published")
