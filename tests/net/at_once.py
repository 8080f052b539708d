"""What was sent over the loopback, arrived."""

import os
import socket


def await_arrivals() -> None:
    """Until all that this thread has sent to sockets of this machine is there.

    A kernel that is busy puts datagrams off, in one queue for each core: what is sent last there, comes last.
    """
    cores = os.sched_getaffinity(0)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.bind(("127.0.0.1", 0))
            for core in cores:
                os.sched_setaffinity(0, {core})
                last.sendto(b"", last.getsockname())
                last.recv(1)
    finally:
        os.sched_setaffinity(0, cores)
