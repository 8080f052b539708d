"""Every line of the daemon's log is one that no peer can cause, or limited: read from the source."""

import ast
import time
from collections.abc import Iterator
from pathlib import Path

from bccnd.daemon.log_events import LIMITED, NO_PEER
from bccnd.process.log_limit import OF_ONE_KIND, REPORT_SECONDS
from tests.daemon_process import DaemonProcess
from tests.packet_client import PacketClient

PACKAGE = Path(__file__).parent.parent.parent / "bccnd"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}

# What runs in the daemon's process.
SOURCES = [
    *[PACKAGE / name for name in ("report.py", "restart.py", "reload.py")],
    *[
        path
        for part in ("daemon", "net", "process", "relay", "wire")
        for path in (PACKAGE / part).rglob("*.py")
    ],
]


def events() -> Iterator[str]:
    """The first argument of every call of a logger; one that is no text stands for itself."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=attr), args=[event, *_]):
                    if attr in LEVELS:
                        yield event.value if isinstance(event, ast.Constant) else ast.unparse(event)


def test_every_event_is_in_one_of_the_two_tables() -> None:
    found = set(events())
    assert len(found) > 25
    assert found == NO_PEER | LIMITED
    assert not NO_PEER & LIMITED


def test_no_module_logs_but_by_the_logger_of_its_own() -> None:
    """Otherwise the test above would not see it."""
    for path in SOURCES:
        source = path.read_text()
        if "get_logger()" in source and path.name != "logs.py":
            assert source.count("get_logger()") == source.count("\nlog = structlog.get_logger()\n"), path


def test_a_client_that_breaks_its_packets_makes_a_short_log(daemon: DaemonProcess) -> None:
    rounds, begun = 300, time.monotonic()
    for _ in range(rounds):
        with PacketClient(daemon.socket) as client:
            client.request("pack", "on")
            client.send(b"PACK \xff\xff\xff\xff")
            while client.receive():
                pass
    assert daemon.terminate() == 0
    closed, more = daemon.logged("client closed"), daemon.logged("more like this")
    seconds = time.monotonic() - begun  # those that a slow machine takes give room again
    assert len(closed) <= OF_ONE_KIND.burst + seconds / OF_ONE_KIND.seconds + 1
    assert len(more) <= seconds / REPORT_SECONDS + 1
    assert {line["of"] for line in more} == {"client closed"}
    assert sum(line["more"] for line in more) + len(closed) == rounds
