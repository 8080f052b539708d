"""Every control key: its answer, its errors, and what it changes."""

from dataclasses import replace

import pytest

from bccnd.relay.answers import LISTENERS_PER_SECOND
from bccnd.relay.control import Control
from bccnd.relay.options import Policy
from bccnd.relay.rights import AccessList, Grant
from bccnd.wire import sbus
from tests.relay.fakes import Bus, datagram

ERROR = b"CMSG error\0"


def error_of(answers: list[bytes]) -> tuple[str, str]:
    """``(code, text)`` of the one answer there is."""
    (answer,) = answers
    assert answer.startswith(ERROR)
    code, _, text = answer.removeprefix(ERROR).decode().partition(" ")
    return code, text


@pytest.fixture
def bus() -> Bus:
    return Bus()


# What every key has in common


def test_every_key_is_answered_once(bus: Bus):
    values = {
        b"name": b"here/prog/7",
        b"format": b"plain",
        b"pack": b"off",
        b"separator": b"/",
        b"tap": b"off",
        b"heartbeat": b"off",
        b"listeners": b"a",
    }
    client = bus.connect(pid=7)
    for key in Control.KEYS.keys() - {b"order/stack", b"order/random", b"peer"}:
        (answer,) = client.ask(b"CMSG %b\0%b" % (key, values.get(key, b"")))
        assert answer.startswith(b"CMSG %b\0" % (b"pong" if key == b"ping" else key))
    assert bus.relay.state.counters.errors == 0


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (b"CMSG nothing", "unknown-key", "CMSG nothing: the keys are ping, whoami, "),
        (b"CMSG Ping", "unknown-key", "CMSG Ping: "),
        (b"CMSG name\0a b", "bad-name", "CMSG name: "),
        (b"CMSG name", "bad-name", "CMSG name: "),
        (b"CMSG name\0other", "refused", "CMSG name: "),
        (b"CMSG name\0here/prog/8", "name-taken", "CMSG name: here/prog/8 is another client"),
        (b"CMSG format\0xml", "bad-value", "CMSG format: one of plain, full, lines"),
        (b"CMSG format", "bad-value", "CMSG format: "),
        (b"CMSG pack\0yes", "bad-value", "CMSG pack: one of on, off"),
        (b"CMSG separator\0:", "bad-value", "CMSG separator: one of /, ."),
        (b"CMSG queue\0packets=0", "bad-value", "CMSG queue: packets is a number from 1 to 100000"),
        (b"CMSG queue\0packets=100001", "bad-value", "CMSG queue: packets is"),
        (b"CMSG queue\0packets=" + b"9" * 5000, "bad-value", "CMSG queue: packets is"),
        (b"CMSG queue\0packets=\xc2\xb2", "bad-value", "CMSG queue: packets is"),
        (b"CMSG queue\0packets=-1", "bad-value", "CMSG queue: packets is"),
        (b"CMSG queue\0packets", "bad-value", "CMSG queue: packets is"),
        (b"CMSG queue\0bytes=99999999999", "bad-value", "CMSG queue: bytes is a number from 1 to 67108864"),
        (b"CMSG queue\0policy=none", "bad-value", "CMSG queue: one of drop-oldest, drop-newest, block, "),
        (b"CMSG queue\0size=5", "bad-value", "CMSG queue: size: known are packets=N, bytes=N and policy=P"),
        (b"CMSG queue\0\xff=5", "bad-value", "CMSG queue: "),
        (b"CMSG tap\0on", "refused", "CMSG tap: no right to tap"),
        (b"CMSG tap\0maybe", "bad-value", "CMSG tap: one of on, off"),
        (b"CMSG listeners", "bad-channel", "CMSG listeners: a channel, or "),
        (b"CMSG listeners\0a:b", "bad-channel", "CMSG listeners: a channel, or "),
        (b"CMSG listeners\0!?a", "bad-channel", "CMSG listeners: a channel, or "),
        (b"CMSG listeners\0!/cred/1/2/3/x token", "bad-channel", "CMSG listeners: a channel, or "),
        (b"CMSG listeners\0a ", "bad-value", "CMSG listeners: the token is one line of 1 to 128 bytes"),
        (
            b"CMSG listeners\0a " + b"t" * 129,
            "bad-value",
            "CMSG listeners: the token is one line of 1 to 128",
        ),
        (b"CMSG listeners\0a b\nc", "bad-value", "CMSG listeners: the token is one line of 1 to 128 bytes"),
    ],
)
def test_refusals_name_what_they_answer_and_change_nothing(bus: Bus, request_: bytes, code: str, text: str):
    client = bus.connect(pid=7)
    bus.connect(pid=8)
    before = client.ask(b"CMSG clients")
    refused = error_of(client.ask(request_))
    assert refused[0] == code
    assert refused[1].startswith(text)
    assert client.ask(b"CMSG clients") == before
    assert client.connected
    assert bus.relay.state.counters.errors == 1


