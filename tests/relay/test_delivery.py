"""How messages that were read together reach the clients."""

import mmap
from collections import defaultdict
from collections.abc import Sequence

from bccnd.relay.core import Relay
from bccnd.relay.identity import Peer
from bccnd.relay.session import Session
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Integrity

FIRST = 4096  # where the test puts what a client sends


class Sockets:
    """A transport that takes everything and keeps it, port -> packets."""

    def __init__(self, memory: sbus.Memory) -> None:
        self._memory = memory
        self.packets: defaultdict[int, list[bytes]] = defaultdict(list)

    def send(self, port: int, packet: bytes) -> int:
        self.packets[port].append(packet)
        return 1

    def send_each(self, port: int, packets: Sequence[bytes]) -> int:
        self.packets[port] += packets
        return len(packets)

    def send_run(self, ports: Sequence[int], starts: list[int], ends: list[int]) -> dict[int, int]:
        for port in ports:
            self.packets[port] += [self._memory[start:end] for start, end in zip(starts, ends, strict=True)]
        return {}


class Bus:
    """A relay with its memory and its sockets; ``client`` connects one and lets it say something first."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 1 << 16)
        self.sockets = Sockets(self.memory)
        self.relay = Relay(self.memory, self.sockets, Integrity(), host=b"host")

    def client(self, port: int, *packets: bytes) -> Session:
        peer = Peer(pid=port, uid=0, gid=0, program=b"test")
        session = self.relay.connect(port, peer, now=0, unix_us=1)
        assert session is not None
        for packet in packets:
            self.read(session, packet)
        self.sockets.packets.clear()
        return session

    def read(self, session: Session, packet: bytes) -> None:
        self.memory[FIRST : FIRST + len(packet)] = packet
        self.relay.from_client(session, [FIRST], [FIRST + len(packet)], 0, 0)


def test_a_pack_reaches_a_packed_client_as_it_came():
    bus = Bus()
    bus.client(1, b"SUB ", b"CMSG pack\0on")
    publisher = bus.client(2, b"CMSG pack\0on")
    packet = sbus.pack([b"MSG a\0one", b"MSG b\0two\n"])
    bus.read(publisher, packet)
    assert bus.sockets.packets[1] == [packet]


def test_a_pack_stays_sound_when_a_line_end_is_taken_off_its_last_message():
    bus = Bus()
    bus.client(1, b"SUB ", b"CMSG pack\0on")
    publisher = bus.client(2, b"CMSG format\0lines", b"CMSG pack\0on")
    bus.read(publisher, sbus.pack([b"MSG a one", b"MSG a two\n"]))
    assert bus.sockets.packets[1] == [sbus.pack([b"MSG a\0one", b"MSG a\0two"])]
