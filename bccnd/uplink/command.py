"""``bccnd-uplink``: from its arguments to an uplink that serves."""

import sys
from collections.abc import Sequence

from bccnd.beside.command import run
from bccnd.beside.program import Start
from bccnd.process.keys import read_keys
from bccnd.uplink.assembly import check_carrier, keys_of
from bccnd.uplink.service import Service
from bccnd.uplink.settings import PROGRAM, UplinkSettings, doubts


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    return run(PROGRAM, argv, _serve, _sound, doubts)


async def _serve(start: Start[UplinkSettings]) -> None:
    await Service(start).serve()


def _sound(settings: UplinkSettings) -> str:
    keys = keys_of(settings)
    if settings.backbone_key_file:
        read_keys(settings.backbone_key_file)
    check_carrier(settings)
    return f"Keys of the link: {len(keys)}."


if __name__ == "__main__":
    sys.exit(main())
