"""``bccnd/pipeline/collect.py``, with a real rsync at both ends: what a host that means harm can do, and what not.

In place of ssh stands a program of the host, which so runs there what it likes.
"""

import argparse
import os
import stat
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.pipeline import collect
from tests.packet_client import wait_until

pytestmark = pytest.mark.needs("rsync")

MB = 1 << 20
# A rule of rsync has its length before it, so another host's name must be as long.
HOST, OTHER = "relay01", "mon0001"
# Of yesterday, which it is not for long before it is the day before that.
DAY = f"date={datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
HONEST = 'exec "$@"'
ENDLESS = 'shift; exec rsync --bwlimit=20m "$@"'
# It changes what the other end asks for, and gives its own rsync that to answer.
LIES = """
exec {python} -c '
import os, subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
def pass_on():
    while data := os.read(0, 1 << 16):
        server.stdin.write(data.replace(b"host={host}", b"host={other}"))
        server.stdin.flush()
threading.Thread(target=pass_on, daemon=True).start()
os._exit(server.wait())
' "$@"
"""


def name(number: int, host: str = HOST, day: str = DAY) -> str:
    return f"{day}/host={host}/{1_700_000_000_000_000_000 + number}-0badcafe.parquet"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the host run this program for the other end."""

    def runs(program: str) -> None:
        script = tmp_path / "host"
        # Without "-l bccnd-collect relay01".
        script.write_text(f"#!/bin/sh\ncd {tmp_path}/record\nshift 1\n{program}\n")
        script.chmod(0o755)
        monkeypatch.setenv("RSYNC_RSH", str(script))

    runs(HONEST)
    return runs


def recorded(root: Path, *names: str, size: int = 4) -> None:
    for each in names:
        path = root / "record" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, size)


def collected(root: Path) -> list[str]:
    folder = root / "recorded"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def fetch(root: Path, quota: int = 100 * MB) -> None:
    collect.collect(f"{HOST}:./", HOST, root / "recorded", quota)


@pytest.mark.usefixtures("host")
def test_only_the_files_of_a_recorder_are_taken(tmp_path: Path) -> None:
    today = datetime.now(UTC)
    ahead, old, far = (f"date={today + timedelta(days=days):%Y-%m-%d}" for days in (1, -9, 1000))
    good = [name(1), name(2, day=ahead)]
    recorded(tmp_path, *good)
    for bad in (
        name(3, OTHER), name(4, day=old), name(5, day=far), name(6, day="date=x"), f"{DAY}/{Path(name(1)).name}",
        name(7).replace("-0", "-x"), name(8).replace("/1", "/.1"), name(9).replace("/1", "/\n1"),
        name(10).replace("/17", "/deeper/17"), f"{name(11)}.x", "mon01.pcap",
    ):  # fmt: skip
        recorded(tmp_path, bad)
    folder = (tmp_path / "record" / name(1)).parent
    os.symlink("/etc/passwd", folder / Path(name(20)).name)
    os.symlink("/etc", folder / Path(name(21)).name)
    os.mkfifo(folder / Path(name(22)).name)
    (folder / Path(name(23)).name).mkdir()
    fetch(tmp_path)
    assert collected(tmp_path) == sorted(good)


@pytest.mark.usefixtures("host")
def test_a_file_has_the_time_at_which_it_came(tmp_path: Path) -> None:
    recorded(tmp_path, name(1))
    os.utime(tmp_path / "record" / name(1), (2**33, 2**33))
    (tmp_path / "record" / name(1)).chmod(0o7777)
    fetch(tmp_path)
    here = (tmp_path / "recorded" / name(1)).stat()
    assert here.st_mtime <= time.time()
    assert stat.S_IMODE(here.st_mode) == 0o640


def test_a_file_without_end_is_cut_off_at_the_quota(
    tmp_path: Path, host: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    host(ENDLESS)
    monkeypatch.setattr(collect, "LOOK_SECONDS", 0.05)
    recorded(tmp_path, name(1))
    recorded(tmp_path, name(2), size=1 << 40)
    with pytest.raises(
        RefusedError, match=r"relay01: has 2 files, .* MB in .*, beyond its quota of 2\.1 MB and"
    ):
        fetch(tmp_path, 2 * MB)
    wait_until(lambda: collected(tmp_path) == [name(1)], "rsync to leave nothing of it")


def test_files_without_number_end_it(
    tmp_path: Path, host: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "MOST_FILES", 10)
    monkeypatch.setattr(collect, "LOOK_SECONDS", 60.0)  # so at the end only
    recorded(tmp_path, *map(name, range(20)), size=0)
    with pytest.raises(
        RefusedError, match=r"relay01: has 20 files, .*and 10 files; nothing more is fetched until"
    ):
        fetch(tmp_path)
    host("echo it is not even asked >asked")
    with pytest.raises(RefusedError, match="relay01: has 20 files"):
        fetch(tmp_path)
    assert not (tmp_path / "record" / "asked").exists()


@pytest.mark.usefixtures("host")
def test_a_host_has_no_part_of_the_quota_of_another(tmp_path: Path) -> None:
    recorded(tmp_path, name(1))
    other = tmp_path / "recorded" / name(1, OTHER)
    other.parent.mkdir(parents=True)
    other.touch()
    os.truncate(other, 1 << 40)
    fetch(tmp_path)
    assert collected(tmp_path) == sorted([name(1), name(1, OTHER)])


def test_a_host_that_lies_speaks_for_no_other(
    tmp_path: Path, host: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    host(LIES.format(python=sys.executable, host=HOST, other=OTHER))
    recorded(tmp_path, name(1, OTHER))
    with pytest.raises(UnavailableError, match="rsync ended with code"):
        fetch(tmp_path)
    assert collected(tmp_path) == []
    asks = collect.command
    monkeypatch.setattr(collect, "command", lambda *of: [*asks(*of)[:1], "--trust-sender", *asks(*of)[1:]])
    fetch(tmp_path)
    assert collected(tmp_path) == [name(1, OTHER)], "and it does lie"


def test_what_a_host_says_is_bounded_and_harmless(
    tmp_path: Path, host: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    host("printf '\\033[2Jno\\nuse\\n' >&2; yes | head -n 100000 >&2; exit 9")
    (tmp_path / "record").mkdir()
    with pytest.raises(UnavailableError, match="rsync ended with code"):
        fetch(tmp_path)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == r"bccnd-collect: \e[2Jno"
    assert len(lines) == collect.SAID_LINES


def test_a_full_disk_is_said_and_nothing_is_left_in_part(
    tmp_path: Path, small_disk: Path, host: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    host(HONEST)
    recorded(tmp_path, name(1))
    recorded(tmp_path, name(2), size=2 * MB)
    with pytest.raises(UnavailableError, match="rsync ended with code"):
        collect.collect(f"{HOST}:./", HOST, small_disk, 100 * MB)
    assert "No space left on device" in capfd.readouterr().err
    wait_until(
        lambda: [path.name for path in small_disk.rglob("*.parquet*")] == [Path(name(1)).name], "no rest"
    )


def test_without_rsync_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="rsync is not installed"):
        fetch(tmp_path)


@pytest.mark.usefixtures("host")
def test_the_command_ends_with_a_line_and_an_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, name(1), size=MB)
    arguments = [f"{HOST}:./", "--host", HOST, "--output", str(tmp_path / "recorded")]
    assert collect.main(arguments) == 0
    assert collect.main([*arguments, "--quota", "1000K"]) == 4
    assert capfd.readouterr().err.startswith("bccnd-collect: relay01: has 1 file, 1.0 MB in ")


def test_a_quota_is_a_number_of_bytes() -> None:
    assert [collect.size(text) for text in ("5", "1K", "20G", "2T")] == [5, 1024, 20 << 30, 2 << 40]
    for text in "", "G", "-1", "1.5G", "\u0661G", "20GB":
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number of bytes"):
            collect.size(text)
