"""From nanoseconds since 1970 to the timestamps of the tables."""

from datetime import UTC, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS


def moment(time_ns: str) -> Column:
    """The timestamp, to the microsecond."""
    return F.timestamp_micros(F.expr(f"({time_ns}) div 1000"))


def minute(time_ns: str) -> Column:
    """The timestamp at which the minute begins."""
    return F.timestamp_seconds(F.expr(f"({time_ns}) div {MINUTE_NS} * 60"))


def hour(time_ns: str) -> Column:
    """The timestamp at which the hour begins."""
    return F.timestamp_seconds(F.expr(f"({time_ns}) div {HOUR_NS} * 3600"))


def date(time_ns: int) -> str:
    """``YYYY-MM-DD``: the ``date=`` directory of a file that begins then."""
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).date().isoformat()
