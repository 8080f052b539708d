"""Branches: names of fork children, by the kernel's word, and that nobody else stands below a name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import DeniedError, PacketError
from bccnd.relay.identity import LocalSource, Names, Peer, Process

thorough = settings(deadline=None, max_examples=200)

# pid -> what it is: a leader with a child and a grandchild, one in a pid namespace of its own, and strangers.
PROCESSES = {
    50: Process(1000, 1, 50, 50, frozenset({50}), True),
    51: Process(1000, 50, 50, 50, frozenset({51}), True),
    52: Process(1000, 51, 52, 52, frozenset({52}), True),  # setsid(2)
    53: Process(1000, 52, 53, 53, frozenset({53}), True),  # and again
    60: Process(1000, 50, 50, 50, frozenset({60, 8}), False),
    70: Process(1000, 1, 70, 70, frozenset({70}), True),  # of the same user, and no kin
    71: Process(1000, 1, 71, 45, frozenset({71}), True),  # of the session of one that has gone
    80: Process(0, 1, 80, 80, frozenset({80}), True),
    81: Process(1000, 80, 80, 80, frozenset({81}), True),  # a child of root that gave up root
    90: Process(0, 50, 50, 50, frozenset({90}), True),  # a child that became root
}


def peer_of(pid: int, uid: int | None = None, program: bytes = b"prog") -> Peer:
    return Peer(pid, PROCESSES[pid].uid if uid is None else uid, 100, program)


def branches(pid: int, new: bytes, *others: tuple[Peer, bytes], uid: int | None = None) -> bool:
    """Whether process ``pid`` may take this name while ``others`` hold theirs."""
    names = Names(b"here", PROCESSES.get)
    for other, held in others:
        names.rename(names.assign(other, LocalSource()), held, other, granted=True, next_seq=1)
    peer = peer_of(pid, uid)
    try:
        names.rename(names.assign(peer, LocalSource()), new, peer, granted=False, next_seq=1)
    except DeniedError:
        return False
    return True


@pytest.mark.parametrize("parent_is_here", [True, False])
@pytest.mark.parametrize(
    ("pid", "parent", "new"),
    [
        (51, 50, b"here/prog/50/51"),
        (52, 51, b"here/prog/51/52"),
        (52, 50, b"here/prog/50/51/52"),  # the one between has gone
        (53, 50, b"here/prog/50/51/52/53"),
        (60, 50, b"here/prog/50/60"),
        (60, 50, b"here/prog/50/8"),  # as it knows itself in its own pid namespace
        (51, 50, b"here/prog/50/c/2/51"),  # the parent's second connection
        (51, 60, b"here/prog/60/51"),  # of one session
    ],
)
def test_a_child_takes_a_name_below_its_parents(pid: int, parent: int, new: bytes, parent_is_here: bool):
    others = [(peer_of(parent), new.rpartition(b"/")[0])] if parent_is_here else []
    assert branches(pid, new, *others)


def test_an_orphan_keeps_the_name_of_its_session():
    assert branches(71, b"here/prog/45/71")


def test_a_child_of_another_program_or_of_a_granted_name():
    assert branches(51, b"here/other/50/51", (peer_of(50, program=b"other"), b"here/other/50"))
    assert branches(51, b"sensor/1/51", (peer_of(50), b"sensor/1"))
    assert not branches(70, b"sensor/1/70", (peer_of(50), b"sensor/1"))
    assert not branches(51, b"sensor/1/51"), "whose nobody knows"


@pytest.mark.parametrize(
    ("pid", "new"),
    [
        (70, b"here/prog/50/70"),  # no kin
        (81, b"here/prog/80/81"),  # a child of another uid
        (90, b"here/prog/50/90"),
        (51, b"here/prog/80/51"),
        (51, b"here/prog/80/50/51"),  # kin further down only
        (51, b"here/prog/80/c/2/51"),
        (51, b"here/prog/50/52"),  # of another pid
        (60, b"here/prog/50/9"),
        (51, b"here/prog/50/051"),
        (51, b"here/prog/50/x/52"),
        (51, b"here/prog/4294967296/51"),
        (51, b"there/prog/50/51"),
        (51, b"here/prog/51x/51"),
        (51, b"here/51"),
        (51, b"51"),
    ],
)
@pytest.mark.parametrize("owner_is_here", [True, False])
def test_nobody_else_stands_below_a_name(pid: int, new: bytes, owner_is_here: bool):
    """Neither beside the owner, nor before it comes."""
    root = [(peer_of(80), b"here/prog/80"), (peer_of(50), b"here/prog/50")] if owner_is_here else []
    assert not branches(pid, new, *root)


def test_a_pid_that_was_reused_since_it_connected_proves_nothing():
    """The connection of 52 is root's, and the process with that pid is a child of 50 now."""
    assert not branches(52, b"here/prog/50/52", uid=0)
    assert not branches(52, b"here/prog/50/52", (peer_of(50), b"here/prog/50"), uid=0)


