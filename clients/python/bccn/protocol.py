"""The packets of the local protocol, as a client builds and parses them (``clients/PROTOCOL.md``, "Packets")."""

from _thread import get_ident
from collections.abc import Iterator, Sequence
from struct import Struct

from bccn.errors import InvalidError, ProtocolError

LENGTH = Struct(">I")
PACK = b"PACK "
# Digits that 64 bits can have: of a number that the daemon sends.
NUMBER_DIGITS = 20
# Channels of which the beginning of a message is remembered: programs publish on few.
CHANNELS_LIMIT = 256
WHITE_SPACE = frozenset(" \t\n\v\f\r\0")

_heads: dict[str, bytes] = {}

Control = tuple[str, str]


class Message:
    """One message.

    channel   str; ``!`` and ``!<target>`` for messages to all and to this program
    payload   bytes (``text`` decodes UTF-8)
    lost      how many messages for this client the daemon had to drop directly before this one
    src, seq  who sent it, and its number there      None in the format ``plain``, as are those below
    peer      ``ip:port``, or ``local`` for a sender on this host
    time_ns   when the daemon received it, Unix time in nanoseconds
    verdict   ``ok``; ``retained`` (see there); to a tap also why it was not delivered
    datagram  the whole BCCN1 datagram
    interface the one that a tap's datagram came by, ``-`` for what this host sent; only with ``tap="interface"``
    """

    # Of the class: most messages have nothing else, and to store all that in each takes longer than to read it.
    lost: int = 0
    src: str | None = None
    seq: int | None = None
    peer: str | None = None
    time_ns: int | None = None
    verdict: str | None = None
    datagram: bytes | None = None
    interface: str | None = None

    def __init__(
        self, channel: str, payload: bytes, src: str | None = None, seq: int | None = None,
        peer: str | None = None, time_ns: int | None = None, verdict: str | None = None,
        datagram: bytes | None = None, interface: str | None = None,
    ) -> None:  # fmt: skip
        self.channel, self.payload = channel, payload
        if src is not None or peer is not None:
            self.src, self.seq, self.peer, self.time_ns = src, seq, peer, time_ns
            self.verdict, self.datagram, self.interface = verdict, datagram, interface

    @property
    def text(self) -> str:
        """The payload as UTF-8; UnicodeDecodeError when it is not."""
        return self.payload.decode()

    @property
    def retained(self) -> bool:
        """Whether it is the last value of its channel, from before the subscription. Only ``full`` shows that."""
        return self.verdict == "retained"

    @property
    def mode(self) -> str:
        """How it was addressed: ``plain``, ``all`` or ``directed`` (``bccnd/wire/BCCN1.md``, "Channels")."""
        return "plain" if self.channel[:1] != "!" else "all" if self.channel == "!" else "directed"

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Message) else NotImplemented

    def __repr__(self) -> str:
        known = ((name, getattr(self, name)) for name in ("src", "seq", "peer", "time_ns", "verdict"))
        extra = [f"{name}={value!r}" for name, value in known if value is not None]
        return f"Message({', '.join([repr(self.channel), repr(self.payload), *extra])})"


def parse(packet: bytes) -> Message | Control:
    """What one packet (not a PACK) says. Key and value are those of an answer or a notice."""
    head, nul, rest = packet.partition(b"\0")
    if head[:4] == b"MSG " and nul:
        return Message(head[4:].decode("ascii", "backslashreplace"), rest)
    if head[:5] == b"CMSG ":
        return head[5:].decode("ascii", "backslashreplace"), rest.decode("utf-8", "backslashreplace")
    words = head.decode("ascii", "backslashreplace").split(" ")
    if words[0] != "RECV":
        raise ProtocolError(f"the daemon sent {packet[:32]!r}, which is no packet of this protocol")
    if not nul or len(words) not in (4, 5) or not is_number(words[2]) or not all(words[4:]):
        raise ProtocolError(f"the daemon sent {packet[:64]!r}, which is no RECV packet")
    _, peer, unix_ns, verdict, *by = words
    header, bar, payload = rest[rest.find(b"]") + 1 :].partition(b"|")
    fields = header.decode("ascii", "backslashreplace").split(":")
    if not bar or len(fields) != 3 or not fields[1].isdigit():
        # Only a tap sees these: bytes that were rejected because they are not BCCN1.
        return Message("", b"", None, None, peer, int(unix_ns), verdict, rest, *by)
    src, seq, channel = fields
    return Message(channel, payload, src, int(seq[:NUMBER_DIGITS]), peer, int(unix_ns), verdict, rest, *by)


