"""The files of the page."""

import re
from pathlib import Path, PurePosixPath

from bccnd.mux.pages import HEADERS, read_pages

PAGES = read_pages({"publish": False})
CLIENT = Path(__file__).parents[2] / "clients/javascript/src"


def test_every_file_that_the_page_loads_is_there() -> None:
    loaded, new = set[str](), {"/"}
    while new:
        loaded |= new
        found = set[str]()
        for path in new:
            text = PAGES[path][1].decode()
            names = re.findall(r' (?:href|src)="([^"]+)"', text) if path == "/" else _imports(text)
            found |= {_beside(path, name) for name in names}
        new = found - loaded
    assert {"/main.js", "/style.css", "/client/browser.js", "/client/bpmux/endpoint.js"} < loaded


def _imports(text: str) -> list[str]:
    return re.findall(r' from "([^"]+)";', text)


def _beside(path: str, name: str) -> str:
    parts: list[str] = []
    for part in PurePosixPath(path).parent.joinpath(name).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return str(PurePosixPath(*parts))


def test_the_client_of_the_page_is_the_client() -> None:
    for path in CLIENT.rglob("*.js"):
        assert PAGES[f"/client/{path.relative_to(CLIENT)}"][1] == path.read_bytes()


def test_nothing_comes_from_elsewhere() -> None:
    own = {path: body.decode() for path, (_, body) in PAGES.items() if not path.startswith("/client/")}
    assert len(own) > 8
    assert [path for path, text in own.items() if "://" in text] == []
    assert " style=" not in own["/"]
    assert re.findall(r"<script(?! type=\"module\" src=\"/)", own["/"]) == []


def test_modules_are_short() -> None:
    lengths = {path: body.count(b"\n") for path, (_, body) in PAGES.items()}
    assert {path: length for path, length in lengths.items() if length > 420} == {}


def test_the_browser_is_told_what_may_do_what() -> None:
    texts = {f"text/{each}; charset=utf-8" for each in ("html", "css", "javascript")}
    assert {kind for kind, _ in PAGES.values()} == {*texts, "application/json"}
    policy = dict(HEADERS)["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe" not in policy
    assert dict(HEADERS)["X-Content-Type-Options"] == "nosniff"


def test_the_page_is_told_whether_it_may_publish() -> None:
    assert PAGES["/settings.json"][1] == b'{"publish": false}'
    assert read_pages({"publish": True})["/settings.json"][1] == b'{"publish": true}'
