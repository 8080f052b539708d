"""Sockets that listen for this host alone."""

import os
import socket
import stat
from pathlib import Path

import pytest

from bccnd.errors import ConfigError, UnavailableError
from bccnd.process import local_stream


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("[::1]", socket.AF_INET6)])
def test_an_address_of_this_host_is_served(host: str, family: int) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host.strip("[]"), 0))
        port = probe.getsockname()[1]
    made = local_stream.listen(f"{host}:{port}", 0o660)
    with socket.create_connection((host.strip("[]"), port)):
        assert made.accept()[0].close() is None
    with pytest.raises(UnavailableError, match="taken by another program"):
        local_stream.listen(f"{host}:{port}", 0o660)
    local_stream.close(made)


def test_a_path_has_its_mode_and_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    made = local_stream.listen(str(path), 0o620)
    assert stat.S_IMODE(path.stat().st_mode) == 0o620
    with pytest.raises(UnavailableError):
        local_stream.listen(str(path), 0o660)
    local_stream.close(made)
    assert not path.exists()


def test_only_a_socket_that_nobody_serves_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    local_stream.listen(str(path), 0o660).close()
    local_stream.close(local_stream.listen(str(path), 0o660))
    path.write_text("precious")
    with pytest.raises(UnavailableError, match="is a file, and no socket"):
        local_stream.listen(str(path), 0o660)
    assert path.read_text() == "precious"


def test_an_address_that_fails_is_one_line_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"metrics\.listen .*/nowhere/s: there is no folder .*/nowhere; make"
    ):
        local_stream.listen(str(tmp_path / "nowhere" / "s"), 0o660)
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:7: no interface of this host has that address"):
        local_stream.listen("192.0.2.1:7", 0o660)


def test_a_file_that_was_made_since_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    first = local_stream.listen(str(path), 0o660)
    assert not local_stream.is_gone(first)
    path.unlink()
    assert local_stream.is_gone(first)
    second = local_stream.listen(str(path), 0o660)
    assert local_stream.is_gone(first)
    local_stream.close(first)
    assert path.exists()
    local_stream.close(second)
    assert not path.exists()


def test_a_successor_knows_the_file_of_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    first = local_stream.listen(str(path), 0o660)
    heirs = [local_stream.Listening.succeed(os.dup(first.fileno()), made) for made in (first.made, None)]
    assert [local_stream.is_gone(heir) for heir in heirs] == [False, False]
    path.unlink()
    assert [local_stream.is_gone(heir) for heir in heirs] == [True, True]
    for each in (first, *heirs):
        local_stream.close(each)
