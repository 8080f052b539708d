"""Several segments on one machine, and a router that each host has a link of its own to. It forwards no broadcast.

segment north: eth0 of each host, 10.99.0.0/24      segment south: the same addresses, another bridge
    n1: wan 10.200.1.2 --- 10.200.1.1 router 10.200.3.1 --- 10.200.3.2 wan :s1
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from tests.hosts.segment import KIND, Host, Segment, ip

# The end of a link on its host, and what nftables calls the router's ends of all links.
LINK = "wan"
LINKS = f"{LINK}*"


class Routed:
    """``segments``: the names of the hosts of each; a context manager that leaves nothing behind."""

    def __init__(self, *segments: Sequence[str]) -> None:
        self._left = ExitStack()
        try:
            self.segments = [self._left.enter_context(Segment(names)) for names in segments]
            self.hosts = {host.name: host for segment in self.segments for host in segment.hosts}
            namespace = f"{KIND}-{os.getpid()}-0-router"
            ip("netns", "add", namespace)
            self._left.callback(ip, "netns", "del", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
            self.router = Host("router", namespace, "")
            self.router.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"])
            for number, host in enumerate(self.hosts.values(), start=1):
                self._join(host, number)
        except BaseException:
            self._left.close()
            raise

    def _join(self, host: Host, number: int) -> None:
        near, far = f"10.200.{number}.2", f"10.200.{number}.1"
        router, end = self.router.namespace, f"{LINK}{number}"
        ip("-n", router, "link", "add", end, "type", "veth", "peer", "name", LINK, "netns", host.namespace)
        for namespace, device, address in (router, end, far), (host.namespace, LINK, near):
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", device)
            ip("-n", namespace, "link", "set", device, "up")
        ip("-n", host.namespace, "route", "add", "10.200.0.0/16", "via", far)

    def gateway(self, host: Host) -> str:
        """The address at which a host reaches what listens on the router."""
        return f"10.200.{list(self.hosts.values()).index(host) + 1}.1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.close()
