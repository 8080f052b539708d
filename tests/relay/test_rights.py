"""Who may do what: which grants are for a client, what they give together, and what becomes of a refusal."""

from collections import Counter

import pytest

from bccnd.relay.identity import Peer
from bccnd.relay.options import Policy
from bccnd.relay.rights import (
    CHANNELS_DECIDED,
    REFUSALS_KEPT,
    AccessList,
    Grant,
    Refusals,
    Rights,
    unrestricted,
)
from tests.relay.fakes import Bus, FakeClient, datagram, slow, value_of

PEER = Peer(7, 1000, 100, b"sensord", frozenset({4, 27}), resident=True)


def bus_with(*grants: Grant) -> Bus:
    bus = Bus()
    bus.reconfigure(access=AccessList(grants))
    return bus


def refused(client: FakeClient, packet: bytes, text: bytes) -> bool:
    return client.ask(packet) == [b"CMSG error\0refused " + text]


# Whom a grant is for


@pytest.mark.parametrize(
    ("grant", "expected"),
    [
        (Grant(), True),
        (Grant(uid=1000), True),
        (Grant(uid=0), False),
        (Grant(gid=100), True),
        (Grant(gid=27), True),
        (Grant(gid=0), False),
        (Grant(program=b"sensord"), True),
        (Grant(program=b"sensor"), False),
        (Grant(program=b"sensor*"), True),
        (Grant(program=b"sensord*"), True),
        (Grant(program=b"*"), True),
        (Grant(program=b"xsensor*"), False),
        (Grant(uid=1000, gid=4, program=b"s*", resident=True), True),
        (Grant(uid=1001, gid=4, program=b"s*"), False),
        (Grant(uid=1000, gid=5, program=b"s*"), False),
        (Grant(uid=1000, gid=4, program=b"t*"), False),
    ],
)
def test_all_conditions_must_hold(grant: Grant, expected: bool):
    assert grant.is_for(PEER) is expected


@pytest.mark.parametrize("program", [b"sensord", b"*", b"s*", b""])
def test_an_unknown_program_is_none_that_can_be_named(program: bytes):
    stranger = Peer(0, 1000, 100, b"")
    assert not Grant(program=program).is_for(stranger)
    assert Grant(uid=1000).is_for(stranger)


def test_root_of_another_pid_namespace_is_not_an_owner():
    resident, stranger = Peer(7, 0, 0, b"x", resident=True), Peer(0, 0, 0, b"", resident=False)
    access = AccessList(unrestricted([0]))
    for peer, expected in ((resident, True), (stranger, False), (PEER, False)):
        rights = access.rights_of(peer)
        assert (rights.tap, rights.bridge, rights.may_be_named(b"any/name")) == (expected, expected, expected)
        assert all(map(rights.may_publish, [b"a", b"!", b"!a/b"]))
        assert rights.may_subscribe(b"", b"/")
    assert AccessList([Grant(uid=0, tap=True)]).rights_of(stranger).tap, "unless it is granted"


# What grants give


def test_grants_add_up():
    access = AccessList(
        [
            Grant(publish=(b"a",)),
            Grant(uid=1000, publish=(b"b",), tap=True),
            Grant(uid=1001, publish=(b"c",), bridge=True, name=(b">",)),
            Grant(gid=27, subscribe=(b"d",)),
        ]
    )
    rights = access.rights_of(PEER)
    assert [rights.may_publish(channel) for channel in (b"a", b"b", b"c")] == [True, True, False]
    assert [rights.may_subscribe(pattern, b"/") for pattern in (b"d", b"a")] == [True, False]
    assert (rights.tap, rights.bridge, rights.may_be_named(b"c")) == (True, False, False)


def test_nothing_granted_is_nothing_allowed():
    rights = AccessList([Grant(uid=1)]).rights_of(PEER)
    assert not any(map(rights.may_publish, [b"a", b"!", b"!a"]))
    assert not any([rights.may_subscribe(b"a", b"/"), rights.may_listen, rights.tap, rights.bridge])
    assert not rights.may_be_named(b"a")


@pytest.mark.parametrize(
    ("pattern", "allowed", "not_allowed"),
    [
        (b">", [b"a", b"a/b", b"/"], [b"!", b"!a", b"!a/b"]),
        (b"!", [b"!"], [b"a", b"!a"]),
        (b"!>", [b"!a", b"!a/b/1", b"!a/*"], [b"!", b"a"]),
        (b"!*", [b"!a"], [b"!", b"!a/b"]),
        (b"!h/p*/>", [b"!h/p/1", b"!h/prog/1/*"], [b"!h", b"!h/p", b"!h/*", b"!", b"h/p/1"]),
        (b"a/*", [b"a/b", b"a/"], [b"a", b"a/b/c", b"!a/b"]),
    ],
)
def test_directed_channels_are_granted_apart(pattern: bytes, allowed: list[bytes], not_allowed: list[bytes]):
    rights = Rights([Grant(publish=(pattern,))])
    for _ in range(2):  # decided, and remembered
        assert [channel for channel in allowed if not rights.may_publish(channel)] == []
        assert [channel for channel in not_allowed if rights.may_publish(channel)] == []


