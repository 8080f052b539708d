"""What a host of the segment sends, with the key and without."""

import json
import random
from itertools import count, cycle

from tests.hostile.attack import Attack, pack
from tests.hostile.behaviour import MIB, behaviour
from tests.hostile.bystander import FIRST_NUMBER
from tests.plain_bccn import datagram

KEY = b"the-key-of-this-segment-for-tests"
PLAIN = "there/plain/1"


def now_number(attack: Attack) -> int:
    """Where the bystander's numbers are, as another program of the segment would overhear it."""
    with attack.connect(uid=0) as client:
        while attack.goes_on:  # until it has been heard: who says its first number says where it is
            sources = json.loads(client.request("sources", "there/plain"))["sources"]
            if heard := [int(row["last"]) for row in sources if row["src"] == PLAIN]:
                return heard[0]
    return FIRST_NUMBER


@behaviour("random bytes", suite=True)
def random_bytes(attack: Attack) -> None:
    rng = random.Random(2026)
    attack.flood(rng.randbytes(rng.randrange(1500)) for _ in count())


@behaviour("sound datagrams with bytes changed")
def changed_bytes(attack: Attack) -> None:
    rng = random.Random(2026)
    good = datagram("far/x/1", 7, "flood/x", b"x" * 100)

    def changed() -> bytes:
        at = rng.randrange(len(good))
        return good[:at] + rng.randbytes(1) + good[at + 1 :]

    attack.flood(changed() for _ in count())


@behaviour("one forged number that is 500 ahead of a source", segment=True, suite=True)
def one_jump(attack: Attack) -> None:
    attack.hear([datagram(PLAIN, now_number(attack) + 500, "x")])


@behaviour("one forged number that is a million ahead of a source", segment=True)
def one_large_jump(attack: Attack) -> None:
    attack.hear([datagram(PLAIN, now_number(attack) + 1_000_000, "x")])


@behaviour("two forged numbers of which the second is far above the first")
def a_jump_beyond_a_stray(attack: Attack) -> None:
    for power in (31, 62):
        numbers = 1, 18, 2**power
        attack.hear(datagram(f"far/x/{power}", number, "flood/x") for number in numbers)


@behaviour("one forged number that is the highest there is", segment=True)
def the_highest_number(attack: Attack) -> None:
    attack.hear([datagram(PLAIN, 2**64 - 1, "x")])


@behaviour("a source's own numbers again, from somebody else", segment=True)
def replays(attack: Attack) -> None:
    last = now_number(attack)
    attack.hear(datagram(PLAIN, max(1, last - number % 500), "x") for number in range(2000))


@behaviour("the name of a live client in datagrams from elsewhere", suite=True)
def names_of_live_clients(attack: Attack) -> None:
    client = attack.connect()
    program = client.request("whoami").rpartition("/")[0]
    attack.flood(
        (datagram(f"{program}/{attack.bystander}", 2**62 + number, "x") for number in count()),
        a_second=20_000,
    )


@behaviour("heartbeats of the longest payload by 10,000 sources", memory=64 * MIB)
def long_heartbeats(attack: Attack) -> None:
    attack.flood(
        (
            datagram(f"far/x/{number}", 1, f"heartbeat/far/x/{number}", b"x" * 1300)
            for number in range(10_000)
        ),
        a_second=20_000,
    )


@behaviour("sources that are new with each datagram", memory=64 * MIB, suite=True)
def new_sources(attack: Attack) -> None:
    attack.flood(datagram(f"far/{number}", 1, "x") for number in count())


@behaviour("sources with the longest names that are new with each datagram", memory=96 * MIB)
def long_new_sources(attack: Attack) -> None:
    attack.flood(datagram(f"{'far' * 38}/{number}", 1, "x") for number in count())


@behaviour("channels that are new with each datagram", memory=64 * MIB)
def new_channels(attack: Attack) -> None:
    reader = attack.connect()
    reader.subscribe("flood/>")
    attack.flood(datagram("far/x/1", number, f"flood/{number}") for number in count(1))


@behaviour("channels of a thousand bytes that are new with each datagram", memory=48 * MIB)
def long_new_channels(attack: Attack) -> None:
    attack.connect().subscribe("flood/>")
    attack.hear(datagram("far/x/1", number, f"flood/{'x' * 990}{number}") for number in range(1, 80_000))


