"""Link datagrams in the order of their numbers, each once, and nobody waits for what is lost."""

from collections.abc import Iterator

from bccnd.uplink.inbound import (
    DUE_LIMIT,
    FLOORS_LIMIT,
    HELD_BYTES,
    HELD_MANY,
    LINKS_LIMIT,
    OVER_SECONDS,
    PROVEN,
    SILENT_SECONDS,
    Held,
    Inbound,
    Lasts,
)
from bccnd.uplink.journal import RESTART_JUMP
from bccnd.wire.link import Numbered, Seal, Status
from tests.uplink.segment import datagram

SRC = b"paris/uplink/0123456789abcdef"
SEAL = Seal()


class Hearing:
    """``Inbound``, heard in numbers: the message of link datagram n has the sequence number 1000 + n."""

    def __init__(self, hold_bytes: int = 1 << 20) -> None:
        self.gone: list[bytes] = []
        self.inbound = Inbound(0, {}, hold_bytes, self.gone.append)

    def came(self, position: int, number: int, floor: int, src: bytes = SRC, now: float = 0.0) -> list[int]:
        sealed = SEAL.numbered(src, number, floor, datagram(1000 + number))
        header = SEAL.open(sealed)
        assert isinstance(header, Numbered)
        self.inbound.came(position, sealed, header, now)
        return self.out()

    def complete(self, position: int) -> list[int]:
        self.inbound.completed(position)
        return self.out()

    def out(self) -> list[int]:
        found, self.inbound.out = self.inbound.out, []
        return [message[2] - 1000 for _, message in found]

    @property
    def lost(self) -> int:
        return self.inbound.received.lost


def test_what_comes_in_order_goes_on_at_once_and_once() -> None:
    hearing = Hearing()
    assert [hearing.came(n, n, n) for n in range(1, 5)] == [[1], [2], [3], [4]]
    assert [hearing.came(9, 3, 3), hearing.came(9, 4, 4)] == [[], []]
    assert hearing.inbound.received.duplicates == 2


def test_what_is_missing_is_waited_for() -> None:
    hearing = Hearing()
    assert hearing.came(1, 1, 1) == [1]
    assert hearing.came(3, 3, 1) == []
    assert hearing.came(3, 3, 1) == []
    assert hearing.complete(4) == [], "2 is not published, and so is still repeated"
    assert hearing.came(9, 2, 1) == [2, 3]
    assert hearing.lost == 0


def test_what_was_published_and_did_not_come_is_lost() -> None:
    hearing = Hearing()
    hearing.came(1, 1, 1)
    assert hearing.came(5, 4, 4) == []
    assert hearing.complete(4) == [], "it may still come"
    assert hearing.complete(5) == [4]
    assert hearing.lost == 2
    assert hearing.came(6, 3, 1) == [], "too late"


def test_a_floor_passes_over_no_more_than_it_says() -> None:
    hearing = Hearing()
    hearing.came(1, 1, 1)
    assert hearing.came(5, 6, 3) == []
    assert hearing.complete(9) == []
    assert hearing.lost == 1
    assert hearing.came(10, 5, 3) == []
    assert hearing.came(11, 4, 3) == []
    assert hearing.came(12, 3, 3) == [3, 4, 5, 6]


def test_a_status_shows_the_loss_of_the_last() -> None:
    hearing = Hearing()
    hearing.came(1, 1, 1)
    hearing.inbound.said(7, Status(SRC, 4, 4, ()), 0.0)
    assert hearing.complete(6) == []
    assert hearing.lost == 0
    assert hearing.complete(7) == []
    assert hearing.lost == 2
    assert hearing.came(8, 4, 4) == [4]


def test_what_a_later_one_overtook_was_missed_once() -> None:
    hearing = Hearing()
    for number in (5, 8, 6, 10, 9, 7):
        hearing.came(number, number, 5)
    (link,) = hearing.inbound.links.values()
    assert (link.missed, link.next, link.lost) == (3, 11, 0), "6, 7 and 9"
    hearing.inbound.said(11, Status(SRC, 13, 13, ()), 0.0)
    assert link.missed == 5, "11 and 12, which were published before"
    hearing.came(12, 14 + RESTART_JUMP, 13)
    assert link.missed == 6, "13; nobody used the others"


def test_what_was_sent_before_a_link_is_heard_was_not_missed() -> None:
    hearing = Hearing()
    hearing.inbound.said(1, Status(SRC, 5, 7, ()), 0.0)
    hearing.came(2, 7, 5)
    hearing.came(3, 5, 5)
    (link,) = hearing.inbound.links.values()
    assert link.missed == 0


