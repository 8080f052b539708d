"""What comes through a bridge, and who only says that it is one."""

from itertools import count

from tests.hostile.attack import Attack, pack, packs
from tests.hostile.behaviour import MIB, behaviour
from tests.plain_bccn import datagram

ROOT = ("root",)


@behaviour("datagrams of a client without the right to bridge", needs=ROOT, suite=True)
def without_the_right(attack: Attack) -> None:
    attack.repeat(attack.packing(), pack(datagram("far/x/1", number, "x") for number in count()))


@behaviour("sources that are new with each datagram", needs=ROOT, memory=64 * MIB)
def new_sources(attack: Attack) -> None:
    client = attack.packing(uid=0)
    attack.repeat(client, *packs(datagram(f"far/{number}", 1, "x") for number in range(50_000)))


@behaviour("names of live clients", needs=ROOT)
def names_of_live_clients(attack: Attack) -> None:
    client = attack.packing(uid=0)
    program = client.request("whoami").rpartition("/")[0]
    attack.repeat(
        client, *packs(datagram(f"{program}/{attack.bystander}", 2**62 + at, "x") for at in range(5000))
    )


@behaviour("datagrams of every fault", needs=ROOT)
def malformed(attack: Attack) -> None:
    wrong = [b"BCCN1", b"BCCN1[5]abc", b"BCCN1[3:md5=00]abc", b"BCCN1[9]a b:1:c|", b"BCCN1[" + b"9" * 999]
    attack.repeat(attack.packing(uid=0), pack(wrong * 100))


@behaviour("duplicates and late datagrams", needs=ROOT)
def duplicates(attack: Attack) -> None:
    attack.repeat(attack.packing(uid=0), pack(datagram("far/x/1", 7 + at % 3, "x") for at in range(2000)))


@behaviour("heartbeats and questions in the names of many", needs=ROOT, memory=48 * MIB)
def heartbeats(attack: Attack) -> None:
    client = attack.packing(uid=0)
    beats = (
        datagram(f"far/{at}", 1, ("bccnd/ask", f"heartbeat/far/{at}")[at % 2], b"t\nlisteners bystander/x")
        for at in range(40_000)
    )
    attack.repeat(client, *packs(beats))


@behaviour("a flood of the largest datagrams", needs=ROOT)
def the_largest(attack: Attack) -> None:
    client = attack.packing(uid=0)
    attack.repeat(client, *packs(datagram("far/x/1", at, "flood/x", b"x" * 1300) for at in range(1, 20_000)))
