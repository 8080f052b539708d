"""A real backbone in a process of its own, and a plain client of it, which shares no code with it."""

import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.daemon_process import ServiceProcess, runs
from tests.packet_client import PATIENCE, wait_until
from tests.plain_bccn import free_port

# A test may be slow, and may be stopped in the middle: no subscriber leaves meanwhile, and no hand-over is given up.
LAUNCHER = """\
import sys, bccnd.backbone.leases, bccnd.restart
bccnd.backbone.leases.LEASE_SECONDS = 600.0
bccnd.restart.HANDOVER_SECONDS = 30.0
from bccnd.backbone.command import main
sys.exit(main())
"""
TOKEN = b"sixteen bytes..."


class BackboneProcess(ServiceProcess):
    """``bccnd-backbone`` at ``address``, with its log, and its state unless there is a --config, in `folder`."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] = {},
    ) -> None:
        self.address = host, free_port()
        self.state = folder / "sequence"
        here = ["--listen", "{}:{}".format(*self.address), "--state", str(self.state)]
        command = [*prefix, sys.executable, "-c", LAUNCHER, *here, "--log-format", "json", *flags]
        super().__init__(command, folder / "backbone.log", environ)

    @property
    def pid(self) -> int:
        """Of the process that serves."""
        return [self.process.pid, *(line["by"] for line in self.logged("replaced"))][-1]

    def replace(self) -> None:
        """SIGUSR2. Returns once another process serves, and this one has left."""
        old, serving = self.pid, len(self.logged("serving"))
        os.kill(old, signal.SIGUSR2)
        if old == self.process.pid:
            assert self.process.wait(PATIENCE) == 0
        wait_until(lambda: self.pid != old and not runs(old), "a successor")
        wait_until(lambda: len(self.logged("serving")) > serving, "a successor that serves")

    def __exit__(self, kind: object, *rest: object) -> None:
        if (pid := self.pid) != self.process.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not runs(pid), "the end of the successor")
        super().__exit__(kind, *rest)


class PlainClient:
    """All six packets, by the document alone."""

    def __init__(self, backbone: tuple[str, int], host: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 0))
        self.socket.settimeout(PATIENCE)
        self.backbone = backbone
        self.kept: dict[int, bytes] = {}

    def keepalive(self, flags: int = 0, addr: str = "0.0.0.0", port: int = 0) -> None:  # noqa: S104 - its own
        packet = struct.pack("!B4sHHI16s", 0x10, socket.inet_aton(addr), port, 0, flags, TOKEN)
        self.socket.sendto(packet, self.backbone)
        assert self.receive() == (0x20, TOKEN)

    def push(self, data: bytes) -> None:
        self.socket.sendto(struct.pack("!BH6x", 2, len(data)) + data, self.backbone)

    def request(self, first: int, last: int) -> None:
        numbers = first.to_bytes(6, "big") + last.to_bytes(6, "big")
        self.socket.sendto(struct.pack("!B6x", 4) + numbers, self.backbone)

    def receive(self) -> tuple[int, bytes]:
        """The kind of the next packet and the rest of it. A FORWARD is obeyed."""
        packet = self.socket.recv(65_536)
        if packet[0] == 1:
            self.kept[int.from_bytes(packet[3:9], "big")] = packet
        elif packet[0] == 8:
            where = socket.inet_ntoa(packet[1:5]), int.from_bytes(packet[5:7], "big")
            first, last = int.from_bytes(packet[7:13], "big"), int.from_bytes(packet[13:], "big")
            for seq in range(first, last + 1):
                if seq in self.kept:
                    self.socket.sendto(self.kept[seq], where)
        return packet[0], packet[1:]

    def message(self) -> tuple[int, bytes]:
        """The next DELIVER: its number and its data."""
        kind, rest = self.receive()
        assert kind == 1, (kind, rest)
        assert int.from_bytes(rest[:2], "big") == len(rest) - 8
        return int.from_bytes(rest[2:8], "big"), rest[8:]


@contextmanager
def client(backbone: BackboneProcess, host: str = "127.0.0.1") -> Iterator[PlainClient]:
    made = PlainClient(backbone.address, host)
    with made.socket:
        yield made
