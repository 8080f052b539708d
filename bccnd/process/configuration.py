"""Reads the settings from the command line, the environment and a TOML file, or says what is wrong there.

    command line  >  environment  >  file  >  built-in defaults

Rules
- The file is the one that ``--config`` or ``BCCND_CONFIG`` names, which must exist, or else
  ``/etc/bccnd/bccnd.toml`` if that exists. A variable is ``BCCND_PORT``, or ``BCCND_QUEUE__PACKETS`` for a setting
  in a table. A higher source replaces single settings, never a whole table.
- A daemon that has read the default file names it as ``BCCND_CONFIG`` to itself and its successors. If the file is
  gone at a reload, that is a fault: the daemon does not open what the file had closed.
- ``load`` depends on nothing but its arguments, the file, the host's name and the user id, as they are when it is
  called.
- Text from the environment and the command line is read as the type of its setting; a list is separated by commas. A
  value in the file must have the right TOML type.
- A wrong value, an unknown name or bad TOML is a ConfigError. Each fault is one line, which names the source, the
  setting and what is allowed; ERRORS_SHOWN faults are shown.
"""

import argparse
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from socket import gethostname
from typing import Any, NoReturn, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bccnd import __version__
from bccnd.errors import ConfigError, RefusedError
from bccnd.process.accounts import gid_of, uid_of
from bccnd.process.keys import read_keys
from bccnd.process.settings import Grant, Settings
from bccnd.process.standard_streams import CommandLine
from bccnd.relay.options import Table

DEFAULT_FILE = Path("/etc/bccnd/bccnd.toml")
DEFAULT_SOCKET = "/run/bccnd/bus.sock"
PREFIX = "BCCND_"

# Variables that are not settings of the daemon: one names the file, the others are for other programs.
NOT_OURS = (
    PREFIX + "CONFIG",
    PREFIX + "RECORD_",
    PREFIX + "BACKBONE_",
    PREFIX + "UPLINK_",
    PREFIX + "MUX_",
    PREFIX + "DNDM_",
)

# Text cannot express tables, and an empty text, read as an empty list, would open what the file closes.
RIGHTS = "BCCND_RIGHTS"

# Bytes read of the file; the sample with all its comments has under 10,000.
FILE_LIMIT = 1 << 20

# No setting needs more, and repr() refuses an int of more than some 14,000.
NUMBER_BITS = 1024

# What text from the environment or the command line is a number: plain digits, as people type them. int() also reads
# digits of other scripts, white space and "1_0", and float() reads nan.
_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100})(?:[eE][+-]?[0-9]{1,4})?")

# A person mends a few faults at a time, and a binary file given by mistake must not fill the screen.
ERRORS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one source, nested like ``Settings``, and where each came from, by dotted name.

    ``file``: the file that was read, if it was one.
    """

    values: dict[str, Any]
    origins: dict[str, str]
    file: str = ""


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a command line asks for: the settings, whether only to check them, whether to print faults only.

    ``origins`` maps the dotted name of each value that is not a built-in default to its file, variable or flag.
    ``file``: the file that was read, or empty.
    """

    settings: Settings
    check_only: bool
    quiet: bool
    origins: Mapping[str, str]
    file: str = ""


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Invocation:
    """Read the settings for the arguments ``argv`` (without the program's name) and the environment.

    Raises ConfigError or RefusedError, with a line for each fault, and SystemExit for --help and --version.
    """
    given = vars(command_line().parse_args(argv))
    check_only, quiet, file = given.pop("check"), given.pop("quiet"), given.pop("config")
    if file is None:
        file = environ.get(PREFIX + "CONFIG") or None
    from_file = _file_layer(file)
    layers = [_flag_layer(given), _environment_layer(environ), from_file, _host_layer(environ)]
    origins = {name: origin for layer in reversed(layers) for name, origin in layer.origins.items()}
    try:
        settings = Settings(*(layer.values for layer in layers))
        return Invocation(settings, check_only, quiet, origins, from_file.file)
    except ValidationError as error:
        raise ConfigError(_explain(error, origins)) from None


