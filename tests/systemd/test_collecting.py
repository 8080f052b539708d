"""Collecting from hosts: the command of ``bccnd-collect@.service``, between two folders.

In place of ssh stands a program that does what sshd does there: it runs the forced command of the recipe.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bccnd.pipeline import preconditions
from tests.documents import DOCUMENTS
from tests.needs import cannot_run
from tests.pipeline import network
from tests.spark import archive
from tests.systemd.booted_host import ROOT, BootedHost, why_not
from tests.systemd.test_units import FOLDER, settings_of

pytestmark = pytest.mark.needs("rsync", "rrsync")

# Of yesterday, which it is not for long before it is the day before that.
DAY = f"date={datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
WHOLE = f"{DAY}/host=relay01/1700000000000000001-00000000.parquet"
NETWORK = "/var/lib/bccnd-network"
SPARK_SECONDS = 300


@pytest.fixture
def collect(tmp_path: Path) -> Callable[[], None]:
    """Runs the unit's command for a host whose recorder writes to ``record``, into ``recorded``."""
    (forced,) = re.findall(r'command="([^"]+)"', DOCUMENTS["bccnd/pipeline/README.md"])
    forced = forced.replace("/var/lib/bccnd-record", str(tmp_path / "record"))
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f'#!/bin/sh\n[ "$1$2" = -lbccnd-collect ] && [ "$3" = relay01 ] || exit 9\nshift 3\n'
        f'SSH_ORIGINAL_COMMAND="$*" exec {forced}\n'
    )
    ssh.chmod(0o755)
    unit = settings_of(FOLDER / "bccnd-collect@.service")
    (command,) = unit["ExecStart"]
    for name, value in (each.split("=", 1) for each in unit["Environment"] if each[0] != '"'):
        command = command.replace(f"${{{name}}}", value)
    program, *argv = shlex.split(command.replace("%i", "relay01").replace(NETWORK, str(tmp_path)))
    assert program == "/usr/bin/bccnd-collect"

    def run() -> None:
        subprocess.run(
            [sys.executable, "-m", "bccnd.pipeline.collect", *argv],
            env={**os.environ, "RSYNC_RSH": str(ssh)}, check=True, timeout=60,
        )  # fmt: skip

    (tmp_path / "recorded").mkdir()
    return run


def recorded(root: Path, name: str, content: str = "rows") -> Path:
    path = root / "record" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def collected(root: Path) -> dict[str, str]:
    files = [path for path in (root / "recorded").rglob("*") if path.is_file()]
    return {str(path.relative_to(root / "recorded")): path.read_text() for path in files}


def test_whole_files_are_fetched_once(collect: Callable[[], None], tmp_path: Path) -> None:
    began, first = time.time(), recorded(tmp_path, WHOLE)
    os.utime(first, (1_000_000_000, 1_000_000_000))
    recorded(tmp_path, ".host=relay01.lock")
    recorded(tmp_path, "mon01.pcap")
    recorded(tmp_path, WHOLE.replace("relay01", "mon01"))  # of which it is to say nothing
    recorded(tmp_path, WHOLE.replace("/17", "/deeper/17"))
    recorded(tmp_path, WHOLE.replace("/17", "/.17") + ".partial")
    today = f"date={datetime.now(UTC):%Y-%m-%d}"
    recorded(tmp_path, WHOLE.replace(DAY, today).replace("/17", "/.17") + ".partial")
    collect()
    assert collected(tmp_path) == {WHOLE: "rows"}
    here = tmp_path / "recorded" / WHOLE
    assert here.stat().st_mode & 0o777 == 0o640
    assert here.stat().st_mtime >= began - 1, "it goes so long after it came"
    assert not (tmp_path / "recorded" / today).exists()
    preconditions.recordings(tmp_path / "recorded")
    inode = here.stat().st_ino
    second = WHOLE.replace("1-0", "4-0")
    recorded(tmp_path, second, "more")
    collect()
    assert collected(tmp_path) == {WHOLE: "rows", second: "more"}
    assert here.stat().st_ino == inode
    first.unlink()  # as recorders do with their oldest
    collect()
    assert collected(tmp_path) == {WHOLE: "rows", second: "more"}