def test_decisions_remembered_are_bounded_and_right():
    rights = Rights([Grant(publish=(b"a/>",))])
    for number in range(3 * CHANNELS_DECIDED):
        assert rights.may_publish(b"a/%d" % number)
        assert not rights.may_publish(b"b/%d" % number)
    assert len(rights._decided) == CHANNELS_DECIDED


def test_a_subscription_lies_within_one_granted_pattern():
    rights = Rights([Grant(subscribe=(b"a/>", b"b/*"))])
    for pattern, separator in [(b"a/b", b"/"), (b"a/*/c", b"/"), (b"b/c*", b"/"), (b"a/b.>", b".")]:
        assert rights.may_subscribe(pattern, separator)
    for pattern, separator in [
        (b"", b"/"),
        (b">", b"/"),
        (b"*/x", b"/"),
        (b"a/", b"/"),
        (b"b/>", b"/"),
        (b"a.>", b"."),
    ]:
        assert not rights.may_subscribe(pattern, separator)


def test_clients_of_the_same_grants_share_what_is_decided():
    access = AccessList([Grant(publish=(b"a",)), Grant(uid=0, tap=True)])
    assert access.rights_of(PEER) is access.rights_of(Peer(8, 1001, 100, b"other"))
    assert access.rights_of(PEER) is not access.rights_of(Peer(8, 0, 0, b"other"))


# At the bus


def test_publishing_without_a_right_reaches_nobody():
    bus = bus_with(Grant(publish=(b"a/>",)), Grant(uid=1, subscribe=(b">",)))
    listener, publisher = bus.connect(b"SUB ", uid=1), bus.connect()
    publisher.heard()
    publisher.say(
        b"MSG a/b\0one", b"MSG b\0two", b"MSG b\0three", b"MSG a/b\0four", b"MSG !\0five", b"MSG !h\0six"
    )
    assert listener.heard() == [b"MSG a/b\0one", b"MSG a/b\0four"]
    assert len(bus.sent) == 2
    assert publisher.heard() == [
        b"CMSG error\0refused MSG %b: no right to publish there" % channel
        for channel in (b"b", b"b", b"!", b"!h")
    ]
    assert bus.relay.state.refusals.counts == {"publish": 4}
    assert publisher.session.published == 2


def test_refused_requests_change_nothing():
    bus = bus_with(Grant(publish=(b">", b"!", b"!>")))
    client, publisher = bus.connect(pid=7), bus.connect()
    assert refused(client, b"SUB a", b"SUB a: no right to all that it matches")
    assert refused(client, b"CMSG listen", b"CMSG listen: no right to subscribe to anything")
    assert refused(client, b"CMSG tap\0on", b"CMSG tap: no right to tap")
    assert refused(
        client, b"CMSG name\0x", b"CMSG name: no right to x, which is not below the client's own name"
    )
    assert refused(client, datagram(b"far", 1, b"a"), b"packet: no right to bridge datagrams")
    assert bus.relay.state.refusals.counts == {"subscribe": 2, "tap": 1, "name": 1, "bridge": 1}
    publisher.say(b"MSG a\0", b"MSG !\0", b"MSG !here/prog/7\0")
    assert client.heard() == []
    assert client.name == b"here/prog/7"
    assert len(bus.sent) == 3
    assert client.ask(b"CMSG tap\0off", b"CMSG name\0here/prog/7/x") == [
        b"CMSG tap\0off",
        b"CMSG name\0here/prog/7/x",
    ], "what needs no right"


def test_who_may_not_observe_sees_only_itself():
    bus = bus_with(Grant(uid=1, observe=True), Grant(uid=2, tap=True))
    client, observer, tap = bus.connect(), bus.connect(uid=1), bus.connect(uid=2)
    for key in (b"status", b"sources"):
        text = b"CMSG %b: no right to observe the daemon, its clients and sources" % key
        assert refused(client, b"CMSG " + key, text)
        assert observer.ask(b"CMSG " + key)[0].startswith(b"CMSG %b\0" % key)
        assert tap.ask(b"CMSG " + key)[0].startswith(b"CMSG %b\0" % key)
    for each, seen in ((client, 1), (observer, 3), (tap, 3)):
        answer = value_of(each.ask(b"CMSG clients"), b"clients")
        assert len(answer["clients"]) == seen
        assert each.name.decode() in {row["name"] for row in answer["clients"]}
    after = b"%d" % client.session.number
    assert value_of(client.ask(b"CMSG clients\0" + after), b"clients") == {"clients": [], "next": None}
    assert bus.relay.state.refusals.counts == {"observe": 2}


