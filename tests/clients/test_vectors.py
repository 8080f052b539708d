"""The form of the vector files, as their README has it. The tests of the code use their content."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.golden import VECTORS

FILES = sorted(VECTORS.glob("*.json"))
BYTES = {"datagram", "packet", "line", "payload", "value", "body"}


def lists_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    return json.loads(path.read_text())


@pytest.fixture(params=FILES, ids=lambda path: path.name)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_file_is_described():
    readme = (VECTORS / "README.md").read_text()
    assert [path.name for path in FILES if f"## {path.name}:" not in readme] == []
    assert FILES


def test_names_are_unique_within_their_list(file: Path):
    for entries in lists_of(file).values():
        names = Counter(entry["name"] for entry in entries if "name" in entry)
        assert [name for name, count in names.items() if count > 1] == []


def test_no_entry_occurs_twice(file: Path):
    seen = Counter(
        json.dumps({field: entry[field] for field in entry if field not in ("name", "why")}, sort_keys=True)
        for entries in lists_of(file).values()
        for entry in entries
    )
    assert [entry for entry, count in seen.items() if count > 1] == []


def test_bytes_are_lower_case_hex_and_match_their_text(file: Path):
    for entry in [entry for entries in lists_of(file).values() for entry in entries]:
        for field in BYTES & set(entry):
            assert bytes.fromhex(entry[field]).hex() == entry[field]
        if "text" in entry:
            fields = ("packet", "datagram", "line", "body", "payload")
            shown = next(entry[field] for field in fields if field in entry)
            text = entry["text"] + "\n" * ("line" in entry)
            assert bytes.fromhex(shown) == text.encode()


def test_one_entry_per_line(file: Path):
    """A change to one entry changes one line."""
    lines = file.read_text().splitlines()
    lists = lists_of(file)
    assert len([line for line in lines if line.startswith("  {")]) == sum(map(len, lists.values()))