@behaviour("a hundred sources on a hundred channels in turn, to ten readers")
def sources_in_turn(attack: Attack) -> None:
    for client in attack.connect_many(10):
        client.subscribe("flood/>")
    attack.flood(datagram(f"far/{at % 100}", at, f"flood/{at % 100}", b"x" * 100) for at in count(1))


@behaviour("questions for listeners in the names of many")
def questions_for_listeners(attack: Attack) -> None:
    attack.flood(
        datagram(f"far/{number % 1000}", number, "bccnd/ask", b"t\nlisteners bystander/x")
        for number in count(1)
    )


@behaviour("pings to the daemon in the names of many")
def pings(attack: Attack) -> None:
    attack.flood(datagram(f"far/{number % 1000}", number, "!here/bccnd", b"t\nping") for number in count(1))


@behaviour("datagrams of the largest size")
def the_largest_size(attack: Attack) -> None:
    attack.flood(cycle([datagram("far/x/1", 1, "bystander/x", b"x" * 65_000)]))


@behaviour("datagrams of no byte")
def no_byte(attack: Attack) -> None:
    attack.flood(cycle([b""]))


@behaviour("heartbeats that say that the bystander's host leaves", segment=True)
def forged_leave(attack: Attack) -> None:
    attack.hear(
        [datagram("there/bccnd/1", number, "heartbeat/there/bccnd/1", b"leaving") for number in (1, 2, 3)]
    )
    attack.hear([datagram(PLAIN, FIRST_NUMBER - 900, f"heartbeat/{PLAIN}", b"leaving")])


@behaviour("local channels and notices from elsewhere")
def local_channels(attack: Attack) -> None:
    chans = ("local/x", "local/presence/left/here/x/1", "heartbeat/here/x/1", "!here/bccnd/*", "!?")
    attack.flood(datagram(f"far/{at % 7}", at, chans[at % len(chans)], b"x") for at in count(1))


@behaviour("numbers and lengths of many digits, and targets with stars")
def many_digits(attack: Attack) -> None:
    digits = b"9" * 600
    body = b"far/x/1:%b:x|" % digits
    wrong = [
        b"BCCN1[%d]%b" % (len(body), body),
        b"BCCN1[%b]x" % digits,
        datagram("far/x/1", 1, "!*/*/*", b"x"),
    ]
    attack.flood(cycle(wrong))


@behaviour("messages to all, 2,000 a second")
def messages_to_all(attack: Attack) -> None:
    attack.flood((datagram("far/x/1", number, "!", b"x") for number in count(1)), a_second=2000)


@behaviour("with a key: datagrams without it", key=KEY, suite=True)
def without_the_key(attack: Attack) -> None:
    attack.flood(datagram(f"far/{number}", 1, "bystander/x") for number in count())


@behaviour("with a key: datagrams with another one", key=KEY)
def with_another_key(attack: Attack) -> None:
    forged = [
        datagram(f"far/{number}", 1, "x", b"x" * 1000, key=b"another-key-of-16") for number in range(500)
    ]
    attack.flood(cycle(forged))


@behaviour("with a key: a recording, over and over", key=KEY)
def a_recording(attack: Attack) -> None:
    recorded = [datagram("far/x/1", 10**15 + number, "x", b"x" * 100, key=KEY) for number in range(3000)]
    attack.flood(cycle(recorded))


@behaviour("with the key: questions for listeners by one host", key=KEY)
def questions_with_the_key(attack: Attack) -> None:
    asked = [
        datagram("far/x/1", number, "bccnd/ask", b"t\nlisteners bystander/x", key=KEY)
        for number in range(1, 20_000)
    ]
    attack.flood(cycle(asked))


@behaviour("with the key: sources that are new with each datagram", key=KEY, memory=64 * MIB)
def new_sources_with_the_key(attack: Attack) -> None:
    attack.flood(datagram(f"far/{number}", 1, "x", key=KEY) for number in count())


@behaviour("last values from elsewhere, on a million channels", settings='[retain]\npatterns = ["state/>"]\n')
def last_values(attack: Attack) -> None:
    attack.flood(datagram("far/x/1", at, f"state/{at}", b"x" * 1000) for at in count(1))


@behaviour("readers that pack and do not read, while datagrams come")
def packing_readers(attack: Attack) -> None:
    for client in [attack.packing() for _ in range(10)]:
        client.request("format", "full")
        client.request("queue", "bytes=1048576")
        client.offer(pack([b"SUB flood/x"]))
    attack.flood(datagram("far/x/1", at, "flood/x", b"x" * 1000) for at in count(1))
