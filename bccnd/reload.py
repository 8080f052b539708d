"""Turns settings into the arguments of the relay, at the start and again on SIGHUP.

Rules
- A reload is all or nothing: every fault of the file, its values or the keys is found before anything changes.
- Settings that made sockets, names or memory cannot change while those are in use (FIXED). A reload leaves them as
  they were, applies the others, and reports which need a restart.
- No client is disconnected (``Relay.reconfigure``).
- A file that was emptied or cut off is sound TOML. So a reload never takes the key away, nor the last of the
  ``[[rights]]``: what they kept out would come in without anybody having asked for that. A restart does.
"""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from bccnd.errors import ConfigError
from bccnd.process.configuration import named_values
from bccnd.process.settings import Settings
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


class RelaySettings(NamedTuple):
    """What the relay is made from, and reconfigured with."""

    options: Options
    integrity: Integrity
    access: AccessList


def relay_settings(settings: Settings, keys: Sequence[bytes]) -> RelaySettings:
    options = Options(**{field.name: getattr(settings, field.name) for field in fields(Options)})
    return RelaySettings(options, Integrity(keys, Level(settings.integrity)), _access(settings))


def applicable(running: Settings, wanted: Settings) -> tuple[Settings, list[str], list[str]]:
    """The settings to run with now, the names that change, and the names that need a restart.

    Raises ``ConfigError``, with a line for each, when the key or all rights would go.
    """
    _refuse_to_open(running, wanted)
    old, new = dict(named_values(running)), dict(named_values(wanted))
    differing = [name for name in new if new[name] != old[name]]
    held = [name for name in differing if name in FIXED or name.partition(".")[0] in FIXED]
    return _with(wanted, {name: old[name] for name in held}), [n for n in differing if n not in held], held


def _refuse_to_open(running: Settings, wanted: Settings) -> None:
    gone = []
    if running.key_file and not wanted.key_file:
        gone.append("key_file: is set no more, and anybody on the segment could send")
    if running.rights and not wanted.rights:
        gone.append("rights: there are no [[rights]] any more, and every client could do everything")
    if gone:
        raise ConfigError("\n".join([f"{each}; restart the daemon if that is meant" for each in gone]))


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
