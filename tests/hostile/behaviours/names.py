"""Names: taken, given up, below those of others, and heard from elsewhere."""

from tests.hostile.attack import Attack, packs
from tests.hostile.behaviour import MIB, behaviour
from tests.plain_bccn import datagram


@behaviour("60,000 names in turn, each with a heartbeat", memory=48 * MIB)
def names_with_heartbeats(attack: Attack) -> None:
    client = attack.packing()
    name = client.request("whoami").encode()
    for packet in packs(
        each
        for number in range(60_000)
        for each in (b"CMSG name\0%b/%d" % (name, number), b"CMSG heartbeat\x003600", b"CMSG heartbeat\0off")
    ):
        if not attack.goes_on:
            break
        attack.send_all(client, [packet], seconds=2)


@behaviour("names in turn, each with a message of its own")
def names_with_messages(attack: Attack) -> None:
    client = attack.packing()
    name = client.request("whoami").encode()
    attack.repeat(
        client,
        *packs(
            each for number in range(20_000) for each in (b"CMSG name\0%b/%d" % (name, number), b"MSG a\0x")
        ),
    )


@behaviour("the longest names of a hundred clients in turn")
def long_names(attack: Attack) -> None:
    clients = [attack.packing() for _ in range(100)]
    for client in clients:
        name = client.request("whoami").encode()
        client.offer(b"CMSG name\0%b/%b" % (name, b"x" * (127 - len(name))))
    attack.repeat(clients, b"MSG a\0x")


@behaviour("names of others, and names below them")
def names_of_others(attack: Attack) -> None:
    client = attack.connect()
    name = client.request("whoami").encode()
    program = name.rpartition(b"/")[0]
    theirs = b"%b/%d" % (program, attack.bystander)
    attack.repeat(
        client,
        *(b"CMSG name\0" + each for each in (theirs, theirs + b"/x", theirs + b"/c2", b"here/bccnd/1", b"?")),
    )


@behaviour("presence of 50,000 sources that nobody has heard before", memory=48 * MIB)
def presence_of_strangers(attack: Attack) -> None:
    attack.flood(
        datagram(f"far/x/{number}", 1, f"heartbeat/far/x/{number}", b"x") for number in range(50_000)
    )


@behaviour("a subscriber to presence that never reads, while names come and go")
def presence_that_nobody_reads(attack: Attack) -> None:
    for client in attack.connect_many(20):
        client.subscribe("local/presence/>")
    names_with_heartbeats(attack)


@behaviour("sources that say that they leave, and come back, in turn", suite=True)
def sources_that_come_back(attack: Attack) -> None:
    attack.flood(
        datagram(
            f"far/x/{number % 50}", number, f"heartbeat/far/x/{number % 50}", (b"leaving", b"x")[number % 2]
        )
        for number in range(1, 1_000_000)
    )


@behaviour("a program called bccnd")
def a_program_called_bccnd(attack: Attack) -> None:
    attack.child(
        "import ctypes, socket, sys, time\n"
        "ctypes.CDLL(None).prctl(15, b'bccnd')\n"
        "client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "client.connect(sys.argv[1])\n"
        "client.send(b'SUB >')\n"
        "while True:\n"
        "    client.send(b'MSG !here/bccnd\\0x\\nping')\n"
        "    client.recv(65536)\n"
    )
    attack.rest()


@behaviour("a thousand clients that beat together, and 500 that hear them")
def heartbeats_together(attack: Attack) -> None:
    for client in attack.connect_many(500):
        client.offer(b"SUB heartbeat/>")
    for client in attack.connect_many(1000):
        client.offer(b"CMSG heartbeat\x001 x")
    attack.rest()


@behaviour("connections that come and go, before 1,500 that hear of it")
def presence_of_a_storm(attack: Attack) -> None:
    for client in attack.connect_many(1500):
        client.offer(b"SUB local/presence/>")
    while attack.goes_on:
        for client in attack.connect_many(100):
            client.close()


@behaviour("1,500 that hear of each other, when the daemon must end", stays=True)
def presence_at_the_end(attack: Attack) -> None:
    hearers = attack.connect_many(1500)
    hearers[-1].drain()
    for client in hearers:
        client.offer(b"SUB local/presence/>")
    attack.rest()
