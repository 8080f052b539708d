"""Where the Python client looks for the daemon's socket."""

from pathlib import Path

import pytest

import bccn


def test_the_socket_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccn.path.SERVICE_SOCKET", str(tmp_path / "service"))
    monkeypatch.delenv("BCCN_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert bccn.socket_path() == str(tmp_path / "service")
    own = tmp_path / "bccnd" / "bus.sock"
    own.parent.mkdir()
    own.touch()
    assert bccn.socket_path() == str(own)
    (tmp_path / "service").touch()
    assert bccn.socket_path() == str(tmp_path / "service")
    monkeypatch.setenv("BCCN_SOCKET", "@abstract")
    assert bccn.socket_path() == "@abstract"
    assert bccn.socket_path(own) == str(own)
