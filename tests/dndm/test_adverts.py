"""Adverts: their ends, their bounds, their hops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.dndm.adverts import HOPS_LIMIT, TTL_LIMIT, Advert, Adverts, listed, refusal
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import peers, routes
from bccnd.wire.dndm.messages import Known


def advert(name: str, hops: int = 0, ttl: float = 0.0) -> Advert:
    return Advert(routes.Plain("T", name), hops, ttl)


def adverts(limit: int = 4) -> Adverts:
    return Adverts(limit, Alarm())


def test_an_advert_ends_when_its_time_passes_unused() -> None:
    table = adverts()
    table.put(1, advert("a", ttl=5), 0.0)
    assert table.next == 5
    assert list(table.ended(4.9)) == []
    table.use(1, "T@a", 4.9)
    assert list(table.ended(9.8)) == []
    assert list(table.ended(10.0)) == ["T@a"]
    assert table.of("T@a") == {}
    assert table.count(1) == 0


@pytest.mark.parametrize("ttl", [0.0, TTL_LIMIT + 1])
def test_an_advert_without_a_time_ends_with_its_link(ttl: float) -> None:
    table = adverts()
    table.put(1, advert("a", ttl=5), 0.0)
    table.put(1, advert("a", ttl=ttl), 0.0)
    assert list(table.ended(1e9)) == []
    assert table.drop_link(1) == ["T@a"]
    assert table.ids() == []


def test_a_link_has_so_many_routes_and_no_more() -> None:
    table = adverts(limit=2)
    assert [table.put(1, advert(name), 0.0) for name in "abab"] == [""] * 4
    assert table.put(1, advert("c"), 0.0) == "limit"
    assert table.put(2, advert("c"), 0.0) == ""
    assert table.drop(1, "T@a")
    assert not table.drop(1, "T@a")
    assert table.put(1, advert("c"), 0.0) == ""


def test_too_many_hops_take_an_advert_back() -> None:
    table = adverts()
    assert table.put(1, advert("a", HOPS_LIMIT - 1), 0.0) == ""
    assert table.beyond("T@a", 2) is None
    assert table.put(1, advert("a", HOPS_LIMIT), 0.0) == "hops"
    assert table.of("T@a") == {}


def test_the_nearest_of_the_others_is_passed_on() -> None:
    table = adverts()
    table.put(1, advert("a", 3), 0.0)
    table.put(2, advert("a", 1), 0.0)
    assert [table.beyond("T@a", link) for link in (1, 2, 3)] == [2, 4, 2]


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "drop", "link", "end"]), st.integers(1, 3), st.sampled_from("abcd"))
    )
)
def test_counts_are_those_of_the_adverts(steps: list[tuple[str, int, str]]) -> None:
    table = adverts(limit=3)
    for now, (what, link, name) in enumerate(steps):
        match what:
            case "put":
                table.put(link, advert(name, ttl=ord(name) - 95.0), float(now))
            case "drop":
                table.drop(link, f"T@{name}")
            case "link":
                table.drop_link(link)
            case _:
                list(table.ended(float(now)))
        held = [link for route_id in table.ids() for link in table.of(route_id)]
        assert all(table.count(link) == held.count(link) <= 3 for link in (1, 2, 3))
    list(table.ended(1e9))
    assert table.ids() == []


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (pb.Intent(), 1),
        (pb.Interest(), 1),
        (pb.Intents(intents=[pb.Intent()] * 2), 2),
        (pb.Interests(interests=[pb.Interest()] * 3), 3),
        (pb.Handshake(intents=[pb.Intent()], interests=[pb.Interest()]), 2),
        (pb.Peers(ids=["a"]), 0),
    ],
)
def test_the_adverts_of_a_message_are_listed(message: Known, count: int) -> None:
    assert len(listed(message)) == count


def test_strictly_an_intent_is_within_the_path() -> None:
    peer = peers.parse("tcp://a:1/arm")
    assert refusal(peer, pb.Intent(), routes.parse("T@arm.left")) == ""
    assert refusal(peer, pb.Intent(), routes.parse("T@leg")) == "path"
    assert refusal(peer, pb.Interest(), routes.parse("T@leg")) == ""
    assert refusal(peer, pb.Interest(), routes.parse("leg#abc")) == "route"
