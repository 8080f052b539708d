"""The parsers of the sub-commands."""

from pathlib import Path

import pytest

from bccnd.commands.parsers import COMMANDS, command_parser, main_parser, parse

MODULES = Path(__file__).parents[2] / "bccnd" / "commands"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_module_and_a_help_text(command: str) -> None:
    parser = command_parser(command)
    assert (MODULES / f"{command}.py").exists()
    assert parser.description
    assert f"bccn {command}" in parser.format_help()


def test_the_help_names_every_command_and_what_it_does() -> None:
    shown = main_parser().format_help()
    for command, summary in COMMANDS.items():
        assert f"  {command}" in shown
        assert summary in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    "line",
    [
        "--socket /s sub -C 3 a b",
        "sub --socket /s a -C 3 b",
        "sub a b -C 3 --socket=/s",
        "--socket=/elsewhere sub a b -C3 --socket /s",
    ],
)
def test_options_stand_before_between_and_after_the_words(line: str) -> None:
    arguments = parse(line.split())
    assert (arguments.socket, arguments.count, arguments.patterns) == ("/s", 3, ["a", "b"])


@pytest.mark.parametrize("line", ["sub --since -10m a --until -1.5s", "sub --until=-1.5s --since=-10m a"])
def test_a_time_before_now_is_no_option(line: str) -> None:
    arguments = parse(line.split())
    assert (arguments.since, arguments.until, arguments.patterns) == ("-10m", "-1.5s", ["a"])


@pytest.mark.parametrize(
    "line",
    ["--connect unix:/s sub a", "sub a --connect unix:/s", "--connect=tls://x:1 sub --connect=unix:/s a"],
)
def test_the_address_of_a_door_stands_anywhere_too(line: str) -> None:
    assert parse(line.split()).socket == "unix:/s"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--socket /s --connect unix:/d status", "two ways to a bus: give one of them"),
        ("--socket /s status --connect unix:/d", "two ways to a bus: give one of them"),
        ("doctor --connect unix:/d", "it looks at the daemon of this host: give --socket"),
        ("--connect ws://here:80/bus status", "no address of a door: that is unix:PATH or tls://HOST:PORT"),
        ("status --connect /run/x", "no address of a door"),
        ("status --connect tls://here", "no address of a door"),
        ("status --connect unix:", "no address of a door"),
    ],
)
def test_a_door_that_cannot_be_meant_is_one_line(
    line: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    assert said in capfd.readouterr().err.splitlines()[-1]
