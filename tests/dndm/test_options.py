"""What is set where nothing is said."""

from bccnd.dndm.options import Options
from bccnd.wire.bccn1 import SEND_LIMIT, SRC_LIMIT, Integrity, Level
from bccnd.wire.dndm.frame import FRAME_LIMIT
from bccnd.wire.dndm.routes import parse


def test_the_longest_payload_fits_a_signed_datagram() -> None:
    channel = parse("types.core.Image@building.floor.camera.front").channel()
    header = b"s" * SRC_LIMIT + b":18446744073709551615:" + channel.encode() + b"|"
    seal = Integrity([b"k" * 16], Level.HMAC).seal
    payload = bytes(Options("tcp://a:1/").room - len(channel))
    assert len(seal(header + payload)) <= SEND_LIMIT


def test_a_whole_frame_may_wait_for_a_peer() -> None:
    """One that is longer goes as well, where nothing else waits."""
    options = Options("tcp://a:1/")
    assert options.backlog * 8 > FRAME_LIMIT > options.backlog
