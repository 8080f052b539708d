"""One connection: its pings and its reader."""

import pytest

from bccnd.dndm.link import ADVERTS_BURST, PINGS_LIMIT, Link
from bccnd.wire.dndm.frame import Frame


def link(*, noisy: bool = False) -> Link:
    return Link(3, None, "tcp", 10.0, noisy=noisy)


def test_a_pong_measures_its_ping() -> None:
    one = link()
    first, second = one.ping(10.0), one.ping(20.0)
    assert len(first) == 16
    assert first != second
    assert one.pong(second, 20.5)
    assert one.latency == pytest.approx(0.5)
    assert not one.pong(second, 21.0)
    assert not one.pong(b"x", 21.0)


def test_few_pings_are_remembered() -> None:
    one = link()
    pings = [one.ping(float(now)) for now in range(PINGS_LIMIT + 1)]
    assert [one.pong(ping, 100.0) for ping in pings] == [False] + [True] * PINGS_LIMIT


def test_two_links_have_no_ping_in_common() -> None:
    assert link().ping(0.0) != Link(4, None, "tcp", 0.0).ping(0.0)


def test_only_a_noisy_link_skips() -> None:
    frame = Frame(b"", b"x")
    clean, noisy = link(), link(noisy=True)
    assert clean.reader.feed(b"?" + frame.serialize()) == []
    assert clean.reader.fault is not None
    assert noisy.reader.feed(b"?" + frame.serialize()) == [frame]


def test_adverts_have_a_rate() -> None:
    one = link()
    taken = [one.allowance.take(10.0) for _ in range(int(ADVERTS_BURST) + 10)]
    assert taken.count(True) == ADVERTS_BURST
    assert one.allowance.take(11.0)
