"""Nobody who floods repair takes it from another: in requests, in what is sent again, in what is looked at."""

from collections.abc import Callable
from typing import Any

import pytest

from bccnd.relay.allowance import Allowance
from bccnd.relay.gaps import PARTS_LIMIT, RELEASED_AT_ONCE, Missing
from bccnd.relay.repair import BEGUN_PER_SECOND, LOOKED_AT_ONCE, PARTS_A_LOOK, RESENT_AT_ONCE
from bccnd.wire.repair import CHANNEL, Resend, last_payload, number_payloads, parse, plain_payloads
from tests.relay.fakes import ELSEWHERE, datagram
from tests.relay.test_repair import DAEMON, FIRST, OTHER, SRC, Host, Sender, repairing


class Looks(dict[tuple[bytes, int], float]):
    """Counts what is looked up in it."""

    count = 0

    def __contains__(self, key: object) -> bool:
        self.count += 1
        return super().__contains__(key)


class Looked(list[Missing]):
    """Counts what is looked at in it."""

    count = 0

    def __getitem__(self, at: Any) -> Any:
        self.count += 1
        return super().__getitem__(at)


def test_who_has_used_up_its_share_asks_for_nobody_else():
    host = repairing(repair_rate=800)
    host.hear(2)
    number = range(FIRST + 1, FIRST + 2)
    for _ in range(8):
        host.ask(range(FIRST - 900, FIRST), src=SRC, host=b"other/bccnd/1", peer=OTHER)
        host.ask(number, src=SRC, host=b"other/bccnd/1", peer=OTHER)
        host.wait(0.01)
    assert 1 in host.asked()


def test_gaps_that_wait_to_be_asked_for_are_looked_at_in_turn():
    looked = []
    for count in (500, 4000):
        host = Host()
        names = [b"there/prog/%d" % number for number in range(count)]
        for name in names:
            host.bus.hear(datagram(name, 1, b"a", b"1"))
        for at in range(0, count, 50):
            host.tell(last_payload([(name, None, 1) for name in names[at : at + 50]]))
            host.wait(0.05)
        for name in names:
            host.bus.hear(datagram(name, 3, b"a", b"3"))
        gaps, steps = host.bus.relay.state.gaps, 0
        expire = gaps.expire

        def counting(*values: object, expire: Callable[..., None] = expire) -> None:
            nonlocal steps
            steps += 1
            expire(*values)

        gaps.expire = counting
        host.wait(0.05)
        looked.append(steps)
    assert looked[1] < 4 * looked[0], looked


def test_who_misses_much_leaves_others_their_place_in_requests():
    host, names = Host(), [b"there/prog/%d" % number for number in range(25)]
    much = [b"far/prog/%d" % number for number in range(5)]
    for peer, speaker, sources in ((OTHER, b"far/bccnd/1", much), (ELSEWHERE, DAEMON, names)):
        for name in sources:
            host.bus.hear(datagram(name, 1, b"a", b"1"), peer=peer)
        host.tell(last_payload([(name, None, 1) for name in sources]), speaker, peer)
    for name in much:
        host.bus.hear(*[datagram(name, number, b"a", b"1") for number in range(3, 4000, 2)], peer=OTHER)
    for name in names:
        host.bus.hear(datagram(name, 3, b"a", b"3"))
    host.bus.relay.repair._asks = Allowance(100.0, 1.0)
    host.sent()
    host.wait(0.035)  # until the fourth request
    asked = [parse(message.payload) for message in host.sent() if message.chan == CHANNEL]
    assert set(names) <= {
        name for request in asked if isinstance(request, Resend) for name, _ in request.numbers
    }


@pytest.mark.parametrize("why", ["late", "gone", "plain"])
def test_what_many_gaps_release_goes_out_in_parts(why: str):
    host, count = repairing(), 200
    names = [b"there/prog/%d" % number for number in range(20)]
    for name in names:
        host.bus.hear(datagram(name, 1, b"a", b"1"))
    host.tell(last_payload([(name, None, 1) for name in names]))
    for name in names:
        host.bus.hear(*[datagram(name, number, b"a", b"1") for number in range(3, 3 + count)])
    host.got()
    got = []
    if why == "late":
        host.bus.now += 1.0  # all are to be given up
    else:
        gone = number_payloads(b"gone", [(name, [range(2, 3)]) for name in names])
        host.tell(next(gone if why == "gone" else plain_payloads(names)))
        got.append(len(host.got()))
    while host.bus.relay.state.gaps:
        host.bus.relay.on_deadline(host.bus.moment)
        host.bus.settle()
        got.append(len(host.got()))
    assert sum(got) == len(names) * count
    assert max(got) <= 2 * RELEASED_AT_ONCE


