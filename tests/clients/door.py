"""A real door before a daemon, in a process of its own."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.daemon_process import ServiceProcess

MUX = [sys.executable, "-m", "bccnd.mux"]


class Door(ServiceProcess):
    """``bccnd-mux`` with its socket, its settings and its log in `folder`, before the daemon at `bus`.

    ``address``: what a client is given to connect to.
    """

    def __init__(
        self,
        folder: Path,
        bus: Path | str,
        *flags: str,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] = {},
    ) -> None:
        self.socket = folder / "mux.sock"
        self.address = f"unix:{self.socket}"
        self.config = folder / "mux.toml"
        self.config.touch()
        where = ["--socket", str(bus), "--listen", self.address, "--config", str(self.config)]
        super().__init__([*prefix, *MUX, *where, *flags], folder / "mux.log", environ)
