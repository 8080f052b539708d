"""Serial lines, by pyserial, which opens and sets the device; from then on the loop uses the descriptor."""

import fcntl
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN, EWOULDBLOCK

from serial import Serial

from bccnd.wire.dndm.peers import Peer


def unsent(descriptor: int) -> int:
    """Bytes that the device has not sent yet. Raises ``OSError``."""
    answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


def open_line(peer: Peer) -> tuple[int, Callable[[], None]]:
    """The non-blocking descriptor of a device, and a function that closes it. Raises ``OSError``.

    The device is locked: other programs that ask for the lock cannot open it.
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
        if error.errno in (EAGAIN, EWOULDBLOCK):  # the device is locked
            raise OSError("another program has it") from None
        raise
    except (termios.error, ValueError) as error:
        raise OSError(f"the device cannot be set like that: {error}") from None

    def shut() -> None:
        with suppress(OSError, termios.error):  # of a device that is gone
            if unsent(line.fileno()):
                line.reset_output_buffer()  # else the kernel would wait until everything is sent
        with suppress(OSError):
            line.close()

    return line.fileno(), shut
