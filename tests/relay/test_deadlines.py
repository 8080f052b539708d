"""What is due and when: one deadline a key, in order of time, whatever was set and removed before."""

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.deadlines import Alarm, Deadlines


def due(deadlines: Deadlines[str], now: float) -> list[tuple[str, float]]:
    """Everything that is due, in order."""
    found = []
    while (first := deadlines.pop(now)) is not None:
        found.append(first)
    return found


def test_keys_are_due_in_order_of_time():
    deadlines: Deadlines[str] = Deadlines(Alarm())
    for key, when in (("b", 2.0), ("c", 3.0), ("a", 1.0)):
        deadlines.set(key, when)
    assert deadlines.next == 1.0
    assert due(deadlines, 0.9) == []
    assert due(deadlines, 2.0) == [("a", 1.0), ("b", 2.0)]
    assert (deadlines.next, len(deadlines)) == (3.0, 1)


def test_keys_due_together_keep_their_order():
    deadlines: Deadlines[str] = Deadlines(Alarm())
    for key in "cab":
        deadlines.set(key, 1.0)
    assert [key for key, _ in due(deadlines, 1.0)] == ["c", "a", "b"]


def test_keys_need_no_order_of_their_own():
    deadlines: Deadlines[object] = Deadlines(Alarm())
    for _ in range(3):
        deadlines.set(object(), 1.0)
    assert deadlines.pop(1.0) is not None


def test_nothing_is_due_of_nothing():
    deadlines: Deadlines[str] = Deadlines(Alarm())
    deadlines.remove("a")
    assert deadlines.next == inf
    assert deadlines.pop(inf) is None
    assert deadlines.get("a") is None


def test_the_last_deadline_of_a_key_counts():
    deadlines: Deadlines[str] = Deadlines(Alarm())
    for when in (5.0, 1.0, 3.0):
        deadlines.set("a", when)
    assert deadlines.get("a") == 3.0
    assert due(deadlines, 2.0) == []
    assert deadlines.next == 3.0
    assert due(deadlines, 9.0) == [("a", 3.0)]


def test_the_same_deadline_twice_is_due_once():
    deadlines: Deadlines[str] = Deadlines(Alarm())
    deadlines.set("a", 1.0)
    deadlines.set("a", 1.0)
    assert due(deadlines, 1.0) == [("a", 1.0)]


def test_a_key_that_is_due_may_be_set_again_at_once():
    deadlines: Deadlines[str] = Deadlines(Alarm())
    deadlines.set("a", 1.0)
    assert deadlines.pop(1.0) == ("a", 1.0)
    deadlines.set("a", 2.0)
    assert deadlines.next <= 2.0
    assert deadlines.pop(2.0) == ("a", 2.0)
    assert (deadlines.pop(2.0), deadlines.next) == (None, inf)


def test_entries_that_are_overtaken_do_not_pile_up():
    deadlines: Deadlines[int] = Deadlines(Alarm())
    for number in range(10_000):
        deadlines.set(number % 50, float(number))
    assert len(deadlines) == 50
    assert len(deadlines._heap) <= 64 + 2 * 50
    assert [deadlines.pop(inf) for _ in range(50)] == [(at % 50, float(at)) for at in range(9950, 10_000)]
    assert (len(deadlines), len(deadlines._heap), deadlines.pop(inf)) == (0, 0, None)


STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "set", "remove", "pass"]), st.integers(0, 5), st.integers(0, 20)),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_any_script_against_a_dict(steps: list[tuple[str, int, int]]):
    deadlines: Deadlines[int] = Deadlines(Alarm())
    model: dict[int, float] = {}
    now = 0.0
    for action, key, amount in steps:
        if action == "set":
            deadlines.set(key, now + amount)
            model[key] = now + amount
        elif action == "remove":
            deadlines.remove(key)
            model.pop(key, None)
        else:
            now += amount
            found = []
            while (first := deadlines.pop(now)) is not None:
                found.append(first)
            assert sorted(found) == sorted((key, due) for key, due in model.items() if due <= now)
            assert [due for _, due in found] == sorted(due for _, due in found)
            model = {key: due for key, due in model.items() if due > now}
        assert deadlines.next <= min(model.values(), default=inf)
        assert len(deadlines) == len(model)
        assert all(deadlines.get(key) == model.get(key) for key in range(6))
