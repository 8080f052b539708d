"""``tests/bench/family.py``: the memory of a family counts once."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.family import own_kib, with_descendants
from tests.bench.machine import resident_kib
from tests.daemon_process import die_with_parent

HELD_KIB = 32 << 10
# It holds memory, and has a child that holds half as much of its own, and one that is another program.
FAMILY = f"""\
import os, subprocess, sys
held = bytearray(b"x") * ({HELD_KIB} << 10)
into, end = os.pipe()
if os.fork() == 0:
    own = bytearray(b"y") * ({HELD_KIB} << 9)
    os.write(end, b"ready")
    sys.stdin.read()
    os._exit(0)
other = subprocess.Popen(["sleep", "60"])
os.read(into, 5)
print(flush=True)
sys.stdin.read()
other.kill()
"""


@contextmanager
def family() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process.pid


def test_what_a_forked_child_shares_counts_once() -> None:
    with family() as pid:
        found = with_descendants(pid)
        shared = {each: own_kib(each, parent) for each, parent in found.items()}
        whole = {each: resident_kib(each) for each in found}
    parent, *children = found
    assert (parent, found[parent]) == (pid, 0)
    assert [found[child] for child in children] == [pid, pid]
    forked, other = sorted(children, key=lambda child: -whole[child])
    assert whole[forked] > 1.4 * HELD_KIB, "with all that its parent has"
    assert HELD_KIB / 2 <= shared[forked] < HELD_KIB
    assert (shared[parent], shared[other]) == (whole[parent], whole[other])


def test_a_child_that_is_not_yet_another_program_has_none() -> None:
    with family() as pid:
        assert own_kib(pid, pid) == 0
