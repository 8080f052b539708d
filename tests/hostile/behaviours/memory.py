"""What a client can make the daemon keep."""

from itertools import count

from tests.hostile.attack import Attack, pack, packs
from tests.hostile.behaviour import MEMORY, MIB, behaviour

# What four clients with the largest queues fill together.
FULL = "[queue]\ntotal_bytes = 16777216\nmax_bytes = 8388608\n"
LARGEST = "packets=100000 bytes=8388608"
# So short that all who ask for it together leave room for others.
SHORT = "bytes=131072"


def tokens(number: int, size: int = 1020) -> bytes:
    """A pattern or channel of as many tokens as fit, each of one byte, but for the number at its end."""
    end = b"%d" % number
    return (b"/a" * size)[1 : size - len(end)] + b"/" + end


@behaviour("1,024 SUBs of 1,020 bytes with 510 tokens each", memory=64 * MIB, suite=True)
def patterns_of_many_tokens(attack: Attack) -> None:
    client = attack.packing()
    patterns = ((b"/%x" % number * 300)[1:1020] for number in range(1024))
    attack.send_all(client, packs(b"SUB " + pattern for pattern in patterns))


@behaviour("messages on channels of many tokens, with patterns of as many")
def channels_of_many_tokens(attack: Attack) -> None:
    subscriber = attack.packing()
    wild = (b"SUB " + b"/".join([b"a*" if number >> at & 1 else b"a" for at in range(10)]) + b"/*" * 120
            for number in range(800))  # fmt: skip
    attack.send_all(subscriber, packs(wild), seconds=5)
    channels = (b"MSG %b\0" % tokens(number, 500) for number in range(2000))
    attack.repeat([attack.packing() for _ in range(3)], *packs(channels))


@behaviour("64 clients with a thousand patterns of 1,000 bytes each", memory=64 * MIB)
def megabytes_of_patterns(attack: Attack) -> None:
    for number, client in enumerate([attack.packing() for _ in range(64)]):
        patterns = (b"SUB %d/%d/%b" % (number, at, b"x" * 980) for at in range(1000))
        attack.send_all(client, packs(patterns), seconds=2)


# Each has an answer of 65 kB waiting; little that was read of all of them is left, as each is read no more.
@behaviour("200 connections that do not read what their pings of 65 kB answer", suite=True)
def answers_nobody_reads(attack: Attack) -> None:
    ping = b"CMSG ping\0" + bytes(65_000)
    attack.repeat(attack.connect_many(200), ping, reading=False)


@behaviour("one connection that does not read its answers", suite=True)
def answers_one_does_not_read(attack: Attack) -> None:
    attack.repeat(attack.connect(), b"CMSG ping\0" + bytes(60_000), reading=False)


@behaviour("four clients with the largest queues that never read", settings=FULL, pause=0.6)
def the_largest_queues(attack: Attack) -> None:
    for client in attack.connect_many(4):
        client.request("queue", LARGEST)
        client.subscribe("local/flood")
    attack.repeat(attack.packing(), pack([b"MSG local/flood\0" + bytes(1000)] * 60))


@behaviour("fifty clients that never read floods of large messages", suite=True)
def many_that_never_read(attack: Attack) -> None:
    for client in attack.connect_many(50):
        client.request("queue", SHORT)
        client.subscribe("local/flood")
    attack.repeat(attack.connect(), b"MSG local/flood\0" + bytes(60_000))


@behaviour("a queue of 100,000 packets of one byte that is never read", memory=64 * MIB)
def the_longest_queue(attack: Attack) -> None:
    for client in attack.connect_many(2):
        client.request("queue", LARGEST)
        client.subscribe("f")
    attack.repeat(attack.packing(), pack([b"MSG f\0x"] * 5000))


@behaviour("packed queues of large messages that are never read")
def packed_and_never_read(attack: Attack) -> None:
    for client in [attack.packing() for _ in range(20)]:
        client.request("queue", SHORT)
        client.subscribe("local/flood")
    attack.repeat(attack.packing(), pack([b"MSG local/flood\0" + bytes(6000)] * 10))


