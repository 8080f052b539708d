"""The documents lead somewhere: links, paths, sections, tests that are named; and the drawing of the parts is true.

A failure lists everything that is wrong at once, each with the nearest name that exists.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from bccnd.pipeline.layout import TABLES
from tests.documents import (
    DOCUMENTS,
    ROOT,
    anchor,
    blocks,
    coded,
    name_of,
    prose,
    rows,
    section,
    titles,
    tracked,
)
from tests.test_imports import (
    BESIDE,
    BPMUX_MODULES,
    CLIENT_MODULES,
    DOOR_MODULES,
    EVERYONE,
    MODULES,
    PARTS,
    imports_of,
    module_name,
    part_of,
)

ENDINGS = (
    "py", "pyi", "rs", "c", "h", "hpp", "go", "js", "ts", "pm", "pl", "sh", "lua", "toml", "service", "socket",
    "conf", "md", "json", "yml",
)  # fmt: skip
CODE = {
    name_of(path): path.read_text()
    for path in tracked(*(f".{end}" for end in ENDINGS if end not in ("md", "json", "yml")))
}
FILES = {name_of(path) for path in tracked("")}
FOLDERS = {str(parent) for name in FILES for parent in Path(name).parents}

# Where a path may begin besides the root of the project and the folder of the file that names it.
BEGINNINGS = ("", "bccnd", "tests", "clients")


def resolved(path: str, file: str) -> str | None:
    """The file or folder of the project that ``path`` names in ``file``; a pattern names what it matches."""
    wanted = path.rstrip("/")
    for beginning in (str(Path(file).parent), *BEGINNINGS):
        name = str(Path(beginning, wanted)) if not wanted.startswith("../") else _upwards(beginning, wanted)
        if name in FILES or name in FOLDERS:
            return name
        if "*" in name and any(Path(each).match(name) for each in FILES):
            return name
    return None


def _upwards(beginning: str, path: str) -> str:
    folder = Path(beginning)
    while path.startswith("../"):
        folder, path = folder.parent, path.removeprefix("../")
    return str(folder / path)


def nearest(wrong: str, names: Iterable[str]) -> str:
    found = get_close_matches(wrong, list(names), n=1, cutoff=0.4)
    return f"; nearest: {found[0]}" if found else ""


def flat(text: str) -> str:
    """A text on one line: a reference may go on behind the sign of a comment on the next."""
    return re.sub(r"\s*\n\s*(?:#|///?!?|\*|--)?\s*", " ", text)


def report(wrong: list[str]) -> None:
    assert not wrong, "\n" + "\n".join(wrong)


# --- links ---


def links() -> Iterator[tuple[str, str, str]]:
    """(document, what it links to, anchor)"""
    for name in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(name)):
            if not re.match(r"https?:", target):
                path, _, fragment = target.partition("#")
                yield name, path, fragment


def test_links_lead_somewhere() -> None:
    wrong = []
    for name, path, fragment in links():
        target = _upwards(str(Path(name).parent), path) if path else name
        if target not in FILES and target not in FOLDERS:
            wrong.append(f"{name}: no file {path}{nearest(target, FILES)}")
        elif fragment and fragment not in (anchors := [anchor(title) for title in titles(target)]):
            wrong.append(f"{name}: no heading #{fragment} in {target}{nearest(fragment, anchors)}")
    report(wrong)


# --- sections that are referred to ---

REFERENCE = re.compile(r'`{0,2}([\w./-]+\.md)`{0,2}((?:(?:,| and|, and) "[^"]{1,60}")+)')


def test_sections_that_are_referred_to_exist() -> None:
    """The form is: path, comma, title in quotes; more titles may follow."""
    wrong = []
    for name, text in (DOCUMENTS | CODE).items():
        for path, quoted in REFERENCE.findall(flat(text)):
            target = document_named(path, name)
            if target is None:
                wrong.append(f"{name}: no document {path}{nearest(path, DOCUMENTS)}")
                continue
            known = {title.replace("`", "") for title in titles(target)}
            wrong += [
                f'{name}: {target} has no section "{title}"{nearest(title, known)}'
                for title in re.findall(r'"([^"]+)"', quoted)
                if title.replace("`", "") not in known
            ]
    report(wrong)


def document_named(path: str, file: str) -> str | None:
    """The document that a path names: from where the file is, from the root, or by an end that only one has."""
    found = resolved(path, file)
    if found in DOCUMENTS:
        return found
    ends = [name for name in DOCUMENTS if name.endswith(f"/{path}")]
    return ends[0] if len(ends) == 1 else None


# Texts that are not in the tree; their words are in ours.
ELSEWHERE = re.compile(
    r"\b(?:bccn|sbus|bpmux|dndm|fyrehose-backbone)\.txt\b|\b(?:DESIGN|DECISIONS|HOUSE|MODELS)\b"
)


def test_nothing_refers_to_a_text_elsewhere() -> None:
    texts = {name: text for name, text in (DOCUMENTS | CODE).items() if name != "tests/test_documents.py"}
    report([f"{name}: {found}" for name, text in texts.items() for found in ELSEWHERE.findall(text)])


# --- paths ---

A_PATH = re.compile(
    rf"(?:[\w*.-]+/)*[\w*-]+\.(?:{'|'.join(ENDINGS)})|(?:bccnd|clients|tests|etc|systemd)/[\w*./-]*"
)
IN_CODE = re.compile(
    rf"(?<![\w/.$}}-])(?:bccnd|clients|tests|etc|systemd)/[\w*./-]+\.(?:{'|'.join(ENDINGS)})\b"
)
# Channels, and what programs make or administrators have: they look like paths of ours.
NO_PATHS = re.compile(r"bccnd/(?:ask|keys|link|link/status|links|\d.*)|results\.json|etc/bccnd/bccnd\.toml")


def test_paths_in_documents_exist() -> None:
    wrong = []
    for name in DOCUMENTS:
        for span in coded(prose(name)):
            path = span.partition("::")[0]
            somewhere = "/" not in path and any(file.endswith(f"/{path}") for file in FILES)
            if (
                A_PATH.fullmatch(path)
                and not somewhere
                and not NO_PATHS.fullmatch(path)
                and not resolved(path, name)
            ):
                wrong.append(f"{name}: no file {path}{nearest(path, FILES)}")
    report(wrong)


def test_paths_in_code_exist() -> None:
    report(
        [
            f"{name}: no file {path}{nearest(path, FILES)}"
            for name, text in CODE.items()
            for path in IN_CODE.findall(text)
            if not NO_PATHS.fullmatch(path) and not resolved(path, name)
        ]
    )


# --- tests that are named, and promises ---

TEST = re.compile(r"([\w/.-]+\.py)::(\w+)")


@cache
def defined_in(file: str) -> frozenset[str]:
    """The names that a test file defines: functions, methods, and what is assigned to a name."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found)


