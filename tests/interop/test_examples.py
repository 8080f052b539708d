"""What the documents show of the programs' output is what these print."""

import re
from pathlib import Path

import pytest

from bccnd.commands import columns
from bccnd.commands.dissection import dissect
from bccnd.commands.doctor import lines
from bccnd.commands.dump_lines import Paint, line
from bccnd.commands.sightings import Sighting
from bccnd.daemon.kernel import remedy
from bccnd.doctor import findings
from bccnd.doctor.facts import Facts, KeyFile
from bccnd.doctor.finding import Level
from bccnd.recorder.layout import SUFFIX
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.bccn1 import Level as Required
from tests.command_line import bccn
from tests.daemon_process import DaemonProcess
from tests.documents import blocks
from tests.packet_client import PacketClient
from tests.plain_bccn import datagram, plain_socket

SHOWN = {
    block.code.splitlines()[0].removeprefix("$ "): block.code.splitlines()[1:]
    for document in ("README.md", "systemd/README.md")
    for block in blocks(document)
    if block.language == "text"
}


def words(row: str) -> list[str]:
    """The words of a line, without numbers, names and plurals."""
    return [word.removesuffix("s") for word in re.findall(r"(?<![\w./:])[a-z]{2,}(?![\w./:])", row)]


def test_status_prints_what_is_shown(daemon: DaemonProcess, loopback_port: int) -> None:
    with PacketClient(daemon.socket) as client, plain_socket(loopback_port) as plain:
        client.subscribe("demo/>")
        plain.sendto(
            datagram("mon01/bccn/10186", 1, "demo/greeting", b"hello"), ("127.255.255.255", loopback_port)
        )
        assert client.message() == ("demo/greeting", b"hello")
        printed = bccn(daemon, "status").stdout.decode().splitlines()
    shown = SHOWN["bccn status"]
    assert [row.split()[0] for row in printed if row.startswith("  ")] == [
        row.split()[0] for row in shown if row.startswith("  ")
    ]
    assert [row.split() for row in printed if row.isupper()] == [
        row.split() for row in shown if row.isupper()
    ]
    same = [["bus"], ["messages"], ["datagrams"], ["kernel"], ["retained"], ["repair"], ["queued"]]
    assert [words(row) for row in printed if row.split()[:1] in same] == [
        words(row) for row in shown if row.split()[:1] in same
    ]


def test_top_has_the_columns_that_are_shown() -> None:
    """On a narrow terminal it leaves some out."""
    headings = [row.split() for row in SHOWN["bccn top"] if row.isupper()]
    for heading, table in zip(headings, (columns.CLIENTS, columns.SOURCES), strict=True):
        assert heading == [column.title for column in table if not column.spare or column.title in heading]


def test_doctor_prints_what_is_shown() -> None:
    facts = Facts("0.1.0", config_file="/etc/bccnd/bccnd.toml", key_file=KeyFile("/etc/bccnd/keys", 0o644, 0))
    judged = [*findings.configuration(facts), *findings.key_file(facts)]
    assert [each.level for each in judged] == [Level.OK, Level.PROBLEM]
    shown = [re.sub(r" +", " ", row) for row in SHOWN["bccn doctor"]]
    assert [
        row for row in map(" ".join, map(str.split, lines(judged, 80))) if row not in map(str.strip, shown)
    ] == []


DUMPED = [row for row in SHOWN["bccn dump"] if not row.startswith("$")]


@pytest.mark.parametrize("shown", DUMPED, ids=range(len(DUMPED)))
def test_dump_prints_what_is_shown(shown: str) -> None:
    time, direction, verdict, peer, src, seq, chan, algorithm, size, payload = re.fullmatch(
        r"(\S+) (\S+) +(\S+) +(\S+) (\S+) #(\d+) (\S+) (\S+) (\d+) B (\S+).*", shown
    ).groups()  # type: ignore[union-attr]
    integrity = Integrity([b"0123456789abcdef"], Required.HMAC) if algorithm == "hmac" else Integrity()
    sealed = integrity.seal(f"{src}:{seq}:{chan}|{payload}".encode())
    if verdict == "length":
        sealed = re.sub(rb"\[\d+", b"[99", sealed)
    assert len(sealed) == int(size)
    hours, minutes, seconds = time.split(":")
    time_ns = ((int(hours) * 60 + int(minutes)) * 60 * 10**6 + round(float(seconds) * 10**6)) * 1000
    sighting = Sighting(time_ns, direction, verdict, peer, dissect(sealed, integrity))
    assert line(sighting, None, Paint(on=False)) == shown


def test_kernel_drops_are_logged_with_the_remedy_that_is_shown() -> None:
    bytes_wanted = 1 << 24
    assert remedy(bytes_wanted, 1 << 20, 1 << 20, 1 << 20) in SHOWN


def test_recorded_files_lie_where_it_is_shown() -> None:

    (block,) = [block for block in blocks("bccnd/recorder/README.md") if block.language == "text"]
    folder = re.search(r"ls (\S+)", block.code)
    assert folder
    assert [part.partition("=")[0] for part in Path(folder[1]).parts[-2:]] == ["date", "host"]
    name = rf"\d{{19}}-[0-9a-f]{{8}}{re.escape(SUFFIX)}"
    assert re.search(rf"^{name}  {name}$", block.code, re.MULTILINE)
