"""The queue of one client: order, bounds, the four policies, and the account that ends at zero."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.options import Policy
from bccnd.relay.outbox import (
    AHEAD_PACKETS,
    ANSWERS_BYTES,
    ANSWERS_LIMIT,
    ENTRY_BYTES,
    CountedPack,
    Ledger,
    Outbox,
    Outcome,
)

thorough = settings(deadline=None, max_examples=300)


def notice(lost: int) -> bytes:
    return b"lost %d" % lost


def outbox(
    policy: Policy = Policy.DROP_OLDEST, *, packets: int = 3, size: int = 1000, ledger: Ledger | None = None
) -> Outbox:
    ledger = ledger or room(1_000_000)
    return Outbox(ledger.account_of(1000), notice, max_packets=packets, max_size=size, policy=policy)


def room(size: int, entries: int = 1000) -> Ledger:
    """Room for so many entries with as many bytes in all."""
    return Ledger(size + entries * ENTRY_BYTES)


def put(box: Outbox, *messages: bytes | CountedPack, publisher_waits: bool = False) -> list[Outcome]:
    return [box.put(message, publisher_waits=publisher_waits) for message in messages]


def put_group(box: Outbox, messages: list[bytes]) -> bool:
    return box.put_group(messages, sum(map(len, messages)))


def drain(box: Outbox, turn: int = 64) -> list[bytes]:
    """All that goes out, ``turn`` packets at a time."""
    out: list[bytes] = []
    while packets := box.next_packets(turn):
        assert len(packets) <= turn
        out += packets
        box.sent(len(packets))
    assert not box
    return out


QUEUED, DROPPED, OVERFLOW = Outcome.QUEUED, Outcome.DROPPED, Outcome.OVERFLOW


# The policies


def test_drop_oldest_reports_the_loss_before_the_newest():
    box = outbox(Policy.DROP_OLDEST)
    assert put(box, b"1", b"2", b"3", b"4", b"5") == [QUEUED] * 3 + [DROPPED] * 2
    assert drain(box) == [b"lost 2", b"3", b"4", b"5"]


def test_drop_newest_reports_the_loss_after_the_oldest():
    box = outbox(Policy.DROP_NEWEST)
    assert put(box, b"1", b"2", b"3", b"4", b"5") == [QUEUED] * 3 + [DROPPED] * 2
    assert drain(box) == [b"1", b"2", b"3", b"lost 2"]


def test_disconnect_takes_nothing_more():
    box = outbox(Policy.DISCONNECT)
    assert put(box, b"1", b"2", b"3", b"4") == [QUEUED] * 3 + [OVERFLOW]
    assert drain(box) == [b"1", b"2", b"3"]


def test_block_takes_what_a_local_publisher_has_sent_already():
    box = outbox(Policy.BLOCK)
    assert put(box, b"1", b"2", b"3", b"4", publisher_waits=True) == [QUEUED] * 4
    assert drain(box) == [b"1", b"2", b"3", b"4"]


def test_block_drops_the_newest_of_what_the_network_brings():
    box = outbox(Policy.BLOCK)
    assert put(box, b"1", b"2", b"3", b"4") == [QUEUED] * 3 + [DROPPED]
    assert drain(box) == [b"1", b"2", b"3", b"lost 1"]


# Gaps


def test_drop_newest_reports_each_loss_in_its_place():
    box = outbox(Policy.DROP_NEWEST, packets=2)
    put(box, b"1", b"2", b"3", b"4")
    assert box.next_packets(1) == [b"1"]
    box.sent(1)
    put(box, b"5", b"6")
    assert drain(box) == [b"2", b"lost 2", b"5", b"lost 1"]


def test_a_gap_grows_until_it_is_taken():
    box = outbox(packets=1)
    put(box, b"1", b"2", b"3")
    assert box.next_packets(1) == [b"lost 2"]
    put(box, b"4")
    assert drain(box) == [b"lost 3", b"4"]


def test_drop_oldest_joins_the_gaps_it_meets():
    box = outbox(Policy.DROP_NEWEST, packets=2)
    put(box, b"1", b"2", b"3", b"3 again")
    box.sent(1)
    put(box, b"4")  # 2, a gap of two, 4
    box.policy = Policy.DROP_OLDEST
    put(box, b"5", b"6")
    assert drain(box) == [b"lost 4", b"5", b"6"]


def test_a_gap_at_the_end_of_an_empty_queue():
    box = outbox(Policy.DROP_NEWEST, size=5)
    assert put(box, b"too large", b"too large", b"fits") == [DROPPED, DROPPED, QUEUED]
    assert drain(box) == [b"lost 2", b"fits"]


# Several messages in one PACK


def pack(messages: int, size: int = 9) -> CountedPack:
    return CountedPack(b"pack of %d" % messages + b"." * (size - 9), messages)


def test_pack_counts_as_its_messages_and_leaves_as_one_packet():
    box = outbox(packets=5)
    put(box, b"1", pack(3), b"2")
    assert (box.packets, box.size) == (5, 11)
    assert box.next_packets(64) == [b"1", b"pack of 3", b"2"]
    box.sent(2)
    assert (box.packets, box.size) == (1, 1)


def test_pack_is_dropped_whole_and_reported_by_its_messages():
    box = outbox(packets=5)
    assert put(box, pack(3), b"1", pack(2), b"2") == [QUEUED, QUEUED, DROPPED, QUEUED]
    assert drain(box) == [b"lost 3", b"1", b"pack of 2", b"2"]
    box = outbox(Policy.DROP_NEWEST, packets=5)
    assert put(box, pack(3), b"1", pack(2), b"2") == [QUEUED, QUEUED, DROPPED, QUEUED]
    assert drain(box) == [b"pack of 3", b"1", b"lost 2", b"2"]
    assert box.dropped == 2


def test_queue_drops_nothing_for_a_pack_it_cannot_hold():
    box = outbox(packets=3)
    assert not box.can_hold(pack(4))
    assert not box.can_hold(pack(2, size=1001))
    assert box.can_hold(pack(3))
    assert put(box, b"1", pack(4)) == [QUEUED, DROPPED]
    assert drain(box) == [b"1", b"lost 4"]


# Answers


def test_messages_and_answers_leave_in_the_order_they_came():
    box = outbox()
    put(box, b"1")
    box.answer(b"pong")
    put(box, b"2")
    assert drain(box) == [b"1", b"pong", b"2"]


@pytest.mark.parametrize("turn", [1, 2, 64])
def test_answers_are_never_dropped(turn: int):
    box = outbox(packets=1)
    box.answer(b"pong 0")
    for number in range(1, 4):
        put(box, b"%d" % number)
        box.answer(b"pong %d" % number)
    assert drain(box, turn) == [b"pong 0", b"pong 1", b"lost 2", b"pong 2", b"3", b"pong 3"]


def test_answers_take_no_room_of_the_client_messages():
    box = outbox(packets=1)
    for _ in range(10):
        box.answer(b"a" * 2000)
    assert put(box, b"1") == [QUEUED]


def test_answers_are_in_the_account_of_all():
    ledger = Ledger(10_000)
    box, other = outbox(ledger=ledger), outbox(Policy.DROP_NEWEST, ledger=ledger)
    for _ in range(5):
        box.answer(bytes(1900))
    assert (ledger.bytes, box.held) == (9500, 9500 + 5 * ENTRY_BYTES)
    assert put(other, bytes(300)) == [DROPPED]
    box.sent(1)
    assert put(other, bytes(300)) == [QUEUED]
    box.clear()
    other.clear()
    assert (ledger.bytes, ledger.entries) == (0, 0)


def test_a_client_with_long_answers_asks_for_no_more():
    box = outbox()
    box.answer(bytes(ANSWERS_BYTES))
    assert not box.wants_rest
    box.answer(b"a")
    assert box.wants_rest
    box.sent(1)
    assert box.relaxed


def test_an_entry_costs_more_than_its_bytes():
    ledger = Ledger(10 * (ENTRY_BYTES + 1))
    box = outbox(Policy.DROP_NEWEST, packets=100, ledger=ledger)
    assert put(box, *[b"m"] * 11) == [QUEUED] * 10 + [DROPPED]


# Giving


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (Policy.DROP_OLDEST, [b"lost 2", b"3", b"pong", b"4"]),
        (Policy.DROP_NEWEST, [b"1", b"2", b"lost 2", b"pong"]),
        (Policy.BLOCK, [b"1", b"2", b"lost 2", b"pong"]),
        (Policy.DISCONNECT, [b"1", b"2", b"lost 2", b"pong"]),
    ],
)
def test_a_client_gives_by_its_policy(policy: Policy, left: list[bytes]):
    box = outbox(policy, packets=10)
    put(box, b"1", b"2", b"3")
    box.answer(b"pong")
    put(box, b"4")
    assert box.give(2 * ENTRY_BYTES + 2) == 2
    assert drain(box) == left


def test_a_client_with_answers_alone_gives_nothing():
    box = outbox()
    box.answer(b"pong")
    assert box.give(1) == 0
    assert drain(box) == [b"pong"]


def test_unread_answers_are_counted():
    box = outbox()
    for _ in range(5):
        box.answer(b"pong")
    assert box.answers == 5
    box.sent(2)
    assert box.answers == 3
    drain(box)
    assert box.answers == 0


# Bounds


@pytest.mark.parametrize("policy", Policy)
def test_bounded_in_bytes(policy: Policy):
    box = outbox(policy, packets=100, size=10)
    outcome = {Policy.DROP_NEWEST: DROPPED, Policy.DROP_OLDEST: DROPPED, Policy.BLOCK: DROPPED}
    assert put(box, b"12345", b"67890", b"x") == [QUEUED, QUEUED, outcome.get(policy, OVERFLOW)]
    assert box.size <= 10


def test_drop_oldest_drops_several_for_a_large_message():
    box = outbox(size=10)
    put(box, b"123", b"456", b"789", b"large")
    assert drain(box) == [b"lost 2", b"789", b"large"]


def test_drop_oldest_drops_nothing_for_one_too_large():
    box = outbox(size=10)
    put(box, b"1", b"2", b"far too large")
    assert drain(box) == [b"1", b"2", b"lost 1"]


def test_bounded_in_bytes_over_all_clients():
    ledger = room(10, 2)
    first, second = (outbox(Policy.DROP_NEWEST, ledger=ledger) for _ in range(2))
    assert put(first, b"123456") == [QUEUED]
    assert put(second, b"12345") == [DROPPED]
    assert put(second, b"1234") == [QUEUED]
    first.clear()
    assert put(second, b"123456") == [QUEUED]


def test_drop_oldest_drops_nothing_if_others_hold_all_room():
    ledger = room(10, 3)
    others, box = outbox(ledger=ledger), outbox(ledger=ledger)
    put(box, b"1", b"2")
    put(others, b"12345678")
    put(box, b"larger than all that it has" * 5)
    assert drain(box) == [b"1", b"2", b"lost 1"]


def test_drop_oldest_gives_its_own_room_when_all_is_taken():
    ledger = room(10, 4)
    others, box = outbox(ledger=ledger), outbox(ledger=ledger)
    put(others, b"12345")
    put(box, b"12", b"34", b"5", b"67")
    assert drain(box) == [b"lost 1", b"34", b"5", b"67"]


@pytest.mark.parametrize(
    ("messages", "relaxed"),
    [(0, True), (1, True), (2, True), (3, False), (4, False)],
)
def test_relaxed_is_half_empty_in_packets(messages: int, relaxed: bool):
    box = outbox(Policy.BLOCK, packets=4)
    put(box, *[b"m"] * messages)
    assert box.relaxed == relaxed


def test_relaxed_is_half_empty_in_bytes():
    box = outbox(Policy.BLOCK, packets=100, size=10)
    put(box, b"12345")
    assert box.relaxed
    put(box, b"6")
    assert not box.relaxed


def test_relaxed_is_at_most_half_a_read_in_a_large_queue():
    box = outbox(Policy.BLOCK, packets=10_000, size=1 << 20)
    put(box, *[b"m"] * (AHEAD_PACKETS // 2))
    assert box.relaxed
    put(box, b"m")
    assert not box.relaxed


@pytest.mark.parametrize("policy", Policy)
def test_relaxed_is_half_of_the_answers_read(policy: Policy):
    box = outbox(policy)
    for _ in range(ANSWERS_LIMIT // 2):
        box.answer(b"pong")
    assert box.relaxed
    box.answer(b"pong")
    assert not box.relaxed


def test_where_nobody_waits_for_room_only_answers_count():
    box = outbox(Policy.DROP_OLDEST, packets=2)
    put(box, b"1", b"2")
    assert box.relaxed


# The account


def test_clear_drops_what_waited():
    ledger = Ledger(100)
    box = outbox(Policy.DROP_NEWEST, ledger=ledger)
    put(box, b"1", b"2", b"3", b"4")
    box.answer(b"pong")
    box.clear()
    assert not box
    assert (ledger.packets, ledger.bytes, ledger.dropped) == (0, 0, 4)
    assert (box.packets, box.size, box.answers, box.dropped) == (0, 0, 0, 4)
    assert box.next_packets(64) == []


class Model:
    """The same queue, slow and obvious: what became of each entry, in the order they were put."""

    def __init__(self, policy: Policy, packets: int, size: int) -> None:
        self.policy, self.packets, self.size = policy, packets, size
        self.fate: dict[bytes, str] = {}  # waits, sent, lost, refused
        self.messages: dict[bytes, int] = {}

    def waiting(self) -> list[bytes]:
        return [packet for packet, fate in self.fate.items() if fate == "waits"]

    def queued(self) -> int:
        return sum(self.messages[packet] for packet in self.waiting())

    def fits(self, packet: bytes) -> bool:
        size = sum(map(len, self.waiting())) + len(packet)
        return self.queued() + self.messages[packet] <= self.packets and size <= self.size

    def put(self, packet: bytes, messages: int, publisher_waits: bool) -> None:
        self.messages[packet] = messages
        if self.policy is Policy.DROP_OLDEST and messages <= self.packets and len(packet) <= self.size:
            while not self.fits(packet):
                self.fate[self.waiting()[0]] = "lost"
        if self.fits(packet) or (self.policy is Policy.BLOCK and publisher_waits):
            self.fate[packet] = "waits"
        else:
            self.fate[packet] = "refused" if self.policy is Policy.DISCONNECT else "lost"

    def give(self, size: int) -> None:
        """The oldest, or the newest, until so much is free."""
        while size > 0 and (waiting := self.waiting()):
            packet = waiting[0 if self.policy is Policy.DROP_OLDEST else -1]
            self.fate[packet] = "lost"
            size -= len(packet) + ENTRY_BYTES

    def stream(self) -> list[bytes | int]:
        return joined(
            [
                self.messages[packet] if fate == "lost" else packet
                for packet, fate in self.fate.items()
                if fate != "refused"
            ]
        )


def joined(stream: list[bytes | int]) -> list[bytes | int]:
    """Numbers of missing messages that stand side by side, added up."""
    result: list[bytes | int] = []
    for item in stream:
        if isinstance(item, int) and result and isinstance(result[-1], int):
            result[-1] += item
        else:
            result.append(item)
    return result


@thorough
@given(
    policy=st.sampled_from(Policy),
    packets=st.integers(1, 6),
    size=st.integers(1, 40),
    script=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(2, 20), st.sampled_from([1, 1, 2, 3]), st.booleans()),
            st.tuples(st.just("group"), st.integers(2, 8), st.integers(1, 6), st.booleans()),
            st.tuples(st.just("answer"), st.just(0), st.just(0), st.just(False)),
            st.tuples(st.just("give"), st.integers(1, 3), st.just(0), st.just(False)),
            st.tuples(st.just("send"), st.integers(1, 5), st.just(0), st.just(False)),
            st.tuples(st.just("succeed"), st.just(0), st.just(0), st.just(False)),
        ),
        max_size=40,
    ),
)
def test_any_script_against_the_model(
    policy: Policy, packets: int, size: int, script: list[tuple[str, int, int, bool]]
):
    ledger = room(1_000_000)
    box = outbox(policy, packets=packets, size=size, ledger=ledger)
    model = Model(policy, packets, size)
    answers: list[bytes] = []
    out: list[bytes] = []
    for number, (action, amount, messages, waits) in enumerate(script):
        match action:
            case "put":
                packet = (b"%d" % number).ljust(amount, b".")
                box.put(packet if messages == 1 else CountedPack(packet, messages), publisher_waits=waits)
                model.put(packet, messages, waits)
            case "group":
                group = [(b"%d.%d" % (number, part)).ljust(amount, b".") for part in range(messages)]
                if not put_group(box, group):
                    put(box, *group, publisher_waits=waits)
                for packet in group:
                    model.put(packet, 1, waits)
            case "answer":
                answers.append(b"answer %d" % number)
                box.answer(answers[-1])
            case "give":
                box.give(amount * ENTRY_BYTES)
                model.give(amount * ENTRY_BYTES)
            case "succeed":
                state, ledger = box.state(), Ledger(1_000_000, dropped=ledger.dropped)
                box = outbox(ledger=ledger)
                box.restore(state)
            case _:
                going = box.next_packets(amount)
                box.sent(len(going))
                out += going
                model.fate |= dict.fromkeys(set(going) & set(model.fate), "sent")
        assert (box.packets, box.size) == (model.queued(), sum(map(len, model.waiting())))
        assert (ledger.packets, ledger.bytes) == (box.packets, box.size + box.answers_size)
        assert ledger.bytes + ledger.entries * ENTRY_BYTES == box.held
        assert box.answers == len(answers) - sum(packet in answers for packet in out)
    out += drain(box, 3)
    assert [packet for packet in out if packet in answers] == answers
    stream = [
        int(packet[5:]) if packet.startswith(b"lost ") else packet for packet in out if packet not in answers
    ]
    assert joined(stream) == model.stream()
    assert (ledger.packets, ledger.bytes, ledger.entries) == (0, 0, 0)
    assert ledger.dropped == box.dropped == sum(item for item in stream if isinstance(item, int))


def test_a_long_queue_is_handed_over_in_one_entry():
    """Everybody waits for a replacement: its cost must not be one of Python's steps for each message."""
    messages = [b"%d" % number for number in range(10_000)]
    box = outbox(packets=10_000, size=1 << 20, ledger=Ledger(1 << 20))
    assert put_group(box, messages)
    assert box.state()["entries"] == [("messages", messages)]
    box.answer(b"pong")
    box.sent(9_998)
    assert box.state()["entries"] == [("messages", messages[-2:]), ("answer", b"pong")]


