"""The door's own token, where the settings name none: whoever may read its file can open the page.

Rules
- It is made once, and kept beside the door's socket, or else beside the daemon's. A door that starts again takes the
  one that is there.
- Only the user who runs the door, and root, may read the file. A peer that shows the token acts as that user, and
  gets no further rights.
- It is in no log: others may read the log.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

import bccn
from bccnd.errors import ConfigError
from bccnd.mux.settings import GROUPS_LIMIT, UNIX, Bearer, MuxSettings

NAME = "mux.token"
BYTES = 32


def own_bearer(settings: MuxSettings) -> Bearer | None:
    """The bearer of the token; None if the settings name tokens, or have no page. Raises ``ConfigError``."""
    if not settings.web or settings.tokens:
        return None
    file = _folder(settings) / NAME
    try:
        if not os.path.lexists(file):
            _make(file)
    except OSError as error:
        raise ConfigError(
            f"web: the settings name no tokens, and none can be made in {file}: {error.strerror}"
        ) from None
    groups = dict.fromkeys((os.getegid(), *os.getgroups()))
    return Bearer(name="page", file=file, user=os.geteuid(), groups=tuple(groups)[:GROUPS_LIMIT])


def _make(file: Path) -> None:
    """Make the file whole or not at all; another door may make it at the same moment. Raises ``OSError``."""
    part = file.with_name(f".{NAME}.{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"{secrets.token_hex(BYTES)}\n")
        with suppress(FileExistsError):
            os.link(part, file)
    finally:
        part.unlink()


def _folder(settings: MuxSettings) -> Path:
    own = [where.removeprefix(UNIX) for where in settings.listen if where.startswith(UNIX)]
    path = (own or [bccn.socket_path(settings.socket or None)])[0]
    if path.startswith("@"):
        raise ConfigError(
            "web: the settings name no tokens; one is made beside a socket file, and there is none"
        )
    return Path(path).parent
