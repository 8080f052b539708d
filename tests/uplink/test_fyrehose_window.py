"""What is pushed, without a network."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.uplink.fyrehose_window import (
    FIRST_TIMEOUT,
    LEAST,
    LEAST_TIMEOUT,
    MOST,
    MOST_TIMEOUT,
    OVERTAKING,
    START,
    UNIT_BYTES,
    RoundTrip,
    Window,
)


def window() -> Window:
    return Window(RoundTrip())


def datagrams(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def publish(made: Window, first: int, count: int) -> list[bytes]:
    for number, datagram in zip(range(first, first + count), datagrams(first, count), strict=True):
        made.publish(number, datagram)
    return datagrams(first, count)


def test_what_does_not_come_back_is_sent_again_ever_later() -> None:
    made = window()
    made.publish(1, b"a")
    now, waits = 100.0, []
    assert made.take(now) == [b"a"]
    for _ in range(5):
        waits.append(made.next_deadline() - now)
        assert made.take(made.next_deadline() - 0.001) == []
        now = made.next_deadline()
        assert made.take(now) == [b"a"]
    assert waits == pytest.approx([FIRST_TIMEOUT, *[MOST_TIMEOUT] * 4])
    assert made.repeated == 5
    assert made.came(b"a", now) == 1
    assert made.take(now + 10.0) == []
    assert made.came(b"a", now) is None
    assert len(made) == 0


def test_the_timeout_follows_the_round_trip() -> None:
    measured = RoundTrip()
    assert measured.timeout == FIRST_TIMEOUT
    measured.measured(0.2)
    assert measured.timeout == pytest.approx(0.2 + 4 * 0.1)
    for _ in range(100):
        measured.measured(0.001)
    assert measured.timeout == LEAST_TIMEOUT
    measured.measured(50.0)
    assert measured.timeout == MOST_TIMEOUT


def test_what_was_sent_again_is_no_measure() -> None:
    trip = RoundTrip()
    made = Window(trip)
    made.publish(1, b"a")
    made.take(100.0)
    made.take(101.0)
    assert made.came(b"a", 101.5) == 1
    assert trip.smoothed is None


def test_what_was_overtaken_is_sent_at_once() -> None:
    made = window()
    made.publish(1, b"a")
    made.publish(2, b"b")
    assert made.take(100.0) == [b"a", b"b"]
    made.publish(3, b"c")
    assert made.take(100.0 + OVERTAKING / 2) == [b"c"]
    made.publish(4, b"d")
    assert made.take(100.1) == [b"d"]
    assert made.came(b"c", 100.1) == 3
    assert made.take(100.1) == []  # that near to each other they may have changed places
    assert made.came(b"d", 100.11) == 4
    assert made.take(100.11) == [b"a", b"b"]


def test_losses_of_one_round_trip_halve_the_window_once() -> None:
    made = window()
    publish(made, 1, START)
    assert len(made.take(100.0)) == START
    assert made.room == 0
    made.take(made.next_deadline())
    assert made.size == START / 2
    for _ in range(20):
        made.take(made.next_deadline())
    assert made.size == LEAST


def test_the_window_grows_while_it_is_used_and_has_an_end() -> None:
    made, now, number = window(), 100.0, 1
    for _ in range(40):
        publish(made, number, made.room)
        sent = made.take(now)
        number += len(sent)
        now += 0.01
        assert [made.came(each, now) for each in sent] == list(range(number - len(sent), number))
    assert made.size == MOST
    for _ in range(10):
        made.publish(number, b"a lone one")
        made.take(now)
        made.came(b"a lone one", now)
    assert made.size == MOST


def test_long_datagrams_count_as_several() -> None:
    made = window()
    made.publish(1, b"a" * UNIT_BYTES * (START - 1))
    assert made.room == START - 1
    made.publish(2, b"b" * UNIT_BYTES)
    assert made.room == 0
    made.publish(3, b"c")  # all the same; it waits
    assert len(made.take(100.0)) == 2
    assert made.came(b"b" * UNIT_BYTES, 100.1) == 2
    assert made.take(100.1) == [b"c"]


def test_a_number_under_way_stays_as_it_is() -> None:
    made = window()
    made.publish(1, b"a")
    made.publish(1, b"b")
    made.publish(2, b"a")
    assert made.take(100.0) == [b"a"]
    assert len(made) == 1


def test_after_a_pause_all_is_sent_in_order() -> None:
    made = window()
    wanted = publish(made, 1, 10)
    made.take(100.0)
    made.pause()
    assert made.next_deadline() == float("inf")
    assert made.take(100.0) == wanted


@settings(derandomize=True)
@given(st.lists(st.integers(0, 49), max_size=100), st.integers(0, 5))
def test_each_comes_back_once_whatever_order(order: list[int], pauses: int) -> None:
    made, now, numbers = window(), 100.0, []
    wanted = publish(made, 0, 50)
    for index in order:
        now += 0.02
        made.take(now)
        if index < pauses:
            made.pause()
        numbers.append(made.came(wanted[index], now))
    came = [number for number in numbers if number is not None]
    assert sorted(came) == sorted(set(order))
    assert len(made) == 50 - len(came)
    sent = set[bytes]()
    for _ in range(4):
        now += MOST_TIMEOUT
        sent |= set(made.take(now))
    assert sent == {each for index, each in enumerate(wanted) if index not in set(order)}
