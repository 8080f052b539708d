"""A process without rights."""

import ctypes
import os
from collections.abc import Callable

NOBODY = 65534
CLONE_NEWNET = 0x40000000


def as_nobody(attempt: Callable[[], object], *, namespace: bool = False) -> str:
    """What ``attempt`` returns there, if that is text, or the class and text of its exception.

    ``namespace``: in a network of its own, with the kernel's default of ports for root alone.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if namespace:
                assert ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            returned = attempt()
            outcome = returned if isinstance(returned, str) else ""
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent judges it
            outcome = f"{type(error).__name__}: {error}"
        os.write(writing, outcome.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        outcome = pipe.read().decode()
    os.waitpid(child, 0)
    return outcome
