"""What follows from adverts for peers and for the bus."""

from bccnd.dndm.adverts import Advert
from bccnd.dndm.effects import Effect, Subscribe, Unsubscribe, Unwatch, Watch
from bccnd.dndm.link import Link
from bccnd.dndm.routing import Routing
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm.peers import parse as parse_peer
from bccnd.wire.dndm.routes import parse

ID, CHANNEL, TWIN = "T@a.b", "dndm/a/b/T", "local/dndm/a/b/T"
ROUTE = parse(ID)
HASH = "m1F+jLCmA+RQL1TkllbKW4cFj8I"


def link(number: int, path: str = "") -> Link:
    return Link(number, None, "tcp", 0.0, peer=parse_peer(f"tcp://10.0.0.{number}:1/{path}"))


def routing(*, intents: dict[int, str] | None = None, interests: dict[int, str] | None = None) -> Routing:
    one = Routing(8, Alarm())
    for adverts, given in ((one.intents, intents), (one.interests, interests)):
        for number, route in (given or {}).items():
            adverts.put(number, Advert(parse(route), 0, 0.0), 0.0)
    return one


def bus(one: Routing, route_id: str = ID) -> list[Effect]:
    return list(one.bus(route_id))


def test_the_bus_is_asked_once() -> None:
    one = routing(intents={1: ID, 2: ID}, interests={3: ID})
    assert bus(one) == [Watch(CHANNEL), Watch(TWIN), Subscribe(CHANNEL), Subscribe(TWIN)]
    assert bus(one) == []
    one.intents.drop_link(1)
    assert bus(one) == []
    one.intents.drop_link(2)
    one.interests.drop_link(3)
    assert bus(one) == [Unwatch(CHANNEL), Unwatch(TWIN), Unsubscribe(CHANNEL), Unsubscribe(TWIN)]
    assert one.listened(CHANNEL, True) is None


def test_each_form_of_a_hash_has_its_channel() -> None:
    one = routing(intents={1: HASH, 2: f"a#{HASH}"})
    assert bus(one, HASH) == [
        Watch("dndm/#/a/m1F-jLCmA-RQL1TkllbKW4cFj8I"),
        Watch("dndm/#/m1F-jLCmA-RQL1TkllbKW4cFj8I"),
        Watch("local/dndm/#/a/m1F-jLCmA-RQL1TkllbKW4cFj8I"),
        Watch("local/dndm/#/m1F-jLCmA-RQL1TkllbKW4cFj8I"),
    ]
    assert str(one.form(HASH, 1)) == HASH
    assert str(one.form(HASH, 3)) == f"a#{HASH}"


def test_a_route_too_long_for_the_bus_goes_to_peers_alone() -> None:
    long = "T@" + "a" * 1020
    one = routing(intents={1: long})
    assert bus(one, long) == []
    assert one.intent_for(link(2), long) == 1


def test_programs_that_listen_are_an_interest_without_hops() -> None:
    one = routing(intents={1: ID})
    bus(one)
    assert one.interest_for(link(1), ID, ROUTE) is None
    assert list(one.listening(ROUTE)) == [CHANNEL, TWIN]
    assert not one.is_wanted(ID)
    assert one.listened(CHANNEL, True) == ROUTE
    assert one.listened(CHANNEL, True) is None
    assert one.interest_for(link(1), ID, ROUTE) == 0
    assert one.listened(TWIN, False) == ROUTE
    assert one.interest_for(link(1), ID, ROUTE) == 0
    assert one.listened(CHANNEL, False) == ROUTE
    assert list(one.listening(ROUTE)) == []
    assert one.interest_for(link(1), ID, ROUTE) is None


def test_interests_go_to_who_may_publish() -> None:
    one = routing(interests={1: ID})
    assert one.interest_for(link(1), ID, ROUTE) is None
    assert one.interest_for(link(2), ID, ROUTE) == 1
    assert one.interest_for(link(3, "a"), ID, ROUTE) == 1
    assert one.interest_for(link(4, "c"), ID, ROUTE) is None
    one.intents.put(4, Advert(ROUTE, 0, 0.0), 0.0)
    assert one.interest_for(link(4, "c"), ID, ROUTE) == 1
    assert one.interest_for(Link(5, None, "tcp", 0.0), ID, ROUTE) is None


def test_who_is_interested_is_told_an_intent() -> None:
    one = routing(interests={1: ID}, intents={2: ID})
    assert [one.intent_for(link(number), ID) for number in (1, 2, 3)] == [0, None, 1]


def test_a_route_gives_way_where_the_bus_has_no_room() -> None:
    one = routing(interests={2: "T@b"})
    for route in ("T@a", "T@c"):
        one.interests.put(1, Advert(parse(route), 0, 0.0), 0.0)
        bus(one, route)
    bus(one, "T@b")
    giver, effects = one.crowded("subscribe", "local/dndm/b/T")
    assert giver == "T@c"
    assert effects == [
        Unsubscribe("dndm/c/T"),
        Unsubscribe("local/dndm/c/T"),
        Unsubscribe("dndm/b/T"),
        Unsubscribe("local/dndm/b/T"),
        Subscribe("dndm/b/T"),
        Subscribe("local/dndm/b/T"),
    ]
    assert one.waiting("subscribe") == 1
    assert one.crowded("subscribe", "dndm/c/T") == ("", [])
    one.interests.put(2, Advert(parse("T@d"), 0, 0.0), 0.0)
    bus(one, "T@d")
    assert len(one.crowded("subscribe", "dndm/d/T")[1]) == 2
    one.interests.drop_link(1)  # its T@c waits first, and is wanted no more
    assert bus(one, "T@a")[2:] == [Subscribe("dndm/d/T"), Subscribe("local/dndm/d/T")]
    assert one.waiting("subscribe") == 0


def test_an_intent_that_gives_way_counts_as_listened_to() -> None:
    one = routing(intents={2: "T@b"})
    for route in ("T@a", "T@c"):
        one.intents.put(1, Advert(parse(route), 0, 0.0), 0.0)
        bus(one, route)
    bus(one, "T@b")
    for channel in ("dndm/c/T", "local/dndm/c/T"):
        one.listened(channel, False)
    assert one.interest_for(link(1), "T@c", parse("T@c")) is None
    giver, effects = one.crowded("watch", "dndm/b/T")
    assert (giver, effects[:2]) == ("T@c", [Unwatch("dndm/c/T"), Unwatch("local/dndm/c/T")])
    assert one.interest_for(link(1), "T@c", parse("T@c")) == 0
    assert len(list(one.listening(parse("T@c")))) == 2
    one.intents.drop_link(2)
    assert bus(one, "T@b")[2:] == [Watch("dndm/c/T"), Watch("local/dndm/c/T")]
    assert one.interest_for(link(1), "T@c", parse("T@c")) is None  # until the bus has said so
