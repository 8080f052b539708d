"""The settings of a program that has one table: flags, variables in the environment, and the table of a TOML file.

    command line  >  environment  >  file  >  built-in defaults

Rules
- A value is right or refused, never guessed or clipped. Each mistake is a line that names the flag, the variable or
  the file.
- The file has that table and nothing outside of it. A setting that is a list of tables is in the file alone.
- The flag of a setting that is a list may be given several times; its values add up.
- ``load`` depends on its arguments and the file alone, and is called again for a reload.
"""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from bccnd import __version__
from bccnd.errors import ConfigError
from bccnd.process.configuration import SettingsLine, as_toml, decoded, one_line, problem, read_file

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Invocation(Generic[S]):
    """``origins``: where each value that is no default came from; ``file``: the file that was read, or empty."""

    settings: S
    check_only: bool
    quiet: bool
    origins: Mapping[str, str]
    file: str


@dataclass(frozen=True)
class OneTable(Generic[S]):
    """``prefix``: of its variables; ``metavars``: what help calls the values, N where none is said; ``in_file``:
    settings that are lists of tables. Settings are known by their alias, where they have one.
    """

    program: str
    model: type[S]
    table: str
    prefix: str
    default_file: Path
    description: str
    epilog: str
    metavars: Mapping[str, str]
    in_file: Sequence[str] = ()

    @property
    def file_variable(self) -> str:
        """No setting: it names the file."""
        return f"{self.prefix}CONFIG"

    @property
    def fields(self) -> dict[str, FieldInfo]:
        return {field.alias or name: field for name, field in self.model.model_fields.items()}

    def command_line(self) -> argparse.ArgumentParser:
        """The parser. It leaves values as text, which the model checks."""
        parser = SettingsLine(
            prog=self.program,
            description=self.description,
            epilog=self.epilog,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80),
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        for name, field in self.fields.items():
            if name in self.in_file:
                continue
            unset = field.is_required() or field.default in (None, "", ())
            default = "" if unset else f" (default: {_shown(field.default)})"
            parser.add_argument(
                _flag(name),
                dest=name,
                action="append" if get_origin(field.annotation) is tuple else "store",
                metavar=self.metavars.get(name, "N"),
                help=f"{field.description}{default}".replace("%", "%%"),
            )
        parser.add_argument(
            "--config",
            metavar="FILE",
            default=None,
            help=f"TOML file (default: {self.default_file} if it exists)",
        )
        parser.add_argument(
            "--check",
            action="store_true",
            default=False,
            help="check the settings, print them as TOML, and leave",
        )
        parser.add_argument(
            "--quiet", action="store_true", default=False, help="with --check: print faults only"
        )
        parser.add_argument("--version", action="version", version=f"{self.program} {__version__}")
        return parser

    def load(self, argv: Sequence[str], environ: Mapping[str, str]) -> Invocation[S]:
        """Read the settings. Raises ``ConfigError`` or ``RefusedError``, with a line for each mistake, and
        ``SystemExit`` for --help and --version.
        """
        fields = self.fields
        given: dict[str, Any] = vars(self.command_line().parse_args(argv))
        check_only, quiet = given.pop("check"), given.pop("quiet")
        named = given.pop("config") or environ.get(self.file_variable)
        variables = {self.prefix + name.upper(): name for name in fields if name not in self.in_file}
        known = {*variables, self.file_variable}
        if unknown := sorted(name for name in environ if name.startswith(self.prefix) and name not in known):
            raise ConfigError("\n".join(one_line(f"{name}: unknown setting") for name in unknown))
        values, file = self._of_file(named)
        origins = dict.fromkeys(values, file)
        for variable, name in variables.items():
            if variable in environ:
                values[name], origins[name] = decoded(environ[variable], fields[name]), variable
        for name, text in given.items():
            whole = text if isinstance(text, str) else ",".join(text)
            values[name], origins[name] = decoded(whole, fields[name]), _flag(name)
        try:
            return Invocation(self.model(**values), check_only, quiet, origins, file)
        except ValidationError as error:
            raise ConfigError("\n".join(self._explained(error, origins))) from None

    def applicable(self, running: S, wanted: S, fixed: Collection[str]) -> tuple[S, list[str], list[str]]:
        """What a reload comes to: the settings to run with now, the names that change, and those that need a restart,
        which are ``fixed``.
        """
        differing = [name for name, value in wanted if value != getattr(running, name)]
        held = {name: getattr(running, name) for name in differing if name in fixed}
        fields = self.model.model_fields
        changed = [fields[name].alias or name for name in differing if name not in held]
        return wanted.model_copy(update=held), changed, list(held)

    def effective(self, invocation: Invocation[S]) -> str:
        """The settings as a TOML file that says where each value came from. ``load`` reads it back to the same."""
        lines, tables = [f"[{self.table}]"], list[str]()
        for (name, _), (_, value) in zip(self.fields.items(), invocation.settings, strict=True):
            origin = f"  # from {invocation.origins[name]}" if name in invocation.origins else ""
            if name not in self.in_file:
                lines.append(
                    f"# {name} is not set" if value is None else f"{name} = {as_toml(value)}{origin}"
                )
                continue
            for row in value:
                tables += ["", f"[[{self.table}.{name}]]{origin}"]
                tables += [f"{key} = {as_toml(each)}" for key, each in row]
        return "\n".join(lines + tables)

    def _of_file(self, named: str | None) -> tuple[dict[str, Any], str]:
        """The values of the table in the file, and the file's name, which is empty where there is none."""
        path = Path(named) if named else self.default_file
        content = read_file(path)
        if content is None:
            if named:
                raise ConfigError(f"{path}: no such file")
            return {}, ""
        table = content.pop(self.table, {})
        if content or not isinstance(table, dict):
            raise ConfigError(f"{path}: has one table, [{self.table}], and nothing outside of it")
        return table, str(path)

    def _explained(self, error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
        details = error.errors(include_url=False)
        at_fault = {detail["loc"][0] for detail in details if len(detail["loc"]) > 1}
        for detail in details:
            name, *inside = detail["loc"]
            if detail["type"] == "too_short" and not inside and name in at_fault:
                continue  # the items that were at fault are those that are missing
            origin = origins.get(str(name), "")
            where = f"{origin}: {name}" if origin else _flag(str(name))
            if origin.startswith(("--", self.prefix)):
                where = origin
            elif name in self.in_file and inside:
                where = ": ".join(
                    [origin, f"[[{self.table}.{name}]] {int(inside[0]) + 1}", *map(str, inside[1:])]
                )
            said = (
                "must be given"
                if detail["type"] == "missing"
                else problem(str(name), detail, self._known_beside(str(name)))
            )
            yield one_line(f"{where}: {said}")

    def _known_beside(self, name: str) -> list[str]:
        return [*self.fields] if name not in self.in_file else []


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
