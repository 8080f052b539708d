"""The settings of an uplink: what they take, what they say of mistakes, and what a reload changes."""

import re
import tomllib
from pathlib import Path

import pytest

from bccnd.errors import ConfigError
from bccnd.process.configuration import load as load_daemon
from bccnd.uplink.settings import (
    PATTERNS_LIMIT,
    UplinkSettings,
    applicable,
    command_line,
    doubts,
    effective,
    load,
)
from tests.documents import blocks

ROOT = Path(__file__).parents[2]
NEEDED = ["--config", "/dev/null", "--carrier", "fyrehose://10.1.0.1:4900", "--name", "north"]


def of(*argv: str) -> UplinkSettings:
    return load([*NEEDED, *argv], {}).settings


def test_nothing_is_carried_that_is_not_named() -> None:
    values = of()
    assert values.export == values.import_ == ()
    assert not values.retained
    assert of("--export", "a/>, !>", "--import", "!,b").export == ("a/>", "!>")


@pytest.mark.parametrize(
    ("carrier", "argv", "unused"),
    [
        ("fyrehose://a:1", ["--nats-user", "bob", "--keepalive", "0.2"], "nats_user"),
        ("nats://a:1", ["--nats-user", "bob", "--keepalive", "0.2"], "keepalive"),
        ("tls://a:1", ["--backbone-key-file", "k", "--nats-replicas", "3"], "backbone_key_file"),
        ("fyrehose://a:1", ["--backbone-key-file", "k"], None),
    ],
)
def test_what_the_carrier_does_not_use_is_doubted(carrier: str, argv: list[str], unused: str | None) -> None:
    said = [doubt for doubt, _ in doubts(of("--carrier", carrier, *argv)) if doubt.startswith("not used")]
    assert said == ([f"not used by this carrier: {unused}"] if unused else [])


def test_a_journal_without_a_folder_is_doubted(tmp_path: Path) -> None:
    def said(journal: Path) -> list[str]:
        found = doubts(of("--carrier", "fyrehose://a:1", "--journal", str(journal)))
        return [doubt for doubt, _ in found if "journal" in doubt]

    assert said(tmp_path / "journal") == []
    assert said(tmp_path / "missing" / "journal") == [f"no folder for the journal: {tmp_path / 'missing'}"]


