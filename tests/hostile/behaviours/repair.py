"""What one host of the segment makes others do with requests, announcements and refusals of lost messages.

On a segment without a key everybody can say all of this; with one, whoever has it.
"""

import time
from collections.abc import Iterable, Iterator
from itertools import count

from tests.hostile.attack import Attack
from tests.hostile.behaviour import behaviour
from tests.hostile.behaviours.datagrams import KEY, PLAIN, now_number
from tests.hostile.bystander import CHANNEL
from tests.plain_bccn import datagram, plain_socket

REPAIR = "!bccnd/repair"
# As full as a request can be (``bccnd/wire/repair.py``, RANGES_LIMIT): 256 numbers, none beside another.
EVERY_OTHER = b",".join(b"%d" % offset for offset in range(0, 512, 2))
# Of what a source has sent last.
KEPT = 4096
# Datagrams a second beside a bystander on the segment: more would fill the socket's buffer, which loses for all.
BESIDE_A_PLAIN_PROGRAM = 1_000.0


def said(number: int, payload: bytes, src: str = "far/bccnd/1", key: bytes | None = None) -> bytes:
    """What a daemon says to others about lost messages."""
    return datagram(f"{src}/repair", number, REPAIR, payload, key)


def overheard(attack: Attack) -> tuple[bytes, int]:
    """The bystander's source and its last number, as every program of the segment hears them."""
    with plain_socket(attack.port) as sock:
        until = time.monotonic() + 10.0
        while time.monotonic() < until:
            src, seq, rest = sock.recv(2048).partition(b"]")[2].split(b":", 2)
            if rest.startswith(CHANNEL + b"|"):
                return src, int(seq)
    raise AssertionError("the bystander is not heard")


def flood(
    attack: Attack,
    payloads: Iterable[bytes],
    *,
    hosts: int = 1,
    key: bytes | None = None,
    a_second: float = 1e9,
) -> None:
    attack.flood(
        (
            said(number, payload, f"far{number % hosts}/bccnd/1", key)
            for number, payload in enumerate(payloads)
        ),
        a_second=a_second,
    )


def kept(src: bytes, last: int) -> bytes:
    """A request for all that its daemon keeps."""
    return b"resend\n%b %d 0-%d" % (src, last - KEPT, KEPT)


def kept_always(attack: Attack) -> Iterator[bytes]:
    src, last = overheard(attack)
    begun = time.monotonic()
    while True:
        yield kept(src, last + int(1000 * (time.monotonic() - begun)))


@behaviour("requests for everything, without the key", key=KEY, suite=True)
def without_the_key(attack: Attack) -> None:
    flood(attack, kept_always(attack))


@behaviour("requests for everything, all the time", suite=True)
def everything(attack: Attack) -> None:
    flood(attack, kept_always(attack))


@behaviour("requests for everything, with the key", key=KEY)
def with_the_key(attack: Attack) -> None:
    flood(attack, kept_always(attack), key=KEY)


@behaviour("requests for everything from a thousand hosts")
def from_many_hosts(attack: Attack) -> None:
    flood(attack, kept_always(attack), hosts=1000)


@behaviour("requests as full as they can be")
def full_requests(attack: Attack) -> None:
    src, last = overheard(attack)
    flood(attack, (b"resend\n%b %d %b" % (src, last - 500, EVERY_OTHER) for _ in count()))


@behaviour("requests for numbers that are not sent yet")
def numbers_of_the_future(attack: Attack) -> None:
    src, last = overheard(attack)
    flood(attack, (b"resend\n%b %d %b" % (src, last + 10**9, EVERY_OTHER) for _ in count()))


@behaviour("requests for sources that do not exist")
def no_such_sources(attack: Attack) -> None:
    def lines() -> Iterator[bytes]:
        for number in count():
            names = (b"\nhere/no/%d 5 0-9" % (number * 50 + at) for at in range(40))
            yield b"resend" + b"".join(names)

    flood(attack, lines())


@behaviour("a receiver that loses half")
def half_is_lost(attack: Attack) -> None:
    src, last = overheard(attack)
    begun = time.monotonic()

    def lines() -> Iterator[bytes]:
        for _ in count():
            now = last + int(1000 * (time.monotonic() - begun))
            yield b"resend\n%b %d %b" % (src, now - 512, EVERY_OTHER)

    attack.flood(
        (said(number, payload) for number, payload in enumerate(lines())),
        a_second=100,
    )


# -- announcements


@behaviour("announcements of the highest numbers there are", segment=True)
def highest_announced(attack: Attack) -> None:
    last = now_number(attack)
    lines = b"last\n%b %d" % (PLAIN.encode(), last + 1_000_000), b"last\n%b %d" % (PLAIN.encode(), 2**63)
    flood(attack, (lines[number % 2] for number in count()), a_second=BESIDE_A_PLAIN_PROGRAM)


@behaviour("announcements of numbers that were never sent")
def never_sent(attack: Attack) -> None:
    def lines() -> Iterator[bytes]:
        for number in count():
            sources = (b"\nfar/x/%d %d-%d" % (at, 10**15, 10**15 + number * 1000 + 999) for at in range(30))
            yield b"last" + b"".join(sources)

    flood(attack, lines())


@behaviour("announcements of new sources without end")
def new_sources_announced(attack: Attack) -> None:
    def lines() -> Iterator[bytes]:
        for number in count():
            yield b"last" + b"".join(b"\nfar/%d/1 1-1000" % (number * 60 + at) for at in range(60))

    flood(attack, lines())


@behaviour("sources that leave out every other number", segment=True)
def every_other_number(attack: Attack) -> None:
    """Announced, so that the daemon asks for them and has the rest wait."""
    names = [f"far/x/{number}" for number in range(64)]
    for at in range(0, 64, 32):
        part = b"".join(b"\n%b 1-2" % name.encode() for name in names[at : at + 32])
        attack.hear([said(at + 1, b"last" + part)])
    attack.flood(
        (datagram(names[number % 64], 4 + number // 64 * 2, "flood/x", b"x" * 1000) for number in count()),
        a_second=BESIDE_A_PLAIN_PROGRAM,
    )


@behaviour("gaps of thousands of sources")
def thousands_of_gaps(attack: Attack) -> None:
    names = [f"far/x/{number}" for number in range(5000)]
    attack.hear(datagram(name, 1, "flood/x", b"x") for name in names)
    attack.hear(said(at + 1, b"last\n%b 1" % name.encode()) for at, name in enumerate(names))
    attack.flood(
        datagram(names[number % 5000], 3 + number // 5000 * 2, "flood/x", b"x") for number in count()
    )


# -- refusals


@behaviour("forged refusals of all that a source sends", segment=True, suite=True)
def forged_refusals(attack: Attack) -> None:
    name, last = PLAIN.encode(), now_number(attack)
    lines = b"last\n%b %d" % (name, last), b"gone\n%b %d 0-9999" % (name, last), b"plain\n%b" % name
    attack.flood(
        (said(number + 1, lines[number % 3], "there/bccnd/9") for number in count()),
        a_second=BESIDE_A_PLAIN_PROGRAM,
    )
