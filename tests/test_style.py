"""The tree passes ruff and strict mypy, modules are short, and no name is vague."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Lines. What is longer takes more than one sitting, and is several things: a test file then has a part for each of
# them (tests/README.md). It may be somewhat longer, since each test is read alone.
LONGEST_MODULE = 500
LONGEST_TEST_FILE = 600
# Characters of the name of a test.
LONGEST_NAME = 60
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}

pytestmark = pytest.mark.quick


def sources() -> list[Path]:
    return [path for part in ("bccnd", "clients", "tests") for path in sorted((ROOT / part).rglob("*.py"))]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]],
    ids=["ruff-check", "ruff-format", "mypy-strict"],
)
def test_the_tree_is_clean(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("folder", "longest"), [("bccnd", LONGEST_MODULE), ("tests", LONGEST_TEST_FILE)])
def test_files_are_short(folder: str, longest: int) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert len(lengths) > 50
    assert {str(path): lines for path, lines in lengths.items() if lines > longest} == {}


def test_names_of_tests_are_short() -> None:
    names = [
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    ]
    assert len(names) > 1000
    assert [name for name in names if len(name) > LONGEST_NAME] == []


def test_no_module_has_a_vague_name() -> None:
    assert [str(path) for path in sources() if path.stem in VAGUE_NAMES] == []


def test_no_comment_stands_behind_a_bracket_of_the_formatter() -> None:
    """It stands above the statement, which then often fits a line."""
    behind = re.compile(r"^\s*[])}]+[:,)]*  # (?!noqa|fmt:|type:)", re.MULTILINE)
    assert [str(path) for path in sources() if behind.search(path.read_text())] == []
