"""What one connection may hold, each bound with its reason. Beyond it something is refused with a reason, or ends."""

from dataclasses import dataclass

# The peer's credit for the top level is kept at this by the endpoint itself, whatever the program does: every
# opening, answer and refusal is paid from it, so neither side can starve the other.
TOP_LEVEL_RESERVE = 64 * 1024

# No chunk that is sent is longer: the next one that waits has its turn after it.
PIECE_LIMIT = 16 * 1024

# What may wait of something without a payload, and of each payload besides its bytes.
ITEM_BYTES = 64

# What each of these takes in memory, about, with its places in tables.
CHANNEL_BYTES = 2048
REQUEST_BYTES = 1024
# One that has begun, besides its bytes.
PAYLOAD_BYTES = 256

# Chunks that have the work of one that opens, answers or ends something: programs do something for it.
OPENING_WORK = 32

# Grants below this, and payloads without a byte, are counted as chatter.
SMALL_GRANT = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one side. Channels and requests are bounded once for those of the peer and once for our own."""

    # At a time. A channel takes two kilobytes, a request one.
    channels: int = 1024
    requests: int = 1024
    # Bytes of credit for the top level; at most half of them are owed at a time.
    reserve: int = TOP_LEVEL_RESERVE
    # Bytes of one payload, either way: a packet of the local bus has 128 KiB at most. Our reasons need 64.
    payload: int = 128 * 1024
    # Bytes of payloads that have begun and not ended, of the whole connection.
    unfinished: int = 1024 * 1024
    # Bytes of messages that wait on one channel; then ``send`` takes no more until half of them are gone.
    queue: int = 256 * 1024
    # What was refused and not yet acknowledged, at a time. A peer that opens more reads no refusals.
    refused: int = 64
    # Bytes of acknowledgements, grants and heartbeats that wait to be sent. A peer that causes more does not read.
    replies: int = 1024 * 1024

    @property
    def payloads(self) -> int:
        """That have begun and not ended, at a time: all that may be said at once about everything there can be."""
        # A message, a Close and a Cancel of channels of each side; an opening or response and its end of requests.
        return 6 * (self.channels + self.refused) + 4 * (self.requests + self.refused)
