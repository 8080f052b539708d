"""What a hostile behaviour works with: connections, datagrams and children, all of which end with it.

Nothing here waits for the daemon longer than the attack lasts: a behaviour that is held up holds up nobody else.
A hostile client connects as NOBODY where the tests run as root, and as the user of the tests elsewhere.
"""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from struct import Struct

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, mortal
from tests.hostile.guests import POLITE, Guest, Hall, Talker, as_user
from tests.packet_client import PACKET_LIMIT, PacketClient
from tests.plain_bccn import plain_socket

NOBODY = 65534
_LENGTH = Struct(">I")
_TIMEVAL = Struct("ll")
# The longest PACK that the daemon reads (``clients/PROTOCOL.md``, "Limits").
PACK_LIMIT = 65536 + 1029


def pack(packets: Iterable[bytes], limit: int = PACK_LIMIT) -> bytes:
    """As many of the packets as fit one PACK."""
    made = bytearray(b"PACK ")
    for packet in packets:
        if len(made) + _LENGTH.size + len(packet) > limit:
            break
        made += _LENGTH.pack(len(packet)) + packet
    return bytes(made)


def packs(packets: Iterable[bytes], limit: int = PACK_LIMIT) -> Iterator[bytes]:
    """All of the packets, in as many PACKs as that takes."""
    made = bytearray(b"PACK ")
    for packet in packets:
        if len(made) + _LENGTH.size + len(packet) > limit:
            yield bytes(made)
            made = bytearray(b"PACK ")
        made += _LENGTH.pack(len(packet)) + packet
    yield bytes(made)


class HostileClient(PacketClient):
    """A connection that is rude: it sends only what goes at once, and throws away what it reads."""

    gone = False

    def __init__(self, path: Path) -> None:
        super().__init__(path, seconds=POLITE)
        # By the kernel's clock: with Python's even MSG_DONTWAIT waits.
        self.socket.settimeout(None)
        self.wait_at_most(POLITE)

    def wait_at_most(self, seconds: float) -> None:
        """A call of ``send`` or ``receive`` that takes longer raises BlockingIOError."""
        limit = _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6))
        for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, direction, limit)

    def offer(self, packet: bytes) -> bool:
        """Whether the daemon's socket took it. No error is one: the daemon may have closed the connection."""
        try:
            self.socket.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            self.gone = True
            return False
        return True

    def discard(self, most: int = 1000) -> int:
        """Read and forget up to so many packets; how many there were."""
        for count in range(most):
            try:
                if not self.socket.recv(PACKET_LIMIT, socket.MSG_DONTWAIT):
                    self.gone = True
                    return count
            except BlockingIOError:
                return count
            except OSError:
                self.gone = True
                return count
        return most

    def agree_to_packs(self) -> "HostileClient":
        self.request("pack", "on")
        return self


