"""Faults around a daemon: a full disk for its log, no descriptors, a kernel that refuses datagrams."""

import errno
import json
import os
import resource
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.needs import require
from tests.packet_client import PacketClient, wait_until
from tests.plain_bccn import plain_socket

_SO_RCVBUFFORCE = 33


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the disk is full ---


def test_a_full_disk_costs_only_log_lines(small_disk: Path, loopback_port: int, tmp_path: Path) -> None:
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    daemon = DaemonProcess(tmp_path, *flags, environ={"BCCND_LOG__LEVEL": "debug"})
    daemon.log_file = small_disk / "log"
    with daemon:
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(1 << 20))
        lines = daemon.log.count("\n")
        with PacketClient(daemon.socket) as subscriber:
            subscriber.subscribe("a")
            for number in range(50):  # each one leaves two lines, or would
                with PacketClient(daemon.socket) as client:
                    client.publish("a", b"%d" % number)
                    client.drain()
            assert subscriber.messages() == [("a", b"%d" % number) for number in range(50)]
        # The rest of the last page may have taken a few.
        assert daemon.log.count("\n") < lines + 60
        filler.unlink()
        with PacketClient(daemon.socket) as client:
            client.drain()
        written = [json.loads(line) for line in daemon.log.splitlines()[lines:] if line.endswith("}")]
        assert sum(line.get("log_lines_lost", 0) for line in written) > 20


# --- no descriptor is left ---


def test_without_descriptors_old_clients_are_served(daemon: DaemonProcess) -> None:
    pid = daemon.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with ExitStack() as connections:
        first, second = (connections.enter_context(PacketClient(daemon.socket)) for _ in range(2))
        first.subscribe("a")
        second.drain()
        room = 3
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + room, hard))
        others = [connections.enter_context(PacketClient(daemon.socket)) for _ in range(room)]
        for other in others:
            other.drain()
        for _ in range(5):
            with PacketClient(daemon.socket) as refused:
                assert refused.receive() == b"CMSG closing\0limit: the daemon is out of file descriptors"
                assert refused.receive() == b""
        used = cpu_seconds(pid)
        for number in range(100):
            second.publish("a", b"%d" % number)
        assert [first.message() for _ in range(100)] == [("a", b"%d" % number) for number in range(100)]
        assert second.drain() == []
        assert cpu_seconds(pid) - used < 0.5  # it does not spin on connections that it cannot accept
        others.pop().close()
        wait_until(daemon.answers, "room for a new client")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert "out of file descriptors" in daemon.log or "Too many open files" in daemon.log


# --- the kernel has no room, or refuses ---

SENDMMSG = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* To the network: takes half of what it is given, and every third time nothing, with the errno FAULT. */
int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
    static int (*real)(int, struct mmsghdr *, unsigned int, int);
    static unsigned int calls;
    if (!real) real = (int (*)(int, struct mmsghdr *, unsigned int, int))dlsym(RTLD_NEXT, "sendmmsg");
    int domain = AF_UNIX;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &(socklen_t){sizeof domain});
    if (domain == AF_UNIX) return real(fd, messages, count, flags);
    if (++calls % 3 == 0) { errno = atoi(getenv("FAULT")); return -1; }
    return real(fd, messages, (count + 1) / 2, flags);
}
"""


@pytest.fixture
def faulty_kernel(tmp_path: Path) -> Path:
    require("gcc")
    source, library = tmp_path / "sendmmsg.c", tmp_path / "sendmmsg.so"
    source.write_text(SENDMMSG)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("fault", ["ENOBUFS", "EAGAIN", "EPERM"])
def test_datagrams_refused_at_first_go_out_later(
    faulty_kernel: Path, tmp_path: Path, loopback_port: int, fault: str
) -> None:
    """If room was short, everything arrives in order. If the kernel refuses datagrams, only those are missing."""
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    environ = {
        "LD_PRELOAD": str(faulty_kernel),
        "FAULT": str(getattr(errno, fault)),
        "BCCND_REPAIR__ON": "false",
    }
    sent = 3000
    with (
        DaemonProcess(tmp_path, *flags, environ=environ) as daemon,
        PacketClient(daemon.socket) as publisher,
        plain_socket(loopback_port) as neighbour,
    ):
        neighbour.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        for number in range(sent):
            publisher.publish("a", b"%d" % number)
        publisher.drain()

        def settled() -> bool:
            counters = publisher.status()["counters"]
            return bool(counters["sent"] + counters["unsent"] == sent)

        wait_until(settled, "that every datagram is accounted for")
        counters = publisher.status()["counters"]
        arrived = [int(neighbour.recv(2048).rpartition(b"|")[2]) for _ in range(counters["sent"])]
        assert arrived == sorted(set(arrived))
        if fault == "EPERM":
            assert counters["unsent"] > 0
            wait_until(lambda: "datagrams dropped" in daemon.log, "a line about it in the log")
            assert daemon.log.count("datagrams dropped") == 1
        else:
            assert arrived == list(range(sent))
