"""The page as a browser gets it: well formed, escaped, bounded, and loading nothing."""

import re
import signal
import subprocess
import sys
import threading
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bccnd.pipeline.report import page
from tests.pipeline.report.tables import FORGER, SPY, write_table, write_tables

# The elements without an end tag that the page uses.
VOID = {"meta", "link"}
# Bytes, for any number of hosts.
LARGEST = 2_000_000


class Reader(HTMLParser):
    """Collects the parts of a page; raises AssertionError if it is not well formed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.untitled = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.open and self.open[-1] == "svg" and dict(self.tags[-1][1]).get("role") == "img":
            self.untitled += tag != "title"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory):
    """``pages(hosts)`` is the page of a network of so many hosts, made once; with 0, that of missing tables."""

    @cache
    def made(hosts: int) -> str:
        directory: Path = tmp_path_factory.mktemp(f"hosts{hosts}")
        if hosts:
            write_tables(directory, hosts, minutes=180 if hosts < 20 else 40)
        page.write(directory, directory / "out" / "report.html", f"The <network> of {hosts}")
        return (directory / "out" / "report.html").read_text(encoding="utf-8")

    return made


@pytest.mark.parametrize("hosts", [0, 3, 200])
def test_page_is_well_formed_with_every_section_once(pages, hosts: int) -> None:
    reader = read(pages(hosts))
    assert [attrs["id"] for tag, attrs in reader.tags if tag == "section"] == list(page.SECTIONS)
    links = [attrs["href"] or "" for tag, attrs in reader.tags if tag == "a"]
    assert links[: len(page.SECTIONS)] == [f"#{section}" for section in page.SECTIONS]
    ids = [attrs["id"] for _, attrs in reader.tags if attrs.get("id")]
    assert len(ids) == len({*ids})
    assert {link.removeprefix("#") for link in links} <= {*ids}
    if hosts == 3:
        assert sum("-" in link for link in links) > 5
    assert reader.tags[0][0] == "html"
    assert f"The <network> of {hosts}" in reader.text


@pytest.mark.parametrize("hosts", [0, 3, 200])
def test_page_loads_nothing_and_runs_nothing(pages, hosts: int) -> None:
    html = pages(hosts)
    reader = read(html)
    assert {tag for tag, _ in reader.tags} & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    } == set()
    for tag, attrs in reader.tags:
        for name, value in attrs.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"href", "src", "xlink:href", "action"}:
                assert value is not None
                assert value.startswith("#") or value == "data:,", (tag, value)
    assert not re.search(r"https?://|url\(|@import|@font-face", html)


def test_channel_named_like_a_script_is_escaped(pages) -> None:
    html = pages(3)
    assert SPY not in html
    assert SPY in read(html).text
    assert "b/pump/<b>9</b>" not in html


def test_findings_come_first_and_match_the_tables(pages) -> None:
    text = " ".join(read(pages(3)).text)
    for sentence in (
        r"Host c lost 3\.\d percent of host a's messages between 14:05 and 14:20, in bursts of about 40",
        r"Host c has been silent since 15:32; a heartbeat was due every 5 seconds",
        rf"3 hosts rejected up to 412 datagrams each from {FORGER} between 13:05 and 13:25 \(hmac: signed with",
        r"Host c's recorder missed 1,200 messages",
        r"Host b recorded nothing between 14:30 and 14:40",
    ):
        assert re.search(sentence, text), sentence
    assert text.index("Host c lost") < text.rindex("Delivery matrix")


def test_programs_are_told_what_the_page_says(tmp_path: Path) -> None:
    write_tables(tmp_path, 3, minutes=180)
    said = page.write(tmp_path, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    text = " ".join(read(html).text)
    assert said.page == str(tmp_path / "report.html")
    assert said.span is not None
    assert 0 < said.totals.lost < said.totals.sent
    for finding in said.findings:
        assert finding.sentence in text
        assert not finding.link or f'id="{finding.link}"' in html
        assert finding.kind in documented_kinds()
    found = {(finding.kind, *sorted(finding.about.items())) for finding in said.findings}
    assert {
        ("loss", ("receiver", "c"), ("sender", "a")),
        ("rejected", ("peer", FORGER), ("verdict", "hmac")),
        ("recorder", ("host", "c")),
        ("recorder", ("host", "b")),
    } <= found


def documented_kinds() -> set[str]:
    readme = (Path(__file__).parents[3] / "bccnd" / "pipeline" / "README.md").read_text()
    section = readme.partition("## Monitoring")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \| (?:problem|warning|good|unknown|note)", section, re.MULTILINE)
    return {*re.findall(r"`([a-z-]+)`", " ".join(rows))}


def test_page_without_tables_says_so(pages) -> None:
    text = " ".join(read(pages(0)).text)
    assert "Nothing was recorded" in text
    assert "Loss is unknown: there is no recording." in text


def test_page_lists_what_was_set_aside(tmp_path: Path) -> None:
    write_table(
        tmp_path / "rejected-files", "batch=0", [{"path": "file:/in/<b>.parquet", "reason": "no magic"}]
    )
    directory = str(tmp_path / "rejected-files")
    said = page.write(tmp_path, tmp_path / "report.html", rejected_files=directory).lines()
    assert "Unknown: 1 file could not be read and was set aside: what it holds is not in this report." in said
    text = " ".join(read((tmp_path / "report.html").read_text()).text)
    assert "file:/in/<b>.parquet" in text
    assert "no magic" in text


def test_page_without_loss_says_so(tmp_path: Path) -> None:
    write_tables(tmp_path, 3, minutes=60, lossless=True)
    page.write(tmp_path, tmp_path / "report.html")
    text = " ".join(read((tmp_path / "report.html").read_text()).text)
    assert re.search(r"Nothing was lost: all [\d,]+ messages between 3 hosts arrived\.", text)
    assert "Nothing was lost at any time." in text


@pytest.mark.parametrize("hosts", [3, 200])
def test_every_chart_has_a_title_or_is_hidden(pages, hosts: int) -> None:
    reader = read(pages(hosts))
    drawn = [attrs for tag, attrs in reader.tags if tag == "svg"]
    assert all(attrs.get("role") == "img" or attrs.get("aria-hidden") == "true" for attrs in drawn)
    assert sum(attrs.get("role") == "img" for attrs in drawn) > 8
    assert reader.untitled == 0


def test_page_of_a_large_network_is_bounded(pages) -> None:
    html = pages(200)
    assert len(html.encode()) < LARGEST
    text = " ".join(read(html).text)
    assert "Large: the 24 senders and the 24 receivers with the most loss. Small: all 200 hosts." in text
    assert "All 200 hosts by name" in text
    assert re.search(r"The 12 worst of [\d,]+ pairs with loss", text)
    assert re.search(
        r"Host node67 lost messages of all 199 other hosts between .*: look for the cause at host node67",
        text,
    )


def test_matrix_has_numbers_if_hosts_are_few(pages) -> None:
    assert 'class="number' in pages(3)
    assert 'class="number' not in pages(200)


def test_old_page_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    page.replace_file(target, "old")
    with pytest.raises(UnicodeEncodeError):
        page.replace_file(target, "\ud800")
    assert target.read_text() == "old"
    page.replace_file(target, "new")
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


KILLED = """
import os, pathlib, signal, sys
from bccnd.pipeline.report import page
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
page.replace_file(pathlib.Path(sys.argv[1]), "in part")
"""


def test_what_a_report_that_was_killed_left_is_used_up(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", KILLED, target], timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL
    (tmp_path / ".report.html.4711").touch()  # of an earlier version
    assert len([*tmp_path.iterdir()]) == 2, "of ours, one"
    page.replace_file(target, "whole")
    assert [*tmp_path.iterdir()] == [target]
    assert target.read_text() == "whole"


def test_reports_at_the_same_time_are_each_whole(tmp_path: Path) -> None:
    target, faults = tmp_path / "report.html", list[str]()
    texts = [str(number) * 100_000 for number in range(4)]

    def write(text: str) -> None:
        for _ in range(50):
            page.replace_file(target, text)
            if (found := target.read_text()) not in texts:
                faults.append(found[:80])

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert faults == []
    assert [*tmp_path.iterdir()] == [target]


def test_a_full_disk_leaves_the_old_page_and_nothing_else(small_disk: Path) -> None:
    target = small_disk / "report.html"
    page.replace_file(target, "old")
    with pytest.raises(OSError, match="No space left"):
        page.replace_file(target, "x" * (2 << 20))
    assert [*small_disk.iterdir()] == [target]
    assert target.read_text() == "old"
    page.replace_file(target, "new")
    assert target.read_text() == "new"
