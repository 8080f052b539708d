"""Subscribers of a backbone that have vanished from its own link, where nobody answers for their addresses."""

import fcntl
import socket
import struct
import termios
from select import select

from bccnd.backbone.outlet import Outlet, open_socket
from tests.hosts.segment import Segment
from tests.packet_client import PATIENCE, wait_until

PORT = 4900
BUFFER = 4 << 20
# Bytes that the kernel keeps for an address of which it does not know the hardware (``unres_qlen_bytes``), with those
# of the last datagram.
KEPT = 212_992 + 4096
VANISHED, ROUNDS, BATCH, PACKET = 20, 30, 8, bytes(1300)


def waiting(outlet: Outlet) -> int:
    """Bytes in its send buffer."""
    found: tuple[int] = struct.unpack("i", fcntl.ioctl(outlet.socket.fileno(), termios.TIOCOUTQ, bytes(4)))
    return found[0]


def test_who_vanishes_from_the_link_costs_others_nothing(shared_segment: Segment):
    alpha, beta, _ = shared_segment.hosts
    outlet = Outlet(alpha.make(lambda: open_socket((alpha.address, PORT), BUFFER)))
    program = beta.make(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with program:
        program.bind((beta.address, 0))
        program.settimeout(PATIENCE)
        there = socket.inet_aton(beta.address), program.getsockname()[1]
        vanished = [(socket.inet_aton(f"10.99.0.{100 + number}"), PORT) for number in range(VANISHED)]
        most = 0
        for _ in range(ROUNDS):
            for _ in range(BATCH):
                program.sendto(PACKET, (alpha.address, PORT))
            read = 0
            while read < BATCH:
                wait_until(lambda: bool(select([outlet.socket], [], [], 0)[0]), "the packets")
                starts, ends = outlet.read()
                outlet.deliver(starts, ends, [*vanished, there], 1)
                read += len(starts)
            assert [program.recv(2000) for _ in range(BATCH)] == [PACKET] * BATCH
            most = max(most, waiting(outlet))
        assert not outlet.pending
        assert KEPT < most <= VANISHED * KEPT
    outlet.close()