def test_the_account_can_neither_write_nor_leave_its_folder(
    collect: Callable[[], None], tmp_path: Path
) -> None:
    recorded(tmp_path, WHOLE)
    (tmp_path / "secret").write_text("secret")
    environ = {**os.environ, "RSYNC_RSH": str(tmp_path / "ssh")}
    host = "bccnd-collect@relay01:"
    for source, target in (
        (str(tmp_path / "secret"), f"{host}/"),
        (f"{host}/../secret", str(tmp_path / "stolen")),
    ):
        ran = subprocess.run(
            ["rsync", source, target], env=environ, capture_output=True, timeout=60, check=False
        )
        assert ran.returncode != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record", "recorded", "secret", "ssh"]
    assert not (tmp_path / "record" / "secret").exists()


def test_files_go_when_no_recorder_has_them_any_more(tmp_path: Path) -> None:
    # Whether or not the run fails.
    command, *_ = settings_of(FOLDER / "bccnd-pipeline.service")["ExecStopPost"]
    argv = [
        word.replace(NETWORK, str(tmp_path))
        for word in shlex.split(command.replace("(", "'('").replace(")", "')'"))
    ]
    names = {
        "date=1/host=a/1.parquet": 10,
        "date=1/host=b/1.parquet": 7,
        "date=1/.lock": 99,
        "date=1/host=a/.2.parquet.X7bQ2w": 10,
    }
    for name, days in names.items():
        path = tmp_path / "recorded" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (time.time() - days * 86400,) * 2)
    subprocess.run(argv, check=True)
    assert sorted(collected(tmp_path)) == ["date=1/.lock", "date=1/host=b/1.parquet"]
    empty = tmp_path / "recorded" / "date=1" / "host=a"
    assert empty.exists(), "perhaps a file is just coming"
    os.utime(empty, (0, 0))
    subprocess.run(argv, check=True)
    assert not empty.exists()


def test_a_run_that_is_killed_leaves_no_scratch(tmp_path: Path) -> None:
    unit = settings_of(FOLDER / "bccnd-pipeline.service")
    scratch = f"/var/cache/{unit['CacheDirectory'][0]}"
    assert f"SPARK_LOCAL_DIRS={scratch}" in unit["Environment"]
    (tmp_path / "blockmgr-1" / "0e").mkdir(parents=True)
    (tmp_path / "blockmgr-1" / "0e" / "shuffle_0_0_0.data").write_text("rows")
    subprocess.run(shlex.split(unit["ExecStopPost"][-1].replace(scratch, str(tmp_path))), check=True)
    assert [*tmp_path.iterdir()] == []


def spark_settings() -> Path:
    """Those of other tests, where the host has them. Java passes over what they name and a unit does not see."""
    made = archive.folder()
    return Path("/opt/checkout") / (made if made.is_relative_to(ROOT) else archive.HERE).relative_to(ROOT)


@pytest.mark.spark
def test_the_units_collect_and_report_within_their_restrictions(tmp_path: Path) -> None:
    """From a folder, as there is no other host; the report is of a network that sent yesterday."""
    if reason := why_not():
        cannot_run(reason)
    noon = (datetime.now(UTC) - timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    network.write(network.Plan(hosts=2, sources=1, messages=200, begin=noon), tmp_path / "record")
    with BootedHost(tmp_path) as host:
        names = {path.name.removeprefix("host=") for path in (tmp_path / "record").glob("date=*/host=*")}
        drop_ins = {f"bccnd-collect@{name}": "FROM=/run/record/" for name in names}
        # A JVM does not understand the control groups that this host has within another.
        drop_ins["bccnd-pipeline"] = (
            f"JAVA_TOOL_OPTIONS=-XX:-UseContainerSupport SPARK_CONF_DIR={spark_settings()}"
        )
        for unit, environment in drop_ins.items():
            host.write(f"/run/units/{unit}.service.d/test.conf", f"[Service]\nEnvironment={environment}\n")
        host.run("systemctl", "daemon-reload")
        host.run("cp", "--recursive", str(tmp_path / "record"), "/run/record")  # units see no other /tmp
        for unit in drop_ins:
            start = ["nsenter", "--all", "--target", str(host.init), "systemctl", "start", f"{unit}.service"]
            ran = subprocess.run(start, timeout=SPARK_SECONDS, check=False)
            assert ran.returncode == 0, host.journal(unit)
        assert "bccnd-pipeline.service: Deactivated successfully" in host.journal("bccnd-pipeline")
        root = host.path(NETWORK)
        assert len([*root.glob("recorded/date=*/host=*/*.parquet")]) == 2
        assert "<h2>Findings</h2>" in (root / "report.html").read_text()
        assert (root / "tables").readlink() == Path("versions/1")
