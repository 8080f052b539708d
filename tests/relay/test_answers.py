"""Requests directed to the daemon: who is answered, with what, and how often."""

import pytest

from bccnd.relay.answers import BURST, PER_SECOND, TOKEN_LIMIT
from tests.relay.fakes import Bus, datagram


def answers(bus: Bus) -> list[bytes]:
    found = [sent.partition(b":!")[2] for sent in bus.sent if b"here/bccnd/0:" in sent]
    bus.sent.clear()
    return found


@pytest.mark.parametrize("target", [b"here/bccnd", b"here/bccnd/0", b"here/bccnd/*"])
def test_a_ping_from_the_segment_is_answered(target: bytes) -> None:
    bus = Bus()
    bus.hear(datagram(b"far/bccn/7", 1, b"!" + target, b"t1\nping"))
    assert answers(bus) == [b"far/bccn/7|t1\npong 1.2.3"]


def test_a_client_of_this_host_is_answered_here() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG listen", pid=7)
    client.say(b"MSG !here/bccnd\0t1\nping", b"MSG a\0x")
    assert client.heard() == [b"MSG !here/prog/7\0t1\npong 1.2.3"]


def test_the_name_that_was_inherited_answers() -> None:
    bus = Bus()
    bus.hear(datagram(b"far/x/7", 1, b"!here/bccnd/5", b"\nping"))
    assert answers(bus) == []


@pytest.mark.parametrize(
    ("src", "target", "payload"),
    [
        (b"far/x/7", b"here", b"t\nping"),
        (b"far/x/7", b"here/*", b"t\nping"),
        (b"far/x/7", b"there/bccnd", b"t\nping"),
        (b"far/x/7", b"here/bccnd/1", b"t\nping"),
        (b"far/x/7", b"here/bccnd", b"ping"),
        (b"far/x/7", b"here/bccnd", b"t\nping "),
        (b"far/x/7", b"here/bccnd", b"t\npong 1"),
        (b"far/x/7", b"here/bccnd", b"t" * (TOKEN_LIMIT + 1) + b"\nping"),
        (b"?", b"here/bccnd", b"t\nping"),
        (b"far/*", b"here/bccnd", b"t\nping"),
    ],
)
def test_anything_else_is_not(src: bytes, target: bytes, payload: bytes) -> None:
    bus = Bus()
    bus.hear(datagram(src, 1, b"!" + target, payload))
    assert answers(bus) == []


def test_a_flood_is_answered_in_part() -> None:
    bus = Bus()
    bus.hear(*[datagram(b"far/x/7", seq, b"!here/bccnd", b"t\nping") for seq in range(1, 200)])
    assert len(answers(bus)) == BURST
    assert bus.relay.answers.suppressed == 199 - BURST
    bus.tick(1.0)
    bus.hear(*[datagram(b"far/x/7", seq, b"!here/bccnd", b"t\nping") for seq in range(300, 400)])
    assert len(answers(bus)) == PER_SECOND
