"""A Python client in a thread of its own that answers the requests of a test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import bccn
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE

Handler = Callable[[bccn.Request], bytes | str | None]


@contextmanager
def serving(daemon: DaemonProcess, pattern: str, handler: Handler, **settings: Any) -> Iterator[str]:
    """Serves within the block and gives the client's name. ``settings`` are those of its client."""
    ready, stopped = threading.Event(), threading.Event()
    names = []

    def serve() -> None:
        with bccn.Client(daemon.socket, format="full", **{"timeout": PATIENCE, **settings}) as bus:
            bus.serve(pattern, handler)
            names.append(bus.name)
            ready.set()
            while not stopped.is_set():
                bus.receive(0.02)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield names[0]
    finally:
        stopped.set()
        thread.join()
