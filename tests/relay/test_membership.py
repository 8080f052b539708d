"""Who is connected, under which name and with which numbers."""

import gc
import weakref

import pytest

from bccnd.relay.dedup import JUMP
from bccnd.relay.identity import Peer, Process
from bccnd.relay.membership import NAMES_AT_ONCE
from bccnd.relay.rights import AccessList, Grant, unrestricted
from bccnd.relay.succession import restore, state_of
from tests.relay.fakes import CLOCK, Bus, FakeClient, datagram, value_of


def test_another_host_may_take_a_name_that_was_given_up():
    bus = Bus()
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"MSG demo/a\0here", pid=7)
    publisher.leave()
    listener.heard()
    bus.hear(datagram(b"here/prog/7", 1, b"demo/a", b"there"))
    assert listener.heard() == [b"MSG demo/a\0there"]


def test_the_names_of_a_process_are_limited():
    """Also over connections; another process has its own."""
    bus = Bus()
    client = bus.connect(b"CMSG heartbeat\x0060", pid=7)
    names = [b"CMSG name\0here/prog/7/%d" % number for number in range(NAMES_AT_ONCE + 5)]
    said = client.ask(*names)
    assert said[:NAMES_AT_ONCE] == names[:NAMES_AT_ONCE]
    refusal = b"CMSG error\0limit CMSG name: at most 64 names at once, and then one a second"
    assert said[NAMES_AT_ONCE:] == [refusal] * 5
    assert client.name == b"here/prog/7/%d" % (NAMES_AT_ONCE - 1)
    assert client.ask(b"CMSG name\0" + client.name) == [b"CMSG name\0" + client.name], "its own costs nothing"
    client.leave()
    again = bus.connect(pid=7)
    assert again.ask(names[0]) == [refusal]
    bus.tick(1.0)
    assert again.ask(names[0]) == names[:1]
    assert bus.connect(pid=8).ask(b"CMSG name\0here/prog/8/x") == [b"CMSG name\0here/prog/8/x"]


def test_directed_messages_follow_a_name_at_once():
    bus = Bus()
    client, sender = bus.connect(b"CMSG listen", pid=7), bus.connect()
    both = b"MSG !here/prog/7\0old", b"MSG !here/prog/7/x\0new"
    sender.say(*both)
    assert client.heard() == [both[0]]
    client.ask(b"CMSG name\0here/prog/7/x")
    sender.say(*both)
    assert client.heard() == [both[1]]
    client.leave()
    again = bus.connect(b"CMSG listen", pid=7)
    sender.say(*both)
    assert again.heard() == [both[0]]


def test_clients_are_limited():
    bus = Bus(clients=2)
    first = bus.connect()
    bus.connect()
    assert bus.try_connect() is None
    first.leave()
    assert bus.try_connect() is not None


def test_client_that_returns_at_once_leaves_no_gap():
    """Others would take the clock's microseconds in between for losses."""
    bus = Bus()
    for _ in range(3):
        client = bus.connect(*[b"MSG a\0"] * 5, pid=7)
        client.leave()
        bus.unix_us += 300_000
    assert bus.numbers_sent == list(range(CLOCK, CLOCK + 15))


def test_a_client_that_returns_later_begins_at_the_clock():
    bus = Bus()
    bus.connect(b"MSG a\0", pid=7).leave()
    bus.unix_us += 2 * JUMP
    bus.connect(b"MSG a\0", pid=7)
    assert bus.numbers_sent == [CLOCK, CLOCK + 2 * JUMP]


def test_client_taking_over_a_remote_name_is_heard_at_once():
    """A standby that connected earlier, or whose clock is behind, is neither stale nor replayed to others."""
    bus = Bus()
    standby = bus.connect(privileged=True)
    bus.hear(datagram(b"service/leader", CLOCK + 10**9, b"a"))
    standby.say(b"CMSG name\0service/leader", b"MSG a\0")
    assert bus.numbers_sent == [CLOCK + 10**9 + JUMP + 1]


def test_a_forged_number_does_not_use_up_those_of_a_client():
    bus = Bus()
    bus.hear(datagram(b"here/prog/7", 2**64 - 1, b"a"))
    bus.connect(b"MSG a\0", pid=7)
    assert bus.numbers_sent == [CLOCK]


def test_a_client_that_leaves_needs_no_collection():
    bus = Bus()
    publisher = bus.connect()
    gc.disable()
    try:
        client = bus.connect(b"SUB a", b"CMSG format\0full")
        client.stop_reading()
        publisher.say(*[b"MSG a\0%d" % number for number in range(5)])
        session = weakref.ref(client.session)
        client.leave()
        del bus.transport.senders[client.port], client
        publisher.say(b"MSG a\0later", b"MSG b\0other")
        assert session() is None
    finally:
        gc.enable()


# --- speaking for others


def door(*grants: Grant, processes: dict[int, Process] | None = None) -> tuple[Bus, FakeClient]:
    """A bus, and the connection of one who may speak for others."""
    bus = Bus()
    bus.reconfigure(access=AccessList(grants or unrestricted([0])))
    bus.relay.state.names._processes = (processes or {}).get
    return bus, bus.connect(pid=7, program=b"door", privileged=True)


