"""``bccn manual``: manual pages, made of the help texts and the descriptions of the settings."""

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bccnd import __version__
from bccnd.commands.arguments import name
from bccnd.commands.outline import Option, Outline, commands, programs
from bccnd.process.configuration import described
from bccnd.process.standard_streams import printable, say

DESCRIPTION = """\
Write the manual pages: bccn(1) and one for each of its commands, bccnd(8),
bccnd-record(8), bccnd-backbone(8), bccnd-uplink(8), bccnd-mux(8),
bccnd-dndm(8) and bccnd.toml(5), into the folders man1, man5 and man8 of DIR.
"""
EPILOG = """\
examples:
  bccn manual --output /usr/local/share/man
  bccn manual --output ~/.local/share/man && man bccn-sub
"""

_HEADING = re.compile(r"([a-z][a-zA-Z ]*):")


def folder(text: str) -> Path:
    return Path(name(text))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=folder,
        required=True,
        help="the folder of the manual pages, such as /usr/local/share/man",
    )


def run(arguments: argparse.Namespace) -> int:
    for page, text in pages().items():
        path = arguments.output / f"man{page[-1]}" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        say(printable(str(path)))
    return 0


def pages() -> dict[str, str]:
    """The name of each file, and its text for man(1)."""
    client, daemon, recorder, backbone, uplink, mux, dndm = programs()
    parts = commands()
    names = [f"bccn-{command}" for command in parts]
    made = {
        "bccn.1": _page(client, "bccn", 1, [*names, "bccnd"]),
        "bccnd.8": _page(daemon, "bccnd", 8, ["bccnd.toml", "bccn"]),
        "bccnd-record.8": _page(recorder, "bccnd-record", 8, ["bccnd"]),
        "bccnd-backbone.8": _page(backbone, "bccnd-backbone", 8, ["bccn-backbone"]),
        "bccnd-uplink.8": _page(uplink, "bccnd-uplink", 8, ["bccn-links", "bccnd"]),
        "bccnd-mux.8": _page(mux, "bccnd-mux", 8, ["bccnd"]),
        "bccnd-dndm.8": _page(dndm, "bccnd-dndm", 8, ["bccnd"]),
        "bccnd.toml.5": _settings(),
    }
    for command, part in parts.items():
        made[f"bccn-{command}.1"] = _page(part, f"bccn-{command}", 1, ["bccn"])
    return made


# The other pages are in section 1.
SECTIONS = {
    "bccnd": 8,
    "bccnd-record": 8,
    "bccnd-backbone": 8,
    "bccnd-uplink": 8,
    "bccnd-mux": 8,
    "bccnd-dndm": 8,
    "bccnd.toml": 5,
}


def _page(part: Outline, name: str, section: int, also: Iterable[str]) -> str:
    first, *sections = _sections(part.description)
    lines = [
        *_head(name, section, part.summary),
        ".SH SYNOPSIS",
        *_verbatim(part.usage),
        ".SH DESCRIPTION",
        *_paragraphs(first[1]),
    ]
    for title, options in (("ARGUMENTS", [a for a in part.arguments if a.help]), ("OPTIONS", part.options)):
        if options:
            lines += [f".SH {title}", *(line for option in options for line in _option(option))]
    for title, text in [*sections, *_sections(part.epilog)]:
        if text.strip():
            lines += [f".SH {title.upper() or 'NOTES'}", *_verbatim(text)]
    return "\n".join([*lines, *_see_also(also)]) + "\n"


def _settings() -> str:
    lines = [
        *_head("bccnd.toml", 5, "settings of bccnd"),
        ".SH DESCRIPTION",
        "A TOML file, by default",
        ".IR /etc/bccnd/bccnd.toml .",
        "Every setting can also be given in the environment, such as BCCND_PORT;",
        "two underscores separate a table from its setting: BCCND_QUEUE__PACKETS.",
        "The values shown are the defaults.",
    ]
    table = None
    for setting in described():
        if setting.table != table:
            table = setting.table
            lines += [
                f".SH {_escaped(f'[{table}]' if table else 'settings').upper()}",
                _escaped(setting.about),
            ]
        value = f" = {setting.default}" if setting.default else ""
        lines += [".TP", f"\\fB{_escaped(setting.name)}\\fR{_escaped(value)}", _escaped(setting.description)]
    return "\n".join([*lines, *_see_also(["bccnd"])]) + "\n"


def _head(name: str, section: int, summary: str) -> list[str]:
    return [
        f'.TH {name.upper()} {section} "" "bccnd {__version__}"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(summary)}",
    ]


def _see_also(names: Iterable[str]) -> list[str]:
    shown = [f"\\fB{_escaped(name)}\\fR({SECTIONS.get(name, 1)})" for name in names]
    return [".SH SEE ALSO", ",\n".join(shown)]


def _option(option: Option) -> list[str]:
    flags = ", ".join(f"\\fB{_escaped(flag)}\\fR" for flag in option.flags)
    value = f"\\fI{_escaped(option.value)}\\fR" if option.value else ""
    return [".TP", f"{flags} {value}".strip(), _escaped(option.help)]


def _sections(text: str) -> list[tuple[str, str]]:
    """The parts of a text between lines such as ``examples:``, with their titles; the first has none."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if heading := _HEADING.fullmatch(line):
            found.append((heading[1], []))
        else:
            found[-1][1].append(line)
    return [(title, "\n".join(lines)) for title, lines in found]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield ".PP"
        yield _escaped(" ".join(paragraph.split()))


def _verbatim(text: str) -> list[str]:
    """The text line by line as it is, without the indentation that all lines have in common."""
    lines = text.strip("\n").splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [".PP", ".nf", *(_escaped(line[indent:].rstrip()) or "\\&" for line in lines), ".fi"]


def _escaped(text: str) -> str:
    """The text without requests and escapes of its own; a hyphen stays the one that is typed."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    text = text.replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text.startswith((".", "'")) else text
