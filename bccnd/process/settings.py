"""The settings of the daemon: what can be set, within which bounds, and the defaults.

Rules
- The types, bounds and defaults here hold for every source of settings (``bccnd.process.configuration``). Those of
  the tables that the relay uses stand in ``bccnd.relay.options``.
- A value is right or refused, never guessed or clipped: ``port = "5400"`` in a file is an error.
- Each bound has a reason, given in its description or beside it.
- No secret is a setting: ``key_file`` is a path, and ``bccnd.process.keys`` reads the file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import InitErrorDetails

from bccnd.process import logs
from bccnd.process.accounts import gid_of, uid_of
from bccnd.relay.options import (
    KIB,
    MIB,
    Dedup,
    Heartbeat,
    Limits,
    Options,
    Queue,
    Repair,
    Retain,
    Table,
    number,
    setting,
)

# sun_path has 108 bytes; one is the NUL at the end of a path, or at the beginning of an abstract name.
SOCKET_PATH_LIMIT = 107

# Patterns of one kind in one grant. Each is matched once with each new channel of a publisher.
PATTERNS_LIMIT = 256

# The interfaces that Docker, Podman, libvirt, LXC, Kubernetes and their networks make on a host.
FOREIGN_INTERFACES = (
    "docker*", "br-????????????", "podman*", "cni*", "cali*", "cilium*", "flannel*", "kube*", "lxc*", "lxd*",
    "incusbr*", "veth*", "virbr*", "vnet*",
)  # fmt: skip

_LINK_LOCAL_GROUPS = IPv6Network("ff02::/16")

Integrity = Literal["hmac", "crc32", "none"]


def _require(pattern: str, rule: str) -> BeforeValidator:
    compiled = re.compile(pattern)

    def check(value: object) -> object:
        if isinstance(value, str) and not compiled.fullmatch(value):
            raise ValueError(rule)
        return value

    return BeforeValidator(check)


_WHOLE_STARS = _require(
    r"(?:[^*]|\*(?=/|$))*", "must be channel patterns in which * is the end of a token, as in a/b*/c"
)

HostName = Annotated[
    str,
    _require(r"[!-~]{1,64}", "must be 1 to 64 ASCII characters without white space"),
    _require(r"[^:|/*!?]*", "must not contain any of : | / * ! ?"),
]
InterfaceName = Annotated[
    str,
    _require(
        r"(?!\.{1,2}$)[!-.0-9;-~]{1,15}", "must be interface names of 1 to 15 ASCII characters, such as eth0"
    ),
]
ChannelPattern = Annotated[
    str,
    _require(
        r"(?!!)[!-9;-{}~]{1,1024}",
        "must be channel patterns: 1 to 1024 ASCII characters, no white space, : or |, no leading !",
    ),
    _WHOLE_STARS,
]
_CHANNEL_PATTERN = TypeAdapter(ChannelPattern)
PublishPattern = Annotated[
    str,
    _require(
        r"!|!?(?!!)[!-9;-{}~]{1,1024}",
        "must be channel patterns, or patterns after a ! for directed channels: ASCII, no white space, : or |",
    ),
    _WHOLE_STARS,
]
SubscribePattern = Annotated[
    str,
    _require(
        r"!|(?!!)[!-9;-{}~]{1,1024}",
        'must be channel patterns without a leading !, or "!": ASCII, no white space, : or |',
    ),
    _WHOLE_STARS,
]
ProgramName = Annotated[
    str,
    _require(
        r"(?s:.{1,15}|.{0,15}\*)",
        "must be the first 15 bytes of a program's name, which is all that the kernel keeps, or end in *",
    ),
    _require(r"[ -)+-~]*\*?", "must be printable ASCII, with * only at the end"),
]
UserId = Annotated[int, BeforeValidator(uid_of)]
GroupId = Annotated[int, BeforeValidator(gid_of)]
Octal = Annotated[
    str, _require(r"0?[0-7]{3}", 'must be a string of three or four octal digits, such as "0660"')
]


def _is_loopback(value: str) -> bool:
    """Whether it is a loopback address with a port."""
    host, _, port = value.rpartition(":")
    if not re.fullmatch(r"[1-9]\d{0,4}", port, re.ASCII) or int(port) > 65535:
        return False
    try:
        return host == "[::1]" or IPv4Address(host).is_loopback
    except ValueError:
        return False


def _of_this_host(value: str) -> str:
    path = value.startswith("/") and value.isprintable() and len(value.encode()) <= SOCKET_PATH_LIMIT
    if value and not path and not _is_loopback(value):
        raise ValueError(
            f"must be 127.0.0.1:PORT, [::1]:PORT, a path from / of at most {SOCKET_PATH_LIMIT} bytes, or empty"
        )
    return value


ListenAddress = Annotated[str, AfterValidator(_of_this_host)]

# Settings that the programs beside the daemon share.
MetricsAddress = Annotated[
    ListenAddress,
    Field(description="serve Prometheus metrics at 127.0.0.1:PORT, [::1]:PORT or a socket path; empty: none"),
]
LogLevel = Annotated[logs.Level, Field(description="debug, info, warning or error")]
LogFormat = Annotated[logs.Format, Field(description="console, json, or auto: console on a terminal")]


def _usable_socket(value: str) -> str:
    if not value.isprintable() or len(value.encode()) > SOCKET_PATH_LIMIT:
        raise ValueError(f"must be a path or @NAME of at most {SOCKET_PATH_LIMIT} bytes")
    return value


BusSocket = Annotated[
    str,
    AfterValidator(_usable_socket),
    Field(description="the daemon's socket: a path or @NAME; empty: where bccn finds it"),
]
SegmentName = Annotated[str, _require(r"[A-Za-z0-9_-]{1,32}", "must be 1 to 32 letters, digits, - and _")]


def whole(default: int, least: int, most: int, description: str) -> Any:
    """A setting that is a whole number."""
    return Field(default=default, ge=least, le=most, strict=True, description=description)


class ProgramSettings(BaseModel):
    """All settings of one program beside the daemon, immutable. Each has these, at the end of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if TYPE_CHECKING:
        metrics: MetricsAddress
        log_level: LogLevel
        log_format: LogFormat


