"""Names of clients: unique, led by the kernel's word, changed only as far as it reaches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import PacketError
from bccnd.relay.identity import PROGRAM_LIMIT, LocalSource, Names, Peer, token
from bccnd.wire.bccn1 import SRC_LIMIT, matches_target, valid_chan, valid_src
from tests.golden import entries
from tests.relay.counting import steps
from tests.relay.fakes import CLOCK, Bus

thorough = settings(deadline=None, max_examples=200)

PEER = Peer(123, 1000, 100, b"prog")
HOLDERS = [LocalSource() for _ in range(10)]


def named(*peers: Peer) -> tuple[Names, list[bytes]]:
    """Names given to ``peers``, whose holders are those of HOLDERS."""
    names = Names(b"here")
    return names, [names.assign(peer, holder) for peer, holder in zip(peers, HOLDERS, strict=False)]


def refusal(names: Names, new: bytes, peer: Peer = PEER, *, granted: bool = False) -> str:
    with pytest.raises(PacketError) as raised:
        names.rename(b"here/prog/123", new, peer, granted, 1)
    assert names.holders.get(b"here/prog/123") is HOLDERS[0], "the old name is kept"
    return raised.value.code


# Names as they are given


def test_a_name_is_host_program_and_pid():
    assert named(PEER)[1] == [b"here/prog/123"]


def test_further_connections_of_a_process_are_numbered():
    names, given_names = named(PEER, PEER, PEER)
    assert given_names == [b"here/prog/123", b"here/prog/123/c/2", b"here/prog/123/c/3"]
    names.release(b"here/prog/123/c/2", 1)
    assert names.assign(PEER, HOLDERS[9]) == b"here/prog/123/c/2", "the first that is free"


def test_a_further_connection_costs_the_same_for_any_number():
    names, holder = named(PEER, PEER)[0], LocalSource()

    def connect() -> None:
        names.release(b"here/prog/123/c/2", 1)
        assert names.assign(PEER, holder) == b"here/prog/123/c/2"
        names.assign(PEER, holder)

    few = steps(connect)
    for _ in range(2000):
        names.assign(PEER, holder)
    assert steps(connect) <= few * 2


def test_a_name_taken_and_given_up_again_and_again_is_kept_once():
    names = named(PEER, PEER, PEER)[0]
    for _ in range(100):
        names.rename(b"here/prog/123", b"here/prog/123/c/4", PEER, granted=False, next_seq=1)
        names.rename(b"here/prog/123/c/4", b"here/prog/123", PEER, granted=False, next_seq=1)
    for number in (2, 3):
        names.release(b"here/prog/123/c/%d" % number, 1)
    assert [names.assign(PEER, HOLDERS[9]) for _ in range(4)] == [
        b"here/prog/123/c/%d" % number for number in (2, 3, 4, 5)
    ]
    family = names._families[b"here/prog/123"]
    assert len(family.returned) <= family.fresh


def test_peer_of_another_pid_namespace_gets_a_fresh_tag():
    stranger = Peer(0, 1000, 100, b"prog")
    names, given_names = named(stranger, stranger)
    assert given_names == [b"here/prog/n1", b"here/prog/n2"]
    names.release(b"here/prog/n1", 1)
    assert names.assign(stranger, HOLDERS[9]) == b"here/prog/n3"


def test_a_tag_that_somebody_took_by_name_is_not_given_again():
    names = named(PEER)[0]
    names.rename(b"here/prog/123", b"here/prog/n1", PEER, granted=True, next_seq=1)
    assert names.assign(Peer(0, 0, 0, b"prog"), HOLDERS[1]) == b"here/prog/n2"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (b"", b"here/unknown/5"),
        (b"my prog", b"here/my_prog/5"),
        (b"a/b:c|d*e?f!g", b"here/a_b_c_d_e_f_g/5"),
        (b"\xc3\xa9t\xc3\xa9\n\0", b"here/__t____/5"),
        (b"p" * 100, b"here/" + b"p" * PROGRAM_LIMIT + b"/5"),
    ],
)
def test_a_program_becomes_one_token(program: bytes, expected: bytes):
    assert named(Peer(5, 0, 0, program))[1] == [expected]


@thorough
@given(st.binary(max_size=80))
def test_any_text_becomes_a_token_of_a_valid_name(text: bytes):
    made = token(text, 64, b"x")
    assert valid_src(made)
    assert len(made) <= 64
    assert not set(made) & set(b"/*?!")


@thorough
@given(
    st.lists(
        st.one_of(
            st.builds(Peer, st.integers(0, 3), st.just(0), st.just(0), st.sampled_from([b"p", b"q"])),
            st.integers(0, 20),
        ),
        max_size=40,
    )
)
def test_no_two_clients_have_one_name(script: list[Peer | int]):
    """Clients come (a peer) and go (a number)."""
    names = Names(b"here")
    held: list[bytes] = []
    for step in script:
        if isinstance(step, Peer):
            holder = LocalSource()
            name = names.assign(step, holder)
            assert name not in held
            assert names.holders.get(name) is holder
            held.append(name)
        elif held:
            names.release(held.pop(step % len(held)), 1)
        assert len(names) == len(held)


def test_the_longest_name_still_takes_a_tag():
    names = Names(b"h" * 64)
    longest = names.assign(Peer(2**31 - 1, 0, 0, b"p" * 100), HOLDERS[0])
    assert len(longest + b"/c/65536") <= SRC_LIMIT


@pytest.mark.parametrize("program", [b"bccnd", b"bccnd_"])
def test_a_program_called_bccnd_is_named_otherwise(program: bytes):
    assert named(Peer(5, 0, 0, program))[1] == [b"here/bccnd_/5"]


@pytest.mark.parametrize("new", [b"here/bccnd", b"here/bccnd/5", b"there/bccnd/1/x"])
@pytest.mark.parametrize("granted", [True, False])
def test_nobody_takes_the_name_of_a_daemon(new: bytes, granted: bool):
    assert refusal(named(PEER)[0], new, granted=granted) == "refused"


def test_a_pid_that_another_user_had_gives_a_fresh_name():
    """Its connection lives on in a process that inherited it."""
    names, given_names = named(PEER, Peer(123, 0, 0, b"prog"), Peer(123, 0, 0, b"prog"))
    assert given_names == [b"here/prog/123", b"here/prog/n1", b"here/prog/n2"]
    names.release(b"here/prog/123", 1)
    assert names.assign(Peer(123, 0, 0, b"prog"), HOLDERS[3]) == b"here/prog/123"


def test_a_name_that_another_user_stands_below_is_not_given():
    names = named(PEER)[0]
    names.rename(b"here/prog/123", b"here/prog/123/c/2/7", PEER, granted=False, next_seq=1)
    assert names.assign(Peer(123, 0, 0, b"prog"), HOLDERS[1]) == b"here/prog/n1"
    assert names.assign(PEER, HOLDERS[2]) == b"here/prog/123"


# Names as clients want them


@pytest.mark.parametrize(
    "new", [b"here/prog/123", b"here/prog/123/worker-3", b"here/prog/123/a/b", b"here/prog/123/c/2"]
)
def test_client_may_extend_its_own_name(new: bytes):
    names = named(PEER)[0]
    names.rename(b"here/prog/123", new, PEER, granted=False, next_seq=1)
    assert names.holders.get(new) is HOLDERS[0]
    assert len(names) == 1
    assert new == b"here/prog/123" or names.holders.get(b"here/prog/123") is None


@pytest.mark.parametrize(
    "new",
    [
        b"here/prog/124",
        b"here/prog/1234",
        b"here/prog/123x",
        b"here/prog/99/123",  # a child of 99, of which nobody knows
        b"here/prog/99/1234",
        b"here/prog/99/123/x",
        b"here/other/123",
        b"here/prog",
        b"here",
        b"there/prog/123",
        b"sensor7",
        b"here/program/99/123",
    ],
)
def test_other_names_need_a_right(new: bytes):
    names = named(PEER)[0]
    assert refusal(names, new) == "refused"
    names.rename(b"here/prog/123", new, PEER, granted=True, next_seq=1)
    assert names.holders.get(new) is HOLDERS[0]


@pytest.mark.parametrize(
    "new",
    [
        b"",
        b"?",
        b"a b",
        b"a:b",
        b"a|b",
        b"a\0",
        b"a\n",
        b"\xc3\xa9",
        b"a/",
        b"a*",
        b"a/*",
        b"x" * 129,
        b"here/prog/123/\x1b[2J",
        b"here/prog/123/\x7f",
        b"here/prog/123//x",
        b"/here",
        b"here//bccnd/1",
    ],
)
def test_invalid_names_are_refused_to_everybody(new: bytes):
    assert refusal(named(PEER)[0], new, granted=True) == "bad-name"


def test_a_name_in_use_is_refused_to_everybody():
    names = named(PEER, Peer(5, 0, 0, b"prog"))[0]
    assert refusal(names, b"here/prog/5", granted=True) == "name-taken"
    names.release(b"here/prog/5", 1)
    names.rename(b"here/prog/123", b"here/prog/5", PEER, granted=True, next_seq=1)
    assert names.holders.get(b"here/prog/5") is HOLDERS[0]


def test_a_name_that_was_given_up_is_free():
    names = named(PEER)[0]
    names.rename(b"here/prog/123", b"here/prog/123/x", PEER, granted=False, next_seq=1)
    assert names.assign(PEER, HOLDERS[1]) == b"here/prog/123"
    assert [names.holders.get(b"here/prog/123/x"), names.holders.get(b"here/prog/123")] == HOLDERS[:2]


def test_a_peer_without_a_pid_cannot_name_itself():
    stranger = Peer(0, 1000, 100, b"prog")
    names = named(stranger)[0]
    with pytest.raises(PacketError, match="refused"):
        names.rename(b"here/prog/n1", b"here/prog/n1/x", stranger, granted=False, next_seq=1)
    names.rename(b"here/prog/n1", b"here/prog/n1/x", stranger, granted=True, next_seq=1)


# Sequence numbers


@thorough
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["connect", "publish", "leave", "rename", "rename back"]),
            st.integers(0, 1),
            st.integers(-5, 5),
        ),
        max_size=60,
    )
)
def test_the_numbers_of_a_name_never_go_back(script: list[tuple[str, int, int]]):
    """Over reconnects, names that are handed on, and a clock that is set back."""
    bus = Bus()
    last: dict[bytes, int] = {}
    clients = {pid: bus.connect(pid=pid, privileged=True) for pid in (1, 2)}
    for action, which, clock_step in script:
        bus.unix_us += clock_step
        pid = 1 + which
        client = clients[pid]
        match action:
            case "connect":
                client.leave()
                clients[pid] = bus.connect(pid=pid, privileged=True)
            case "leave":
                client.leave()
            case "publish" if client.connected:
                client.say(*[b"MSG a\0"] * 3)
            case "rename" if client.connected:
                client.say(b"CMSG name\0shared")
            case "rename back" if client.connected:
                client.say(b"CMSG name\0here/prog/%d" % pid)
        for sent in bus.sent:
            src, seq, *_ = bus.integrity.open(sent)
            assert seq > last.get(src, 0)
            last[src] = seq
        bus.sent.clear()


def test_a_name_that_is_handed_on_goes_on_counting():
    bus = Bus()
    first, second = bus.connect(privileged=True), bus.connect(privileged=True)
    first.say(b"CMSG name\0shared", *[b"MSG a\0"] * 10)
    first.say(b"CMSG name\0other")
    second.say(b"CMSG name\0shared", b"MSG a\0")
    assert [bus.integrity.open(sent)[:2] for sent in bus.sent] == [
        (b"shared", CLOCK + number) for number in range(11)
    ]


def test_numbers_start_at_the_clock():
    assert Names(b"here").first_seq(1_700_000_000_000_000) == 1_700_000_000_000_000


# Directed messages


SOME_NAMES = [
    b"host/name/12345",
    b"host/name/12345/4711",
    b"host/name/12346",
    b"host/name2/1",
    b"host2/name/12345",
    b"host/name/12345/worker",
]
targets = st.one_of(
    st.sampled_from(SOME_NAMES),
    st.sampled_from([name + b"/*" for name in SOME_NAMES]),
    st.sampled_from(
        [b"host", b"host/*", b"host/name", b"host2", b"name", b"/*", b"*", b"host/", b"x/1", b"?"]
    ),
    st.text("host/name12345*?", min_size=1, max_size=12).map(str.encode),
)


def holding(*held: bytes) -> Names:
    names = Names(b"here")
    for name in held:
        names.hold(name, LocalSource(name))
    return names


@thorough
@given(target=targets)
def test_directed_messages_go_by_the_rule(target: bytes):
    expected = {name for name in SOME_NAMES if matches_target(target, name)}
    found = [holder.name for holder in holding(*SOME_NAMES).directed(target)]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_directed_vectors():
    for vector in entries("directed", "directed"):
        src, chan = vector["src"].encode(), vector["chan"].encode()
        nameable = src != b"?" and not src.endswith(b"/") and b"*" not in src
        if nameable and valid_chan(chan):  # others never come so far
            found = [holder.name for holder in holding(src).directed(chan[1:])]
            assert found == [src] * vector["matches"], vector["why"]
