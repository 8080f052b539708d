"""The text that Prometheus reads: by its parser, and by its conventions for names."""

import re
from typing import Any

import pytest
from prometheus_client import parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser

from bccnd.process import metrics

PLAIN = [key for _, key, _ in (*metrics._COUNTERS, *metrics._GAUGES)]


def snapshot(**values: Any) -> dict[str, Any]:
    return {
        "version": "1.2",
        "rejected": {"hmac": 3, "late": 0},
        "refused": {"tap": 1},
        "segments": [],
        **{key: number for number, key in enumerate(PLAIN)},
        **values,
    }


def families(accept: str = "", **values: Any) -> dict[str, Metric]:
    text, content_type = metrics.render(snapshot(**values), accept)
    of_openmetrics = content_type.startswith("application/openmetrics-text")
    parse = openmetrics_parser if of_openmetrics else parser
    found: list[Metric] = list(parse.text_string_to_metric_families(text.decode()))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def value(family: Metric, **labels: str) -> float:
    (sample,) = [sample for sample in family.samples if sample.labels == labels]
    return sample.value


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_the_text_has_every_value_of_the_snapshot(accept: str) -> None:
    found = families(accept)
    for name, key, _ in (*metrics._COUNTERS, *metrics._GAUGES):
        assert value(found[f"bccnd_{name}"]) == PLAIN.index(key)
    assert value(found["bccnd_datagrams_rejected"], reason="hmac") == 3
    assert value(found["bccnd_requests_refused"], right="tap") == 1
    assert value(found["process_resident_memory_bytes"]) > 1 << 20
    assert value(found["process_open_fds"]) > 2


def test_names_follow_the_conventions() -> None:
    rows = [{"interface": "eth0", "sent": 1, "unsent": 0}]
    for family in families(segments=rows).values():
        assert re.fullmatch(r"(bccnd|process)(_[a-z]+)+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        assert family.type in ("counter", "gauge"), family.name
        units = {"milliseconds", "ms", "kilobytes", "kb", "mb", "megabytes", "percent", "count"}
        assert not units & set(family.name.split("_")), family.name
        for sample in family.samples:
            assert sample.name == family.name + ("_total" if family.type == "counter" else "")
            allowed = {"reason", "right", "interface", "version", "python"}
            assert set(sample.labels) <= allowed, sample


def test_counts_are_summed_by_interface() -> None:
    rows = [
        {"interface": "eth0", "sent": 2, "unsent": 1},
        {"interface": "eth0", "sent": 3, "unsent": 0},
        {"interface": None, "sent": 7, "unsent": 0},
    ]
    found = families(segments=rows)
    assert value(found["bccnd_interface_datagrams_sent"], interface="eth0") == 5
    assert value(found["bccnd_interface_datagrams_sent"], interface="") == 7
    assert value(found["bccnd_interface_datagrams_unsent"], interface="eth0") == 1
    assert "bccnd_interface_datagrams_sent" not in families(segments=[{"interface": "eth0"}])
