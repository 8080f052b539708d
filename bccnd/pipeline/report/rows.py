"""The bounded summaries that leave Spark for the page: what ``queries`` collects, ``findings`` and ``charts`` read.

Times are aware datetimes in UTC, latencies microseconds, shares from 0 to 1. "Sent" counts a message once for each
receiver whose record covers it, so that sent, received and lost can be compared.
"""

from datetime import datetime
from typing import NamedTuple

OF_ONE_HOST = 4  # of the worst ways, at most so many with the same receiver or sender: the page says so, too


class Totals(NamedTuple):
    """Of the delivery matrix; a way is a pair of sender and receiver. ``hosts``: senders and receivers together;
    ``measured``: ways with a latency."""

    hosts: int = 0
    ways: int = 0
    lossy_ways: int = 0
    sent: int = 0
    lost: int = 0
    bursts: int = 0
    measured: int = 0

    @property
    def loss(self) -> float:
        return self.lost / self.sent if self.sent else 0.0


class Way(NamedTuple):
    """From one sender to one receiver over the whole period; percentiles of hours are weighted by their messages.

    ``basis``: ``record`` (the sender's own record) or ``gaps`` (of numbers, where the sender has no recorder).
    ``method``: of the latency, ``both-ways`` or ``above-fastest``; empty where none could be taken.
    """

    sender: str
    receiver: str
    sent: int
    lost: int
    basis: str = "record"
    bursts: int = 0
    burst_p50: float = 0
    burst_max: int = 0
    method: str = ""
    p50: float = 0
    p90: float = 0
    p99: float = 0
    top: float = 0

    @property
    def loss(self) -> float:
        return self.lost / self.sent if self.sent else 0.0


class Block(NamedTuple):
    """A field of the thumbnail of the whole matrix: its row, its column, and the worst loss of the ways in it."""

    row: int
    column: int
    loss: float


class HostLoss(NamedTuple):
    """What one host lost as a receiver (of so many partners), or others of it as a sender; and within what time."""

    host: str
    role: str  # receiver | sender
    partners: int
    lossy: int
    sent: int
    lost: int
    start: datetime | None = None
    end: datetime | None = None

    @property
    def loss(self) -> float:
        return self.lost / self.sent if self.sent else 0.0


class Episode(NamedTuple):
    """A run of minutes with loss on one way."""

    sender: str
    receiver: str
    start: datetime
    end: datetime
    sent: int
    lost: int
    burst_p50: float = 0


class Bin(NamedTuple):
    """Loss in a stretch of time that starts there; on one way, or with both names empty on all of them."""

    sender: str
    receiver: str
    start: datetime
    sent: int
    lost: int


class Silence(NamedTuple):
    """A source whose heartbeats stayed away; ``ongoing`` when they had not come back by the end of the record."""

    src: str
    start: datetime
    end: datetime
    expected: float
    observers: tuple[str, ...]
    ongoing: bool


class Reason(NamedTuple):
    """A verdict other than ok: the most datagrams and peers that any one host saw of it, and how many hosts did."""

    verdict: str
    datagrams: int
    peers: int
    hosts: int


class Rejection(NamedTuple):
    """``datagrams``: the most that any one host saw (a broadcast is rejected by each); ``hosts``: how many did."""

    verdict: str
    peer: str
    datagrams: int
    hosts: int
    host: str
    first: datetime | None
    last: datetime | None
    channel: str = ""


class Gap(NamedTuple):
    """A stretch between two files of a recorder that neither covers."""

    start: datetime
    end: datetime


class Recorder(NamedTuple):
    """``missing``: seconds between first and last that are not covered, in so many ``pauses``, of which the longest
    are ``gaps``, by time; ``unrecorded``: messages it lost itself."""

    host: str
    start: datetime
    end: datetime
    missing: float
    unrecorded: int
    pauses: int = 0
    gaps: tuple[Gap, ...] = ()


class Channel(NamedTuple):
    channel: str
    messages: int
    size: int  # bytes
    rate_peak: int  # messages in its busiest second
    payload_p50: float
    payload_p95: float
    payload_max: int


class Source(NamedTuple):
    """Of one source, the sum over its receivers but for ``restarts``, which all of them see: the most of any."""

    src: str
    receivers: int
    received: int
    lost: int
    duplicates: int
    late: int
    restarts: int


class Reordering(NamedTuple):
    receiver: str
    src: str
    received: int
    reordered: int
    distance_p50: float
    distance_max: int


class Copies(NamedTuple):
    """``lost_single``: what one copy would have lost; ``saved``: what the others saved of it."""

    sender: str
    receiver: str
    copies: int
    sent: int
    lost: int
    lost_single: float
    saved: float
