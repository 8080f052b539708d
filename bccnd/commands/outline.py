"""What the programs accept, as their parsers have it: completion and manual pages need no lists of their own."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bccnd.backbone import settings as backbone
from bccnd.commands.parsers import COMMANDS, command_parser, main_parser
from bccnd.dndm import settings as dndm
from bccnd.mux import settings as mux
from bccnd.process import configuration
from bccnd.recorder import settings as recorder
from bccnd.uplink import settings as uplink


@dataclass(frozen=True, slots=True)
class Option:
    """``flags``: its spellings, none for an argument; ``value``: the name of its value, empty for a switch."""

    flags: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Outline:
    """A program or one of its commands. ``words``: commands or choices of an argument, with what each does."""

    name: str
    summary: str
    usage: str
    description: str
    epilog: str
    arguments: tuple[Option, ...]
    options: tuple[Option, ...]
    words: Mapping[str, str]


def programs() -> list[Outline]:
    """``bccn``, ``bccnd``, ``bccnd-record``, ``bccnd-backbone``, ``bccnd-uplink``, ``bccnd-mux`` and
    ``bccnd-dndm``.
    """
    return [
        _outline(main_parser(), "talk to the bccnd bus of this host", COMMANDS),
        _outline(configuration.command_line(), "relay messages between the programs of a network segment"),
        _outline(recorder.command_line(), "record what this host sends and receives"),
        _outline(backbone.command_line(), "number messages and send them to subscribers in several networks"),
        _outline(uplink.command_line(), "carry chosen channels to other segments, and theirs here"),
        _outline(mux.command_line(), "let in programs that cannot open the socket of the daemon"),
        _outline(dndm.command_line(), "join the bus of this host with robots and boards that speak DNDM"),
    ]


def commands() -> dict[str, Outline]:
    """The commands of ``bccn`` by name."""
    return {name: _outline(command_parser(name), summary) for name, summary in COMMANDS.items()}


def _outline(
    parser: argparse.ArgumentParser, summary: str, words: Mapping[str, str] | None = None
) -> Outline:
    actions = parser._actions  # noqa: SLF001 - argparse offers nothing public
    if words is None:
        words = {choice: "" for each in actions if not each.option_strings for choice in each.choices or ()}
    options = list(_options(actions))
    return Outline(
        parser.prog,
        summary,
        parser.format_usage().removeprefix("usage: ").replace("\n" + " " * len("usage: "), "\n"),
        parser.description or "",
        parser.epilog or "",
        tuple(option for option in options if not option.flags),
        tuple(option for option in options if option.flags),
        words,
    )


def _options(actions: list[argparse.Action]) -> Iterator[Option]:
    for action in actions:
        if action.help is argparse.SUPPRESS:
            continue
        takes = action.nargs != 0 or not action.option_strings
        choices = tuple(map(str, action.choices or ()))
        value = action.metavar or ("|".join(choices) if choices else action.dest.upper())
        text = (action.help or "") % {"default": action.default, "prog": ""}
        yield Option(tuple(action.option_strings), str(value) if takes else "", choices, text)