@pytest.mark.parametrize(
    "request_", [b"CMSG ", b"CMSG \0x", b"CMSG a\tb", b"CMSG \xc3\xa9", b"CMSG " + b"k" * 65]
)
def test_malformed_keys_are_refused(bus: Bus, request_: bytes):
    client = bus.connect()
    assert error_of(client.ask(request_))[0] == "bad-packet"
    assert client.connected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_person_may_type_a_space_and_a_line_end(bus: Bus, end: bytes):
    assert bus.connect().ask(b"CMSG ping one two" + end) == [b"CMSG pong\0one two"]


# Of public sbus


@pytest.mark.parametrize(
    ("key", "policy"),
    [
        (b"blocking/soft/queue", "drop-oldest"),
        (b"blocking/soft/discard", "drop-newest"),
        (b"blocking/soft/block", "block"),
        (b"blocking/soft/error", "disconnect"),
        (b"blocking/hard/discard", "drop-newest"),
        (b"blocking/hard/block", "block"),
        (b"blocking/hard/error", "disconnect"),
        (b"order/queue", "drop-oldest"),
    ],
)
@pytest.mark.parametrize("value", [b"", b"\0", b"\0ignored"])
def test_flood_control_of_sbus_is_a_policy(bus: Bus, key: bytes, policy: str, value: bytes):
    client = bus.connect()
    expected = b"CMSG %b\0packets=10000 bytes=8388608 policy=%b" % (key, policy.encode())
    assert client.ask(b"CMSG " + key + value) == [expected]
    assert client.session.outbox.policy == policy


def test_blocking_of_sbus_needs_the_right():
    bus = Bus()
    bus.reconfigure(access=AccessList([Grant()]))
    client = bus.connect()
    for key in ("blocking/soft/block", "blocking/hard/block"):
        refused = error_of(client.ask(b"CMSG " + key.encode()))
        assert refused == ("refused", f"CMSG {key}: no right to the policy block")
    assert client.session.outbox.policy is Policy.DROP_OLDEST


@pytest.mark.parametrize("key", ["order/stack", "order/random"])
def test_disorder_of_sbus_is_refused_by_name(bus: Bus, key: str):
    refused = error_of(bus.connect().ask(b"CMSG " + key.encode()))
    assert refused == ("bad-value", f"CMSG {key}: messages come in order: only order/queue is done")


def test_other_keys_of_sbus_are_unknown(bus: Bus):
    for key in (b"!/cred/1/2/3/x", b"!/cred/whoami/", b"blocking/hard/queue", b"order/random/queue"):
        assert error_of(bus.connect().ask(b"CMSG " + key))[0] == "unknown-key"


# One by one


def test_ping_is_answered_after_what_was_sent_before_it(bus: Bus):
    client = bus.connect()
    assert client.ask(b"SUB a", b"MSG a\0one", b"CMSG ping\0token", b"MSG a\0two", b"CMSG ping") == [
        b"MSG a\0one",
        b"CMSG pong\0token",
        b"MSG a\0two",
        b"CMSG pong\0",
    ]


def test_ping_keeps_any_bytes(bus: Bus):
    token = bytes(range(256))
    assert bus.connect().ask(b"CMSG ping\0" + token) == [b"CMSG pong\0" + token]


