"""Whose request is answered next, and what is remembered of those who ask."""

from collections import Counter
from math import inf

from bccnd.beside.owed import ASKERS, CALM_SECONDS, EACH, PARTS, Owed


def taken(owed: Owed[str], now: float) -> list[str]:
    """What is answered now, with a message each."""
    requests = []
    while request := owed.take(now):
        owed.took(1, now)
        requests.append(request)
    return requests


def test_a_flood_of_requests_has_few_answers() -> None:
    owed, count = Owed[str](), 0
    for number in range(9000):
        now = 10.0 + number / 3000
        owed.ask(f"a{number % 50}", "?", now)
        if owed.take(now):
            owed.took(50, now)
            count += 1
    assert 3 * PARTS / 50 <= count <= 4 * PARTS / 50 + 1


def test_who_asks_in_a_flood_waits_and_nobody_waits_for_it() -> None:
    owed, late = Owed[str](), Counter[str]()
    owed.took(PARTS, 10.0)
    for number in range(2000):
        now = 11.0 + number / 1000
        owed.ask("flood", "flood", now)
        if number % 100 == 0:
            owed.ask(f"doctor {number}", f"doctor {number}", now)
        request = owed.take(now)
        if request is not None:
            owed.took(17, now)
            late[request.split()[0]] += 1
    assert late["doctor"] == 20
    assert late["flood"] > 20


def test_a_calm_asker_comes_first_and_others_in_turn() -> None:
    owed = Owed[str]()
    for request in ("a 1", "a 2", "a 3", "b 1", "b 2"):
        owed.ask(request[0], request, 10.0)
    assert taken(owed, 10.0) == ["a 1", "b 1", "a 2", "b 2", "a 3"]
    owed.ask("a", "a 4", 11.0)
    owed.ask("c", "c 1", 11.0)
    assert taken(owed, 11.0) == ["c 1", "a 4"]
    owed.ask("b", "b 3", 10.0 + CALM_SECONDS)
    owed.ask("d", "d 1", 10.0 + CALM_SECONDS)
    owed.ask("c", "c 2", 10.0 + CALM_SECONDS)
    assert taken(owed, 10.0 + CALM_SECONDS) == ["b 3", "d 1", "c 2"]


def test_what_waits_is_bounded_and_a_calm_asker_has_a_place() -> None:
    owed = Owed[str]()
    for number in range(2 * ASKERS):
        for _ in range(2 * EACH):
            owed.ask(f"a{number}", f"a{number}", 10.0)
    first = [owed.take(10.0) for _ in range(ASKERS)]
    assert first == [f"a{number}" for number in range(ASKERS)]
    owed.ask("new", "new", 10.0)
    rest = taken(owed, 10.0)
    assert (rest[0], len(rest)) == ("new", 1 + (ASKERS - 1) * (EACH - 1))
    assert owed.due == inf


def test_it_remembers_those_alone_whom_it_answered_lately() -> None:
    owed = Owed[str]()
    for number in range(10 * PARTS):
        now = number / PARTS
        owed.ask(f"a{number}", "?", now)
        assert owed.take(now)
        owed.took(0, now)  # as one that was no request
    assert len(owed._answered) <= CALM_SECONDS * PARTS + 1
    owed.ask("a", "?", 1000.0)
    assert not owed._answered