def test_the_policy_block_needs_a_right():
    bus = bus_with(Grant(uid=1, block=True))
    client, blocker = bus.connect(), bus.connect(uid=1)
    before = client.ask(b"CMSG queue")
    assert refused(client, b"CMSG queue\0packets=5 policy=block", b"CMSG queue: no right to the policy block")
    assert client.ask(b"CMSG queue") == before, "nothing of it is done"
    assert client.ask(b"CMSG queue\0policy=disconnect")[0].endswith(b"policy=disconnect")
    assert blocker.ask(b"CMSG queue\0policy=block")[0].endswith(b"policy=block")


def is_held(publisher: FakeClient) -> bool:
    """Whether somebody holds it for what it publishes."""
    publisher.say(*[b"MSG a\0x"] * 5)
    return publisher.held


def test_a_stranger_holds_nobody_by_default():
    bus = Bus()
    stranger = slow(bus, "block", packets=2, uid=2)
    assert not is_held(bus.connect(uid=1))
    assert not is_held(bus.connect(uid=0))
    assert stranger.session.outbox.dropped
    assert is_held(bus.connect(uid=2)), "but for publishers of its own user"


def test_an_owner_holds_everybody_by_default():
    bus = Bus()
    slow(bus, "block", packets=2, uid=0)
    assert is_held(bus.connect(uid=1))


def test_a_policy_that_the_settings_give_holds_everybody():
    bus = Bus(policy=Policy.BLOCK)
    bus.connect_stuck(b"SUB a", uid=2)
    assert is_held(bus.connect(uid=1))


def test_a_revoked_policy_holds_nobody_any_more():
    bus = bus_with(Grant(publish=(b">",), subscribe=(b">",), block=True))
    reader, publisher = bus.connect_stuck(b"SUB a", b"CMSG queue\0policy=block"), bus.connect()
    publisher.say(b"MSG a\0one")
    assert publisher.held
    bus.reconfigure(access=AccessList([Grant(publish=(b">",), subscribe=(b">",))]))
    assert not publisher.held
    assert reader.session.outbox.policy is Policy.DROP_OLDEST
    assert reader.take() == [b"MSG a\0one", b"CMSG revoked\0CMSG queue policy=block"]


def test_listening_alone_can_be_granted():
    bus = bus_with(Grant(subscribe=(b"!",), publish=(b">", b"!")))
    client = bus.connect()
    assert client.ask(b"CMSG listen") == [b"CMSG listen\0"]
    assert client.ask(b"MSG !\0x") == [b"MSG !\0x"]
    assert refused(client, b"SUB !", b"SUB !: no right to all that it matches")
    assert refused(client, b"SUB a", b"SUB a: no right to all that it matches")


def test_a_name_can_be_granted():
    bus = bus_with(Grant(name=(b"sensor/*", b"here/gate")))
    client = bus.connect(pid=7)
    assert client.ask(b"CMSG name\0sensor/1") == [b"CMSG name\0sensor/1"]
    assert client.ask(b"CMSG name\0here/gate") == [b"CMSG name\0here/gate"]
    assert b"refused" in client.ask(b"CMSG name\0sensor/1/x")[0]


def test_client_without_a_pid_takes_only_a_granted_name():
    bus = bus_with(Grant(name=(b"gate",)))
    client = bus.connect(pid=0, program=b"")
    assert client.name == b"here/unknown/n1"
    assert b"refused" in client.ask(b"CMSG name\0here/unknown/n1/x")[0]
    assert client.ask(b"CMSG name\0gate") == [b"CMSG name\0gate"]


def test_bridge_keeps_to_channels_it_may_publish_on():
    bus = bus_with(Grant(bridge=True, publish=(b"a",)), Grant(uid=1, subscribe=(b">",)))
    listener, bridge = bus.connect(b"SUB ", uid=1), bus.connect()
    one = datagram(b"far", 2, b"b", b"x")
    assert refused(bridge, one, b"packet: no right to publish on the channel of the datagram")
    assert bus.sent == []
    bus.hear(one)
    assert listener.heard() == [b"MSG b\0x"], "it left no trace that would make it a duplicate"
    assert bridge.ask(datagram(b"far", 3, b"a", b"y")) == []
    assert listener.heard() == [b"MSG a\0y"]
    assert len(bus.messages_sent) == 1


