"""A token of the door's own, where the settings name none: the page can be opened by whoever may read its file.

Rules
- It is made once, and kept beside the door's socket, or else beside the daemon's: a door that starts again takes what
  is there.
- The user who runs the door may read the file, and root. Who shows the token is that user, and gets no rights by it.
- It is in no log: who reads the log may be somebody else.
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
    """Who shows it, once it is made; None where the settings name tokens, or have no page. Raises ``ConfigError``."""
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
    """Whole, or not at all, or by another door that starts at this moment. Raises ``OSError``."""
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
