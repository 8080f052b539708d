"""Messages of the kernel about its links: any bytes are events or the one error."""

import socket
import struct
from collections.abc import Iterable

from bccnd.net.netlink import Added, Address, Done, Link, NetlinkError, Removed, dump_links, parse

NEWLINK, DELLINK, NEWADDR, DELADDR, DONE = 16, 17, 20, 21, 3


def one_input(data: bytes) -> None:
    try:
        events = list(parse(data))
    except NetlinkError as error:
        assert str(error).isprintable()
        return
    assert len(events) * 16 <= len(data)  # each has a header of its own
    for event in events:
        assert isinstance(event, Added | Removed | Done)
        if isinstance(event, Done):
            continue
        if isinstance(event.what, Link):
            assert event.what.name
            assert event.what.name.isascii()
        else:
            assert isinstance(event.what, Address)
            assert event.what.broadcast is None or event.what.address.version == 4


def seeds() -> Iterable[bytes]:
    name = struct.pack("=HH8s", 12, 3, b"eth0\0")
    own = struct.pack("=HH4s", 8, 2, bytes((10, 0, 0, 5)))
    own6 = struct.pack("=HH16s", 20, 1, socket.inet_pton(socket.AF_INET6, "fe80::5"))
    link = struct.pack("=BxHiII", 0, 1, 4, 0x1043, 0) + name + struct.pack("=HHI", 8, 4, 1500)
    for kind, body in (
        (NEWLINK, link),
        (DELLINK, link),
        (NEWADDR, struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, 4) + own),
        (DELADDR, struct.pack("=BBBBI", socket.AF_INET6, 64, 0x40, 0, 4) + own6),
        (DONE, bytes(4)),
    ):
        yield struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body
    yield dump_links()
