"""How much one call does of each thing that a client may ask for, before it leaves the rest for its next turn."""

import pytest

from bccnd.relay.bridge import BRIDGED_STEPS, QUESTION_STEPS, RUN_STEPS, TAP_STEPS
from bccnd.relay.client_input import PATTERN_BYTES_A_STEP, PATTERN_STEPS, REQUEST_STEPS, STEPS
from bccnd.relay.pattern import NODE_STEPS
from bccnd.relay.router import (
    DELIVERY_STEPS,
    GATHERED_A_STEP,
    KEPT_STEPS,
    LOOKUP_STEPS,
    PACKED_A_STEP,
    SORT_STEPS,
)
from bccnd.wire import sbus
from tests.relay.fakes import Bus, FakeClient, datagram


def done_at_once(client: FakeClient, packets: list[bytes]) -> int:
    """How many of the packets, which come in one PACK, one call does."""
    bus = client.bus
    spans = bus._lay([sbus.pack(packets)], bus._client_slots)
    left = bus.relay.from_client(client.session, bus.moment, spans)
    bus.settle()
    return len(packets) - (len(left[0][0]) - left[1] if left else 0)


@pytest.mark.parametrize(
    ("packets", "most"),
    [
        ([b"CMSG ping"], STEPS // REQUEST_STEPS),
        ([b"CMSG clients"], 60),
        ([b"CMSG sources"], 60),
        ([b"SUB state/>", b"UNSUB state/>"], 60),
        ([b"nonsense"], STEPS // REQUEST_STEPS),
    ],
)
def test_one_call_does_so_much_and_leaves_the_rest(packets: list[bytes], most: int):
    bus = Bus(retain=["state/>"])
    for _ in range(120):
        bus.connect(b"CMSG listen")
    bus.hear(*[datagram(b"there/prog/%d" % number, 1, b"other") for number in range(200)])
    bus.hear(*[datagram(b"there/prog/1", number, b"state/%d" % number, b"x") for number in range(2, 300)])
    client = bus.connect(b"CMSG pack\0on")
    done = done_at_once(client, (packets * 3000)[:3000])
    assert 0 < done <= most


@pytest.mark.parametrize(
    ("packet", "most"),
    [
        (b"SUB z%d*", STEPS // (REQUEST_STEPS + PATTERN_STEPS)),
        (b"UNSUB z%d*", STEPS // (REQUEST_STEPS + PATTERN_STEPS)),
        (
            b"SUB " + b"*/" * 200 + b"%d",
            STEPS // (REQUEST_STEPS + PATTERN_STEPS + 400 // PATTERN_BYTES_A_STEP),
        ),
        (b"MSG local/%d\0x", STEPS // LOOKUP_STEPS),
        (b"MSG state/a\0%d", STEPS // KEPT_STEPS),
        (b"MSG !here/bccnd\0t\nlisteners q/%d", STEPS // (QUESTION_STEPS + LOOKUP_STEPS)),
        (b"MSG bccnd/ask\0t\nlisteners q/%d", STEPS // (QUESTION_STEPS + LOOKUP_STEPS)),
        (b"CMSG listeners\0q/%d", STEPS // (REQUEST_STEPS + LOOKUP_STEPS)),
    ],
)
def test_one_call_does_so_much_of_what_is_dear(packet: bytes, most: int):
    bus = Bus(retain=["state/>"])
    client = bus.connect(b"CMSG pack\0on")
    done = done_at_once(client, [packet % number for number in range(1500)])
    assert most // 4 <= done <= most + 1


def test_one_call_bridges_so_much():
    bus = Bus()
    client = bus.connect(b"CMSG pack\0on", privileged=True)
    brought = [datagram(b"far/%d" % number, 1, b"heartbeat/far/%d" % number) for number in range(1000)]
    done = done_at_once(client, brought)
    most = STEPS // (RUN_STEPS + BRIDGED_STEPS + QUESTION_STEPS + LOOKUP_STEPS)
    assert most // 2 <= done <= most + 1


@pytest.mark.parametrize(
    ("packets", "each"),
    [
        ([b"CMSG pack\0on", b"CMSG listeners\0a"], 300 * SORT_STEPS),
        ([b"CMSG format\0plain", b"CMSG listeners\0b"], 300 // GATHERED_A_STEP),
        ([b"SUB a*", b"CMSG listeners\0a", b"UNSUB a*"], 300 // GATHERED_A_STEP),
    ],
)
def test_one_call_gathers_so_many_subscribers(packets: list[bytes], each: int):
    """Those of one channel, over and over, for somebody who sends them nothing."""
    bus = Bus(subscriptions=1024)
    for _ in range(300):
        bus.connect(b"SUB a", b"SUB b")
    client = bus.connect(b"CMSG pack\0on", b"SUB a")
    done = done_at_once(client, (packets * 3000)[:3000])
    assert 0 < done // len(packets) <= STEPS // (each + len(packets) * REQUEST_STEPS) + 1


def test_a_search_of_many_nodes_ends_the_call():
    bus = Bus(limits_channels_cached=16384)
    for number in range(7):
        bus.connect(b"SUB a%b*/" % (b"a" * number) + b"*/" * 250 + b"x")
    client = bus.connect(b"CMSG pack\0on")
    packets = [b"MSG local/%d\0" % number for number in range(100)]
    assert done_at_once(client, packets) == len(packets)
    deep = [b"MSG aaaaaaaa%d" % number + b"/a" * 260 + b"\0" for number in range(100)]
    assert 0 < done_at_once(client, deep) <= STEPS // (7 * 250 * NODE_STEPS) + 1


def test_one_call_delivers_so_much_and_leaves_the_rest():
    bus = Bus(subscriptions=1024)
    for _ in range(100):
        bus.connect(b"SUB local/a")
    client = bus.connect(b"CMSG pack\0on")
    assert 0 < done_at_once(client, [b"MSG local/a\0"] * 3000) <= STEPS // 101 + 1


def test_one_call_shows_taps_so_much_and_leaves_the_rest():
    bus = Bus()
    for _ in range(20):
        bus.connect(b"CMSG tap\0on", privileged=True)
    client = bus.connect(b"CMSG pack\0on")
    assert 0 < done_at_once(client, [b"MSG a\0"] * 3000) <= STEPS // (20 * TAP_STEPS) + 1


@pytest.mark.parametrize("kind", ["bridge", "question"])
def test_what_is_said_for_a_client_counts_by_who_hears_it(kind: str):
    bus = Bus()
    for _ in range(100):
        bus.connect(b"SUB bccnd/ask", b"SUB a")
    client = bus.connect(b"CMSG pack\0on", privileged=True)
    packets = [
        datagram(b"there/prog/1", number + 1, b"a")
        if kind == "bridge"
        else b"CMSG listeners\0a/%d token" % number
        for number in range(150)
    ]
    assert 0 < done_at_once(client, packets) <= STEPS // 101 + 1


@pytest.mark.parametrize("packet", [b"\n" * 65000, b"\r\n" * 32000], ids=["LF", "CRLF"])
def test_lines_are_looked_for_in_so_many_bytes_a_call(packet: bytes):
    bus = Bus()
    client = bus.connect(b"CMSG format\0lines")
    spans = bus._lay([packet] * 16, bus._client_slots)
    left, calls = bus.relay.from_client(client.session, bus.moment, spans), 1
    while left:
        left, calls = bus.relay.from_client(client.session, bus.moment, *left), calls + 1
    assert calls >= 16 // 3


@pytest.mark.parametrize(
    ("packed", "each"), [(False, 1 + 64 * DELIVERY_STEPS), (True, 1 + 64 // PACKED_A_STEP)]
)
def test_deliveries_in_one_piece_are_cheaper(packed: bool, each: int):
    bus = Bus()
    for _ in range(64):
        bus.connect(b"CMSG pack\0on" if packed else b"CMSG listen", b"SUB demo")
    client = bus.connect(b"CMSG pack\0on")
    done = done_at_once(client, [b"MSG demo\0x"] * 1500)
    most = (STEPS - LOOKUP_STEPS) // each
    assert most * 3 // 4 <= done <= most


def test_each_piece_costs_a_step_for_whom_it_goes_to():
    """Messages on two channels by turns make many pieces of two."""
    bus = Bus()
    for _ in range(64):
        bus.connect(b"CMSG pack\0on", b"SUB one")
        bus.connect(b"CMSG pack\0on", b"SUB two")
    client = bus.connect(b"CMSG pack\0on")
    done = done_at_once(client, [b"MSG one\0x", b"MSG one\0y", b"MSG two\0x", b"MSG two\0y"] * 400)
    assert done <= 2 * STEPS // 64
