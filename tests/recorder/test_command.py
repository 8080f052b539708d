"""The command line of ``bccnd-record``."""

import os
import subprocess
import sys

import pytest

from bccnd.recorder import command

WITHOUT_ARROW = """\
import sys
sys.modules["pyarrow"] = None
from bccnd.recorder.command import main
sys.exit(main())
"""


def run(*argv: str, code: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    program = ["-c", code] if code else ["-m", "bccnd.recorder"]
    return subprocess.run(
        [sys.executable, *program, *argv],
        env={**os.environ, "BCCND_RECORD_CONFIG": os.devnull, **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_check_prints_the_effective_settings():
    done = run("--check", "--output", "/data", BCCND_RECORD_KEEP_DAYS="3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "these settings are sound" in done.stdout
    assert 'output = "/data"  # from --output\n' in done.stdout
    assert "keep_days = 3  # from BCCND_RECORD_KEEP_DAYS\n" in done.stdout


def test_a_quiet_check_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("BCCND_RECORD_CONFIG", os.devnull)
    assert command.main(["--check", "--quiet", "--output", "/data"]) == 0
    assert capsys.readouterr() == ("", "")


def test_each_mistake_is_a_line_and_the_exit_code_is_2():
    done = run("--rotate-seconds", "0", "--keep-days", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "bccnd-record: --output: must be given\n"
        "bccnd-record: --rotate-seconds: must be at least 1 (got 0)\n"
        'bccnd-record: --keep-days: must be a whole number (got "x")\n'
    )


def test_without_pyarrow_it_says_what_to_install():
    done = run("--output", "/tmp/x", code=WITHOUT_ARROW)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("bccnd-record: pyarrow cannot be loaded")
    assert done.stderr.endswith("pip install 'bccnd[record]'\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_need_no_pyarrow(flag: str):
    done = run(flag, code=WITHOUT_ARROW)
    assert done.returncode == 0
    assert "bccnd-record" in done.stdout
