"""Reading the bus until a deadline."""

import errno
import select
import time

import pytest

import bccn
from bccnd.commands.streams import batches, reading
from tests.command_line import publish
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE


def test_messages_come_until_the_deadline(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket) as bus:
        bus.subscribe("a")
        publish(daemon, ("a", b"one"), ("a", b"two"))
        incoming = batches(bus, time.monotonic() + 2)
        assert [message.payload for batch in incoming for message in batch] == [b"one", b"two"]


def test_messages_before_the_deadline_are_not_lost(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket) as bus:
        bus.subscribe("a")
        publish(daemon, ("a", b"one"))
        assert select.select([bus], [], [], PATIENCE)[0]
        assert [message.payload for batch in batches(bus, 0.0) for message in batch] == [b"one"]


def test_errors_of_reading_name_the_file() -> None:
    with pytest.raises(IsADirectoryError) as error, reading("stdin"):
        raise OSError(errno.EISDIR, "Is a directory")
    assert (error.value.filename, error.value.strerror) == ("stdin", "Is a directory")