def test_whoami(bus: Bus):
    client = bus.connect(pid=7)
    assert client.ask(b"CMSG whoami") == [b"CMSG whoami\0here/prog/7"]
    assert client.ask(b"CMSG !/cred/whoami") == [b"CMSG !/cred/whoami\0!/cred/100/1000/7"]


def test_name(bus: Bus):
    client = bus.connect(b"SUB a", pid=7)
    assert client.ask(b"CMSG name\0here/prog/7/worker") == [b"CMSG name\0here/prog/7/worker"]
    assert client.ask(b"CMSG whoami") == [b"CMSG whoami\0here/prog/7/worker"]
    sender = bus.connect()
    sender.say(b"MSG !here/prog/7\0old", b"MSG !here/prog/7/worker\0new", b"MSG !here/prog/7/*\0both")
    assert client.heard() == [b"MSG !here/prog/7/worker\0new", b"MSG !here/prog/7/*\0both"]
    assert client.ask(b"CMSG name\0here/prog/7/worker") == [b"CMSG name\0here/prog/7/worker"]


def test_name_of_a_fork_child(bus: Bus):
    parent, child = bus.connect(pid=7), bus.connect(pid=9)
    assert child.ask(b"CMSG name\0here/prog/7/9") == [b"CMSG name\0here/prog/7/9"]
    assert error_of(child.ask(b"CMSG name\0here/prog/7"))[0] == "name-taken"
    assert parent.ask(b"CMSG whoami") == [b"CMSG whoami\0here/prog/7"]


def test_name_with_the_right(bus: Bus):
    client = bus.connect(privileged=True)
    assert client.ask(b"CMSG name\0sensor7") == [b"CMSG name\0sensor7"]


def test_format(bus: Bus):
    client, publisher = bus.connect(b"SUB local/>"), bus.connect(pid=7)
    heard = {}
    for form in (b"full", b"lines", b"plain"):
        answer = client.ask(b"CMSG format\0" + form)
        publisher.say(b"MSG local/a\0one\ntwo")
        heard[form] = [*answer, *client.heard()]
    assert heard == {
        b"full": [
            b"CMSG format\0full",
            b"RECV local %d ok\0BCCN1[29]here/prog/7:1:local/a|one\ntwo" % (bus.unix_us * 1000),
        ],
        b"lines": [b"CMSG format lines\n", b"MSG local/a one\\ntwo\n"],
        b"plain": [b"CMSG format\0plain", b"MSG local/a\0one\ntwo"],
    }


def test_pack(bus: Bus):
    client = bus.connect()
    packet = sbus.pack([b"CMSG ping\0001", b"CMSG ping\0002"])
    assert error_of(client.ask(packet))[0] == "not-agreed"
    assert client.ask(b"CMSG pack\0on") == [b"CMSG pack\0on %d" % bus.relay.state.rules.packet_limit]
    assert client.ask(packet) == [b"CMSG pong\0001", b"CMSG pong\0002"]
    assert client.ask(b"CMSG pack\0off") == [b"CMSG pack\0off"]
    assert error_of(client.ask(packet))[0] == "not-agreed"


def test_separator(bus: Bus):
    client = bus.connect(b"SUB a/*")
    assert client.ask(b"CMSG separator\0.", b"SUB b.*") == [b"CMSG separator\0."]
    assert client.ask(b"MSG a/1\0", b"MSG b.1\0", b"MSG b.1.2\0", b"MSG a.1\0") == [
        b"MSG a/1\0",
        b"MSG b.1\0",
    ]
    assert error_of(client.ask(b"UNSUB a/*"))[0] == "not-subscribed"
    assert client.ask(b"CMSG separator\0/", b"UNSUB a/*", b"MSG a/1\0") == [b"CMSG separator\0/"]


def test_echo(bus: Bus):
    client = bus.connect(b"SUB a")
    assert client.ask(b"CMSG echo/off", b"MSG a\0001") == [b"CMSG echo/off\0"]
    assert client.ask(b"CMSG echo/on", b"MSG a\0002") == [b"CMSG echo/on\0", b"MSG a\0002"]


