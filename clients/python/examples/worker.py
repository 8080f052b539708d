"""A worker: it replies to requests on jobs/upper with the text in capitals, and counts them in its heartbeat.

It stops when a program sends it "stop".

    python examples/worker.py &
    bccn req jobs/upper 'hello there'
"""

import select
import sys

import bccn


class Worker:
    def __init__(self, bus: bccn.Client) -> None:
        self.bus = bus
        self.done = 0
        self.stopped = False
        bus.serve("jobs/upper", self.upper)
        bus.listen(self.obey)
        bus.heartbeat(5, "ready")

    def upper(self, request: bccn.Request) -> bytes:
        self.done += 1
        return request.payload.upper()

    def obey(self, message: bccn.Message) -> None:
        if message.payload == b"stop":
            self.stopped = True

    def run(self) -> None:
        """Any loop around select, poll or epoll will do, and may wait for other descriptors, too."""
        reported = 0
        while not self.stopped:
            select.select([self.bus], [], [])
            self.bus.dispatch()
            if reported < self.done:
                reported = self.done
                self.bus.heartbeat(5, f"{reported} done")


def main() -> None:
    address = sys.argv[1] if len(sys.argv) > 1 else None
    with bccn.Client(address, format="full", wait=10) as bus:  # full: it says where a request comes from
        worker = Worker(bus)
        print(f"{bus.name} is ready", flush=True)
        worker.run()
    print(f"{worker.done} done")


if __name__ == "__main__":
    main()
