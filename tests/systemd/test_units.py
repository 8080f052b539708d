"""The units, judged by systemd itself."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bccnd.process.configuration import load

UNITS = sorted((Path(__file__).parents[2] / "systemd").glob("*.service"))


@pytest.mark.skipif(
    not shutil.which("systemd-analyze") and os.environ.get("CI") != "true", reason="needs systemd-analyze"
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_to_complain_about(unit: Path, tmp_path: Path) -> None:
    """Only the program's path is exchanged, for it need not be installed where the tests run."""
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"/usr/bin/bccnd\b", shutil.which("true") or "", unit.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_there_are_units() -> None:
    assert [unit.name for unit in UNITS] == ["bccnd.service"]


def test_the_unit_starts_the_program_with_flags_that_it_knows() -> None:
    (command,) = re.findall(r"^ExecStart=(.*)$", UNITS[0].read_text(), re.MULTILINE)
    program, *argv = command.split()
    assert program == "/usr/bin/bccnd"
    assert load([*argv, "--config", "/dev/null"], {}).settings.socket == "/run/bccnd/bus.sock"


def test_a_reload_replaces_the_program_and_systemd_follows() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNITS[0].read_text(), re.MULTILINE))
    assert settings["ExecReload"].endswith("kill -USR2 $MAINPID")
    assert settings["NotifyAccess"] in ("main", "exec", "all")  # or MAINPID= is not heard
