"""Chunks: by the vectors, there and back, and however the stream is cut."""

from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpmux import chunks
from bpmux.chunks import (
    HEAD_LIMIT,
    HEADS,
    ID_LIMIT,
    NAMES,
    NUMBER_LIMIT,
    PAYLOAD_KINDS,
    TOP,
    TOP_KINDS,
    Chunk,
    Reader,
    parse,
)
from bpmux.errors import BpmuxError
from tests.golden import golden

KINDS = sorted({head[0] for head in HEADS if head})
ACCOUNTS = (chunks.CREDIT, chunks.CREDIT_PEER)


def chunk_of(vector: dict[str, Any]) -> Chunk:
    payload = bytes.fromhex(vector.get("payload", ""))
    kind = next(value for value, name in NAMES.items() if name == vector["kind"])
    return Chunk(
        kind,
        TOP if vector["id"] is None else vector["id"],
        len(payload) if "payload" in vector else int(vector.get("amount", 0)),
        payload,
    )


def chunk() -> st.SearchStrategy[Chunk]:
    def build(kind: int, ident: int, number: int, payload: bytes, is_top: bool) -> Chunk:
        if kind == chunks.PARTIAL or (is_top and kind in TOP_KINDS):
            ident = TOP
        if kind in PAYLOAD_KINDS:
            return Chunk(kind, ident, len(payload), payload)
        return Chunk(kind, ident, number if kind in (*ACCOUNTS, chunks.PARTIAL) else 0)

    return st.builds(
        build,
        st.sampled_from(KINDS),
        st.integers(0, ID_LIMIT - 1) | st.integers(0, 300),
        st.integers(0, NUMBER_LIMIT - 1) | st.integers(0, 300),
        st.binary(max_size=300),
        st.booleans(),
    )


def pieces(reader: Reader, parts: list[bytes]) -> list[Chunk]:
    """What a reader makes of a stream that comes in parts, its payloads put together again."""
    found: list[Chunk] = []
    for part in parts:
        for kind, ident, number, piece, rest in reader.feed(part):
            if kind < 0:
                found[-1] = Chunk(found[-1].kind, found[-1].id, found[-1].number, found[-1].payload + piece)
            else:
                found.append(Chunk(kind, ident, number, piece))
            if kind in PAYLOAD_KINDS or kind < 0:
                assert len(found[-1].payload) + rest == found[-1].number
    return found


@pytest.mark.parametrize("vector", golden("bpmux", "chunks"))
def test_a_chunk_says_what_the_vector_says(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["chunk"])
    assert parse(data) == [chunk_of(vector)]
    assert (chunk_of(vector).serialize() == data) is vector["canonical"]


@pytest.mark.parametrize("vector", golden("bpmux", "invalid"))
def test_no_chunk_begins_so(vector: dict[str, Any]) -> None:
    with pytest.raises(BpmuxError) as caught:
        list(Reader().feed(bytes.fromhex(vector["chunk"])))
    assert caught.value.rule == vector["rule"]


def test_the_vectors_have_every_kind_and_every_wrong_tag() -> None:
    valid = [bytes.fromhex(entry.values[0]["chunk"])[0] for entry in golden("bpmux", "chunks")]
    assert {HEADS[tag][0] for tag in valid if HEADS[tag]} == set(KINDS) == set(NAMES)  # type: ignore[index]
    wrong = {tag for tag, head in enumerate(HEADS) if head is None}
    tested = {bytes.fromhex(entry.values[0]["chunk"])[0] for entry in golden("bpmux", "invalid")}
    families = {tag & 0xFC for tag in wrong}
    assert tested <= wrong
    assert {tag & 0xFC for tag in tested} == families
    assert len(wrong) == 8 + 2 + 8  # Req and Res; heartbeats; the second meanings with a width of 3


@given(st.lists(chunk(), max_size=8), st.lists(st.integers(0, 3000), max_size=12))
def test_chunks_there_and_back_however_they_are_cut(said: list[Chunk], cuts: list[int]) -> None:
    data = b"".join(each.serialize() for each in said)
    assert parse(data) == said
    at = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[start:end] for start, end in pairwise(at)]
    assert pieces(Reader(), parts) == said
    assert pieces(Reader(), [bytes([byte]) for byte in data]) == said


@given(chunk(), st.integers(0, 400))
def test_a_chunk_that_is_cut_is_not_whole(one: Chunk, size: int) -> None:
    data = one.serialize()
    if 0 < size < len(data):
        with pytest.raises(BpmuxError, match="cut"):
            parse(data[:size])


@pytest.mark.parametrize("tag", range(256))
def test_no_more_than_a_head_is_kept_back(tag: int) -> None:
    head = HEADS[tag]
    if head is None:
        return
    assert head[1] <= HEAD_LIMIT
    reader = Reader()
    list(reader.feed(bytes([tag]) + b"\xff" * 64))
    list(reader.feed(b"\xff" * 100_000))
    assert reader.unread == len(reader._data) < HEAD_LIMIT


@given(st.integers(1, 9), st.integers(1, 4))
def test_whoever_stops_has_the_rest_with_the_next_call(size: int, most: int) -> None:
    wanted = [Chunk(chunks.MESSAGE, number, 2, b"ab") for number in (1, 300)] + [Chunk(chunks.PING, TOP)] * 3
    data = b"".join(chunk.serialize() for chunk in wanted)
    reader, found = Reader(), bytearray()
    for at in range(0, len(data), size):
        for kind, ident, number, piece, _ in islice(reader.feed(data[at : at + size]), most):
            found += piece if kind < 0 else chunks.head(kind, ident, number) + piece
    while reader.unread:
        for kind, ident, number, piece, _ in islice(reader.feed(b""), most):
            found += piece if kind < 0 else chunks.head(kind, ident, number) + piece
    assert found == data


@pytest.mark.parametrize(
    "wrong", [(chunks.SINK, ID_LIMIT, 0), (chunks.CREDIT, 1, NUMBER_LIMIT), (chunks.SINK, TOP, 0)]
)
def test_what_no_chunk_can_say_is_not_written(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="is not below"):
        chunks.head(*wrong)


@given(st.binary(max_size=200))
def test_any_bytes_are_chunks_or_refused(data: bytes) -> None:
    try:
        said = parse(data)
    except BpmuxError:
        return
    assert parse(b"".join(each.serialize() for each in said)) == said
