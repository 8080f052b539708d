"""Headers and messages: by the vectors, and as a second codec without protobuf has them."""

import struct
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import DndmError
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import HEADER_LIMIT, Frame, parse
from bccnd.wire.dndm.messages import CONTROL_LIMIT, ENTRIES_LIMIT, KINDS, Known, decode, encode, join
from tests.golden import golden
from tests.wire.dndm import plain_dndm
from tests.wire.dndm.plain_dndm import Fields, written

U64 = st.integers(0, (1 << 64) - 1)
TEXT = st.text(max_size=12)


def said(message: Message) -> dict[str, Any]:
    """As a vector has it: names and values of the fields that are set."""
    found: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=False
    )
    return found


@pytest.mark.parametrize("vector", golden("dndm", "messages"))
def test_a_message_is_what_the_vector_says(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["frame"])
    header, message = decode(parse(data))
    assert said(header) == vector["header"]
    if isinstance(message, bytes):
        assert message.hex() == vector["message"]
        assert join(header, message) == data
    else:
        assert said(message) == vector["message"]
        assert join(header, message.SerializeToString()) == data


@pytest.mark.parametrize("vector", golden("dndm", "wrong_messages"))
def test_a_wrong_message_breaks_its_rule(vector: dict[str, Any]) -> None:
    with pytest.raises(DndmError) as caught:
        decode(parse(bytes.fromhex(vector["frame"])))
    assert caught.value.rule == vector["rule"]


def present(fields: Fields) -> Fields:
    """proto3 leaves out what is zero or empty."""
    return [(number, value) for number, value in fields if value not in (0, b"", 0.0)]


@given(U64, U64, st.booleans(), st.binary(max_size=40), TEXT, st.binary(max_size=40))
def test_a_header_is_that_of_the_second_codec(
    received: int, timestamp: int, wanted: bool, signature: bytes, route: str, message: bytes
) -> None:
    fields: Fields = [
        (1, received), (2, timestamp), (3, 1), (4, int(wanted)), (5, signature), (6, route.encode()),
    ]  # fmt: skip
    data = plain_dndm.frame(written(present(fields)), message)
    header, got = decode(parse(data))
    assert got == message
    assert header == pb.Header(
        receive_timestamp=received,
        timestamp=timestamp,
        type=pb.MESSAGE,
        want_result=wanted,
        signature=signature,
        route=route,
    )
    assert join(header, message) == data


ADVERTS = st.tuples(TEXT, U64, U64, st.booleans())


def advert(number: str, hops: int, ttl: int, register: bool) -> bytes:
    return written(present([(1, number.encode()), (2, hops), (3, ttl), (4, int(register))]))


def test_every_type_of_the_document_is_known() -> None:
    assert {pb.Type.Value(name) for name in plain_dndm.TYPES} - {pb.MESSAGE} == set(KINDS)


@given(st.lists(ADVERTS, max_size=4), st.lists(ADVERTS, max_size=4), TEXT, TEXT, st.integers(0, 3))
def test_a_handshake_is_that_of_the_second_codec(
    intents: list[Any], interests: list[Any], me: str, you: str, stage: int
) -> None:
    fields: Fields = present([(1, me.encode()), (2, you.encode()), (3, stage)])
    fields += [(4, advert(*each)) for each in intents] + [(5, advert(*each)) for each in interests]
    fields += [(6, b"key")]
    message = pb.Handshake(me=me, you=you, stage=pb.Stage.Name(stage), public_key=b"key")
    message.intents.extend(pb.Intent(route=r, hops=h, ttl=t, register=g) for r, h, t, g in intents)
    message.interests.extend(pb.Interest(route=r, hops=h, ttl=t, register=g) for r, h, t, g in interests)
    header, body = plain_dndm.split(encode(message, 7))
    assert plain_dndm.read(header) == [(2, 7), (3, 50)]
    assert plain_dndm.read(body) == fields
    assert decode(Frame(header, written(fields)))[1] == message


