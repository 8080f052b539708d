"""Who holds how much: the greatest owner, its greatest source, and of that the oldest thing."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.shares import Heaviest, Shares

thorough = settings(deadline=None, max_examples=200)


class Looks(dict[bytes, int]):
    """Counts what is looked up in it."""

    count = 0

    def get(self, key: bytes, default: object = None) -> object:
        self.count += 1
        return super().get(key, default)


@thorough
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 3)), max_size=50))
def test_the_greatest_is_the_one_that_has_most(script: list[tuple[bytes, int]]):
    heaviest = Heaviest()
    weights: Counter[bytes] = Counter()
    for name, weight in script:
        heaviest.add(name, weight - weights[name])
        weights[name] = weight
        most = max(weights.values())
        first = min(name for name in weights if weights[name] == most) if most else b""
        assert heaviest.greatest() == (first, most)
        assert len(heaviest) == len(+weights)
        assert len(heaviest._changes) <= 2 * len(+weights) + 2


def test_the_greatest_is_known_without_a_search():
    heaviest = Heaviest()
    heaviest._weights = looks = Looks()
    for number in range(2000):
        heaviest.add(b"%d" % number, 1 + number % 7)
        heaviest.add(b"%d" % (number // 2), 1)
        heaviest.greatest()
    for _ in range(4000):
        heaviest.add(heaviest.greatest()[0], -1)
    assert looks.count < 10 * 8000


def test_the_greatest_source_of_the_greatest_gives_its_oldest():
    shares = Shares()
    for owner, source, thing, weight in [
        (b"1", b"alone", b"a", 5),
        (b"2", b"little", b"b", 2),
        (b"2", b"much", b"c", 1),
        (b"2", b"much", b"d", 3),
    ]:
        shares.add(owner, source, thing, weight)
    assert (shares.giver(), shares.most, len(shares)) == (b"c", 6, 5)
    shares.add(b"2", b"much", b"c", 0)
    assert shares.giver() == b"d", "the other was renewed"
    shares.remove(b"2", b"much", b"d", 3)
    assert (shares.giver(), shares.most) == (b"a", 5)
    for owner, source, thing, weight in [
        (b"1", b"alone", b"a", 5),
        (b"2", b"little", b"b", 2),
        (b"2", b"much", b"c", 1),
    ]:
        shares.remove(owner, source, thing, weight)
    assert (shares.most, len(shares)) == (0, 0)


def test_who_has_less_than_an_equal_part_gives_nothing():
    shares, things = Shares(), 0
    for number in range(25):
        shares.add(b"modest", b"modest", b"modest/%d" % number, 1)
    for number in range(1000):
        shares.add(b"greedy", b"greedy/%d" % number, b"greedy/%d" % number, 1)
        things += 1
        if things > 75:
            thing = shares.giver()
            assert thing.startswith(b"greedy")
            shares.remove(b"greedy", thing, thing, 1)
            things -= 1
