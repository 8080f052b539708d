"""Robots, gateways and a bus together, in virtual time."""

from ipaddress import ip_network
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.dndm.asking import LOCAL
from bccnd.dndm.options import Options
from tests.dndm.world import EPOCH_NS, Bus, GatewayNode, Robot, World
from tests.wire.dndm.plain_dndm import written

NEAR = (ip_network("10.0.0.0/8"),)
ROUTE, CHANNEL = "Image@cam.front", "dndm/cam/front/Image"
HASHED, HASH_CHANNEL = "cam#m1F+jLCmA+RQL1TkllbKW4cFj8I", "dndm/#/cam/m1F-jLCmA-RQL1TkllbKW4cFj8I"
BARE_CHANNEL = "dndm/#/m1F-jLCmA-RQL1TkllbKW4cFj8I"


class One:
    """A gateway on a bus."""

    def __init__(self, **options: bool) -> None:
        self.world = World()
        self.bus = Bus(self.world)
        self.gateway = GatewayNode(self.world, self.bus, Options("tcp://10.0.0.1:1/?bccn=a", **options))

    def robot(self, number: int, path: str = "", *, bare: bool = False) -> Robot:
        robot = Robot(self.world, f"tcp://10.0.1.{number}:1/{path}", bare=bare)
        robot.dial(self.gateway)
        self.world.run(1)
        assert robot.done
        return robot


def both(channel: str) -> set[str]:
    """It and its twin of this host."""
    return {channel, LOCAL + channel}


def body(payload: bytes) -> bytes:
    return written([(1, payload)])


def test_a_robot_publishes_once_somebody_listens() -> None:
    one = One()
    robot = one.robot(1)
    robot.advert("INTENT", ROUTE)
    one.world.run(1)
    assert one.gateway.watched == both(CHANNEL)
    assert robot.wanted == {}
    one.bus.listens(CHANNEL)
    one.world.run(1)
    assert set(robot.wanted) == {ROUTE}
    robot.send(ROUTE, b"x")
    one.world.run(1)
    assert one.bus.heard[CHANNEL] == [body(b"x")]
    one.bus.listens(CHANNEL, on=False)
    one.world.run(1)
    assert robot.wanted == {}
    robot.send(ROUTE, b"y")
    one.world.run(1)
    assert one.bus.heard[CHANNEL] == [body(b"x")]


def test_a_robot_hears_programs_of_the_bus() -> None:
    one = One()
    robot = one.robot(1)
    robot.advert("INTEREST", ROUTE)
    one.world.run(1)
    assert one.gateway.subscribed == both(CHANNEL)
    one.bus.publish(CHANNEL, body(b"x"))
    one.world.run(1)
    assert robot.payloads == [b"x"]
    assert robot.got[0][2] >= EPOCH_NS
    robot.advert("INTEREST", ROUTE, on=False)
    one.world.run(1)
    assert one.gateway.subscribed == set()
    assert robot.offered == {}


def test_an_idle_interest_still_gets_each_message() -> None:
    """A public peer forgets an intent after a minute of silence, however often it is told again."""
    one = One()
    robot = one.robot(1)
    sent = []
    for second in (5, 55, 58, 62, 119, 121, 185, 250, 500):
        robot.advert("INTEREST", ROUTE)
        while one.world.now < second - 40:
            one.world.run(40)
            robot.advert("INTEREST", ROUTE)
        one.world.run(second - one.world.now)
        sent.append(b"%d" % second)
        one.bus.publish(CHANNEL, body(sent[-1]))
    one.world.run(1)
    assert robot.payloads == sent


def test_between_peers_all_of_a_message_is_kept() -> None:
    one = One()
    sender, receiver = one.robot(1), one.robot(2)
    receiver.advert("INTEREST", ROUTE)
    sender.advert("INTENT", ROUTE)
    one.world.run(1)
    assert ROUTE in sender.wanted
    sender.send(ROUTE, b"x", timestamp=77, signature=b"sig", receive_timestamp=5)
    one.world.run(1)
    assert receiver.got == [(ROUTE, b"x", 77, b"sig")]
    header = receiver.all[-1][0]
    assert header.receive_timestamp > EPOCH_NS
    assert sender.got == []


def test_hashed_routes_go_with_and_without_prefix() -> None:
    one = One()
    bare, full = one.robot(1, bare=True), one.robot(2)
    full.advert("INTEREST", HASHED)
    bare.advert("INTENT", HASHED)
    one.world.run(1)
    assert one.gateway.watched == both(BARE_CHANNEL)
    assert one.gateway.subscribed == both(HASH_CHANNEL)
    assert set(bare.wanted) == {HASHED.partition("#")[2]}
    bare.send(HASHED, b"x")
    one.world.run(1)
    assert [(route, payload) for route, payload, _, _ in full.got] == [(HASHED, b"x")]
    full.advert("INTENT", HASHED)
    bare.advert("INTEREST", HASHED)
    one.world.run(1)
    full.send(HASHED, b"y")
    one.world.run(1)
    assert [(route, payload) for route, payload, _, _ in bare.got] == [(HASHED.partition("#")[2], b"y")]


