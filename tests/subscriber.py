"""A subscriber in a process of its own, which a test can stop and continue by signal.

    python -m tests.subscriber SOCKET on|off [QUEUE]

It subscribes to ``flow/>``, prints ``ready``, and reads until a message on ``flow/end`` or the end of the
connection. The messages of a channel are numbered from 0. It checks that every number comes, or is reported missing
where it is missing. A subscriber that misses some must follow one channel only, as a notice does not name it. At the
end it prints its results as one JSON object.
"""

import json
import subprocess
import sys
from pathlib import Path
from struct import Struct
from typing import Any

from tests.daemon_process import mortal
from tests.packet_client import PATIENCE, PacketClient

LENGTH = Struct(">I")
END = b"MSG flow/end"
SECONDS = 60.0  # without a packet until it gives up


class Subscriber:
    """The test's side: starts one, which is ready when this returns."""

    def __init__(self, socket: Path, *, pack: bool = False, queue: str = "policy=drop-oldest") -> None:
        command = [sys.executable, "-m", "tests.subscriber", str(socket), "on" if pack else "off", queue]
        self.process = subprocess.Popen(mortal(command), stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def result(self) -> dict[str, Any]:
        """What it has seen; waits for its end."""
        output, _ = self.process.communicate(timeout=PATIENCE)
        return dict(json.loads(output))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


def unpacked(packet: bytes) -> list[bytes]:
    if not packet.startswith(b"PACK "):
        return [packet]
    packets, at = [], 5
    while at < len(packet):
        size = LENGTH.unpack_from(packet, at)[0]
        packets.append(packet[at + 4 : at + 4 + size])
        at += 4 + size
    return packets


def follow(client: PacketClient) -> dict[str, Any]:
    received = lost = missing = 0
    following: dict[bytes, int] = {}
    wrong: list[str] = []
    closed = True
    while closed and (packet := client.receive()):
        for each in unpacked(packet):
            head, _, value = each.partition(b"\0")
            if head == b"CMSG dropped":
                lost += int(value)
                missing += int(value)
            elif head == END:
                closed = False
            elif head.startswith(b"MSG "):
                number = int(value.partition(b" ")[0])
                expected = following.get(head, 0) + missing
                if number != expected and len(wrong) < 5:
                    wrong.append(f"{number} in place of {expected}")
                following[head] = number + 1
                missing = 0
                received += 1
    return {"received": received, "lost": lost, "wrong": wrong, "closed": closed}


def main(path: str, pack: str, queue: str) -> None:
    with PacketClient(path, seconds=SECONDS) as client:
        client.request("pack", pack)
        client.request("queue", queue)
        client.subscribe("flow/>")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdout.write(json.dumps(follow(client)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