def test_queue(bus: Bus):
    client = bus.connect()
    assert client.ask(b"CMSG queue") == [b"CMSG queue\0packets=10000 bytes=8388608 policy=drop-oldest"]
    assert client.ask(b"CMSG queue\0packets=5") == [b"CMSG queue\0packets=5 bytes=8388608 policy=drop-oldest"]
    assert client.ask(b"CMSG queue\0policy=block bytes=77") == [
        b"CMSG queue\0packets=5 bytes=77 policy=block"
    ]
    error_of(client.ask(b"CMSG queue\0packets=6 bytes=0"))
    assert client.ask(b"CMSG queue") == [b"CMSG queue\0packets=5 bytes=77 policy=block"], "all or nothing"
    outbox = client.session.outbox
    assert (outbox.max_packets, outbox.max_size, outbox.policy) == (5, 77, Policy.BLOCK)


def test_queue_made_smaller_than_what_waits(bus: Bus):
    client = bus.connect(b"SUB a")
    client.stop_reading()
    publisher = bus.connect()
    publisher.say(*[b"MSG a\0%d" % number for number in range(10)])
    client.say(b"CMSG queue\0packets=2")
    publisher.say(b"MSG a\00010")
    assert client.take() == [
        b"CMSG dropped\x009",
        b"MSG a\x009",
        b"CMSG queue\0packets=2 bytes=8388608 policy=drop-oldest",
        b"MSG a\x0010",
    ]


def test_listen(bus: Bus):
    client = bus.connect(pid=7)
    sender = bus.connect()
    sender.say(b"MSG !\0unheard")
    assert client.ask(b"CMSG listen") == [b"CMSG listen\0"]
    sender.say(b"MSG !\0all", b"MSG !here/prog/7\0you", b"MSG a\0plain")
    assert client.heard() == [b"MSG !\0all", b"MSG !here/prog/7\0you"]


def test_listeners(bus: Bus):
    client = bus.connect(b"SUB a", b"SUB b", pid=7)
    bus.connect(b"SUB a", b"SUB a/>", b"CMSG echo/off")
    bus.connect(b"SUB >", b"CMSG format\0full")
    bus.connect(b"SUB >", b"CMSG tap\0on", privileged=True)
    for chan, count in ((b"a", 2), (b"b", 1), (b"local/a", 1), (b"!", 2), (b"!here/bccnd", 1)):
        assert client.ask(b"CMSG listeners\0" + chan) == [b"CMSG listeners\0%d" % count]
    assert client.ask(b"CMSG listeners\0!here/prog/7") == [b"CMSG listeners\x000"], "it is the client itself"
    assert bus.sent == []


def test_other_daemons_are_asked_in_the_clients_name(bus: Bus):
    client = bus.connect(b"CMSG listen", pid=7)
    watcher = bus.connect(b"SUB >")
    assert client.ask(b"CMSG listeners\0a t1") == [b"CMSG listeners\x001 asked"]
    assert watcher.heard() == [b"MSG bccnd/ask\0t1\nlisteners a"]
    (sent,) = bus.sent
    assert sent.startswith(b"BCCN1[")
    assert b"]here/prog/7:" in sent
    assert sent.endswith(b":bccnd/ask|t1\nlisteners a")
    bus.hear(datagram(b"far/bccnd/1", 1, b"!here/prog/7", b"t1\nlisteners 3"))
    assert client.heard() == [b"MSG !here/prog/7\0t1\nlisteners 3"]


@pytest.mark.parametrize(
    "chan", [b"local/a", b"local/presence/left/x", b"!here", b"!here/prog/9", b"!here/prog/*"]
)
def test_other_daemons_are_not_asked_for_local_channels(bus: Bus, chan: bytes):
    assert bus.connect().ask(b"CMSG listeners\0%b t1" % chan) == [b"CMSG listeners\x000"]
    assert bus.sent == []


