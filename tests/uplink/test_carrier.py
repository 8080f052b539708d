"""A carrier in memory: it is what the Protocols say, and the partner of the uplink in tests of the core."""

from random import Random

from bccnd.uplink.carrier import Archive, Carrier, Facts, Hearer
from bccnd.uplink.core import Uplink
from bccnd.uplink.journal import Journal
from bccnd.uplink.options import Options
from tests.uplink.medium import Faults, Medium


class Listener:
    """A Hearer that notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.below = 0
        self.settled: list[int] = []
        self.changes = 0

    def came(self, position: int, datagram: bytes) -> None:
        assert position >= self.below, "what is complete does not come"
        self.heard.append((position, datagram))

    def complete(self, position: int) -> None:
        self.below = position

    def published(self, number: int) -> None:
        self.settled.append(number)

    def changed(self) -> None:
        self.changes += 1


def test_the_core_and_the_journal_are_what_a_carrier_is_given() -> None:
    journal = Journal(None)
    journal.open()
    hearer: Hearer = Uplink(Options(b"berlin"), journal, lambda: 0.0, lambda: 0)
    archive: Archive = journal
    carrier: Carrier = Medium(Random(1)).attach(hearer)
    archive.keep(7, b"datagram")
    assert archive.kept(1, 9) == [(7, b"datagram")]
    assert carrier.facts() == Facts("")
    journal.close()


def test_what_is_published_comes_to_all_with_one_position() -> None:
    medium, one, other = Medium(Random(1)), Listener(), Listener()
    carrier, _ = medium.attach(one), medium.attach(other)
    carrier.publish(5, b"datagram", b"door")
    medium.turn()
    assert one.heard == other.heard == [(1, b"datagram")]
    assert (one.settled, one.below, other.below) == ([5], 2, 2)


def test_faults_shuffle_repeat_and_lose_and_say_what_is_complete() -> None:
    medium, one, other = Medium(Random(1), Faults(0.3, 0.3, 0.3, 0.2)), Listener(), Listener()
    carrier, _ = medium.attach(one, limit=100), medium.attach(other)
    sent = [b"%d" % number for number in range(100)]
    for number, datagram in enumerate(sent):
        carrier.publish(number, datagram, b"door")
    assert carrier.room == 0
    for _ in range(20):
        medium.turn()
    came = [datagram for _, datagram in other.heard]
    assert sorted(one.settled) == list(range(100))
    assert set(medium.order[1:]) == set(sent)
    assert set(came) < set(sent), "some never came"
    assert len(came) > len(set(came)), "some came twice"
    assert other.heard != sorted(other.heard), "in another order"
    medium.settle(1)
    assert other.below == len(medium.order)


def test_who_is_cut_off_has_no_room_and_comes_back_where_it_was() -> None:
    medium, one, other = Medium(Random(1)), Listener(), Listener()
    sender, carrier = medium.attach(one), medium.attach(other)
    carrier.connected = False
    assert carrier.room == 0
    sender.publish(1, b"datagram", b"door")
    medium.turn()
    assert other.heard == []
    carrier.connected = True
    carrier.begin(1)
    medium.turn()
    assert other.heard == [(1, b"datagram")]
