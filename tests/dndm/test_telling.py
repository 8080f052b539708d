"""What peers are told: changes alone, in short messages."""

from bccnd.dndm.link import Link, Told
from bccnd.dndm.telling import (
    BATCH_BYTES,
    TTL_NS,
    advert,
    as_told,
    change,
    farewell,
    intents_again,
    interests_again,
    peers_messages,
)
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.peers import parse
from bccnd.wire.dndm.routes import Plain, Route
from bccnd.wire.dndm.routes import parse as route_of

ROUTE = Plain("T", "a")
HASH = "m1F+jLCmA+RQL1TkllbKW4cFj8I"


def test_only_what_differs_is_told() -> None:
    told: dict[str, Told] = {}

    def say(route: Route | None, hops: int | None) -> pb.Intent | pb.Interest | None:
        return change(pb.Intent, told, "T@a", route, hops, 5.0)

    assert say(ROUTE, None) is None
    assert say(None, 1) is None
    assert say(ROUTE, 1) == pb.Intent(route="T@a", hops=1, ttl=TTL_NS, register=True)
    assert say(ROUTE, 1) is None
    assert say(ROUTE, 0) == pb.Intent(route="T@a", ttl=TTL_NS, register=True)
    assert told["T@a"] == Told(ROUTE, 0, 5.0)
    assert say(None, None) == pb.Intent(route="T@a")
    assert told == {}


def test_a_bare_hash_is_told_so_that_public_peers_take_it() -> None:
    assert as_told(route_of(HASH)) == f"#{HASH}"
    assert as_told(route_of(f"a#{HASH}")) == f"a#{HASH}"
    assert route_of(as_told(route_of(HASH))).id == HASH


def test_all_is_told_again_in_short_messages() -> None:
    told = {str(number): Told(Plain("T", f"path.{number}"), number % 3, 0.0) for number in range(200)}
    intents, interests = list(intents_again(told)), list(interests_again(told))
    assert [each for batch in intents for each in batch.intents] == [
        advert(pb.Intent, each) for each in told.values()
    ]
    assert [each for batch in interests for each in batch.interests] == [
        advert(pb.Interest, each) for each in told.values()
    ]
    assert all(batch.ByteSize() <= BATCH_BYTES for batch in (*intents, *interests))
    assert len(intents) < 20
    assert list(intents_again({})) == []


def test_a_farewell_takes_all_back_in_short_messages() -> None:
    told = {str(number): Told(Plain("T", f"path.{number}"), 0, 0.0) for number in range(200)}
    batches = list(farewell(told, {"T@a": Told(ROUTE, 1, 0.0)}))
    taken_back = [each for batch in batches if isinstance(batch, pb.Intents) for each in batch.intents]
    assert taken_back == [pb.Intent(route=f"T@path.{number}") for number in range(200)]
    assert batches[-1] == pb.Interests(interests=[pb.Interest(route="T@a")])
    assert all(batch.ByteSize() <= BATCH_BYTES for batch in batches)


def test_what_is_taken_back_meanwhile_is_not_told_again() -> None:
    told = {str(number): Told(Plain("T", f"path.{number}"), 0, 0.0) for number in range(200)}
    said = []
    for batch in intents_again(told):
        said += [each.route for each in batch.intents]
        told.clear()
    assert 0 < len(said) < 100


def test_news_of_peers_is_told_once_and_taken_back_once() -> None:
    link = Link(1, None, "tcp", 0.0, peer=parse("tcp://10.0.0.1:1/"))
    others = [parse(f"tcp://10.0.0.{number}:1/") for number in (1, 2, 3)] + [parse("tcp:///x")]
    assert list(peers_messages(link, others[1:2], remove=True)) == []
    assert list(peers_messages(link, others, remove=False)) == [
        pb.Peers(ids=[str(others[1]), str(others[2])])
    ]
    assert list(peers_messages(link, others, remove=False)) == []
    assert list(peers_messages(link, others[1:2], remove=True)) == [
        pb.Peers(ids=[str(others[1])], remove=True)
    ]
    assert list(peers_messages(link, others[1:2], remove=True)) == []
    assert set(link.shared) == {others[2].place}


def test_news_of_many_peers_comes_in_short_messages() -> None:
    link = Link(1, None, "tcp", 0.0, peer=parse("tcp://10.0.0.1:1/"))
    others = [parse(f"tcp://10.1.0.1:{number}/{'path' * 20}") for number in range(1, 64)]
    messages = list(peers_messages(link, others, remove=False))
    assert [text for message in messages for text in message.ids] == [str(each) for each in others]
    assert all(message.ByteSize() <= BATCH_BYTES for message in messages)
