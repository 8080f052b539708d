"""Requests that cost more than they look."""

from itertools import count

from tests.hostile.attack import Attack, pack, packs
from tests.hostile.behaviour import MIB, behaviour
from tests.plain_bccn import datagram

# Seconds: whoever is read too slowly is behind by more than the judge's patience (GIVES_UP) at their end.
LONG = 15.0

RETAINED = 4000
KEEPS_STATE = f'[retain]\npatterns = ["state/>"]\nchannels = {RETAINED}\n'


def retain(attack: Attack) -> None:
    publisher = attack.packing()
    attack.send_all(publisher, packs(b"MSG state/%d\0on" % number for number in range(RETAINED)))
    publisher.drain()


def cache(attack: Attack, channels: int) -> None:
    """Have the daemon know the routes of so many channels, none of which a pattern here matches."""
    publisher = attack.packing()
    attack.send_all(publisher, packs(b"MSG y%d\0" % number for number in range(channels)))
    publisher.drain()


def repeated(*packets: bytes) -> bytes:
    """A PACK full of these packets, over and over."""
    return pack(packets[number % len(packets)] for number in count())


@behaviour("PACKs of 4,160 requests for a hundred clients")
def pages_of_clients(attack: Attack) -> None:
    attack.connect_many(100)
    attack.repeat([attack.packing() for _ in range(3)], repeated(b"CMSG clients"))


@behaviour("requests for clients one by one, a hundred of them connected", suite=True)
def clients_one_by_one(attack: Attack) -> None:
    attack.connect_many(100)
    attack.repeat(attack.connect(), b"CMSG clients")


@behaviour("requests for clients one by one, longer than anybody waits", seconds=LONG)
def clients_one_by_one_for_long(attack: Attack) -> None:
    clients_one_by_one(attack)


@behaviour("a request for the page of clients behind the last one")
def the_page_behind_the_last(attack: Attack) -> None:
    attack.connect_many(1000)
    attack.repeat(attack.packing(), repeated(b"CMSG clients\x009999999999"))


@behaviour("PACKs of 1,000 requests for 65,000 sources", memory=96 * MIB)
def pages_of_sources(attack: Attack) -> None:
    attack.hear(datagram(f"far/source/{number}", 1, "x") for number in range(65_000))
    attack.repeat(attack.packing(), pack([b"CMSG sources"] * 1000))


@behaviour("all pages of 60,000 sources, again and again", memory=96 * MIB)
def all_pages_of_sources(attack: Attack) -> None:
    attack.hear(datagram(f"far/source/{number}", 1, "x") for number in range(60_000))
    client = attack.connect()
    attack.repeat(client, *(b"CMSG sources\0far/source/%d" % number for number in range(0, 60_000, 100)))


@behaviour("a request for the sources behind the last one", memory=96 * MIB)
def the_sources_behind_the_last(attack: Attack) -> None:
    attack.hear(datagram(f"far/source/{number}", 1, "x") for number in range(30_000))
    attack.repeat([attack.packing() for _ in range(3)], repeated(b"CMSG sources\0~"))


@behaviour("PACKs of SUB and UNSUB with 4,000 last values", settings=KEEPS_STATE)
def last_values_again_and_again(attack: Attack) -> None:
    retain(attack)
    attack.repeat([attack.packing() for _ in range(3)], repeated(b"SUB state/>", b"UNSUB state/>"))


@behaviour("SUB and UNSUB one by one with 4,000 last values", settings=KEEPS_STATE)
def last_values_one_by_one(attack: Attack) -> None:
    retain(attack)
    attack.repeat(attack.connect(), b"SUB state/>", b"UNSUB state/>")


@behaviour("SUB of a pattern that scans last values and matches none", settings=KEEPS_STATE)
def last_values_that_do_not_match(attack: Attack) -> None:
    retain(attack)
    attack.repeat([attack.packing() for _ in range(3)], repeated(b"SUB state/*/x", b"UNSUB state/*/x"))


@behaviour("PACKs of SUB and UNSUB beside 16,000 cached channels")
def a_wide_pattern_in_packs(attack: Attack) -> None:
    cache(attack, 16_000)
    attack.repeat([attack.packing() for _ in range(3)], repeated(b"SUB z*", b"UNSUB z*"))


@behaviour("SUB and UNSUB one by one beside 16,000 cached channels", suite=True)
def a_wide_pattern_one_by_one(attack: Attack) -> None:
    cache(attack, 16_000)
    attack.repeat(attack.connect(), b"SUB z*", b"UNSUB z*")


