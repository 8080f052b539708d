"""Links to the daemon."""

import asyncio
import socket
from collections.abc import Iterator
from errno import EACCES
from pathlib import Path

import pytest
import uvloop

from bccnd.mux import daemon as module
from bccnd.mux import limits
from bccnd.mux.daemon import (
    PACKET_LIMIT,
    TOO_LONG,
    TOO_MANY,
    TOO_MANY_OF_USER,
    Daemon,
    DaemonLink,
    unreached,
)
from bccnd.mux.peer import Peer
from bccnd.mux.speakers import GONE, WENT_AWAY
from bccnd.mux.turns import Turns
from tests.mux.in_process import JOINED, TestDaemon, until
from tests.packet_client import crowded

HELLO = b"CMSG peer\x001 1 1 node"
NODE = Peer(1, (1,), 1, b"node")


class Owner:
    """``hungry``: packets that it wants at a time. It answers nothing."""

    def __init__(self) -> None:
        self.is_joined = False
        self.hungry = 64
        self.packets: list[bytes] = []
        self.reason: bytes | None = None
        self.more = 0

    def joined(self) -> None:
        self.is_joined = True

    def appetite(self) -> int:
        return self.hungry

    def received(self, packets: list[bytes]) -> None:
        self.packets += packets

    def takes_more(self) -> None:
        self.more += 1

    def ended(self, reason: bytes) -> None:
        assert self.reason is None, "it is told once"
        self.reason = reason


@pytest.fixture
def there(tmp_path: Path) -> Iterator[TestDaemon]:
    made = TestDaemon(tmp_path / "bus.sock")
    yield made
    made.close()


def linked(daemon: Daemon, peer: Peer = NODE) -> tuple[Owner, DaemonLink]:
    owner = Owner()
    return owner, DaemonLink(daemon, owner, peer)  # type: ignore[arg-type]


async def door_to(path: Path, most: int = 10) -> Daemon:
    return Daemon(asyncio.get_running_loop(), str(path), most)


async def joined(there: TestDaemon) -> tuple[Owner, DaemonLink, socket.socket]:
    owner, link = linked(await door_to(there.path))
    other = await there.accept()
    await until(lambda: owner.is_joined)
    return owner, link, other


async def test_a_link_says_first_whom_it_speaks_for(there: TestDaemon) -> None:
    owner, link = linked(await door_to(there.path))
    other = await there.accept(joins=False)
    assert await there.receive(other) == HELLO
    assert not owner.is_joined
    other.send(JOINED)
    await until(lambda: owner.is_joined)
    assert owner.packets == []
    assert link.send([b"SUB a", b"x" * PACKET_LIMIT]) == 2
    assert (await there.receive(other), len(await there.receive(other))) == (b"SUB a", PACKET_LIMIT)
    for number in range(200):
        other.send(b"MSG a\0%d" % number)
        await until(lambda: len(owner.packets) > number)  # noqa: B023 - waited for at once
    assert owner.packets == [b"MSG a\0%d" % number for number in range(200)]
    link.close()
    assert await there.receive(other) == b""
    other.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"CMSG error\0refused CMSG peer: no", b"refused CMSG peer: no"),
        (b"CMSG closing\0limit: at most 1", b"limit: at most 1"),
        (b"", WENT_AWAY),
        (b"MSG a\0", WENT_AWAY),
    ],
)
async def test_a_daemon_that_does_not_let_it_in_says_why(
    there: TestDaemon, answer: bytes, reason: bytes
) -> None:
    owner, _ = linked(await door_to(there.path))
    with await there.accept(joins=False) as other:
        await there.receive(other)
        if answer:
            other.send(answer)
    await until(lambda: owner.reason is not None)
    assert owner.reason == reason
    assert not owner.is_joined


async def test_without_a_daemon_there_is_a_reason(tmp_path: Path) -> None:
    daemon = await door_to(tmp_path / "none")
    owner, _ = linked(daemon)
    assert daemon.links == 1
    await until(lambda: owner.reason is not None)
    assert owner.reason == f"unavailable no daemon at {tmp_path}/none: No such file or directory".encode()
    assert daemon.links == 0


def test_a_door_without_the_right_says_whose_it_is() -> None:
    """Root, who runs tests, has it always."""
    assert unreached("/run/bus", EACCES).startswith(
        b"unavailable the door may not open /run/bus: run bccnd-mux as"
    )


async def test_a_daemon_that_accepts_nobody_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with crowded(path) as listening:
        owner, link = linked(await door_to(path))
        await until(lambda: link._retry is not None and link._socket is None)
        assert owner.reason is None
        listening.setblocking(False)
        first = await until(lambda: _first_words(listening))
    assert first == HELLO
    link.close()


