"""``bccn completion``: scripts for shells, made of what the parsers accept."""

import argparse
import shlex
from collections.abc import Iterable

from bccnd.commands.outline import Option, Outline, commands, programs
from bccnd.process.standard_streams import say

SHELLS = ("bash", "zsh", "fish")
# Values of these names are files.
FILES = frozenset({"FILE", "PATH", "DIR"})

DESCRIPTION = """\
Print a script with which a shell completes the commands and options of bccn,
bccnd, bccnd-record, bccnd-backbone, bccnd-uplink, bccnd-mux and bccnd-dndm.
"""
EPILOG = """\
examples:
  source <(bccn completion bash)
  bccn completion bash > /etc/bash_completion.d/bccn
  bccn completion zsh > ~/.zsh/bccn && echo 'source ~/.zsh/bccn' >> ~/.zshrc
  bccn completion fish > ~/.config/fish/completions/bccn.fish
"""

BASH = """\
# Completion for {names}, from "bccn completion".
_bccn() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    local program=${{1##*/}} command= words= at
    if [[ $program == bccn ]]; then
        for ((at = 1; at < COMP_CWORD; at++)); do
            case ${{COMP_WORDS[at]}} in
                --socket | --connect) ((at++)) ;;
                -*) ;;
                *) command=${{COMP_WORDS[at]}}; break ;;
            esac
        done
    fi
    case "$program $command $before" in
{values}
    esac
    case "$program $command" in
{words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _bccn {names}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(arguments: argparse.Namespace) -> int:
    say({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]().removesuffix("\n"))
    return 0


def bash() -> str:
    values: list[str] = []
    words: list[str] = []
    for program in programs():
        parts = {"": program} | (commands() if program.words else {})
        for command, part in parts.items():
            where = f"{program.name} {command}"
            values += _values_in_bash(where, part.options)
            accepted = [*part.words, *(flag for option in part.options for flag in option.flags)]
            words.append(f'        "{where}") words="{" ".join(accepted)}" ;;')
    names = " ".join(program.name for program in programs())
    return BASH.format(names=names, values="\n".join(values), words="\n".join(words))


def _values_in_bash(where: str, options: Iterable[Option]) -> list[str]:
    lines = []
    for option in options:
        if option.value:
            cases = "|".join(f'"{where} {flag}"' for flag in option.flags)
            if option.choices:
                reply = f'$(compgen -W "{" ".join(option.choices)}" -- "$current")'
            else:
                reply = '$(compgen -f -- "$current")' if option.value in FILES else ""
            lines.append(f"        {cases}) COMPREPLY=({reply}); return ;;")
    return lines


def zsh() -> str:
    """The same script: zsh reads the completions of bash."""
    return "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" + bash()


def fish() -> str:
    lines = [f'# Completion for {", ".join(each.name for each in programs())}, by "bccn completion".']
    for program in programs():
        lines.append(f"complete -c {program.name} -f")
        condition = "__fish_use_subcommand" if program.words else ""
        lines += _in_fish(program.name, condition, program)
        for command, part in commands().items() if program.words else ():
            lines += _in_fish(program.name, f"__fish_seen_subcommand_from {command}", part)
    return "\n".join(lines) + "\n"


def _in_fish(program: str, condition: str, part: Outline) -> list[str]:
    begin = f"complete -c {program}" + (f" -n {shlex.quote(condition)}" if condition else "")
    lines = [
        f"{begin} -a {word}" + (f" -d {shlex.quote(text)}" if text else "")
        for word, text in part.words.items()
    ]
    for option in part.options:
        flags = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
        if option.choices:
            flags.append(f"-x -a {shlex.quote(' '.join(option.choices))}")
        elif option.value:
            flags.append("-rF" if option.value in FILES else "-x")
        lines.append(f"{begin} {' '.join(flags)} -d {shlex.quote(option.help)}")
    return lines
