"""Tests in several processes: the same becomes of them as in one, and nothing that was not run looks as if it had."""

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent
# Plugins that these tests have no need of, and that take time to load.
WITHOUT = [f"-pno:{name}" for name in ("asyncio", "cacheprovider", "hypothesispytest", "xdist")]

OUTCOMES = """
    import os, pytest
    PROCESS = []
    def test_passes(tmp_path): PROCESS.append(os.getpid())
    def test_fails():
        print("said before")
        assert 1 == 2
    def test_is_in_the_same_process(): assert PROCESS == [os.getpid()]
    def test_is_skipped(): pytest.importorskip("not_here")
    def test_is_expected(): pytest.xfail("it owes that")
    @pytest.fixture
    def ends_badly():
        yield
        raise ValueError("at the end")
    def test_has_a_bad_fixture(ends_badly): pass
"""
MEETS = """
    import pathlib
    from tests.packet_client import wait_until
    def test_meets_the_other():
        here = pathlib.Path(__file__)
        here.with_suffix(".here").touch()
        wait_until(lambda: len(list(here.parent.glob("*.here"))) == 2, "the other test")
"""


def run(folder: Path, files: dict[str, str], *flags: str) -> "subprocess.CompletedProcess[str]":
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(dedent(text))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-ptests.side_by_side", *WITHOUT, "-q", "-rA", *flags],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "clients/python")))},
        capture_output=True,
        text=True,
        check=False,
    )


def outcomes(output: str) -> list[str]:
    return sorted(re.findall(r"^(?:PASSED|FAILED|ERROR|SKIPPED|XFAIL) .*", output, re.MULTILINE))


def test_the_same_becomes_of_them_as_in_one(tmp_path: Path):
    files = {"one": OUTCOMES, "two": OUTCOMES}
    alone, together = (run(tmp_path, files, f"--copies={number}") for number in (1, 2))
    assert len(outcomes(alone.stdout)) == 2 * 7
    assert outcomes(together.stdout) == outcomes(alone.stdout)
    assert together.returncode == alone.returncode == pytest.ExitCode.TESTS_FAILED
    assert together.stdout.count("\nsaid before\n") == alone.stdout.count("\nsaid before\n") == 2


def test_files_run_at_the_same_time(tmp_path: Path):
    ran = run(tmp_path, {"one": MEETS, "two": MEETS}, "--copies=2")
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout


def test_a_process_that_ends_early_is_a_failure(tmp_path: Path):
    """And what no other takes up is one more."""
    ends = "import os\ndef test_ends(): os._exit(0)\n"
    ran = run(tmp_path, {"one": ends, "two": ends, "three": ends}, "--copies=2")
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert [line.split()[1] for line in outcomes(ran.stdout)] == [
        f"test_{n}.py" for n in ("one", "three", "two")
    ]


def test_what_is_found_out_at_the_very_end_is_a_failure(tmp_path: Path):
    late = "import gc\ngc.disable()\nclass Late:\n    def __del__(self): raise ValueError\n"
    late += "def test_passes():\n    late = Late()\n    late.itself = late\n"
    ran = run(tmp_path, {"one": late}, "--copies=2", "-Werror")
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "FAILED test_one.py - the process that ran these tests ended too early" in ran.stdout
    assert "ValueError" in ran.stderr
