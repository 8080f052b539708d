"""Retained messages for late subscribers, with a real daemon, the Python client, bccn and a replacement."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccn as client_library
from tests.command_line import bccn
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.replaceable_daemon import ReplaceableDaemon

RETAIN = '[retain]\npatterns = ["state/>", "local/state/*"]\n'


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "bccnd.toml"
    file.write_text(RETAIN)
    return file


@pytest.fixture
def daemon(tmp_path: Path, settings: Path, loopback_port: int) -> Iterator[DaemonProcess]:
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with DaemonProcess(tmp_path, "--config", str(settings), *flags) as running:
        yield running


@pytest.fixture
def replaceable(tmp_path: Path, settings: Path, loopback_port: int) -> Iterator[ReplaceableDaemon]:
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with ReplaceableDaemon(tmp_path, "--config", str(settings), *flags) as running:
        yield running


def publish(daemon: DaemonProcess, **values: bytes) -> str:
    """Publishes on ``state/<key>``. The publisher's name."""
    with PacketClient(daemon.socket) as publisher:
        for key, value in values.items():
            publisher.publish(f"state/{key}", value)
        publisher.publish("other/x", b"not kept")
        publisher.drain()
        return publisher.request("whoami")


def late(daemon: DaemonProcess) -> list[tuple[str, bytes]]:
    with PacketClient(daemon.socket) as newcomer:
        newcomer.send(b"SUB >")
        return newcomer.messages()


def test_a_late_subscriber_gets_the_newest_at_once(daemon: DaemonProcess) -> None:
    publish(daemon, door=b"open", lamp=b"on")
    publish(daemon, door=b"closed")
    assert late(daemon) == [("state/door", b"closed"), ("state/lamp", b"on")]
    publish(daemon, lamp=b"")
    assert late(daemon) == [("state/door", b"closed")]


def test_client_and_command_mark_a_retained_message(daemon: DaemonProcess) -> None:
    name = publish(daemon, door=b"open")
    with client_library.Client(str(daemon.socket), format="full") as bus:
        bus.subscribe("state/*")
        old = bus.receive(timeout=PATIENCE)
        bus.publish("state/door", "closed")
        new = bus.receive(timeout=PATIENCE)
    assert old is not None
    assert new is not None
    assert (old.src, old.text, old.retained) == (name, "open", True)
    assert (new.text, new.retained) == ("closed", False)
    done = bccn(daemon, "sub", "-C", "1", "-F", "%c %p %r", "state/>")
    assert done.stdout == b"state/door closed 1\n"
    done = bccn(daemon, "sub", "-C", "1", "--json", "state/>")
    assert json.loads(done.stdout)["retained"] is True


def test_retained_messages_outlive_a_replacement_not_a_stop(replaceable: ReplaceableDaemon) -> None:
    publish(replaceable, door=b"open")
    before = replaceable.pid
    assert replaceable.replace() != before
    assert late(replaceable) == [("state/door", b"open")]
    assert replaceable.terminate() == 0
    assert not replaceable.socket.exists()
    replaceable.start()
    assert late(replaceable) == []


def test_a_reload_drops_what_is_no_longer_retained(daemon: DaemonProcess, settings: Path) -> None:
    publish(daemon, door=b"open", lamp=b"on")
    settings.write_text('[retain]\npatterns = ["state/lamp"]\n')
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: '"reloaded"' in daemon.log, "the reload")
    assert late(daemon) == [("state/lamp", b"on")]


def test_pages_wait_for_their_reader_over_a_replacement(replaceable: ReplaceableDaemon) -> None:
    """A short queue loses none of thousands; a value that is newer when its turn comes, comes once."""
    values = {f"{number:04}": bytes(800) for number in range(2500)}
    publish(replaceable, **values)
    with PacketClient(replaceable.socket) as reader, PacketClient(replaceable.socket) as publisher:
        reader.request("queue", "packets=400")
        reader.send(b"SUB state/>")
        wait_until(lambda: publisher.status()["queued"]["packets"] > 200, "half of the queue")
        publisher.publish("state/2499", b"new")
        publisher.drain()
        replaceable.replace()
        heard = reader.messages()
    assert [chan for chan, payload in heard if payload != b"new"] == [f"state/{key}" for key in values][:-1]
    assert [chan for chan, payload in heard if payload == b"new"] == ["state/2499"]
