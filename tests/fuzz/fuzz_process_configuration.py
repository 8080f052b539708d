"""Settings: any file, environment and flags give settings that ``--check`` can print and read again, or say why not.

An input is some variables and flags, each with a value of up to 255 bytes, and the file.
"""

import os
import tomllib
from collections.abc import Iterable
from typing import Any

from bccnd.errors import ConfigError, RefusedError
from bccnd.process.configuration import ERRORS_SHOWN, FLAGS, PREFIX, Invocation, effective, load
from bccnd.process.settings import Settings
from tests.fuzz.fuzzer import ROOT, Script

VARIABLES = [
    b"HOST", b"SOCKET", b"SOCKET_MODE", b"BROADCAST", b"PORT", b"INTERFACES", b"KEY_FILE", b"INTEGRITY", b"COPIES",
    b"LOCAL", b"EXIT_WHEN_IDLE", b"QUEUE__PACKETS", b"QUEUE__POLICY", b"QUEUE__BLOCK_SECONDS", b"DEDUP__REORDER",
    b"LOG__LEVEL", b"QUEUE", b"QUEUE__", b"PORTS", b"__PORT",
]  # fmt: skip
GRANTS = [
    b"uid = 0\npublish = ['>', '!', '!>']\ntap = true\nbridge = true",
    b"gid = 'root'\nprogram = 'sensor*'\npublish = ['sensor/>', '!relay01/>']\nname = ['relay01/sensor/*']",
    b"uid = 'nobody'\nsubscribe = ['>', '!']",
]
SURROUNDINGS = {"XDG_RUNTIME_DIR": "/run/user/1000"}


def one_input(data: bytes) -> None:
    script = Script(data)
    argv, environ = [], dict(SURROUNDINGS)
    for _ in range(script.number(4)):
        kind, value = script.number(256), os.fsdecode(script.chunk())
        if kind < 128:
            environ[PREFIX + VARIABLES[kind % len(VARIABLES)].decode()] = value
        elif kind < 250:
            argv.append(f"{FLAGS[kind % len(FLAGS)].flag}={value}")
        else:
            environ[PREFIX + value] = "1"
    environ.pop(PREFIX + "CONFIG", None)
    settle(argv, environ, script.rest())


def settle(argv: list[str], environ: dict[str, str], content: bytes) -> None:
    try:
        invocation = load_with_file(argv, environ, content)
    except (ConfigError, RefusedError) as error:
        said = str(error).split("\n")
        assert 1 <= len(said) <= ERRORS_SHOWN + 1
        assert all(line and line.isprintable() for line in said), said
        return
    assert_bounds(invocation.settings)
    printed = effective(invocation)
    printed.encode()
    tomllib.loads(printed)
    again = load_with_file([], SURROUNDINGS, printed.encode())
    assert again.settings == invocation.settings
    assert set(invocation.origins) <= set(dotted(invocation.settings.model_dump()))


def load_with_file(argv: list[str], environ: dict[str, str], content: bytes) -> Invocation:
    file = os.memfd_create("bccnd.toml", os.MFD_CLOEXEC)
    try:
        os.write(file, content)
        return load([*argv, f"--config=/proc/self/fd/{file}"], environ)
    finally:
        os.close(file)


def assert_bounds(settings: Settings) -> None:
    """Some of what the daemon relies on."""
    assert 1 <= settings.port <= 65535
    assert 0 <= settings.socket_permissions <= 0o777
    assert settings.queue.packets <= settings.queue.max_packets
    assert settings.queue.bytes <= settings.queue.max_bytes
    assert settings.dedup.reorder < settings.dedup.sanity
    assert 0.1 <= settings.queue.block_seconds <= 3600
    assert settings.integrity != "hmac" or settings.key_file is not None
    assert 1 <= len(settings.host.encode("ascii")) <= 64
    assert all(not set(pattern) & set(" :|\0") and pattern.isascii() for pattern in settings.local)


def dotted(values: dict[str, Any], table: str = "") -> Iterable[str]:
    for name, value in values.items():
        yield table + name
        if isinstance(value, dict):
            yield from dotted(value, f"{table}{name}.")


def seeds() -> Iterable[bytes]:
    yield b"\0" + (ROOT / "etc" / "bccnd.toml").read_bytes()[:4000]
    sound = effective(load_with_file([], {**SURROUNDINGS, "BCCND_HOST": "here"}, b""))
    table = ""
    for line in sound.splitlines():
        if line.startswith("["):
            table = line + "\n"
        yield b"\0" + (table + line.removeprefix("# ")).encode()
    yield b"\0" + sound.encode()[:4000]
    yield b"\0local = ['a/*/b', '>', 'a/b*', '']\ninterfaces = ['eth0', 'eth1', 'eth0']\n"
    yield b"\0key_file = '/etc/bccnd/keys'\nintegrity = 'hmac'\nsocket = 'fd:3'\nsocket_owner = 'root'\n"
    yield b"\0queue = 5\n[log]\nlevel = 'loud'\nfromat = 1979-05-27T07:32:00Z\n"
    for grant in GRANTS:
        yield b"\0[[rights]]\n" + grant
        yield b"\0host = 'x'\n" + b"".join(b"[[rights]]\n" + each + b"\n" for each in (grant, *GRANTS))
    values = [
        b"here",
        b"@x",
        b"0660",
        b"10.0.0.255",
        b"5400",
        b"eth0, eth1",
        b"/k",
        b"crc32",
        b"2",
        b"a/>,b",
        b"true",
    ]
    for kind, value in enumerate(values):
        yield bytes([1, kind, len(value)]) + value
    for kind in range(128, 128 + len(FLAGS)):
        value = values[kind % len(FLAGS)]
        yield bytes([1, kind, len(value)]) + value
    yield bytes([1, 255, 5]) + b"PORTS"
