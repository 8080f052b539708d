"""What carries the bytes, and what is seen of who speaks something else."""

import pytest

from bccnd.mux.carrier import Plain, foreign_line, is_foreign
from bpmux import chunks
from bpmux.chunks import TOP, head
from bpmux.endpoint import Endpoint


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"GET / HTTP/1.1\r\n", b"no HTTP"),
        (b"POST /x HTTP/1.0\r\n", b"no HTTP"),
        (b"SUB a/>\n", b"text goes to the bus socket"),
        (b"hello", b"text goes to the bus socket"),
        (b"\n", b"text goes to the bus socket"),
        (b"\r\n", b"text goes to the bus socket"),
        (b"\x16\x03\x01\x02\x00\x01", b"without TLS"),
    ],
)
def test_who_speaks_something_else_is_told_in_one_line(first: bytes, said: bytes) -> None:
    assert is_foreign(first)
    line = foreign_line(first)
    assert said in line
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_who_says_nothing_is_told_the_same() -> None:
    assert foreign_line(b"") == foreign_line(b"hello")


def test_what_an_endpoint_can_begin_with_is_not_foreign() -> None:
    begun = Endpoint(0.0)
    left = Endpoint(0.0)
    left.close(left.top)
    left.cancel(left.top)
    openings = [head(kind, 0) for kind in (chunks.SINK, chunks.STREAM, chunks.DUPLEX, chunks.REQUEST)]
    others = [head(chunks.PING, TOP), head(chunks.CANCEL_REQUEST, 0), head(chunks.PARTIAL, TOP, 300)]
    ends = [head(chunks.CLOSE, TOP, length) for length in (0, 256, 65536, 1 << 32)]
    for first in (begun.data_to_send(), left.data_to_send(), *openings, *others, *ends):
        assert not is_foreign(first)


def test_a_plain_socket_carries_the_bytes_as_they_are() -> None:
    carrier = Plain()
    assert carrier.is_ready
    assert not carrier.has_ended
    assert (carrier.received(b"a"), carrier.outgoing(b"b"), carrier.outgoing()) == (b"a", b"b", b"")
