"""Key files: any bytes give keys by the rules of ``bccnd.process.keys``, or one line that shows no part of them."""

import os
from collections.abc import Iterable
from pathlib import Path

from bccnd.errors import ConfigError
from bccnd.process.keys import KEY_BYTES_MAX, KEY_BYTES_MIN, KEYS_MAX, read_keys

KEY = b"0123456789abcdef0123456789abcdef"


def one_input(data: bytes) -> None:
    file = os.memfd_create("keys", os.MFD_CLOEXEC)
    try:
        os.fchmod(file, 0o600)
        os.write(file, data)
        judge(data, Path(f"/proc/self/fd/{file}"))
    finally:
        os.close(file)


def judge(data: bytes, path: Path) -> None:
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    expected = tuple(line for line in lines if line and not line.startswith(b"#"))
    try:
        keys = read_keys(path)
    except ConfigError as error:
        said = str(error)
        assert said.isprintable()
        assert not any(
            len(line) >= KEY_BYTES_MIN and line.decode("utf-8", "replace") in said for line in lines
        )
        assert not sound(expected)
    else:
        assert keys == expected
        assert sound(keys)


def sound(keys: tuple[bytes, ...]) -> bool:
    return 1 <= len(keys) <= KEYS_MAX and all(
        KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX and is_text(key) for key in keys
    )


def is_text(key: bytes) -> bool:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() and not key[:1].isspace() and not key[-1:].isspace() and "\ufffd" not in text


def seeds() -> Iterable[bytes]:
    yield KEY + b"\n"
    yield b"# new\r\n" + KEY + b"\r\n\r\n# old\n" + KEY[::-1]
    yield b"schl\xc3\xbcssel, der sich sehen l\xc3\xa4sst\n"
    yield b"\xef\xbb\xbf" + KEY
    yield b"short\n"
    yield b"\n".join([KEY] * (KEYS_MAX + 1))
    yield KEY * 33
    yield b" " + KEY
    yield bytes(range(256))
