"""Flags and variables: which values are taken, which are refused, and with which line."""

from pathlib import Path

import pytest

from bccnd.errors import ConfigError
from bccnd.recorder.settings import PREFIX, RecorderSettings, command_line, effective, load

SOCKET = "/run/bccnd/bus.sock"


def settings_of(*argv: str, **environ: str) -> RecorderSettings:
    named = {PREFIX + name.upper(): value for name, value in environ.items()}
    return load(argv, named, SOCKET).settings


def test_the_defaults():
    settings = settings_of("--output", "/data")
    assert settings.model_dump() == {
        "socket": SOCKET,
        "output": Path("/data"),
        "rotate_seconds": 30,
        "rotate_bytes": 128 << 20,
        "keep_bytes": 10 << 30,
        "keep_days": 7,
        "buffer_bytes": 64 << 20,
        "payloads": "all",
        "metrics": "",
        "log_level": "info",
        "log_format": "auto",
    }


def test_flags_win_over_variables():
    settings = settings_of(
        "--keep-days", "3", output="/data", keep_days="5", rotate_bytes="2M", socket="@name"
    )
    assert (settings.keep_days, settings.rotate_bytes, settings.socket) == (3, 2 << 20, "@name")


@pytest.mark.parametrize(("text", "size"), [("9000000", 9_000_000), ("64M", 64 << 20), ("8192K", 8 << 20)])
def test_sizes_take_units(text: str, size: int):
    assert settings_of("--output", "x", "--buffer-bytes", text).buffer_bytes == size


@pytest.mark.parametrize(
    ("argv", "environ", "said"),
    [
        ([], {}, "--output: must be given"),
        (["--output", ""], {}, '--output: must be the path of a directory (got "")'),
        (["--rotate-seconds", "0"], {}, "--rotate-seconds: must be at least 1 (got 0)"),
        (["--rotate-seconds", "x"], {}, '--rotate-seconds: must be a whole number (got "x")'),
        (["--keep-bytes", "1T"], {}, "--keep-bytes: must be a number of bytes, such as 500000, 64M or 10G"),
        (
            ["--keep-bytes", "200M"],
            {},
            "--keep-bytes: must be at least twice --rotate-bytes, which is 134217728",
        ),
        ([], {"keep_days": "-1"}, 'BCCND_RECORD_KEEP_DAYS: must be a whole number (got "-1")'),
        ([], {"nonsense": "1"}, "BCCND_RECORD_NONSENSE: unknown setting"),
        (["--metrics", "10.0.0.1:80"], {}, "--metrics: must be 127.0.0.1:PORT"),
        (["--log-level", "loud"], {}, "--log-level: must be 'debug', 'info', 'warning' or 'error'"),
        (["--payloads", "some"], {}, "--payloads: must be 'all' or 'none'"),
        (["--socket", ""], {}, "--socket: must be a path or @NAME of 1 to 107 bytes"),
        (["--nonsense"], {}, "unrecognized arguments: --nonsense (see bccnd-record --help)"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_flag(argv: list[str], environ: dict[str, str], said: str):
    given = argv if not argv or argv[0] == "--output" or "given" in said else ["--output", "x", *argv]
    with pytest.raises(ConfigError) as caught:
        settings_of(*given, **environ)
    assert any(line.startswith(said) for line in str(caught.value).splitlines()), str(caught.value)


def test_printed_settings_can_be_read_back():
    settings = settings_of("--output", "/data", "--keep-bytes", "3000M", "--rotate-bytes", "1500000")
    shown = dict(line.split("=", 1) for line in effective(settings).splitlines())
    assert load([], shown, "").settings == settings
    assert shown["BCCND_RECORD_KEEP_BYTES"] == "3000M"


def test_help_names_every_setting_with_its_default():
    text = command_line().format_help()
    for name in RecorderSettings.model_fields:
        assert "--" + name.replace("_", "-") in text
    assert "(default: 10G)" in text
    assert "exit codes" in text
