"""What others are sent, and how much of it."""

from bccnd.uplink.fyrehose_answers import (
    ADDRESSES_LIMIT,
    ALL_UNITS,
    ALL_UNITS_AT_ONCE,
    RANGE,
    RANGES_LIMIT,
    UNITS,
    UNITS_AT_ONCE,
    Answers,
)
from bccnd.wire.fyrehose import DATA_LIMIT, Address, Deliver
from tests.uplink.fyrehose_world import Shelf

ONE: Address = bytes([10, 0, 0, 7]), 7


def shelf(first: int, count: int, message: bytes = b"m") -> Shelf:
    made = Shelf()
    for position in range(first, first + count):
        made.keep(position, message)
    return made


def drain(answers: Answers, now: float, seconds: float, base: int = 0) -> list[tuple[bytes, Address]]:
    """What goes out in so many seconds."""
    end, sent = now + seconds, list(answers.take(base, now))
    while answers.next_deadline() < end:
        sent += answers.take(base, answers.next_deadline())
    return sent


def test_what_is_kept_is_sent_the_rest_left_out() -> None:
    kept = shelf(5, 3)
    kept.keep(9, b"nine")
    answers = Answers(kept)
    answers.ask(ONE, 6, 20, 100.0)
    wanted = [Deliver(6, b"m"), Deliver(7, b"m"), Deliver(9, b"nine")]
    assert drain(answers, 100.0, 1.0) == [(each.serialize(), ONE) for each in wanted]
    assert answers.answered == 3
    assert answers.next_deadline() == float("inf")


def test_numbers_of_a_later_era_are_those_on_the_wire() -> None:
    base = 3 << 48
    answers = Answers(shelf(base + 5, 1))
    answers.ask(ONE, 5, 5, 100.0)
    assert drain(answers, 100.0, 1.0, base) == [(Deliver(5, b"m").serialize(), ONE)]


def test_a_range_has_an_end() -> None:
    kept = shelf(1, 1000)
    answers = Answers(kept)
    answers.ask(ONE, 1, 2**48 - 1, 100.0)
    assert len(drain(answers, 100.0, 10.0)) == RANGE
    assert kept.looks <= RANGE


def test_an_address_has_its_rate_whatever_ports_it_names() -> None:
    kept = shelf(1, RANGE)
    answers = Answers(kept)
    sent = 0
    for second in range(3):
        for port in range(1, 2000):
            answers.ask((ONE[0], port), 1, RANGE, 100.0 + second)
        sent += len(drain(answers, 100.0 + second, 1.0))
    assert 2 * UNITS < sent <= 3 * UNITS + UNITS_AT_ONCE
    assert answers.refused >= 3 * (2000 - 1 - 2 * RANGES_LIMIT)


def test_all_together_have_a_rate() -> None:
    answers = Answers(shelf(1, RANGE))
    for host in range(200):
        for port in range(1, 20):
            answers.ask((bytes([10, 0, 1, host]), port), 1, RANGE, 100.0)
    sent = drain(answers, 100.0, 1.0)
    assert ALL_UNITS / 2 < len(sent) <= ALL_UNITS + ALL_UNITS_AT_ONCE
    by_host = [sum(address[0][3] == host for _, address in sent) for host in range(200)]
    assert min(by_host) > 0  # each has its turn
    assert max(by_host) <= 3 * min(by_host)


def test_addresses_in_line_have_an_end() -> None:
    answers = Answers(shelf(1, RANGE))
    for host in range(2 * ADDRESSES_LIMIT):
        answers.ask((host.to_bytes(4, "big"), 1), 1, 2, 100.0)
    assert answers.refused == ADDRESSES_LIMIT
    drain(answers, 100.0, 60.0)
    answers.ask(ONE, 1, 1, 200.0)  # those that got theirs are forgotten
    assert answers.refused == ADDRESSES_LIMIT
    assert drain(answers, 200.0, 1.0) == [(Deliver(1, b"m").serialize(), ONE)]


def test_to_ask_for_what_is_not_kept_costs_as_much() -> None:
    kept = Shelf()
    answers = Answers(kept)
    for port in range(1, 1000):
        answers.ask((ONE[0], port), 1, RANGE, 100.0)
    assert drain(answers, 100.0, 0.0) == []
    assert kept.looks <= UNITS_AT_ONCE


def test_the_longest_messages_go_out_too_but_fewer() -> None:
    answers = Answers(shelf(1, RANGE, bytes(DATA_LIMIT)))
    for port in range(1, 10):
        answers.ask((ONE[0], port), 1, RANGE, 100.0)
    sent = drain(answers, 100.0, 1.0)
    assert 0 < sum(len(packet) for packet, _ in sent) <= (UNITS + UNITS_AT_ONCE) * 1500