def test_a_refused_typed_subscription_is_answered_in_a_line():
    bus = bus_with(Grant())
    assert bus.connect().ask(b"SUB a\n") == [b"CMSG error refused SUB a: no right to all that it matches\n"]


# New rights for clients that are connected


def test_revoked_rights_are_taken_back_and_reported():
    bus = bus_with(*unrestricted([0]))
    client = bus.connect(b"SUB a/b", b"SUB a/b", b"SUB c", b"SUB >", privileged=True)
    client.ask(b"CMSG tap\0on", b"CMSG name\0free/name")
    bus.reconfigure(access=AccessList([Grant(publish=(b">", b"!"), subscribe=(b"a/>",))]))
    assert client.heard() == [b"CMSG revoked\0CMSG tap", b"CMSG revoked\0SUB c", b"CMSG revoked\0SUB >"]
    assert client.ask(b"MSG a/b\0one", b"MSG c\0two", b"MSG !\0three") == [b"MSG a/b\0one", b"MSG !\0three"]
    assert client.name == b"free/name"
    assert client.ask(b"UNSUB a/b", b"UNSUB a/b") == []
    assert b"not-subscribed" in client.ask(b"UNSUB c")[0]
    bus.reconfigure(access=AccessList([Grant(publish=(b"!",))]))
    assert client.heard() == [b"CMSG revoked\0CMSG listen"]
    assert client.ask(b"MSG !\0four") == []
    client.leave()
    bus.assert_idle()


def test_new_grants_hold_at_once():
    bus = bus_with(Grant())
    client = bus.connect(b"MSG a\0")
    assert bus.relay.state.refusals.take()[0] != []
    bus.reconfigure(access=AccessList([Grant(publish=(b"a",), subscribe=(b"a",))]))
    assert client.ask(b"SUB a", b"MSG a\0x") == [b"MSG a\0x"]
    client.ask(b"MSG b\0")
    (line,), _ = bus.relay.state.refusals.take()
    assert line["reason"] == "MSG b: no right to publish there", "told again under the new rights"


def test_client_that_loses_thousands_of_subscriptions_stays():
    bus = Bus(subscriptions=10_000, subscription_bytes=1 << 30)
    client = bus.connect(*(b"SUB a/%d" % number for number in range(6000)))
    client.stop_reading()
    bus.reconfigure(access=AccessList([Grant()]))
    assert client.connected
    heard = client.take()
    assert heard[:2] == [b"CMSG revoked\0CMSG listen", b"CMSG revoked\0SUB a/0"]
    assert heard[-1] == b"CMSG revoked\0and 5001 more"
    assert len(heard) == 1001


# What is said of refusals


def test_once_per_client_and_right():
    bus = bus_with(Grant())
    client, other = bus.connect(pid=7, uid=1000), bus.connect(pid=8)
    client.say(b"MSG a\0", b"MSG b\0", b"SUB c", b"MSG a\0", b"SUB d")
    other.say(b"MSG a\0")
    lines, more = bus.relay.state.refusals.take()
    who = {"name": "here/prog/7", "pid": 7, "uid": 1000, "program": "prog"}
    assert lines == [
        who | {"right": "publish", "reason": "MSG a: no right to publish there"},
        who | {"right": "subscribe", "reason": "SUB c: no right to all that it matches"},
        who
        | {"name": "here/prog/8", "pid": 8, "right": "publish", "reason": "MSG a: no right to publish there"},
    ]
    assert more == 0
    assert bus.relay.state.refusals.counts == {"publish": 4, "subscribe": 2}
    client.say(b"MSG a\0")
    assert bus.relay.state.refusals.take() == ([], 0)


def test_many_clients_do_not_fill_the_log():
    refusals = Refusals()
    for number in range(REFUSALS_KEPT + 5):
        refusals.count(b"name/%d" % number, PEER, "tap", "CMSG tap", first=True)
    lines, more = refusals.take()
    assert (len(lines), more) == (REFUSALS_KEPT, 5)
    assert refusals.counts == {"tap": REFUSALS_KEPT + 5}
    assert refusals.take() == ([], 0)


def test_no_user_hides_the_refusals_of_another():
    refusals = Refusals()
    users = [1000] * 100 + [1001, 1002] + [1000] * 100 + [1001] * 100
    for number, uid in enumerate(users):
        refusals.count(b"name/%d" % number, Peer(7, uid, uid, b"prog"), "tap", "CMSG tap", first=True)
    lines, more = refusals.take()
    kept = Counter(line["uid"] for line in lines)
    assert (len(lines), more) == (REFUSALS_KEPT, len(users) - REFUSALS_KEPT)
    assert kept[1002] == 1
    assert abs(kept[1000] - kept[1001]) <= 1
    assert lines[0]["name"] == "name/0", "the first of a user stay"
