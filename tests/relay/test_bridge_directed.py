"""What bridges bring and get that is directed: requests, replies and pings between segments."""

import pytest

from bccnd.relay.rights import AccessList, Grant
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Integrity, Level
from tests.relay.fakes import Bus
from tests.relay.segment import Segment, message_of

PLAIN = Integrity()


class Link:
    """Two segments, each of a host with a bridge, that carry to the other what is directed to it, and ``door/>``."""

    def __init__(self) -> None:
        hosts = (b"relay01", b"mon01")
        integrities = Integrity([b"1" * 32], Level.HMAC), Integrity([b"2" * 32], Level.HMAC)
        self.segments = [
            Segment(host, b"x" + host, integrity=each) for host, each in zip(hosts, integrities, strict=True)
        ]
        self.buses = [segment[host] for segment, host in zip(self.segments, hosts, strict=True)]
        self.bridges = [
            bus.connect(
                *(b"CMSG format\0full", b"CMSG pack\0on", b"CMSG echo/off", b"SUB door/>", b"SUB !>"),
                privileged=True,
            )
            for bus in self.buses
        ]

    def carry(self) -> None:
        """Until nothing is left to be carried. A link takes the sum of a segment off."""
        for _ in range(20):
            for segment, bridge, other in zip(self.segments, self.bridges, self.bridges[::-1], strict=True):
                segment.settle()
                shown = [sbus.Recv.parse(each[5:]) for each in bridge.heard() if each.startswith(b"RECV ")]
                bodies = [each.datagram[each.datagram.index(b"]") + 1 :] for each in shown]
                if bodies:
                    other.say(sbus.pack([PLAIN.seal(body) for body in bodies]))


def test_requests_and_replies_cross_two_segments():
    link = Link()
    door = link.segments[0][b"xrelay01"].connect(b"CMSG format\0full", b"SUB door/cmd", pid=4712)
    desk = link.segments[1][b"xmon01"].connect(b"CMSG listen", pid=8821)
    desk.say(b"MSG door/cmd\0token\nunlock")
    link.carry()
    (request,) = door.shown()
    message = message_of(request.datagram)
    assert (message.src, message.payload) == (b"xmon01/prog/8821", b"token\nunlock")
    door.say(b"MSG !%b\0token\nunlocked" % message.src)
    link.carry()
    assert desk.heard() == [b"MSG !xmon01/prog/8821\0token\nunlocked"]


@pytest.mark.parametrize("host", [b"relay01", b"xrelay01"])
def test_a_ping_crosses_two_segments(host: bytes):
    link = Link()
    desk = link.segments[1][b"xmon01"].connect(b"CMSG listen", pid=8821)
    desk.say(b"MSG !%b/bccnd\0token\nping" % host)
    link.carry()
    assert desk.heard() == [b"MSG !xmon01/prog/8821\0token\npong 1.2.3"]


def test_what_is_for_this_host_stays_here():
    link = Link()
    near = link.segments[0][b"relay01"].connect(b"CMSG listen", pid=7)
    link.segments[0][b"xrelay01"].connect(b"MSG !relay01/prog/7\0near", b"MSG !far/prog/1\0far")
    link.segments[0].settle()
    assert near.heard() == [b"MSG !relay01/prog/7\0near"]
    (shown,) = link.bridges[0].shown()
    assert message_of(shown.datagram).chan == b"!far/prog/1"


def test_only_a_bridge_gets_what_is_directed_to_others():
    bus = Bus()
    assert bus.connect().ask(b"SUB !>") == [
        b"CMSG error\0refused SUB !>: only a bridge gets what is directed to others"
    ]
    bridge = bus.connect(b"SUB !there/>", privileged=True)
    bus.access = AccessList([Grant(publish=(b">",), subscribe=(b">",))])
    bus.reconfigure()
    assert bridge.heard() == [b"CMSG revoked\0SUB !there/>"]