def _wrong(name: str, value: object, rule: str) -> ValidationError:
    """The error for one setting of a table whose types and bounds are right."""
    fault = InitErrorDetails(type="value_error", loc=(name,), input=value, ctx={"error": ValueError(rule)})
    return ValidationError.from_exception_data("table", [fault])


def _within_maxima(queue: Queue) -> Queue:
    for name in "packets", "bytes":
        value, maximum = getattr(queue, name), getattr(queue, f"max_{name}")
        if value > maximum:
            raise _wrong(name, value, f"must be at most queue.max_{name}, which is {maximum}")
    return queue


def _short_of_a_restart(dedup: Dedup) -> Dedup:
    if dedup.reorder >= dedup.sanity:
        raise _wrong("reorder", dedup.reorder, f"must be less than dedup.sanity, which is {dedup.sanity}")
    return dedup


def _of_patterns(retain: Retain) -> Retain:
    for pattern in retain.patterns:
        try:
            _CHANNEL_PATTERN.validate_python(pattern)
        except ValidationError as error:
            raise _wrong("patterns", pattern, str(error.errors()[0]["ctx"]["error"])) from None
    return retain


@dataclass(frozen=True, slots=True)
class Buffers(Table):
    """Sizes of kernel buffers. The kernel caps what an unprivileged process asks for at net.core.*mem_max."""

    receive_bytes: int = number(
        4 * MIB, 4 * KIB, 1 << 30, "Bytes of UDP receive buffer (SO_RCVBUF), for bursts."
    )
    client_bytes: int = number(
        212_992,
        128 * KIB,
        1 << 26,
        "Bytes of send buffer of each client (SO_SNDBUF); room for the largest packet.",
    )


@dataclass(frozen=True, slots=True)
class Log(Table):
    """What is logged to standard error."""

    level: logs.Level = setting("info", "Least important level logged.")
    format: logs.Format = setting(
        "auto", "Lines for people or JSON; auto is console on a terminal and json elsewhere."
    )


@dataclass(frozen=True, slots=True)
class Metrics(Table):
    """Counters for Prometheus, and whether the daemon is alive and serves, over HTTP."""

    listen: ListenAddress = setting(
        "",
        "127.0.0.1:PORT, [::1]:PORT or the path of a Unix socket, of socket_mode; empty: none.",
        strict=True,
    )


