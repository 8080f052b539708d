"""Who may still connect when one user has taken what it could."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bccnd.daemon import places
from bccnd.daemon.places import RESERVE, Places
from bccnd.relay.identity import Peer
from bccnd.relay.options import Limits
from tests.daemon_process import DaemonProcess
from tests.packet_client import PacketClient, wait_until

OWNER, USER, OTHER = 5, 1000, 1001


@pytest.fixture(autouse=True)
def _enough_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_descriptors", lambda: 1 << 30)


def peer(uid: int, *, resident: bool = True) -> Peer:
    return Peer(7, uid, uid, b"prog", resident=resident)


def take_all(taken: Places, who: Peer, limits: Limits) -> int:
    """How many clients of one user get in."""
    count = 0
    while not taken.refusal(who, limits):
        taken.take(who)
        count += 1
    return count


def test_a_user_gets_its_share_and_others_get_theirs():
    limits, taken = Limits(clients=4096, clients_per_user=100), Places([0, OWNER])
    assert take_all(taken, peer(USER), limits) == 100
    assert taken.refusal(peer(USER), limits) == "limit: at most 100 clients of one user"
    assert take_all(taken, peer(OTHER), limits) == 100


def test_by_default_a_user_has_half_of_the_places():
    assert take_all(Places([0]), peer(USER), Limits(clients=200)) == 100


def test_root_and_the_daemons_user_have_a_reserve():
    limits, taken = Limits(clients=200, clients_per_user=200), Places([0, OWNER])
    assert take_all(taken, peer(USER), limits) == 200 - RESERVE
    assert take_all(taken, peer(OWNER), limits) == RESERVE
    assert taken.refusal(peer(0), limits) == "limit: at most 200 clients"


def test_root_of_a_container_has_no_reserve():
    limits, taken = Limits(clients=200), Places([0])
    assert take_all(taken, peer(0, resident=False), limits) == 100


def test_who_leaves_makes_room():
    limits, taken = Limits(clients=8), Places([0])
    assert take_all(taken, peer(USER), limits) == 4
    taken.leave(peer(USER))
    assert take_all(taken, peer(USER), limits) == 1


def test_few_descriptors_leave_a_reserve_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(places, "_descriptors", lambda: places.SPARE + 80)
    limits, taken = Limits(clients=4096), Places([0])
    assert take_all(taken, peer(USER), limits) == 80 - 80 // places.RESERVED_PART
    assert not taken.refusal(peer(0), limits)


# --- a real daemon ---

HOLD = f"""
import os, socket, sys
os.setgroups([]); os.setgid({USER}); os.setuid({USER})
held = []
for _ in range(int(sys.argv[2])):
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(sys.argv[1])
    try:
        client.send(b"CMSG ping\\0x")
        answer = client.recv(1000)
    except (BrokenPipeError, ConnectionResetError):  # refused before it has asked
        answer = client.recv(1000)
    if not answer.startswith(b"CMSG pong"):
        print(answer.decode().replace("\\0", " "), flush=True)
        break
    held.append(client)
print(len(held), flush=True)
sys.stdin.read()
"""


@contextmanager
def hog(path: Path, asked: int) -> Iterator[list[str]]:
    """What a program of a user says that takes as many places as it gets, and keeps them."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = []
        while not said or not said[-1].isdecimal():
            line = process.stdout.readline()
            assert line
            said.append(line.strip())
        yield said
    finally:
        process.communicate("")


@pytest.mark.needs("root")
def test_a_user_learns_why_it_is_refused_and_root_gets_in(tmp_path: Path, loopback: list[str]) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o711)  # for the user
    environ = {"BCCND_LIMITS__CLIENTS": "40", "BCCND_LIMITS__CLIENTS_PER_USER": "30"}
    daemon = DaemonProcess(tmp_path, *loopback, "--socket-mode", "0666", environ=environ)
    with daemon, ExitStack() as others, hog(daemon.socket, 100) as said:
        assert said == ["CMSG closing limit: at most 30 clients of one user", "30"]
        for _ in range(10):
            others.enter_context(PacketClient(daemon.socket)).drain()
        with PacketClient(daemon.socket) as one_more:
            assert one_more.receive() == b"CMSG closing\0limit: at most 40 clients"
    assert '"client refused"' in daemon.log


def test_places_are_free_again_after_clients_left(tmp_path: Path, loopback: list[str]) -> None:
    daemon = DaemonProcess(tmp_path, *loopback, environ={"BCCND_LIMITS__CLIENTS": "3"})
    with daemon:
        for _ in range(3):
            with ExitStack() as clients:
                for _ in range(3):
                    clients.enter_context(PacketClient(daemon.socket)).drain()
            wait_until(daemon.answers, "room")


def test_many_may_wait_to_be_accepted(daemon: DaemonProcess) -> None:
    """The queue is as long as the kernel permits, and not a number of ours."""
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    waiting = min(somaxconn, 2000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, waiting + 200), hard))
    try:
        with ExitStack() as clients:
            os.kill(daemon.process.pid, 19)
            try:
                for _ in range(waiting):
                    clients.enter_context(PacketClient(daemon.socket, seconds=0))
            finally:
                os.kill(daemon.process.pid, 18)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
