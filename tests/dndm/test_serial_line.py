"""The device of a serial line, as pyserial opens and sets it."""

import os
import termios

import pytest

from bccnd.dndm.serial_line import open_line
from bccnd.wire.dndm.peers import parse
from tests.dndm.pseudo_serial import PseudoSerial


def test_a_device_is_set_as_its_address_says() -> None:
    with PseudoSerial() as line:
        descriptor, shut = open_line(parse(f"serial://{line.device}/arm?baud=9600&stop=2"))
        *_, control, _, speed, _, _ = termios.tcgetattr(descriptor)
        assert speed == termios.B9600
        assert control & termios.CSTOPB
        assert os.get_blocking(descriptor) is False
        os.write(descriptor, bytes(range(256)))
        assert line.read() == bytes(range(256))
        shut()
        shut()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


def test_a_device_is_for_one_program() -> None:
    with PseudoSerial() as line:
        peer = parse(f"serial://{line.device}/arm")
        _, shut = open_line(peer)
        with pytest.raises(OSError, match="another program has it"):
            open_line(peer)
        shut()
        open_line(peer)[1]()


def test_what_is_no_device_is_not_opened() -> None:
    for path in ("/dev/no-such-device", "/dev/null"):
        with pytest.raises(OSError):  # noqa: PT011 - the system words it
            open_line(parse(f"serial://{path}/arm"))


def test_a_device_that_is_gone_is_shut_all_the_same() -> None:
    with PseudoSerial() as line:
        descriptor, shut = open_line(parse(f"serial://{line.device}/arm"))
        line.unplug()
        shut()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)