@pytest.mark.parametrize(
    ("url", "medium"),
    [
        ("fyrehose://backbone:4900", "fyrehose"),
        ("fyrehose://10.1.0.1:4900/", "fyrehose"),
        ("nats://n1", "nats"),
        ("nats://n1:4222,n2:4222,[::1]:4222", "nats"),
        ("tls://nats.example.org:4222", "nats"),
    ],
)
def test_the_carrier_is_chosen_by_its_scheme(url: str, medium: str) -> None:
    assert of("--carrier", url).medium == medium


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["--carrier", "fyrehose://x"],
            "--carrier: must be fyrehose://HOST:PORT, nats://HOST:PORT or tls://",
        ),
        (["--carrier", "http://x:1"], "--carrier: must be fyrehose://HOST:PORT"),
        (["--carrier", "fyrehose://x:65536"], "--carrier: must have a port from 1 to 65535"),
        (["--carrier", "nats://n1:4222,n2:0"], "--carrier: must have a port from 1 to 65535"),
        (["--name", "a.b"], "--name: must be 1 to 32 letters, digits, - and _"),
        (["--name", ""], "--name: must be 1 to 32 letters"),
        (
            ["--export", "local/a"],
            "--export: is never carried: local/, heartbeat/, bccnd/, !bccnd/ stay in their segment",
        ),
        (["--import", "bccnd/links"], "--import: is never carried"),
        (["--export", "!bccnd/repair"], "--export: is never carried"),
        (["--export", "a b"], "--export: must be channel patterns"),
        (["--export", "a*b"], "--export: must be channel patterns in which * is the end of a token"),
        (
            ["--export", ",".join(f"c{n}" for n in range(PATTERNS_LIMIT + 1))],
            "--export: must have at most 256",
        ),
        (["--journal-bytes", "1"], "--journal-bytes: must be at least 1048576 (got 1)"),
        (["--keepalive", "3"], "--keepalive: must be at most 1.0 (got 3.0)"),
        (["--keepalive", "often"], '--keepalive: must be a number (got "often")'),
        (["--socket", "x" * 108], "--socket: must be a path or @NAME of at most 107 bytes"),
        (["--metrics", "0.0.0.0:1"], "--metrics: must be 127.0.0.1:PORT"),
    ],
)
def test_each_mistake_is_one_line(argv: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(*argv)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_rates_are_tables_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "uplink.toml"
    file.write_text(
        "[uplink]\ncarrier = 'nats://n1'\nname = 'n'\nkeepalive = 1\n"
        "[[uplink.rate]]\npattern = 'a/>'\nper_second = 10\nburst = 5\n"
    )
    found = load(["--config", str(file)], {})
    (rate,) = found.settings.rate
    assert (rate.pattern, rate.per_second, rate.burst, found.settings.keepalive) == ("a/>", 10.0, 5, 1.0)
    file.write_text(effective(found))
    assert load(["--config", str(file)], {}).settings == found.settings
    file.write_text(
        "[uplink]\ncarrier = 'nats://n1'\nname = 'n'\n[[uplink.rate]]\npattern = 'a'\nper_second = 0\n"
    )
    with pytest.raises(ConfigError, match=r"\[\[uplink.rate\]\] 1: per_second: must be at least 0.001"):
        load(["--config", str(file)], {})


def test_a_reload_holds_what_says_which_link_it_is() -> None:
    running = of("--key-file", "/x")
    wanted = of("--key-file", "/y", "--name", "south", "--import", "a", "--journal", "/j")
    values, changed, held = applicable(running, wanted)
    assert (sorted(changed), sorted(held)) == (["import", "key_file"], ["journal", "name"])
    assert (values.name, values.journal, values.import_) == ("north", None, ("a",))
    with pytest.raises(ConfigError, match="key_file: is not set any more"):
        applicable(running, of())


def test_the_daemon_leaves_its_variables_alone() -> None:
    load_daemon(["--socket", "@x", "--config", "/dev/null"], {"BCCND_UPLINK_NAME": "x"})


def test_help_says_what_it_promises() -> None:
    text = " ".join(command_line().format_help().split())
    for promise in (
        "Only channels that export names leave", "only those that import names come in", "once and in order",
        "nobody waits for them", "either may die", "Needs the right to bridge",
    ):  # fmt: skip
        assert promise in text
    assert max(map(len, command_line().format_help().splitlines())) <= 80


def test_the_sample_has_every_setting(tmp_path: Path) -> None:
    """Each with its default, but for those that are called examples."""
    text = (ROOT / "etc" / "uplink.toml").read_text()
    assert max(map(len, text.splitlines())) <= 110
    load(["--config", str(ROOT / "etc" / "uplink.toml")], {})
    uncommented = re.sub(r"^#(?=\w+ = |\[\[)", "", text, flags=re.MULTILINE)
    table = tomllib.loads(uncommented)["uplink"]
    fields = {field.alias or name: field for name, field in UplinkSettings.model_fields.items()}
    assert sorted(table) == sorted(fields)
    values = UplinkSettings(**table)
    for block in uncommented.split("\n\n"):
        for name in re.findall(r"^(?:\[\[uplink\.)?(\w+)(?: = |\]\])", block, re.MULTILINE):
            if name in fields and "xample" not in block:
                field = "import_" if name == "import" else name
                assert getattr(values, field) == fields[name].default, name


@pytest.mark.parametrize("carrier", ["fyrehose://10.1.0.1:4900", "nats://10.1.0.1:4222"])
def test_the_set_up_of_two_sites_has_sound_settings(tmp_path: Path, carrier: str) -> None:
    (setup,) = [block.code for block in blocks("bccnd/uplink/README.md") if block.language == "sh"]
    (text,) = re.findall(r"<<END\n(.*?)^END$", setup, re.DOTALL | re.MULTILINE)
    assert carrier in text
    file = tmp_path / "uplink.toml"
    file.write_text(text)
    settings = load(["--config", str(file), "--carrier", carrier], {}).settings
    assert (settings.name, settings.export, settings.import_) == (
        "north",
        ("orders/>", "!>"),
        ("rates/>", "!>"),
    )
    assert str(settings.key_file) in setup.partition("\n")[0]


def test_each_setting_is_explained_in_the_readme() -> None:
    readme = (ROOT / "bccnd" / "uplink" / "README.md").read_text()
    names = [field.alias or name for name, field in UplinkSettings.model_fields.items()]
    assert [name for name in names if f"| `{name}` |" not in readme] == []
