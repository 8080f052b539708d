"""The bounded summaries that leave Spark for the page: ``queries`` collects them, findings and charts read them.

A pair is a sender and a receiver. Times are aware datetimes in UTC, latencies microseconds, shares from 0 to 1.
``sent`` counts a message once for each receiver whose record covers it, so that sent, received and lost compare.
"""

from datetime import datetime
from typing import NamedTuple


def share(lost: int, sent: int) -> float:
    """Of nothing sent, nothing is lost."""
    return lost / sent if sent else 0.0


class Totals(NamedTuple):
    """Sums of the delivery matrix. ``hosts`` counts senders and receivers, ``measured`` the pairs with a latency,
    ``dead`` those that lost everything; ``late`` are those of ``lost`` that came too late. ``repaired`` were lost on
    the way as well, and came by repair."""

    hosts: int = 0
    pairs: int = 0
    lossy_pairs: int = 0
    sent: int = 0
    lost: int = 0
    measured: int = 0
    dead: int = 0
    late: int = 0
    repaired: int = 0

    @property
    def loss(self) -> float:
        return share(self.lost, self.sent)

    @property
    def missed(self) -> int:
        """What was lost on the way."""
        return self.lost + self.repaired


class Pair(NamedTuple):
    """A sender and a receiver over the whole period; percentiles of hours are weighted by their messages.

    ``basis`` is ``record`` (the sender's own), ``gaps`` (between numbers, if the sender has no recorder) or ``both``
    (gaps while it was off); or ``link``: the sender is a link between segments, and its datagrams are counted.
    ``late`` are those of ``lost`` that came, but too late: the receiver's daemon dropped them.
    ``repaired`` were lost on the way, and came by repair: ``repaired_p50`` and ``repaired_p99`` are their latency,
    ``direct_p50`` and ``direct_p99`` that of all others, None if it is unknown.
    ``method`` is that of the latency, ``both-ways`` or ``above-fastest``, and empty if there is none.
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
    late: int = 0
    repaired: int = 0
    direct_p50: float | None = None
    direct_p99: float | None = None
    repaired_p50: float | None = None
    repaired_p99: float | None = None

    @property
    def loss(self) -> float:
        return share(self.lost, self.sent)

    @property
    def missed(self) -> int:
        """What was lost on the way."""
        return self.lost + self.repaired


class Link(NamedTuple):
    """What the uplink on host ``importer`` hears of that of segment ``near``, on host ``exporter``. ``sent``,
    ``missed`` and ``lost`` count datagrams of several ``messages``; 0 ``sent``: no uplink said anything. ``exported``
    counts messages, None if unknown, ``withheld`` what was given up before. Latencies are None if they are unknown.
    """

    near: str
    far: str
    exporter: str
    importer: str
    sent: int
    missed: int
    lost: int
    messages: int
    exported: int | None = None
    withheld: int = 0
    method: str = ""
    p50: float | None = None
    p99: float | None = None


class Block(NamedTuple):
    """A field of the thumbnail of the whole matrix: its row, its column, and the worst loss of the pairs in it."""

    row: int
    column: int
    loss: float


class HostLoss(NamedTuple):
    """What one host lost as a receiver, or what others lost of it as a sender; with how many partners, and when.

    ``common`` is the share of ``lost`` that no receiver got; None where there was only one. ``repaired`` are those of
    ``lost`` that came by repair, where loss on the way is meant. ``worst_lost`` of ``worst_sent`` were lost with the
    partner with which most were.
    """

    host: str
    role: str  # receiver | sender
    partners: int
    lossy: int
    sent: int
    lost: int
    start: datetime | None = None
    end: datetime | None = None
    common: float | None = None
    repaired: int = 0
    worst_sent: int = 0
    worst_lost: int = 0

    @property
    def loss(self) -> float:
        return share(self.lost, self.sent)


class Episode(NamedTuple):
    """A run of minutes with loss of one pair. ``burst_p50`` is how many messages were lost together with the one in
    the middle, in a time of ``outage`` seconds; of ``outages`` like that, ``starts`` are the first."""

    sender: str
    receiver: str
    start: datetime
    end: datetime
    sent: int
    lost: int
    burst_p50: float = 0
    outages: int = 0
    outage: float = 0
    starts: tuple[datetime, ...] = ()


class Bin(NamedTuple):
    """The loss of one pair, or of all pairs if both names are empty, from ``start`` on."""

    sender: str
    receiver: str
    start: datetime
    sent: int
    lost: int


class Silence(NamedTuple):
    """A source whose heartbeats stopped; ``ongoing`` if they had not come back by the end of the record."""

    src: str
    start: datetime
    end: datetime
    expected: float
    observers: tuple[str, ...]
    ongoing: bool


class Reason(NamedTuple):
    """A verdict, the most datagrams and peers that any one host has of it, and how many hosts have any."""

    verdict: str
    datagrams: int
    peers: int
    hosts: int


class Rejection(NamedTuple):
    """Datagrams of one verdict from one peer. ``datagrams`` is the most that any of the ``hosts`` rejected, because
    each host rejects a broadcast for itself; ``host`` is the one that rejected most."""

    verdict: str
    peer: str
    datagrams: int
    hosts: int
    host: str
    first: datetime | None
    last: datetime | None
    channel: str = ""
    peer_host: str = ""  # whose address ``peer`` is, if a record says


class Gap(NamedTuple):
    """A time between two files of a recorder that neither covers."""

    start: datetime
    end: datetime


class Recorder(NamedTuple):
    """``missing`` is the seconds between ``start`` and ``end`` that are not covered, ``pauses`` in how many pieces,
    and ``gaps`` the longest of them, by time. ``unrecorded`` counts the messages that the recorder missed."""

    host: str
    start: datetime
    end: datetime
    missing: float
    unrecorded: int
    pauses: int = 0
    gaps: tuple[Gap, ...] = ()
    capture: bool = False  # of tcpdump, in place of a recorder


class SetAside(NamedTuple):
    """A file that was not taken over, and why."""

    path: str
    reason: str


class Channel(NamedTuple):
    channel: str
    messages: int
    size: int  # bytes
    rate_peak: int  # messages in its busiest second
    # None if payloads were not recorded.
    payload_p50: float | None
    payload_p95: float | None
    payload_max: int | None


class Source(NamedTuple):
    """One source, summed over its receivers; but every receiver sees all ``restarts``, so theirs is the largest."""

    src: str
    receivers: int
    received: int
    lost: int
    duplicates: int
    late: int
    restarts: int
    sent: int = 0  # counted once per receiver, like ``lost``
    repaired: int = 0  # lost on the way, and come by repair
    resent: int = 0  # duplicates, because other receivers had missed them

    @property
    def loss(self) -> float:
        return share(self.lost, self.sent)


class Reordering(NamedTuple):
    receiver: str
    src: str
    received: int
    reordered: int
    distance_p50: float
    distance_max: int


class OffClock(NamedTuple):
    """A host whose clock is ``ahead`` microseconds (behind, if negative) of ``apart`` of ``partners`` hosts'."""

    host: str
    ahead: float
    apart: int
    partners: int


