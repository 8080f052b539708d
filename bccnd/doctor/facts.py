"""The facts about a bus that ``findings`` judges: ``bccn doctor`` gathers them, or a door for its page."""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyFile:
    """``mode``: permissions, None when they cannot be seen. ``fault``: what is wrong with the content."""

    path: str
    mode: int | None = None
    uid: int = 0
    missing: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known; None or empty where it is not. Sizes in bytes, times in seconds.

    config_file   empty if there is none; None if nobody has looked
    socket        served, missing, stale (nobody listens), deleted (a daemon listens at a file that has gone),
                  denied, busy (too many connect), no-socket (it is something else), or silent (it connects and
                  does not answer)
    detail, remedy  more about that, where more is known
    status        the daemon's answer, as are ``clients`` and ``sources``
    rights        those of the caller, by name
    rights_by_program  the programs that the settings grant rights to
    daemon_pid    in our pid namespace
    elsewhere     whether the daemon is in another network namespace than we are
    loopback      a round trip on a local channel
    returns       whether a datagram came back from the segment
    holders       the programs that hold the UDP port, in words
    ahead         how far sequence numbers are ahead of the clock
    exceeds_rmem  whether the daemon may have more than net.core.rmem_max
    descriptors   of the daemon: in use, and the limit
    subscriptions_limit  subscriptions, and as many watches, that a client may have
    uplinks, gateways  what those of this host say of themselves (``bccnd/beside/answers.py``). Any program may,
                  under its own name
    """

    version: str
    config_file: str | None = None
    config_fault: str = ""
    interfaces: tuple[str, ...] = ()
    port: int = 5400
    receive_bytes: int | None = None
    hold_bytes: int | None = None
    subscriptions_limit: int | None = None
    key_file: KeyFile | None = None
    socket_path: str = ""
    socket: str = "served"
    detail: str = ""
    remedy: str = ""
    status: Row | None = None
    clients: list[Row] = field(default_factory=list)
    sources: list[Row] = field(default_factory=list)
    daemon_uid: int | None = None
    exceeds_rmem: bool = False
    rights: dict[str, bool] = field(default_factory=dict)
    rights_by_program: tuple[str, ...] = ()
    daemon_pid: int | None = None
    elsewhere: bool = False
    loopback: float | None = None
    returns: bool | None = None
    mtus: dict[str, int] = field(default_factory=dict)
    rmem_max: int | None = None
    holders: tuple[str, ...] = ()
    ahead: float | None = None
    clock_synchronised: bool | None = None
    descriptors: tuple[int, int] | None = None
    uplinks: list[Row] = field(default_factory=list)
    gateways: list[Row] = field(default_factory=list)
