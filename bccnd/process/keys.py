"""Reads the key file: the secrets that the hosts of a segment share (``bccnd/wire/BCCN1.md``, "Integrity").

Rules
- A line is a key: its bytes as they stand, without the end of the line. Empty lines and lines that begin with ``#``
  are skipped. The first key signs and all keys verify, so that a new key can be on every host before one signs with
  it.
- A key is 16 to 1024 bytes of printable UTF-8 without white space at its ends. A binary file, a stray blank or a
  byte order mark would make hosts differ, and nobody would see it. ``openssl rand -hex 32`` makes a good key.
- The file belongs to root or to the daemon's user, and nobody else may read or write it. The open descriptor is
  checked, so that nobody can exchange the file between check and reading. When the file has an access control list
  (acl(5)), the list is checked, because the mode then shows the list's mask in place of the group's rights.
- ``credential:NAME`` is the file NAME in $CREDENTIALS_DIRECTORY, where systemd puts what LoadCredential= names. It
  has mode 0400, and either that user owns it, or root does and a list lets the unit's user read it
  (systemd.exec(5)).
- No message contains any part of a key.
"""

import os
import stat
import struct
from errno import ENODATA, ENOTSUP
from pathlib import Path

from bccnd.errors import ConfigError, RefusedError

# Guessing the key must be harder than guessing the 64 bits of the integrity value on the wire.
KEY_BYTES_MIN = 16

# HMAC hashes longer keys down anyway.
KEY_BYTES_MAX = 1024

# A forged datagram costs one attempt with each of them.
KEYS_MAX = 16

# Bytes: room for the largest keys and as much again in comments.
FILE_LIMIT = 64 << 10

CREDENTIAL = "credential:"

_ACL_ENTRY = struct.Struct("<HHI")  # tag, rights, uid or gid
_ACL_HEADER = 4  # bytes of version before the entries
_ACL_OWNER, _ACL_USER, _ACL_MASK, _ACL_EVERYBODY = 0x01, 0x02, 0x10, 0x20


def read_keys(path: Path, what: str = "key") -> tuple[bytes, ...]:
    """The keys of the file, at least one, the signing one first. ``what`` they are called in errors.

    Raises RefusedError when others could read or exchange the file, ConfigError when its keys are not sound.
    """
    named = f"{what} file"
    path = _located(path, named)
    return _parse(path, read_private(path, named), what)


def read_private(path: Path, what: str) -> bytes:
    """The content of a file with a secret, by the rules above. ``what`` it is called in errors.

    Raises RefusedError when others could read or exchange the file, ConfigError when there is none or it is too long.
    """
    path = _located(path, what)
    try:
        # Not blocking: opening a FIFO would otherwise wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _refuse_exposed(f"{what} {path}", path, os.fstat(descriptor), _access_list(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                content = stream.read(FILE_LIMIT + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ConfigError(f"{what} {path}: no such file") from None
    except PermissionError:
        raise RefusedError(
            f"{what} {path}: permission denied; it must belong to the user who runs this"
        ) from None
    except OSError as error:
        raise ConfigError(f"{what} {path}: {error.strerror}") from None
    if len(content) > FILE_LIMIT:
        raise ConfigError(f"{what} {path}: larger than {FILE_LIMIT} bytes")
    return content


def _located(path: Path, what: str) -> Path:
    name = str(path).removeprefix(CREDENTIAL)
    if name == str(path):
        return path
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if "/" in name or name in ("", ".", ".."):
        raise ConfigError(f"{what} {path}: must be {CREDENTIAL} and the name of a credential")
    if not folder:
        raise ConfigError(
            f"{what} {path}: there is no $CREDENTIALS_DIRECTORY; "
            f"add to the unit: LoadCredential={name}:/etc/bccnd/keys"
        )
    return Path(folder, name)


def _refuse_exposed(named: str, path: Path, status: os.stat_result, access_list: bytes) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{named}: not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise RefusedError(
            f"{named}: belongs to uid {status.st_uid}, must belong to root or uid {os.geteuid()}"
        )
    mode = stat.S_IMODE(status.st_mode)
    if access_list:
        if lets_others(access_list, os.geteuid()):
            raise RefusedError(
                f"{named}: its access control list lets others at it; "
                f"do: setfacl -b {path} && chmod 600 {path}"
            )
    elif mode & 0o077:
        raise RefusedError(f"{named}: mode {mode:04o} lets others at it; do: chmod 600 {path}")


def _access_list(descriptor: int) -> bytes:
    """The access control list as the kernel gives it; empty where there is none."""
    try:
        return os.getxattr(descriptor, "system.posix_acl_access")
    except OSError as error:
        if error.errno in (ENODATA, ENOTSUP):
            return b""
        raise


def lets_others(access_list: bytes, ourselves: int) -> bool:
    """Whether anybody but the file's owner, root and the user ``ourselves`` may do anything (acl(5)).

    ``access_list`` is as in Linux, posix_acl_xattr.h: a version, then entries of tag, rights and id.
    """
    entries = list(_ACL_ENTRY.iter_unpack(access_list[_ACL_HEADER:]))
    mask = next((rights for tag, rights, _ in entries if tag == _ACL_MASK), 7)
    for tag, rights, number in entries:
        harmless = tag in (_ACL_OWNER, _ACL_MASK) or (tag == _ACL_USER and number in (0, ourselves))
        if not harmless and (rights if tag == _ACL_EVERYBODY else rights & mask):
            return True
    return False


def _parse(path: Path, content: bytes, what: str) -> tuple[bytes, ...]:
    keys = []
    for number, ended in enumerate(content.split(b"\n"), 1):
        line = ended.removesuffix(b"\r")
        if not line or line.startswith(b"#"):
            continue
        if not KEY_BYTES_MIN <= len(line) <= KEY_BYTES_MAX:
            raise ConfigError(
                f"{what} file {path}: line {number}: a {what} has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, "
                f"this one {len(line)}; make one with: openssl rand -hex 32"
            )
        if line.strip() != line or not line.decode(errors="replace").replace("\ufffd", "\0").isprintable():
            raise ConfigError(
                f"{what} file {path}: line {number}: a {what} is printable text without blanks at its ends; "
                "make one with: openssl rand -hex 32"
            )
        keys.append(line)
    if not keys:
        raise ConfigError(
            f"{what} file {path}: holds no {what}; add one with: openssl rand -hex 32 >> {path}"
        )
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"{what} file {path}: holds {len(keys)} {what}s, at most {KEYS_MAX}")
    return tuple(keys)
