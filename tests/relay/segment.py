"""Hosts of one segment that hear each other: real relays, in virtual time."""

from collections.abc import Callable, Sequence

from bccnd.wire import sbus
from bccnd.wire.bccn1 import Integrity, Message
from bccnd.wire.repair import CHANNEL, parse
from tests.relay.fakes import Bus, FakeClient

# Whether a host, by its name, loses a datagram, which has come to it so many times.
Loses = Callable[[bytes, bytes, int], bool]


def never(_host: bytes, _datagram: bytes, _times: int) -> bool:
    return False


class Segment:
    """``buses`` by host. ``said``: everything that was sent, in order."""

    def __init__(
        self, *hosts: bytes, integrity: Integrity | None = None, loses: Loses = never, **values: object
    ) -> None:
        self.integrity = integrity or Integrity()
        self.loses = loses
        self.said: list[bytes] = []
        self.buses: dict[bytes, Bus] = {}
        self._heard: dict[tuple[bytes, bytes], int] = {}
        settings = {"repair_on": True, "heartbeat_seconds": 10, **values}
        for number, host in enumerate(hosts, 1):
            address = b"10.0.0.%d" % number
            bus = self.buses[host] = Bus(self.integrity, frozenset([address]), host=host, **settings)
            bus.relay.state.addresses = frozenset([address])
            bus.begin()
        self.settle()

    def __getitem__(self, host: bytes) -> Bus:
        return self.buses[host]

    def settle(self) -> None:
        """Deliver what was sent, and what follows from that, in no time."""
        while any(bus.sent for bus in self.buses.values()):
            for number, (host, bus) in enumerate(self.buses.items(), 1):
                sent, bus.sent = bus.sent, []
                self.said += sent
                for other, listener in self.buses.items():
                    if other != host and (heard := [each for each in sent if not self._is_lost(other, each)]):
                        listener.hear(*heard, peer=b"10.0.0.%d:5400" % number)

    def wait(self, seconds: float, step: float = 0.001) -> None:
        """Let time pass, and have done what is due."""
        for _ in range(round(seconds / step)):
            for bus in self.buses.values():
                bus.tick(step)
            self.settle()

    def repair(self, kind: type) -> list[object]:
        """What daemons said of this kind about lost datagrams since the last look."""
        said, self.said = self.said, []
        payloads = [message.payload for message in map(message_of, said) if message.chan == CHANNEL]
        return [each for each in map(parse, payloads) if isinstance(each, kind)]

    def _is_lost(self, host: bytes, datagram: bytes) -> bool:
        times = self._heard.get((host, datagram), 0)
        self._heard[host, datagram] = times + 1
        return self.loses(host, datagram, times)


def message_of(datagram: bytes) -> Message:
    return Message.parse(datagram, datagram.index(b"]") + 1)


def bridge_of(bus: Bus) -> FakeClient:
    """A client that may bridge."""
    return bus.connect(b"CMSG pack\0on", b"CMSG echo/off", privileged=True)


def bring(bridge: FakeClient, datagrams: Sequence[bytes]) -> list[bytes]:
    """Have a bridge bring these in one PACK; what the daemon answers."""
    return [each for each in bridge.ask(sbus.pack(datagrams)) if each.startswith(b"CMSG ")]
