"""The key file: what is a key, and which files are refused."""

import os
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import BccndError, ConfigError, RefusedError
from bccnd.process import keys
from bccnd.process.keys import FILE_LIMIT, read_keys

KEY = b"0123456789abcdef"
OTHER = b"a passphrase with blanks, \xc3\xbc"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def fault(path: Path, kind: type[BccndError] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        read_keys(path)
    text = str(caught.value)
    assert text.startswith(f"key file {path}: ")
    assert "\n" not in text
    return text.removeprefix(f"key file {path}: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (KEY, (KEY,)),
        (KEY + b"\n", (KEY,)),
        (KEY + b"\r\n" + OTHER + b"\r\n", (KEY, OTHER)),
        (b"# new since Monday\n\n" + OTHER + b"\n# old\n" + KEY + b"\n", (OTHER, KEY)),
        (b"x" * 1024, (b"x" * 1024,)),
        (b"\n".join([KEY] * 16), (KEY,) * 16),
    ],
)
def test_a_line_is_a_key_and_the_first_comes_first(
    content: bytes, expected: tuple[bytes, ...], path: Path
) -> None:
    assert read_keys(write(path, content)) == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds no key"),
        (b"# none yet\n\n", "holds no key"),
        (KEY + b"\nshort\n", "line 2: a key has 16 to 1024 bytes, this one 5"),
        (b"x" * 1025, "line 1: a key has 16 to 1024 bytes, this one 1025"),
        (KEY + b" ", "line 1: a key is printable text without blanks at its ends"),
        (b"\t" + KEY, "line 1: a key is printable text"),
        (KEY + b"\0" + KEY, "line 1: a key is printable text"),
        (b"\xff" + KEY, "line 1: a key is printable text"),
        (b"\xef\xbb\xbf" + KEY, "line 1: a key is printable text"),
        (b"\n".join([KEY] * 17), "holds 17 keys, at most 16"),
        (b"#" * (FILE_LIMIT + 1), "larger than 65536 bytes"),
    ],
)
def test_a_file_without_sound_keys_is_refused(content: bytes, problem: str, path: Path) -> None:
    assert fault(write(path, content)).startswith(problem)


@given(st.binary(max_size=200))
def test_no_message_shows_a_part_of_a_key(content: bytes) -> None:
    try:
        parsed = keys._parse(Path("/k"), content, "key")
    except ConfigError as error:
        shown = str(error).encode()
        assert not any(line in shown for line in content.split(b"\n") if len(line) > 8)
    else:
        assert all(key in content for key in parsed)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o610, 0o666])
def test_a_file_open_to_others_is_refused_with_the_remedy(mode: int, path: Path) -> None:
    assert fault(write(path, KEY, mode), RefusedError) == (
        f"mode {mode:04o} lets others at it; do: chmod 600 {path}"
    )


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_the_daemons_own_file_is_read(mode: int, path: Path) -> None:
    assert read_keys(write(path, KEY, mode)) == (KEY,)


def test_a_strangers_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, KEY)
    owner = 4711
    if os.geteuid() == 0:
        os.chown(path, owner, -1)
    else:
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert fault(path, RefusedError) == (f"belongs to uid {owner}, must belong to root or uid {os.geteuid()}")


def test_only_a_regular_file_is_read_and_nothing_is_waited_for(path: Path, tmp_path: Path) -> None:
    os.mkfifo(path, 0o600)
    assert fault(path, RefusedError) == "not a regular file"
    assert fault(tmp_path, RefusedError) == "not a regular file"
    assert fault(Path("/dev/null"), RefusedError) == "not a regular file"
    listener = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(listener))
        assert fault(listener) == "No such device or address"


def test_an_absent_or_unreadable_file_is_explained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault(path) == "no such file"

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # root may read anything
    assert fault(path, RefusedError) == "permission denied; it must belong to the user who runs this"


