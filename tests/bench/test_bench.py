"""Every scenario that needs no installed peer gives its figures. No test looks at their values."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bench.family import Usage
from tests.bench.peers import BROKERS
from tests.bench.results import Figure, Report, Series, Target, targets
from tests.bench.scenarios import pipeline
from tests.clients.drivers import LANGUAGES
from tests.needs import require

ROOT = Path(__file__).parents[2]
LOCAL = (
    "fan-out", "many-clients", "patterns", "churn", "round-trip", "backbone", "memory", "start", "growth", "hostile",
    "door", "dndm",
)  # fmt: skip
NETWORK = ("segment-in", "segment-out", "record", "repair", "links")


@dataclass(frozen=True)
class Outcome:
    """What a quick run has shown, saved and drawn."""

    code: int
    shown: str
    results: dict[str, Any]
    drawn: set[str]


def bench(folder: Path, scenarios: Sequence[str]) -> Outcome:
    command = [sys.executable, "-m", "tests.bench", "--quick", "--peers", "none", "--output", str(folder)]
    result = subprocess.run(
        [*command, "--only", ",".join(scenarios)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    results = json.loads((folder / "results.json").read_text())
    drawn = {path.stem for path in folder.glob("*.svg")} & {path.stem for path in folder.glob("*.png")}
    return Outcome(result.returncode, result.stdout, results, drawn)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    require("gcc")
    return bench(tmp_path_factory.mktemp("bench"), LOCAL)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    require("root", "ip", "gcc")
    return bench(tmp_path_factory.mktemp("bench"), NETWORK)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    require("gcc", *(command for language in LANGUAGES for command in language.toolchain))
    return bench(tmp_path_factory.mktemp("bench"), ["clients"])


@pytest.mark.parametrize("scenario", LOCAL)
def test_local_scenarios_give_figures(local: Outcome, scenario: str) -> None:
    assert_measured(local, scenario)


@pytest.mark.parametrize("scenario", NETWORK)
def test_network_scenarios_give_figures(network: Outcome, scenario: str) -> None:
    assert_measured(network, scenario)


def test_the_clients_are_measured(clients: Outcome) -> None:
    assert_measured(clients, "clients")


@pytest.mark.spark
def test_the_pipeline_measures_and_agrees(tmp_path: Path) -> None:
    require("gcc")
    assert_measured(bench(tmp_path, ["pipeline"]), "pipeline")


def assert_measured(outcome: Outcome, scenario: str) -> None:
    report = outcome.results["scenarios"][scenario]
    assert report["faults"] == []
    assert outcome.code == 0, outcome.shown
    assert report["figures"] or scenario == "growth"  # which is all charts
    assert all(figure["title"] in outcome.shown for figure in report["figures"])
    assert {chart["name"] for chart in report["charts"]} <= outcome.drawn


def test_every_target_belongs_to_a_figure(local: Outcome, network: Outcome, clients: Outcome) -> None:
    """Except targets that name a broker, and those that a quick run has no time for."""
    reports = [
        report for outcome in (local, network, clients) for report in outcome.results["scenarios"].values()
    ]
    measured = {figure["key"] for report in reports for figure in report["figures"]}
    elsewhere = {"soak", "lossless", "exponent", "one-more", *(broker.name for broker in BROKERS)}
    assert {key for key in targets() if key.split("/")[-1] not in elsewhere} <= measured


def test_each_round_has_its_own_ratio() -> None:
    figure = Figure("key", "title", "/s", Series("bccnd", [10, 40, 90]), Series("limit", [10, 20, 30]))
    assert figure.values == [1, 2, 3]
    assert figure.as_json(Target(at_least=2.5))["reached"] is False
    assert figure.as_json(Target(at_most=2.5))["reached"] is True


@pytest.mark.parametrize(
    ("seconds", "exponent", "one_more"),
    [
        ([5, 10, 25, 50], 1, 1),
        ([105, 110, 125, 150], 0.15, 1),  # what starting takes hides a curve from the exponent alone,
        ([105, 110, 125, 225], 0.31, 4),  # such as this one
    ],
)
def test_growth_shows_in_exponent_and_last_step(
    seconds: list[float], exponent: float, one_more: float
) -> None:
    used = [Usage(taken, 0, taken, 0, "") for taken in seconds]
    sizes = zip((5, 10, 25, 50), used, strict=True)
    report = Report("")
    pipeline.growth(report, [pipeline.Measured(rows, taken, taken, 1, taken) for rows, taken in sizes])
    found = {figure.key: figure.values for figure in report.figures}
    for step in ("ingest", "analyse"):
        for what in ("time", "processor-time"):
            assert found[f"pipeline/{step}/{what}/exponent"] == [pytest.approx(exponent, abs=0.01)]
            assert found[f"pipeline/{step}/{what}/one-more"] == [pytest.approx(one_more)]


def test_an_unknown_scenario_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench", "--only", "nonsense", "--output", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "nonsense" in result.stderr
    assert list(tmp_path.iterdir()) == []