@pytest.mark.parametrize("kind", ["INTENT", "INTEREST"])
def test_an_advert_ends_with_its_time_to_live(kind: str) -> None:
    one = One()
    robot = one.robot(1)
    robot.advert(kind, ROUTE, ttl=5_000_000_000)
    one.world.run(4)
    assert one.gateway.subscribed | one.gateway.watched == both(CHANNEL)
    one.world.run(2)
    assert one.gateway.subscribed | one.gateway.watched == set()


def test_messages_keep_an_intent_alive() -> None:
    one = One()
    robot = one.robot(1)
    robot.advert("INTENT", ROUTE, ttl=5_000_000_000)
    for _ in range(4):
        one.world.run(4)
        robot.send(ROUTE, b"x")
    one.world.run(4)
    assert one.gateway.watched == both(CHANNEL)


def test_what_a_lost_robot_advertised_is_gone() -> None:
    one = One()
    robot = one.robot(1)
    robot.advert("INTENT", ROUTE)
    robot.advert("INTEREST", "Other@a")
    one.world.run(1)
    robot.leave()
    one.world.run(1)
    assert one.gateway.subscribed | one.gateway.watched == set()
    assert one.gateway.core.links == []


def test_a_silent_robot_is_let_go() -> None:
    one = One()
    robot = one.robot(1)
    robot.deaf = True
    one.world.run(60)
    assert one.gateway.closes == ["silent"]
    assert robot.link is None


def test_pings_are_answered_and_measured() -> None:
    one = One()
    robot = one.robot(1)
    robot.say("PING", [(3, bytes(range(16)))])
    one.world.run(1)
    pongs = [message for header, message in robot.all if header.type == 9]
    assert [pong.payload for pong in pongs] == [bytes(range(16))]  # type: ignore[union-attr]
    (link,) = one.gateway.core.links
    assert link.latency == pytest.approx(0.02)


def gateways(world: World, number: int, shape: str = "mesh") -> list[GatewayNode]:
    """Each on a bus of its own, dialling the one before: a row, a ring, or all with all, as peers tell of others."""
    nodes: list[GatewayNode] = []
    for index in range(number):
        before = [str(nodes[-1].address)] if nodes else []
        if shape == "ring" and index == number - 1:
            before.append(str(nodes[0].address))
        options = Options(f"tcp://10.0.0.{index + 1}:1/?bccn=bus{index}", tuple(before), discover=NEAR)
        nodes.append(GatewayNode(world, Bus(world), options))
        nodes[-1].reach = None if shape == "mesh" else set(before)
    world.run(5)
    links = {"row": 2 * number - 2, "ring": 2 * number, "mesh": number * (number - 1)}[shape]
    assert sum(len(node.core.links) for node in nodes) == links
    return nodes


@pytest.mark.parametrize("shape", ["row", "ring", "mesh"])
def test_messages_cross_gateways_once(shape: str) -> None:
    world = World()
    nodes = gateways(world, 4, shape)
    robots = [Robot(world, "tcp:///") for _ in range(4)]
    for robot, node in zip(robots, nodes, strict=True):
        robot.dial(node)
    world.run(1)
    for robot in robots[1:]:
        robot.advert("INTEREST", ROUTE)
    nodes[3].bus.listens(CHANNEL)
    robots[0].advert("INTENT", ROUTE)
    world.run(5)
    assert ROUTE in robots[0].wanted
    for number in range(5):
        robots[0].send(ROUTE, b"%d" % number)
        world.run(1)
    sent = [b"%d" % number for number in range(5)]
    assert [robot.payloads for robot in robots] == [[], sent, sent, sent]
    assert nodes[3].bus.heard[CHANNEL] == [body(each) for each in sent]


@pytest.mark.parametrize("shape", ["ring", "mesh"])
def test_in_a_ring_what_is_taken_back_dies_out(shape: str) -> None:
    world = World()
    nodes = gateways(world, 4, shape)
    robot = Robot(world, "tcp:///")
    robot.dial(nodes[0])
    world.run(1)
    for kind in ("INTENT", "INTEREST"):
        robot.advert(kind, ROUTE)
    world.run(5)
    assert all(node.subscribed == both(CHANNEL) for node in nodes)
    for kind in ("INTENT", "INTEREST"):
        robot.advert(kind, ROUTE, on=False)
    world.run(30)
    assert [node.subscribed | node.watched for node in nodes] == [set()] * 4


def test_a_long_row_of_gateways_has_an_end() -> None:
    world = World()
    nodes = gateways(world, 11, "row")
    robot = Robot(world, "tcp:///")
    robot.dial(nodes[0])
    world.run(1)
    robot.advert("INTEREST", ROUTE)
    world.run(5)
    assert [bool(node.subscribed) for node in nodes] == [True] * 8 + [False] * 3


