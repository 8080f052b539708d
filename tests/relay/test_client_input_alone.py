"""A packet that is read alone: the shortest way does what the long one does, whoever sends it and whoever gets it."""

from itertools import product
from typing import Any

import pytest

from bccnd.relay.succession import state_of
from tests.relay.fakes import Bus

CHANNELS = [
    b"a",
    b"a/b",
    b"local/x",
    b"kept/x",
    b"heartbeat/x",
    b"bccnd/ask",
    b"!",
    b"!here/prog/2",
    b"",
    b"a ",
]
PAYLOADS = [b"", b"\n", b"\0x", bytes(1017), bytes(1018), bytes(1100), bytes(2000)]
PACKETS = [
    *[b"MSG %b\0%b" % message for message in product(CHANNELS, PAYLOADS)],
    *[b"MSG a", b"MSG  a\0", b"MSGa\0", b"CMSG a\0", b"\0", b"", b"MSG a b\n", b"SEND a\0", b"a\0"],
]
WAYS = [
    b"",
    b"CMSG echo/off",
    b"CMSG pack\0on",
    b"CMSG format\0full",
    b"CMSG format\0lines",
    b"CMSG queue\0packets=2 policy=block",
    b"CMSG queue\0packets=2 policy=disconnect",
    b"CMSG tap\0on",
]


def what_happens(listens: bytes, publishes: bytes, *, shortest: bool) -> list[Any]:
    """To three clients, while one of them says every packet by itself, twice; what they take, and what it hears of it
    itself, changes.
    """
    bus = Bus(retain=["kept/>"])
    if not shortest:
        bus.relay.from_client.__self__._publish_alone = lambda *_: False
    listener, _ = [bus.connect(b"SUB >", b"SUB local/>", pid=pid, privileged=True) for pid in (1, 2)]
    publisher = bus.connect(pid=3, privileged=True)
    for client, way in ((listener, listens), (publisher, publishes)):
        if way:
            client.say(way)
    seen: list[Any] = []
    for room, subscribes in ((len(PACKETS), b"UNSUB >"), (1, b"SUB >"), (0, b"SUB local/>")):
        publisher.say(subscribes)
        listener.stop_reading(room)
        for packet in PACKETS:
            for _ in range(2):
                publisher.say(packet)
                seen.append((packet, bus.relay.state.outgoing.steps))
        seen.append(listener.take())
    return [*seen, dict(bus.transport.taken), bus.sent, bus.closed, bus.relay.status(), state_of(bus.relay)]


@pytest.mark.parametrize("publishes", WAYS)
@pytest.mark.parametrize("listens", WAYS)
def test_the_shortest_way_does_what_the_long_one_does(listens: bytes, publishes: bytes):
    assert what_happens(listens, publishes, shortest=True) == what_happens(listens, publishes, shortest=False)


@pytest.mark.parametrize("chan", [b"local/x", b"a"])
@pytest.mark.parametrize("size", [0, 100, 1000])
def test_a_small_message_that_is_read_alone_is_no_group(
    chan: bytes, size: int, monkeypatch: pytest.MonkeyPatch
):
    bus = Bus()
    listener, publisher = bus.connect(b"SUB >"), bus.connect()
    packet = b"MSG %b\0%b" % (chan, bytes(size))
    publisher.say(packet)
    monkeypatch.delattr("bccnd.relay.publisher.Publisher.flush")
    publisher.say(packet)
    assert listener.heard() == [packet] * 2
