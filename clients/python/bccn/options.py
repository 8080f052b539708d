"""Types of options and notices, for annotations; at run time nobody needs them."""

from typing import Literal, TypedDict

Format = Literal["plain", "full"]
Separator = Literal["/", "."]
Tap = Literal["off", "on", "interface"]
Policy = Literal["drop-oldest", "drop-newest", "block", "disconnect"]
# There may be more kinds one day: ignore those that you do not know.
NoticeKind = Literal["lost", "rejected", "revoked", "closing", "disconnected", "reconnected", "unclaimed"]


class Queue(TypedDict, total=False):
    """What may wait in the daemon, and what happens then (``clients/PROTOCOL.md``, "Slow readers")."""

    packets: int
    bytes: int
    policy: Policy