@behaviour("full format, 200 subscribers that never read", memory=64 * MIB)
def full_and_never_read(attack: Attack) -> None:
    for client in attack.connect_many(200):
        client.request("format", "full")
        client.request("queue", SHORT)
        client.subscribe("local/flood")
    attack.repeat(attack.packing(), pack([b"MSG local/flood\0" + bytes(300)] * 200))


@behaviour("last values of 64 KiB on a million channels", settings='[retain]\npatterns = ["local/state/>"]\n')
def large_last_values(attack: Attack) -> None:
    values = (b"MSG local/state/%d\0" % number + bytes(64_000) for number in count())
    publisher = attack.connect()
    while attack.goes_on:
        publisher.offer(next(values))


@behaviour("last values of one byte on a million channels", settings='[retain]\npatterns = ["state/>"]\n')
def many_last_values(attack: Attack) -> None:
    publisher = attack.packing()
    for packet in packs(b"MSG state/%d\0x" % number for number in count()):
        if not attack.goes_on:
            break
        attack.send_all(publisher, [packet], seconds=1)


@behaviour("messages on channels of 1,000 bytes, each a new one", memory=64 * MIB)
def long_channels(attack: Attack) -> None:
    attack.send_all(attack.packing(), packs(b"MSG local/%b%d\0" % (b"x" * 990, at) for at in range(120_000)))


@behaviour("messages on short channels, each a new one", memory=64 * MIB)
def new_channels(attack: Attack) -> None:
    publisher = attack.packing()
    for packet in packs(b"MSG local/%d\0" % number for number in count()):
        if not attack.goes_on:
            break
        attack.send_all(publisher, [packet], seconds=1)


@behaviour("500 clients that beat with the longest text", memory=MEMORY + 16 * MIB)
def long_heartbeats(attack: Attack) -> None:
    for client in attack.connect_many(500):
        client.offer(b"CMSG heartbeat\x003600 " + b"x" * 1000)


@behaviour("taps that never read, while another publishes", needs=("root",))
def taps_that_never_read(attack: Attack) -> None:
    for tap in attack.connect_many(20, uid=0):
        tap.request("queue", SHORT)
        tap.request("tap", "on")
    attack.repeat(attack.packing(), pack([b"MSG flood/x\0" + bytes(500)] * 100))


@behaviour("1,500 connections of a user that never read, when all queues are full", settings=FULL, pause=0.3)
def full_queues_of_one_user(attack: Attack) -> None:
    for client in attack.connect_many(1500):
        client.offer(b"SUB local/f")
    attack.repeat(attack.packing(), pack([b"MSG local/f\0" + bytes(1000)] * 60))


@behaviour(
    "last values by 70 connections of a user, after those of another",
    settings='[retain]\npatterns = ["state/>"]\n',
    needs=("root",),
    suite=True,
)
def last_values_of_another(attack: Attack) -> None:
    values = [b"state/ours/%d" % number for number in range(100)]
    with attack.connect(uid=0) as client:
        attack.send_all(client, [b"MSG %b\0x" % chan for chan in values])
        client.drain()
    for number, client in enumerate(attack.connect_many(70)):
        attack.send_all(client, [b"MSG state/theirs/%d/%d\0x" % (number, each) for each in range(60)])
        client.drain()
    late = attack.connect(uid=0)
    late.send(b"SUB state/ours/>")
    left = len(late.drain())
    assert left == len(values), f"{left} of {len(values)} are left"


@behaviour(
    "patterns by 70 connections of a user that take all they may",
    needs=("root",),
    memory=96 * MIB,
    suite=True,
)
def patterns_of_all(attack: Attack) -> None:
    for number, client in enumerate([attack.packing() for _ in range(70)]):
        attack.send_all(client, packs(b"SUB %d/%d/%b" % (number, at, b"x" * 980) for at in range(440)))
    other = attack.connect(uid=0)
    refused = 0
    for number in range(100):
        other.send(b"SUB ours/%d/%b" % (number, b"x" * 900))
        refused += len(other.drain())
    assert not refused, f"{refused} of 100 patterns of another user are refused"
