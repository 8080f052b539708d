"""What the parsers accept, as completion and manual see it."""

from bccnd.commands.outline import commands, programs
from bccnd.commands.parsers import COMMANDS
from bccnd.process.configuration import FLAGS


def test_outline_of_all_programs() -> None:
    client, daemon, recorder, backbone, uplink, mux, dndm = programs()
    names = [each.name for each in (client, daemon, recorder, backbone, uplink, mux, dndm)]
    assert names == [
        "bccn",
        "bccnd",
        "bccnd-record",
        "bccnd-backbone",
        "bccnd-uplink",
        "bccnd-mux",
        "bccnd-dndm",
    ]
    assert {"--output", "--rotate-seconds"} <= {flag for option in recorder.options for flag in option.flags}
    assert client.words == COMMANDS
    assert {flag.flag for flag in FLAGS} <= {flag for option in daemon.options for flag in option.flags}


def test_an_option_with_a_value_a_switch_and_choices() -> None:
    options = {option.flags: option for option in commands()["sub"].options}
    assert options["-C", "--count"].value == "N"
    assert options["-q", "--quiet"].value == ""
    assert options["--separator",].choices == ("/", ".")
    assert "%j" in options["--json",].help  # as a person reads it


def test_arguments_are_apart_from_options() -> None:
    (argument,) = commands()["ping"].arguments
    assert (argument.flags, argument.value) == ((), "HOST")
    assert all(option.flags for option in commands()["ping"].options)


def test_an_argument_with_choices() -> None:
    assert list(commands()["completion"].words) == ["bash", "zsh", "fish"]


def test_usage_lines_stand_below_each_other() -> None:
    first, second, *_ = commands()["sub"].usage.splitlines()
    assert second[: len("bccn sub ")].isspace()
    assert second.index("[") == first.index("[")
