"""What the kernel knows about the peer of a socket, and about its end."""

import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from bccnd.net import peers
from bccnd.net.clients import GONE, Clients
from bccnd.net.listener import Listener
from bccnd.net.mmsg import BATCH, Arena, ReceiveTable
from bccnd.net.peers import (
    GROUPS_LIMIT,
    has_hung_up,
    identify,
    peer_credentials,
    peer_groups,
    process_of,
    program_of,
)
from tests.net.connections import connected

needs_root = pytest.mark.needs("root")


def test_credentials_are_those_of_the_peer(path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(path)
    with connected(listener):
        (client,) = listener.accept()
        with client:
            pid, uid, gid = peer_credentials(client)
    assert (pid, uid, gid) == (os.getpid(), os.getuid(), os.getgid())
    assert program_of(pid) == (Path("/proc/self/comm").read_bytes().rstrip(b"\n"), True)


@needs_root
def test_the_highest_ids_are_not_negative(listen: Callable[..., Listener]) -> None:
    listener = listen("@")
    highest = 2**32 - 2
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setresgid(highest, highest, highest)
            os.setresuid(highest, highest, highest)
            connected(listener)
        os._exit(0)
    os.waitpid(child, 0)
    (client,) = listener.accept()
    with client:
        assert peer_credentials(client)[1:] == (highest, highest)


def test_a_process_that_is_gone_or_unknown_has_no_program() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert program_of(child) == (b"", False)
    assert program_of(0) == (b"", False)  # the pid that SO_PEERCRED gives for another pid namespace


def test_a_process_is_what_the_kernel_says() -> None:
    assert process_of(os.getpid()) == (
        os.geteuid(), os.getppid(), os.getpgrp(), os.getsid(0), frozenset({os.getpid()}), True
    )  # fmt: skip
    assert process_of(0) is None


@needs_root
def test_a_process_cannot_pass_for_another() -> None:
    """Its name may hold what looks like a line of its status."""
    child = os.fork()
    if child == 0:
        Path("/proc/self/comm").write_bytes(b"\rUid:\t0\t0\t0")
        os.setuid(4711)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    found = process_of(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert found is not None
    assert found[:2] == (4711, os.getpid())
    assert process_of(child) is None, "it has gone"


@pytest.mark.parametrize("waited_for", [False, True])
def test_a_program_is_known_until_its_pid_is_free(listen: Callable[..., Listener], waited_for: bool) -> None:
    listener = listen("@")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            Path("/proc/self/comm").write_text("hasty")
            connected(listener)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | (0 if waited_for else os.WNOWAIT))
    (client,) = listener.accept()
    with client:
        who = identify(client)
    assert (who.pid, who.uid) == (child, os.getuid())
    assert (who.program, who.resident) == ((b"", False) if waited_for else (b"hasty", True))
    if not waited_for:
        os.waitpid(child, 0)


def test_a_pid_that_is_anothers_by_now_has_no_program(
    listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the pid of a program that left had gone to this process."""
    listener = listen("@")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            connected(listener)
        os._exit(0)
    os.waitpid(child, 0)
    (client,) = listener.accept()
    monkeypatch.setattr(peers, "peer_credentials", lambda _: (os.getpid(), 0, 0))
    with client:
        assert identify(client).program == b""


@needs_root
@pytest.mark.parametrize("groups", [[], [1], range(1000, 2000), range(65536)], ids=len)
def test_groups_are_those_of_the_peer(listen: Callable[..., Listener], groups: Sequence[int]) -> None:
    listener = listen("@")
    before = os.getgroups()
    os.setgroups(groups)
    try:
        connection = connected(listener)
    finally:
        os.setgroups(before)
    with connection:
        (client,) = listener.accept()
        with client:
            assert peer_groups(client) == frozenset(sorted(groups)[:GROUPS_LIMIT])


def test_a_socket_without_a_peer_has_no_groups() -> None:
    with socket.socket(socket.AF_INET) as lonely:
        assert peer_groups(lonely) == frozenset()


# --- the end of a client ---


def test_an_empty_packet_is_not_the_end_of_a_client() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    table = ReceiveTable(arena := Arena(BATCH * 512), 100)
    with ours, theirs:
        theirs.send(b"")
        starts, ends = table.read(ours.fileno())
        assert [end - start for start, end in zip(starts, ends, strict=True)] == [0]
        assert not has_hung_up(ours.fileno())
        theirs.send(b"")
        theirs.send(b"last")
        theirs.close()
        starts, ends = table.read(ours.fileno())
        assert [arena.memory[start:end] for start, end in zip(starts, ends, strict=True)][:3] == [
            b"",
            b"last",
            b"",
        ]
        assert has_hung_up(ours.fileno())


@pytest.mark.parametrize(("how", "ended"), [(socket.SHUT_WR, True), (socket.SHUT_RD, False)])
def test_a_half_closed_connection_has_hung_up(how: int, ended: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.shutdown(how)
        assert has_hung_up(ours.fileno()) is ended
        assert Clients(Arena(1 << 18), 4096).send(ours.fileno(), b"x") == (1 if ended else GONE)
