"""The two Python distributions of this checkout: bccn, the client, and bccnd, which depends on it."""

import re
import tomllib
from glob import glob
from pathlib import Path
from typing import Any

import pytest

import bccn
import bccnd

ROOT = Path(__file__).parents[1]


def project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


def test_no_file_is_in_both_distributions() -> None:
    client, daemon = project("clients/python")["tool"]["setuptools"], project("")["tool"]["setuptools"]
    assert client["packages"] == ["bccn", "bccn_door", "bpmux"]
    assert daemon["packages"] == {"find": {"include": ["bccnd*"]}}


def test_each_file_of_the_page_is_in_the_package() -> None:
    """With the client, which is a link there."""
    package = ROOT / "bccnd/mux"
    patterns = project("")["tool"]["setuptools"]["package-data"]["bccnd.mux"]
    taken = {path for pattern in patterns for path in glob(str(package / pattern), recursive=True)}
    of_the_project = {"tsconfig.json", "package.json"}  # for the type checker, and for Node
    there = {path for path in glob(str(package / "page/**/*"), recursive=True) if Path(path).is_file()}
    assert {Path(path).name for path in there - taken} <= of_the_project
    assert str(package / "page/client/bpmux/endpoint.js") in taken
    assert str(package / "page/index.html") in taken


def test_bccnd_depends_on_the_client_beside_it() -> None:
    (pinned,) = [each for each in project("")["project"]["dependencies"] if each.startswith("bccn")]
    assert pinned == f"bccn=={bccn.__version__}"
    assert bccnd.__version__ == bccn.__version__
    assert project("clients/python")["project"]["dependencies"] == []


@pytest.mark.parametrize(
    "path",
    [
        "README.md", "bccnd/pipeline/README.md", "bccnd/recorder/README.md", "tests/run.sh", "etc/quickstart.sh",
        "tests/fuzz/run.py",
    ],
)  # fmt: skip
def test_both_are_installed_in_one_command(path: str) -> None:
    """Else pip looks for a bccn on the index, where anybody may have put one."""
    commands = re.findall(r"pip install[^`\n\"]* '?\.(?![/\w])[^`\n\"]*", (ROOT / path).read_text())
    assert commands
    assert all(" ./clients/python " in command for command in commands), commands


def test_the_license_goes_with_the_client() -> None:
    assert (ROOT / "clients/python/LICENSE").read_text() == (ROOT / "LICENSE").read_text()
