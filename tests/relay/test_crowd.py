"""Who announces how much, against a count of all; and a cost that does not grow with the table."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.crowd import Crowd, address_of, host_of

members = st.tuples(
    st.sampled_from([b"a/1", b"a/2", b"b/1", b"b/2", b"c/1", b"c", b"a"]), st.sampled_from([b"", b"x", b"y"])
)


@settings(deadline=None, max_examples=300)
@given(steps=st.lists(members, max_size=60))
def test_gives_who_has_most(steps: list[tuple[bytes, bytes]]) -> None:
    crowd = Crowd()
    inside: dict[bytes, bytes] = {}
    for src, address in steps:
        if src in inside:
            crowd.remove(src)
            del inside[src]
        else:
            crowd.add(src, address)
            inside[src] = address
        assert list(crowd) == list(inside)
        assert len(crowd) == len(inside)
        if not inside:
            continue
        hosts = Counter(host_of(each) for each in inside)
        addresses = Counter(inside.values())
        giver = crowd.giver(b"new/1", b"x")
        most = addresses if giver.by_address else hosts
        assert len(crowd.members(giver)) == most[giver.name]
        assert most[giver.name] == max(most.values()) or (
            giver.newcomer and most[giver.name] + 1 >= max(most.values())
        )


def test_the_newcomers_own_host_gives_when_it_would_have_most() -> None:
    crowd = Crowd()
    for src in (b"a/1", b"a/2", b"b/1"):
        crowd.add(src, b"of " + src[:1])
    assert crowd.giver(b"a/3", b"of a")[::2] == (b"of a", True)
    assert crowd.giver(b"b/2", b"of b")[::2] == (b"of b", True)
    assert crowd.giver(b"c/1", b"of c")[::2] == (b"of a", False)
    assert list(crowd.members(crowd.giver(b"c/1", b"of c"))) == [b"a/1", b"a/2"]


def test_a_host_gives_whose_name_comes_from_everywhere() -> None:
    """The addresses are invented, which takes rights on a host of the segment."""
    crowd = Crowd()
    for number in range(10):
        crowd.add(b"a/%d" % number, b"%d" % number)
    assert crowd.giver(b"b/1", b"b")[::2] == (b"a", False)


def test_sources_of_this_host_stay_when_another_invents_hosts() -> None:
    crowd = Crowd()
    for number in range(10):
        crowd.add(b"here/%d" % number, b"")
        crowd.add(b"invented%d/1" % number, b"x")
        crowd.add(b"invented%d/2" % number, b"x")
    assert crowd.giver(b"here/10", b"")[::2] == (b"x", False)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (b"10.0.0.1:5400", b"10.0.0.1"),
        (b"[fe80::1%eth0]:5400", b"fe80::1"),
        (b"[::1]:5400", b"::1"),
        (b"local", b""),
        (b"", b""),
    ],
)
def test_the_address_of_a_peer(peer: bytes, address: bytes) -> None:
    assert address_of(peer) == address
