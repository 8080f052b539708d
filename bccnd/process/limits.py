"""Tables of the settings that bound what the daemon holds: queues, clients, sources."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

KIB, MIB = 1 << 10, 1 << 20

Policy = Literal["drop-oldest", "drop-newest", "block", "disconnect"]


class Table(BaseModel):
    """One table of the TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Queue(Table):
    """What waits for a client that reads slowly. A client may ask for its own limits, up to the maxima."""

    max_packets: int = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="Most packets a client may ask to have queued, so that none fills the memory.",
    )
    max_bytes: int = Field(
        default=64 * MIB,
        ge=128 * KIB,
        le=1 << 34,
        description="Most bytes a client may ask to have queued, so that none fills the memory.",
    )
    packets: int = Field(
        default=10_000,
        validate_default=True,
        ge=1,
        description="Packets queued for one client before the policy applies.",
    )
    bytes: int = Field(
        default=8 * MIB,
        validate_default=True,
        ge=128 * KIB,
        description="Bytes queued for one client before the policy applies; room for one largest packet.",
    )
    total_bytes: int = Field(
        default=256 * MIB,
        ge=MIB,
        le=1 << 36,
        description="Bytes queued for all clients together, so that many slow ones do not fill the memory.",
    )
    policy: Policy = Field(default="drop-oldest", description="What happens when a client's queue is full.")
    block_seconds: float = Field(
        default=5.0,
        allow_inf_nan=False,
        ge=0.1,
        le=3600,
        description="With policy block, seconds a client may take nothing before it is closed.",
    )

    @field_validator("packets", "bytes")
    @classmethod
    def _within_maximum(cls, value: int, info: ValidationInfo) -> int:
        maximum = info.data.get(f"max_{info.field_name}")
        if maximum is not None and value > maximum:
            raise ValueError(f"must be at most queue.max_{info.field_name}, which is {maximum}")
        return value


class Limits(Table):
    """What the daemon holds at most, so that no client can exhaust its memory or descriptors."""

    clients: int = Field(
        default=4096, ge=1, le=65536, description="Connected clients; each takes a file descriptor."
    )
    subscriptions: int = Field(
        default=1024,
        ge=1,
        le=65536,
        description="Subscriptions of one client; each takes memory and matching time.",
    )
    local_payload: int = Field(
        default=64 * KIB,
        ge=1,
        le=64 * KIB,
        description="Payload bytes on local channels; other channels must fit a datagram of 1400 bytes.",
    )
    channels_cached: int = Field(
        default=1 << 18,
        ge=1,
        le=1 << 20,
        description="Channels whose audience is remembered, to spare matching; some 170 bytes each.",
    )


class Dedup(Table):
    """How repeated, late and restarted datagrams of a source are told apart."""

    sanity: int = Field(
        default=1000,
        ge=1,
        le=1 << 32,
        description="A datagram less than this behind the last is a duplicate or late; more, a restart.",
    )
    sources: int = Field(
        default=65536,
        ge=64,
        le=1 << 20,
        description="Sources remembered, for memory; new ones, then the longest silent are forgotten first.",
    )
    seconds: float = Field(
        default=86400.0,
        allow_inf_nan=False,
        ge=1,
        le=31_536_000,
        description="Seconds of silence after which a source is forgotten.",
    )
    reorder: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Sequence numbers a late datagram may be behind and is still delivered; 0 for none.",
    )
    replays: Literal["auto", "drop", "accept"] = Field(
        default="auto",
        description="Clock-based numbers far behind the last: replayed and dropped, or taken for a restart; auto: "
        "drop where hmac is required, as without it anybody can make new datagrams.",
    )
    unknown: Literal["deliver", "by-address", "drop"] = Field(
        default="deliver",
        description='Datagrams of source "?": all delivered, deduplicated by sender address, or dropped.',
    )

    @field_validator("reorder")
    @classmethod
    def _short_of_a_restart(cls, value: int, info: ValidationInfo) -> int:
        sanity = info.data.get("sanity")
        if sanity is not None and value >= sanity:
            raise ValueError(f"must be less than dedup.sanity, which is {sanity}")
        return value
