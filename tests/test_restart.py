"""The conversation between a program and its successor; tests/replacement/ has the real ones."""

import array
import asyncio
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable

import pytest

from bccnd.errors import BccndError, ConfigError, UnavailableError
from bccnd.restart import DESCRIPTORS_A_MESSAGE, READY, VARIABLE, Predecessor, Replacement, Successor


def test_the_variable_is_taken_out_of_the_environment() -> None:
    assert Predecessor.from_environment({}) is None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {VARIABLE: str(theirs.detach()), "OTHER": "1"}
    predecessor = Predecessor.from_environment(environ)
    assert predecessor is not None
    assert environ == {"OTHER": "1"}
    with ours:
        predecessor.report_failure(BccndError("no luck"))
        assert ours.recv(100) == b"failed no luck"
    predecessor.wait_for_go()  # the other has left: this one serves


@pytest.mark.parametrize("number", ["x", "-1", "9999", "0x1"])
def test_a_variable_set_by_hand_is_refused(number: str) -> None:
    with pytest.raises(ConfigError, match="not by hand"):
        Predecessor.from_environment({VARIABLE: number})


def test_a_state_with_more_than_plain_values_is_refused() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    predecessor = Predecessor(theirs)
    with ours, theirs, os.fdopen(os.memfd_create("state"), "wb") as stream:
        pickle.dump({"run": os.system}, stream)
        stream.flush()
        ours.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stream.fileno()]))])
        with pytest.raises(BccndError, match="only plain values"):
            predecessor.receive()
        assert ours.recv(100) == READY


async def test_descriptors_arrive_under_their_names() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    names = [f"client/{number}" for number in range(DESCRIPTORS_A_MESSAGE + 50)]
    files = {name: os.memfd_create(name, os.MFD_CLOEXEC) for name in names}
    received: dict[str, int] = {}
    with ours, theirs:
        ours.setblocking(False)
        sending = asyncio.create_task(Successor(None, ours)._send({"relay": {"format": 1}}, files))
        state, received = await asyncio.to_thread(Predecessor(theirs).receive)
        await sending
    try:
        assert state == {"relay": {"format": 1}}
        assert list(received) == names
        assert all(os.path.samestat(os.fstat(files[name]), os.fstat(received[name])) for name in names)
    finally:
        for descriptor in (*files.values(), *received.values()):
            os.close(descriptor)


def test_descriptors_without_names_are_refused() -> None:
    """Earlier versions send them like that, and then go on serving."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, os.fdopen(os.memfd_create("state"), "wb") as stream:
        pickle.dump({"relay": {"format": 1}}, stream)
        stream.flush()
        both = array.array("i", [stream.fileno(), theirs.fileno()])
        ours.sendmsg([b"2"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, both)])
        with pytest.raises(ConfigError, match="have no names; stop and start"):
            Predecessor(theirs).receive()


@pytest.mark.parametrize("unread", [False, True])
def test_a_conversation_that_ends_early_is_reported(unread: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        predecessor = Predecessor(theirs)

        def end() -> None:
            ours.recv(100, 0 if not unread else socket.MSG_PEEK)
            ours.close()

        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(UnavailableError, match="has left"):
            predecessor.receive()
        ending.join()


class Handing:
    """A replacement in this process; ``take_over`` is its successor. ``log``: what was called, and the signals that
    the successor got.
    """

    pid = 4711

    def __init__(self, monkeypatch: pytest.MonkeyPatch, take_over: Callable[["Handing"], None]) -> None:
        self.log: list[object] = []
        self.stop = asyncio.Event()
        self.replacement = Replacement(
            self.stop,
            lambda: self.log.append("reload"),
            lambda: (self.log.append("leave"), ({}, {}))[1],
            lambda: self.log.append("resume"),
        )
        self._take_over = take_over
        monkeypatch.setattr(Successor, "start", self._start)
        monkeypatch.setattr(os, "kill", lambda *given: self.log.append(given))

    async def _start(self) -> "Handing":
        return self

    async def hand_over(self, leave: Callable[[], object]) -> None:
        leave()
        self._take_over(self)


async def test_signals_that_come_meanwhile_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_over(handing: Handing) -> None:
        handing.replacement._on_reload()
        handing.stop.set()

    handing = Handing(monkeypatch, take_over)
    handing.replacement._on_reload()  # one of before it began is not
    handing.replacement._begin()
    assert await handing.replacement.ended()
    assert handing.replacement.paused
    passed_on = [(Handing.pid, signal.SIGTERM), (Handing.pid, signal.SIGHUP)]
    assert handing.log == ["reload", "leave", "reload", *passed_on]


@pytest.mark.parametrize("error", [UnavailableError("it has left"), KeyError("a fault of ours")])
async def test_it_goes_on_when_nobody_takes_over(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    failed = asyncio.Event()

    def take_over(handing: Handing) -> None:
        failed.set()
        raise error

    handing = Handing(monkeypatch, take_over)
    for _ in range(2):  # and may try again
        handing.log.clear()
        handing.replacement._begin()
        handing.replacement._begin()  # one at a time
        await failed.wait()
        failed.clear()
        while handing.replacement.paused:
            await asyncio.sleep(0)
        assert handing.log == ["leave", "resume"]
    handing.stop.set()
    assert not await handing.replacement.ended()


async def test_a_stop_ends_a_successor_that_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    handing = Handing(monkeypatch, lambda _: None)
    handing.replacement._begin()
    handing.stop.set()
    assert not await handing.replacement.ended()
    assert handing.log == []
    handing.replacement._begin()  # too late
    assert not await handing.replacement.ended()
