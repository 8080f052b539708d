"""Flags, variables and the file: which values are taken, which are refused, and with which line."""

import os
import re
import tomllib
from pathlib import Path

import pytest

from bccnd.errors import ConfigError
from bccnd.process.configuration import load as load_daemon
from bccnd.recorder.settings import PREFIX, RecorderSettings, command_line, effective, load
from tests.documents import ROOT

SAMPLE = ROOT / "etc" / "record.toml"


def settings_of(*argv: str, **environ: str) -> RecorderSettings:
    named = {PREFIX + name.upper(): value for name, value in environ.items()}
    return load(argv, {PREFIX + "CONFIG": os.devnull, **named}).settings


def complaint(*argv: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        settings_of(*argv, **environ)
    return str(caught.value)


def test_the_defaults():
    settings = settings_of("--output", "/data")
    assert settings.model_dump() == {
        "socket": "",
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


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path):
    file = tmp_path / "record.toml"
    file.write_text('[record]\noutput = "/data"\nkeep_days = 9\nrotate_bytes = "4M"\nkeep_bytes = 9000000\n')
    settings = settings_of("--keep-days", "3", keep_days="5", rotate_bytes="2M", config=str(file))
    assert (settings.keep_days, settings.rotate_bytes, settings.keep_bytes) == (3, 2 << 20, 9_000_000)
    assert settings.output == Path("/data")
    load_daemon(["--socket", "@x", "--config", os.devnull], {PREFIX + "CONFIG": str(file)})


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
        (["--keep-bytes", "2M"], {}, "--keep-bytes: must be at least twice rotate_bytes, which is 134217728"),
        (["--buffer-bytes", "1M"], {}, "--buffer-bytes: must be at least 8388608"),
        ([], {"keep_days": "-1"}, "BCCND_RECORD_KEEP_DAYS: must be at least 1 (got -1)"),
        ([], {"keep_days": "1_0"}, 'BCCND_RECORD_KEEP_DAYS: must be a whole number (got "1_0")'),
        ([], {"nonsense": "1"}, "BCCND_RECORD_NONSENSE: unknown setting"),
        (["--metrics", "10.0.0.1:80"], {}, "--metrics: must be 127.0.0.1:PORT"),
        (["--log-level", "loud"], {}, "--log-level: must be 'debug', 'info', 'warning' or 'error'"),
        (["--payloads", "some"], {}, "--payloads: must be 'all' or 'none'"),
        (["--socket", "x" * 108], {}, "--socket: must be a path or @NAME of at most 107 bytes"),
        (["--config", "/no/such"], {}, "/no/such: no such file"),
        (["--nonsense"], {}, "unrecognized arguments: --nonsense (see bccnd-record --help)"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_flag(argv: list[str], environ: dict[str, str], said: str):
    given = argv if said.startswith("--output") else ["--output", "x", *argv]
    line = complaint(*given, **environ)
    assert line.startswith(said)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('output = "x"', "has one table, [record], and nothing outside of it"),
        ('[record]\noutptu = "x"', "outptu: unknown setting (did you mean output?)"),
        ('[record]\nkeep_days = "7"', 'keep_days: must be a whole number (got "7")'),
        ("[record]\nkeep_bytes = true", "keep_bytes: must be a whole number (got true)"),
        ('[record]\nkeep_bytes = "1T"', "keep_bytes: must be a number of bytes, such as 500000, 64M or 10G"),
        ("[record]\noutput = 5", "output: must be a string, the path of a file (got 5)"),
        ("[record", "line 1"),
    ],
)
def test_a_mistake_in_the_file_names_the_file(tmp_path: Path, content: str, said: str):
    file = tmp_path / "record.toml"
    file.write_text(content)
    lines = complaint("--config", str(file)).splitlines()
    assert any(line.startswith(f"{file}: {said}") for line in lines), lines


def test_printed_settings_can_be_read_back(tmp_path: Path):
    argv = ["--output", "/data", "--keep-bytes", "3000M", "--rotate-bytes", "1500000", "--check"]
    found = load([*argv, "--config", os.devnull], {})
    assert found.check_only
    file = tmp_path / "record.toml"
    file.write_text(effective(found))
    assert "keep_bytes = 3145728000  # from --keep-bytes\n" in file.read_text()
    assert settings_of("--config", str(file)) == found.settings


def test_help_names_every_setting_with_its_default():
    text = command_line().format_help()
    for name in RecorderSettings.model_fields:
        assert "--" + name.replace("_", "-") in text
    assert "(default: 10G)" in text
    assert "exit codes" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_sample_has_every_setting_and_changes_none():
    """Each has its default, but for the one that is called an example."""
    text = SAMPLE.read_text()
    assert max(map(len, text.splitlines())) <= 110
    output = settings_of("--config", str(SAMPLE)).output
    assert settings_of("--config", str(SAMPLE)) == settings_of("--output", str(output))
    shown = RecorderSettings(**tomllib.loads(re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE))["record"])
    assert shown == settings_of("--output", str(output))
    assert shown.model_fields_set == set(RecorderSettings.model_fields)


def test_each_setting_is_explained_in_the_readme():
    readme = (ROOT / "bccnd" / "recorder" / "README.md").read_text()
    for name, field in RecorderSettings.model_fields.items():
        (default,) = re.findall(rf"^\| `{name}` \| ([^|]*?) ?\|", readme, re.MULTILINE)
        if name != "output" and field.default:
            assert default == str(field.default)
