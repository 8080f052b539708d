"""Who may open a listener, and who may connect to it: owner, group and mode of its file."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.errors import ConfigError, RefusedError
from bccnd.net.listener import Listener
from tests.net.connections import Listen, bound, connected, seqpacket_socket, serves
from tests.net.nobody import NOBODY, as_nobody

needs_root = pytest.mark.needs("root")


@pytest.fixture
def open_to_all(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody may use, below folders that everybody may pass."""
    above = [folder for folder in tmp_path.parents if folder.is_relative_to(tempfile.gettempdir())]
    changed = [(folder, folder.stat().st_mode) for folder in (tmp_path, *above[:-1])]
    for folder, mode in changed:
        folder.chmod(mode | 0o711)
    tmp_path.chmod(0o1777)
    yield tmp_path
    for folder, mode in changed:
        folder.chmod(mode)


@needs_root
def test_a_folder_without_write_access_is_refused(tmp_path: Path, open_to_all: Path) -> None:
    inside = tmp_path / "closed" / "deeper"
    inside.mkdir(parents=True)
    inside.parent.chmod(0o700)
    for where in (inside / "bus.sock", inside.parent / "bus.sock", inside / "more" / "bus.sock"):
        outcome = as_nobody(lambda where=where: Listener.open(str(where), 0o600))  # type: ignore[misc]
        assert outcome.startswith("RefusedError: "), outcome
        assert "Permission denied" in outcome


@needs_root
def test_a_strangers_stale_socket_is_refused_with_advice(open_to_all: Path, path: Path) -> None:
    bound(str(path)).close()
    path.chmod(0o600)
    outcome = as_nobody(lambda: Listener.open(str(path), 0o600))
    assert outcome.startswith("RefusedError: ")
    assert "remove it or run as its owner" in outcome
    assert path.exists()


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666, 0o000])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_the_mode_does_not_depend_on_the_umask(path: Path, listen: Listen, mode: int, umask: int) -> None:
    before = os.umask(umask)
    try:
        listen(path, mode)
        assert os.umask(umask) == umask  # unchanged
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.lstat().st_mode) == mode


@needs_root
def test_it_is_never_more_open_than_configured(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int, bool]] = []

    def observe(name: str, owner: object) -> None:
        real = getattr(owner, name)

        def observed(*arguments: object) -> object:
            status = path.lstat()
            with seqpacket_socket() as client:
                refused = client.connect_ex(str(path)) == errno.ECONNREFUSED
            seen.append((stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, refused))
            return real(*arguments)

        monkeypatch.setattr(owner, name, observed)

    observe("chown", os)
    observe("chmod", Path)
    before = os.umask(0)
    try:
        listener = Listener.open(str(path), 0o660, "nobody", str(NOBODY))
    finally:
        os.umask(before)
    listener.close()
    assert seen == [(0, 0, 0, True), (0, NOBODY, NOBODY, True)]


@needs_root
def test_owner_and_group_by_name_and_by_number(path: Path, listen: Listen) -> None:
    for owner, group, expected in [
        ("nobody", None, (NOBODY, 0)),
        (None, "12345", (0, 12345)),
        ("12345", "daemon", (12345, 1)),
    ]:
        listener = listen(path, owner=owner, group=group)
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == expected
        listener.close()


@needs_root
def test_mode_and_group_decide_who_connects(open_to_all: Path, path: Path, listen: Listen) -> None:
    for mode, group, allowed in [(0o660, None, False), (0o660, str(NOBODY), True), (0o606, None, True)]:
        listener = listen(path, mode, group=group)
        outcome = as_nobody(lambda: connected(listener))  # noqa: B023
        assert (outcome == "") is allowed
        assert allowed or outcome.startswith("PermissionError")
        listener.close()


@pytest.mark.parametrize(
    ("permissions", "complaint"),
    [
        ({"owner": "no-such-user"}, "socket_owner: there is no user 'no-such-user'"),
        ({"group": "no-such-group"}, "socket_group: there is no group 'no-such-group'"),
    ],
)
def test_an_unknown_owner_leaves_nothing_behind(
    path: Path, listen: Listen, permissions: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        listen(path, **permissions)
    assert not path.exists()
    assert serves(listen(path))


def test_an_impossible_owner_leaves_nothing_behind(path: Path, listen: Listen) -> None:
    with pytest.raises(RefusedError, match="socket_owner"):
        listen(path, owner="99999999999")
    assert not path.exists()
    assert serves(listen(path))


@needs_root
def test_a_forbidden_owner_leaves_nothing_behind(open_to_all: Path, path: Path) -> None:
    outcome = as_nobody(lambda: Listener.open(str(path), 0o660, None, "daemon"))
    assert outcome.startswith("RefusedError: ")
    assert "socket_group" in outcome
    assert not path.exists()
    assert as_nobody(lambda: Listener.open(str(path), 0o660)) == ""
