"""What the relay makes of packets and datagrams, one rule at a time (``test_interleaving``: all at once)."""

import pytest

from bccnd.relay.core import Limits
from bccnd.wire import sbus
from tests.relay.fakes import Bus, datagram

# Own datagrams come back


@pytest.mark.parametrize("reorder", [0, 50])
@pytest.mark.parametrize("end", ["stays", "leaves", "renames", "returns"])
def test_own_datagrams_that_come_back_are_not_delivered_again(end: str, reorder: int):
    """Not even thousands of them, from a client that published in a hurry and left."""
    bus = Bus(limits=Limits(reorder=reorder))
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"CMSG pack\0on", pid=7)
    publisher.say(sbus.pack([b"MSG demo/a\0%d" % number for number in range(3000)]))
    assert len(listener.heard()) == len(bus.sent) == 3000
    if end == "renames":
        publisher.say(b"CMSG name\0here/prog/7/worker")
    elif end != "stays":
        publisher.leave()
    if end == "returns":
        bus.connect(pid=7)
    bus.hear(*bus.sent, *bus.sent[-10:])
    assert listener.heard() == []
    assert set(bus.relay.rejected) == {"own" if end in ("stays", "returns") else "duplicate"}
    assert bus.relay.rejected.total() == 3010


def test_a_name_that_a_client_gave_up_may_be_taken_by_another_host():
    bus = Bus()
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"MSG demo/a\0here", pid=7)
    publisher.leave()
    listener.heard()
    bus.hear(datagram(b"here/prog/7", 1, b"demo/a", b"there"))
    assert listener.heard() == [b"MSG demo/a\0there"]
