"""``clients/BPMUX.md`` says what the code and the vectors say."""

import re

import pytest

from bpmux import arrivals, chunks, heartbeats
from bpmux.chunks import HEADS, NAMES, PAYLOAD_KINDS, TOP, Chunk, parse
from bpmux.entities import NEXT, State, Step
from bpmux.limits import PIECE_LIMIT, SMALL_GRANT, TOP_LEVEL_RESERVE, Limits
from tests.documents import blocks, coded, rows, section
from tests.golden import entries

DOCUMENT = "clients/BPMUX.md"
EXAMPLES = "".join(block.code for block in blocks(DOCUMENT) if block.language == "chunk").splitlines()
CONVERSATIONS = [block.code.splitlines() for block in blocks(DOCUMENT) if block.language == "conversation"]
VECTORS = {entry["name"]: entry for entry in entries("bpmux", "conversations")}
KINDS = {name: kind for kind, name in NAMES.items()}
TYPES = rows(section(DOCUMENT, "Chunks"))


def kind_of(tag: int) -> int | None:
    head = HEADS[tag]
    return head[0] if head else None


def chunk_of(words: str) -> Chunk:
    """``message 7 hi``: kind, id or "-", and what the payload or the number is."""
    name, ident, rest = re.fullmatch(r"(\S+) (\S+) ?(.*)", words.strip()).groups()  # type: ignore[union-attr]
    kind = KINDS[name]
    if kind in PAYLOAD_KINDS:
        return Chunk(kind, TOP if ident == "-" else int(ident), len(rest), rest.encode())
    return Chunk(kind, TOP if ident == "-" else int(ident), int(rest or 0))


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row[0])
def test_the_table_of_types_is_that_of_the_code(row: list[str]) -> None:
    number, first, counts, payload, other = row
    kind = int(number)
    if kind == chunks.PING:
        assert first == "see below"
        return
    assert coded(first)[0] == NAMES[kind]
    assert (payload == "yes") is (kind in PAYLOAD_KINDS)
    assert counts == ("length" if kind in PAYLOAD_KINDS else "amount")
    for width in range(3):
        second = kind_of(kind << 4 | 3 << 2 | width)
        assert other == "invalid" if second is None else coded(other)[0] == NAMES[second]


def test_the_table_of_types_is_whole() -> None:
    assert [int(row[0]) for row in TYPES] == list(range(16))


def test_what_the_second_meanings_have_is_said() -> None:
    text = " ".join(section(DOCUMENT, "Chunks").split())
    with_id = [kind for kind in range(16) if kind_of(kind << 4 | 12) == 16 + kind != chunks.PARTIAL]
    without = [
        kind
        for kind in range(16)
        if kind_of(kind << 4 | 15) in (kind, chunks.PARTIAL) and kind != chunks.PING
    ]
    for some in (with_id, without):
        *most, last = map(str, some)
        assert f"second meanings of types {', '.join(most)} and {last}" in text


@pytest.mark.parametrize("line", EXAMPLES, ids=lambda line: line[:26].strip())
def test_an_example_is_the_chunk_it_says(line: str) -> None:
    words, hexadecimal = re.split(r" {2,}", line)
    said = chunk_of(words)
    assert parse(bytes.fromhex(hexadecimal)) == [said]
    assert said.serialize() == bytes.fromhex(hexadecimal)


def test_there_is_an_example_of_every_kind() -> None:
    assert {line.split()[0] for line in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize("lines", CONVERSATIONS, ids=lambda lines: lines[0])
def test_a_race_is_the_conversation_of_its_name(lines: list[str]) -> None:
    """Which begins with credit for the top level, where the race does not show it."""
    name, *steps = lines
    said: dict[str, str] = {"<": "", ">": ""}
    for step in steps:
        way, hexadecimal, words = re.fullmatch(r"([<>]) ((?:[0-9a-f]+ )+) *(.*)", step).groups()  # type: ignore[union-attr]
        said[way] += hexadecimal.replace(" ", "")
        assert parse(bytes.fromhex(hexadecimal)) == [chunk_of(re.split(r" {2,}", words)[0])]
    vector = VECTORS[name]["steps"]
    first = vector[0].get("in", "") if vector[0].get("in") == "ee00010000" else ""
    assert "".join(step["out"] for step in vector) == said[">"]
    assert "".join(step.get("in", "") for step in vector) == first + said["<"]


def test_the_table_of_states_is_that_of_the_code() -> None:
    table = rows(section(DOCUMENT, "How a way ends"))
    steps = (Step.LEAVE, Step.SENT, Step.PEER, Step.ACKNOWLEDGED)
    said = {
        (State(row[0]), step): State(cell)
        for row in table
        for step, cell in zip(steps, row[1:], strict=True)
        if cell
    }
    assert said == NEXT


def test_what_ends_a_way_is_acknowledged_as_said() -> None:
    """Close and Cancel against the acknowledgements that ``arrivals`` gives: seen from who waits."""
    for _, opener, end, wanted in rows(section(DOCUMENT, "How a way ends"), of=1):
        kind, acknowledgement = KINDS[coded(end)[0]], KINDS[coded(wanted)[0]]
        assert (kind in arrivals.OURS) is (opener == "the peer")  # seen by the peer it is its own
        assert NAMES[acknowledgement].endswith("-peer") is (opener == "this side")
        assert NAMES[acknowledgement].split("-")[1] == NAMES[kind].split("-")[0]


def test_every_rule_of_the_vectors_is_named() -> None:
    named = {coded(row[0])[0] for row in rows(section(DOCUMENT, "What is invalid"))}
    used = {entry["rule"] for entry in entries("bpmux", "invalid")}
    used |= {step["rule"] for vector in VECTORS.values() for step in vector["steps"] if "rule" in step}
    assert named == used | {"limit"}


LIMITS = Limits()


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Credit", f"at least {TOP_LEVEL_RESERVE} bytes at the beginning"),
        ("Credit", f"more than {PIECE_LIMIT} bytes of payload"),
        ("Credit", f"below 2^{chunks.NUMBER_LIMIT.bit_length() - 1} at any time"),
        ("Ids", f"An id has {chunks.ID_LIMIT.bit_length() - 1} bits"),
        ("Heartbeats", f"nothing has come for {heartbeats.IDLE_SECONDS:.0f} seconds"),
        ("Heartbeats", f"If {heartbeats.MISSED_LIMIT} of them go unanswered"),
        ("Heartbeats", f"When {heartbeats.MISSED_LIMIT} go unanswered"),
        ("Limits", f"channels of the peer at a time | {LIMITS.channels} |"),
        ("Limits", f"requests of the peer at a time | {LIMITS.requests} |"),
        ("Limits", f"one payload | {LIMITS.payload} bytes"),
        ("Limits", f"payloads that are not whole, together | {LIMITS.unfinished} bytes"),
        ("Limits", f"payloads that are not whole | {LIMITS.payloads} |"),
        ("Limits", f"not acknowledged | {LIMITS.refused} |"),
        ("Limits", f"does not read | {LIMITS.replies} bytes"),
        ("Limits", f"`{arrivals.TOO_MANY.decode()}`"),
        ("Limits", f"`{arrivals.TOO_LONG.decode()}`"),
        ("Limits", f"grants of less than {SMALL_GRANT} bytes"),
    ],
)
def test_numbers_are_those_of_the_code(title: str, words: str) -> None:
    assert words in " ".join(section(DOCUMENT, title).split())
