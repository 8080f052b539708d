"""Turns settings into the arguments of the relay, at the start and again on SIGHUP.

Rules
- A reload is all or nothing: every fault of the file, its values or the keys is found before anything changes.
- Settings that made sockets, names or memory cannot change while those are in use (FIXED). A reload leaves them as
  they were, applies the others, and reports which need a restart.
- No client is disconnected (``Relay.reconfigure``).
"""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from bccnd.process.configuration import named_values
from bccnd.process.settings import Settings
from bccnd.relay.heartbeat import Rhythm
from bccnd.relay.limits import Limits
from bccnd.relay.options import Options
from bccnd.relay.rights import AccessList, Grant, unrestricted
from bccnd.wire.bccn1 import Integrity, Level

# Settings, or whole tables, that need a restart. A replacement (SIGUSR2) will do, except for those of the socket.
FIXED = (
    "host",
    "socket",
    "socket_mode",
    "socket_owner",
    "socket_group",
    "sequence_file",
    "limits.local_payload",
    "buffers",
)


def relay_options(settings: Settings, keys: Sequence[bytes]) -> dict[str, Any]:
    """The arguments that ``Relay`` and ``Relay.reconfigure`` have in common."""
    options = options_of(settings)
    drop_replays = options.dedup.drops_replays(authenticated=settings.integrity == "hmac")
    return {
        "integrity": Integrity(keys, Level(settings.integrity)),
        "local": [pattern.encode() for pattern in options.local],
        "retain": [pattern.encode() for pattern in options.retain.patterns],
        "limits": _limits(options, drop_replays=drop_replays),
        "access": _access(settings),
        "rhythm": Rhythm(options.heartbeat.seconds, options.heartbeat.misses),
    }


def options_of(settings: Settings) -> Options:
    """The tables of the settings that concern the relay."""
    return Options(**{field.name: getattr(settings, field.name) for field in fields(Options)})


def applicable(running: Settings, wanted: Settings) -> tuple[Settings, list[str], list[str]]:
    """The settings to run with now, the names that change, and the names that need a restart."""
    old, new = dict(named_values(running)), dict(named_values(wanted))
    differing = [name for name in new if new[name] != old[name]]
    held = [name for name in differing if name in FIXED or name.partition(".")[0] in FIXED]
    return _with(wanted, {name: old[name] for name in held}), [n for n in differing if n not in held], held


def _with(settings: Settings, values: dict[str, Any]) -> Settings:
    """The settings with some values replaced, by dotted name."""
    update: dict[str, Any] = {}
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        if table:
            update[table] = replace(update.get(table, getattr(settings, table)), **{key: value})
        else:
            update[name] = value
    return settings.model_copy(update=update)


def _access(settings: Settings) -> AccessList:
    if not settings.rights:
        return AccessList(unrestricted({0, os.geteuid()}))
    return AccessList(
        Grant(**{field: _encoded(value) for field, value in grant}) for grant in settings.rights
    )


def _encoded(value: Any) -> Any:
    """Text, alone or in a tuple, as bytes; any other value as it is."""
    if isinstance(value, tuple):
        return tuple([text.encode() for text in value])
    return value.encode() if isinstance(value, str) else value


def _limits(options: Options, *, drop_replays: bool) -> Limits:
    """The options in the form that ``Relay`` takes now."""
    queue, limits, dedup = options.queue, options.limits, options.dedup
    return Limits(
        clients=limits.clients,
        subscriptions=limits.subscriptions,
        local_payload=limits.local_payload,
        channels_cached=limits.channels_cached,
        queue_packets=queue.packets,
        queue_bytes=queue.bytes,
        queue_max_packets=queue.max_packets,
        queue_max_bytes=queue.max_bytes,
        queue_total=queue.total_bytes,
        queue_policy=queue.policy,
        block_seconds=queue.block_seconds,
        retain_channels=options.retain.channels,
        retain_bytes=options.retain.bytes,
        sanity=dedup.sanity,
        sources=dedup.sources,
        source_seconds=dedup.seconds,
        reorder=dedup.reorder,
        drop_replays=drop_replays,
        unknown=dedup.unknown,
    )
