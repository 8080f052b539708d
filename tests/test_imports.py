"""The layout and its import rules: what may know what, read from the source with ``ast``.

Imports point one way. A rule names what a part may import from the project besides itself; ``bccnd.errors``
is everyone's. Imports under ``TYPE_CHECKING`` and inside functions count as well.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bccnd"
CLIENT = ROOT / "clients" / "python" / "bccn"
DOOR = CLIENT.parent / "bccn_door"
BPMUX = CLIENT.parent / "bpmux"
# The packages in clients/python; bpmux imports nothing of the project.
BESIDE = {"bccn", "bccn_door", "bpmux"}

# part -> parts it may import, or single modules of them. A part is a package of bccnd/, one of its top modules, or
# one of ``BESIDE``.
ALLOWED: dict[str, set[str]] = {
    "errors": {"wire"},  # the verdict of a WireError
    "wire": set(),
    "net": set(),
    "relay": {"wire"},
    "process": {"relay.options"},
    "reload": {"wire", "relay", "process"},
    "report": {"relay", "wire"},
    "daemon": {"wire", "relay", "net", "process", "reload", "report", "restart"},
    "restart": {"process"},
    "pipeline": {"bccn", "wire", "process", "recorder"},
    "recorder": {"bccn", "wire", "process"},
    "cli": {"bccn", "commands", "process"},
    "commands": {
        "bccn",
        "bccn_door",
        "bpmux",
        "beside",
        "wire",
        "process",
        "doctor",
        "recorder",
        "backbone",
        "uplink",
        "mux",
        "dndm",
    },
    "beside": {"bccn", "process"},
    "doctor": {"wire", "process.standard_streams"},
    "backbone": {"wire", "net", "process", "restart"},
    "dndm": {"bccn", "beside", "wire", "process", "relay.allowance", "relay.deadlines", "relay.moment"},
    "mux": {"bccn", "beside", "bpmux", "doctor", "net", "process", "recorder.layout"},
    "uplink": {
        "bccn",
        "beside",
        "wire",
        "net",
        "relay.pattern",
        "relay.allowance",
        "relay.deadlines",
        "process",
    },
}
EVERYONE = {"errors"}

# Anything that waits, reads a clock, logs or talks to the system.
NOT_PURE = {
    "asyncio", "datetime", "logging", "os", "random", "select", "selectors", "signal", "socket", "structlog",
    "subprocess", "threading", "time", "uvloop",
}  # fmt: skip

# third party -> parts that may import it; everything else third party is for pyproject.toml to allow.
ONLY_IN = {
    "pyspark": {"pipeline"},
    "py4j": {"pipeline"},  # pyspark's own: it lets its errors through
    "numpy": {"pipeline"},  # pyspark[sql]'s own
    "jinja2": {"pipeline.report"},
    "pyarrow": {"pipeline", "recorder", "mux.record"},
    "uvloop": {"daemon", "backbone.command", "beside.command"},
    "google": {"wire.dndm", "commands.protobuf_types"},  # protobuf
    "nats": {"uplink.nats_session"},
    "nkeys": {"uplink.nats_session"},  # nats-py's own, of its extra of that name
    "websockets": {"mux.websocket"},
    "serial": {"dndm.serial_line"},  # pyserial
    "structlog": {
        *("process", "daemon", "report", "restart", "recorder", "backbone", "beside", "uplink", "mux", "dndm")
    },
    "prometheus_client": {"process.exposition"},
    "pydantic": {
        *(
            "process",
            "recorder.settings",
            "backbone.settings",
            "mux.settings",
            "uplink.settings",
            "dndm.settings",
        )
    },
    "pydantic_core": {"process"},  # pydantic's own
}

# Test files that lie beside those of single modules, and show what several of them do together.
OF_SEVERAL_MODULES = [
    "daemon/test_clock", "daemon/test_stop", "pipeline/test_cluster", "relay/test_day", "relay/test_interleaving",
]  # fmt: skip

# What a checkout has at its top; dotfiles, and the LICENSE that pyproject.toml names, besides.
TOP_LEVEL = {"pyproject.toml", "bccnd", "clients", "systemd", "tests", "etc", "README.md", "LICENSE"}


def module_name(path: Path) -> str:
    """``bccnd/wire/sbus.py`` -> ``bccnd.wire.sbus``; the client's files begin with ``bccn``."""
    base = PACKAGE.parent if path.is_relative_to(PACKAGE) else CLIENT.parent
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, *, is_package: bool) -> set[str]:
    """Absolute dotted names of all that `source` imports; ``from a import b`` gives ``a.b``."""
    package = module if is_package else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


@cache
def imports_of(path: Path) -> set[str]:
    return imports(path.read_text(), module_name(path), is_package=path.name == "__init__.py")