class Culprit(NamedTuple):
    """A source that carries the loss of its host: ``lost`` of its ``sent``, and ``host_lost`` of all ``host_sent``.
    ``receivers`` are those that lost most of it, of so many that lost any (``lossy``)."""

    src: str
    sender: str
    sent: int
    lost: int
    host_sent: int
    host_lost: int
    receivers: tuple[str, ...]
    lossy: int

    @property
    def loss(self) -> float:
        return share(self.lost, self.sent)


class Dropped(NamedTuple):
    """Messages that were lost inside a host: by the kernel, or, with a ``client``, because that read too slowly."""

    host: str
    client: str | None
    messages: int


class CutOff(NamedTuple):
    """A host that got none of the ``sent`` messages of ``partners`` others, though third hosts got some of theirs
    (``deaf``); or one of whose messages no other host got any, though they got those of third hosts (``mute``)."""

    host: str
    role: str  # deaf | mute
    partners: int
    sent: int


class Unheard(NamedTuple):
    """No message of ``sender`` reached ``receiver``, and no third host says which of them is to blame."""

    sender: str
    receiver: str
    sent: int


class OtherKey(NamedTuple):
    """A host that rejected datagrams of ``partners`` other hosts, or they its, as signed with an unknown key or not
    signed, and that had no message from or to them. ``theirs`` is the most datagrams of it that any other host
    rejected, ``own`` how many it rejected itself."""

    host: str
    partners: int
    theirs: int
    own: int


class Late(NamedTuple):
    """What the daemon of one host dropped as late: ``late`` of ``sent``, up to ``behind`` numbers behind others, or
    some even ``further`` than the daemon tells from duplicates. ``sender`` is the one it dropped most of, of so many
    ``senders``. ``repaired`` came in time after they had been asked for, of the same senders."""

    receiver: str
    sender: str
    senders: int
    sent: int
    late: int
    behind: int
    further: bool = False
    repaired: int = 0


class Copies(NamedTuple):
    """``lost_single`` is what one copy would have lost, ``saved`` how much of it the others saved."""

    sender: str
    receiver: str
    copies: int
    sent: int
    lost: int
    lost_single: float
    saved: float