def test_a_connection_becomes_whom_it_speaks_for():
    bus, client = door()
    watching = bus.connect(b"SUB local/presence/>")
    assert client.ask(b"CMSG peer\x001000 100,4,27 4711 node") == [b"CMSG peer\0here/node/4711"]
    assert client.session.peer == Peer(4711, 1000, 100, b"node", frozenset({4, 27}))
    assert [packet.partition(b"\0")[0] for packet in watching.heard()] == [
        b"MSG local/presence/left/here/door/7", b"MSG local/presence/appeared/here/node/4711",
    ]  # fmt: skip
    row = next(
        row
        for row in value_of(client.ask(b"CMSG clients"), b"clients")["clients"]
        if row["program"] == "node"
    )
    assert (row["uid"], row["gid"], row["pid"], row["program"]) == (1000, 100, 4711, "node")
    assert client.ask(b"CMSG !/cred/whoami") == [b"CMSG !/cred/whoami\0!/cred/100/1000/4711"]


def test_it_keeps_no_right_of_the_door():
    bus, client = door(Grant(uid=0, speak_for=True, tap=True), Grant(uid=1000, publish=(b"a",)))
    client.ask(b"CMSG peer\x001000 100 4711 node")
    for request in (b"CMSG peer\x000 0 1 sh", b"CMSG tap\0on"):
        (answer,) = client.ask(request)
        assert answer.startswith(b"CMSG error\0refused ")
    assert client.ask(b"MSG a\0x", b"CMSG ping") == [b"CMSG pong\0"]
    assert bus.relay.state.refusals.counts == {"speak_for": 1, "tap": 1}


def test_without_the_right_nobody_speaks_for_others():
    bus = Bus()
    client = bus.connect(pid=8)
    refusal = b"CMSG error\0refused CMSG peer: no right to speak for others"
    assert client.ask(b"CMSG peer\x000 0 1 sh") == [refusal]
    assert client.name == b"here/prog/8"


@pytest.mark.parametrize(
    "done",
    [
        b"SUB a",
        b"CMSG listen",
        b"MSG a\0x",
        b"CMSG tap\0on",
        b"CMSG heartbeat\x005",
        b"CMSG queue\0packets=3",
    ],
)
def test_who_has_acted_stays_who_it_is(done: bytes):
    _, client = door()
    client.ask(done)
    text = b"it comes before anything else, and the client waits for the answer"
    assert client.ask(b"CMSG peer\x001000 100 4711 node")[-1:] == [
        b"CMSG error\0bad-value CMSG peer: " + text
    ]
    assert client.name == b"here/door/7"


@pytest.mark.parametrize(
    "value",
    [
        b"", b"1000", b"1000 100 4711", b"x 100 4711 node", b"1000 x 4711 node", b"1000 100,,4 4711 node",
        b"1000 100, 4711 node", b"-1 100 4711 node", b"4294967295 100 4711 node", b"1000 100 99999999999 node",
        b"1000 100 4711 " + b"n" * 33, b"1000 100 4711 a\0b", b"1000 " + b",".join([b"1"] * 1026) + b" 4711 node",
    ],
)  # fmt: skip
def test_whom_nobody_can_be_is_refused(value: bytes):
    _, client = door()
    (answer,) = client.ask(b"CMSG peer\0" + value)
    assert answer.startswith(b"CMSG error\0bad-value CMSG peer: ")
    assert client.name == b"here/door/7"


def test_a_pid_counts_as_resident_if_the_kernel_agrees():
    """Else somebody of a container could pass for root of the host."""
    ours = Process(0, 1, 50, 50, frozenset({50}), True)
    contained = Process(0, 1, 60, 60, frozenset({60, 5}), False)
    another = Process(1000, 1, 70, 70, frozenset({70}), True)
    bus, first = door(processes={50: ours, 60: contained, 70: another})
    clients = {50: first} | {pid: bus.connect(program=b"door", privileged=True) for pid in (60, 70, 80, 0)}
    for pid, client in clients.items():
        client.ask(b"CMSG peer\x000 0 %d sh" % pid)
    assert [pid for pid, client in clients.items() if client.session.peer.resident] == [50]
    assert [pid for pid, client in clients.items() if client.session.rights.tap] == [50]


def test_one_without_a_pid_has_a_name_of_its_own():
    bus, first = door()
    second = bus.connect(program=b"door", privileged=True)
    names = [client.ask(b"CMSG peer\x001000 100 0 far") for client in (first, second)]
    assert names == [[b"CMSG peer\0here/far/n1"], [b"CMSG peer\0here/far/n2"]]


def test_what_waits_for_it_is_on_its_users_account():
    bus, client = door()
    client.ask(b"CMSG peer\x001000 100 4711 node", b"SUB a")
    assert client.session.outbox.account is bus.relay.state.ledger.account_of(1000)


def test_numbers_go_forward_under_the_new_name():
    bus, client = door()
    before = client.session.seq
    client.ask(b"CMSG peer\x001000 100 4711 node", b"MSG a\0x")
    assert bus.numbers_sent[-1] >= before


def test_a_successor_knows_whom_it_speaks_for():
    bus, client = door()
    client.ask(b"CMSG peer\x001000 100,4 4711 node", b"SUB a")
    state = state_of(bus.relay)
    relay = bus.new_relay()
    restore(relay, state, {number: number for number in bus.relay.sessions})
    assert relay.sessions[client.session.number].peer == client.session.peer
