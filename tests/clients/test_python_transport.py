"""One socket to the daemon: finding it, connecting, sending, receiving, waiting, closing."""

import errno
import os
import socket
import threading
import time
from pathlib import Path

import pytest

import bccn
from bccn.transport import BACKOFF_FIRST, BACKOFF_LIMIT, PACKET_LIMIT, READABLE, WRITABLE, Transport, pauses
from tests.clients.scripted_daemon import ScriptedDaemon
from tests.packet_client import PATIENCE

PONG = b"CMSG pong\0x"


def soon() -> float:
    return time.monotonic() + PATIENCE


def pinged(transport: Transport) -> bytes:
    """The daemon's answer to a ping, the next packet that it sends."""
    memory = bytearray(100)
    assert transport.send(b"CMSG ping\0x")
    while (size := transport.receive_into(memory)) is None:
        assert transport.wait(READABLE, soon())
    return bytes(memory[:size])


def test_no_daemon_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(bccn.UnavailableError, match=r"no daemon at .*/none: No such file"):
        Transport(tmp_path / "none")
    with pytest.raises(bccn.UnavailableError, match="too long"):
        Transport("x" * 200)


def test_the_socket_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccn.transport.SERVICE_SOCKET", str(tmp_path / "service"))
    monkeypatch.delenv("BCCN_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert bccn.socket_path() == str(tmp_path / "service")
    own = tmp_path / "bccnd" / "bus.sock"
    own.parent.mkdir()
    own.touch()
    assert bccn.socket_path() == str(own)
    (tmp_path / "service").touch()
    assert bccn.socket_path() == str(tmp_path / "service")
    monkeypatch.setenv("BCCN_SOCKET", "@abstract")
    assert bccn.socket_path() == "@abstract"
    assert bccn.socket_path(own) == str(own)


@pytest.mark.parametrize("surplus", [0, 1])
def test_a_packet_longer_than_any_is_not_cut(tmp_path: Path, surplus: int) -> None:
    def script(connection: socket.socket, _: bytes) -> bool:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_LIMIT)
        connection.send(bytes(PACKET_LIMIT + surplus))
        return True

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        transport = Transport(scripted.path)
        try:
            assert transport.send(b"CMSG ping")
            assert transport.wait(READABLE, soon())
            if surplus:
                with pytest.raises(bccn.ProtocolError, match=f"sent {PACKET_LIMIT + 1} bytes"):
                    transport.receive_into(bytearray(PACKET_LIMIT))
            else:
                assert transport.receive_into(bytearray(PACKET_LIMIT)) == PACKET_LIMIT
        finally:
            transport.close()


def test_the_socket_is_no_standard_descriptor(tmp_path: Path) -> None:
    """A program that was started with 0, 1 and 2 closed: what it prints must not go to the daemon."""
    with ScriptedDaemon(tmp_path / "bus", lambda *_: False) as scripted:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.closerange(0, 3)
                transport = Transport(scripted.path)
                answer = pinged(transport)
                code = (
                    0
                    if transport.fileno() > 2
                    and answer == PONG
                    and not os.get_inheritable(transport.fileno())
                    else 2
                )
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_full_socket_is_waited_for(tmp_path: Path) -> None:
    go_on = threading.Event()
    with ScriptedDaemon(tmp_path / "bus", lambda *_: go_on.wait(PATIENCE)) as scripted:
        transport = Transport(scripted.path)
        while transport.send(b"MSG a\0" + b"x" * 1000):
            pass
        assert not transport.wait(WRITABLE, time.monotonic() + 0.05)
        go_on.set()
        assert transport.wait(WRITABLE, soon())
        transport.close()


def test_a_packet_too_large_for_any_socket_is_rejected(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path / "bus", lambda *_: True) as scripted:
        transport = Transport(scripted.path)
        with pytest.raises(bccn.RejectedError, match="too many to send"):
            transport.send(b"x" * (1 << 24))
        transport.close()


def test_a_kernel_without_memory_is_waited_for(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path / "bus", lambda *_: False) as scripted:
        transport = Transport(scripted.path)
        send = transport.send_raw

        def starve(packet: bytes, flags: int) -> int:
            transport.send_raw = send
            raise OSError(errno.ENOBUFS, "no memory")

        transport.send_raw = starve  # type: ignore[assignment]
        assert not transport.send(b"CMSG ping")
        assert transport.wait(WRITABLE, soon())
        assert pinged(transport) == PONG
        transport.close()


def test_the_last_packets_come_before_the_end(tmp_path: Path) -> None:
    def script(connection: socket.socket, packet: bytes) -> bool:
        connection.send(b"MSG a\0last")
        connection.recv(1, socket.MSG_PEEK)
        connection.close()  # with a packet unread: ECONNRESET comes first
        return True

    with ScriptedDaemon(tmp_path / "bus", script) as scripted:
        transport, memory = Transport(scripted.path), bytearray(100)
        transport.send(b"MSG a\0first")
        transport.send(b"MSG a\0second")
        while (size := transport.receive_into(memory)) is None:
            assert transport.wait(READABLE, soon())
        assert memory[:size] == b"MSG a\0last"
        assert transport.wait(READABLE, soon())
        with pytest.raises(bccn.UnavailableError, match="went away"):
            transport.receive_into(memory)
        with pytest.raises(bccn.UnavailableError):
            transport.send(b"MSG a\0third")
        transport.close()


def test_a_larger_packet_shows_its_size(tmp_path: Path) -> None:
    with ScriptedDaemon(
        tmp_path / "bus", lambda connection, _: bool(connection.send(b"x" * 100))
    ) as scripted:
        transport, memory = Transport(scripted.path), bytearray(10)
        transport.send(b"MSG a\0")
        assert transport.wait(READABLE, soon())
        assert transport.receive_into(memory) == 100
        assert memory == b"x" * 10
        transport.close()


def test_closing_wakes_a_thread_that_waits(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path / "bus", lambda *_: True) as scripted:
        transport, woken = Transport(scripted.path), list[bool]()
        waiting = threading.Thread(target=lambda: woken.append(transport.wait(READABLE, soon())))
        waiting.start()
        time.sleep(0.05)
        transport.close()
        waiting.join(PATIENCE)
        assert woken == [True]
        transport.close()


def test_a_forked_child_closes_its_copy_only(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path / "bus", lambda *_: False) as scripted:
        transport = Transport(scripted.path)
        pid = os.fork()
        if pid == 0:
            transport.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert pinged(transport) == PONG
        transport.close()


def test_pauses_between_attempts_grow_up_to_a_limit() -> None:
    seconds = [pause for pause, _ in zip(pauses(), range(10), strict=False)]
    assert BACKOFF_FIRST * 0.5 <= seconds[0] <= BACKOFF_FIRST * 1.5
    assert all(BACKOFF_LIMIT * 0.5 <= pause <= BACKOFF_LIMIT * 1.5 for pause in seconds[6:])
