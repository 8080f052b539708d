"""Daemons that are replaced while they serve."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST
from tests.replaceable_daemon import ReplaceableDaemon

Start = Callable[..., ReplaceableDaemon]


@pytest.fixture
def start(tmp_path: Path, loopback_port: int) -> Iterator[Start]:
    """Starts a daemon on the loopback, with the flags given besides."""
    with ExitStack() as running:

        def start_one(*flags: str, **options: Any) -> ReplaceableDaemon:
            base = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
            return running.enter_context(ReplaceableDaemon(tmp_path, *base, *flags, **options))

        yield start_one
