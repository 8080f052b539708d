"""What the tests of a daemon as a process share."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.daemon_process import BCCND, LOOPBACK_BROADCAST, die_with_parent


@pytest.fixture
def loopback(loopback_port: int) -> list[str]:
    return ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a daemon with the flags given; kills what a failed test leaves running."""
    with ExitStack() as running:

        def start_one(*flags: object, **options: object) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [*BCCND, *map(str, flags)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=die_with_parent,
                **options,  # type: ignore[call-overload]
            )
            running.enter_context(process)
            running.callback(process.kill)
            return process

        yield start_one