def is_number(text: str) -> bool:
    """Whether ``int`` takes it for sure: it knows neither every digit of Unicode nor thousands of them."""
    return text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS


def unpack(packet: bytes) -> Iterator[bytes]:
    """The packets inside a PACK."""
    at, end = len(PACK), len(packet)
    while at < end:
        start = at + 4
        if start > end:
            break
        at = start + LENGTH.unpack_from(packet, at)[0]
        if at <= end:
            yield packet[start:at]
    if at != end:
        raise ProtocolError("the daemon sent a PACK whose lengths reach beyond it")


def build_msg(channel: str, payload: bytes | str) -> bytes:
    """A message to publish. The daemon checks the channel; here only what cannot be framed is refused."""
    head = _heads.get(channel) or _head(channel)
    return head + (payload if type(payload) is bytes else encoded(payload))


def _head(channel: str) -> bytes:
    if "\0" in channel or not channel.isascii():
        rule = "not contain NUL" if "\0" in channel else "be ASCII without white space"
        raise InvalidError(f"channel {channel!r}: must {rule}")
    if len(_heads) >= CHANNELS_LIMIT:
        _heads.clear()
    return _heads.setdefault(channel, b"MSG " + channel.encode() + b"\0")


def encoded(payload: bytes | str) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload


def build_sub(pattern: str) -> bytes:
    if not pattern.isascii() or not WHITE_SPACE.isdisjoint(pattern):
        raise InvalidError(f"pattern {pattern!r}: must be ASCII without white space")
    return b"SUB " + pattern.encode()


def build_control(key: str, value: str | None = None) -> bytes:
    if not key or not WHITE_SPACE.isdisjoint(key):
        raise InvalidError(f"control key {key!r}: must not be empty nor contain white space")
    return f"CMSG {key}".encode() if value is None else f"CMSG {key}\0{value}".encode()


class Packer:
    """Gathers packets into PACKs of at most ``limit`` bytes. A packet that does not fit leaves as it is, in its turn.

    Both methods return what is to be sent now: packets, each with the number of messages in it.
    """

    def __init__(self, limit: int) -> None:
        self._packets: list[bytes] = []
        self._limit, self._size = limit, len(PACK)

    def add(self, packet: bytes) -> Sequence[tuple[bytes, int]]:
        """Gather one more packet."""
        size = LENGTH.size + len(packet)
        full = self.flush() if self._size + size > self._limit else ()
        if len(PACK) + size > self._limit:
            return [*full, (packet, 1)]
        self._packets.append(packet)
        self._size += size
        return full

    def flush(self) -> list[tuple[bytes, int]]:
        packets, self._packets, self._size = self._packets, [], len(PACK)
        if len(packets) < 2:
            return [(packet, 1) for packet in packets]
        return [(PACK + b"".join([LENGTH.pack(len(packet)) + packet for packet in packets]), len(packets))]


class Batches(dict[int, Packer]):
    """What each thread with an open batch has gathered, by its ident."""

    def begin(self, granted: str) -> bool:
        """Gather from now on, if the daemon's answer to ``pack`` allows it; False: it does not, or one is open."""
        state, _, limit = granted.partition(" ")
        is_new = get_ident() not in self and state == "on" and is_number(limit)
        if is_new:
            self[get_ident()] = Packer(int(limit))
        return is_new

    def gather(self, packet: bytes) -> Sequence[tuple[bytes, int]]:
        """Take a packet to be published; returns what is to be sent now."""
        packer = self.get(get_ident())
        return [(packet, 1)] if packer is None else packer.add(packet)

    def flush(self, *, ends: bool = False) -> Sequence[tuple[bytes, int]]:
        """What is to be sent before a request, or as the batch ends."""
        packer = self.pop(get_ident(), None) if ends else self.get(get_ident())
        return packer.flush() if packer is not None else ()
