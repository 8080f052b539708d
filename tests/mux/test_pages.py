"""The files of the page."""

import re
from pathlib import Path, PurePosixPath

import pytest

from bccnd.mux.pages import HEADERS, read_pages

PAGES = read_pages({"publish": False})
CLIENT = Path(__file__).parents[2] / "clients/javascript/src"


def test_every_file_that_the_page_loads_is_there() -> None:
    loaded, new = set[str](), {"/"}
    while new:
        loaded |= new
        found = set[str]()
        for path in new:
            text = PAGES[path].body.decode()
            names = re.findall(r' (?:href|src)="([^"#]+)"', text) if path == "/" else _imports(text)
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
        assert PAGES[f"/client/{path.relative_to(CLIENT)}"].body == path.read_bytes()


def test_nothing_comes_from_elsewhere() -> None:
    own = {path: page.body.decode() for path, page in PAGES.items() if not path.startswith("/client/")}
    assert len(own) > 8
    namespace = "http://www.w3.org/2000/svg"  # a name, which nobody fetches
    assert [path for path, text in own.items() if "://" in text.replace(namespace, "")] == []
    assert " style=" not in own["/"]
    assert re.findall(r"<script(?! type=\"module\" src=\"/)", own["/"]) == []


def test_modules_are_short() -> None:
    lengths = {path: page.body.count(b"\n") for path, page in PAGES.items()}
    assert {path: length for path, length in lengths.items() if length > 420} == {}


def test_the_browser_is_told_what_may_do_what() -> None:
    texts = {f"text/{each}; charset=utf-8" for each in ("html", "css", "javascript")}
    assert {page.kind for page in PAGES.values()} == {*texts, "application/json", "image/svg+xml"}
    headers = dict(HEADERS)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe" not in policy
    assert {"frame-ancestors 'none'", "require-trusted-types-for 'script'"} < set(policy.split("; "))
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer", "not even its path goes elsewhere"
    assert {headers[f"Cross-Origin-{each}-Policy"] for each in ("Opener", "Resource")} == {"same-origin"}
    assert headers["Cache-Control"] == "no-cache", "a new door has a new page at once"


def test_what_is_only_for_its_makers_is_not_served() -> None:
    assert {"/main.js", "/icon.svg"} < PAGES.keys()
    assert [path for path in PAGES if path.endswith((".json", ".ts"))] == ["/settings.json"]


def test_the_page_is_told_whether_it_may_publish() -> None:
    """It shows its box for that when it has read so, and not before."""
    assert '<section id="publish" aria-labelledby="publish-title" hidden>' in PAGES["/"].body.decode()
    assert PAGES["/settings.json"].body == b'{"publish": false}'
    assert read_pages({"publish": True})["/settings.json"].body == b'{"publish": true}'


def test_a_tag_is_that_of_the_content() -> None:
    again, other = read_pages({"publish": False}), read_pages({"publish": True})
    assert {path: page.tag for path, page in again.items()} == {
        path: page.tag for path, page in PAGES.items()
    }
    assert [path for path in PAGES if other[path].tag != PAGES[path].tag] == ["/settings.json"]
    assert len({page.tag for page in PAGES.values()}) == len(PAGES)


# --- colours ---

COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--(\w+): light-dark\(#(\w{6}), #(\w{6})\);", PAGES["/style.css"].body.decode()
    )
}


def _luminance(colour: str) -> float:
    """Relative, from 0 to 1 (WCAG 2.1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_reckoned_as_the_standard_says() -> None:
    assert (_contrast("000000", "ffffff"), _contrast("777777", "777777")) == (21, 1)
    assert round(_contrast("767676", "ffffff"), 2) == 4.54


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["ground", "card"])
@pytest.mark.parametrize(
    ("colour", "least"),
    [("ink", 4.5), ("quiet", 4.5), ("mark", 4.5), ("warning", 4.5), ("problem", 4.5), ("edge", 3.0)],
)
def test_colours_stand_out(colour: str, least: float, ground: str, theme: int) -> None:
    """Text by 4.5 to 1, and the edges of controls by 3 to 1."""
    assert _contrast(COLOURS[colour][theme], COLOURS[ground][theme]) >= least


def test_no_colour_is_outside_of_the_pairs() -> None:
    text = PAGES["/style.css"].body.decode()
    assert len(re.findall(r"#[0-9a-f]{3,8}\b", text)) == 2 * len(COLOURS)
