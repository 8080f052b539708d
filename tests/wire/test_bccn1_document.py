"""``bccnd/wire/BCCN1.md``: its grammar, limits, examples and rules are those of the code."""

import hashlib
import hmac
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from bccnd.errors import WireError
from bccnd.relay.dedup import Sources
from bccnd.relay.options import Dedup
from bccnd.wire import bccn1
from bccnd.wire.bccn1 import Integrity, Message, matches_target, mode_of, valid_src
from bccnd.wire.verdict import DROPPED
from tests.documents import DOCUMENTS, ROOT, blocks, coded, rows, section
from tests.golden import entries
from tests.wire.abnf import expression, grammar, names_in

DOCUMENT = "bccnd/wire/BCCN1.md"
TEXT = DOCUMENTS[DOCUMENT]
BLOCKS = blocks(DOCUMENT)

# What other files refer to.
SECTIONS = [
    "Envelope", "Integrity", "Body", "Sources", "Sequence numbers", "Channels", "Directed targets", "Sizes",
    "Receiving", "Duplicates and restarts", "Forked programs", "Heartbeats", "Requests", "Security", "Extensions",
]  # fmt: skip


@pytest.mark.parametrize("title", SECTIONS)
def test_section_is_there(title: str) -> None:
    assert len(section(DOCUMENT, title)) > 200


# --- the grammar ---

RULES = grammar(BLOCKS)
GRAMMAR = re.compile(expression(RULES, "datagram").encode("latin-1"), re.DOTALL)


def follows_the_grammar(datagram: bytes) -> bool:
    """The rules of ``body`` apply to version 1; of any other version it is any bytes."""
    found = GRAMMAR.fullmatch(datagram)
    return found is not None and datagram.startswith(b"BCCN1[")


def test_every_rule_of_the_grammar_is_used() -> None:
    assert names_in(RULES) >= set(RULES) - {"datagram"}
    assert "BCCN1" not in " ".join(RULES.values())


def test_grammar_takes_what_is_valid() -> None:
    valid = entries("bccn1", "valid")
    assert [each["name"] for each in valid if not follows_the_grammar(bytes.fromhex(each["datagram"]))] == []


# Of these rules a grammar says nothing.
OTHER_RULES = {"truncated", "length", "unauthenticated", "hmac", "crc32", "target"}


def breaks_the_grammar(reason: str, datagram: bytes) -> bool:
    """Whether the rule that is broken is one a grammar can state: not the size of a number or of the brackets."""
    if reason == "sequence":
        seq = datagram.split(b":")[-2] if datagram.count(b":") > 1 else b""
        return not re.fullmatch(rb"\d{1,20}", seq)
    return reason not in OTHER_RULES


def test_grammar_refuses_what_is_malformed() -> None:
    passed = [
        each["name"]
        for each in entries("bccn1", "invalid")
        if breaks_the_grammar(each["reason"], datagram := bytes.fromhex(each["datagram"]))
        and follows_the_grammar(datagram)
    ]
    assert passed == []


def test_names_have_the_bytes_of_the_grammar() -> None:
    name_byte = re.compile(expression(RULES, "name-byte").encode("latin-1"), re.DOTALL)
    for byte in range(256):
        one = bytes([byte])
        assert valid_src(one) == bool(name_byte.fullmatch(one)), one


# --- the limits ---

LIMITS = {
    "a datagram, when sent": [bccn1.SEND_LIMIT],
    "a datagram, when received": [bccn1.RECEIVE_LIMIT],
    "`magic`": [bccn1.MAGIC_LIMIT],
    "between the brackets": [bccn1.BRACKET_LIMIT - 1],
    "`length`": [1, bccn1.LENGTH_DIGITS],
    "`src`": [1, bccn1.SRC_LIMIT],
    "`chan`": [1, bccn1.CHAN_LIMIT],
    "`seq`": [1, len(str(bccn1.SEQ_LIMIT))],
}


def test_sizes_are_those_of_the_code() -> None:
    stated = {
        what: [int(found) for found in re.findall(r"\d+", size)]
        for what, size in rows(section(DOCUMENT, "Sizes"))
    }
    assert stated.pop("`seq`") == [*LIMITS["`seq`"], 2, 64]
    assert stated == {what: size for what, size in LIMITS.items() if what != "`seq`"}


def test_lengths_in_the_grammar_are_those_of_the_code() -> None:
    assert RULES["src"] == f"1*{bccn1.SRC_LIMIT}name-byte"
    assert RULES["chan"] == f"1*{bccn1.CHAN_LIMIT}name-byte"
    assert RULES["length"] == f"1*{bccn1.LENGTH_DIGITS}DIGIT"


def test_room_for_a_payload_counts_right() -> None:
    found = re.search(
        r"a signed message from `(.*?)` to `(.*?)`, with a number of (\d+) digits, has\nroom for (\d+) bytes",
        TEXT,
    )
    assert found
    src, chan, digits, room = found.groups()
    body = Message(src.encode(), 10 ** (int(digits) - 1), chan.encode(), bytes(int(room))).serialize()
    assert len(Integrity([b"k" * 16], bccn1.Level.HMAC).seal(body)) == bccn1.SEND_LIMIT


