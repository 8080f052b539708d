"""What programs beside the daemon answer: messages that fit a datagram, and what is read of those of anybody."""

import json
from typing import Any

import pytest

from bccnd.beside.answers import LONGEST, PART_BYTES, Form

NAME = "h" * 64 + "/lamps/1234567"
FORM = Form(
    "lamp", "bulb", "bulbs", 3,
    texts=("state", "reason", "colour"), numbers=("watts",), counts=("broken",), lists=("rooms",),
)  # fmt: skip


def facts(*bulbs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"lamp": NAME, "state": "up", "bulbs": [{"rooms": [], **bulb} for bulb in bulbs], **more}


def read(*payloads: bytes) -> list[dict[str, Any]]:
    return [part for part in map(FORM.read, payloads) if part is not None]


def test_what_is_answered_is_what_is_read() -> None:
    said = facts({"watts": 5, "rooms": ["hall"]}, {"watts": 7}, broken={"fuse": 2})
    (lamp,) = FORM.gathered(read(*FORM.answers(said)), only_whole=True)
    bulbs = [{"watts": 5, "rooms": ["hall"], "more_rooms": 0}, {"watts": 7, "rooms": [], "more_rooms": 0}]
    assert lamp == {**said, "bulbs": bulbs, "bulbs_said": 2, "more_bulbs": 0}


def test_rows_that_are_left_out_are_counted() -> None:
    head, *rows = read(*FORM.answers(facts(*({"watts": number} for number in range(5)))))
    assert [row["bulb"]["watts"] for row in rows] == [0, 1, 2]
    assert (head["bulbs_said"], head["more_bulbs"]) == (3, 2)


def test_each_message_fits_a_datagram() -> None:
    broken = {f"kind {number}": 1 << 60 for number in range(100)}
    bulb = {"colour": "\N{SNOWMAN}" * 900, "rooms": [f"room {number}" for number in range(500)]}
    payloads = FORM.answers(facts(bulb, reason="because " * 300, broken=broken))
    assert max(map(len, payloads)) <= PART_BYTES
    head, row = read(*payloads)
    assert "broken" not in head
    assert head["reason"].startswith("because because")
    assert len(row["bulb"]["rooms"]) + row["bulb"]["more_rooms"] == 500


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"lamp": 3}',
        b"[" * LONGEST,
        b'{"light": "a", "state": "up"}',
        b'{"lamp": "a", "state": "up"}' + b" " * LONGEST,
    ],
    ids=["empty", "no-text", "null", "list", "nothing", "number", "deep", "another-program", "long"],
)
def test_what_is_no_answer_is_left_out(payload: bytes) -> None:
    assert FORM.read(payload) is None


def test_what_is_not_of_its_kind_is_left_out() -> None:
    said = {"lamp": "a", "state": 1, "watts": "many", "reason": None, "broken": {"a": 1, "b": "x", "c": 1e31},
            "rooms": [1, "hall"], "bulb": {"watts": float("nan"), "colour": [], "rooms": 5, "broken": 7}}  # fmt: skip
    assert read(json.dumps(said).encode()) == [
        {"lamp": "a", "broken": {"a": 1}, "rooms": ["hall"], "bulb": {"rooms": [], "broken": {}}}
    ]


def test_a_row_of_nobody_and_a_part_of_an_answer_are_not_whole() -> None:
    parts = read(
        b'{"lamp": "b", "state": "up", "bulbs_said": 2}',
        b'{"lamp": "c", "bulb": {}}',
        b'{"lamp": "b", "bulb": {}}',
    )
    assert FORM.gathered(parts, only_whole=True) == []
    assert [(lamp["lamp"], lamp["bulbs"]) for lamp in FORM.gathered(parts)] == [("b", [{}])]
