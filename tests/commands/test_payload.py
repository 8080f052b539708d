"""Where a message comes from: each source, one at a time, within bounds."""

import argparse
import os
from pathlib import Path

import pytest

import bccn
from bccnd.commands import payload


def read(*words: str) -> bytes:
    parser = argparse.ArgumentParser()
    payload.add_arguments(parser, "the message")
    return payload.read(parser.parse_args(words), "pub")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["text"], b"text"),
        ([""], b""),
        (["-m", "text"], b"text"),
        (["-m="], b""),
        (["-m=-x"], b"-x"),
        (["-n"], b""),
    ],
)
def test_payload_from_the_command_line(words: list[str], expected: bytes) -> None:
    assert read(*words) == expected


def test_bytes_that_are_not_text_are_kept() -> None:
    assert read(os.fsdecode(b"\xff\xc3")) == b"\xff\xc3"


def test_payload_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\0\nx")
    assert read("-f", str(file)) == b"\0\nx"
    with pytest.raises(FileNotFoundError):
        read("-f", str(tmp_path / "none"))


@pytest.mark.parametrize("words", [[], ["-s"]])
def test_payload_from_stdin(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"all\nof it\n")
    os.close(writing)
    monkeypatch.setattr(payload, "STDIN", reading)
    assert read(*words) == b"all\nof it\n"
    os.close(reading)


def test_a_terminal_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setattr(payload, "STDIN", theirs)
    with pytest.raises(bccn.InvalidError, match="pub: no message"):
        read()
    os.close(ours)
    os.close(theirs)


def test_a_payload_has_a_limit() -> None:
    with pytest.raises(bccn.InvalidError, match="longer than 1048576 bytes"):
        read("-f", "/dev/zero")


@pytest.mark.parametrize("also", [["-m", "x"], ["-f", "x"], ["-s"], ["-n"]])
def test_only_one_payload_is_accepted(also: list[str]) -> None:
    with pytest.raises(bccn.InvalidError, match="not both"):
        read("text", *also)
