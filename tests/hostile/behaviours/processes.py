"""What a process can do with its end of a connection, and with itself."""

import array
import os
import signal
import socket
import struct
from contextlib import suppress

from tests.hostile.attack import Attack, pack
from tests.hostile.behaviour import MEMORY, MIB, behaviour

SUBSCRIBES = (
    "import socket, sys, time\n"
    "client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "client.connect(sys.argv[1])\n"
    "client.send(b'SUB >')\n"
    "time.sleep(60)\n"
)
PACKS = (
    "import socket, sys\n"
    "client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "client.connect(sys.argv[1])\n"
    "client.send(b'CMSG pack on')\n"
    "pack = b'PACK ' + b'\\0\\0\\0\\x06MSG p\\0' * 6500\n"
    "while True:\n"
    "    client.send(pack)\n"
)
FORKS = (
    "import os, socket, sys\n"
    "client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "client.connect(sys.argv[1])\n"
    "client.send(b'CMSG echo/off')\n"
    "for number in range(5):\n"
    "    os.fork()\n"
    "import ctypes\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "for number in range(20000):\n"
    "    client.send(b'MSG p/x\\0%d' % os.getpid())\n"
    "    client.recv(65536, socket.MSG_DONTWAIT) if number % 100 == 99 else None\n"
)
LEAVES = (
    "import os, socket, sys\n"
    "for number in range(200):\n"
    "    if os.fork() == 0:\n"
    "        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    "        client.connect(sys.argv[1])\n"
    "        client.send(b'MSG p/x\\0y')\n"
    "        os._exit(0)\n"
    "    os.wait()\n"
)


@behaviour("a subscriber to everything that is stopped", suite=True)
def stopped_subscribers(attack: Attack) -> None:
    for _ in range(5):
        attack.child(SUBSCRIBES).send_signal(signal.SIGSTOP)
    attack.repeat(attack.packing(), pack([b"MSG p/x\0" + bytes(100)] * 400))


# One read takes 64 PACKs apart, into two numbers for each packet in them.
UNPACKED = MEMORY + 32 * MIB


@behaviour("publishers that are killed in the middle of their PACKs", memory=UNPACKED, suite=True)
def killed_publishers(attack: Attack) -> None:
    while attack.goes_on:
        child = attack.child(PACKS)
        with suppress(Exception):
            child.wait(0.2)
        child.kill()
        child.wait()


@behaviour("descriptors sent along, 250 with each packet", suite=True)
def descriptors(attack: Attack) -> None:
    client = attack.connect()
    rights = array.array("i", [client.socket.fileno()] * 250).tobytes()
    while attack.goes_on:
        with suppress(OSError):
            client.socket.sendmsg(
                [b"CMSG ping"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_DONTWAIT
            )
        client.discard()


@behaviour("credentials sent along, of somebody else", needs=("root",))
def credentials(attack: Attack) -> None:
    client = attack.connect(uid=0)
    forged = struct.pack("3i", os.getpid(), 1000, 1000)
    while attack.goes_on:
        with suppress(OSError):
            client.socket.sendmsg(
                [b"CMSG whoami"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, forged)], socket.MSG_DONTWAIT
            )
        client.discard()


@behaviour("a reader that only looks at what it has (MSG_PEEK)")
def peeks(attack: Attack) -> None:
    client = attack.connect()
    client.subscribe("bystander/>")
    while attack.goes_on:
        with suppress(OSError):
            client.socket.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)


@behaviour("packets of no byte")
def packets_of_no_byte(attack: Attack) -> None:
    attack.repeat(attack.connect_many(5), b"")


@behaviour("a half of the connection shut down, then the other")
def halves(attack: Attack) -> None:
    while attack.goes_on:
        for first in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
            with suppress(OSError):
                client = attack.connect()
                client.offer(b"SUB bystander/>")
                client.socket.shutdown(first)
                client.offer(b"CMSG status")
                client.close()


@behaviour("connections whose reading half is shut down, and stay")
def reading_half(attack: Attack) -> None:
    for client in attack.connect_many(100):
        client.offer(b"SUB >")
        client.socket.shutdown(socket.SHUT_RD)


@behaviour("packets beyond the largest")
def beyond_the_largest(attack: Attack) -> None:
    client = attack.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    attack.repeat(client, b"MSG local/x\0" + bytes(200_000))


@behaviour("32 processes that use one connection")
def one_connection_of_many(attack: Attack) -> None:
    attack.child(FORKS)
    attack.rest()


@behaviour("processes that publish once and leave")
def once_and_leave(attack: Attack) -> None:
    attack.child(LEAVES)
    attack.rest()


@behaviour("readers with the smallest buffers")
def small_buffers(attack: Attack) -> None:
    for client in attack.connect_many(100):
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        client.offer(b"SUB >")


@behaviour("urgent data, and packets in parts")
def odd_flags(attack: Attack) -> None:
    client = attack.connect()
    while attack.goes_on:
        for flags in (socket.MSG_OOB, socket.MSG_MORE, socket.MSG_EOR):
            with suppress(OSError):
                client.socket.send(b"CMSG ping", flags | socket.MSG_DONTWAIT)
        client.discard()


@behaviour("clients that never read, when the daemon must end", stays=True, suite=True)
def the_end(attack: Attack) -> None:
    for client in attack.connect_many(50):
        client.offer(b"CMSG queue\0policy=block")
        client.offer(b"SUB p/x")
    attack.repeat(attack.packing(), pack([b"MSG p/x\0" + bytes(100)] * 400), reading=False)


@behaviour("a publisher that never stops, when the daemon must end", stays=True)
def sends_to_the_end(attack: Attack) -> None:
    attack.child(PACKS)
    attack.rest()
