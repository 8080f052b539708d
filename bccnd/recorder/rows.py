"""What comes from a tap, as rows in the order in which it came.

Rules
- One call takes a whole block of packets apart (``bccnd.wire.columns``), and its columns go to Arrow as they are.
  Each distinct word is looked at once, not once a row.
- Between the rows stand the daemon's notices: how many messages it dropped for the recorder, its answers to pings,
  which say up to when everything has been read, and those about itself. Behind the rows of a block stands what was
  said there of links (``links``).
- The direction of a datagram: what a client of this host sent is ``out``, or ``local`` on channels that stay here.
  What came from the segment is ``in``, but ``echo`` if this host had sent it. The daemon's verdict for that is
  ``own``, or ``duplicate`` once the sender has left: then its source is named after this host, or was seen sending
  from it.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

import bccn
from bccnd.errors import ProtocolError
from bccnd.recorder.layout import SCHEMA, Direction
from bccnd.recorder.links import CHANNELS as OF_LINKS
from bccnd.recorder.links import Spoken
from bccnd.wire.columns import Columns, Words
from bccnd.wire.native import columns
from bccnd.wire.sbus import NOWHERE, Memory
from bccnd.wire.verdict import DELIVERED, Verdict

# Sources of this host that are remembered for the echoes of their datagrams; the daemon keeps as many sources.
OWN_SOURCES = 65536
# Channels of which it is remembered whether they are local; beyond that all are forgotten and matched again.
CHANNELS = 65536
# The peer of what a client of this host sent.
LOCAL = b"local"
# Local whatever the settings say.
NOTICES = b"local/presence/"
# Their payload, a word at most, says whether the source leaves (``bccnd/wire/BCCN1.md``, "Heartbeats").
HEARTBEATS = b"heartbeat/"
# The requests whose answers the record has a use for.
ANSWERS = (b"status", b"clients")
OWN, DUPLICATE = Verdict.OWN.encode(), Verdict.DUPLICATE.encode()
DIRECTIONS = pa.array([Direction.IN, Direction.OUT, Direction.LOCAL, Direction.ECHO], pa.string())
IN, OUT, STAYS, ECHO = range(4)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Here the daemon left messages out, since the recorder read too slowly."""

    messages: int


@dataclass(frozen=True, slots=True)
class ReadUntil:
    """All that the daemon saw before this time (Unix ns) stands before here."""

    time_ns: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The daemon closes the connection, or takes the tap or a subscription away; ``reason`` says why.

    ``word``: the daemon's word for it.
    """

    reason: str
    word: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the daemon answered to ``status`` or ``clients``: JSON."""

    key: str
    value: bytes


Item: TypeAlias = pa.RecordBatch | Dropped | ReadUntil | Ended | Answer | Spoken


