"""The settings of a gateway: what they take, what they say of mistakes, and what a reload changes."""

import re
import tomllib
from pathlib import Path

import pytest

from bccnd.dndm.settings import (
    EVERYWHERE,
    LISTEN,
    DndmSettings,
    applicable,
    command_line,
    doubts,
    effective,
    load,
    options_of,
)
from bccnd.errors import ConfigError
from bccnd.process.configuration import load as load_daemon

ROOT = Path(__file__).parents[2]


def of(*argv: str) -> DndmSettings:
    return load(["--config", "/dev/null", *argv], {}).settings


def test_by_default_only_this_host_comes_in() -> None:
    settings = of()
    assert settings.listen == (LISTEN,)
    assert (settings.dial, settings.discover, settings.accept) == ((), (), EVERYWHERE)
    assert list(doubts(settings)) == []
    assert options_of(settings).me == "tcp:///?bccn=bccn"


@pytest.mark.parametrize(
    ("argv", "me"),
    [
        (["--listen", "tcp://10.0.0.1:5420"], "tcp://10.0.0.1:5420/?bccn=bccn"),
        (["--listen", "tcp://0.0.0.0:5420"], "tcp:///?bccn=bccn"),
        (["--listen", "tcp://[::1]:1,udp://10.0.0.1:2/robot"], "udp://10.0.0.1:2/robot?bccn=bccn"),
        (["--address", "tcp://gate.example.org:1", "--bus", "north"], "tcp://gate.example.org:1/?bccn=north"),
    ],
)
def test_it_names_itself_as_others_can_reach_it(argv: list[str], me: str) -> None:
    assert of(*argv).me == me


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--listen", "tcp://robot:1"], "--listen: must have the address of an interface"),
        (["--listen", "tcp://10.0.0.1"], "--listen: must be tcp://HOST:PORT, udp://HOST:PORT or serial://"),
        (["--listen", "nats://10.0.0.1:1"], "--listen: must be tcp://HOST:PORT"),
        (["--dial", "tcp://robot:65536"], "--dial: must be tcp://HOST:PORT"),
        (["--dial", "tcp:///robot"], "--dial: must be tcp://HOST:PORT"),
        (["--dial", "robot"], "--dial: must be tcp://HOST:PORT"),
        (["--dial", "127.0.0.1:8080"], "--dial: must be tcp://HOST:PORT"),
        (["--dial", "serial:///dev/ttyS0?baud=1"], "--dial: must set baud from 10 to 4000000"),
        (["--dial", "serial:///dev/ttyS0?parity=X"], "--dial: must set baud"),
        (["--address", "serial:///dev/ttyS0"], "--address: must be tcp://HOST:PORT"),
        (["--address", "tcp://a:1?bccn=b"], "--address: must be tcp://HOST:PORT"),
        (["--accept", "10.0.0.1/24"], "--accept: must be a network without host bits"),
        (["--discover", "robots"], "--discover: must be a network"),
        (["--bus", "a b"], "--bus: must be 1 to 32 letters, digits, - and _"),
        (["--links", "0"], "--links: must be at least 1 (got 0)"),
        (["--socket", "x" * 108], "--socket: must be a path or @NAME of at most 107 bytes"),
    ],
)
def test_each_mistake_is_one_line(argv: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(*argv)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "doubt"),
    [
        (["--listen", "tcp://0.0.0.0:1"], "whoever reaches tcp://0.0.0.0:1 is trusted"),
        (["--listen", "tcp://0.0.0.0:1", "--strict", "true"], ""),
        (["--listen", "tcp://0.0.0.0:1", "--accept", "10.0.0.0/8"], ""),
        (["--listen", ""], "no peer can come, and none is dialled"),
        (["--strict", "true", "--discover", "10.0.0.0/8"], "not used with strict: discover"),
        (
            ["--dial", "serial:///dev/ttyUSB0?buad=9600&bits=7"],
            "serial:///dev/ttyUSB0?buad=9600&bits=7 sets what a line does not have: buad",
        ),
    ],
)
def test_what_may_not_be_meant_is_said(argv: list[str], doubt: str) -> None:
    assert [each for each, _ in doubts(of(*argv))] == ([doubt] if doubt else [])


def test_a_reload_holds_what_peers_were_told() -> None:
    wanted = of("--bus", "north", "--dial", "tcp://a:1", "--links", "3", "--strict", "true")
    values, changed, held = applicable(of(), wanted)
    assert (sorted(changed), sorted(held)) == (["dial", "strict"], ["bus", "links"])
    assert (values.bus, values.dial) == ("bccn", ("tcp://a:1",))


def test_what_check_prints_is_read_back(tmp_path: Path) -> None:
    found = load(["--config", "/dev/null", "--dial", "tcp://a:1", "--accept", "10.0.0.0/8,fd00::/8"], {})
    file = tmp_path / "dndm.toml"
    file.write_text(effective(found))
    assert load(["--config", str(file)], {}).settings == found.settings


def test_the_daemon_leaves_its_variables_alone() -> None:
    load_daemon(["--socket", "@x", "--config", "/dev/null"], {"BCCND_DNDM_BUS": "x"})


def test_help_says_what_it_promises() -> None:
    text = " ".join(command_line().format_help().split())
    for promise in (
        "A robot sends what somebody listens to", "at most once", "those of one connection in order",
        "which are counted, and nobody else does", "Peers are trusted", "only this host's may connect",
    ):  # fmt: skip
        assert promise in text
    assert max(map(len, command_line().format_help().splitlines())) <= 80


def test_the_sample_has_every_setting() -> None:
    """Each with its default, but for those that are called examples."""
    text = (ROOT / "etc" / "dndm.toml").read_text()
    assert max(map(len, text.splitlines())) <= 110
    assert load(["--config", str(ROOT / "etc" / "dndm.toml")], {}).settings == of()
    uncommented = re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE)
    table = tomllib.loads(uncommented)["dndm"]
    assert sorted(table) == sorted(DndmSettings.model_fields)
    values = DndmSettings(**table)
    for block in uncommented.split("\n\n"):
        for name in re.findall(r"^(\w+) = ", block, re.MULTILINE):
            if "xample" not in block:
                assert getattr(values, name) == getattr(of(), name), name


def test_each_setting_is_explained_in_the_readme() -> None:
    readme = (ROOT / "bccnd" / "dndm" / "README.md").read_text()
    assert [name for name in DndmSettings.model_fields if f"| `{name}` |" not in readme] == []
