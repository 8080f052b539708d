"""The daemon's counters, as metrics (``exposition``).

Label values are reasons, rights and interface names: few, and nothing that a stranger can choose.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bccnd.process.exposition import Labelled, Snapshot, text

# Name without bccnd_ and _total, key in the snapshot, description.
_COUNTERS = (
    ("messages_published", "published", "Messages taken from local clients."),
    (
        "messages_routed",
        "routed",
        "Copies of messages for local clients: taken by them, waiting for them, or dropped.",
    ),
    (
        "messages_dropped",
        "dropped",
        "Copies of messages that local clients lost because they read too slowly.",
    ),
    ("client_errors", "errors", "Packets of local clients that were answered with an error."),
    (
        "messages_bridged",
        "bridged",
        "Messages of other segments that local bridges brought, and that were sent to this one.",
    ),
    (
        "messages_bridged_again",
        "bridged_again",
        "Messages of bridges that had come before: by another bridge of the segment, or as they are of this one.",
    ),
    ("datagrams_received", "received", "Datagrams read from the segment, including our own."),
    ("datagrams_accepted", "accepted", "Datagrams received that were sound and new."),
    ("datagrams_unwanted", "unwanted", "Datagrams accepted that no local client wanted."),
    ("datagrams_sent", "sent", "Datagrams sent to the segment, by every binding and with every copy."),
    ("datagrams_unsent", "unsent", "Datagrams that the network did not take."),
    (
        "datagrams_missed",
        "missed",
        "Datagrams that were missing when a later one of their source came; less those found, the lost ones.",
    ),
    ("datagrams_found", "found", "Datagrams counted as missed that came later."),
    ("datagrams_repaired", "repaired", "Datagrams found because this daemon had asked for them."),
    (
        "datagrams_asked",
        "asked",
        "Datagrams that this daemon asked others to send again, each time that it did.",
    ),
    ("datagrams_gone", "gone", "Datagrams missed here that nobody kept any more."),
    ("datagrams_given_up", "given_up", "Datagrams missed here that did not come in time."),
    (
        "datagrams_resent",
        "resent",
        "Datagrams that this daemon sent again, because another missed them.",
    ),
    (
        "datagrams_resend_refused",
        "resend_refused",
        "Datagrams that others missed and that were not sent again: beyond the share of who asked (repair.rate).",
    ),
    (
        "resend_requests_sent",
        "resend_requests",
        "Requests of this daemon for datagrams that it missed.",
    ),
    ("resend_requests_received", "resend_requests_heard", "Such requests of other daemons."),
    ("source_restarts", "restarted", "Restarts of sources, seen by their sequence numbers."),
    (
        "kernel_dropped_datagrams",
        "kernel_dropped",
        "Datagrams that found the receive buffer full. See buffers.receive_bytes and net.core.rmem_max.",
    ),
    (
        "kernel_filtered_datagrams",
        "kernel_filtered",
        "Datagrams on the port that the kernel refused: not BCCN, or with a wrong UDP checksum.",
    ),
)
_GAUGES = (
    ("clients", "clients", "Local clients that are connected."),
    ("clients_limit", "clients_limit", "Local clients that may be connected at once."),
    ("subscriptions", "subscriptions", "Subscriptions of all local clients."),
    ("slow_clients", "slow", "Local clients that lose messages or hold publishers now."),
    ("queued_packets", "queued_packets", "Packets that wait for local clients."),
    ("queued_bytes", "queued_bytes", "Bytes that wait for local clients."),
    ("queued_bytes_limit", "queued_bytes_limit", "Bytes that may wait for all local clients together."),
    ("retained_channels", "retained_channels", "Channels whose last value is kept."),
    ("retained_bytes", "retained_bytes", "Bytes of last values kept."),
    ("repairs", "repairs", "1 if the daemon repairs (repair.on), else 0."),
    (
        "kept_sources",
        "kept_sources",
        "Sources of this host of which datagrams are kept, to be sent again.",
    ),
    ("kept_bytes", "kept_bytes", "Bytes of those datagrams."),
    ("held_messages", "held_messages", "Messages that wait for one that was lost before them."),
    ("held_bytes", "held_bytes", "Bytes of those messages."),
    ("held_bytes_limit", "held_bytes_limit", "Bytes of messages that may wait so (repair.hold_bytes)."),
    ("sources", "sources", "Sources remembered, of this host and the segment."),
    ("taps", "taps", "Local clients that tap; while there is one, the kernel filters nothing."),
    ("segment_sockets", "segment_sockets", "Sockets open to the segment."),
    (
        "receive_buffer_bytes",
        "buffer_size",
        "Size of the smallest receive buffer, by the kernel's account.",
    ),
    ("receive_buffer_used_bytes", "buffer_used", "Bytes in the fullest receive buffer now."),
    ("uptime_seconds", "uptime", "Seconds since the start, replacements (SIGUSR2) included."),
    (
        "loop_lag_seconds",
        "loop_lag",
        "Longest delay of a timer of the event loop within the last minute.",
    ),
    (
        "config_last_reload_successful",
        "reload_successful",
        "1 if the last reload of the settings succeeded, 0 if it was refused (see the log).",
    ),
    (
        "config_last_reload_success_timestamp_seconds",
        "reload_time",
        "Unix time at which the settings in use were read.",
    ),
)


def render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text and its content type, in the format that the Accept header ``accept`` asks for."""
    return text("bccnd", snapshot, _COUNTERS, _GAUGES, _labelled(snapshot), accept)


def _labelled(snapshot: Snapshot) -> Iterator[Labelled]:
    yield (
        "datagrams_rejected",
        "Datagrams received that were not accepted, by reason.",
        "reason",
        snapshot["rejected"],
    )
    yield (
        "requests_refused",
        "Requests of local clients that they have no right to, by right.",
        "right",
        snapshot["refused"],
    )
    yield from _segments(snapshot["segments"])


def _segments(rows: list[dict[str, Any]]) -> Iterator[Labelled]:
    """By interface, summed over its bindings; "" is the routing table's choice."""
    for key, about in (
        ("sent", "Datagrams sent by an interface since it was opened."),
        ("unsent", "Datagrams that an interface did not take since it was opened."),
    ):
        counts: Counter[str] = Counter()
        for row in rows:
            if row.get(key) is not None:
                counts[row.get("interface") or ""] += row[key]
        if counts:
            yield f"interface_datagrams_{key}", about, "interface", counts