@pytest.mark.parametrize("chan", [b"!", b"!he", b"!hereafter/prog/9", b"!far/prog/9"])
def test_other_daemons_are_asked_for_other_channels(bus: Bus, chan: bytes):
    assert bus.connect().ask(b"CMSG listeners\0%b t1" % chan) == [b"CMSG listeners\x000 asked"]


def test_where_questions_are_local_nobody_can_be_asked():
    assert Bus(local=["bccnd/>"]).connect().ask(b"CMSG listeners\0a t1") == [b"CMSG listeners\x000"]


def test_too_many_questions_are_not_asked(bus: Bus):
    client = bus.connect()
    limit = int(LISTENERS_PER_SECOND)
    said = [packet for n in range(limit + 5) for packet in client.ask(b"CMSG listeners\0a/%d t1" % n)]
    assert said == [b"CMSG listeners\x000 asked"] * limit + [b"CMSG listeners\x000 busy"] * 5
    assert len(bus.sent) == limit
    assert bus.connect().ask(b"CMSG listeners\0b t1") == [b"CMSG listeners\x000 asked"], "its own share"


def test_asking_for_listeners_needs_the_right_to_publish(bus: Bus):
    client = bus.connect()
    bus.reconfigure(access=AccessList([Grant(publish=(b"a",), subscribe=(b">",))]))
    assert client.ask(b"CMSG listeners\0a t1") == [b"CMSG listeners\x000 asked"]
    assert error_of(client.ask(b"CMSG listeners\0b")) == (
        "refused",
        "CMSG listeners: no right to publish on b",
    )
    assert bus.relay.state.refusals.counts == {"publish": 1}


def test_tap(bus: Bus):
    client = bus.connect(b"SUB a", privileged=True)
    assert client.ask(b"CMSG tap\0on") == [b"CMSG tap\0on"]
    bus.hear(datagram(b"x", 1, b"b"))
    assert client.heard() == [b"RECV 10.0.0.2:5400 %d ok\0BCCN1[6]x:1:b|" % (bus.unix_us * 1000)]
    assert client.ask(b"CMSG tap\0off") == [b"CMSG tap\0off"]
    bus.hear(datagram(b"x", 2, b"b"), datagram(b"x", 3, b"a"))
    assert client.heard() == [b"MSG a\0"]
    assert bus.connect().ask(b"CMSG tap\0off") == [b"CMSG tap\0off"]


def test_a_tap_with_the_interface_and_one_without(bus: Bus):
    """Each sees everything in its own form, from the segment, refused there, and of this host."""
    first = bus.connect(b"CMSG tap\0on", privileged=True)
    second = bus.connect(privileged=True)
    full = bus.connect(b"CMSG format\0full", b"SUB >")
    assert second.ask(b"CMSG tap\0interface") == [b"CMSG tap\0interface"]
    bus.hear(datagram(b"x", 1, b"b"), b"BCCN1[9]short", interface=b"wlan0")
    bus.clients[full.session.number].say(b"MSG c\0")
    told = second.shown()
    assert [(recv.verdict, recv.interface) for recv in told] == [
        (b"ok", b"wlan0"),
        (b"length", b"wlan0"),
        (b"ok", sbus.NOWHERE),
    ]
    untold = [replace(recv, interface=b"") for recv in told]
    assert first.shown() == untold
    assert full.shown() == [untold[0], untold[2]]
    assert second.ask(b"CMSG tap\0on") == [b"CMSG tap\0on"]
    bus.hear(datagram(b"x", 2, b"b"))
    assert second.heard() == first.heard()
    assert bus.connect().ask(b"CMSG tap\0interface")[0].startswith(b"CMSG error\0refused")


def test_a_queue_of_thousands_of_fields_costs_what_a_few_do(bus: Bus):
    client = bus.connect()
    code, text = error_of(client.ask(b"CMSG queue\0" + b"packets=1 " * 6000))
    assert (code, text) == ("bad-value", "CMSG queue: packets is a number from 1 to 100000")
    code, text = error_of(client.ask(b"CMSG queue\0" + b"\xff" * 60_000))
    assert code == "bad-value"
    assert len(text) < 1000, "an answer is no longer than a packet may be"
