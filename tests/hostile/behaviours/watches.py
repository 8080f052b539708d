"""What watches cost those who watch nothing, and what others can do to those who do."""

from tests.hostile.attack import Attack, pack, packs
from tests.hostile.behaviour import behaviour
from tests.hostile.behaviours.requests import repeated
from tests.plain_bccn import datagram


@behaviour("PACKs of watches that come and go")
def watches_that_come_and_go(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b"CMSG watch\0*/a*/b", b"CMSG unwatch\0*/a*/b"))


@behaviour("SUB and UNSUB of everything under 1,000 watches of patterns", suite=True)
def churn_under_many_watches(attack: Attack) -> None:
    for number in range(10):
        client = attack.packing()
        attack.send_all(client, packs(b"CMSG watch\0*/%d/no%d*" % (number, each) for each in range(100)))
    holder = attack.packing()
    attack.send_all(holder, packs(b"SUB held/%d/>" % number for number in range(1000)))
    attack.repeat([attack.packing() for _ in range(3)], repeated(b"SUB >", b"UNSUB >"))


@behaviour("1,000 watches of one who reads nothing, while everything changes")
def watches_that_nobody_reads(attack: Attack) -> None:
    watching, changing = attack.packing(), attack.connect()
    attack.send_all(watching, packs(b"CMSG watch\0w/%d" % number for number in range(1000)))
    attack.repeat(changing, b"SUB w/>", b"UNSUB w/>")


@behaviour("questions about 20,000 patterns of hosts that have none")
def questions_of_daemons(attack: Attack) -> None:
    patterns = [b"*/%d/x*" % number for number in range(60)]
    attack.hear(
        datagram("far/bccnd/1", number, "bccnd/ask", b"%d\nwatch 10 /\n%b" % (number, b"\n".join(patterns)))
        for number in range(1, 350)
    )
    attack.repeat(attack.connect(), pack([b"CMSG ping"]), b"SUB >", b"UNSUB >")
