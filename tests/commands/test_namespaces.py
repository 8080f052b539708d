"""Which process serves a socket, and in which network namespace."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from bccnd.commands.namespaces import in_other_network, listening_inode, process_of
from tests.daemon_process import DaemonProcess

# A network namespace with nothing but a loopback interface.
ELSEWHERE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
NOBODY = 2**22 + 1  # above every pid


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(path))
    server.listen(1)
    return server


def test_a_listening_socket_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    assert listening_inode(str(path)) == 0
    with listening(path) as server:
        inode = os.fstat(server.fileno()).st_ino
        assert listening_inode(str(path)) == inode
        path.unlink()
        assert listening_inode(str(path)) == inode
    assert listening_inode(str(path)) == 0


def test_a_name_with_a_newline_is_passed_over(tmp_path: Path) -> None:
    table = tmp_path / "unix"
    table.write_text(
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0: 2 0 00010000 0005 01 7 /run/a\n"
        "b x y not hex z 9 /run/b\n"
        "0: 2 0 00010000 0001 01 8 /run/b\n"
        "0: 2 0 00010000 0005 01 9 /run/b c\n"
    )
    found = {path: listening_inode(path, table) for path in ("/run/a", "/run/b", "/run/b c")}
    assert found == {"/run/a": 7, "/run/b": 0, "/run/b c": 9}
    assert listening_inode("/run/a", tmp_path / "missing") is None


def test_the_daemon_is_the_process_that_says_so(daemon: DaemonProcess) -> None:
    pid = daemon.process.pid
    assert process_of(pid, pid) == pid
    assert process_of(1, pid) == pid  # a service manager listened
    assert process_of(NOBODY, pid) == pid  # the program before a replacement listened
    assert process_of(1, os.getppid()) in (None, os.getppid())
    assert process_of(NOBODY, NOBODY) is None


def test_a_process_that_is_no_daemon_is_not_taken_for_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            assert process_of(1, other.pid) is None
        finally:
            other.kill()


def test_a_daemon_beside_us_is_in_our_network(daemon: DaemonProcess) -> None:
    assert in_other_network(daemon.process.pid, str(daemon.socket)) is False
    assert in_other_network(None, str(daemon.socket)) is False
    assert in_other_network(None, "@abstract") is None


@pytest.mark.needs("root", "unshare", "ip")
def test_a_daemon_in_another_network_is_known_without_its_pid(tmp_path: Path) -> None:
    flags = ("--broadcast", "127.255.255.255", "--port", "5400")
    with DaemonProcess(tmp_path, *flags, prefix=ELSEWHERE) as daemon:
        assert in_other_network(daemon.process.pid, str(daemon.socket)) is True
        assert in_other_network(None, str(daemon.socket)) is True
