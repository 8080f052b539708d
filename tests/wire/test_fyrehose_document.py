"""``bccnd/wire/FYREHOSE.md`` says what the code does."""

import re

import pytest

from bccnd.backbone.leases import LEASE_SECONDS
from bccnd.process.keys import KEY_BYTES_MAX, KEY_BYTES_MIN
from bccnd.wire import fyrehose
from bccnd.wire.fyrehose import Ack, Deliver, Forward, Keepalive, Packet, Push, Request, parse
from tests.documents import blocks, coded, rows, section

DOCUMENT = "bccnd/wire/FYREHOSE.md"
KINDS: dict[str, tuple[type[Packet], int]] = {
    "DELIVER": (Deliver, fyrehose.DELIVER),
    "PUSH": (Push, fyrehose.PUSH),
    "REQUEST": (Request, fyrehose.REQUEST),
    "FORWARD": (Forward, fyrehose.FORWARD),
    "KEEPALIVE": (Keepalive, fyrehose.KEEPALIVE),
    "KEEPALIVE-ACK": (Ack, fyrehose.ACK),
}
EXAMPLES = "".join(block.code for block in blocks(DOCUMENT) if block.language == "packet").splitlines()


@pytest.mark.parametrize("row", rows(section(DOCUMENT, "Packets"))[: len(KINDS)], ids=lambda row: row[0])
def test_the_table_of_kinds_is_that_of_the_code(row: list[str]) -> None:
    name, fields, size = row
    kind, number = KINDS[name.split()[1]]
    assert int(coded(name)[0], 16) == kind.kind == number
    assert 1 + sum(map(int, re.findall(r" (\d+)", fields))) == int(re.findall(r"\d+", size)[0])


@pytest.mark.parametrize("line", EXAMPLES, ids=lambda line: line.split()[0])
def test_example_is_sound(line: str) -> None:
    name, *hexadecimal = line.split()
    packet = parse(bytes.fromhex("".join(hexadecimal)))
    assert type(packet).__name__.lower() == name
    assert packet.serialize() == bytes.fromhex("".join(hexadecimal))


def test_there_is_an_example_of_every_kind() -> None:
    assert [line.split()[0] for line in EXAMPLES] == [kind.__name__.lower() for kind, _ in KINDS.values()]


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Limits", f"at most {fyrehose.PACKET_LIMIT} bytes"),
        (
            "Limits",
            f"at most {fyrehose.DATA_LIMIT} bytes. Over Ethernet {1500 - 28 - fyrehose.HEAD_BYTES} travel",
        ),
        ("Limits", f"below 2^{fyrehose.SEQ_LIMIT.bit_length() - 1}"),
        ("Packets", f"counts the whole packet, {fyrehose.HEAD_BYTES} more"),
        ("Packets", f"`{fyrehose.NOSUBSCRIBE:#x}` NOSUBSCRIBE and `{fyrehose.NOJOURNAL:#x}` NOJOURNAL"),
        ("The client", f"for {LEASE_SECONDS:.0f} seconds"),
        ("Keys", f"secrets of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes"),
        ("Keys", f"is {fyrehose.PROOF_BYTES} bytes that the client chooses"),
    ],
)
def test_numbers_are_those_of_the_code(title: str, words: str) -> None:
    assert words in " ".join(section(DOCUMENT, title).split())
