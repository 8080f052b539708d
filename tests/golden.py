"""The golden vectors of ``clients/vectors`` (its README gives the schema) as test parameters."""

import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[1] / "clients" / "vectors"


def entries(kind: str, section: str) -> list[dict[str, Any]]:
    """``section`` of every ``<kind>*.json``. It is an error to find none."""
    files = [json.loads(path.read_text()) for path in sorted(VECTORS.glob(f"{kind}*.json"))]
    found = [entry for lists in files for entry in lists[section]]
    assert found, f"no {section} in {VECTORS}/{kind}*.json"
    return found


def golden(kind: str, section: str) -> list[Any]:
    """The same as parameters, one test each, with the entry's name as its id."""
    return [pytest.param(entry, id=entry.get("name")) for entry in entries(kind, section)]
