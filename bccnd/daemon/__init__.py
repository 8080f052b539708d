"""The daemon: sockets -> relay -> sockets, and nothing else. The composition root of ``bccnd``.

``program`` starts it; ``service`` puts it together and runs it; ``bus`` is its local side, ``segments`` its network
side.
"""

from bccnd.daemon.program import main

__all__ = ["main"]
