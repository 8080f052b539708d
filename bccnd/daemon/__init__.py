"""The daemon: sockets -> relay -> sockets, and nothing else. The composition root of ``bccnd``.

``service`` puts it together and runs it; ``bus`` is its local side, ``segments`` its network side.
"""

from bccnd.daemon.service import main

__all__ = ["main"]
