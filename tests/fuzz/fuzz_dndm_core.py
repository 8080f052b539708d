"""A gateway, three links and a bus that say anything in any order: nothing raises, nothing grows beyond its bounds.

Each step is a byte for what happens and one for whom; a frame of a link is made of a message of the vectors or of any
bytes.
"""

from collections.abc import Iterable

from bccnd.dndm.asking import Kind
from bccnd.dndm.core import Gateway
from bccnd.dndm.effects import Close, Effect, Send, Subscribe, Unsubscribe, Unwatch, Watch
from bccnd.dndm.options import Options
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import Frame
from bccnd.wire.dndm.frame import parse as frame_of
from bccnd.wire.dndm.messages import decode, encode, join
from tests.fuzz.fuzzer import Script
from tests.golden import entries

FRAMES = [bytes.fromhex(entry["frame"]) for entry in entries("dndm", "messages")]
ROUTES = [entry["route"] for entry in entries("dndm", "routes")]
CHANNELS = [entry["channel"] for entry in entries("dndm", "routes")]
KINDS = [pb.Intent, pb.Interest]
ASKED: tuple[Kind, ...] = "subscribe", "watch"
LIMIT = 4


def one_input(data: bytes) -> None:
    script = Script(data)
    gateway = Gateway(
        Options(
            "tcp://10.0.0.1:1/?bccn=a", ("tcp://10.0.0.9:1/",), strict=bool(script.number(2)), routes=LIMIT
        )
    )
    now, asked = 0.0, set[tuple[str, str]]()
    while script:
        step(gateway, script, Moment(now, int(now * 1e9) + 1))
        follow(gateway.take(), asked)
        now += script.number(16)
        if gateway.due <= now:
            gateway.tick(Moment(now, int(now * 1e9) + 1))
            follow(gateway.take(), asked)
        assert len(gateway.links) <= 3
        assert len(asked) <= 2 * 3 * 2 * LIMIT  # with their twins
        assert all(max(len(link.intents), len(link.interests)) <= 3 * 2 * LIMIT for link in gateway.links)
    for number in (1, 2, 3):
        gateway.closed(number, Moment(now, 1))
    while gateway.due < 0:  # there is more to do of what has happened
        gateway.tick(Moment(now, 1))
    follow(gateway.take(), asked)
    assert not asked
    assert not gateway.links


def step(gateway: Gateway, script: Script, at: Moment) -> None:
    number, what = script.number(3) + 1, script.number(11)
    route = ROUTES[script.number(len(ROUTES))]
    match what:
        case 0:
            if number not in [link.number for link in gateway.links]:
                gateway.connected(number, "serial" if number == 3 else "tcp", at)
        case 1:
            me = (
                f"serial:///dev/ttyS{script.number(2)}/a"
                if number == 3
                else f"tcp://10.0.1.{script.number(4)}:1/"
            )
            stage = pb.Stage.Name(script.number(4))
            gateway.received(number, encode(pb.Handshake(me=me, you="tcp://10.0.0.1:1/", stage=stage), 1), at)
        case 2:
            advert = KINDS[script.number(2)](
                route=route,
                hops=script.number(10),
                ttl=script.number(3) * 10**9,
                register=script.number(4) > 0,
            )
            gateway.received(number, encode(advert, 1), at)
        case 3:
            header = pb.Header(type=pb.MESSAGE, route=route, timestamp=script.number(4), want_result=True)
            gateway.received(number, join(header, script.chunk()), at)
        case 4:
            gateway.received(number, FRAMES[script.number(len(FRAMES))], at)
        case 5:
            gateway.received(number, Frame(script.chunk(), script.chunk()).serialize(), at)
        case 6:
            gateway.listened(CHANNELS[script.number(len(CHANNELS))], script.number(2) > 0, at)
        case 7:
            gateway.came(CHANNELS[script.number(len(CHANNELS))], script.chunk(), at)
        case 8:
            gateway.crowded(ASKED[script.number(2)], CHANNELS[script.number(len(CHANNELS))], at)
        case 9:
            gateway.roomy()
        case _:
            gateway.closed(number, at)


def follow(effects: list[Effect], asked: set[tuple[str, str]]) -> None:
    """What is asked of the bus is asked once and taken back once; what is sent is sound, to nobody who is gone."""
    gone = set()
    for effect in effects:
        match effect:
            case Send(link, data):
                assert link not in gone
                decode(frame_of(data))
            case Close(link, _):
                gone.add(link)
            case Watch(channel) | Subscribe(channel):
                assert (type(effect).__name__, channel) not in asked
                asked.add((type(effect).__name__, channel))
            case Unwatch(channel):
                asked.remove(("Watch", channel))
            case Unsubscribe(channel):
                asked.remove(("Subscribe", channel))
            case _:
                pass


def seeds() -> Iterable[bytes]:
    hello = bytes([0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 2, 0])
    yield b"\0" + hello
    yield b"\1" + hello + bytes([0, 2, 0, 0, 0, 1, 1, 0, 0, 6, 0, 0, 1, 1])
    for number in range(11):
        yield b"\0" + hello + bytes([0, number, 1, 1, 0, 2, 3, 1, 2, 1, 1, 2, 3, 4])