def test_two_gateways_of_one_bus_exchange_nothing() -> None:
    world = World()
    bus = Bus(world)
    one = GatewayNode(world, bus, Options("tcp://10.0.0.1:1/?bccn=a"))
    two = GatewayNode(world, bus, Options("tcp://10.0.0.2:1/?bccn=a", ("tcp://10.0.0.1:1/",)))
    world.run(3)
    assert one.closes[:1] == ["bus"]
    assert one.core.links == two.core.links == []


def test_two_links_to_one_bus_are_one_too_many() -> None:
    world = World()
    bus = Bus(world)
    GatewayNode(world, bus, Options("tcp://10.0.0.1:1/?bccn=a"))
    GatewayNode(world, bus, Options("tcp://10.0.0.2:1/?bccn=a"))
    peers = ("tcp://10.0.0.1:1/", "tcp://10.0.0.2:1/")
    third = GatewayNode(world, Bus(world), Options("tcp://10.0.0.3:1/?bccn=b", peers))
    world.run(5)
    assert len(third.core.links) == 1
    assert "bus" in third.closes


def test_gateways_that_dial_each_other_keep_one_link() -> None:
    world = World()
    one = GatewayNode(world, Bus(world), Options("tcp://10.0.0.1:1/?bccn=a", ("tcp://10.0.0.2:1/",)))
    world.places[("tcp", "10.0.0.2:1")] = two = GatewayNode(
        world, Bus(world), Options("tcp://10.0.0.2:1/?bccn=b", ("tcp://10.0.0.1:1/",))
    )
    world.run(120)
    assert len(one.core.links) == len(two.core.links) == 1
    assert one.core.links[0].dialled is not None
    assert len(one.dialled) + len(two.dialled) <= 4


def test_a_gateway_dials_peers_that_others_tell_of() -> None:
    world = World()
    nodes = gateways(world, 1)
    late = Robot(world, "tcp://10.0.1.9:1/")
    teller = Robot(world, "tcp://10.0.1.1:1/")
    teller.dial(nodes[0])
    world.run(1)
    teller.say("PEERS", [(1, b"tcp://10.0.1.9:1/"), (1, b"tcp://10.0.1.8:1/")])
    world.run(2)
    assert late.done
    assert any(message.ids == ["tcp://10.0.1.9:1/"] for _, message in teller.all if hasattr(message, "ids"))
    world.run(400)
    tried = [when for when, peer in nodes[0].dialled if "10.0.1.8" in peer]
    assert len(tried) == 10
    waits = [later - earlier for earlier, later in pairwise(tried)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(1.0)
    late.leave()
    world.run(0.05)
    assert any(message.remove for _, message in teller.all if hasattr(message, "remove"))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["intent", "interest", "drop intent", "drop interest", "send", "bus", "listen", "deaf", "off"]
        ),
        st.integers(0, 3),
        st.sampled_from([ROUTE, HASHED, "types.Foo@left arm"]),
    ),
    max_size=30,
)


def act(what: str, robot: Robot, node: GatewayNode, route: str, payload: bytes) -> None:
    channel = {ROUTE: CHANNEL, HASHED: HASH_CHANNEL}.get(route, "dndm/left%20arm/types.Foo")
    match what:
        case "send":
            robot.send(route, payload)
        case "bus":
            node.bus.publish(channel, body(payload))
        case "listen" | "deaf":
            node.bus.listens(channel, on=what == "listen")
        case "off" if robot.link is None:
            robot.dial(node)
        case "off":
            robot.leave()
        case _:
            robot.advert(what.split()[-1].upper(), route, on="drop" not in what)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.sampled_from(["row", "ring", "mesh"]))
def test_no_message_comes_twice_and_all_ends(steps: list[tuple[str, int, str]], shape: str) -> None:
    world = World()
    nodes = gateways(world, 3, shape)
    robots = [Robot(world, "tcp:///", bare=index == 3) for index in range(4)]
    for index, robot in enumerate(robots):
        robot.dial(nodes[index % 3])
    world.run(1)
    for number, (what, which, route) in enumerate(steps):
        act(what, robots[which], nodes[which % 3], route, b"%d" % number)
        world.run(0.005 * which)
    world.run(5)
    for robot in robots:
        assert len(set(robot.payloads)) == len(robot.payloads)
    for node in nodes:
        assert all(len(set(heard)) == len(heard) for heard in node.bus.heard.values())
    before = sum(node.sent for node in nodes)
    world.run(1)
    assert sum(node.sent for node in nodes) - before < 100
    for robot in robots:
        robot.leave()
    for node in nodes:
        for channel in list(node.bus.listeners):
            node.bus.listens(channel, on=False)
    world.run(65)
    assert [node.subscribed | node.watched for node in nodes] == [set()] * 3