def test_a_link_is_judged_by_its_target(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    write(path, KEY)
    assert read_keys(link) == (KEY,)
    path.chmod(0o644)
    assert "chmod 600" in fault(link, RefusedError)


def test_no_descriptor_is_left_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    read_keys(write(path, KEY))
    fault(write(path, KEY, 0o644), RefusedError)
    fault(path.parent, RefusedError)
    assert len(os.listdir("/proc/self/fd")) == before


# Access control lists and systemd's credentials

OWNER, USER, GROUP_OF_OWNER, GROUP, MASK, EVERYBODY = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
NOBODY_IN_PARTICULAR = 0xFFFFFFFF


def access_list(*entries: tuple[int, int] | tuple[int, int, int]) -> bytes:
    """The list as the kernel stores it: version 2, then (tag, rights, id) in ascending order."""
    filled = [(*entry, NOBODY_IN_PARTICULAR)[:3] for entry in entries]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in filled)


def as_systemd_writes_it(uid: int) -> bytes:
    return access_list((OWNER, 4), (USER, 4, uid), (GROUP_OF_OWNER, 0), (MASK, 4), (EVERYBODY, 0))


@pytest.mark.parametrize(
    ("entries", "exposed"),
    [
        ([(OWNER, 4), (USER, 4, 991), (GROUP_OF_OWNER, 0), (MASK, 4), (EVERYBODY, 0)], False),
        ([(OWNER, 6), (USER, 6, 0), (GROUP_OF_OWNER, 0), (MASK, 7), (EVERYBODY, 0)], False),
        ([(OWNER, 6), (USER, 4, 992), (GROUP_OF_OWNER, 0), (MASK, 4), (EVERYBODY, 0)], True),
        ([(OWNER, 6), (USER, 4, 992), (GROUP_OF_OWNER, 0), (MASK, 0), (EVERYBODY, 0)], False),
        ([(OWNER, 6), (USER, 4, 991), (GROUP_OF_OWNER, 4), (MASK, 4), (EVERYBODY, 0)], True),
        ([(OWNER, 6), (GROUP_OF_OWNER, 0), (GROUP, 2, 991), (MASK, 6), (EVERYBODY, 0)], True),
        ([(OWNER, 6), (USER, 4, 991), (GROUP_OF_OWNER, 0), (MASK, 4), (EVERYBODY, 4)], True),
        ([(OWNER, 6), (GROUP_OF_OWNER, 0), (EVERYBODY, 1)], True),
        ([(OWNER, 6), (GROUP_OF_OWNER, 0), (EVERYBODY, 0)], False),
    ],
)
def test_an_access_list_lets_others_or_not(entries: list[tuple[int, int, int]], exposed: bool) -> None:
    assert keys.lets_others(access_list(*entries), 991) is exposed


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "credentials" / "bccnd.service"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    return folder


def test_a_credential_is_read_as_systemd_provides_it(credentials: Path) -> None:
    """Mode 0400 and an access list for the unit's user, which makes it look like 0440."""
    file = write(credentials / "keys", KEY + b"\n", 0o400)
    assert read_keys(Path("credential:keys")) == (KEY,)
    os.setxattr(file, "system.posix_acl_access", as_systemd_writes_it(os.geteuid()))
    assert file.stat().st_mode & 0o777 == 0o440
    assert read_keys(Path("credential:keys")) == (KEY,)
    assert read_keys(file) == (KEY,)  # as %d/keys in the unit


def test_an_access_list_for_somebody_else_is_refused(credentials: Path) -> None:
    file = write(credentials / "keys", KEY)
    os.setxattr(file, "system.posix_acl_access", as_systemd_writes_it(4711))
    assert fault(file, RefusedError) == (
        f"its access control list lets others at it; do: setfacl -b {file} && chmod 600 {file}"
    )


def test_without_access_lists_the_mode_decides(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> bytes:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "getxattr", unsupported)
    assert read_keys(write(path, KEY)) == (KEY,)
    assert "chmod 600" in fault(write(path, KEY, 0o440), RefusedError)


@pytest.mark.parametrize("name", ["", ".", "..", "../keys", "a/b"])
def test_a_credential_has_a_name_and_no_path(name: str, credentials: Path) -> None:
    with pytest.raises(ConfigError, match="must be credential: and the name of a credential"):
        read_keys(Path(f"credential:{name}"))


def test_a_missing_credential_is_explained(credentials: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"key file {credentials}/keys: no such file"):
        read_keys(Path("credential:keys"))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(ConfigError, match="add to the unit: LoadCredential=keys:/etc/bccnd/keys"):
        read_keys(Path("credential:keys"))