def test_a_group_longer_than_the_queue_is_queued_by_its_end():
    """At once: what is dropped costs no step each."""
    ledger = Ledger(1_000_000)
    box = outbox(packets=3, size=100, ledger=ledger)
    box.answer(b"pong")
    assert put_group(box, [b"old"] * 3)
    assert put_group(box, [b"%d" % number for number in range(9)])
    assert box.next_packets(9) == [b"pong", b"lost 9", b"6", b"7", b"8"]
    assert (box.dropped, ledger.packets, ledger.bytes) == (9, 3, 7)
    assert put_group(box, [b"x" * 60, b"y" * 60])
    assert box.next_packets(9) == [b"pong", b"lost 13", b"y" * 60], "bounded in bytes, too"
    assert not put_group(box, [b"x" * 101, b"y"]), "one that never fits displaces nothing"


def test_a_queue_of_the_format_before_is_taken_over():
    ledger = Ledger(1_000_000)
    box = outbox(ledger=ledger)
    entries = [("message", b"a"), ("answer", b"b"), ("gap", 3), ("bundle", (b"cc", 2))]
    limits = (10, 1000, "drop-oldest")
    box.restore({"limits": limits, "dropped": 3, "front": [], "gap": 0, "entries": entries})
    assert box.next_packets(9) == [b"a", b"b", b"lost 3", b"cc"]
    assert (ledger.packets, ledger.bytes, ledger.entries) == (3, 4, 3)