def part_of(name: str) -> str:
    """``bccnd.wire.sbus`` -> ``wire``; ``bccn.client`` -> ``bccn``; ``bccnd`` itself -> the empty string."""
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "bccnd" else first


def is_within(name: str, allowed: set[str]) -> bool:
    """Whether what is imported is one of the parts or modules ``allowed``, or something in it."""
    inside = name.removeprefix("bccnd.")
    return any(inside == each or inside.startswith(f"{each}.") for each in allowed)


MODULES = sorted(PACKAGE.rglob("*.py"))
CLIENT_MODULES = sorted(CLIENT.rglob("*.py"))
DOOR_MODULES = sorted(DOOR.rglob("*.py"))
BPMUX_MODULES = sorted(BPMUX.rglob("*.py"))
PARTS = {
    path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if not path.name.startswith("_")
}


def module_id(path: Path) -> str:
    return module_name(path)


def test_the_reader_of_imports_sees_every_form() -> None:
    source = (
        "import os.path, socket as s\nfrom bccnd import wire\nfrom . import pattern\nfrom .. import errors\n"
        "def f():\n    from ..wire.sbus import parse\n"
    )
    assert imports(source, "bccnd.relay.router", is_package=False) == {
        "os.path", "socket", "bccnd.wire", "bccnd.relay.pattern", "bccnd.errors", "bccnd.wire.sbus.parse",
    }  # fmt: skip
    assert imports("from .router import Router", "bccnd.relay", is_package=True) == {
        "bccnd.relay.router.Router"
    }


def test_a_rule_for_one_module_allows_no_other_of_its_part() -> None:
    rule = {"relay.options"}
    assert is_within("bccnd.relay.options.Queue", rule)
    assert is_within("bccnd.relay.options", rule)
    assert not is_within("bccnd.relay.core.Relay", rule)
    assert not is_within("bccnd.relay", rule)
    assert not is_within("bccnd.relay.options_of", rule)


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_imports_point_one_way(path: Path) -> None:
    mine = part_of(module_name(path))
    if not mine:
        assert imports_of(path) == {"os"}, "for BCCN_PURE, and nothing else"
        return
    allowed = ALLOWED[mine] | EVERYONE | {mine}
    wanted = {name for name in imports_of(path) if part_of(name) in PARTS | BESIDE}
    assert {name for name in wanted if not is_within(name, allowed)} == set()


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_all_that_its_rule_allows(part: str) -> None:
    wanted = {name for path in MODULES if part_of(module_name(path)) == part for name in imports_of(path)}
    assert {each for each in ALLOWED[part] if not any(is_within(name, {each}) for name in wanted)} == set()


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_only_the_daemon_joins_relay_and_net(path: Path) -> None:
    parts = {part_of(name) for name in imports_of(path)}
    if {"relay", "net"} <= parts:
        assert part_of(module_name(path)) == "daemon"


@pytest.mark.parametrize("path", sorted((PACKAGE / "daemon").glob("*.py")), ids=module_id)
def test_the_daemon_does_not_reach_into_the_relay(path: Path) -> None:
    """It calls the relay, and knows nothing of the parts that the relay is made of."""
    assert not re.search(r"(?<!bccnd\.)relay\.state\b", path.read_text())


# Modules of other parts that decide and do nothing else.
ALSO_PURE = {
    "bccnd.backbone.core", "bccnd.backbone.leases", "bccnd.backbone.numbers", "bccnd.uplink.carrier",
    "bccnd.uplink.core", "bccnd.uplink.exports", "bccnd.uplink.given", "bccnd.uplink.heard", "bccnd.uplink.homes",
    "bccnd.uplink.inbound", "bccnd.uplink.options", "bccnd.uplink.outbound",
    "bccnd.uplink.fyrehose", "bccnd.uplink.fyrehose_answers", "bccnd.uplink.fyrehose_missing",
    "bccnd.uplink.fyrehose_window",
    *(f"bccnd.dndm.{name}" for name in (
        "account", "addrbook", "adverts", "asking", "core", "effects", "handshake", "link", "options", "passing",
        "routing", "seen", "settling", "state", "telling", "troubles",
    )),
    "bccnd.beside.answers",
}  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if part_of(module_name(p)) in {"wire", "relay"} or module_name(p) in ALSO_PURE],
    ids=module_id,
)
def test_wire_and_relay_have_no_io_and_no_clock(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports_of(path)} & NOT_PURE


@pytest.mark.parametrize("path", [*MODULES, *CLIENT_MODULES, *DOOR_MODULES], ids=module_id)
def test_third_party_packages_stay_where_they_belong(path: Path) -> None:
    inside = module_name(path).removeprefix("bccnd.")
    for package in (
        {name.split(".")[0] for name in imports_of(path)} - sys.stdlib_module_names - {"bccnd", *BESIDE}
    ):
        assert package in ONLY_IN, f"{package} is no dependency of the project"
        assert any(inside == part or inside.startswith(f"{part}.") for part in ONLY_IN[package]), package


