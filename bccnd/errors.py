"""Every fault bccnd raises, one tree.

    BccndError
    |-- ConfigError          a setting or flag is wrong                               exit 2
    |-- RefusedError         the system or the configuration forbids it               exit 4
    |-- UnavailableError     a socket, port or lock is held by somebody else          exit 5
    |-- ProtocolError        bytes broke a rule of their protocol
        |-- WireError        a BCCN1 datagram did (``reason`` says which rule)
        |-- CaptureError     a capture file did
        |-- PacketError      a packet on the local bus did (``code`` is told to its sender)
            |-- FramingError   so badly that what follows cannot be trusted: the client is closed
            |-- DeniedError    by asking for what its sender has no right to (``right``)

What others send wrong is a ProtocolError and is counted, never fatal; what we were told wrong ends the
process with one line and the exit code above. Expected outcomes (a duplicate, a full queue, nobody
listening) are values, not exceptions. Exit 1 is a fault of ours, exit 3 a timeout of the ``bccn`` tool.
"""


class BccndError(Exception):
    """Root of the tree; ``str()`` is one line that tells a person what to do."""

    exit_code = 1


class ConfigError(BccndError):
    exit_code = 2


class RefusedError(BccndError):
    exit_code = 4


class UnavailableError(BccndError):
    exit_code = 5


class ProtocolError(BccndError):
    """Bytes from outside that break their protocol."""


class WireError(ProtocolError):
    """A datagram that must be dropped. ``reason`` is a ``bccnd.wire.bccn1.Reason``."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class CaptureError(ProtocolError):
    """Bytes that are no capture file, or not from here on."""


class PacketError(ProtocolError):
    """A packet that cannot be carried out; answered with ``CMSG error NUL <code> <text>``."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


class FramingError(PacketError):
    """A packet after which the client's framing cannot be trusted."""


class DeniedError(PacketError):
    """``right``: publish, subscribe, tap, bridge or name; ``text`` says what for."""

    def __init__(self, right: str, text: str) -> None:
        super().__init__("refused", text)
        self.right = right
