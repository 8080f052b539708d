"""Every fault bccnd raises, one tree.

    BccndError
    |-- ConfigError          a setting or flag is wrong                               exit 2
    |-- RefusedError         the system or the configuration forbids it               exit 4
    |-- UnavailableError     a socket, port or lock is held by somebody else          exit 5
    |-- ProtocolError        bytes broke a rule of their protocol
        |-- WireError        a BCCN1 datagram did (``verdict`` says which rule, ``at`` where)
        |-- CaptureError     a capture file did
        |-- FyrehoseError    a packet of a fyrehose backbone or client did (``rule`` says which rule)
        |-- LinkError        a datagram of a link did (``rule`` says which rule)
        |-- DndmError        what a peer of DNDM says did (``rule`` says which rule)
        |-- PacketError      a packet on the local bus did (``code`` goes to its sender)
            |-- FramingError   so badly that what follows cannot be trusted: the client is closed
            |-- DeniedError    by asking for what its sender has no right to (``right``)

A ProtocolError is a fault of a peer: it is counted, and never fatal. A wrong setting or flag ends the
process with one line and the exit code above. Expected outcomes (a duplicate, a full queue, nobody listening) are
values, not exceptions. Exit code 1 is a fault of ours, exit code 3 a timeout of the ``bccn`` tool, exit code
7 of the daemon the end of all memory (``process.fatal``).
"""

from bccnd.wire.verdict import Verdict


class BccndError(Exception):
    """The root of the tree. ``str()`` is one line that says what to do."""

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
    """A datagram that must be dropped. The part that is wrong begins at the byte ``at``."""

    def __init__(self, verdict: Verdict, at: int = 0, detail: str = "") -> None:
        super().__init__(f"{verdict}: {detail}" if detail else str(verdict))
        self.verdict = verdict
        self.at = at
        self.detail = detail


class CaptureError(ProtocolError):
    """Bytes that are not a capture file, or stop being one."""


class FyrehoseError(ProtocolError):
    """A packet that is dropped, or cannot be made. ``rule``: kind, size, length, range, number or address."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class LinkError(ProtocolError):
    """A datagram of a link that is dropped. ``rule``: size, form, key, source, channel, floor, inside or status."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class DndmError(ProtocolError):
    """What a peer says, or is to be told, that DNDM does not have.

    ``rule``: magic, size, header, message, content, entries, route, channel or peer.
    """

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class PacketError(ProtocolError):
    """A packet that is refused; its sender gets ``CMSG error NUL <code> <text>``."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


class FramingError(PacketError):
    """A packet after which the client's framing cannot be trusted."""


class DeniedError(PacketError):
    """``right``: publish, subscribe, tap, bridge, name, block or observe; ``text`` says what it is needed for."""

    def __init__(self, right: str, text: str) -> None:
        super().__init__("refused", text)
        self.right = right
