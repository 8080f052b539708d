"""The listener on real sockets: who owns its file, where it may lie, and what becomes of one that goes."""

import fcntl
import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bccnd.errors import BccndError, ConfigError, RefusedError, UnavailableError
from bccnd.net.listener import Listener
from tests.net.connections import Listen, bound, connected, listening_at, reopened, seqpacket_socket, serves

# --- who owns the file ---


def test_a_new_path_is_served_and_removed_at_the_end(path: Path, listen: Listen) -> None:
    listener = listen(path)
    assert listener.name == str(path)
    assert serves(listener)
    listener.close()
    assert not path.exists()


def test_the_socket_is_not_inherited_and_does_not_block(path: Path, listen: Listen) -> None:
    listener = listen(path)
    assert not listener.socket.get_inheritable()
    assert listener.accept() == []


def test_a_second_listener_is_refused_while_the_lock_is_held(path: Path, listen: Listen) -> None:
    first = listen(path)
    before = path.lstat()
    for _ in range(2):
        with pytest.raises(UnavailableError, match="another daemon serves this socket"):
            listen(path)
    assert path.lstat().st_ino == before.st_ino
    assert serves(first)
    first.close()
    assert serves(listen(path))


def test_a_second_listener_does_not_replace_a_removed_file(path: Path, listen: Listen) -> None:
    listen(path)
    path.unlink()
    with pytest.raises(UnavailableError, match="another daemon"):
        listen(path)
    assert not path.exists()


def test_a_stale_socket_is_replaced(path: Path, listen: Listen) -> None:
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as stale:
            stale.bind(str(path))
        listener = listen(path)
        assert serves(listener)
        listener.close()


def test_a_socket_that_a_stranger_serves_is_left_alone(path: Path, listen: Listen) -> None:
    with listening_at(str(path)):
        before = path.lstat()
        with pytest.raises(UnavailableError, match="another program serves this socket"):
            listen(path)
        assert path.lstat().st_ino == before.st_ino


def test_a_strangers_socket_of_another_type_is_left_alone(path: Path, listen: Listen) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as stranger:
            stranger.bind(str(path))
            if kind == socket.SOCK_STREAM:
                stranger.listen()
            with pytest.raises(UnavailableError, match="another program serves this socket"):
                listen(path)
        path.unlink()


def test_the_socket_of_a_busy_server_is_left_alone(path: Path, listen: Listen) -> None:
    with listening_at(str(path), backlog=0), ExitStack() as waiting:
        with suppress(BlockingIOError):
            while True:
                client = waiting.enter_context(seqpacket_socket())
                client.setblocking(False)
                client.connect(str(path))
        with pytest.raises(UnavailableError, match="another program serves this socket"):
            listen(path)


@pytest.mark.parametrize("link", [False, True], ids=["file", "dangling link"])
def test_a_file_that_is_no_socket_is_left_alone(path: Path, listen: Listen, link: bool) -> None:
    if link:
        path.symlink_to("nowhere")
    else:
        path.write_text("precious")
    with pytest.raises(UnavailableError, match="exists and is not a socket; remove it or choose another"):
        listen(path)
    assert path.is_symlink() if link else path.read_text() == "precious"


def test_only_its_own_file_is_removed(path: Path, listen: Listen) -> None:
    listener = listen(path)
    path.unlink()
    with bound(str(path)):
        listener.close()
        assert path.is_socket()


def test_closing_without_the_file_is_no_fault(path: Path, listen: Listen) -> None:
    listener = listen(path)
    path.unlink()
    listener.close()


def passed_on(listener: Listener) -> dict[str, int]:
    """The descriptors as another process gets them."""
    return {name: os.dup(descriptor) for name, descriptor in listener.descriptors.items()}


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_successor_without_the_file_removes_no_other(path: Path, listen: Listen, replaced: bool) -> None:
    predecessor = listen(path)
    path.unlink()
    if replaced:
        path.write_text("somebody else's")
    successor = Listener.succeed(predecessor.state(), passed_on(predecessor))
    assert successor.accept() == []
    successor.close()
    assert path.exists() is replaced


def test_a_successor_removes_the_file_that_its_predecessor_made(path: Path, listen: Listen) -> None:
    predecessor = listen(path)
    successor = Listener.succeed(predecessor.state(), passed_on(predecessor))
    assert serves(successor)
    successor.close()
    assert not path.exists()


def test_the_lock_ends_with_the_listener_and_its_file_stays(path: Path, listen: Listen) -> None:
    listen(path).close()
    with open(f"{path}.lock", "rb") as lock:  # without the file two daemons could hold two locks of one name
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_file_is_not_made_through_a_link(path: Path, tmp_path: Path, listen: Listen) -> None:
    Path(f"{path}.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match=r"bus\.sock\.lock"):
        listen(path)
    assert not (tmp_path / "elsewhere").exists()


# --- a file that goes ---


def test_a_file_that_went_is_made_again(path: Path, listen: Listen) -> None:
    listener = listen(path)
    assert not listener.is_gone
    with connected(listener):
        path.unlink()
        assert listener.is_gone
        (waited,) = reopened(listener)
        waited.close()
    assert not listener.is_gone
    with connected(listener):
        (client,) = listener.accept()
        client.close()
    listener.close()
    assert not path.exists()


def test_the_lock_still_holds_after_the_file_was_made_again(path: Path, listen: Listen) -> None:
    listener = listen(path)
    for gone in ([path], [path, Path(f"{path}.lock")]):
        for file in gone:
            file.unlink()
        reopened(listener)
        with pytest.raises(UnavailableError, match="another daemon serves"):
            listen(path)


def test_a_path_that_another_daemon_took_is_left_to_it(path: Path, listen: Listen) -> None:
    listener = listen(path)
    for file in (path, Path(f"{path}.lock")):
        file.unlink()
    other = listen(path)
    assert listener.is_gone
    with pytest.raises(UnavailableError, match="another daemon serves"):
        reopened(listener)
    assert not other.is_gone
    listener.close()
    assert not other.is_gone


# --- impossible paths ---


def test_the_longest_path_is_107_bytes(tmp_path: Path, listen: Listen) -> None:
    longest = tmp_path / ("x" * (107 - len(str(tmp_path)) - 1))
    assert serves(listen(longest))
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        listen(f"{longest}y")


def test_the_last_folder_is_made_and_no_other(tmp_path: Path, listen: Listen) -> None:
    assert serves(listen(tmp_path / "bccnd" / "bus.sock"))
    with pytest.raises(RefusedError, match="make it or choose another --socket"):
        listen(tmp_path / "no" / "such" / "bus.sock")
    assert not (tmp_path / "no").exists()


def test_a_relative_path_is_served(tmp_path: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert serves(listen("bus.sock"))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, listen: Listen) -> None:
    (tmp_path / "bccnd").touch()
    with pytest.raises(RefusedError, match="Not a directory"):
        listen(tmp_path / "bccnd" / "bus.sock")


def test_every_refusal_is_one_line(path: Path, listen: Listen) -> None:
    path.touch()
    for where in (path, path / "bus.sock", "fd:", "@" + "x" * 200, "/" + "x" * 200):
        with pytest.raises(BccndError) as caught:
            listen(where)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code in (2, 4, 5)