class Rows:
    """``local``: the patterns of channels that stay on this host; ``host``: its name; ``payloads``: whether rows have
    them.
    """

    def __init__(self, local: Iterable[str], host: str, *, payloads: bool = True) -> None:
        # How the names of this host's clients begin, unless they take others.
        self._beginning = host.encode() + b"/"
        self._local = tuple(local)
        self._payloads = payloads
        self._known: dict[bytes, bool] = {}
        self._ours: OrderedDict[bytes, None] = OrderedDict()

    def read(self, memory: Memory, starts: list[int], ends: list[int]) -> Iterator[Item]:
        """What the packets in these spans say. Raises ``ProtocolError`` for what no daemon sends."""
        made = columns(memory, starts, ends)
        batch = self._batch(made) if made.rows else None
        done = 0
        for row, packet in made.others:
            if batch is not None and row > done:
                yield batch.slice(done, row - done)
                done = row
            yield from notice(packet)
        if batch is not None and done < made.rows:
            yield batch.slice(done)
        yield from _spoken(made)

    def _batch(self, made: Columns) -> pa.RecordBatch:
        rows = made.rows
        sound = pc.cast(_numbers(made.sound, pa.uint8(), rows), pa.bool_())
        peer, verdict = _indexes(made.peer, rows), _indexes(made.verdict, rows)
        src, chan = _indexes(made.src, rows), _indexes(made.chan, rows)
        direction = self._directions(made, peer, verdict, src, chan)
        interfaces = [word.decode("utf-8", "backslashreplace") for word in made.interface[1]]
        arrays = [
            _numbers(made.time_ns, pa.int64(), rows),
            _words(_indexes(made.interface, rows), interfaces, null=NOWHERE.decode()),
            pa.DictionaryArray.from_arrays(direction, DIRECTIONS),
            _words(verdict, _decoded(made.verdict)),
            _words(_indexes(made.mode, rows, sound), [word or "none" for word in _decoded(made.mode)]),
            _words(peer, _decoded(made.peer), null=LOCAL.decode()),
            _words(_where(src, sound), _decoded(made.src)),
            _where(_numbers(made.seq, pa.uint64(), rows), sound),
            _words(_where(chan, sound), _decoded(made.chan)),
            self._payload(made, chan),
            _numbers(made.size, pa.int32(), rows),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _payload(self, made: Columns, chan: pa.Array) -> pa.Array:
        buffers = [None, pa.py_buffer(made.payload_at), pa.py_buffer(made.payload)]
        payload = pa.Array.from_buffers(pa.binary(), made.rows, buffers)
        if self._payloads:
            return payload
        beats = [word.startswith(HEARTBEATS) for word in made.chan[1]]
        kept = pa.array(beats, pa.bool_()).take(chan)
        return pc.if_else(kept, payload, pa.scalar(None, pa.binary()))

    def _directions(
        self, made: Columns, peer: pa.Array, verdict: pa.Array, src: pa.Array, chan: pa.Array
    ) -> pa.Array:
        directions = pa.array([OUT if word == LOCAL else IN for word in made.peer[1]], pa.int32()).take(peer)
        if LOCAL in made.peer[1]:
            stays = pa.array([self._is_local(word) for word in made.chan[1]], pa.bool_()).take(chan)
            directions = pc.if_else(pc.and_(pc.equal(directions, OUT), stays), STAYS, directions)
            self._remember(made.src[1], pc.unique(src.filter(pc.equal(directions, OUT))).to_pylist())
        if {OWN, DUPLICATE} & {*made.verdict[1]}:
            ours = pa.array([self._is_ours(word) for word in made.src[1]], pa.bool_()).take(src)
            own = pa.array([word == OWN for word in made.verdict[1]], pa.bool_()).take(verdict)
            again = pa.array([word == DUPLICATE for word in made.verdict[1]], pa.bool_()).take(verdict)
            echo = pc.and_(pc.equal(directions, IN), pc.or_(own, pc.and_(again, ours)))
            directions = pc.if_else(echo, ECHO, directions)
        return directions.cast(pa.int32())

    def _is_local(self, channel: bytes) -> bool:
        known = self._known.get(channel)
        if known is None:
            if len(self._known) >= CHANNELS:
                self._known.clear()
            name = channel.decode("ascii")
            known = channel.startswith(NOTICES) or any(bccn.matches(each, name) for each in self._local)
            self._known[channel] = known
        return known

    def _is_ours(self, src: bytes) -> bool:
        return src.startswith(self._beginning) or src in self._ours

    def _remember(self, words: list[bytes], numbers: list[int]) -> None:
        for number in numbers:
            self._ours[words[number]] = None
            self._ours.move_to_end(words[number])
        while len(self._ours) > OWN_SOURCES:
            self._ours.popitem(last=False)


def _spoken(made: Columns) -> Iterator[Spoken]:
    """The messages of a block that say something of links."""
    channels, verdicts, sources = made.chan[1], made.verdict[1], made.src[1]
    if not {*OF_LINKS} & {*channels}:
        return
    chan, verdict, src = (array("i", words[0]) for words in (made.chan, made.verdict, made.src))
    seq, at = array("Q", made.seq), array("i", made.payload_at)
    delivered = {place for place, word in enumerate(verdicts) if word.decode("ascii", "replace") in DELIVERED}
    for row, place in enumerate(chan):
        if channels[place] in OF_LINKS and verdict[row] in delivered:
            payload = made.payload[at[row] : at[row + 1]]
            yield Spoken(channels[place], sources[src[row]], seq[row], payload)


def notice(packet: bytes) -> Iterator[Item]:
    """What a packet other than RECV says: nothing, if it is an answer that a tap has no use for."""
    key, _, value = packet.removeprefix(b"CMSG ").partition(b"\0")
    number = int(value) if value.isdigit() and len(value) < 20 else -1
    text = value.decode("utf-8", "backslashreplace")
    if not packet.startswith(b"CMSG "):
        raise ProtocolError(f"the daemon sent {packet[:32]!r}, which a tap does not get")
    if key == b"dropped" and number >= 0:
        yield Dropped(number)
    elif key == b"pong" and number >= 0:
        yield ReadUntil(number)
    elif key == b"closing":
        yield Ended(f"closed by the daemon: {text}", text)
    elif key == b"revoked" and value.startswith((b"CMSG tap", b"SUB ")):
        yield Ended(f"the right to {text.removeprefix('CMSG ')} was revoked", "revoked")
    elif key in ANSWERS:
        yield Answer(key.decode(), value)


def messages_in(memory: Memory, starts: list[int], ends: list[int]) -> tuple[int, list[Item]]:
    """How many messages the packets hold, and what else they say, for a reader that cannot keep them."""
    made = columns(memory, starts, ends)
    return made.rows, [item for _, packet in made.others for item in notice(packet)]


def _numbers(data: bytes, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _indexes(words: Words, rows: int, sound: pa.Array | None = None) -> pa.Array:
    made = _numbers(words[0], pa.int32(), rows)
    return made if sound is None else _where(made, sound)


def _where(values: pa.Array, sound: pa.Array) -> pa.Array:
    """The values, with null where a datagram has no sound header."""
    return (
        values if sound.true_count == len(sound) else pc.if_else(sound, values, pa.scalar(None, values.type))
    )


def _decoded(words: Words) -> list[str]:
    return [word.decode("ascii", "backslashreplace") for word in words[1]]


def _words(indexes: pa.Array, words: list[str], *, null: str | None = None) -> pa.DictionaryArray:
    """``null``: the word that stands for none."""
    if null in words:
        is_null = pc.equal(indexes, words.index(null))
        indexes = pc.if_else(is_null, pa.scalar(None, pa.int32()), indexes)
    return pa.DictionaryArray.from_arrays(indexes, pa.array(words, pa.string()))
