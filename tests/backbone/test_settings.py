"""Settings: where they come from, and what is refused in words."""

import tomllib
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from bccnd.backbone import settings
from bccnd.backbone.settings import BackboneSettings, applicable, command_line, effective, load
from bccnd.errors import ConfigError
from bccnd.process.configuration import load as load_daemon
from tests.documents import ROOT

LISTEN = ["--listen", "127.0.0.1:4900"]


@pytest.fixture(autouse=True)
def _no_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DEFAULT_FILE", tmp_path / "none.toml")


def of(*argv: str, **environ: str) -> BackboneSettings:
    return load([*LISTEN, *argv], environ).settings


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "backbone.toml"
    file.write_text(
        '[backbone]\nsubscribers = 1\nrange = 2\nrequests = 3\nredirect = ["10.0.0.0/8", "172.16.0.0/12"]'
    )
    found = load(
        [*LISTEN, "--config", str(file), "--subscribers", "10"],
        {
            "BCCND_BACKBONE_SUBSCRIBERS": "20",
            "BCCND_BACKBONE_RANGE": "30",
            "BCCND_BACKBONE_STRANGERS": "false",
        },
    )
    values = found.settings
    assert (values.subscribers, values.range, values.requests, values.strangers) == (10, 30, 3, False)
    assert values.redirect == (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"))
    assert found.origins["subscribers"] == "--subscribers"
    assert found.origins["range"] == "BCCND_BACKBONE_RANGE"
    assert found.origins["requests"] == found.file == str(file)


def test_defaults_are_open_but_for_addresses_of_others() -> None:
    values = of()
    assert values.publish == values.subscribe == values.request == (IPv4Network("0.0.0.0/0"),)
    assert values.redirect == ()
    assert values.strangers
    assert values.endpoint == ("127.0.0.1", 4900)


def test_networks_in_text_are_separated_by_commas() -> None:
    assert of("--publish", "10.0.0.0/8, 192.0.2.7").publish == (
        IPv4Network("10.0.0.0/8"), IPv4Network("192.0.2.7/32"),
    )  # fmt: skip
    assert of("--publish", "").publish == ()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--listen", "localhost:1"], "--listen: must be an IPv4 address and a port, such as 0.0.0.0:4900"),
        (["--listen", "[::1]:4900"], "--listen: must be an IPv4 address and a port"),
        (["--listen", "10.0.0.1:65536"], "--listen: must be an IPv4 address and a port"),
        (["--publish", "10.0.0.1/8"], "--publish: must be an IPv4 network without host bits"),
        (["--publish", "::/0"], "--publish: must be an IPv4 network"),
        (["--subscribers", "0"], "--subscribers: must be at least 1 (got 0)"),
        (["--subscribers", "1025"], "--subscribers: must be at most 1024 (got 1025)"),
        (["--range", "many"], '--range: must be a whole number (got "many")'),
        (["--strangers", "maybe"], '--strangers: must be true or false (got "maybe")'),
        (["--metrics", "0.0.0.0:1"], "--metrics: must be 127.0.0.1:PORT"),
        (["--config", "/no/such"], "/no/such: no such file"),
        (["--listne", "x"], "unrecognized arguments: --listne x (see bccnd-backbone --help)"),
    ],
)
def test_each_mistake_is_one_line(argv: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load([*LISTEN, *argv], {})
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("listen = '1.2.3.4:5'", "has one table, [backbone], and nothing outside of it"),
        ("backbone = 7", "has one table, [backbone], and nothing outside of it"),
        ("[backbone]\nsubscriber = 7", "subscriber: unknown setting (did you mean subscribers?)"),
        ("[backbone]\nsubscribers = '7'", 'subscribers: must be a whole number (got "7")'),
        ("[backbone]\nredirect = [7]", "redirect: must be an IPv4 network"),
        ("[backbone", "line 1"),
    ],
)
def test_a_mistake_in_the_file_names_the_file(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "backbone.toml"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        of("--config", str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)


def test_listen_must_be_given_and_variables_known() -> None:
    with pytest.raises(ConfigError, match=r"^--listen: must be given$"):
        load([], {})
    with pytest.raises(ConfigError, match=r"^BCCND_BACKBONE_LISTNE: unknown setting$"):
        of(BCCND_BACKBONE_LISTNE="x")
    load_daemon(["--socket", "@x", "--config", "/dev/null"], {"BCCND_BACKBONE_LISTEN": "x"})


def test_what_check_prints_reads_back_to_the_same(tmp_path: Path) -> None:
    found = load([*LISTEN, "--redirect", "10.0.0.0/8", "--state", "/x", "--check"], {})
    assert found.check_only
    file = tmp_path / "backbone.toml"
    file.write_text(effective(found))
    assert load(["--config", str(file)], {}).settings == found.settings


def test_a_reload_holds_what_needs_a_restart(tmp_path: Path) -> None:
    running, wanted = of(), of("--listen", "127.0.0.1:1", "--state", "/x", "--range", "7")
    values, changed, held = applicable(running, wanted)
    assert (changed, sorted(held)) == (["range"], ["listen", "state"])
    assert (values.listen, values.state, values.range) == (running.listen, None, 7)
    with pytest.raises(ConfigError, match="key_file: is not set any more"):
        applicable(of("--key-file", "/x"), running)


def test_help_says_what_it_promises() -> None:
    text = " ".join(command_line().format_help().split())
    for promise in (
        "Each KEEPALIVE is acknowledged with its TOKEN", "a subscriber for 5 seconds", "nothing is sent again",
        "one subscriber, chosen at random", "IPv4",
    ):  # fmt: skip
        assert promise in text
    assert max(map(len, command_line().format_help().splitlines())) <= 80


def test_each_setting_is_explained_in_the_readme() -> None:
    readme = (ROOT / "bccnd" / "backbone" / "README.md").read_text()
    missing = [name for name in BackboneSettings.model_fields if f"| `{name}` |" not in readme]
    assert not missing
    (sample,) = [block for block in readme.split("```") if block.startswith("toml\n")]
    values = tomllib.loads(sample.removeprefix("toml\n"))["backbone"]
    assert BackboneSettings(**values).endpoint == ("10.1.0.1", 4900)
