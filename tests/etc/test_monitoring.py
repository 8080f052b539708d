"""Dashboard and alerts: a real daemon or recorder has every metric and label that they use."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE
from tests.plain_bccn import free_address, free_port
from tests.recorder_process import RecorderProcess

ETC = Path(__file__).parents[2] / "etc"
DASHBOARD: dict[str, Any] = json.loads((ETC / "grafana-dashboard.json").read_text())
RULES = (ETC / "prometheus-rules.yml").read_text()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ADDED_BY_PROMETHEUS = {"instance", "job"}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """The samples of a real scrape: names and labels."""
    folder = tmp_path_factory.mktemp("daemon")
    daemon_at, recorder_at = free_address(), free_address()
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    environ = {"BCCND_METRICS__LISTEN": daemon_at}
    with (
        DaemonProcess(folder, *flags, environ=environ) as daemon,
        RecorderProcess(folder, daemon.socket, "--metrics", recorder_at),
    ):
        families = [*scraped(daemon_at), *scraped(recorder_at)]
        yield {sample.name: set(sample.labels) for family in families for sample in family.samples}


def scraped(address: str) -> list[Metric]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as response:
        return list(text_string_to_metric_families(response.read().decode()))


def alerts() -> list[dict[str, str]]:
    """The rules, in the subset of YAML that they use: a key a line, and ``>-`` for folded text."""
    found: list[dict[str, str]] = []
    for block in re.split(r"^      - (?=alert: )", RULES, flags=re.MULTILINE)[1:]:
        folded = re.sub(r">-\n((?: {10,}.*\n?)+)", lambda m: " ".join(m[1].split()) + "\n", block)
        found.append(dict(re.findall(r"^ *(\w+): *(.+)$", folded, re.MULTILINE)))
    return found


def expressions() -> list[str]:
    targets = [target["expr"] for panel in PANELS for target in panel["targets"]]
    annotations = [each["expr"] for each in DASHBOARD["annotations"]["list"]]
    return [*targets, *annotations, *(alert["expr"] for alert in alerts())]


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_that_is_used_exists(expression: str, said: dict[str, set[str]]) -> None:
    names = re.findall(r"\b(?:bccnd|process)_\w+", expression)
    assert names or expression.startswith("up{")
    for name in names:
        assert name in said
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    labels = {label.strip() for group in grouped for label in group.split(",")}
    labels |= set(re.findall(r"(\w+)=~?\"", expression))
    assert labels <= ADDED_BY_PROMETHEUS | {label for name in names for label in said[name]}
    for function, name in re.findall(r"(rate|increase)?\(?\b((?:bccnd|process)_\w+)", expression):
        assert name.endswith("_total") == bool(function), (
            "a rate is of a counter, and a counter is worth a rate"
        )


def test_the_dashboard_fits_any_installation() -> None:
    assert DASHBOARD["uid"] == "bccnd"
    variables = {variable["name"]: variable["type"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "job": "query", "instance": "query"}
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert all("$instance" in target["expr"] for target in panel["targets"])


def test_panels_do_not_overlap_and_are_numbered() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_each_alert_says_what_to_do() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names)) == RULES.count("- alert:") >= 8
    for alert in alerts():
        assert alert["severity"] in ("warning", "critical")
        assert "$labels.instance" in alert["summary"]
        assert re.search(
            r"\b([Rr]aise|[Ll]ook at|[Cc]heck|[Mm]end|[Cc]ompare|See who)\b", alert["description"]
        ), alert
