"""The address book: whom it dials, when again, and what peers can make of it."""

import math
from ipaddress import ip_network
from itertools import pairwise

import pytest

from bccnd.dndm.addrbook import (
    ATTEMPTS,
    ATTEMPTS_LIMIT,
    DIALS_LIMIT,
    ENTRIES_LIMIT,
    FIRST,
    LONGEST,
    LONGEST_OF_A_DEVICE,
    TOLD_LIMIT,
    Addrbook,
)
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm.messages_pb2 import AddrbookEntry
from bccnd.wire.dndm.peers import Peer, parse

OWN = parse("tcp://10.0.0.1:1/")
NEAR = (ip_network("10.0.0.0/8"),)


def peer(number: int) -> Peer:
    return parse(f"tcp://10.1.0.1:{number}/")


def attempts(book: Addrbook, one: Peer, most: int = 30) -> list[float]:
    """When it is dialled, if that always fails."""
    times: list[float] = []
    while len(times) < most and (due := book.next) < math.inf:
        assert book.to_dial(due) == [one]
        times.append(due)
        book.gone(one.place, due)
    return times


def test_a_configured_peer_is_dialled_for_ever() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    book.configure(peer(1))
    times = attempts(book, peer(1))
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits[0] == FIRST
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST


def test_a_told_peer_is_given_up() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    assert book.told(peer(1), 7, 0.0)
    assert len(attempts(book, peer(1))) == ATTEMPTS
    assert peer(1) not in book


def test_who_is_connected_is_not_dialled() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    book.configure(peer(1))
    book.connected(peer(1).place)
    assert book.to_dial(1e9) == []
    assert book.next == math.inf
    book.connected(peer(1).place)
    book.gone(peer(1).place, 50.0)
    assert book.next == 50.0 + FIRST


def test_a_device_is_looked_for_all_the_time() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    line = parse("serial:///dev/ttyS0/a")
    book.configure(line)
    assert attempts(book, line)[-1] < 30 * LONGEST_OF_A_DEVICE


def test_who_is_configured_no_more_is_left_once_it_goes() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    for number in (1, 2):
        book.configure(peer(number))
    book.connected(peer(2).place)
    book.leave([peer(1), peer(2)])
    assert [peer(1) in book, peer(2) in book, book.configured()] == [False, True, []]
    book.gone(peer(2).place, 5.0)
    assert peer(2) not in book


def test_who_was_told_of_may_be_configured() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    book.told(peer(1), 7, 0.0)
    book.configure(peer(1))
    book.teller_gone(7)
    assert book.configured() == [peer(1)]
    assert len(attempts(book, peer(1))) > ATTEMPTS


def test_waits_begin_again_after_a_connection() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    book.configure(peer(1))
    attempts(book, peer(1), 5)
    book.connected(peer(1).place)
    book.gone(peer(1).place, 100.0)
    assert book.to_dial(99.9 + FIRST) == []
    assert book.next == 100.0 + FIRST


def test_a_teller_has_a_bound_and_takes_all_with_it() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    noted = [book.told(peer(number), 7, 0.0) for number in range(1, TOLD_LIMIT + 3)]
    assert noted.count(True) == TOLD_LIMIT
    assert book.told(peer(5000), 8, 0.0)
    book.teller_gone(7)
    assert [book.to_dial(0.0), peer(1) in book] == [[peer(5000)], False]


def test_those_being_dialled_go_once_that_fails() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    for number in range(1, 40):
        book.told(peer(number), 7, 0.0)
    dialled = book.to_dial(0.0)
    assert len(dialled) == DIALS_LIMIT
    assert book.to_dial(0.0) == []
    assert book.next == math.inf
    book.teller_gone(7)
    for each in dialled:
        assert each in book
        book.gone(each.place, 1.0)
        assert each not in book


def test_all_tellers_together_have_a_bound() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    noted = [book.told(peer(number), number, 0.0) for number in range(1, ENTRIES_LIMIT + 10)]
    assert noted.count(True) == ENTRIES_LIMIT


def test_only_a_teller_takes_its_word_back() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    book.told(peer(1), 7, 0.0)
    book.configure(peer(2))
    book.taken_back(peer(1), 8)
    book.taken_back(peer(2), 7)
    assert peer(1) in book
    assert peer(2) in book
    book.taken_back(peer(1), 7)
    assert peer(1) not in book


@pytest.mark.parametrize(
    "text",
    [
        "tcp://10.0.0.1:1/other",
        "tcp:///arm",
        "tcp://:80/",
        "tcp://a/",
        "serial:///dev/ttyS0/a",
        "udp://10.1.1.1:1/",
        "tcp://11.0.0.1:1/",
        "tcp://[::1]:1/",
        "tcp://robot:80/",
    ],
)
def test_what_cannot_be_dialled_is_not_noted(text: str) -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    assert not book.told(parse(text), 7, 0.0)


def test_what_a_peer_says_of_waits_is_heeded_in_bounds() -> None:
    book = Addrbook(OWN.place, Alarm(), NEAR)
    said = AddrbookEntry(
        max_attempts=3, default_backoff=2 * 10**9, max_backoff=3 * 10**9, backoff_multiplier=9
    )
    book.told(peer(1), 7, 0.0, said)
    assert attempts(book, peer(1)) == [0.0, 2.0, 5.0]
    said = AddrbookEntry(
        max_attempts=2**32 - 1, default_backoff=1, max_backoff=1, backoff_multiplier=math.inf, persistent=True
    )
    book.told(peer(2), 7, 0.0, said)
    times = attempts(book, peer(2), 2 * ATTEMPTS_LIMIT)
    assert len(times) == ATTEMPTS_LIMIT
    assert times[1] == pytest.approx(0.1)
