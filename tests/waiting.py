"""To wait in a test's own loop; ``packet_client.wait_until`` is for tests without one."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from tests.packet_client import LEAST_POLLS, PATIENCE

Found = TypeVar("Found")


async def until(condition: Callable[[], Found], what: str = "what it waits for") -> Found:
    """Let the loop turn until the condition is true, and return what it gives. Fails as ``wait_until`` does."""
    deadline, polls = time.monotonic() + PATIENCE, 0
    while not (found := condition()):
        polls += 1
        assert polls < LEAST_POLLS or time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        await asyncio.sleep(0.002)
    return found
