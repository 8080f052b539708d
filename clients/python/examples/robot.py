"""A sensor on a serial line, a program that joins readings, and a dashboard: one bus, by bccnd-dndm.

The sensor is a board of DNDM; its line is a pseudo-terminal, whose name it prints. It measures only while somebody
listens. The others are programs of the bus: the route google.protobuf.DoubleValue@room.north is the channel
dndm/room/north/google.protobuf.DoubleValue here.

    python examples/robot.py sensor                  # prints serial:///dev/pts/5/room.north
    bccnd-dndm --dial serial:///dev/pts/5/room.north
    python examples/robot.py fusion &
    python examples/robot.py dashboard
"""

import math
import os
import pty
import select
import sys
import time
import tty

from google.protobuf.wrappers_pb2 import DoubleValue

import bccn
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import Reader
from bccnd.wire.dndm.messages import decode, encode, join

ROUTE = "google.protobuf.DoubleValue@room.north"
READINGS = "dndm/room/*/google.protobuf.DoubleValue"
MEAN = "dndm/house/mean/google.protobuf.DoubleValue"
# Seconds between two readings.
PAUSE = 0.1


class Sensor:
    """A board at the end of a serial line: what its firmware would do."""

    def __init__(self, line: int, me: str) -> None:
        self.line, self.me = line, me
        self.reader = Reader(noisy=True)
        self.wanted = False

    def run(self) -> None:
        while True:
            readable, _, _ = select.select([self.line], [], [], PAUSE)
            if readable:
                for frame in self.reader.feed(os.read(self.line, 4096)):
                    self.obey(*decode(frame))
            elif self.wanted:
                self.measure()

    def obey(self, header: pb.Header, message: object) -> None:
        match message:
            case pb.Handshake(stage=pb.INITIAL):
                self.say(pb.Handshake(me=self.me, you=message.me, stage=pb.FINAL))
                self.say(pb.Intent(route=ROUTE, ttl=60_000_000_000, register=True))
            case pb.Interest(route=route, register=register) if route == ROUTE:
                self.wanted = register
            case pb.Ping(payload=payload):
                self.say(pb.Pong(ping_timestamp=header.timestamp, payload=payload))

    def measure(self) -> None:
        degrees = DoubleValue(value=20 + math.sin(time.time()))
        header = pb.Header(type=pb.MESSAGE, timestamp=time.time_ns(), route=ROUTE)
        os.write(self.line, join(header, degrees.SerializeToString()))

    def say(self, message: pb.Handshake | pb.Intent | pb.Pong) -> None:
        os.write(self.line, encode(message, time.time_ns()))


def sensor() -> None:
    line, device = pty.openpty()
    tty.setraw(device)
    me = f"serial://{os.ttyname(device)}/room.north"
    print(me, flush=True)
    Sensor(line, me).run()


def fusion() -> None:
    """The mean of the last readings of each room goes out as one value."""
    newest: dict[str, float] = {}
    with bccn.Client(wait=10) as bus:
        bus.subscribe(READINGS)
        print(f"{bus.name} is ready", flush=True)
        for message in bus:
            newest[message.channel] = DoubleValue.FromString(message.payload).value
            mean = DoubleValue(value=sum(newest.values()) / len(newest))
            bus.publish(MEAN, mean.SerializeToString())


def dashboard() -> None:
    with bccn.Client(wait=10) as bus:
        bus.subscribe(MEAN)
        for message in bus:
            print(f"house: {DoubleValue.FromString(message.payload).value:.2f} degrees", flush=True)


if __name__ == "__main__":
    programs = {"sensor": sensor, "fusion": fusion, "dashboard": dashboard}
    if len(sys.argv) != 2 or sys.argv[1] not in programs:
        sys.exit("usage: robot.py sensor|fusion|dashboard")
    programs[sys.argv[1]]()
