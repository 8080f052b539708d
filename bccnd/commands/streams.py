"""Reading: from the bus until a deadline, from files and stdin with errors that say which it was."""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import bccn
from bccnd.process.standard_streams import STDOUT

# Seconds. poll(2) counts milliseconds in an int.
LONGEST_WAIT = 86400
# Messages in a batch: in a flood, too, the reader sees some.
BATCH = 1024


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Give the errors of reading a file the name of it, which only those of opening it have."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None


def end_without_reader() -> None:
    """As any filter ends whose output nobody reads."""
    os.kill(os.getpid(), signal.SIGPIPE)


def batches(bus: bccn.Client, deadline: float | None) -> Iterator[list[bccn.Message]]:
    """The messages that have come, each time that some have, until the deadline (monotonic seconds; None: for ever).

    There may be none: a notice may have come instead, or before the first look.
    When the reader of our output leaves, the process ends, as any filter does.
    """
    poll = select.poll()
    poll.register(bus.fileno(), select.POLLIN)
    poll.register(STDOUT, 0)  # only for errors: the reader of the pipe has left
    yield []  # what has been read by now does not make the descriptor readable again
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        ready = poll.poll(None if left is None else min(max(0.0, left), LONGEST_WAIT) * 1000)
        if any(fd == STDOUT for fd, _ in ready):
            end_without_reader()
        messages: list[bccn.Message] = []
        while len(messages) < BATCH and (message := bus.receive(0)) is not None:
            messages.append(message)
        yield messages
        if left is not None and left <= 0:  # what came in time has been yielded
            return
