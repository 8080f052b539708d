"""Datagrams of links: by the vectors, there and back, and nothing else is taken."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import LinkError
from bccnd.wire import link
from bccnd.wire.bccn1 import RECEIVE_LIMIT, SRC_LIMIT, Integrity, Level
from bccnd.wire.link import (
    DATAGRAM_LIMIT,
    NUMBER_LIMIT,
    SEGMENT_LIMIT,
    STATUS_LIMIT,
    Inner,
    Numbered,
    Seal,
    Status,
    inner,
    messages,
    segment_of,
    source,
    status_hosts,
)
from tests.golden import golden

SRC = b"berlin/uplink/0123456789abcdef"
KEY = b"k" * 16
ONE = b"BCCN1[20]relay01/a/1:7:door|x"
NAMES = st.binary(min_size=1, max_size=12).map(bytes.hex).map(str.encode)


def keys(vector: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(vector["key"])] if vector["key"] else []


def opened(datagram: bytes, seal: Seal) -> tuple[Numbered | Status, list[Inner]]:
    header = seal.open(datagram)
    return header, messages(datagram, header.at) if isinstance(header, Numbered) else []


@pytest.mark.parametrize("vector", golden("link", "valid"))
def test_what_is_valid_says_what_the_vector_says(vector: dict[str, Any]) -> None:
    datagram, seal = bytes.fromhex(vector["datagram"]), Seal(keys(vector))
    header, inside = opened(datagram, seal)
    assert (header.src, header.floor) == (vector["src"].encode(), int(vector["floor"]))
    if isinstance(header, Status):
        hosts = [host.encode() for host in vector["hosts"]]
        assert (vector["kind"], header.next, list(header.hosts)) == ("status", int(vector["next"]), hosts)
        again = seal.status(header.src, int(vector["number"]), header.floor, header.next, hosts)
    else:
        said = [
            (each["src"].encode(), int(each["seq"]), each["chan"].encode()) for each in vector["messages"]
        ]
        assert (vector["kind"], header.number) == ("numbered", int(vector["number"]))
        assert [each[1:4] for each in inside] == said
        for each, message in zip(vector["messages"], inside, strict=True):
            assert message[0] == f"{each['src']}:{each['seq']}".encode()
            assert message[4].partition(b"|")[2].hex() == each["payload"]
        written = [
            b"%b:%d:%b|%b" % (*fields, bytes.fromhex(each["payload"]))
            for fields, each in zip(said, vector["messages"], strict=True)
        ]
        again = seal.numbered(
            header.src, header.number, header.floor, b"".join(map(Integrity().seal, written))
        )
    assert (again == datagram) is vector["canonical"]


@pytest.mark.parametrize("vector", golden("link", "invalid"))
def test_what_is_invalid_breaks_its_rule(vector: dict[str, Any]) -> None:
    with pytest.raises(LinkError) as caught:
        opened(bytes.fromhex(vector["datagram"]), Seal(keys(vector)))
    assert caught.value.rule == vector["rule"]


@given(
    st.integers(1, NUMBER_LIMIT - 1).flatmap(
        lambda number: st.tuples(st.just(number), st.integers(1, number))
    ),
    st.lists(st.tuples(NAMES, st.integers(0, 2**64 - 1), NAMES, st.binary(max_size=50)), max_size=5),
    st.booleans(),
)
def test_messages_there_and_back(
    numbers: tuple[int, int], said: list[tuple[bytes, int, bytes, bytes]], signed: bool
) -> None:
    """As they leave the segment, with a sum or without; and as they come."""
    segment = Integrity([b"segment" * 3], Level.HMAC) if signed else Integrity()
    inside = [inner(segment.seal(b"%b:%d:%b|%b" % each)) for each in said]
    assert None not in inside
    sealed = Seal([KEY]).numbered(SRC, *numbers, b"".join(each[4] for each in inside if each))
    header, found = opened(sealed, Seal([b"old" * 8, KEY]))
    assert isinstance(header, Numbered)
    assert (header.src, header.number, header.floor) == (SRC, *numbers)
    assert found == inside
    assert [each[:4] for each in found] == [(b"%b:%d" % each[:2], *each[:3]) for each in said]


@given(st.lists(NAMES, max_size=200, unique=True), st.integers(0, 300))
def test_hosts_are_named_in_turn_as_far_as_there_is_room(hosts: list[bytes], at: int) -> None:
    at = at % max(1, len(hosts))
    named: list[bytes] = []
    for _ in range(len(hosts)):
        some, following = status_hosts(hosts, at)
        assert some
        sealed = Seal([KEY]).status(SRC, NUMBER_LIMIT - 1, NUMBER_LIMIT, NUMBER_LIMIT, some)
        assert Seal([KEY]).open(sealed) == Status(SRC, NUMBER_LIMIT, NUMBER_LIMIT, tuple(some))
        named += some
        at = following
    assert set(named) == set(hosts)


def test_the_longest_status_fits_a_datagram_of_the_segment() -> None:
    src = source(b"s" * SEGMENT_LIMIT, b"0" * 16)
    sealed = Seal([KEY]).status(src, NUMBER_LIMIT - 1, 1, 1, [])
    room = STATUS_LIMIT - len(b"floor 1\nnext 1")
    assert len(sealed) + room + SRC_LIMIT - len(src) <= 1400


def test_the_longest_datagram_is_taken_and_none_longer() -> None:
    message = inner(Integrity().seal(b"a:1:b|" + bytes(2000)))
    assert message
    for room, fits in ((0, True), (1, False)):
        count = 32
        short = len(Seal().numbered(SRC, 1, 1, message[4] * count))
        size = DATAGRAM_LIMIT + room - short
        payload = Integrity().seal(b"a:1:b|" + bytes(size - len(b"BCCN1[123]a:1:b|")))
        sealed = Seal().numbered(SRC, 1, 1, message[4] * count + payload)
        assert len(sealed) == DATAGRAM_LIMIT + room
        if fits:
            assert len(opened(sealed, Seal())[1]) == count + 1
        else:
            with pytest.raises(LinkError, match="size"):
                Seal().open(sealed)


@pytest.mark.parametrize(
    "datagram",
    [
        b"", b"BCCN1[3]abc", b"BCCN1[5]a:1:b|c", b"BCCN1[8]a:1:b|c", b"BCCN1[7]?:1:b|c", b"BCCN1[8]a:1:!?|c",
        b"BCCN1[26]a:18446744073709551616:b|c", b"BCCN1[7:md5=00]a:1:b|c", b"BCCN2[7]a:1:b|c",
        b"BCCN1[%d]a:1:b|%b" % (RECEIVE_LIMIT, bytes(RECEIVE_LIMIT - 6)),
    ],
)  # fmt: skip
def test_what_is_no_message_goes_into_no_link(datagram: bytes) -> None:
    assert inner(datagram) is None


def test_a_message_is_known_by_its_number_without_zeros() -> None:
    one, other = inner(b"BCCN1[7]a:7:b|c"), inner(b"BCCN1[0009:crc32=00000000]a:007:b|c")
    assert one
    assert other
    assert one[:4] == other[:4] == (b"a:7", b"a", 7, b"b")
    assert other[4] == b"BCCN1[0009]a:007:b|c"


def test_a_source_is_a_segment_and_an_instance() -> None:
    assert source(b"berlin", b"0123456789abcdef") == SRC
    assert segment_of(SRC) == b"berlin"
    assert link.valid_segment(b"site-1.berlin")
    assert not link.valid_segment(b"a/b")
    assert link.valid_host(b"relay01.lan")
    assert not link.valid_host(b"")
    with pytest.raises(ValueError, match="short"):
        source(b"berlin", b"short")


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_opened_or_refused(data: bytes, numbered: bool) -> None:
    body = b"%b:5:%b|%b" % (SRC, link.CHANNEL if numbered else link.STATUS_CHANNEL, data)
    for datagram in (data, Integrity().seal(body)):
        try:
            opened(datagram, Seal())
        except LinkError:
            continue