@pytest.mark.parametrize("path", [*CLIENT_MODULES, *DOOR_MODULES], ids=module_id)
def test_the_python_client_needs_only_the_standard_library(path: Path) -> None:
    assert {name.split(".")[0] for name in imports_of(path)} <= sys.stdlib_module_names | BESIDE


def test_the_client_knows_its_way_through_a_door_at_one_place() -> None:
    """``bccn.session`` imports it for the address of a door. Of the client it knows the lowest floor alone."""
    knowing = [
        module_name(path)
        for path in CLIENT_MODULES
        if {"bccn_door", "bpmux"} & {part_of(name) for name in imports_of(path)}
    ]
    assert knowing == ["bccn.session"]
    known = {name for path in DOOR_MODULES for name in imports_of(path) if part_of(name) == "bccn"}
    assert {name.rpartition(".")[0] for name in known} == {"bccn.errors", "bccn.transport"}


@pytest.mark.parametrize("path", BPMUX_MODULES, ids=module_id)
def test_bpmux_is_pure_and_stands_alone(path: Path) -> None:
    assert {name.split(".")[0] for name in imports_of(path)} <= sys.stdlib_module_names - NOT_PURE | {"bpmux"}


ACYCLIC = [*MODULES, *CLIENT_MODULES, *DOOR_MODULES, *BPMUX_MODULES]


def imported_modules(path: Path) -> set[str]:
    """The modules of the project that one imports, whatever it names of them."""
    others = {module_name(each) for each in ACYCLIC if each != path}
    return {name if name in others else name.rpartition(".")[0] for name in imports_of(path)} & others


def find_cycle(imported: dict[str, set[str]]) -> list[str]:
    """A chain of modules from one back to itself, each importing the next; empty when there is none."""
    done: set[str] = set()

    def visit(module: str, chain: list[str]) -> list[str]:
        if module in chain:
            return [*chain[chain.index(module) :], module]
        if module not in done:
            for following in sorted(imported.get(module, ())):
                if cycle := visit(following, [*chain, module]):
                    return cycle
            done.add(module)
        return []

    return next((cycle for module in sorted(imported) if (cycle := visit(module, []))), [])


def test_the_reader_of_cycles_finds_one() -> None:
    assert find_cycle({"a": {"b", "x"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_modules_import_each_other() -> None:
    cycle = find_cycle({module_name(path): imported_modules(path) for path in ACYCLIC})
    assert not cycle, " -> ".join(cycle)


@pytest.mark.parametrize("path", sorted((PACKAGE / "relay").glob("*.py")), ids=module_id)
def test_the_relay_imports_nothing_for_types_alone(path: Path) -> None:
    assert "TYPE_CHECKING" not in path.read_text()


def test_the_top_level_is_as_documented() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = listed.stdout.splitlines() if listed.returncode == 0 else [path.name for path in ROOT.iterdir()]
    assert {name.split("/")[0] for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_every_part_has_a_rule() -> None:
    assert set(ALLOWED) >= PARTS - {"py.typed", "py", "README"}


@pytest.mark.parametrize("path", [path for path in MODULES if not path.name.startswith("__")], ids=module_id)
def test_every_module_has_a_test_file_of_its_own(path: Path) -> None:
    inside = path.relative_to(PACKAGE)
    assert (ROOT / "tests" / inside.parent / f"test_{inside.stem}.py").is_file()


@pytest.mark.parametrize(
    "path", [path for path in [*BPMUX_MODULES, *DOOR_MODULES] if path.stem != "__init__"], ids=module_id
)
def test_every_module_beside_the_client_has_a_test_file(path: Path) -> None:
    assert (ROOT / "tests/clients" / path.parent.name / f"test_{path.stem}.py").is_file()


def test_every_test_file_is_of_a_module_or_of_a_part_of_one() -> None:
    """``test_delivery.py`` is of ``delivery.py``, and ``test_delivery_room.py`` is a part of the same."""
    of_none = []
    for folder in {path.parent for path in MODULES if path.parent != PACKAGE}:
        inside = folder.relative_to(PACKAGE)
        subjects = "|".join(sorted({path.stem for path in folder.iterdir()} - {"__init__", "__pycache__"}))
        of_a_subject = re.compile(rf"test_({subjects})(_[a-z0-9_]+)?")
        of_none += [
            str(inside / path.stem)
            for path in (ROOT / "tests" / inside).glob("test_*.py")
            if not of_a_subject.fullmatch(path.stem)
        ]
    assert sorted(of_none) == OF_SEVERAL_MODULES
