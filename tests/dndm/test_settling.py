"""What follows from adverts is told to peers and to the bus in steps, so that nobody waits for long."""

from bccnd.dndm.core import EFFECTS
from bccnd.dndm.effects import Send
from bccnd.dndm.settling import STEP
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.messages import join
from tests.dndm.test_core import ME, ROUTE, One, intent, interest, told


def test_what_changes_and_changes_back_is_told_to_nobody() -> None:
    one = One()
    one.peer(1)
    flood = pb.Intents(intents=[intent("T@a", register=number % 2 == 0) for number in range(500)])
    assert one.hears(1, flood) == []


def test_a_burst_of_adverts_is_told_in_steps() -> None:
    one = One()
    for number in range(2, 42):
        one.peer(number)
    one.peer(1)
    effects = one.hears(1, pb.Intents(intents=[intent(f"T@a{number}") for number in range(200)]))
    told_of = [sum(isinstance(each, Send) for each in effects)]
    while one.core.due <= one.now and told_of[-1]:
        one.core.tick(one.at)
        told_of.append(sum(isinstance(each, Send) for each in one.core.take()))
    assert 0 <= sum(told_of) - 200 * 40 <= 41  # pings
    assert max(told_of) <= STEP + 2 * 41
    assert len(told_of) >= 8


def test_many_frames_at_once_are_worked_on_in_turns() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    for number in range(2, 42):
        one.peer(number, interests=[interest()])
    frames = [join(pb.Header(type=pb.MESSAGE, route=ROUTE, timestamp=n + 1), b"x") for n in range(200)]
    sent = [sum(isinstance(each, Send) for each in one.reads(1, b"".join(frames)))]
    assert one.core.busy(1)
    assert not one.core.busy(2)
    while one.core.busy(1):
        one.core.tick(one.at)
        sent.append(sum(isinstance(each, Send) for each in one.core.take()))
    assert 0 <= sum(sent) - 200 * 40 <= 41  # pings
    assert max(sent) <= EFFECTS + 42


def test_a_newcomer_is_told_many_routes_in_steps() -> None:
    one = One(routes=5000)
    one.peer(1)
    for n in range(8):
        one.now += 10.0
        one.hears(1, pb.Intents(intents=[intent(f"T@a{n}.{m}", ttl=0) for m in range(500)]))
        one.drain()
    one.open(2)
    effects = one.hears(2, pb.Handshake(me="tcp://10.0.1.2:1/", you=ME, stage=pb.INITIAL))
    said = told(effects, 2)
    assert len(effects) <= STEP + 100
    assert one.core.due <= one.now
    said += told(one.drain(), 2)
    final = said[0]
    assert isinstance(final, pb.Handshake)
    assert len(final.intents) + sum(isinstance(each, pb.Intent) for each in said) == 4000


def test_all_is_told_again_in_steps() -> None:
    one = One(routes=5000)
    for n in range(6):
        one.peer(n, interests=[interest(f"T@{n}.{m}", ttl=0) for m in range(500)])
        one.drain()
    one.now = 30.0
    again = []
    while one.core.due <= one.now:
        one.core.tick(one.at)
        again.append(sum(isinstance(each, Send) for each in one.core.take()))
    assert len(again) > 3
    assert max(again) < 100
