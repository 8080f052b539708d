"""The conversation between a program and its successor; tests/replacement/ has the real ones."""

import array
import asyncio
import os
import pickle
import socket
import threading

import pytest

from bccnd.errors import BccndError, ConfigError, UnavailableError
from bccnd.restart import DESCRIPTORS_A_MESSAGE, READY, VARIABLE, Predecessor, Successor


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