# --- the examples ---

WRONG = "".join(block.code for block in BLOCKS if block.language == "dropped")
EXAMPLES = re.findall(r"BCCN1\[\d+(?::\w+=\w+)?\][^`'\n]+", TEXT.replace(WRONG, ""))


@pytest.mark.parametrize("shown", EXAMPLES)
def test_example_is_sound(shown: str) -> None:
    Integrity([b"correct horse battery staple"]).open(shown.encode())


@pytest.mark.parametrize("line", WRONG.splitlines())
def test_wrong_example_is_dropped_as_stated(line: str) -> None:
    verdict, datagram = line.split(maxsplit=1)
    with pytest.raises(WireError) as raised:
        Integrity().open(datagram.encode())
    assert raised.value.verdict == verdict


def vectors() -> dict[str, str]:
    lines = "".join(block.code for block in BLOCKS if block.language == "vector").splitlines()
    return dict(line.split(maxsplit=1) for line in lines)


def test_worked_integrity_is_right() -> None:
    vector = vectors()
    key, body = vector["key"].encode(), vector["body"].encode()
    assert vector["HMAC"] == hmac.new(key, body, hashlib.sha256).hexdigest()
    assert vector["hmac"].encode() == Integrity([key], bccn1.Level.HMAC).seal(body)
    assert vector["crc32"].encode() == Integrity([], bccn1.Level.CRC32).seal(body)


@pytest.mark.parametrize("form", ["plain", "all", "directed"])
def test_examples_of_channels_have_their_form(form: str) -> None:
    chan = Integrity().open(vectors()[form].encode())[2]
    assert mode_of(chan) == form
    (channel,) = [coded(row[1])[0] for row in rows(section(DOCUMENT, "Channels")) if row[0] == form]
    assert mode_of(channel.encode()) == form


# --- the rules ---


def functions() -> dict[str, Any]:
    """What the Python of the document defines."""
    defined: dict[str, Any] = {}
    for block in BLOCKS:
        if block.language == "python":
            exec(block.code, defined)  # noqa: S102  # our own document
    return defined


def target_table() -> list[tuple[str, str, bool]]:
    cells = rows(section(DOCUMENT, "Directed targets"))
    return [
        (coded(target)[0], name, matches)
        for target, _, is_for, is_not_for in cells
        for names, matches in ((is_for, True), (is_not_for, False))
        for name in coded(names)
    ]


@pytest.mark.parametrize(("target", "name", "expected"), target_table())
def test_table_of_targets_is_right(target: str, name: str, expected: bool) -> None:
    for function in (matches_target, functions()["for_me"]):
        assert function(target.encode(), name.encode()) is expected


def test_function_of_targets_is_right() -> None:
    for_me = functions()["for_me"]
    for each in entries("directed", "directed"):
        target = each["chan"].removeprefix("!").encode()
        assert for_me(target, each["src"].encode()) is each["matches"], each


@pytest.mark.parametrize("seed", range(20))
def test_function_of_duplicates_is_right(seed: int) -> None:
    chance = random.Random(seed)
    is_new: Callable[[bytes, int], bool] = functions()["is_new"]
    sources, seq = Sources(Dedup(), authenticated=True), 10_000
    for _ in range(2000):
        seq = max(0, seq + chance.choice([1, 1, 1, 2, 0, -1, -30, -999, -1000, -1001, 40, 3000]))
        src = chance.choice([b"a", b"b"])
        delivered = str(sources.observe(src, seq, 0.0)) in ("ok", "new", "restarted")
        assert is_new(src, seq) is delivered


def test_one_forged_number_hides_as_many_as_stated() -> None:
    found = re.search(r"forged number, (\d+) above the last, hides the next (\d+) messages", TEXT)
    assert found
    above, hidden = map(int, found.groups())
    for further, dropped in (0, hidden), (1, 0):
        is_new = functions()["is_new"]
        assert is_new(b"a", 5000)
        assert is_new(b"a", 5000 + above + further)
        assert sum(not is_new(b"a", 5000 + number) for number in range(1, 3 * above)) == dropped


def test_function_of_duplicates_passes_the_vectors() -> None:
    for each in entries("sequences", "plain"):
        is_new = functions()["is_new"]
        assert [number for number in each["numbers"] if is_new(b"a", int(number))] == each["delivered"]


def test_every_verdict_is_explained_in_its_order() -> None:
    words = [coded(word)[0] for word, _ in rows(section(DOCUMENT, "Receiving"))]
    assert words == [str(verdict) for verdict in DROPPED]
    vectors = (
        DOCUMENTS["clients/vectors/README.md"].partition("first of this order counts: ")[2].partition(".")[0]
    )
    assert coded(vectors) == words[: len(coded(vectors))]


@pytest.mark.parametrize(
    ("file", "lists"), [(row[0], row[1]) for row in rows(section(DOCUMENT, "Test vectors"))]
)
def test_vectors_that_are_named_exist(file: str, lists: str) -> None:
    for name in coded(lists):
        assert entries((ROOT / "clients" / "vectors" / coded(file)[0]).stem, name)
