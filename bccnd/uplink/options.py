"""The options of an uplink: which channels it carries, at which rate, and how much it keeps."""

from dataclasses import dataclass

from bccnd.errors import ConfigError, PacketError
from bccnd.relay.pattern import check
from bccnd.wire.link import DATAGRAM_LIMIT, SEGMENT_LIMIT, valid_segment

SEPARATOR = b"/"
# With this, floor, source and sum included, no link datagram is longer than a carrier takes.
BATCH_LIMIT = DATAGRAM_LIMIT - 4096


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages a second on channels that match ``pattern``, and ``burst`` at once."""

    pattern: bytes
    per_second: float
    burst: float


@dataclass(frozen=True, slots=True)
class Options:
    """``name``: of the segment. ``keys``: of the links, the first one signs. ``export``, ``import_``: patterns of the
    channels that are carried out and in; what none of them names is not carried.

    ``batch_bytes``: most bytes of messages in a link datagram; 0: one message each. ``hold_bytes``: most bytes that
    wait for missing link datagrams, of all links. ``ready_bytes``: most bytes that wait for the segment.
    ``local_names``: whether others may bring messages under the names of hosts of this segment.
    """

    name: bytes
    keys: tuple[bytes, ...] = ()
    export: tuple[bytes, ...] = ()
    import_: tuple[bytes, ...] = ()
    rates: tuple[Rate, ...] = ()
    # A link datagram then has about 1400 bytes, which every network carries in one piece.
    batch_bytes: int = 1250
    # Several times what a busy carrier brings in two seconds.
    hold_bytes: int = 64 << 20
    ready_bytes: int = 64 << 20
    local_names: bool = False

    def __post_init__(self) -> None:
        """Raises ``ConfigError``."""
        if not valid_segment(self.name):
            raise ConfigError(
                f"name: {self.name!r} is no name of a segment: 1 to {SEGMENT_LIMIT} bytes of ASCII without white "
                "space, '/', ':', '|' and '!'"
            )
        for pattern in (*self.export, *self.import_, *(rate.pattern for rate in self.rates)):
            check_pattern(pattern)
        if not 0 <= self.batch_bytes <= BATCH_LIMIT:
            raise ConfigError(f"batch_bytes: 0 to {BATCH_LIMIT}, not {self.batch_bytes}")


def check_pattern(pattern: bytes) -> None:
    """A pattern of plain channels; ``!``: messages to all; ``!`` and a pattern: messages directed to such targets.

    Raises ``ConfigError``.
    """
    if pattern == b"!":
        return
    try:
        check(pattern.removeprefix(b"!"), SEPARATOR)
    except PacketError as error:
        raise ConfigError(f"pattern {pattern.decode(errors='replace')!r}: {error.text}") from None
