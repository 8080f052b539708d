"""What comes from the bus until a deadline, and writing without losing any of it."""

import os
import select
import signal
import time
from collections.abc import Iterator

import bccn

STDOUT = 1
LONGEST_WAIT = 86400  # seconds; poll(2) counts milliseconds in an int


def batches(bus: bccn.Client, deadline: float | None) -> Iterator[list[bccn.Message]]:
    """What has come, each time that something has; ends at the deadline (monotonic seconds), None for never.

    When the reader of our output leaves, the process ends as any filter does.
    """
    poll = select.poll()
    poll.register(bus.fileno(), select.POLLIN)
    poll.register(STDOUT, 0)  # errors only: the reader of a pipe has left
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        ready = poll.poll(None if left is None else min(max(0.0, left), LONGEST_WAIT) * 1000)
        if any(fd == STDOUT for fd, _ in ready):
            os.kill(os.getpid(), signal.SIGPIPE)
        yield bus.dispatch()
        if left is not None and left <= 0:  # what had come by then has been given above
            return


def write(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # a terminal or pipe shared with a program that set it so
            select.select([], [fd], [])