@behaviour("SUB and UNSUB of > with 16,000 cached channels")
def everything_in_packs(attack: Attack) -> None:
    cache(attack, 16_000)
    attack.repeat(attack.packing(), repeated(b"SUB >", b"UNSUB >"))


@behaviour("1,024 prefix patterns of 16 connections, and pack on again and again", memory=64 * MIB)
def prefixes_and_another_service(attack: Attack) -> None:
    for client in [attack.packing() for _ in range(16)]:
        attack.send_all(client, packs(b"SUB " + b"bystander/x"[:6] + b"%d*" % at for at in range(1023)))
        client.subscribe("b*")
    attack.repeat(attack.connect(), b"CMSG listen", b"CMSG pack on", b"CMSG pack off")


@behaviour("format full and plain in turn, with a thousand subscriptions")
def another_format_again_and_again(attack: Attack) -> None:
    client = attack.packing()
    attack.send_all(client, packs(b"SUB a/%d/*" % at for at in range(1000)))
    attack.repeat(client, repeated(b"CMSG format\0full", b"CMSG format\0plain"))


@behaviour("listen and taps on and off", needs=("root",))
def taps_on_and_off(attack: Attack) -> None:
    attack.repeat(attack.packing(uid=0), repeated(b"CMSG tap\0on", b"CMSG tap\0off", b"CMSG tap\0interface"))


@behaviour("PACKs of requests for the status")
def status_in_packs(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b"CMSG status"))


@behaviour("PACKs of pings whose answers are read", suite=True)
def pings_in_packs(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b"CMSG ping"))


@behaviour("PACKs of requests with unknown keys")
def unknown_keys(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b"CMSG x"))


@behaviour("PACKs of 13,000 packets of one byte")
def packets_of_one_byte(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b"x"))


@behaviour("PACKs of 16,000 packets of no byte")
def packets_of_no_byte(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b""))


@behaviour("PACKs of names taken in turn")
def names_in_packs(attack: Attack) -> None:
    client = attack.packing()
    name = client.request("whoami").encode()
    attack.repeat(client, repeated(b"CMSG name\0%b/a" % name, b"CMSG name\0" + name))


@behaviour("PACKs of heartbeats on and off")
def heartbeats_on_and_off(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b"CMSG heartbeat\x003600 x", b"CMSG heartbeat\0off"))


@behaviour("PACKs of questions for listeners to channels that are new")
def listeners_to_new_channels(attack: Attack) -> None:
    client = attack.packing()
    attack.repeat(client, *packs(b"CMSG listeners\0new/%d" % number for number in range(100_000)))


@behaviour("PACKs of questions for listeners that go to the segment")
def listeners_with_tokens(attack: Attack) -> None:
    attack.repeat(attack.packing(), repeated(b"CMSG listeners\0nobody/there token"))


@behaviour("PACKs of another queue, with a backlog")
def queues_in_packs(attack: Attack) -> None:
    client = attack.packing()
    client.subscribe("bystander/>")
    sizes = b"CMSG queue\0packets=1", b"CMSG queue\0packets=100000 policy=drop-newest"
    attack.repeat(client, repeated(*sizes), reading=False)


@behaviour("a PACK in a PACK in a PACK, by one connection after another")
def nested_packs(attack: Attack) -> None:
    nested = b"SUB a"
    for _ in range(1000):
        nested = pack([nested])
    for _ in range(20):
        attack.packing().offer(nested)


@behaviour("UNSUB of 2,080 patterns that were never held")
def unsub_of_nothing(attack: Attack) -> None:
    attack.repeat(attack.packing(), *packs(b"UNSUB a/%d" % number for number in range(4000)))


@behaviour("one pattern held a million times, and left at once")
def one_pattern_many_times(attack: Attack) -> None:
    client = attack.packing()
    attack.repeat(client, repeated(b"SUB a/>"))
    client.close()


@behaviour("queues of thousands of fields in a request, by ten connections")
def queues_of_many_fields(attack: Attack) -> None:
    attack.repeat(attack.connect_many(10), b"CMSG queue\0" + b"packets=1 " * 6600)


@behaviour("PACKs of packets of one byte, by 1,900 connections of a user")
def packets_of_one_byte_by_many(attack: Attack) -> None:
    attack.repeat([attack.packing() for _ in range(1900)], repeated(b"x"))
