"""How many descriptors the daemon asks for, tried in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from bccnd.errors import RefusedError
from bccnd.process.descriptors import SPARE
from tests.daemon_process import BCCND, LOOPBACK_BROADCAST

ASK = """
import resource, sys
from bccnd.process.descriptors import allow_descriptors
soft, hard, clients = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow_descriptors(clients)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "clients", "allowed", "warns"),
    [
        (100, 1000, 200, 264, False),
        (500, 1000, 200, 500, False),
        (100, 150, 200, 150, True),
        (100, 1000, 2000, 1000, True),
    ],
    ids=["raised", "enough", "the hard limit holds", "fewer than clients"],
)
def test_the_soft_limit_follows_the_clients(
    soft: int, hard: int, clients: int, allowed: int, warns: bool
) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", ASK, *map(str, (soft, hard, clients))],
        capture_output=True,
        text=True,
        check=True,
    )
    *log, limits = asked.stdout.splitlines()
    assert limits == f"{allowed} {hard}"
    assert ("few file descriptors" in "".join(log)) == warns


def test_without_descriptors_for_clients_it_is_one_line(tmp_path: Path) -> None:
    command = [*BCCND, "--socket", str(tmp_path / "bus.sock"), "--broadcast", LOOPBACK_BROADCAST]
    ended = subprocess.run(
        ["sh", "-c", f'ulimit -n {SPARE}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (RefusedError.exit_code, "")
    assert ended.stderr == (
        f"bccnd: {SPARE} file descriptors are allowed, and bccnd needs {SPARE} for itself; raise LimitNOFILE or "
        "ulimit -n\n"
    )
