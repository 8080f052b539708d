"""Routes and the channels that stand for them: by the vectors, and both ways for any route."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import DndmError
from bccnd.relay.pattern import check, matches
from bccnd.wire.dndm.routes import CHANNEL_LIMIT, ROUTE_LIMIT, Hashed, Plain, hashed, is_sha1, parse, route_of
from tests.golden import golden

# Of a text with what means something to routes, channels or patterns.
NAMES = st.text(
    st.sampled_from("aB9_-.%/*>! :|\\\t\0é☃😀~+=2F") | st.characters(codec="utf-8"), max_size=12
).filter(lambda text: not re.search("[@#]", text))
PLAIN = st.builds(Plain, NAMES.filter(bool), NAMES.filter(bool))
SHA1 = st.from_regex(r"\A[A-Za-z0-9+/]{26}[AEIMQUYcgkosw048]\Z")
HASHED = st.builds(Hashed, NAMES, SHA1 | NAMES.filter(bool)) | st.builds(Hashed, st.none(), SHA1)


@pytest.mark.parametrize("vector", golden("dndm", "routes"))
def test_a_route_is_the_channel_of_the_vector(vector: dict[str, Any]) -> None:
    route = parse(vector["route"])
    assert str(route) == vector["route"]
    assert route.id == vector["id"]
    assert route.path == vector["path"]
    assert route.channel() == vector["channel"]
    assert route_of(vector["channel"]) == route


@pytest.mark.parametrize("vector", golden("dndm", "wrong_routes"))
def test_a_wrong_route_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(DndmError, match="route"):
        parse(vector["route"])


@pytest.mark.parametrize("vector", golden("dndm", "wrong_channels"))
def test_a_channel_of_no_route_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(DndmError):
        route_of(vector["channel"])


@pytest.mark.parametrize("vector", golden("dndm", "hashes"))
def test_a_hash_is_that_of_the_vector(vector: dict[str, Any]) -> None:
    plain = parse(vector["plain"])
    assert isinstance(plain, Plain)
    route = hashed(vector["prefix"], plain)
    assert str(route) == vector["route"]
    assert is_sha1(route)
    assert parse(vector["route"].partition("#")[2]).id == route.id


@given(PLAIN | HASHED)
def test_a_route_comes_back_from_its_channel(route: Plain | Hashed) -> None:
    assert parse(str(route)) == route
    channel = route.channel()
    assert re.fullmatch(r"dndm/(#/)?[A-Za-z0-9_.%/-]*", channel)
    assert route_of(channel) == route


@given(PLAIN | HASHED, PLAIN | HASHED)
def test_two_routes_have_two_channels(one: Plain | Hashed, other: Plain | Hashed) -> None:
    assert (one.channel() == other.channel()) is (one == other)


@given(st.text(st.sampled_from("dnm/#%20aF_-.☃"), max_size=20))
def test_no_two_channels_are_one_route(text: str) -> None:
    for channel in (f"dndm/{text}", f"dndm/#/{text}"):
        try:
            route = route_of(channel)
        except DndmError:
            continue
        assert route.channel() == channel


@given(PLAIN | HASHED)
def test_a_channel_as_a_pattern_matches_itself_alone(route: Plain | Hashed) -> None:
    channel = route.channel().encode()
    check(channel, b"/")
    assert matches(channel, b"/", channel)
    assert not matches(channel, b"/", channel + b"x")
    assert not matches(channel, b"/", channel + b"/x")


def test_routes_and_channels_have_a_limit() -> None:
    longest = "T@" + "a" * (ROUTE_LIMIT - 2)
    with pytest.raises(DndmError, match="channel"):
        parse(longest).channel()
    assert parse("T@" + "a" * (CHANNEL_LIMIT - 7)).channel()
    with pytest.raises(DndmError, match="route"):
        parse(longest + "a")
    with pytest.raises(DndmError, match="route"):
        parse("T@\ud800")


def test_a_prefix_is_a_beginning_of_the_path() -> None:
    with pytest.raises(DndmError, match="route"):
        hashed("b", Plain("T", "a.b"))
    with pytest.raises(DndmError, match="route"):
        hashed("", Plain("T", "a.b"))


def test_a_foreign_hash_is_none_of_the_protocol() -> None:
    foreign = parse("example#AbCdEfGhIjKlMnOpQrStUvWxYz1234567890")
    assert isinstance(foreign, Hashed)
    assert not is_sha1(foreign)
