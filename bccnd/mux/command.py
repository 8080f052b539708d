"""``bccnd-mux``: from its arguments to a door that serves."""

import sys
from collections.abc import Sequence

from bccnd.beside.command import run
from bccnd.beside.program import Start
from bccnd.mux.guests import Guests
from bccnd.mux.service import Service
from bccnd.mux.settings import PROGRAM, MuxSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    return run(PROGRAM, argv, _serve, _sound)


async def _serve(start: Start[MuxSettings]) -> None:
    await Service(start).serve()


def _sound(settings: MuxSettings) -> str:
    Guests.of(settings)
    return ""


if __name__ == "__main__":
    sys.exit(main())
