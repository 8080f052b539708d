"""Three hosts on a segment, for every test in this folder."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.hosts.segment import Segment


@pytest.fixture(autouse=True)
def _namespaces_can_be_made() -> None:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and ip (iproute2)")


@pytest.fixture
def segment() -> Iterator[Segment]:
    with Segment(["alpha", "beta", "gamma"]) as made:
        yield made
