"""The sample configuration against the model: it holds every setting with its default, and no others."""

import re
import tomllib
from pathlib import Path
from typing import Any

from bccnd.process.configuration import load
from bccnd.process.settings import Grant, Settings

SAMPLE = Path(__file__).parents[2] / "etc" / "bccnd.toml"
EXAMPLES = {
    "host",
    "socket",
    "socket_owner",
    "socket_group",
    "sequence_file",
    "key_file",
    "integrity",
    "rights",
}


def flat(values: dict[str, Any], table: str = "") -> dict[str, Any]:
    leaves = {}
    for name, value in values.items():
        leaves |= flat(value, name + ".") if isinstance(value, dict) else {table + name: value}
    return leaves


def test_the_sample_changes_nothing() -> None:
    environ = {"BCCND_SOCKET": "/run/bccnd/bus.sock"}
    with_sample = load(["--config", str(SAMPLE)], environ).settings
    assert with_sample == load(["--config", "/dev/null"], environ).settings


def test_the_sample_has_every_setting_with_its_default(tmp_path: Path) -> None:
    uncommented = re.sub(r"^#(?=\w+ = |\[\[|    \")", "", SAMPLE.read_text(), flags=re.MULTILINE)
    values = flat(tomllib.loads(uncommented))
    defaults = flat(Settings(host="relay01", socket="/run/bccnd/bus.sock").model_dump(mode="json"))
    assert list(values) == list(defaults)
    assert {name for name in values if values[name] != defaults[name]} <= EXAMPLES
    file = tmp_path / "bccnd.toml"
    file.write_text(uncommented)
    rights = load(["--config", str(file)], {"BCCND_INTEGRITY": "hmac"}).settings.rights
    assert {name for grant in rights for name in grant.model_fields_set} == set(Grant.model_fields)


def test_each_example_is_called_an_example() -> None:
    for block in SAMPLE.read_text().split("\n\n"):
        settings = set(re.findall(r"^#(?:\[\[)?(\w+)(?: = |\]\])", block, re.MULTILINE))
        assert bool(settings & EXAMPLES) == bool(re.search(r"\b[Ee]xamples?\b", block)) or not settings, block


def test_lines_fit_an_editor() -> None:
    assert max(map(len, SAMPLE.read_text().splitlines())) <= 110
