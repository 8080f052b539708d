"""Serial lines, by pyserial: it opens and sets the device, and the loop has the descriptor from then on."""

import fcntl
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN, EWOULDBLOCK

from serial import Serial

from bccnd.wire.dndm.peers import Peer


def unsent(descriptor: int) -> int:
    """Bytes that the device has still to send. Raises ``OSError``."""
    answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


def open_line(peer: Peer) -> tuple[int, Callable[[], None]]:
    """The descriptor of a device, which does not block, and what closes it. Raises ``OSError``.

    Nobody else who asks for it can have it meanwhile.
    """
    wanted = peer.serial()
    try:
        line = Serial(
            peer.address,
            baudrate=wanted.baud,
            bytesize=wanted.bits,
            parity=wanted.parity,
            stopbits=wanted.stop_bits,
            timeout=0,
            write_timeout=0,
            exclusive=True,
        )
    except OSError as error:
        if error.errno in (EAGAIN, EWOULDBLOCK):  # as the system calls a lock
            raise OSError("another program has it") from None
        raise
    except (termios.error, ValueError) as error:
        raise OSError(f"the device cannot be set like that: {error}") from None

    def shut() -> None:
        with suppress(OSError, termios.error):  # of a device that is gone
            if unsent(line.fileno()):
                line.reset_output_buffer()  # the kernel would wait until all is sent
        with suppress(OSError):
            line.close()

    return line.fileno(), shut
