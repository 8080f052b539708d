"""Addresses of peers: by the vectors; devices and paths told apart; settings of serial lines."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import DndmError
from bccnd.wire.dndm.peers import PEER_LIMIT, Serial, parse
from tests.golden import golden


@pytest.mark.parametrize("vector", golden("dndm", "peers"))
def test_a_peer_is_what_the_vector_says(vector: dict[str, Any]) -> None:
    peer = parse(vector["peer"])
    assert (peer.scheme, peer.address, peer.path) == (vector["scheme"], vector["address"], vector["path"])
    assert dict(peer.params) == vector["params"]
    assert str(peer) == vector["peer"]
    if "serial" in vector:
        assert peer.serial() == Serial(*vector["serial"])


@pytest.mark.parametrize("vector", golden("dndm", "wrong_peers"))
def test_a_wrong_peer_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(DndmError, match="peer"):
        parse(vector["peer"]).serial()


@pytest.mark.parametrize("vector", golden("dndm", "covers"))
def test_a_path_covers_what_the_vector_says(vector: dict[str, Any]) -> None:
    peer = parse(f"tcp://a:1/{vector['peer_path']}")
    assert peer.covers(vector["path"]) is vector["covers"]


def test_both_forms_of_a_device_are_one_place() -> None:
    forms = ["serial:///dev/ttyUSB0/arm", "serial://.dev.ttyUSB0/arm", "serial://ttyUSB0/arm?baud=9600"]
    assert {parse(form).place for form in forms} == {("serial", "/dev/ttyUSB0")}
    assert {parse(form).path for form in forms} == {"arm"}


def test_addresses_are_short() -> None:
    base = "tcp://a:1/"
    assert parse(base + "x" * (PEER_LIMIT - len(base)))
    with pytest.raises(DndmError, match="peer"):
        parse(base + "x" * (PEER_LIMIT - len(base) + 1))


@given(st.text(max_size=40) | st.text(st.sampled_from("serialtcp:/?&=#@.[]%20v"), max_size=30))
def test_any_text_is_a_peer_or_refused(text: str) -> None:
    for peer in (text, f"serial://{text}", f"tcp://{text}"):
        with suppress(DndmError):
            assert str(parse(peer)) == peer
