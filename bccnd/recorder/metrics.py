"""The recorder's counters as Prometheus metrics."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bccnd.process.metrics import encoded, process

# Name without _total, key in the snapshot, description.
_COUNTERS = (
    ("rows", "rows", "Datagrams recorded, in finished files or not."),
    ("bytes", "bytes", "Bytes of finished files."),
    ("files", "files", "Files finished."),
    ("files_removed", "removed", "Files removed to stay within --keep-bytes and --keep-days."),
    ("unrecorded", "unrecorded", "Messages lost between the daemon and the file."),
    ("lost_rows", "lost", "Rows of files that could not be finished."),
    ("disk_errors", "disk_errors", "Attempts to write that failed."),
)
_GAUGES = (
    ("kept_bytes", "kept", "Bytes of this host's files on the disk."),
    ("buffered_bytes", "buffered", "Bytes waiting in memory."),
    ("connected", "connected", "1 while the tap is on."),
    ("lag_seconds", "lag", "Seconds that the record is behind the clock."),
)


def render(snapshot: Mapping[str, Any], accept: str) -> tuple[bytes, str]:
    """The text in the format that the Accept header asks for, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(snapshot))
    return encoded(registry, accept)


class _Snapshot(Collector):
    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self._snapshot = snapshot

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "bccnd_record_build_info", "Versions; always 1.", labels=["version", "python"]
        )
        build.add_metric([self._snapshot["version"], "{}.{}.{}".format(*sys.version_info)], 1)
        yield build
        for name, key, text in _COUNTERS:
            yield CounterMetricFamily(f"bccnd_record_{name}", text, value=self._snapshot[key])
        for name, key, text in _GAUGES:
            yield GaugeMetricFamily(f"bccnd_record_{name}", text, value=self._snapshot[key])
        yield from process()
