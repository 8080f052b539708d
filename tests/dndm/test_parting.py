"""When the gateway stops, peers are told so in steps, and those that do not read hold up nobody."""

from collections import Counter

from bccnd.dndm.effects import Send
from bccnd.dndm.parting import FULL_BYTES, STEP
from bccnd.wire.dndm import messages_pb2 as pb
from tests.dndm.test_core import ME, One, interest, told

LINKS, ROUTES = 12, 200


def crowd() -> One:
    """Peers that have been told of the interests of all of them."""
    one = One(routes=5000)
    for number in range(1, 1 + LINKS):
        me = f"udp://10.0.1.{number}:5/"
        one.open(number, scheme="udp", dialled=me)
        interests = [interest(f"T@a{number}.{n}", ttl=0) for n in range(ROUTES)]
        one.hears(number, pb.Handshake(me=me, you=ME, stage=pb.FINAL, interests=interests))
        one.drain()
    return one


def parted(one: One, *readers: int) -> list[list[Send]]:
    """The messages of each step of a farewell, which these links take at once."""
    taken = []
    one.core.farewell(one.at)
    while True:
        taken.append([each for each in one.core.take() if isinstance(each, Send)])
        for number in readers:
            one.core.backlog(number, 0, one.at)
        if one.core.due > one.now:
            return taken
        one.core.tick(one.at)


def test_many_peers_are_told_the_end_in_steps() -> None:
    one = crowd()
    taken = parted(one, *range(1, 1 + LINKS))
    assert len(taken) > LINKS
    assert max(map(len, taken)) <= STEP
    sent = [each for step in taken for each in step]
    for number in range(1, 1 + LINKS):
        ended = []
        for message in told(sent, number):
            assert isinstance(message, pb.Intents | pb.Interests)
            ended += [*(message.intents if isinstance(message, pb.Intents) else message.interests)]
        assert len(ended) == LINKS * ROUTES
        assert not any(each.register for each in ended)
        assert not one.core.parts(number)


def test_who_does_not_read_holds_nobody_up() -> None:
    one = crowd()
    one.core.backlog(1, FULL_BYTES + 1, one.at)
    taken = parted(one, *range(2, 1 + LINKS))
    sent = Counter(each.link for step in taken for each in step)
    assert sent[1] <= 1
    assert len({sent[number] for number in range(2, 1 + LINKS)}) == 1
    assert [one.core.parts(number) for number in (1, 2)] == [True, False]
    one.core.backlog(1, 0, one.at)
    assert one.core.due <= one.now
    one.core.closed(1, one.at)
    assert not one.core.parts(1)
