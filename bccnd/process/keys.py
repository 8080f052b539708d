"""Reads the key file: the shared secrets of a segment (``bccn.txt``, HMAC).

Rules:

1. A line is a key, its bytes as they stand, without the line's end; an empty line or one beginning with ``#``
   is none. The first key signs, all verify, so a new key can be everywhere before it signs anywhere.
2. A key is 16 to 1024 bytes of printable UTF-8 without white space at its ends: a binary file, a stray blank
   or a byte order mark would make hosts differ invisibly. ``openssl rand -hex 32`` makes a good key.
3. Nobody but its owner may read or write the file, and the owner is root or ourselves. What is checked is the
   open descriptor, so the file cannot be exchanged between check and reading.
4. No message contains any part of a key.
"""

import os
import stat
from pathlib import Path

from bccnd.errors import ConfigError, RefusedError

KEY_BYTES_MIN = 16  # guessing the key must be harder than guessing the 64 bits of the sum on the wire
KEY_BYTES_MAX = 1024  # longer ones are hashed down by HMAC anyway
KEYS_MAX = 16  # each is tried on a datagram that fits none: the cost of one forged datagram
FILE_LIMIT = 64 << 10  # bytes; the largest keys and as much again in comments


def read_keys(path: Path) -> tuple[bytes, ...]:
    """The keys of the file, at least one, the signing one first.

    Raises RefusedError for a file that others could read or exchange, ConfigError for one without sound keys.
    """
    try:
        # Not blocking: opening a FIFO would otherwise wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _refuse_exposed(path, os.fstat(descriptor))
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


def _refuse_exposed(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"key file {path}: not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise RefusedError(
            f"key file {path}: belongs to uid {status.st_uid}, must belong to root or uid {os.geteuid()}"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise RefusedError(f"key file {path}: mode {mode:04o} lets others at it; do: chmod 600 {path}")


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
