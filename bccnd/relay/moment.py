"""The time of a call. The relay reads no clock: its caller passes the time."""

from dataclasses import dataclass


@dataclass(slots=True)
class Moment:
    """``monotonic``: seconds, which decide everything; ``unix_ns``: nanoseconds since 1970, which are only shown."""

    monotonic: float
    unix_ns: int