def test_gaps_that_are_due_together_are_looked_at_in_bounds():
    host = Host()
    names = [b"there/prog/%d" % number for number in range(3 * LOOKED_AT_ONCE)]
    for name in names:
        host.bus.hear(datagram(name, 1, b"a", b"1"))
    for at in range(0, len(names), 50):
        host.tell(last_payload([(name, None, 1) for name in names[at : at + 50]]))
        host.wait(0.05)
    for name in names:
        host.bus.hear(datagram(name, 3, b"a", b"3"))
    looked, expire = [], host.bus.relay.state.gaps.expire

    def counting(*values: object, expire: Callable[..., None] = expire) -> None:
        looked[-1] += 1
        expire(*values)

    host.bus.relay.state.gaps.expire = counting
    host.bus.now += 1.0  # all are to be given up
    while host.bus.relay.state.gaps:
        looked.append(0)
        host.bus.relay.on_deadline(host.bus.moment)
        host.bus.settle()
    assert max(looked) == LOOKED_AT_ONCE
    assert len(looked) <= 5


def test_gaps_of_many_parts_are_looked_at_a_few_at_a_time():
    host = Host()
    most = LOOKED_AT_ONCE // 4
    names = [b"there/prog/%d" % number for number in range(3 * most)]
    for name in names:
        host.bus.hear(datagram(name, 1, b"a", b"1"))
    for at in range(0, len(names), 50):
        host.tell(last_payload([(name, None, 1) for name in names[at : at + 50]]))
        host.wait(0.05)
    for name in names:
        host.bus.hear(*[datagram(name, 3 + 2 * part, b"a", b"3") for part in range(3 * PARTS_A_LOOK)])
    looked, expire = 0, host.bus.relay.state.gaps.expire

    def counting(*values: object) -> None:
        nonlocal looked
        looked += 1
        expire(*values)

    host.bus.relay.state.gaps.expire = counting
    host.bus.now += 0.05  # all are to be asked for
    host.bus.relay.on_deadline(host.bus.moment)
    assert looked == most


def test_an_announcement_costs_no_more_where_much_is_missing():
    looked = []
    for count in (50, 500):
        host = repairing()
        for last in range(10, 10 + count):
            host.announce(last)
        gap = host.bus.relay.state.gaps.get(SRC)
        assert gap is not None
        assert len(gap.missing) == count
        gap.missing = parts = Looked(gap.missing)
        host.announce(10 + count)
        assert len(gap.missing) == count + 1
        looked.append(parts.count)
    assert looked[1] <= looked[0] + 5, looked  # a search by halves


def test_announcements_cut_a_gap_into_so_many_parts_at_most():
    host = repairing()
    for last in range(10, 10 + PARTS_LIMIT + 100):
        host.announce(last)
    gap = host.bus.relay.state.gaps.get(SRC)
    assert gap is not None
    assert len(gap.missing) == PARTS_LIMIT
    numbers = range(1, 10 + PARTS_LIMIT + 200)
    assert host.hear(*numbers) == list(numbers)


def test_what_announcements_begin_is_bounded_by_host():
    host = Host()
    for at in range(0, 2000, 50):
        host.tell(b"last" + b"".join(b"\nfar/x/%d 1-9" % number for number in range(at, at + 50)))
    assert len(host.bus.relay.state.gaps) <= 2 * BEGUN_PER_SECOND
    host.tell(b"last\nfar/x/9999 1-9", src=b"other/bccnd/1", peer=OTHER)
    assert host.bus.relay.state.sources.get(b"far/x/9999") is not None


def test_who_asks_for_much_keeps_nobody_else_waiting():
    host = Sender(count=4000)
    host.ask(range(host.first, host.first + 3990), src=host.speaker.name)
    number = range(host.first + 3995, host.first + 3996)
    host.ask(number, src=host.speaker.name, host=b"other/bccnd/1", peer=OTHER)
    host.wait(0.002)
    assert 3995 in host.again()


def test_whoever_fills_the_line_leaves_room_for_others():
    host = Sender(count=100)
    for at in range(40):
        offsets = [range(host.first + 2 * n, host.first + 2 * n + 1) for n in range(50)]
        lines = [(host.speaker.name, offsets)] * 5
        host.tell(next(number_payloads(b"resend", lines)), b"other%d/bccnd/1" % at)
    host.ask(range(host.first + 99, host.first + 100), src=host.speaker.name, peer=OTHER)
    host.wait(0.005)
    assert 99 in host.again()


def test_what_was_just_sent_again_is_looked_at_in_bounds():
    host = Sender(count=4000)
    repair = host.bus.relay.repair
    record = host.bus.relay.state.sent.get(host.speaker.name)
    assert record
    repair._recent = looked = Looks(
        ((record.name, number), host.bus.now) for number in range(host.first, host.first + 4000)
    )
    host.ask(range(host.first, host.first + 4000), src=host.speaker.name)
    host.bus.tick(0.0)
    assert 0 < looked.count <= LOOKED_AT_ONCE + RESENT_AT_ONCE
