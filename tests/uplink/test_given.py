"""What one connection gave is known on the next, in bounded memory."""

import pytest

from bccnd.uplink.given import CLOCKED, GENERATION, SANITY, Given, is_late


def test_what_another_connection_gave_is_known_by_message() -> None:
    given = Given()
    given.add(b"relay01/door/7:1")
    assert not given.before(b"relay01/door/7:1"), "the same daemon knows what it gives"
    given.joined()
    assert given.before(b"relay01/door/7:1")
    assert not given.before(b"relay01/door/7:2")
    given.add(b"relay01/door/7:1")
    assert not given.before(b"relay01/door/7:1"), "it was carried anew"


def test_the_last_generation_is_known_and_two_at_most() -> None:
    given = Given()
    for number in range(3 * GENERATION):
        given.add(b"a:%d" % number)
    given.joined()
    assert all(given.before(b"a:%d" % number) for number in range(2 * GENERATION, 3 * GENERATION))
    assert sum(given.before(b"a:%d" % number) for number in range(3 * GENERATION)) <= 2 * GENERATION


@pytest.mark.parametrize(
    ("seq", "last", "late"),
    [
        (7, 7, True),
        (6, 7, True),
        (8, 7, False),
        (7, -1, False),  # nothing is known of it
        (1, SANITY, True),
        (1, SANITY + 1, False),  # it began anew
        (CLOCKED, CLOCKED + 10 * SANITY, True),  # a clock does not
    ],
)
def test_a_number_far_behind_is_of_a_new_beginning(seq: int, last: int, late: bool) -> None:
    assert is_late(seq, last) is late
