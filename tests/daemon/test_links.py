"""When the daemon looks at its links again, and what it logs: made-up links, and a real loop."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from typing import Any

import pytest
from structlog.testing import capture_logs

from bccnd.daemon import links as daemon_links
from bccnd.daemon.links import Links, bindings_of
from bccnd.net.bindings import Binding, Choice
from bccnd.net.netlink import IFF_BROADCAST, IFF_UP, Address, Link, NetlinkError
from tests.packet_client import PATIENCE
from tests.waiting import until

CHOICE = Choice("255.255.255.255", 5400)


class MadeUp:
    """A host with the links that a test gives it; a byte in a pipe is an event."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.links: dict[int, Link] = {}
        self.addresses: set[Address] = set()
        self.fault = False

    def fileno(self) -> int:
        return self._read

    def have(self, *names: str) -> None:
        self.links = {index: Link(index, name, IFF_UP | IFF_BROADCAST) for index, name in enumerate(names, 1)}
        self.addresses = {Address(index, IPv4Address(f"10.0.{index}.1")) for index in self.links}
        os.write(self._write, b"!")

    def read(self) -> bool:
        if self.fault:
            raise NetlinkError("netlink: of the test")
        return bool(os.read(self._read, 100))

    def refresh(self) -> None:
        if self.fault:
            raise OSError("still")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class FakeSegments:
    """Opens the bindings it is asked for, and remembers each time."""

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.looks: list[list[str | None]] = []
        self.failing = False
        self.addresses: frozenset[bytes] = frozenset()

    def set_addresses(self, addresses: frozenset[bytes]) -> None:
        self.addresses = addresses

    def follow(self, bindings: list[Binding]) -> None:
        self.open = [type("Open", (), {"binding": binding}) for binding in bindings]
        self.looks.append([binding.interface for binding in bindings])


@contextmanager
def following(choice: Choice = CHOICE) -> Iterator[tuple[MadeUp, FakeSegments, Any]]:
    host, segments = MadeUp(), FakeSegments()
    made: Any = Links(asyncio.get_running_loop(), host, segments, choice)  # type: ignore[arg-type]
    try:
        yield host, segments, made
    finally:
        made.close()


async def test_addresses_are_known_at_once_and_once_more() -> None:
    """Before any binding follows: an echo from one that has just gone is still an echo."""
    with following() as (host, segments, made):
        assert segments.addresses == frozenset()
        made.watch()
        host.have("eth0", "eth1")
        async with asyncio.timeout(PATIENCE):
            while segments.addresses != {b"10.0.1.1", b"10.0.2.1"}:
                await asyncio.sleep(0)
            host.have("eth0")
            host.addresses.add(Address(1, IPv4Address("10.9.9.9")))
            while b"10.9.9.9" not in segments.addresses:
                await asyncio.sleep(0)
        assert segments.addresses == {b"10.0.1.1", b"10.0.2.1", b"10.9.9.9"}


async def test_bindings_follow_the_links() -> None:
    with following() as (host, segments, links):
        links.watch()
        assert segments.looks == [[]]
        host.have("eth0")
        await until(lambda: segments.looks[-1] == ["eth0"])
        host.have("eth0", "eth1")
        host.have("eth1")
        await until(lambda: segments.looks[-1] == ["eth1"])


async def test_a_link_that_flaps_is_looked_at_ever_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_links, "SETTLE_SECONDS", 0.001)
    with following() as (host, segments, links):
        links._settle = 0.001
        links.watch()
        settles = []
        for number in range(6):
            host.have(*["eth0"] * (number % 2 == 0))
            looks = len(segments.looks)
            await until(lambda looks=looks: len(segments.looks) > looks)
            settles.append(links._settle)
        assert settles == [0.001 * 2**number for number in range(6)]
        links._changed_at -= daemon_links.CALM_SECONDS
        host.have("eth0")
        await until(lambda: segments.looks[-1] == ["eth0"])
        assert links._settle == 0.001


async def test_a_missing_interface_is_reported_once_per_absence() -> None:
    with following(Choice("255.255.255.255", 5400, ["eth0"])) as (host, _, links), capture_logs() as lines:
        links.watch()
        links._follow()
        host.have("eth0")
        await until(lambda: not links._reported)
        host.have()
        await until(lambda: links._reported)
        reported = [(line["event"], line.get("interface")) for line in lines]
        assert (
            reported
            == [
                ("interface missing, waiting for it", "eth0"),
                ("no interface to the segment, serving this host alone", None),
            ]
            * 2
        )


async def test_new_settings_apply_at_once_or_after_a_pause() -> None:
    with following() as (host, segments, links):
        host.have("eth0", "eth1")
        links.watch()
        assert segments.looks[-1] == ["eth0", "eth1"]
        links.choose(Choice("255.255.255.255", 5400, ["eth1"]))
        assert segments.looks[-1] == ["eth1"]
        links.unwatch()
        links.choose(CHOICE)
        assert segments.looks[-1] == ["eth1"]
        links.watch()
        assert segments.looks[-1] == ["eth0", "eth1"]


async def test_unreadable_links_are_read_again_with_the_tick() -> None:
    with following() as (host, segments, links), capture_logs() as lines:
        links.watch()
        host.fault = True
        host.have("eth0")
        await until(lambda: links._broken)
        links.tick()
        assert segments.looks == [[]]
        host.fault = False
        links.tick()
        assert segments.looks[-1] == ["eth0"]
        host.have("eth0", "eth1")
        await until(lambda: segments.looks[-1] == ["eth0", "eth1"])
        assert [line["event"] for line in lines if line["log_level"] == "error"] == [
            "links not readable, trying again"
        ]


async def test_a_failed_binding_is_tried_again_with_the_tick() -> None:
    with following() as (_, segments, links):
        links.watch()
        links.tick()
        assert len(segments.looks) == 1
        segments.failing = True
        links.tick()
        assert len(segments.looks) == 2


async def test_without_netlink_the_routing_table_decides() -> None:
    assert bindings_of(CHOICE, None) == [Binding("255.255.255.255", 5400)]
    segments = FakeSegments()
    made: Any = Links(asyncio.get_running_loop(), None, segments, CHOICE)  # type: ignore[arg-type]
    with capture_logs() as lines:
        made.watch()
        made.tick()
        made.close()
    assert segments.looks == [[None]]
    assert len(lines) == 1