def test_where_processes_are_hidden_the_uids_of_both_decide():
    for uid, expected in ((1000, True), (0, False)):
        names = Names(b"here")
        names.assign(Peer(50, uid, 100, b"prog"), LocalSource())
        child = Peer(51, 1000, 100, b"prog")
        held = names.assign(child, LocalSource())
        if expected:
            names.rename(held, b"here/prog/50/51", child, granted=False, next_seq=1)
        else:
            with pytest.raises(DeniedError):
                names.rename(held, b"here/prog/50/51", child, granted=False, next_seq=1)


@pytest.mark.parametrize("hidden", [True, False])
def test_nobody_is_kin_of_a_client_without_a_pid(hidden: bool):
    """Nor where the leader of a session cannot be seen from here, and its number is 0."""
    names = Names(b"here", {}.get if hidden else {51: Process(1000, 0, 0, 0, frozenset({51}), True)}.get)
    stranger, child = Peer(0, 1000, 100, b"prog"), Peer(51, 1000, 100, b"prog")
    parent, held = names.assign(stranger, LocalSource()), names.assign(child, LocalSource())
    with pytest.raises(DeniedError):
        names.rename(held, parent + b"/51", child, granted=False, next_seq=1)


def test_a_deep_family_is_looked_at_up_to_a_limit():
    looked: list[int] = []

    def process(pid: int) -> Process:
        looked.append(pid)
        return Process(1000, pid - 1, pid, pid, frozenset({pid}), True)

    names = Names(b"here", process)
    child = Peer(500, 1000, 100, b"prog")
    held = names.assign(child, LocalSource())
    names.rename(held, b"here/prog/495/500", child, granted=False, next_seq=1)
    looked.clear()
    with pytest.raises(DeniedError):
        names.rename(b"here/prog/495/500", b"here/prog/100/500", child, granted=False, next_seq=1)
    assert len(looked) < 12


@thorough
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(PROCESSES)),
            st.sampled_from([0, 1000]),  # as whom it connected
            st.sampled_from(
                [b"/x", b"/c/2", b"/c/2/x", b"/50", b"/51", b"/60/8", b"/80/81", b"/80/c/2/51", b"", b"leave"]
            ),
            st.sampled_from([b"here/prog/50", b"here/prog/80", b"here/prog/51", b"own"]),
        ),
        max_size=30,
    )
)
def test_no_client_hears_the_replies_to_another_user(script: list[tuple[int, int, bytes, bytes]]):
    """Whatever they take in whatever order: a message to the name of one reaches no client of another uid."""
    names = Names(b"here", PROCESSES.get)
    held: dict[bytes, int] = {}
    for pid, uid, tail, stem in script:
        peer = Peer(pid, uid, 100, b"prog")
        name = names.assign(peer, LocalSource())
        new = (name if stem == b"own" else stem) + tail
        if tail == b"leave":
            names.release(name, 1)
            continue
        try:
            names.rename(name, new, peer, granted=False, next_seq=1)
        except PacketError:
            new = name
        names.holders.get(new).name = new
        held[new] = uid
        for target, owner in held.items():
            for suffix in (b"", b"/*"):
                heard = [holder.name for holder in names.directed(target + suffix)]
                assert {held[each] for each in heard} == {owner}, (target + suffix, heard)
