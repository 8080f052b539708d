"""Settings: where they come from, and what is refused in words."""

import re
import tomllib
from pathlib import Path

import pytest

from bccnd.errors import ConfigError
from bccnd.mux import settings
from bccnd.mux.settings import Bearer, Certified, MuxSettings, applicable, command_line, effective, load
from tests.documents import ROOT

LISTEN = ["--listen", "unix:/run/mux.sock"]


@pytest.fixture(autouse=True)
def _no_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DEFAULT_FILE", tmp_path / "none.toml")


def of(*argv: str, **environ: str) -> MuxSettings:
    return load([*LISTEN, *argv], environ).settings


def test_a_door_may_be_entered_in_several_places() -> None:
    assert of("--listen", "unix:/a,unix:/b").listen == ("unix:/run/mux.sock", "unix:/a", "unix:/b")


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--listen", "/run/mux.sock"], "--listen: must be unix:PATH"),
        (["--listen", "unix:mux.sock"], "--listen: must be unix:PATH, with a path from /"),
        (["--listen", "unix:/" + "x" * 107], "--listen: has a path of more than 107 bytes"),
        (["--listen", "tls://door:1"], "--listen: must have an IP address"),
        (["--listen", "tls://127.0.0.1:65536"], "--listen: must have an IP address"),
        (["--listen", "tcp://127.0.0.1:1"], "--listen: must be unix:PATH"),
        (["--socket-mode", "rw"], "--socket-mode: must be a string of three or four octal digits"),
        (["--connections", "0"], "--connections: must be at least 1 (got 0)"),
        (["--sessions", "many"], '--sessions: must be a whole number (got "many")'),
        (["--config", "/no/such"], "/no/such: no such file"),
    ],
)
def test_each_mistake_is_one_line(argv: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load([*LISTEN, *argv], {})
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_the_only_place_at_fault_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load(["--listen", "tls://door:1"], {})
    assert str(caught.value).startswith("--listen: must have an IP address")
    assert "\n" not in str(caught.value)


def test_where_it_stands_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"^--web: give this or --listen, or nobody can connect"):
        load([], {})


def test_a_door_may_be_for_browsers_alone() -> None:
    found = load(["--web", "127.0.0.1:8470"], {}).settings
    assert (found.listen, found.web) == ((), "127.0.0.1:8470")


def test_what_check_prints_reads_back_to_the_same(tmp_path: Path) -> None:
    found = load([*LISTEN, "--connections", "7", "--check"], {})
    assert found.check_only
    file = tmp_path / "mux.toml"
    file.write_text(effective(found))
    assert load(["--config", str(file)], {}).settings == found.settings


def test_a_reload_holds_what_needs_a_restart() -> None:
    running = of()
    wanted = of("--listen", "unix:/x", "--socket", "/y", "--socket-mode", "666", "--connections", "7")
    values, changed, held = applicable(running, wanted)
    assert (changed, sorted(held)) == (["connections"], ["listen", "socket", "socket_mode"])
    assert (values.listen, values.socket, values.connections) == (running.listen, "", 7)


def test_help_fits_a_terminal() -> None:
    assert max(map(len, command_line().format_help().splitlines())) <= 80


def test_each_setting_is_explained_in_the_readme() -> None:
    readme = (ROOT / "bccnd" / "mux" / "README.md").read_text()
    missing = [name for name in MuxSettings.model_fields if f"| `{name}` |" not in readme]
    assert not missing
    samples = [block for block in readme.split("```") if block.startswith("toml\n")]
    assert samples
    for sample in samples:
        assert MuxSettings(**tomllib.loads(sample.removeprefix("toml\n"))["mux"]).listen


def test_the_sample_has_every_setting_and_changes_none(tmp_path: Path) -> None:
    """What is no default is an example, which can be used as it stands."""
    sample = ROOT / "etc" / "mux.toml"
    assert of("--config", str(sample)) == of()
    text = sample.read_text()
    assert max(map(len, text.splitlines())) <= 110
    file = tmp_path / "mux.toml"
    file.write_text(re.sub(r"^#(?=\w+ = |\[\[)", "", text, flags=re.MULTILINE))
    shown = load(["--config", str(file)], {}).settings
    assert shown.model_fields_set == set(MuxSettings.model_fields)
    assert {name for each in shown.peers for name in each.model_fields_set} == set(Certified.model_fields)
    assert {name for each in shown.tokens for name in each.model_fields_set} == set(Bearer.model_fields)
    default = MuxSettings(listen=shown.listen)
    for block in text.split("\n\n")[1:]:
        names = re.findall(r"^#(?:\[\[mux\.)?(\w+)(?: = |\]\])", block, re.MULTILINE)
        changed = [
            name
            for name in names
            if getattr(shown, name, None) != getattr(default, name, None) or name == "listen"
        ]
        assert bool(changed) == bool(re.search(r"\b[Ee]xamples?\b", block)), block
