"""Who has room on the bus, when there is none for all."""

from bccnd.dndm.shares import Shares


def shares(**routes: int) -> Shares:
    """Of links 1, 2 ... so many routes each: ``a=2`` are a0 and a1 of link 1."""
    one = Shares()
    for link, (name, number) in enumerate(routes.items(), 1):
        for each in range(number):
            one.account(f"{name}{each}", [link])
    return one


def test_who_has_most_gives_its_newest_route() -> None:
    one = shares(a=4, b=1, c=3)
    one.account("b1", [2])
    assert one.refuse("b1") == "a3"
    assert [one.waits(route) for route in ("a2", "a3", "b1")] == [False, True, False]


def test_nobody_gives_to_who_has_as_much() -> None:
    one = shares(a=2, b=2)
    assert one.refuse("b1") is None
    assert one.waits("b1")
    assert one.refuse("a1") is None
    assert one.waiting == 2


def test_what_waits_is_resumed_for_who_has_least() -> None:
    one = shares(a=3, b=2)
    for route in ("a2", "a1", "b1", "b0"):
        one.refuse(route)
    assert one.waiting == 4
    assert [one.resume() for _ in range(5)] == ["b1", "a2", "b0", "a1", None]


def test_a_route_counts_for_who_has_least_of_its_links() -> None:
    one = shares(a=3, b=1)
    one.account("a2", [1, 2, 3])
    one.account("d", [4])
    assert one.refuse("d") == "a1"  # the newest that counts for link 1


def test_a_route_that_waits_is_tried_for_a_newcomer() -> None:
    one = shares(a=2)
    assert one.refuse("a1") is None
    one.account("a1", [1])
    assert one.waits("a1")
    one.account("a1", [1, 2])
    assert not one.waits("a1")


def test_nothing_is_kept_of_routes_that_nobody_wants() -> None:
    one = shares(a=3)
    one.refuse("a2")
    for number in range(3):
        one.account(f"a{number}", [])
    assert (one._owners, one._heard, one._waiting) == ({}, {}, {})
    one.account("x", [])
    assert not one.waits("x")
    assert one.resume() is None
