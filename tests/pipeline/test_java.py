"""``bccnd/pipeline/java.py``: which Java there is; what the command prints is tested in test_cli."""

from pathlib import Path

import pytest

from bccnd.errors import UnavailableError
from bccnd.pipeline import java


def installed(root: Path, version: str, *, says: bool = True) -> Path:
    """A Java home; one that ``says`` its version in the file ``release``, the other if it is asked."""
    program = root / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    if says:
        (root / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return root


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.22", "16"])
@pytest.mark.parametrize("says", [True, False])
def test_an_old_java_is_named_with_its_version(
    version: str, says: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path / "old", version, says=says)))
    with pytest.raises(
        UnavailableError, match=rf"old/bin/java is Java {version}: Spark needs Java 17 or later"
    ):
        java.require()


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.1", "unheard of"])
def test_a_new_or_unknown_java_will_do(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path / "new", version)))
    java.require()


def test_no_java_is_said_with_the_directory_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=f"no Java found in JAVA_HOME={tmp_path}: Spark needs Java 17"):
        java.require()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no Java found: Spark needs"):
        java.require()


def test_a_link_to_java_is_followed_to_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = installed(tmp_path / "jvm", "11.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UnavailableError, match="is Java 11"):
        java.require()
