"""Counters of one of our programs as Prometheus metrics. No other module imports prometheus_client.

Rules
- A request turns a snapshot of plain values into metrics. Between requests nothing is kept and nothing happens.
- Names follow Prometheus' conventions: base units, and ``_total`` for a number that only grows.
- A counter never falls. A number that can fall is a gauge.
"""

import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

# ``version``, and what the metrics of a program name.
Snapshot = Mapping[str, Any]
# A metric without a label: name without the program's and _total, key in the snapshot, description.
Plain = tuple[str, str, str]
# A metric with one: name, description, label, and its values.
Labelled = tuple[str, str, str, Mapping[str, float]]

OPENMETRICS = "application/openmetrics-text"

# The start of this process, as closely as it can be seen from here.
STARTED = time.time()


def text(
    program: str,
    snapshot: Snapshot,
    counters: Iterable[Plain],
    gauges: Iterable[Plain],
    labelled: Iterable[Labelled],
    accept: str,
    labelled_gauges: Iterable[Labelled] = (),
) -> tuple[bytes, str]:
    """The text and its content type, in the format that the Accept header ``accept`` asks for. Names begin with
    ``program``. ``labelled``: counters.
    """
    families = _families(program, snapshot, counters, gauges, labelled, labelled_gauges)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    # Nothing else of the header: the library raises on a version that is none, and sends back what it finds there.
    encode, content_type = choose_encoder(OPENMETRICS if OPENMETRICS in accept else "")
    return encode(registry), content_type


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(
    program: str,
    snapshot: Snapshot,
    counters: Iterable[Plain],
    gauges: Iterable[Plain],
    labelled: Iterable[Labelled],
    labelled_gauges: Iterable[Labelled],
) -> Iterator[Metric]:
    build = GaugeMetricFamily(f"{program}_build_info", "Versions; always 1.", labels=["version", "python"])
    build.add_metric([snapshot["version"], "{}.{}.{}".format(*sys.version_info)], 1)
    yield build
    for name, key, about in counters:
        yield CounterMetricFamily(f"{program}_{name}", about, value=snapshot[key])
    for name, key, about in gauges:
        yield GaugeMetricFamily(f"{program}_{name}", about, value=snapshot[key])
    for kind, metrics in (CounterMetricFamily, labelled), (GaugeMetricFamily, labelled_gauges):
        for name, about, label, values in metrics:
            family = kind(f"{program}_{name}", about, labels=[label])
            for of, value in sorted(values.items()):
                family.add_metric([of], value)
            yield family
    yield from _process()


def _process() -> Iterator[Metric]:
    """The usual metrics of a process. Those of the library need all of /proc (see ProcSubset= of systemd)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    for name, value, about in (
        ("resident_memory_bytes", pages * resource.getpagesize(), "Resident memory size in bytes."),
        ("open_fds", len(list(Path("/proc/self/fd").iterdir())) - 1, "Number of open file descriptors."),
        (
            "max_fds",
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "Maximum number of open file descriptors.",
        ),
        ("start_time_seconds", STARTED, "Start time of the process since unix epoch in seconds."),
    ):
        yield GaugeMetricFamily(f"process_{name}", about, value=value)
    yield CounterMetricFamily(
        "process_cpu_seconds",
        "Total user and system CPU time spent in seconds.",
        value=used.ru_utime + used.ru_stime,
    )