@cache
def known_tests() -> dict[str, str]:
    """Name of a test -> one file that has it."""
    return {
        test: file
        for file in sorted(FILES)
        if re.fullmatch(r"tests/(?:.+/)?test_\w+\.py", file)
        for test in defined_in(file)
        if test.startswith("test_")
    }


def test_tests_that_are_named_exist() -> None:
    wrong = []
    for name, text in (DOCUMENTS | CODE).items():
        for path, test in TEST.findall(text):
            file = resolved(path, name)
            if file is None or test not in defined_in(file):
                here = [each for each in (defined_in(file) if file else ()) if each.startswith("test_")]
                moved = known_tests().get(test)
                hint = f"; it is in {moved}" if moved else nearest(test, here) or nearest(test, known_tests())
                wrong.append(f"{name}: no {path}::{test}{hint}")
    report(wrong)


PROMISES = rows(section("tests/README.md", "What is promised"))


def test_promises_are_read() -> None:
    assert len(PROMISES) > 30


@pytest.mark.parametrize(("promise", "tests"), PROMISES, ids=[promise for promise, _ in PROMISES])
def test_every_promise_names_its_tests(promise: str, tests: str) -> None:
    named = coded(tests)
    assert named, "no test holds it"
    assert all(TEST.fullmatch(each) for each in named)


@pytest.mark.parametrize("line", rows(section("README.md", "Security")), ids=lambda line: line[2])
def test_every_line_on_security_names_its_test(line: list[str]) -> None:
    assert line[0].removesuffix(", where none is required") in (
        "local user",
        "host without the key",
        "host with the key",
    )
    assert all(TEST.fullmatch(each) for each in coded(line[3]))
    assert coded(line[3])


# --- what is listed ---


@pytest.mark.parametrize("document", DOCUMENTS)
def test_tables_are_whole(document: str) -> None:
    """Every row has as many cells as the head of its table, or it is shown as something else."""
    tables = re.findall(r"(?:^ *\|.*\n)+", prose(document), re.MULTILINE)
    bars = [[len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()] for table in tables]
    report([table.splitlines()[0] for table, row in zip(tables, bars, strict=True) if len(set(row)) > 1])


def test_no_file_is_left_half_merged() -> None:
    halves = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    report([name for name, text in {**CODE, **DOCUMENTS}.items() if halves.search(text)])


