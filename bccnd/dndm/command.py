"""``bccnd-dndm``: from its arguments to a gateway that serves."""

import sys
from collections.abc import Sequence
from importlib import import_module

from bccnd.beside.command import run
from bccnd.beside.program import Start
from bccnd.dndm.settings import PROGRAM, DndmSettings, doubts
from bccnd.errors import ConfigError


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    return run(PROGRAM, argv, _serve, check_libraries, doubts)


async def _serve(start: Start[DndmSettings]) -> None:
    from bccnd.dndm.service import Service  # with protobuf, which is an extra

    await Service(start).serve()


def check_libraries(settings: DndmSettings) -> str:
    """Raises ``ConfigError`` if a library is not installed: both come with the extra ``dndm``."""
    needed = {"protobuf": "bccnd.wire.dndm.messages"} | ({"pyserial": "serial"} if settings.serial else {})
    for library, module in needed.items():
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{library} cannot be loaded ({error}); install it: pip install 'bccnd[dndm]'"
            ) from None
    return ""


if __name__ == "__main__":
    sys.exit(main())
