"""Faults of ours while the daemon serves: what they cost, and whom."""

import itertools
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from bccnd.process.fatal import OUT_OF_MEMORY
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket
from tests.replaceable_daemon import ReplaceableDaemon

Start = Callable[..., ReplaceableDaemon]

# A datagram of more than 1000 bytes meets a fault, and so does a client with the separator ".".
BROKEN_SEGMENT = """
from bccnd.relay.segment_input import SegmentInput
before = SegmentInput.read
def read(self, starts, ends, *rest):
    if ends[0] - starts[0] > 1000:
        raise ZeroDivisionError("a fault of ours")
    before(self, starts, ends, *rest)
SegmentInput.read = read
"""
BROKEN_INPUT = """
from bccnd.relay.client_input import ClientInput
before = ClientInput.read
def read(self, session, *rest):
    if session.separator == b".":
        raise ZeroDivisionError("a fault of ours")
    return before(self, session, *rest)
ClientInput.read = read
"""


@pytest.fixture
def start(tmp_path: Path, loopback: list[str]) -> Start:
    return lambda code: ReplaceableDaemon(tmp_path, *loopback, begin_with=code)


def faults(daemon: ReplaceableDaemon) -> list[dict[str, object]]:
    return daemon.logged("fault")


def test_a_fault_while_a_client_is_read_closes_that_client(start: Start) -> None:
    with start(BROKEN_INPUT) as daemon, PacketClient(daemon.socket) as bystander:
        bystander.subscribe("a")
        for _ in range(30):
            with PacketClient(daemon.socket) as poisonous:
                poisonous.request("separator", ".")
                poisonous.send(b"CMSG ping")
                assert poisonous.receive() == b"CMSG closing\0fault"
        bystander.publish("a", b"x")
        assert bystander.message() == ("a", b"x")
        assert bystander.status()["clients"] == 1
        lines = faults(daemon)
        assert 0 < len(lines) < 10
        assert lines[0]["where"] == "a client"
        assert "ZeroDivisionError" in str(lines[0]["exception"])
        # Expected in the log here; the end of the test refuses tracebacks.
        daemon.log_file.write_text("")


def test_a_fault_in_a_datagram_costs_its_batch(start: Start, loopback_port: int) -> None:
    with (
        start(BROKEN_SEGMENT) as daemon,
        PacketClient(daemon.socket) as client,
        plain_socket(loopback_port) as sender,
    ):
        client.subscribe("a")
        to = ("127.255.255.255", loopback_port)
        for number in range(1500):
            sender.sendto(datagram("there/p/1", 10 + number, "b", bytes(1100)), to)
        numbers = itertools.count(9000)

        def arrives() -> bool:
            sender.sendto(datagram("there/p/1", next(numbers), "a", b"y"), to)
            return ("a", b"y") in client.messages()

        wait_until(arrives, "a message after those that met a fault")
        assert 0 < len(faults(daemon)) < 10
        daemon.log_file.write_text("")


def test_a_daemon_without_memory_leaves_at_once(start: Start) -> None:
    with start("") as daemon, PacketClient(daemon.socket) as reader:
        reader.subscribe("a/>")
        used = int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.prlimit(daemon.pid, resource.RLIMIT_AS, (used + (2 << 20),) * 2)
        with PacketClient(daemon.socket) as publisher, pytest.raises(OSError, match=r"reset|Broken pipe"):
            flood(publisher)
        assert daemon.process.wait(PATIENCE) == OUT_OF_MEMORY
        *before, last = daemon.log.splitlines()
        # None for JSON either.
        if last != f"bccnd: out of memory, leaving at once with exit code {OUT_OF_MEMORY}":
            assert json.loads(last)["event"] == "out of memory, leaving at once"
        assert [json.loads(line)["event"] for line in before] == ["serving"]
        daemon.start()  # as systemd does


def flood(publisher: PacketClient) -> None:
    for _ in range(1_000_000):
        publisher.publish("a/b", bytes(1200))


def test_a_tick_that_fails_does_not_end_all_ticks(start: Start) -> None:
    code = """
from bccnd.process.sequence import SequenceFile
tick, calls = SequenceFile.tick, []
def fail(self, seq):
    calls.append(1)
    if len(calls) == 2:
        raise ZeroDivisionError("a fault of ours")
    tick(self, seq)
    if len(calls) == 3:
        import sys
        sys.stderr.write("ticks on\\n")
SequenceFile.tick = fail
"""
    with start(code) as daemon:
        wait_until(lambda: "ticks on" in daemon.log, "another tick")
        assert [line["where"] for line in faults(daemon)] == ["the tick"]
        daemon.log_file.write_text("")
