"""Reads the key file: the shared secrets of a segment (``bccn.txt``, HMAC).

Rules:

1. A line is a key, its bytes as they stand, without the line's end; an empty line or one beginning with ``#``
   is none. The first key signs, all verify, so a new key can be everywhere before it signs anywhere.
2. A key is 16 to 1024 bytes of printable UTF-8 without white space at its ends: a binary file, a stray blank
   or a byte order mark would make hosts differ invisibly. ``openssl rand -hex 32`` makes a good key.
3. The file's owner is root or ourselves, and nobody else may read or write it. What is checked is the open
   descriptor, so the file cannot be exchanged between check and reading; and where the file has an access control
   list (acl(5)), that: its mode then shows the list's mask in place of the group's rights.
4. ``credential:NAME`` is the file NAME in $CREDENTIALS_DIRECTORY, where systemd puts what LoadCredential= names:
   mode 0400, owned by root with a list that lets the unit's user read, or by that user (systemd.exec(5)).
5. No message contains any part of a key.
"""

import os
import stat
import struct
from errno import ENODATA, ENOTSUP
from pathlib import Path

from bccnd.errors import ConfigError, RefusedError

KEY_BYTES_MIN = 16  # guessing the key must be harder than guessing the 64 bits of the sum on the wire
KEY_BYTES_MAX = 1024  # longer ones are hashed down by HMAC anyway
KEYS_MAX = 16  # each is tried on a datagram that fits none: the cost of one forged datagram
CREDENTIAL = "credential:"
FILE_LIMIT = 64 << 10  # bytes; the largest keys and as much again in comments

_ACL_ENTRY = struct.Struct("<HHI")  # tag, rights, uid or gid
_ACL_HEADER = 4  # bytes of version before the entries
_ACL_OWNER, _ACL_USER, _ACL_MASK, _ACL_EVERYBODY = 0x01, 0x02, 0x10, 0x20  # and groups


def read_keys(path: Path) -> tuple[bytes, ...]:
    """The keys of the file, at least one, the signing one first.

    Raises RefusedError for a file that others could read or exchange, ConfigError for one without sound keys.
    """
    path = _located(path)
    try:
        # Not blocking: opening a FIFO would otherwise wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _refuse_exposed(path, os.fstat(descriptor), _access_list(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                content = stream.read(FILE_LIMIT + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ConfigError(f"key file {path}: no such file") from None
    except PermissionError:
        raise RefusedError(
            f"key file {path}: permission denied; it must belong to the user of bccnd"
        ) from None
    except OSError as error:
        raise ConfigError(f"key file {path}: {error.strerror}") from None
    if len(content) > FILE_LIMIT:
        raise ConfigError(f"key file {path}: larger than {FILE_LIMIT} bytes")
    return _parse(path, content)


def _located(path: Path) -> Path:
    name = str(path).removeprefix(CREDENTIAL)
    if name == str(path):
        return path
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if "/" in name or name in ("", ".", ".."):
        raise ConfigError(f"key file {path}: must be {CREDENTIAL} and the name of a credential")
    if not folder:
        raise ConfigError(
            f"key file {path}: there is no $CREDENTIALS_DIRECTORY; "
            f"add to the unit: LoadCredential={name}:/etc/bccnd/keys"
        )
    return Path(folder, name)


def _refuse_exposed(path: Path, status: os.stat_result, access_list: bytes) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"key file {path}: not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise RefusedError(
            f"key file {path}: belongs to uid {status.st_uid}, must belong to root or uid {os.geteuid()}"
        )
    mode = stat.S_IMODE(status.st_mode)
    if access_list:
        if lets_others(access_list, os.geteuid()):
            raise RefusedError(
                f"key file {path}: its access control list lets others at it; "
                f"do: setfacl -b {path} && chmod 600 {path}"
            )
    elif mode & 0o077:
        raise RefusedError(f"key file {path}: mode {mode:04o} lets others at it; do: chmod 600 {path}")


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


def _parse(path: Path, content: bytes) -> tuple[bytes, ...]:
    keys = []
    for number, ended in enumerate(content.split(b"\n"), 1):
        line = ended.removesuffix(b"\r")
        if not line or line.startswith(b"#"):
            continue
        if not KEY_BYTES_MIN <= len(line) <= KEY_BYTES_MAX:
            raise ConfigError(
                f"key file {path}: line {number}: a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, "
                f"this one {len(line)}; make one with: openssl rand -hex 32"
            )
        if line.strip() != line or not line.decode(errors="replace").replace("\ufffd", "\0").isprintable():
            raise ConfigError(
                f"key file {path}: line {number}: a key is printable text without blanks at its ends; "
                "make one with: openssl rand -hex 32"
            )
        keys.append(line)
    if not keys:
        raise ConfigError(f"key file {path}: holds no key; add one with: openssl rand -hex 32 >> {path}")
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"key file {path}: holds {len(keys)} keys, at most {KEYS_MAX}")
    return tuple(keys)
