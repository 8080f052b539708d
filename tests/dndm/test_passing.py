"""Where messages go: in general by what the core's tests say, here of links to all who hear them."""

from bccnd.dndm.core import FAULTS_LIMIT, GREETING_SECONDS
from bccnd.dndm.effects import Publish, Send, Subscribe, Watch
from bccnd.dndm.settling import REFRESH_SECONDS
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.peers import parse
from tests.dndm.test_core import CHANNEL, ROUTE, TWIN, One, closes, intent, interest, told

ALL = "udp://10.0.0.255:9/"


def broadcasting(**options: object) -> One:
    one = One(**options)
    one.core.connected(9, "udp", one.at, parse(ALL), broadcast=True)
    (hello,) = told(one.core.take(), 9)
    assert isinstance(hello, pb.Handshake)
    assert (hello.stage, hello.me) == (pb.INITIAL, "udp://10.0.0.255:9/?bccn=a")
    return one


def test_a_message_wanted_by_many_there_is_sent_once() -> None:
    one = broadcasting()
    one.peer(1, intents=[intent()])
    for _ in range(3):
        one.hears(9, interest(ttl=10**9))
    effects = one.hears(1, b"x", route=ROUTE)
    assert [each.link for each in effects if isinstance(each, Send)] == [9]


def test_what_comes_there_goes_to_the_bus_and_to_peers() -> None:
    one = broadcasting()
    assert Watch(CHANNEL) in one.hears(9, intent())
    one.peer(1, interests=[interest()])
    effects = one.hears(9, b"x", route=ROUTE)
    assert [each.channel for each in effects if isinstance(each, Publish)] == [CHANNEL, TWIN]
    assert [each.link for each in effects if isinstance(each, Send)] == [1]


def test_only_what_somebody_wants_is_wanted() -> None:
    one = broadcasting()
    assert not one.core.wants(9, ROUTE)
    assert not one.core.wants(9, "nonsense")
    one.hears(9, intent())
    assert one.core.wants(9, ROUTE)  # the bus has not said yet
    for channel in CHANNEL, TWIN:
        one.core.listened(channel, False, one.at)
    assert not one.core.wants(9, ROUTE)
    one.hears(9, interest())
    assert not one.core.wants(9, ROUTE)  # those who want it there have heard it
    one.peer(1, interests=[interest()])
    assert one.core.wants(9, ROUTE)


def test_nobody_there_is_pinged_told_of_peers_or_let_go() -> None:
    one = broadcasting()
    one.peer(1)
    assert told(one.core.take(), 9) == []
    for message in (pb.Ping(payload=bytes(16)), pb.Peers(ids=["tcp://10.9.9.9:1/"]), pb.Intent(route="?")):
        for _ in range(FAULTS_LIMIT):
            effects = one.hears(9, message, want_result=True)
            assert (closes(effects), told(effects, 9)) == ([], [])
    one.now = 3 * REFRESH_SECONDS
    effects = one.drain()
    assert [type(each) for each in told(effects, 9)] == [pb.Handshake]


def test_what_one_there_takes_back_others_may_still_say() -> None:
    one = broadcasting()
    assert Subscribe(CHANNEL) in one.hears(9, interest(ttl=5 * 10**9))
    assert one.hears(9, interest(register=False)) == []
    one.now = 5.0
    assert one.drain() != []
    assert one.hears(9, b"x", route="U@a") != []


def test_one_there_that_sets_no_time_has_a_minute() -> None:
    one = broadcasting()
    one.hears(9, interest())
    one.now = 59.0
    one.drain()
    assert one.core.adverts == (0, 1)
    one.now = 61.0
    one.drain()
    assert one.core.adverts == (0, 0)


def test_a_newcomer_there_is_soon_told_all_and_answers_end_it() -> None:
    one = broadcasting()
    one.peer(1, intents=[intent()])
    one.drain()
    one.now = 5.0
    one.drain()
    for _ in range(3):
        one.hears(9, pb.Handshake(me="udp://10.0.0.7:9/", stage=pb.FINAL))
    assert told(one.drain(), 9) == []
    heard = []
    for _ in range(3):
        one.hears(9, pb.Handshake(me="udp://10.0.0.7:9/", stage=pb.INITIAL))
        heard += told(one.drain(), 9)
    hello, adverts = heard
    assert isinstance(hello, pb.Handshake)
    assert hello.stage == pb.FINAL
    assert isinstance(adverts, pb.Intents)
    one.now += GREETING_SECONDS
    assert len(told(one.drain(), 9)) == 2
    one.now += REFRESH_SECONDS - GREETING_SECONDS
    assert told(one.drain(), 9) == []
