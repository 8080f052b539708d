"""What the parts of the gateway share."""

from bccnd.dndm.effects import Send
from bccnd.dndm.link import Link
from bccnd.dndm.options import Options
from bccnd.dndm.state import State
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import parse
from bccnd.wire.dndm.messages import decode


def test_what_is_told_waits_for_the_link() -> None:
    state = State(Options("tcp://a:1/"))
    link = Link(3, None, "tcp", 0.0)
    state.tell(link, pb.Ping(payload=b"x"), Moment(1.0, 5))
    (sent,) = state.effects
    assert isinstance(sent, Send)
    assert sent.link == 3
    assert link.backlog == len(sent.data)
    header, message = decode(parse(sent.data))
    assert (header.timestamp, message) == (5, pb.Ping(payload=b"x"))
