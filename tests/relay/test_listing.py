"""The rows of clients and of sources, and the pages that they come in."""

import json
from typing import Any

import pytest

from bccnd.relay import listing
from bccnd.relay.listing import PAGE_BYTES, PAGE_ROWS
from tests.relay.counting import steps
from tests.relay.fakes import Bus, FakeClient, datagram, value_of


@pytest.fixture
def bus() -> Bus:
    return Bus()


def test_a_client_row(bus: Bus):
    reader = bus.connect(b"SUB a", b"SUB b", b"SUB b", b"CMSG format\0full", b"CMSG pack\0on", pid=7)
    reader.say(b"CMSG queue\0packets=2 policy=drop-newest")
    reader.stop_reading(1)
    writer = bus.connect(pid=8, program=b"\xc3\xa9")
    for _ in range(4):
        writer.say(b"MSG a\0x")
    bus.tick(2.5)
    rows = value_of(writer.ask(b"CMSG clients"), b"clients")
    queued_bytes = rows["clients"][0].pop("queued_bytes")
    assert queued_bytes == bus.relay.state.ledger.bytes > 0
    assert rows["next"] is None
    assert rows["clients"][0] == {
        "name": "here/prog/7",
        "program": "prog",
        "pid": 7,
        "uid": 1000,
        "gid": 100,
        "format": "full",
        "pack": True,
        "tap": False,
        "subscriptions": 3,
        "watches": 0,
        "published": 0,
        "delivered": 3,
        "dropped": 1,
        "queued": 2,
        "policy": "drop-newest",
        "slow": 2.5,
        "holds": 0,
        "held": [],
        "seconds": 2.5,
    }
    assert rows["clients"][1]["name"] == "here/__/8"
    assert rows["clients"][1]["published"] == 4


def test_a_row_says_whom_a_client_holds_up(bus: Bus):
    reader = bus.connect(b"SUB a", b"CMSG queue\0packets=1 policy=block", pid=7)
    reader.stop_reading()
    for pid in range(10, 19):
        bus.connect(pid=pid).say(b"MSG a\0x")
    row = value_of(bus.connect().ask(b"CMSG clients"), b"clients")["clients"][0]
    assert (row["holds"], row["held"]) == (9, [f"here/prog/{pid}" for pid in range(10, 15)])


def test_a_source_row(bus: Bus):
    bus.hear(*[datagram(b"x", number, b"a") for number in (5000, 5001, 5005, 5003, 5001, 1, 2)])
    bus.hear(datagram(b"x", 3, b"a"), peer=b"10.0.0.9:5400")
    bus.tick(1.5)
    assert value_of(bus.connect().ask(b"CMSG sources"), b"sources") == {
        "sources": [
            {
                "src": "x",
                "peer": "10.0.0.2:5400",
                "last": 3,
                "received": 6,
                "lost": 2,
                "repaired": 0,
                "gone": 0,
                "given_up": 0,
                "held": 0,
                "duplicates": 1,
                "late": 1,
                "restarts": 1,
                "replayed": 0,
                "silent": 1.5,
                "state": None,
                "version": None,
                "repair": None,
                "heartbeat": None,
            }
        ],
        "next": None,
    }


def test_a_source_row_says_what_was_repaired_and_what_waits():
    bus = Bus(repair_on=True)
    bus.connect(b"SUB a")
    daemon, program = b"b/bccnd/1", b"b/prog/2"
    bus.hear(datagram(daemon, 1, b"heartbeat/" + daemon, b"bccnd/0.1.0 repair=4096"))
    bus.hear(*[datagram(program, number, b"a") for number in (1, 4)])
    bus.tick(0.02)  # it asks
    bus.hear(datagram(program, 2, b"a"))
    rows = {row["src"]: row for row in value_of(bus.connect().ask(b"CMSG sources"), b"sources")["sources"]}
    assert (rows["b/bccnd/1"]["version"], rows["b/bccnd/1"]["repair"]) == ("0.1.0", 4096)
    told = ("lost", "repaired", "gone", "given_up", "held", "repair")
    assert [rows["b/prog/2"][key] for key in told] == [1, 1, 0, 0, 1, None]
    bus.hear(datagram(b"b/bccnd/1/repair", 1, b"!bccnd/repair", b"gone\nb/prog/2 3 0"))
    rows = {row["src"]: row for row in value_of(bus.connect().ask(b"CMSG sources"), b"sources")["sources"]}
    assert [rows["b/prog/2"][key] for key in told] == [1, 1, 1, 0, 0, None]


def pages(client: FakeClient, key: bytes) -> list[list[dict[str, Any]]]:
    """All pages of a list, each within the bound of one packet."""
    found, cursor = [], ""
    while cursor is not None:
        (answer,) = client.ask(b"CMSG %b\0%b" % (key, cursor.encode()))
        assert len(answer) <= PAGE_BYTES + 1024
        page = json.loads(answer.removeprefix(b"CMSG %b\0" % key))
        found.append(page[key.decode()])
        cursor = page["next"]
    return found


@pytest.mark.parametrize("count", [1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 350])
def test_pages_of_clients(bus: Bus, count: int):
    clients = [bus.connect(b"CMSG ping") for _ in range(count)]
    found = pages(clients[0], b"clients")
    assert [row["name"].encode() for page in found for row in page] == [client.name for client in clients]
    assert len(found) == (count + PAGE_ROWS - 1) // PAGE_ROWS


@pytest.mark.parametrize("count", [0, 1, PAGE_ROWS, PAGE_ROWS + 1, 350])
def test_pages_of_sources(bus: Bus, count: int):
    sources = [b"host%d/prog/%d" % (number % 7, number) for number in range(count)]
    bus.hear(*[datagram(src, 1, b"a") for src in sources])
    found = pages(bus.connect(), b"sources")
    assert [row["src"].encode() for page in found for row in page] == sorted(sources)


@pytest.mark.parametrize("filling", [b"x", b"\x01", b'"'])
def test_a_page_stays_small_with_the_longest_names(bus: Bus, filling: bytes):
    """Strangers choose their names; a control character has six bytes in JSON."""
    sources = [b"%03d" % number + filling * 125 for number in range(150)]
    bus.hear(*[datagram(src, 2**64 - 1, b"a") for src in sources], peer=b"255.255.255.255:65535")
    found = pages(bus.connect(), b"sources")
    assert [row["src"].encode() for page in found for row in page] == sources


def test_pages_while_clients_leave(bus: Bus):
    clients = [bus.connect() for _ in range(250)]
    first = value_of(clients[0].ask(b"CMSG clients"), b"clients")
    for client in clients[50:150]:
        client.leave()
    rest = value_of(clients[0].ask(b"CMSG clients\0" + first["next"].encode()), b"clients")
    assert [row["name"].encode() for row in rest["clients"]] == [client.name for client in clients[150:]]


@pytest.mark.parametrize("cursor", [b"x", b"-1", b"9" * 30, b"\xff"])
def test_a_cursor_that_was_never_given_begins_anew(bus: Bus, cursor: bytes):
    client = bus.connect()
    assert len(value_of(client.ask(b"CMSG clients\0" + cursor), b"clients")["clients"]) == 1


def test_a_page_does_not_look_at_the_clients_before_it(bus: Bus):
    clients = [bus.connect() for _ in range(500)]
    slow, last = bus.relay._delivery.slow, b"%d" % clients[-1].session.number
    assert steps(lambda: listing.clients(bus.relay.state, slow, last, bus.now)) < 50