def test_every_table_of_the_pipeline_is_listed() -> None:
    listed = [coded(table)[0] for table, _ in rows(section("bccnd/pipeline/README.md", "What it makes"))]
    assert listed == list(TABLES)


def test_the_readme_is_short() -> None:
    assert len(DOCUMENTS["README.md"].splitlines()) <= 230


def test_every_document_is_linked() -> None:
    """Somebody who begins with README.md finds all of them."""
    found, new = set(), {"README.md"}
    while new:
        found |= new
        new = {
            target
            for name, path, _ in links()
            if name in found and path
            for target in [_upwards(str(Path(name).parent), path)]
            if target in DOCUMENTS
        } - found
    assert set(DOCUMENTS) - found == set()


# --- the drawing ---


class Box(NamedTuple):
    """A part as it is drawn: the line of its top, what stands in it, and the parts it names as below it."""

    top: int
    text: str
    stands_on: frozenset[str]


def boxes(drawing: str) -> dict[str, Box]:
    """A box begins ``┌─ name ─┐``; what follows ``->`` at the beginning of one of its lines is what it stands on."""
    lines = drawing.splitlines()
    found = {}
    for top, line in enumerate(lines):
        for edge in re.finditer(r"┌─ (\w+) ─*┐", line):
            left, right = edge.start(), edge.end() - 1
            inside = []
            for below in lines[top + 1 :]:
                if below[left] == "└":
                    assert below[right] == "┘", f"the box of {edge[1]} is not closed"
                    break
                assert below[left] + below[right] == "││", (
                    f"the box of {edge[1]} has no straight sides: {below}"
                )
                inside.append(below[left + 1 : right].strip())
            text, _, arrows = "\n".join(inside).partition("\n->")
            found[edge[1]] = Box(top, text, frozenset(arrows.split()))
    return found


(DRAWING,) = [block.code for block in blocks("bccnd/README.md") if block.language == "structure"]
BOXES = boxes(DRAWING)


# part -> the parts above it that it imports where few programs need them, inside a function.
AT_NEED = {"bccn": {"bccn_door"}}


def imported_by(part: str) -> frozenset[str]:
    """The other parts that a part imports, without those that everybody may."""
    everything = [*MODULES, *CLIENT_MODULES, *DOOR_MODULES, *BPMUX_MODULES]
    paths = [path for path in everything if part_of(module_name(path)) == part]
    found = {
        part_of(name)
        for path in paths
        for name in imports_of(path)
        if name.split(".")[0] in {"bccnd", *BESIDE}
    }
    return frozenset(found & (PARTS | BESIDE) - EVERYONE - {part} - AT_NEED.get(part, set()))


def test_every_part_has_its_box() -> None:
    assert set(BOXES) == {part for part in PARTS if part.islower() and part != "py"} | BESIDE
    assert all(box.text for box in BOXES.values())


@pytest.mark.parametrize("part", sorted(set(BOXES) - EVERYONE))
def test_a_box_names_what_its_part_imports(part: str) -> None:
    drawn, imported = BOXES[part].stands_on, imported_by(part)
    assert drawn == imported, f"to add: {sorted(imported - drawn)}, to remove: {sorted(drawn - imported)}"


@pytest.mark.parametrize("part", BOXES)
def test_arrows_of_the_drawing_point_down(part: str) -> None:
    assert [below for below in BOXES[part].stands_on if BOXES[below].top <= BOXES[part].top] == []


def test_the_reader_of_drawings_sees_a_wrong_one() -> None:
    drawn = "┌─ a ───┐  ┌─ b ┐\n│ one   │  │ x  │\n│ -> b  │  └────┘\n│    c  │\n└───────┘\n"
    assert boxes(drawn) == {"a": Box(0, "one", frozenset("bc")), "b": Box(0, "x", frozenset())}
    with pytest.raises(AssertionError, match="no straight sides"):
        boxes("┌─ a ───┐\n│ one    │\n└───────┘\n")


# --- the layers of the relay ---

(RELAY,) = [block.code for block in blocks("bccnd/README.md") if block.language == "layers"]
# The first words say what the layer is.
LAYER = {
    module: at
    for at, line in enumerate(RELAY.splitlines())
    for module in re.split(r" {2,}", line.strip())[1:]
}


def test_every_module_of_the_relay_has_its_layer() -> None:
    assert set(LAYER) == {path.stem for path in MODULES if path.parent.name == "relay"} - {"__init__"}


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.stem in LAYER and path.parent.name == "relay"]
)
def test_the_relay_imports_no_higher_layer(path: Path) -> None:
    imported = {name.split(".")[2] for name in imports_of(path) if name.startswith("bccnd.relay.")}
    assert [each for each in imported if LAYER[each] < LAYER[path.stem]] == []
