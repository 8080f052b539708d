"""``bccnd/wire/REPAIR.md`` and ``clients/vectors/repair.json``: they say what the code does."""

import re
from typing import Any

import pytest

from bccnd.relay import announcements, bridge, dedup, gaps, presence, repair, sent
from bccnd.wire import bccn1
from bccnd.wire import repair as wire
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.repair import CHANNEL, Gone, Last, Plain, Relayed, Resend, parse
from tests.documents import DOCUMENTS, blocks, coded, rows, section
from tests.golden import entries, golden
from tests.wire.abnf import expression, grammar, names_in

DOCUMENT = "bccnd/wire/REPAIR.md"
TEXT = DOCUMENTS[DOCUMENT]
RULES = grammar(blocks(DOCUMENT))
GRAMMAR = re.compile(expression(grammar(blocks("bccnd/wire/BCCN1.md")) | RULES, "repair").encode("latin-1"))
WORDS: dict[str, type[Last | Resend | Gone | Plain | Relayed]] = {
    "last": Last,
    "resend": Resend,
    "gone": Gone,
    "plain": Plain,
    "relayed": Relayed,
}

# What the modules refer to, and other documents.
SECTIONS = [
    "Who takes part",
    "Messages",
    "What is kept",
    "What is held back",
    "Announcements",
    "Relayed sources",
    "Security",
]


@pytest.mark.parametrize("title", SECTIONS)
def test_section_is_there(title: str) -> None:
    assert len(section(DOCUMENT, title)) > 200


# --- the grammar ---


def test_every_rule_of_the_grammar_is_used() -> None:
    assert names_in(RULES) >= set(RULES) - {"repair"}


# Of these rules the grammar says nothing: order of numbers, sizes, names that no source has.
BEYOND_THE_GRAMMAR = re.compile(
    r"first after the last|2\^64|without a name|falls?$|overlap|too large|highest number|257|1185"
)


@pytest.mark.parametrize("vector", golden("repair", "invalid"))
def test_what_is_invalid_is_dropped(vector: dict[str, Any]) -> None:
    payload = bytes.fromhex(vector["payload"])
    assert parse(payload) is None
    assert bool(GRAMMAR.fullmatch(payload)) is bool(BEYOND_THE_GRAMMAR.search(vector["name"]))


@pytest.mark.parametrize("vector", golden("repair", "valid"))
def test_what_is_valid_says_what_the_vector_says(vector: dict[str, Any]) -> None:
    payload = bytes.fromhex(vector["payload"])
    assert GRAMMAR.fullmatch(payload)
    message = parse(payload)
    assert type(message) is WORDS[vector["word"]]
    assert in_words(message) == vector["sources"]
    if vector["canonical"]:
        assert written(message) == [payload]


def in_words(message: Last | Resend | Gone | Plain | Relayed) -> list[dict[str, Any]]:
    """As a vector says it."""
    if isinstance(message, Plain | Relayed):
        return [{"src": src.decode()} for src in message.sources]
    if isinstance(message, Last):
        return [
            {"src": src.decode(), "first": None if first is None else str(first), "last": str(last)}
            for src, first, last in message.sources
        ]
    return [
        {"src": src.decode(), "ranges": [[str(each[0]), str(each[-1])] for each in ranges]}
        for src, ranges in message.numbers
    ]


def written(message: Last | Resend | Gone | Plain | Relayed) -> list[bytes]:
    """The payloads that a daemon makes of it."""
    if isinstance(message, Plain):
        return list(wire.plain_payloads(message.sources))
    if isinstance(message, Relayed):
        return list(wire.relayed_payloads(message.sources))
    if isinstance(message, Last):
        return [wire.last_payload(message.sources)]
    return list(wire.number_payloads(b"resend" if isinstance(message, Resend) else b"gone", message.numbers))


# --- the examples ---

EXAMPLES = "".join(block.code for block in blocks(DOCUMENT) if block.language == "vector").splitlines()


@pytest.mark.parametrize("line", EXAMPLES)
def test_example_is_sound(line: str) -> None:
    word, shown = line.split(maxsplit=1)
    datagram = shown.replace("␊", "\n").encode()
    src, _, chan, _, at = Integrity().open(datagram)
    assert (chan, src.rpartition(b"/")[2]) == (CHANNEL, wire.SOURCE_END)
    assert type(parse(datagram[at:])) is WORDS["last" if word == "new" else word]


