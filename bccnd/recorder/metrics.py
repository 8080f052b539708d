"""The recorder's counters, as metrics (``bccnd/process/exposition.py``)."""

from bccnd.process.exposition import Snapshot, text

# Name without bccnd_record_ and _total, key in the snapshot, description.
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


def render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text in the format that the Accept header asks for, and its content type."""
    return text("bccnd_record", snapshot, _COUNTERS, _GAUGES, [], accept)
