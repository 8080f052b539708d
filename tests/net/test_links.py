"""The picture of a host's links, in a namespace where links come and go."""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, ip_address
from typing import Any

import pytest

from bccnd.net.links import LinkWatch
from bccnd.net.netlink import IFF_UP, Address
from tests.hosts.segment import Host, Segment, ip
from tests.needs import require
from tests.packet_client import wait_until


@pytest.fixture
def host() -> Iterator[Host]:
    require("root", "ip")
    with Segment(["alpha"]) as segment:
        yield segment.hosts[0]


@pytest.fixture
def watch(host: Host) -> Iterator[LinkWatch]:
    made = host.make(LinkWatch.open)
    assert made is not None
    yield made
    made.close()


def until(watch: LinkWatch, condition: Callable[[], Any]) -> None:
    def settled() -> bool:
        watch.read()
        return bool(condition())

    wait_until(settled, "that picture")


def names(watch: LinkWatch) -> set[str]:
    return {link.name for link in watch.links.values()}


def test_opening_gives_a_complete_picture(watch: LinkWatch) -> None:
    assert {"lo", "eth0"} <= names(watch)
    eth0 = next(link for link in watch.links.values() if link.name == "eth0")
    assert eth0.flags & IFF_UP
    assert eth0.mtu == 1500
    assert Address(eth0.index, IPv4Address("10.99.0.1"), IPv4Address("10.99.0.255")) in watch.addresses


def test_a_link_comes_and_goes(host: Host, watch: LinkWatch) -> None:
    ip("-n", host.namespace, "link", "add", "blue0", "type", "bridge")
    until(watch, lambda: "blue0" in names(watch))
    ip("-n", host.namespace, "address", "add", "10.1.0.1/24", "dev", "blue0")
    until(watch, lambda: any(each.address == IPv4Address("10.1.0.1") for each in watch.addresses))
    ip("-n", host.namespace, "link", "delete", "blue0")
    until(watch, lambda: "blue0" not in names(watch))
    assert not any(each.address == IPv4Address("10.1.0.1") for each in watch.addresses)


def test_a_link_goes_up_and_down_and_is_renamed(host: Host, watch: LinkWatch) -> None:
    ip("-n", host.namespace, "link", "add", "blue0", "type", "bridge")
    ip("-n", host.namespace, "link", "set", "blue0", "up")
    until(watch, lambda: any(link.name == "blue0" and link.flags & IFF_UP for link in watch.links.values()))
    ip("-n", host.namespace, "link", "set", "blue0", "down")
    ip("-n", host.namespace, "link", "set", "blue0", "name", "red0")
    until(watch, lambda: {"blue0", "red0"} & names(watch) == {"red0"})


def test_an_address_is_taken_away(host: Host, watch: LinkWatch) -> None:
    ip("-n", host.namespace, "address", "del", "10.99.0.1/24", "dev", "eth0")
    until(watch, lambda: not any(each.address == IPv4Address("10.99.0.1") for each in watch.addresses))


def test_an_address_becomes_usable(host: Host, watch: LinkWatch) -> None:
    """An address is tentative while the kernel makes sure that nobody else has it."""
    link_local = ip_address("fe80::77")
    ip("-n", host.namespace, "address", "add", "fe80::77/64", "dev", "eth0")
    until(watch, lambda: any(each.address == link_local and each.usable for each in watch.addresses))
    assert len([each for each in watch.addresses if each.address == link_local]) == 1


def test_reading_without_events_changes_nothing(watch: LinkWatch) -> None:
    def quiet() -> bool:
        before = dict(watch.links), set(watch.addresses)
        quiet = not watch.read()
        assert not quiet or (watch.links, watch.addresses) == before
        return quiet

    wait_until(quiet, "a moment without events")


def test_lost_events_lead_to_a_new_picture(
    host: Host, watch: LinkWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more events than the socket has room for."""
    watch.socket.setsockopt(1, 8, 1)  # SOL_SOCKET, SO_RCVBUF: as little as the kernel gives
    for number in range(40):
        ip("-n", host.namespace, "link", "add", f"blue{number}", "type", "bridge")
    for number in range(40):
        ip("-n", host.namespace, "link", "delete", f"blue{number}")
    pictures = []
    monkeypatch.setattr(
        watch, "refresh", lambda: pictures.append(host.make(lambda: LinkWatch.refresh(watch)))
    )
    assert watch.read()
    assert pictures == [None]
    assert not {name for name in names(watch) if name.startswith("blue")}
