"""Completion: the scripts at work in their shells."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bccnd.commands import completion
from bccnd.commands.parsers import COMMANDS
from tests.packet_client import PATIENCE


def completed(*words: str, folder: Path = Path("/")) -> list[str]:
    """What bash offers for the last of ``words``."""
    script = (
        completion.bash()
        + f'COMP_WORDS=("$@"); COMP_CWORD={len(words) - 1}; _bccn "$1"; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    run = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", *words],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
        cwd=folder,
    )
    assert run.stderr == ""
    return sorted(filter(None, run.stdout.split("\n")))


def test_commands_are_completed() -> None:
    assert set(COMMANDS) <= set(completed("bccn", ""))
    assert completed("bccn", "su") == ["sub"]
    assert completed("/usr/bin/bccn", "--socket", "/run/x", "stat") == ["status"]
    assert completed("/usr/bin/bccn", "--connect", "unix:/run/x", "stat") == ["status"]


def test_options_of_a_command_are_completed() -> None:
    assert completed("bccn", "sub", "--n") == ["--name", "--no-newline", "--null"]
    assert completed("bccn", "sub", "a/>", "--ver") == ["--verbose"]
    assert "--config" not in completed("bccn", "sub", "--")


def test_values_of_an_option_are_completed() -> None:
    assert completed("bccn", "sub", "--separator", "") == [".", "/"]
    assert completed("bccn", "sub", "-C", "") == []
    assert completed("bccn", "completion", "f") == ["fish"]


def test_file_names_are_completed(tmp_path: Path) -> None:
    (tmp_path / "sample.toml").touch()
    assert completed("bccnd", "--config", "sam", folder=tmp_path) == ["sample.toml"]
    assert completed("bccn", "pub", "a", "-f", "sam", folder=tmp_path) == ["sample.toml"]


def test_options_of_the_daemon_are_completed() -> None:
    assert completed("bccnd", "--ch") == ["--check"]
    assert "--socket-mode" in completed("bccnd", "--so")
    assert completed("bccnd-record", "--rot") == ["--rotate-bytes", "--rotate-seconds"]


@pytest.mark.parametrize(("shell", "flag"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_a_shell_can_read_its_script(shell: str, flag: str, tmp_path: Path) -> None:
    """Where it is installed; bash is everywhere."""
    script = tmp_path / "script"
    script.write_text(getattr(completion, shell)())
    if shutil.which(shell):
        run = subprocess.run(
            [shell, flag, str(script)], capture_output=True, text=True, timeout=2 * PATIENCE, check=False
        )
        assert (run.returncode, run.stderr) == (0, "")


def test_fish_has_a_line_for_each_command_and_option() -> None:
    lines = completion.fish().splitlines()
    for command, summary in COMMANDS.items():
        assert any(f"-a {command} " in line and summary in line for line in lines)
    assert any("from sub" in line and "-s C -l count -x" in line for line in lines)
    assert any("complete -c bccnd -l key-file -rF" in line for line in lines)