def check(invocation: Invocation) -> str:
    """Check the key file and the accounts too, and return what ``--check`` prints. Raises what ``read_keys`` does."""
    lines = [f"# bccnd {__version__}: these settings are sound."]
    for name, find in ("socket_owner", uid_of), ("socket_group", gid_of):
        _existing(invocation, name, find)
    if invocation.settings.key_file is not None:
        count = len(read_keys(invocation.settings.key_file))
        lines.append(f"# Keys: {count}; the first signs, {'it verifies' if count == 1 else 'all verify'}.")
    return "\n".join([*lines, effective(invocation)])


def _existing(invocation: Invocation, name: str, find: Callable[[str], int]) -> None:
    account = getattr(invocation.settings, name)
    try:
        if account is not None:
            find(account)
    except ValueError as error:
        raise ConfigError(f"{_where(name, invocation.origins)}: {error} (got {as_toml(account)})") from None


def effective(invocation: Invocation) -> str:
    """The settings as a TOML file that says where each value came from. ``load`` reads it back to the same."""
    lines = []
    for name, value in named_values(invocation.settings):
        if name == "rights":
            continue  # tables of their own
        table, _, key = name.rpartition(".")
        if table and f"[{table}]" not in lines:
            lines += ["", f"[{table}]"]
        origin = f"  # from {invocation.origins[name]}" if name in invocation.origins else ""
        lines.append(f"# {key} is not set" if value is None else f"{key} = {as_toml(value)}{origin}")
    for grant in invocation.settings.rights:
        lines += ["", f"[[rights]]  # from {invocation.origins['rights']}"]
        lines += [f"{key} = {as_toml(value)}" for key, value in grant if value != getattr(Grant(), key)]
    if not invocation.settings.rights:
        lines += ["", "# no [[rights]]: whoever may open the socket may publish and subscribe to everything"]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Flag:
    """A command-line flag for a setting."""

    setting: str
    flag: str
    metavar: str
    help: str


@dataclass(frozen=True, slots=True)
class Described:
    """A setting as the manual shows it. ``table`` is empty before the first table, ``default`` without a default."""

    table: str
    about: str
    name: str
    default: str
    description: str


def described() -> Iterator[Described]:
    """Every setting, in the order of the file."""
    for name, field in Settings.model_fields.items():
        model: Any = Grant if name == "rights" else field.annotation
        inner = Grant.model_fields if model is Grant else _inside(model)
        about = " ".join(model.__doc__.split()) if inner else "Before any table."
        for key, each in (inner or {name: field}).items():
            default = each.get_default()
            text = "" if default is None or each.is_required() else as_toml(default)
            yield Described(name if inner else "", about, key, text, each.description or "")


def _default(setting: str) -> object:
    return Settings.model_fields[setting].default


FLAGS = (
    Flag("host", "--host", "NAME", "first token of this host's sources (default: the short host name)"),
    Flag(
        "socket",
        "--socket",
        "PATH",
        "the local bus: a path; @NAME, an abstract name; @, a free abstract name, printed on stdout; fd:N, "
        f"an inherited descriptor (default: {DEFAULT_SOCKET} for root, else $XDG_RUNTIME_DIR/bccnd/bus.sock)",
    ),
    Flag("socket_mode", "--socket-mode", "OCTAL", "mode of the socket (default: 0660)"),
    Flag(
        "broadcast",
        "--broadcast",
        "ADDR",
        f"where datagrams go: a broadcast or multicast address, or subnet (default: {_default('broadcast')})",
    ),
    Flag("port", "--port", "N", f"UDP port of the segment (default: {_default('port')})"),
    Flag(
        "interfaces",
        "--interface",
        "IF",
        "an interface to use, or a pattern for several; may be repeated (default: all suitable ones)",
    ),
    Flag(
        "key_file",
        "--key-file",
        "FILE",
        "HMAC keys, one a line; the first signs, all verify (default: none)",
    ),
)

EPILOG = """\
The file can hold every setting. The environment overrides the file, and flags
override both: BCCND_PORT=5400 sets port, BCCND_QUEUE__PACKETS=500 sets packets
in the table queue, commas separate the items of a list, and BCCND_CONFIG names
the file. --check shows where each value came from.

exit codes: 0 done, 1 internal fault, 2 wrong settings or usage, 4 refused,
            5 socket or port taken, 7 out of memory"""


