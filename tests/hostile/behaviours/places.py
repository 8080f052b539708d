"""Places: connections, their descriptors, and who waits at the door."""

import os
import resource
import socket
from contextlib import suppress

from tests.hostile.attack import NOBODY, Attack, as_user
from tests.hostile.behaviour import MIB, behaviour


@behaviour("one user takes all 4,096 places", memory=96 * MIB)
def all_places(attack: Attack) -> None:
    attack.connect_many(4200)


@behaviour("one user takes all of a hundred places", settings="[limits]\nclients = 100\n", suite=True)
def all_of_a_hundred_places(attack: Attack) -> None:
    attack.connect_many(120)


@behaviour("a storm of connections that leave at once", suite=True)
def connect_and_leave(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            attack.connect().close()


@behaviour("a storm of connections that say one thing and leave")
def connect_and_speak(attack: Attack) -> None:
    while attack.goes_on:
        with suppress(OSError):
            client = attack.connect()
            client.offer(b"SUB bystander/>")
            client.offer(b"CMSG status")
            client.close()


@behaviour("more connections at once than the door has room for")
def the_door_is_full(attack: Attack) -> None:
    while attack.goes_on:
        knocking = []
        with as_user(NOBODY):
            for _ in range(500):
                client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                client.setblocking(False)
                with suppress(OSError):
                    client.connect(str(attack.daemon.socket))
                knocking.append(client)
        for client in knocking:
            client.close()


@behaviour("a thousand that subscribe to everything and never read")
def a_thousand_that_never_read(attack: Attack) -> None:
    for client in attack.connect_many(1000):
        client.offer(b"SUB >")


@behaviour("2,000 connections of one process, of which one comes and goes")
def another_of_two_thousand(attack: Attack) -> None:
    attack.connect_many(2000)
    while attack.goes_on:
        with suppress(OSError):
            attack.connect().close()


@behaviour("a thousand connections that leave at once, again and again")
def crowds_come_and_go(attack: Attack) -> None:
    while attack.goes_on:
        for client in attack.connect_many(500):
            client.offer(b"SUB crowd/>")
            client.close()


@behaviour("connections of a stream and of datagrams")
def other_kinds_of_socket(attack: Attack) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM) * 50:
        with socket.socket(socket.AF_UNIX, kind) as client, suppress(OSError):
            client.connect(str(attack.daemon.socket))


@behaviour("the daemon is out of descriptors", suite=True)
def out_of_descriptors(attack: Attack) -> None:
    pid = attack.daemon.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (40, before[1]))
    attack.connect_many(60)
    attack.rest()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@behaviour("connections by eight processes at once")
def storms_by_processes(attack: Attack) -> None:
    for _ in range(8):
        attack.child(
            "import socket, sys\n"
            "while True:\n"
            "    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "    try:\n"
            "        client.connect(sys.argv[1])\n"
            "    except OSError:\n"
            "        pass\n"
            "    client.close()\n"
        )
    attack.rest()


@behaviour("300 connections of a user in 65,535 groups", needs=("root",))
def many_groups(attack: Attack) -> None:
    before = os.getgroups()
    os.setgroups(range(100_000, 165_535))
    try:
        attack.connect_many(300)
    finally:
        os.setgroups(before)
    attack.rest()
