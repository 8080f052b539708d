"""``bccnd/wire/DNDM.md`` says what the code does."""

import re

import pytest

from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import peers, routes
from bccnd.wire.dndm.frame import FRAME_LIMIT, HEADER_LIMIT, HEADERLESS, LINE_LIMIT, MAGIC, parse
from bccnd.wire.dndm.messages import CONTROL_LIMIT, ENTRIES_LIMIT, decode
from tests.documents import blocks, coded, rows, section

DOCUMENT = "bccnd/wire/DNDM.md"
EXAMPLES = "".join(block.code for block in blocks(DOCUMENT) if block.language == "frame").splitlines()


@pytest.mark.parametrize("line", EXAMPLES, ids=lambda line: line.split()[0])
def test_example_is_sound(line: str) -> None:
    name, *hexadecimal = line.split()
    data = bytes.fromhex("".join(hexadecimal))
    frame = parse(data)
    assert frame.serialize() == data
    assert (frame.header is None) is (name == "headerless")
    assert decode(frame)


def test_the_magics_are_those_of_the_code() -> None:
    assert [coded(row[1])[0] for row in rows(section(DOCUMENT, "Frames"))] == [
        MAGIC.hex().upper(),
        HEADERLESS.hex().upper(),
    ]


def test_the_types_are_those_of_the_code() -> None:
    said = {
        name: int(number)
        for row in rows(section(DOCUMENT, "Messages"))
        for name, number in zip(coded(row[0]), row[1].split(", "), strict=True)
    }
    known = {name: number for name, number in pb.Type.items() if 0 < number < pb.USER_TYPES}
    assert said == known


@pytest.mark.parametrize("row", rows(section(DOCUMENT, "Channels")), ids=lambda row: coded(row[0])[0])
def test_routes_are_the_channels_of_the_table(row: list[str]) -> None:
    (route,), (channel,) = coded(row[0]), coded(row[1])
    assert routes.parse(route).channel() == channel
    assert str(routes.route_of(channel)) == route


def test_peers_that_are_named_are_peers() -> None:
    named = [each for each in coded(section(DOCUMENT, "Peers")) if re.match("(tcp|serial)://", each)]
    assert len(named) == 3
    assert [peers.parse(each).address for each in named] == [
        "192.168.1.100:8080",
        "/dev/ttyUSB0",
        "/dev/ttyUSB0",
    ]


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Frames", f"at most {HEADER_LIMIT} bytes"),
        ("Frames", f"a frame at most {FRAME_LIMIT}, on a serial line {LINE_LIMIT}"),
        ("Messages", f"at most {CONTROL_LIMIT} bytes and {ENTRIES_LIMIT} entries"),
        ("Messages", f"Types from {pb.USER_TYPES}"),
        ("Routes", f"at most {routes.ROUTE_LIMIT} bytes"),
        ("Channels", f"at most {routes.CHANNEL_LIMIT} characters"),
        ("Peers", f"at most {peers.PEER_LIMIT} bytes and {peers.PARAMS_LIMIT} parameters"),
        ("Peers", f"`baud` ({peers.BAUD})"),
    ],
)
def test_numbers_are_those_of_the_code(title: str, words: str) -> None:
    assert words in " ".join(section(DOCUMENT, title).split())
