"""Whom a listener accepts, how many in a turn, and what it does without descriptors."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bccnd.net.clients import GONE, Clients
from bccnd.net.listener import ACCEPTS
from bccnd.net.mmsg import Arena
from bccnd.net.peers import has_hung_up, peer_credentials
from tests.net.connections import Listen, connected, seqpacket_socket


def test_a_burst_is_accepted_in_turns(path: Path, listen: Listen) -> None:
    listener = listen(path)
    with ExitStack() as opened:
        for _ in range(ACCEPTS + 10):
            opened.enter_context(connected(listener))
        turns = []
        for _ in range(3):
            accepted = [opened.enter_context(client) for client in listener.accept()]
            assert not any(client.getblocking() for client in accepted)
            assert not any(client.get_inheritable() for client in accepted)
            turns.append(len(accepted))
        assert turns == [ACCEPTS, 10, 0]


def test_a_look_that_takes_long_leaves_the_next_waiting(path: Path, listen: Listen) -> None:
    listener = listen(path)
    with ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(seqpacket_socket()).connect(str(path))
        looks = iter([True, False, True])
        turns = [listener.accept(lambda _: next(looks)) for _ in range(2)]
        for client in (*turns[0], *turns[1]):
            client.close()
    assert [len(turn) for turn in turns] == [2, 1]


def test_a_client_that_left_before_it_was_accepted_is_noticed(path: Path, listen: Listen) -> None:
    listener = listen(path)
    with connected(listener) as hasty:
        hasty.send(b"hello and goodbye")
    (client,) = listener.accept()
    with client:
        assert peer_credentials(client) == (os.getpid(), os.getuid(), os.getgid())
        assert has_hung_up(client.fileno())
        assert client.recv(100) == b"hello and goodbye"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        assert Clients(Arena(1 << 18), 4096).send(client.fileno(), b"too late") == GONE


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Lets this process open only as many more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with ExitStack() as filling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))
        try:
            held = []
            with suppress(OSError):
                while True:  # the free ones below the highest
                    held.append(filling.enter_context(open(os.devnull, "rb")))
            for file in held[-count:] if count else []:
                file.close()
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_accepting_without_descriptors_fails_and_loses_nobody(path: Path, listen: Listen) -> None:
    listener = listen(path)
    with ExitStack() as opened:
        for _ in range(5):
            opened.enter_context(connected(listener))
        with descriptors_left(2):
            accepted = listener.accept()  # as many as there is room for, without an error
            assert len(accepted) == 2
            with pytest.raises(OSError, match="Too many open files"):
                listener.accept()
        accepted += listener.accept()
        for client in accepted:
            client.close()
        assert len(accepted) == 5
