"""The daemon as a source of its own: ``<host>/bccnd/<pid>``, what it says itself.

Rules
- The name stands among those of the clients: what comes back from the segment under it is our own, or a conflict.
- Its numbers begin as a client's do and never go back. Name and numbers stay over a replacement (SIGUSR2).
- What the daemon says, for itself or in the name of a client, is small and seldom; it goes out at once.
"""

from typing import TYPE_CHECKING

from bccnd.relay.delivery import LOCAL_PEER, Run
from bccnd.relay.retained import Kept
from bccnd.relay.router import NOTICES
from bccnd.relay.session import Session
from bccnd.wire.sbus import Msg

if TYPE_CHECKING:
    from bccnd.relay.core import Relay

PROGRAM = b"bccnd"
KEPT = ("name", "seq", "first_seq", "local_seq")  # what a successor goes on with


class OwnSource:
    """``seq``, ``first_seq``, ``local_seq``: as in ``Session``."""

    __slots__ = ("first_seq", "local_seq", "name", "seq")

    def __init__(self, host: bytes, pid: int) -> None:
        self.name = b"%b/%b/%d" % (host, PROGRAM, pid)
        self.seq = self.first_seq = 0
        self.local_seq = 1


def publish(relay: "Relay", source: OwnSource | Session, chan: bytes, payload: bytes) -> None:
    """Say it to everybody whom it concerns, here and, unless the channel is local, on the segment."""
    delivery, unix_ns = relay.delivery, relay.unix_ns
    audience = relay.router.audience(chan)
    if audience.local:
        body = b"%b:%d:%b|%b" % (source.name, source.local_seq, chan, payload)
        source.local_seq += 1
        datagram = b"BCCN1[%d]%b" % (len(body), body)
    else:
        datagram = relay.integrity.seal(b"%b:%d:%b|%b" % (source.name, source.seq, chan, payload))
        source.seq += 1
        relay.outgoing.append(datagram)
    if audience.retained:
        relay.retained.keep(chan, Kept(LOCAL_PEER, unix_ns, datagram, len(datagram) - len(payload)))
    message = Msg(chan, payload)
    for session in audience.alone:
        delivery.send(session, [message.serialize()], None)
    for session in audience.lines:
        delivery.send(session, [message.serialize_line()], None)
    run = Run()
    delivery.show_ours(run, unix_ns, [datagram], full=True)
    for session in audience.full:
        delivery.send(session, run.shown_to(session), None)
    if not chan.startswith(NOTICES):
        delivery.show_taps(run, None)