SMALL: list[tuple[Known, Fields]] = [
    (pb.Intent(route="a", hops=1, ttl=2, register=True), [(1, b"a"), (2, 1), (3, 2), (4, 1)]),
    (pb.Interest(route="a", hops=1, ttl=2, register=True), [(1, b"a"), (2, 1), (3, 2), (4, 1)]),
    (pb.Intents(intents=[pb.Intent(route="a")]), [(1, b"\x0a\x01a")]),
    (pb.Interests(interests=[pb.Interest(hops=3)]), [(1, b"\x10\x03")]),
    (pb.NotifyIntent(route="T@a"), [(1, b"T@a")]),
    (pb.Result(nonce=300, error=2, description="no"), [(1, 300), (2, 2), (3, b"no")]),
    (pb.Ping(payload=b"p"), [(3, b"p")]),
    (pb.Pong(receive_timestamp=5, ping_timestamp=6, payload=b"p"), [(1, 5), (3, 6), (4, b"p")]),
    (pb.Peers(ids=["tcp://a", "tcp://b"], remove=True), [(1, b"tcp://a"), (1, b"tcp://b"), (2, 1)]),
    (
        pb.Addrbook(
            entries=[
                pb.AddrbookEntry(
                    peer="tcp://a", max_attempts=1, default_backoff=2, max_backoff=3, backoff_multiplier=0.5,
                    attempts=6, failed_attempts=7, last_success=8, backoff=9, persistent=True,
                )
            ]
        ),
        [
            (
                1,
                written(
                    [
                        (1, b"tcp://a"), (2, 1), (3, 2), (4, 3), (5, 0.5), (6, 6), (7, 7), (8, 8), (9, 9),
                        (10, 1),
                    ]
                ),
            )
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "fields"), SMALL, ids=lambda each: type(each).__name__)
def test_a_message_is_that_of_the_second_codec(message: Known, fields: Fields) -> None:
    header, body = plain_dndm.split(encode(message, 1, "T@a"))
    kind = next(number for number, each in KINDS.items() if each is type(message))
    assert plain_dndm.read(header) == [(2, 1), (3, kind), (6, b"T@a")]
    assert plain_dndm.read(body) == fields
    assert decode(Frame(header, written(fields)))[1] == message


def test_unknown_fields_are_passed_over() -> None:
    message = written([(1, b"T@a"), (77, b"later"), (78, 1)])
    header = written([(3, plain_dndm.TYPES["NOTIFY_INTENT"]), (99, 5)])
    got = decode(Frame(header, message))[1]
    assert isinstance(got, pb.NotifyIntent)
    assert got.route == "T@a"


def test_a_headerless_frame_has_the_unspecified_type() -> None:
    assert decode(Frame(None, b"anything")) == (pb.Header(), b"anything")


@pytest.mark.parametrize("number", [0, 10, 49, 53, 1000, 70_000])
def test_messages_of_other_types_stay_bytes(number: int) -> None:
    header, message = decode(Frame(written([(3, number)]), b"\xff\xff"))
    assert (header.type, message) == (number, b"\xff\xff")


def test_long_messages_are_refused_unread() -> None:
    header = written([(3, plain_dndm.TYPES["PING"])])
    payload = bytes(CONTROL_LIMIT - 4)
    assert decode(Frame(header, written([(3, payload)])))[1] == pb.Ping(payload=payload)
    with pytest.raises(DndmError, match="size"):
        decode(Frame(header, b"\xff" * (CONTROL_LIMIT + 1)))
    with pytest.raises(DndmError, match="header"):
        decode(Frame(bytes(HEADER_LIMIT + 1), b""))


@pytest.mark.parametrize("kind", ["INTENTS", "INTERESTS", "PEERS", "ADDRBOOK", "HANDSHAKE"])
def test_entries_of_a_message_are_bounded(kind: str) -> None:
    header = written([(3, plain_dndm.TYPES[kind])])
    entry = struct.pack("BB", (4 if kind == "HANDSHAKE" else 1) << 3 | 2, 0)
    assert decode(Frame(header, entry * ENTRIES_LIMIT))
    with pytest.raises(DndmError, match="entries"):
        decode(Frame(header, entry * (ENTRIES_LIMIT + 1)))