def _first_words(listening: socket.socket) -> bytes:
    """What the next one has said that waits to be accepted, if it has."""
    try:
        accepted, _ = listening.accept()
        with accepted:
            return accepted.recv(100, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


async def test_a_daemon_that_does_not_answer_is_given_up(
    there: TestDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOINING_SECONDS", 0.01)
    owner, _ = linked(await door_to(there.path))
    await until(lambda: owner.reason is not None)
    assert owner.reason == b"unavailable the daemon does not answer"


async def test_links_beyond_the_bound_are_refused(there: TestDaemon) -> None:
    daemon = await door_to(there.path, most=1)
    (first, link), (second, _) = linked(daemon), linked(daemon)
    await until(lambda: second.reason)
    assert (first.reason, second.reason) == (None, TOO_MANY)
    link.close()


async def test_links_of_a_user_take_turns_at_being_read(there: TestDaemon) -> None:
    daemon = await door_to(there.path, 100)
    daemon.reading = Turns(daemon.loop, 10, 1)
    owners, links, others = [], [], []
    for _ in range(8):
        owner, link = linked(daemon)
        others.append(await there.accept())
        await until(lambda owner=owner: owner.is_joined)
        owners.append(owner)
        links.append(link)
    for other in others:
        for number in range(20):
            other.send(b"MSG a\0%d" % number)
    read = 0
    while read < 8 * 20:
        await asyncio.sleep(0)
        now = sum(len(owner.packets) for owner in owners)
        assert now - read <= 20
        read = now
        if 3 * 20 < read < 4 * 20:
            assert min(len(owner.packets) for owner in owners) > 0
    assert [len(owner.packets) for owner in owners] == [20] * 8
    for each in (*links, *others):
        each.close()


async def test_who_wants_nothing_is_not_read_and_sees_the_end(there: TestDaemon) -> None:
    owner, link, other = await joined(there)
    owner.hungry = 0
    other.send(b"MSG a\0one")
    await until(lambda: not link._is_read)
    assert owner.packets == []
    owner.hungry = 1
    link.read_on()
    await until(lambda: owner.packets)
    owner.hungry = 0
    other.close()
    await until(lambda: owner.reason is not None)
    assert (owner.packets, owner.reason) == ([b"MSG a\0one"], WENT_AWAY)


async def test_what_a_daemon_said_before_it_left_is_read(there: TestDaemon) -> None:
    owner, link, other = await joined(there)
    owner.hungry = 0
    link.send([b"SUB a"])  # stays unread: the end is a reset
    other.send(b"MSG a\0one")
    await until(lambda: not link._is_read)
    other.send(b"CMSG closing\0shutdown")
    other.close()
    assert link.send([b"MSG b\0"]) == GONE
    await until(lambda: owner.reason is not None)
    assert owner.packets == [b"MSG a\0one", b"CMSG closing\0shutdown"]


@pytest.mark.parametrize("hungry", [64, 0])
def test_a_daemon_that_left_beside_a_backlog_is_watched(there: TestDaemon, hungry: int) -> None:
    """By the door's own loop, which drops all watches of a descriptor that had an error."""

    async def leave() -> None:
        owner, link, other = await joined(there)
        assert 0 < link.send([bytes(10_000)] * 100) < 100  # the rest waits; what went stays unread
        owner.hungry = hungry
        other.send(b"CMSG closing\0shutdown")
        other.close()
        await until(lambda: owner.reason if hungry else owner.more)
        assert owner.packets == [b"CMSG closing\0shutdown"] * (hungry > 0)
        link.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(leave())


async def test_a_full_daemon_is_written_to_when_it_takes_more(there: TestDaemon) -> None:
    owner, link, other = await joined(there)
    packets = [bytes(10_000)] * 100
    went = link.send(packets)
    assert 0 < went < 100
    assert owner.more == 0
    for _ in range(went):
        await there.receive(other)
    await until(lambda: owner.more)
    assert link.send(packets[:1]) == 1
    link.close()
    other.close()


async def test_a_kernel_without_room_is_tried_again_later(
    there: TestDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, link, other = await joined(there)
    with monkeypatch.context() as patch:
        patch.setattr(module.Clients, "send", lambda *_: 0)
        assert link.send([b"MSG a\0"]) == 0
        assert link._retry is not None
    await until(lambda: owner.more)
    assert link.send([b"MSG a\0"]) == 1
    assert await there.receive(other) == b"MSG a\0"
    link.close()
    other.close()


async def test_a_link_that_is_finished_still_reads(there: TestDaemon) -> None:
    owner, link, other = await joined(there)
    link.finish()
    link.finish()
    assert await there.receive(other) == b""
    other.send(b"MSG a\0last")
    other.close()
    await until(lambda: owner.reason is not None)
    assert owner.packets == [b"MSG a\0last"]


async def test_a_packet_that_is_too_long_ends_the_link(there: TestDaemon) -> None:
    owner, _, other = await joined(there)
    other.send(bytes(PACKET_LIMIT + 1))
    await until(lambda: owner.reason is not None)
    assert (owner.packets, owner.reason) == ([], TOO_LONG)
    other.close()


async def test_nobody_takes_the_links_of_others(there: TestDaemon) -> None:
    daemon = await door_to(there.path, 4)
    links = [linked(daemon) for _ in range(3)]
    other, theirs = linked(daemon, Peer(2, (2,), 1, b"other"))
    await until(lambda: links[2][0].reason)
    assert [owner.reason for owner, _ in links] == [None, None, TOO_MANY_OF_USER]
    assert other.reason is None
    links[0][1].close()
    again, link = linked(daemon)
    gone = await there.accept(joins=False)
    accepted = [gone, *[await there.accept() for _ in range(3)]]
    await until(lambda: again.is_joined)
    for each in (*accepted, link, theirs, links[1][1]):
        each.close()
    assert daemon.links == 0


async def test_links_of_a_user_join_one_behind_the_other(
    there: TestDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOINING", 1)
    daemon = await door_to(there.path)
    (first, link), (_, left), (third, last) = linked(daemon), linked(daemon), linked(daemon)
    other, theirs = linked(daemon, Peer(2, (2,), 1, b"other"))
    mine, another = await there.accept(joins=False), await there.accept()
    await until(lambda: other.is_joined)
    with pytest.raises(BlockingIOError):
        there.listening.accept()
    left.close()
    mine.send(JOINED)
    later = await there.accept()
    await until(lambda: third.is_joined)
    assert first.is_joined
    for each in (link, last, theirs, mine, another, later):
        each.close()
    assert (daemon.links, [*daemon._joining], [*daemon._waiting], [*daemon._of_user]) == (0, [], [], [])
