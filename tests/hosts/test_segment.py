"""The segment of namespaces works as documented and leaves nothing behind."""

import os
import subprocess
import sys

import pytest

from tests.hosts.segment import BROADCAST, RUN_FOLDER, Segment, ip, remove_stale

PORT = 5400


def test_a_broadcast_reaches_every_host_exactly_once(segment: Segment) -> None:
    sockets = [host.udp_socket(PORT) for host in segment.hosts]
    sockets[0].sendto(b"hello", (BROADCAST, PORT))
    for sock in sockets:
        assert sock.recvfrom(2048) == (b"hello", (segment.hosts[0].address, PORT))
        sock.setblocking(False)
    for sock in sockets:
        with sock, pytest.raises(BlockingIOError):
            sock.recv(2048)


def test_the_machines_own_interfaces_stay_unchanged(segment: Segment) -> None:
    assert "br0" not in ip("-br", "link")
    assert "to-alpha" not in ip("-br", "link")


def test_a_process_runs_on_its_host(segment: Segment) -> None:
    beta = segment.hosts[1]
    assert beta.address in beta.run(["ip", "-br", "address"]).stdout
    with beta.start(
        [sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == process.pid


def test_nothing_is_left_behind() -> None:
    with Segment(["alpha"]) as made:
        assert (RUN_FOLDER / made.hosts[0].namespace).exists()
    assert not [path for path in RUN_FOLDER.iterdir() if path.name == made.hosts[0].namespace]


def test_the_next_run_removes_what_a_crashed_one_left() -> None:
    kind = f"bccnd-crash{os.getpid()}"  # a run beside this one leaves these alone
    crash = f"import os; from tests.hosts.segment import Segment; Segment(['alpha'], '{kind}'); os._exit(9)"
    dead = subprocess.Popen([sys.executable, "-c", crash])
    dead.wait(30)
    left = {path.name for path in RUN_FOLDER.glob(f"{kind}-{dead.pid}-*")}
    with Segment(["alpha"], kind) as made:
        assert not [path for path in RUN_FOLDER.iterdir() if path.name in left]
        assert len(left) == 2  # a host, and the switch
        assert remove_stale(kind) == []
        assert (RUN_FOLDER / made.hosts[0].namespace).exists()