def test_what_a_dead_link_holds_goes_on_at_last() -> None:
    """Nobody says that what is missing will not come."""
    hearing = Hearing()
    hearing.came(1, 1, 1)
    hearing.came(2, 3, 1)
    for number in range(2):
        for _ in range(OVER_SECONDS):
            hearing.inbound.age()
        assert hearing.out() == []
        hearing.came(3 + number, 5, 1)  # it is there after all
    for _ in range(OVER_SECONDS + 1):
        hearing.inbound.age()
    assert hearing.out() == [3, 5]
    assert hearing.lost == 2
    hearing.inbound.age()
    assert hearing.came(5, 6, 6) == [6]


def test_who_holds_most_gives_up_first() -> None:
    hearing = Hearing(hold_bytes=4000)
    other = b"rome/uplink/0123456789abcdef"
    hearing.came(1, 1, 1)
    hearing.came(2, 1, 1, src=other)
    hearing.came(3, 3, 1, src=other)
    for number in range(3, 100):
        hearing.came(number + 1, number, 1)
    links = hearing.inbound.links
    assert (links[SRC].lost, links[other].lost) == (1, 0)
    assert links[SRC].next == 100


def test_a_link_that_is_new_has_a_proven_one_give_no_place() -> None:
    hearing = Hearing()
    for number in range(1, PROVEN + 1):
        hearing.came(number, number, number)
    for n in range(3 * LINKS_LIMIT):
        hearing.came(1, 1, 1, src=b"many/uplink/%016x" % n, now=1.0 + n / 1000)
    assert len(hearing.inbound.links) == LINKS_LIMIT
    assert SRC in hearing.inbound.links
    late = 2.0 + SILENT_SECONDS
    hearing.came(1, 1, 1, src=b"one/uplink/%016x" % 1, now=late)
    assert len(hearing.inbound.links) == LINKS_LIMIT
    assert SRC not in hearing.inbound.links, "the longest silent"


def test_floors_that_wait_take_bounded_memory() -> None:
    hearing = Hearing()
    for n in range(3 * LINKS_LIMIT):
        src = b"many/uplink/%016x" % n
        for number in range(1, 100):
            status = Status(src, 10 * number, 10 * number, ())
            hearing.inbound.said(1_000_000 + number, status, float(n))
    links = hearing.inbound.links
    assert len(hearing.inbound._due) <= DUE_LIMIT
    assert max(len(link.floors) for link in links.values()) <= FLOORS_LIMIT
    hearing.complete(2_000_000)
    assert {link.next for link in links.values()} == {990}
    assert not hearing.inbound._due


def test_a_floor_at_a_position_that_never_comes_holds_nothing() -> None:
    """Whoever has heard a status can say it again, at whatever position a carrier lets him name."""
    hearing = Hearing()
    hearing.came(1, 1, 1)
    hearing.inbound.said(10**18, Status(SRC, 3, 3, ()), 0.0)
    assert hearing.came(4, 4, 1) == []
    hearing.inbound.said(5, Status(SRC, 3, 5, ()), 0.0)
    assert hearing.complete(5) == []
    assert hearing.lost == 1, "2"
    hearing.inbound.said(6, Status(SRC, 5, 5, ()), 0.0)
    assert hearing.complete(6) == [4]
    assert hearing.lost == 2


def test_a_number_that_waits_for_ever_keeps_no_others_in_mind() -> None:
    hearing = Hearing()
    hearing.came(1, 1, 1)
    hearing.came(2, 1_000_000, 1)
    for number in range(2, 2000, 2):
        hearing.came(number, number + 1, 1)
        hearing.came(number, number, 1)
    link = hearing.inbound.links[SRC]
    assert (link.next, len(link.held)) == (2000, 1)
    assert len(link.order) == 1


def test_a_link_that_had_to_go_goes_on_where_it_was() -> None:
    hearing = Hearing()
    for number in range(1, PROVEN + 1):
        hearing.came(number, number, number)
    hearing.came(100, 40, 1)
    later = SILENT_SECONDS + 1.0
    for n in range(LINKS_LIMIT):
        hearing.came(1, 1, 1, src=b"many/uplink/%016x" % n, now=later + n)
    assert hearing.gone == [SRC]
    assert hearing.inbound._held_bytes == 0
    assert hearing.inbound.numbers()[SRC] == PROVEN + 1
    assert hearing.came(9, PROVEN, 1, now=1000.0) == [], "had before"
    assert hearing.came(101, PROVEN + 1, 1, now=1000.0) == [PROVEN + 1]