class Grant(BaseModel):
    """What the clients that meet all conditions of the grant may do. The grants for one client add up.

    Once there is a grant, whatever none gives is refused, to root and the daemon's own user too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    uid: UserId | None = Field(default=None, description="Clients of this user, by name or number.")
    gid: GroupId | None = Field(
        default=None, description="Clients in this group, primary or not, by name or number."
    )
    program: ProgramName | None = Field(
        default=None,
        description="Clients of this program; a final * stands for any ending. Programs can rename themselves, and "
        "one that leaves at once, such as a socat that sends one message, may be gone before its name is read.",
    )
    publish: tuple[PublishPattern, ...] = Field(
        default=(),
        max_length=PATTERNS_LIMIT,
        strict=False,
        description="Channels they may publish on: patterns, and patterns after a ! for directed channels.",
    )
    subscribe: tuple[SubscribePattern, ...] = Field(
        default=(),
        max_length=PATTERNS_LIMIT,
        strict=False,
        description='Patterns within which they may subscribe; "!" alone lets them listen.',
    )
    tap: bool = Field(default=False, description="Whether they may see every datagram, accepted or not.")
    bridge: bool = Field(
        default=False, description="Whether they may pass on datagrams of others, on the channels of publish."
    )
    name: tuple[ChannelPattern, ...] = Field(
        default=(),
        max_length=PATTERNS_LIMIT,
        strict=False,
        description="Names (src) they may take besides their own and those below it.",
    )
    block: bool = Field(
        default=False,
        description="Whether they may choose the policy block, which makes publishers of all users wait.",
    )
    observe: bool = Field(
        default=False, description="Whether they may see the daemon's status, other clients, and sources."
    )
    speak_for: bool = Field(
        default=False, description="Whether they may say that a connection of theirs is another user's."
    )


def _merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of all layers, the highest last. A table takes from each layer what no higher one has."""
    merged: dict[str, Any] = {}
    for name, value in (item for layer in layers for item in layer.items()):
        below = merged.get(name)
        merged[name] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


