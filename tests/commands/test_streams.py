"""Reading the bus until a deadline, writing until all is written."""

import os
import threading
import time

import bccn
from bccnd.commands.streams import batches, write
from tests.command_line import publish
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE


def test_messages_come_until_the_deadline(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket) as bus:
        bus.subscribe("a")
        publish(daemon, ("a", b"one"), ("a", b"two"))
        incoming = batches(bus, time.monotonic() + 0.2)
        assert [message.payload for batch in incoming for message in batch] == [b"one", b"two"]


def test_messages_before_the_deadline_are_not_lost(daemon: DaemonProcess) -> None:
    with bccn.Client(daemon.socket) as bus:
        bus.subscribe("a")
        publish(daemon, ("a", b"one"))
        assert [message.payload for batch in batches(bus, 0.0) for message in batch] == [b"one"]


def test_a_non_blocking_pipe_gets_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = bytes(range(256)) * 1024
    writer = threading.Thread(target=write, args=(writing, data))
    writer.start()
    received = b""
    while len(received) < len(data):
        received += os.read(reading, 65536)
    writer.join(PATIENCE)
    assert received == data
    os.close(reading)
    os.close(writing)
