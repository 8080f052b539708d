"""``bccnd/wire/LINK.md`` and ``clients/vectors/link.json``: they say what the code does."""

import re
from typing import Any

import pytest

from bccnd.uplink import core, exports, homes, inbound, journal
from bccnd.wire import bccn1, fyrehose, link
from bccnd.wire.link import Numbered, Seal, Status, messages
from tests.documents import DOCUMENTS, blocks, coded, rows, section
from tests.golden import golden
from tests.wire.abnf import expression, grammar, names_in

DOCUMENT = "bccnd/wire/LINK.md"
RULES = grammar(blocks(DOCUMENT))
ALL = grammar(blocks("bccnd/wire/BCCN1.md")) | RULES
EXAMPLES = dict(
    line.split(maxsplit=1)
    for block in blocks(DOCUMENT)
    if block.language == "vector"
    for line in block.code.splitlines()
)


def matches(rule: str, data: bytes) -> bool:
    return re.fullmatch(expression(ALL, rule).encode("latin-1"), data) is not None


def payload(datagram: bytes) -> bytes:
    return datagram.partition(b"|")[2]


# --- the grammar ---


def test_every_rule_of_the_grammar_is_used() -> None:
    assert names_in(RULES) >= set(RULES) - {"src", "numbered", "status"}


@pytest.mark.parametrize("vector", golden("link", "valid"))
def test_what_is_valid_is_in_the_grammar(vector: dict[str, Any]) -> None:
    assert matches("src", vector["src"].encode())
    assert matches(vector["kind"], payload(bytes.fromhex(vector["datagram"])))


# Of these rules the grammar says nothing: the messages are BCCN1's, and a status has lines of any words.
BEYOND_THE_GRAMMAR = {"form", "size", "key", "channel", "inside", "status"}


@pytest.mark.parametrize("vector", golden("link", "invalid"))
def test_what_is_invalid_is_not_or_breaks_a_limit(vector: dict[str, Any]) -> None:
    datagram = bytes.fromhex(vector["datagram"])
    src = datagram.partition(b"]")[2].partition(b":")[0]
    sound = vector["rule"] in BEYOND_THE_GRAMMAR or (
        matches("src", src) and matches("numbered", payload(datagram))
    )
    assert sound is (
        vector["rule"] in BEYOND_THE_GRAMMAR or "above" in vector["name"] or "of 0" in vector["name"]
    )


# --- the examples ---


def test_examples_are_sound() -> None:
    key = EXAMPLES.pop("key").encode()
    found = {}
    for name, shown in EXAMPLES.items():
        datagram = shown.replace("␊", "\n").encode()
        seal = Seal([key] if name == "signed" else [])
        found[name] = header = seal.open(datagram)
        if isinstance(header, Numbered):
            assert messages(datagram, header.at)
    src = found["one"].src
    assert found["status"] == Status(src, 17, 19, (b"relay01",))
    assert EXAMPLES["signed"].partition("]")[2] == EXAMPLES["one"].partition("]")[2]


def test_the_channels_are_those_of_the_code() -> None:
    assert [coded(row[0])[0].encode() for row in rows(section(DOCUMENT, "Datagrams"))] == [
        link.CHANNEL,
        link.STATUS_CHANNEL,
    ]


def test_what_is_never_carried_is_named() -> None:
    words = section(DOCUMENT, "Sending")
    assert all(f"`{each.decode()}>`" in words for each in exports.NEVER)


# --- the limits ---


def test_limits_are_those_of_the_code() -> None:
    stated = {
        what: [int(found) for found in re.findall(r"(?<![\^\w])\d+(?!\^)", re.sub(r"\(.*?\)", "", size))]
        for what, size in rows(section(DOCUMENT, "Limits"))
    }
    assert stated == {
        "a datagram": [link.DATAGRAM_LIMIT],
        "a message in it": [bccn1.RECEIVE_LIMIT],
        "the name of a segment": [link.SEGMENT_LIMIT],
        "the payload of a status": [link.STATUS_LIMIT, bccn1.SEND_LIMIT],
        "lines of a status": [link.LINES_LIMIT],
        "a link number": [],
        "links that a receiver knows": [inbound.LINKS_LIMIT, inbound.PROVEN, int(inbound.SILENT_SECONDS)],
        "hosts that a receiver knows": [homes.HOSTS_LIMIT, homes.ALL_HOSTS_LIMIT],
    }
    assert link.DATAGRAM_LIMIT == fyrehose.DATA_LIMIT
    assert link.NUMBER_LIMIT == 2**64


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Sending", f"continues 2^{journal.RESTART_JUMP.bit_length() - 1} above"),
        (
            "Sending",
            "also {:.0f} and {:.0f} milliseconds after".format(*(1000 * each for each in core.LAST_SECONDS)),
        ),
        ("Receiving", f"A gap of 2^{inbound.GAP_LIMIT.bit_length() - 1} numbers"),
    ],
)
def test_numbers_are_those_of_the_code(title: str, words: str) -> None:
    assert words in " ".join(section(DOCUMENT, title).split())


def test_times_that_are_words_are_those_of_the_code() -> None:
    assert (core.STATUS_SECONDS, core.ECHO_SECONDS, homes.HOME_SECONDS) == (1.0, 1.0, 180.0)
    assert "for three minutes" in " ".join(DOCUMENTS[DOCUMENT].split())