class Attack:
    """One behaviour while it runs, for ``seconds`` from the first time that it asks whether it is over."""

    def __init__(
        self, daemon: DaemonProcess, folder: Path, port: int, metrics_port: int, seconds: float
    ) -> None:
        self.daemon, self.folder = daemon, folder
        self.port, self.metrics_port = port, metrics_port
        self._seconds = seconds
        self._ends = 0.0
        self.closing = ExitStack()
        # What there is of a door.
        self.hall = Hall(folder)
        # The pid of the bystander's process.
        self.bystander = 0

    # -- time

    @property
    def goes_on(self) -> bool:
        now = time.monotonic()
        self._ends = self._ends or now + self._seconds
        return now < self._ends

    def rest(self) -> None:
        """Keep everything as it is until the attack is over."""
        while self.goes_on:
            time.sleep(0.01)

    # -- local clients

    def connect(self, *, uid: int | None = NOBODY) -> HostileClient:
        """While too many wait at the door, EAGAIN, it tries again."""
        until = time.monotonic() + POLITE
        while True:
            try:
                with as_user(uid):
                    client = HostileClient(self.daemon.socket)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.002)
            else:
                self.closing.callback(client.close)
                return client

    def connect_many(self, count: int, *, uid: int | None = NOBODY) -> list[HostileClient]:
        """Up to ``count``: the daemon may let fewer in."""
        clients = []
        for _ in range(count):
            with suppress(OSError):
                clients.append(self.connect(uid=uid))
        return clients

    def packing(self, *, uid: int | None = NOBODY) -> HostileClient:
        return self.connect(uid=uid).agree_to_packs()

    def repeat(
        self, clients: HostileClient | Sequence[HostileClient], *packets: bytes, reading: bool = True
    ) -> None:
        """Send these packets over and over, by each client in turn, as fast as the daemon takes them."""
        sending = [clients] if isinstance(clients, HostileClient) else list(clients)
        turns = [(client, cycle(packets)) for client in sending]
        waiting = [next(turn) for _, turn in turns]
        while self.goes_on and turns:
            moved = False
            for at, (client, turn) in enumerate(turns):
                moved |= bool(reading and client.discard())
                for _ in range(64):
                    if not client.offer(waiting[at]):
                        break
                    waiting[at] = next(turn)
                    moved = True
            if all(client.gone for client, _ in turns):
                return
            if not moved:
                time.sleep(0.001)

    def send_all(self, client: HostileClient, packets: Iterable[bytes], *, seconds: float = POLITE) -> None:
        """Each of the packets once, reading what comes meanwhile."""
        until = time.monotonic() + seconds
        for packet in packets:
            while not client.offer(packet) and not client.gone and time.monotonic() < until:
                client.discard()
                select.select([client.socket], [client.socket], [], 0.01)
            client.discard()

    # -- the segment

    def segment(self) -> socket.socket:
        return self.closing.enter_context(plain_socket(0))

    def flood(self, datagrams: Iterable[bytes], *, a_second: float = 1e9) -> None:
        """Send datagrams to the daemon's port until they or the attack end."""
        sender, begun = self.segment(), time.monotonic()
        for sent, datagram in enumerate(datagrams):
            if not self.goes_on:
                return
            while sent > (time.monotonic() - begun) * a_second and self.goes_on:
                time.sleep(0.001)
            with suppress(OSError):
                sender.sendto(datagram, (LOOPBACK_BROADCAST, self.port))

    def hear(self, datagrams: Iterable[bytes], *, a_second: float = 20_000) -> None:
        """Send all of these before the attack begins, so slowly that none is lost."""
        sender, begun = self.segment(), time.monotonic()
        for sent, datagram in enumerate(datagrams):
            while sent > (time.monotonic() - begun) * a_second + 200:
                time.sleep(0.001)
            sender.sendto(datagram, (LOOPBACK_BROADCAST, self.port))

    # -- the door

    def guest(self, begins: bytes = b"", *, uid: int | None = NOBODY) -> Guest:
        """By the door's file."""
        guest = Guest(self.hall.connected(uid), begins)
        self.closing.callback(guest.close)
        return guest

    def talker(self) -> Talker:
        talker = Talker(self.hall.connected(NOBODY))
        self.closing.callback(talker.close)
        return talker

    def far_guest(self, begins: bytes = b"") -> Guest:
        """By TCP, and no further."""
        guest = Guest(socket.create_connection(("127.0.0.1", self.hall.port), POLITE), begins)
        self.closing.callback(guest.close)
        return guest

    def pour(self, come: Callable[[], Guest], data: bytes, *, count: int = 1, reading: bool = True) -> None:
        """The same bytes over and over, by so many guests; whoever is thrown out comes again."""
        guests = [come() for _ in range(count)]
        while self.goes_on:
            moved = False
            for at, guest in enumerate(guests):
                moved |= bool(reading and guest.discard())
                moved |= guest.offer(data)
                if guest.gone:
                    guest.close()
                    guests[at] = come()
            if not moved:
                time.sleep(0.001)

    # -- processes and the metrics port

    def child(self, program: str, *arguments: object) -> "subprocess.Popen[bytes]":
        """A Python program of a few lines, which finds the socket's path in ``sys.argv[1]``."""
        command = [sys.executable, "-I", "-S", "-c", program, str(self.daemon.socket), *map(str, arguments)]
        started = subprocess.Popen(mortal(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.closing.callback(_end, started)
        return started

    def scrape(self) -> socket.socket:
        """A connection to the metrics port."""
        connection = socket.create_connection(("127.0.0.1", self.metrics_port), timeout=POLITE)
        self.closing.callback(connection.close)
        return connection


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