class SettingsLine(CommandLine):
    """A command line whose mistakes are mistakes of the settings."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(one_line(f"{message} (see {self.prog} --help)"))


def command_line() -> argparse.ArgumentParser:
    """The parser of ``bccnd``. Values stay text: ``Settings`` checks them as it checks those of other sources."""
    parser = SettingsLine(
        prog="bccnd",
        description="Relay messages between the programs of this host and its network segment.",
        epilog=EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80),
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add("--config", metavar="FILE", default=None, help=f"TOML file (default: {DEFAULT_FILE} if it exists)")
    for flag in FLAGS:
        repeated = flag.setting == "interfaces"
        action = "append" if repeated else "store"
        add(flag.flag, dest=flag.setting, metavar=flag.metavar, action=action, help=flag.help)
    add("--exit-when-idle", action="store_true", help="leave when the last client has left")
    add(
        "--check",
        action="store_true",
        default=False,
        help="check the settings and the key file, print all settings as TOML, and leave",
    )
    add("--quiet", action="store_true", default=False, help="with --check: print faults only")
    add("--version", action="version", version=f"bccnd {__version__}")
    return parser


def _flag_layer(given: dict[str, Any]) -> Layer:
    known = dict(_named_fields())
    origins = {flag.setting: flag.flag for flag in FLAGS} | {"exit_when_idle": "--exit-when-idle"}
    values = {name: decoded(value, known[name]) for name, value in given.items()}
    return Layer(values, {name: origins[name] for name in given})


def _environment_layer(environ: Mapping[str, str]) -> Layer:
    known = {PREFIX + name.upper().replace(".", "__"): (name, field) for name, field in _named_fields()}
    if RIGHTS in known and known.pop(RIGHTS) and RIGHTS in environ:
        raise ConfigError(f"{RIGHTS}: can be set in the file only, as [[rights]] tables")
    layer = Layer({}, {})
    unknown = []
    for variable in sorted(environ):
        if variable in known:
            name, field = known[variable]
            table, _, key = name.rpartition(".")
            values = layer.values.setdefault(table, {}) if table else layer.values
            values[key] = decoded(environ[variable], field)
            layer.origins[name] = variable
        elif variable.startswith(PREFIX) and not variable.startswith(NOT_OURS):
            unknown.append(variable)
    if unknown:
        lines = [f"{each}: unknown setting{_hint(each, known, PREFIX)}" for each in unknown[:ERRORS_SHOWN]]
        raise ConfigError(_first([one_line(line) for line in lines], len(unknown)))
    return layer


def _file_layer(file: str | None) -> Layer:
    if file == "":
        raise ConfigError("--config: must be the path of a file")
    path = DEFAULT_FILE if file is None else Path(file)
    values = read_file(path)
    if values is None:
        if file is None:
            return Layer({}, {})
        raise ConfigError(f"{path}: no such file")
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    nested = {f"{table}.{key}" for table, content in tables.items() for key in content}
    return Layer(values, dict.fromkeys(nested | values.keys(), str(path)), str(path))


def read_file(path: Path) -> dict[str, Any] | None:
    """What a TOML file says; None if there is no such file. Raises ``ConfigError`` or ``RefusedError``."""
    try:
        with open(path, "rb", opener=_open) as stream:
            if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                raise ConfigError(f"{path}: is a pipe, which a reload could not read again")
            content = stream.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            raise ConfigError(f"{path}: larger than {FILE_LIMIT} bytes, so hardly a settings file")
        return tomllib.loads(content.decode() + "\n")  # a fault at the very end then has a line
    except FileNotFoundError:
        return None
    except PermissionError:
        raise RefusedError(
            f"{path}: permission denied; make it readable or name another file with --config"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).rstrip(")").rpartition(" (at ")
        raise ConfigError(one_line(f"{path}: {where}: {what[:1].lower()}{what[1:]}")) from None
    except ValueError:  # int() reads no number of so many digits, and names no place
        raise ConfigError(f"{path}: a number has thousands of digits") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply for a settings file") from None


def _open(path: str, flags: int) -> int:
    """An opener that does not wait for the writer of a FIFO, as a reload would for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _host_layer(environ: Mapping[str, str]) -> Layer:
    """The defaults that depend on where we run."""
    values = {"host": re.sub(r"[^!-~]|[:|/*!?]", "_", gethostname().split(".")[0])[:64] or "localhost"}
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0:
        values["socket"] = DEFAULT_SOCKET
    elif runtime.startswith("/"):
        values["socket"] = f"{runtime}/bccnd/bus.sock"
    return Layer(values, {})


