"""From nanoseconds since 1970 to the timestamps of the tables, and between the two."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812


def moment(time_ns: str) -> Column:
    """To the microsecond."""
    return F.timestamp_micros(F.expr(f"({time_ns}) div 1000"))


def minute(time_ns: str) -> Column:
    return F.timestamp_seconds(F.expr(f"({time_ns}) div 60000000000 * 60"))


def hour(time_ns: str) -> Column:
    return F.timestamp_seconds(F.expr(f"({time_ns}) div 3600000000000 * 3600"))
