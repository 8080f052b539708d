"""The daemon's counters as Prometheus metrics. No other module of the daemon imports prometheus_client.

Rules
- A request turns a snapshot of plain values into metrics. Between requests nothing is kept and nothing happens.
- Names follow Prometheus' conventions: base units, and ``_total`` for a number that only grows.
- Label values are reasons, rights and interface names: few, and nothing that a stranger can choose.
- A counter never falls. A number that can fall is a gauge.
"""

import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

Snapshot = Mapping[str, Any]

OPENMETRICS = "application/openmetrics-text"

# The start of this process, as closely as it can be seen from here.
STARTED = time.time()

# Metrics without a label: name without _total, key in the snapshot, description.
_COUNTERS = (
    ("bccnd_messages_published", "published", "Messages taken from local clients."),
    (
        "bccnd_messages_routed",
        "routed",
        "Copies of messages for local clients: taken by them, waiting for them, or dropped.",
    ),
    (
        "bccnd_messages_dropped",
        "dropped",
        "Copies of messages that local clients lost because they read too slowly.",
    ),
    ("bccnd_client_errors", "errors", "Packets of local clients that were answered with an error."),
    ("bccnd_datagrams_received", "received", "Datagrams read from the segment, including our own."),
    ("bccnd_datagrams_accepted", "accepted", "Datagrams received that were sound and new."),
    ("bccnd_datagrams_unwanted", "unwanted", "Datagrams accepted that no local client wanted."),
    ("bccnd_datagrams_sent", "sent", "Datagrams sent to the segment, by every binding and with every copy."),
    ("bccnd_datagrams_unsent", "unsent", "Datagrams that the network did not take."),
    (
        "bccnd_datagrams_missed",
        "missed",
        "Datagrams that were missing when a later one of their source came; less those found, the lost ones.",
    ),
    ("bccnd_datagrams_found", "found", "Datagrams counted as missed that came later."),
    ("bccnd_source_restarts", "restarted", "Restarts of sources, seen by their sequence numbers."),
    (
        "bccnd_kernel_dropped_datagrams",
        "kernel_dropped",
        "Datagrams that found the receive buffer full. See buffers.receive_bytes and net.core.rmem_max.",
    ),
    (
        "bccnd_kernel_filtered_datagrams",
        "kernel_filtered",
        "Datagrams on the port that the kernel refused: not BCCN, or with a wrong UDP checksum.",
    ),
)
_GAUGES = (
    ("bccnd_clients", "clients", "Local clients that are connected."),
    ("bccnd_clients_limit", "clients_limit", "Local clients that may be connected at once."),
    ("bccnd_subscriptions", "subscriptions", "Subscriptions of all local clients."),
    ("bccnd_slow_clients", "slow", "Local clients that lose messages or hold publishers now."),
    ("bccnd_queued_packets", "queued_packets", "Packets that wait for local clients."),
    ("bccnd_queued_bytes", "queued_bytes", "Bytes that wait for local clients."),
    ("bccnd_queued_bytes_limit", "queued_bytes_limit", "Bytes that may wait for all local clients together."),
    ("bccnd_retained_channels", "retained_channels", "Channels whose last value is kept."),
    ("bccnd_retained_bytes", "retained_bytes", "Bytes of last values kept."),
    ("bccnd_sources", "sources", "Sources remembered, of this host and the segment."),
    ("bccnd_taps", "taps", "Local clients that tap; while there is one, the kernel filters nothing."),
    ("bccnd_segment_sockets", "segment_sockets", "Sockets open to the segment."),
    (
        "bccnd_receive_buffer_bytes",
        "buffer_size",
        "Size of the smallest receive buffer, by the kernel's account.",
    ),
    ("bccnd_receive_buffer_used_bytes", "buffer_used", "Bytes in the fullest receive buffer now."),
    ("bccnd_uptime_seconds", "uptime", "Seconds since the start, replacements (SIGUSR2) included."),
    (
        "bccnd_loop_lag_seconds",
        "loop_lag",
        "Longest delay of a timer of the event loop within the last minute.",
    ),
    (
        "bccnd_config_last_reload_successful",
        "reload_successful",
        "1 if the last reload of the settings succeeded, 0 if it was refused (see the log).",
    ),
    (
        "bccnd_config_last_reload_success_timestamp_seconds",
        "reload_time",
        "Unix time at which the settings in use were read.",
    ),
)


def render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text and its content type, in the format that the Accept header ``accept`` asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(snapshot))
    return encoded(registry, accept)


def encoded(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The same of any metrics."""
    # Nothing else of the header: the library raises on a version that is none, and sends back what it finds there.
    encode, content_type = choose_encoder(OPENMETRICS if OPENMETRICS in accept else "")
    return encode(registry), content_type


class _Snapshot(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        build = GaugeMetricFamily("bccnd_build_info", "Versions; always 1.", labels=["version", "python"])
        build.add_metric([snapshot["version"], "{}.{}.{}".format(*sys.version_info)], 1)
        yield build
        for name, key, text in _COUNTERS:
            yield CounterMetricFamily(name, text, value=snapshot[key])
        for name, key, text in _GAUGES:
            yield GaugeMetricFamily(name, text, value=snapshot[key])
        yield _labelled(
            "bccnd_datagrams_rejected",
            "Datagrams received that were not accepted, by reason.",
            "reason",
            snapshot["rejected"],
        )
        yield _labelled(
            "bccnd_requests_refused",
            "Requests of local clients that they have no right to, by right.",
            "right",
            snapshot["refused"],
        )
        yield from _segments(snapshot["segments"])
        yield from process()


def _labelled(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _segments(rows: list[dict[str, Any]]) -> Iterator[Metric]:
    """By interface, summed over its bindings; "" is the routing table's choice."""
    for key, text in (
        ("sent", "Datagrams sent by an interface since it was opened."),
        ("unsent", "Datagrams that an interface did not take since it was opened."),
    ):
        counts: Counter[str] = Counter()
        for row in rows:
            if row.get(key) is not None:
                counts[row.get("interface") or ""] += row[key]
        if counts:
            yield _labelled(f"bccnd_interface_datagrams_{key}", text, "interface", counts)


def process() -> Iterator[Metric]:
    """The usual metrics of a process. Those of the library need all of /proc (see ProcSubset= of systemd)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    for name, value, text in (
        ("resident_memory_bytes", pages * resource.getpagesize(), "Resident memory size in bytes."),
        ("open_fds", len(list(Path("/proc/self/fd").iterdir())) - 1, "Number of open file descriptors."),
        (
            "max_fds",
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "Maximum number of open file descriptors.",
        ),
        ("start_time_seconds", STARTED, "Start time of the process since unix epoch in seconds."),
    ):
        yield GaugeMetricFamily(f"process_{name}", text, value=value)
    yield CounterMetricFamily(
        "process_cpu_seconds",
        "Total user and system CPU time spent in seconds.",
        value=used.ru_utime + used.ru_stime,
    )
