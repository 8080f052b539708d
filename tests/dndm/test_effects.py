"""Each effect is wanted at some time in the life of a gateway."""

from typing import get_args

from bccnd.dndm.core import HANDSHAKE_SECONDS, Gateway
from bccnd.dndm.effects import Dial, Effect
from bccnd.dndm.options import Options
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.messages import encode, join
from bccnd.wire.dndm.peers import parse


def test_a_gateway_wants_each_effect() -> None:
    gateway, effects = Gateway(Options("tcp://10.0.0.1:1/", ("tcp://10.0.0.2:1/",))), list[Effect]()
    at = Moment(0.0, 5)
    gateway.tick(at)
    (dial,) = gateway.take()
    assert isinstance(dial, Dial)
    effects.append(dial)
    gateway.connected(1, "tcp", at, dial.peer)
    line = parse("serial:///dev/ttyS0/arm")
    gateway.connected(2, "serial", at, line)
    hello = pb.Handshake(me="tcp://10.0.0.2:1/", stage=pb.FINAL)
    hello.intents.add(route="T@a", register=True)
    hello.interests.add(route="U@a", register=True)
    for frame in (
        encode(hello, 1),
        join(pb.Header(type=pb.MESSAGE, route="T@a"), b"x"),
        encode(pb.Intent(route="T@a"), 1),
        encode(pb.Interest(route="U@a"), 1),
        b"no frame",
    ):
        gateway.received(1, frame, at)
    gateway.tick(Moment(HANDSHAKE_SECONDS, 6))
    effects += gateway.take()
    assert {type(effect) for effect in effects} == set(get_args(Effect))
    assert gateway.take() == []