def _inside(annotation: object) -> Mapping[str, FieldInfo]:
    """The settings in a table of this type; none when it is the type of a single setting."""
    if not isinstance(annotation, type) or not issubclass(annotation, Table):
        return {}
    types = get_type_hints(annotation, include_extras=True)
    return {f.name: FieldInfo.from_annotated_attribute(types[f.name], f) for f in fields(annotation)}


def _named_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every setting by its dotted name, in the order of the file."""
    for name, field in Settings.model_fields.items():
        inner = _inside(field.annotation)
        yield from ((f"{name}.{key}", each) for key, each in inner.items())
        if not inner:
            yield name, field


def named_values(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Every value by its dotted name, in the order of the file."""
    for name, value in settings:
        if isinstance(value, Table):
            yield from ((f"{name}.{key}", each) for key, each in asdict(value).items())
        else:
            yield name, value


def decoded(text: object, field: FieldInfo) -> object:
    """Text as the type of its setting. Text of another type stays as it is, and ``Settings`` refuses it."""
    if not isinstance(text, str):
        return text
    if field.annotation is int and _WHOLE.fullmatch(text):
        return int(text)
    if field.annotation is float and _DECIMAL.fullmatch(text):
        return float(text)
    if field.annotation is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if get_origin(field.annotation) is tuple:
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def as_toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > NUMBER_BITS:
        return "a number of more digits than can be shown"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        return "a table"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    lines, faults = [], error.errors(include_url=False)
    known = [*Settings.model_fields, *dict(_named_fields()), *_GRANT_FIELDS]
    for detail in faults[:ERRORS_SHOWN]:  # words for one take a millisecond
        name = ".".join(str(part) for part in detail["loc"] if isinstance(part, str))
        lines.append(one_line(f"{_where(name, origins, detail['loc'])}: {problem(name, detail, known)}"))
    return _first(lines, len(faults))


def _where(name: str, origins: Mapping[str, str], place: Sequence[int | str] = ()) -> str:
    """The place to mend: a flag, a variable, or a setting in a file."""
    if name.startswith("rights") and len(place) > 1:
        number, *key = place[1:3]
        return f"{origins['rights']}: [[rights]] {int(number) + 1}" + "".join(f": {each}" for each in key)
    origin = origins.get(name, "default")
    return origin if origin.startswith(("--", PREFIX)) else f"{origin}: {name}"


def problem(name: str, detail: ErrorDetails, known: Iterable[str]) -> str:
    """What is allowed, in words that fit every source; pydantic's own words are about Python.

    ``known``: the settings that there are.
    """
    context = detail.get("ctx", {})
    match detail["type"]:
        case "missing" if name == "socket":
            return "XDG_RUNTIME_DIR does not name a directory, so there is no default; give --socket PATH"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "unknown setting" + _hint(name, known)
        case "value_error":
            rule = str(context["error"])
        case "greater_than_equal":
            rule = f"must be at least {context['ge']}"
        case "less_than_equal":
            rule = f"must be at most {context['le']}"
        case "too_long":
            rule = f"must have at most {context['max_length']} items"
        case "tuple_type" if name == "rights":
            rule = "must be [[rights]] tables, one for each grant"
        case "literal_error" | "enum":
            rule = f"must be {context['expected']}"
        case kind:
            rule = f"must be {_KINDS[kind]}" if kind in _KINDS else detail["msg"]
    got = re.sub("//.*@", "//...@", as_toml(detail["input"]))  # of a URL, that may be a password
    return f"{rule} (got {got if len(got) <= 60 else got[:57] + '...'})"


_GRANT_FIELDS = [f"rights.{name}" for name in Grant.model_fields]
_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "string_unicode": "UTF-8 text",
    "string_too_short": "a name",
    "tuple_type": "a list of strings",
    "path_type": "a string, the path of a file",
    "model_type": "a table of settings",
    "dataclass_type": "a table of settings",
}


def _hint(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The name that was probably meant. ``prefix``, which all names have, does not make them alike."""
    from difflib import get_close_matches  # for a fault alone: a start has no time for it

    bare = [other.removeprefix(prefix) for other in known]
    close = get_close_matches(name.removeprefix(prefix), bare, n=1)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def _first(lines: list[str], count: int) -> str:
    more = [f"and {count - ERRORS_SHOWN} more"] if count > ERRORS_SHOWN else []
    return "\n".join(lines + more)


def one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
