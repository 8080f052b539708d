"""The manual: every page, as man(1) shows it."""

import os
import subprocess
from pathlib import Path

import pytest

from bccnd.commands.manual import pages
from bccnd.commands.parsers import COMMANDS
from bccnd.process.configuration import FLAGS, described
from tests.command_line import bccn
from tests.needs import require
from tests.packet_client import PATIENCE

PAGES = pages()


def shown(name: str, folder: Path) -> str:
    """The page as text of 80 columns; man's warnings are failures."""
    require("man")
    file = folder / name
    file.write_text(PAGES[name])
    run = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", str(file)],
        capture_output=True, text=True, timeout=2 * PATIENCE, check=False,
        env={**os.environ, "MANWIDTH": "80", "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


@pytest.mark.parametrize("name", PAGES)
def test_each_page_is_sound_and_80_columns_wide(name: str, tmp_path: Path) -> None:
    text = shown(name, tmp_path)
    assert text.startswith(name.rpartition(".")[0].upper())
    assert "NAME" in text
    assert "SEE ALSO" in text
    assert max(map(len, text.splitlines())) <= 90  # a usage line of a long command


def test_there_is_a_page_for_everything(tmp_path: Path) -> None:
    assert set(PAGES) == {
        "bccn.1",
        "bccnd.8",
        "bccnd-record.8",
        "bccnd-backbone.8",
        "bccnd-uplink.8",
        "bccnd-mux.8",
        "bccnd-dndm.8",
        "bccnd.toml.5",
        *(f"bccn-{command}.1" for command in COMMANDS),
    }
    daemon, settings = shown("bccnd.8", tmp_path), shown("bccnd.toml.5", tmp_path)
    assert all(flag.flag in daemon for flag in FLAGS)
    assert all(setting.name in settings for setting in described())


def test_examples_are_as_they_are_typed(tmp_path: Path) -> None:
    text = shown("bccn-sub.1", tmp_path)
    assert "bccn sub -F '%I %s #%n %c %p' '>'\n" in text
    assert "\\n newline" in text


def test_man_finds_the_pages(tmp_path: Path) -> None:
    result = bccn(tmp_path / "no.sock", "manual", "--output", str(tmp_path / "man"))
    assert result.returncode == 0
    assert {path.name for path in (tmp_path / "man").glob("man?/*")} == set(PAGES)
    assert (tmp_path / "man" / "man8" / "bccnd.8").read_text() == PAGES["bccnd.8"]
