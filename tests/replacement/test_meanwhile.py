"""Clients and signals while nobody serves, between the predecessor and its successor."""

import os
import signal
from pathlib import Path

import pytest

from tests.packet_client import PacketClient, wait_until
from tests.replacement.conftest import Start

HOLD = """
import os, time
from bccnd.restart import Predecessor
wait = Predecessor.wait_for_go
def hold(self):
    open(os.environ["TAKING"], "w").close()
    while not os.path.exists(os.environ["GO_ON"]):
        time.sleep(0.005)
    wait(self)
Predecessor.wait_for_go = hold
"""


def test_clients_may_come_and_go_while_nobody_serves(start: Start, tmp_path: Path) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    with PacketClient(daemon.socket) as stays, PacketClient(daemon.socket) as leaves:
        stays.subscribe("a")
        leaves.drain()
        daemon.signal(signal.SIGUSR2)
        wait_until(taking.exists, "a successor that takes over")
        stays.publish("a", b"said while nobody listened")
        leaves.publish("a", b"last words")
        leaves.close()
        with PacketClient(daemon.socket) as comes:
            comes.send(b"SUB a")
            comes.send(b"MSG b\0x")
            go_on.touch()
            daemon.follow()
            comes.drain()
            assert sorted(stays.messages()) == [("a", b"last words"), ("a", b"said while nobody listened")]
            wait_until(lambda: stays.status()["clients"] == 2, "that the client that left is forgotten")


def test_sigterm_ends_both_while_the_successor_starts(start: Start) -> None:
    daemon = start()
    daemon.begin_with("import time; time.sleep(60)")
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        daemon.signal(signal.SIGUSR2)
        wait_until(daemon.children, "a successor")
        (successor,) = daemon.children()
        client.publish("a", b"before the end")
        assert daemon.terminate() == 0
        assert client.message() == ("a", b"before the end")
        assert client.receive() == b"CMSG closing\0shutdown"
    assert not Path(f"/proc/{successor}").exists()


def test_sigterm_during_the_handover_reaches_the_successor(start: Start, tmp_path: Path) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        daemon.signal(signal.SIGUSR2)
        wait_until(taking.exists, "a successor that takes over")
        (successor,) = daemon.children()
        client.publish("a", b"before the end")
        daemon.signal(signal.SIGTERM)
        go_on.touch()
        assert daemon.wait() == 0
        assert client.message() == ("a", b"before the end")
        assert client.receive() == b"CMSG closing\0shutdown"
        daemon.pid = successor
        assert daemon.wait() == 0
    assert not daemon.socket.exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_to_the_successor_waits_until_it_serves(start: Start, tmp_path: Path, signum: int) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    with PacketClient(daemon.socket) as client:
        daemon.signal(signal.SIGUSR2)
        wait_until(taking.exists, "a successor that takes over")
        (successor,) = daemon.children()
        os.kill(successor, signum)
        go_on.touch()
        assert daemon.wait() == 0
        daemon.pid = successor
        if signum == signal.SIGTERM:
            assert client.receive() == b"CMSG closing\0shutdown"
            assert daemon.wait() == 0
        else:
            assert daemon.follow() != successor
            assert client.drain() == []


def test_a_second_sigusr2_starts_no_second_successor(start: Start, tmp_path: Path) -> None:
    taking, go_on = tmp_path / "taking", tmp_path / "go-on"
    daemon = start(begin_with=HOLD, environ={"TAKING": str(taking), "GO_ON": str(go_on)})
    daemon.signal(signal.SIGUSR2)
    wait_until(daemon.children, "a successor")
    daemon.signal(signal.SIGUSR2)
    wait_until(taking.exists, "a successor that takes over")
    (successor,) = daemon.children()
    daemon.signal(signal.SIGUSR2)
    go_on.touch()
    assert daemon.follow() == successor
    assert daemon.children() == []
