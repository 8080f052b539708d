"""Which datagrams the filter lets in, tested on real sockets."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bccnd.net import filter as bpf
from bccnd.net.drops import buffer_of
from tests.net.at_once import await_arrivals

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class Pair:
    """A filtering receiver on the loopback, and a sender."""

    def __init__(self, family: socket.AddressFamily) -> None:
        self.receiver = socket.socket(family, socket.SOCK_DGRAM)
        self.receiver.bind((LOOPBACK[family], 0))
        self.receiver.setblocking(False)
        self.sender = socket.socket(family, socket.SOCK_DGRAM)

    def passes(self, datagram: bytes) -> bool:
        before = buffer_of(self.receiver).drops
        self.sender.sendto(datagram, self.receiver.getsockname())
        await_arrivals()
        try:
            assert self.receiver.recv(65536) == datagram
        except BlockingIOError:
            assert buffer_of(self.receiver).drops == before + 1
            return False
        assert buffer_of(self.receiver).drops == before
        return True

    def close(self) -> None:
        self.receiver.close()
        self.sender.close()


@pytest.fixture(scope="module", params=LOOPBACK, ids=["IPv4", "IPv6"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(request.param)
    bpf.attach(made.receiver, b"BCCN")
    yield made
    made.close()


@settings(deadline=None)
@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda rest: b"BCCN" + rest))
@example(b"")
@example(b"B")
@example(b"BCC")
@example(b"BCCN")
@example(b"BCCN2[9]?:1:a/b|hello")
@example(b"BCCNx")
@example(b"bccn1[9]")
@example(b" BCCN1[9]")
@example(b"BCCN" + bytes(60_000))
def test_only_datagrams_with_the_beginning_pass(pair: Pair, datagram: bytes) -> None:
    assert pair.passes(datagram) is datagram.startswith(b"BCCN")


def test_a_filter_can_be_detached_and_attached_again(pair: Pair) -> None:
    bpf.detach(pair.receiver)
    bpf.detach(pair.receiver)
    assert pair.passes(b"anything")
    assert pair.passes(b"")
    bpf.attach(pair.receiver, b"BCCN")
    bpf.attach(pair.receiver, b"BCCN")
    assert not pair.passes(b"anything")


def test_an_instruction_has_the_eight_bytes_of_the_kernel() -> None:
    assert bpf.assemble([(0x15, 1, 2, 0x01020304)]) in (
        b"\x15\0\1\2\4\3\2\1",  # little-endian machines
        b"\0\x15\1\2\1\2\3\4",
    )