def test_every_message_is_explained_and_has_its_vectors() -> None:
    assert [coded(word)[0] for word, _ in rows(section(DOCUMENT, "Messages"))] == list(WORDS)
    assert {vector["word"] for vector in entries("repair", "valid")} == set(WORDS)


def test_an_offset_counts_from_the_number_before_it() -> None:
    found = re.search(r"`(\d+ [\d,-]+)` are (\d+), (\d+), (\d+) and (\d+)", TEXT)
    assert found
    message = parse(b"resend\na " + found[1].encode())
    assert isinstance(message, Resend)
    assert [number for each in message.numbers[0][1] for number in each] == list(map(int, found.groups()[1:]))


# --- the limits ---


def test_limits_are_those_of_the_code() -> None:
    stated = {
        what: [int(found) for found in re.findall(r"\d+", size)]
        for what, size in rows(section(DOCUMENT, "Limits"))
    }
    assert stated == {
        "a payload": [wire.PAYLOAD_LIMIT, bccn1.SEND_LIMIT],
        "lines of a payload": [wire.RANGES_LIMIT],
        "ranges of a payload": [wire.RANGES_LIMIT],
        "an offset": [wire.OFFSET_LIMIT],
        "what a receiver looks at in a second, if a single host sends": [
            repair.LINES_PER_SECOND,
            repair.MESSAGE_LINES,
        ],
        "sources with missing numbers": [gaps.GAPS_LIMIT],
    }


def test_the_longest_datagram_is_none_too_long() -> None:
    src = b"h" * (bccn1.SRC_LIMIT - 1) + b"/"
    body = bccn1.Message(src, bccn1.SEQ_LIMIT - 1, CHANNEL, bytes(wire.PAYLOAD_LIMIT)).serialize()
    assert len(Integrity([b"k" * 16], bccn1.Level.HMAC).seal(body)) <= bccn1.SEND_LIMIT


def milliseconds(seconds: float) -> str:
    return f"{round(1000 * seconds)} ms"


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Who takes part", f"the last {gaps.KEPT_SECONDS:.0f} seconds"),
        ("Asking", f"1 to {milliseconds(gaps.SOONEST + gaps.SPREAD)}"),
        ("Asking", f"after {milliseconds(gaps.AGAIN_SECONDS)}"),
        ("Asking", f"of {milliseconds(gaps.AGAIN_SPREAD)} at most"),
        ("Asking", f"{gaps.ASKS_LIMIT} times in all"),
        ("Asking", f"{repair.ASKED_PER_SECOND:.0f} requests a second"),
        ("Asking", f"2^{dedup.JUMP.bit_length() - 1}"),
        ("Sending again", f"in {milliseconds(repair.AGAIN_SECONDS)} at most"),
        ("Sending again", f"`last - {repair.PLAIN_REACH}`"),
        ("Sending again", f"2^{dedup.REACH.bit_length() - 1}"),
        ("Sending again", f"batches of {repair.RESENT_AT_ONCE}"),
        ("What is held back", f"for {gaps.PATIENCE} times as long"),
        ("Announcements", f"every {milliseconds(announcements.EVERY)}"),
        ("Announcements", "{} and {} seconds".format(*announcements.AGAIN)),
        ("Relayed sources", f"every {bridge.SAY_SECONDS:.0f} seconds"),
        ("Relayed sources", f"for {bridge.PART} datagrams at most"),
        ("Relayed sources", f"2^{dedup.JUMP.bit_length() - 1} or more"),
    ],
)
def test_numbers_are_those_of_the_code(title: str, words: str) -> None:
    assert words in " ".join(section(DOCUMENT, title).split())


def test_times_that_are_words_are_those_of_the_code() -> None:
    assert (announcements.NEW_SECONDS, sent.SILENT_SECONDS, repair.RESENT_EVERY) == (1.0, 60.0, 0.001)
    assert (dedup.CLOCKED, bridge.SAY_AGAIN_SECONDS) == (10**15, 1.0)


def test_the_heartbeat_of_the_document_is_understood() -> None:
    found = re.search(r"`(bccnd/<version> repair=<n>)`", TEXT)
    assert found
    text = found[1].replace("<version>", "0.1.0").replace("<n>", "4096").encode()
    assert (presence._version(text), presence._repair(text)) == ("0.1.0", 4096)
