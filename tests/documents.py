"""The documents of the project, taken apart: sections, fenced blocks, tables, links."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Block(NamedTuple):
    """A fenced block: where it stands, the word behind its fence, and what is in it."""

    document: str
    language: str
    code: str


def tracked(*endings: str) -> list[Path]:
    """The files of the project that end so, new ones too, without those that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(f"*{end}" for end in endings)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.splitlines()]
    else:
        hidden = re.compile(r"/(\.|target/|build/)")
        found = [path for end in endings for path in ROOT.rglob(f"*{end}") if not hidden.search(str(path))]
    return sorted(path for path in found if path.is_file())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


DOCUMENTS = {name_of(path): path.read_text() for path in tracked(".md")}


def blocks(*documents: str) -> list[Block]:
    """The fenced blocks of these documents, or of all."""
    return [
        Block(name, language, code)
        for name in documents or DOCUMENTS
        for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", DOCUMENTS[name], re.DOTALL | re.MULTILINE)
    ]


def prose(document: str) -> str:
    """The document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", DOCUMENTS[document], flags=re.DOTALL | re.MULTILINE)


def titles(document: str) -> list[str]:
    return re.findall(r"^#+ (.*?)\s*$", prose(document), re.MULTILINE)


def anchor(title: str) -> str:
    """What a link to a heading is called, as on GitHub."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def section(document: str, title: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    found = re.search(
        rf"^(#+) {re.escape(title)}$(.*?)(?=^#{{1,2}} |\Z)", DOCUMENTS[document], re.DOTALL | re.MULTILINE
    )
    assert found, f"{document} has no section {title}"
    return found[2]


def rows(text: str, *, of: int = 0) -> list[list[str]]:
    """The cells of the table number ``of`` in a text, without its head; ``\\|`` within a cell is a bar."""
    tables = re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE)
    lines = tables[of].splitlines()[2:]
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


def coded(text: str) -> list[str]:
    """What stands in back quotes."""
    return re.findall(r"`([^`]+)`", text)