class Settings(BaseModel):
    """All settings of one daemon, immutable. Only ``host`` and ``socket`` have no default here."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)

    host: HostName = Field(description="First token of this host's sources; default the short host name.")
    socket: str = Field(
        description="The local bus: a path, @name (abstract), @ (a free name, printed) or fd:N (inherited)."
    )
    socket_mode: Octal | None = Field(
        default=None, validate_default=True, description="File mode of the socket, octal; default 0660."
    )
    socket_owner: str | None = Field(
        default=None, min_length=1, description="User that owns the socket, by name or number."
    )
    socket_group: str | None = Field(
        default=None, min_length=1, description="Group that owns the socket, by name or number."
    )
    sequence_file: Path | None = Field(
        default=None,
        strict=False,
        description="File of sequence numbers, for restarts; default <socket>.seq for a socket with a path.",
    )
    broadcast: str = Field(
        default="255.255.255.255",
        description="Where datagrams go: a broadcast address, subnet (the broadcast address of each interface), or a "
        "multicast address of IPv4 or IPv6 (ff02::...).",
    )
    port: int = Field(default=5400, ge=1, le=65535, description="UDP port of the segment.")
    interfaces: tuple[InterfaceName, ...] = Field(
        default=(),
        max_length=64,
        strict=False,
        description="Interfaces to use, by name or pattern (eth*); without any, all suitable ones.",
    )
    interfaces_excluded: tuple[InterfaceName, ...] = Field(
        default=FOREIGN_INTERFACES,
        max_length=64,
        strict=False,
        description="Patterns of interfaces to leave alone: those of containers and virtual machines. An interface "
        "that interfaces names in full is used nevertheless.",
    )
    key_file: Path | None = Field(
        default=None,
        strict=False,
        description="File of HMAC keys, one a line; the first signs, all verify. credential:NAME is a file that "
        "systemd hands over (LoadCredential=).",
    )
    integrity: Integrity = Field(
        default=None,
        validate_default=True,
        description="What datagrams carry and must carry; default hmac with a key file, none without.",
    )
    copies: int = Field(
        default=1, ge=1, le=4, description="Copies sent of each datagram, against loss; receivers keep one."
    )
    copies_spread_ms: int = Field(
        default=10,
        ge=0,
        le=1000,
        description="Milliseconds between two copies of a datagram, so that one burst of loss does not take both.",
    )
    local: tuple[ChannelPattern, ...] = Field(
        default=Options().local,
        max_length=256,
        strict=False,
        description="Patterns of channels that never leave this host.",
    )
    exit_when_idle: bool = Field(default=False, description="Leave when the last client has left.")
    queue: Annotated[Queue, AfterValidator(_within_maxima)] = Queue()
    limits: Limits = Limits()
    retain: Annotated[Retain, AfterValidator(_of_patterns)] = Retain()
    dedup: Annotated[Dedup, AfterValidator(_short_of_a_restart)] = Dedup()
    heartbeat: Heartbeat = Heartbeat()
    repair: Repair = Repair()
    buffers: Buffers = Buffers()
    log: Log = Log()
    metrics: Metrics = Metrics()
    rights: tuple[Grant, ...] = Field(
        default=(),
        max_length=256,
        strict=False,
        description="Who may do what. Without any, all publish and subscribe; root and the daemon's user do more.",
    )

    def __init__(self, *layers: dict[str, Any], **values: Any) -> None:
        """``layers`` are the values of several sources, the highest first; ``values`` override them all.

        Raises pydantic's ValidationError.
        """
        super().__init__(**_merged([*reversed(layers), values]))

    @property
    def socket_permissions(self) -> int:
        return int(self.socket_mode or "0", 8)

    @field_validator("socket")
    @classmethod
    def _usable_socket(cls, value: str) -> str:
        if value.startswith("fd:"):
            if not re.fullmatch(r"fd:([3-9]|[1-9][0-9]{1,5})", value):
                raise ValueError("must name a descriptor of 3 or higher, such as fd:3")
        elif not value or not value.isprintable() or len(value.encode()) > SOCKET_PATH_LIMIT:
            raise ValueError(f"must be a path or @name of 1 to {SOCKET_PATH_LIMIT} bytes, @, or fd:N")
        return value

    @field_validator("socket_mode", "socket_owner", "socket_group", mode="before")
    @classmethod
    def _for_a_path_only(cls, value: object, info: ValidationInfo) -> object:
        """Refuse permissions that would have no effect: somebody may rely on them."""
        if info.data.get("socket", "").startswith(("@", "fd:")):
            if value is not None:
                raise ValueError(
                    "must not be set for a socket that is abstract or inherited: it has no effect there"
                )
            return None
        return "0660" if value is None and info.field_name == "socket_mode" else value

    @field_validator("broadcast")
    @classmethod
    def _usable_address(cls, value: str) -> str:
        if value == "subnet":
            return value
        try:
            address = ip_address(value)
        except ValueError:
            address = None
        if isinstance(address, IPv4Address) and int(address):
            return value
        if isinstance(address, IPv6Address) and address in _LINK_LOCAL_GROUPS and address.scope_id is None:
            return str(address)
        raise ValueError(
            "must be an IPv4 broadcast or multicast address, such as 255.255.255.255, one of ff02::/16, or subnet"
        )

    @field_validator("interfaces", "interfaces_excluded")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("must not name an interface twice")
        return value

    @field_validator("key_file", "sequence_file", mode="before")
    @classmethod
    def _named_file(cls, value: object) -> object:
        if isinstance(value, str) and (not value or not value.isprintable()):
            raise ValueError("must be the path of a file, of printable characters")
        return value

    @field_validator("rights", mode="before")
    @classmethod
    def _something_granted(cls, value: object) -> object:
        """Refuse an empty list: it reads like "nobody may do anything", and would open everything."""
        if value == []:
            raise ValueError("must not be empty: leave it out, or say what is granted")
        return value

    @field_validator("dedup")
    @classmethod
    def _only_with_a_key(cls, value: Dedup, info: ValidationInfo) -> Dedup:
        """Refuse to drop replays where anybody can forge one: one datagram would silence its source for a day."""
        if value.replays == "drop" and info.data.get("integrity", "hmac") != "hmac":
            raise _wrong(
                "replays",
                value.replays,
                "must not be drop without integrity = hmac: anybody could silence a source with one forged datagram",
            )
        return value

    @field_validator("integrity", mode="before")
    @classmethod
    def _integrity_follows_keys(cls, value: object, info: ValidationInfo) -> object:
        keys = info.data.get("key_file")
        if value == "hmac" and keys is None:
            raise ValueError("must not be hmac without a key_file")
        return value if value is not None else "hmac" if keys else "none"