def test_links_that_a_restart_remembers_go_on_where_they_were() -> None:
    hearing = Hearing()
    hearing.inbound = Inbound(50, {SRC: 8}, 1 << 20, hearing.gone.append)
    assert hearing.inbound.numbers() == {SRC: 8}
    assert hearing.came(49, 7, 5) == []
    assert hearing.came(60, 10, 10) == []
    assert hearing.inbound.taken() == 50
    assert hearing.complete(60) == [10]
    assert hearing.lost == 2, "8 and 9"


def test_a_link_may_begin_with_a_status() -> None:
    hearing = Hearing()
    hearing.inbound.said(10, Status(SRC, 5, 8, ()), 0.0)
    assert hearing.came(11, 9, 5) == []
    assert hearing.came(12, 6, 5) == []
    hearing.inbound.said(20, Status(SRC, 10, 10, ()), 0.0)
    assert hearing.complete(20) == [6, 9]
    assert hearing.lost == 1, "8; 5 and 7 were sent before the link was heard"


def test_a_restart_of_the_sender_is_no_loss() -> None:
    hearing = Hearing()
    hearing.came(1, 1, 1)
    again = 2 + RESTART_JUMP
    assert hearing.came(5, again, again) == []
    assert hearing.complete(5) == [again]
    assert hearing.lost == 0


def test_what_is_lost_after_a_restart_of_the_sender_is_counted() -> None:
    hearing = Hearing()
    hearing.came(1, 1, 1)
    again = 2 + RESTART_JUMP
    hearing.came(5, again + 3, again + 1)
    assert hearing.complete(5) == []
    assert hearing.lost == 1
    assert hearing.came(6, again + 4, again + 3) == []
    assert hearing.complete(6) == [again + 3, again + 4]
    assert hearing.lost == 3
    far = again + 5 - 2 + 2 * RESTART_JUMP  # two more restarts, the last before it had written two numbers
    hearing.came(7, far, far)
    assert hearing.complete(7) == [far]
    assert hearing.lost == 3


def test_taken_is_never_above_what_is_held() -> None:
    hearing = Hearing(hold_bytes=1 << 30)
    hearing.came(1, 1, 1)
    hearing.complete(2)
    assert hearing.inbound.taken() == 2
    for number in range(3, 2 * HELD_MANY):
        hearing.came(number, number, 1)
        hearing.complete(number)
        assert hearing.inbound.taken() <= 3
    assert hearing.came(9999, 2, 1) == list(range(2, 2 * HELD_MANY))
    assert hearing.inbound.taken() == 2 * HELD_MANY - 1


def test_a_datagram_with_a_wrong_message_is_passed_over_whole() -> None:
    hearing = Hearing()
    hearing.came(1, 1, 1)
    sealed = SEAL.numbered(SRC, 2, 1, datagram(1) + b"BCCN1[3]abc")
    header = SEAL.open(sealed)
    assert isinstance(header, Numbered)
    hearing.inbound.came(2, sealed, header, 0.0)
    assert hearing.out() == []
    assert hearing.inbound.received.wrong == 1
    assert hearing.came(3, 3, 1) == [3]


def test_the_last_numbers_of_sources_are_bounded() -> None:
    lasts = Lasts()
    for n in range(1000):
        lasts.set(b"%d" % n, n, 100)
    assert len(lasts) <= 200
    assert [lasts.get(b"%d" % n) for n in (0, 950, 999)] == [-1, 950, 999]


def test_much_that_is_held_costs_each_the_same() -> None:
    """Counted in looks at what is held: every second number is missing, and the bound is reached all the time."""
    looks = []
    for count in (1000, 4000):
        hearing = Hearing(hold_bytes=count // 4 * (HELD_BYTES + 100))
        hearing.came(1, 1, 1)
        link = hearing.inbound.links[SRC]
        link.held = Counting()
        for number in range(3, count, 2):
            hearing.came(number, number, 1)
        assert hearing.lost > count // 8
        looks.append(link.held.looks)
    assert looks[1] < 5 * looks[0]


class Counting(dict[int, Held]):
    """A dict that counts how often it is asked, and what is run through."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def __iter__(self) -> Iterator[int]:
        self.looks += len(self)
        return super().__iter__()
