"""Byte strings in their order: against a sorted list, and what a change moves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay import ordered
from bccnd.relay.ordered import BLOCK, OrderedKeys

keys = st.text("ab/", min_size=1, max_size=4).map(str.encode)


@settings(deadline=None, max_examples=300)
@given(script=st.lists(keys, max_size=80), block=st.integers(2, 5))
def test_any_script_against_a_sorted_list(script: list[bytes], block: int):
    """Each key comes, and goes when it is named again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "BLOCK", block)
        found, oracle = OrderedKeys(), list[bytes]()
        for key in script:
            if key in oracle:
                found.remove(key)
                oracle.remove(key)
            else:
                found.add(key)
                oracle = sorted([*oracle, key])
            assert list(found.beginning(b"")) == oracle
            assert len(found) == len(oracle)
            for each in script:
                assert found.first(each) == next((one for one in oracle if one >= each), None)
                assert list(found.beginning(each)) == [one for one in oracle if one.startswith(each)]


def test_what_changes_meanwhile_ends_no_search():
    found = OrderedKeys()
    for number in range(9):
        found.add(b"a/%d" % number)
    search = found.beginning(b"a/")
    assert [next(search) for _ in range(3)] == [b"a/0", b"a/1", b"a/2"]
    for gone in (b"a/2", b"a/3", b"a/1"):
        found.remove(gone)
    found.add(b"a/00")
    found.add(b"a/55")
    assert list(search) == [b"a/4", b"a/5", b"a/55", b"a/6", b"a/7", b"a/8"]


def test_blocks_stay_short_and_few():
    """In order, against it, and when most are gone again."""
    found = OrderedKeys()
    numbers = [*range(0, 20_000, 2), *range(19_999, 0, -2)]
    for number in numbers:
        found.add(b"%05d" % number)
    assert max(map(len, found._blocks)) <= BLOCK
    assert len(found._blocks) <= 20_000 // (BLOCK // 2)
    for number in numbers[:-100]:
        found.remove(b"%05d" % number)
    assert len(found._blocks) <= 4
    assert len(found) == 100
