"""Datagrams that a host loses, by nftables in its own namespace: the kernel decides which, and counts them."""

import re
from typing import Self

from tests.hosts.segment import Host

PARTS = 10_000  # of which nftables draws one


class Lossy:
    """While the block lasts, a host loses this share of the packets that come over the network.

    ``condition``: of nftables, for those that can be lost at all; ``interface``: by which they come.
    """

    def __init__(self, host: Host, share: float, condition: str = "", interface: str = "eth0") -> None:
        self._interface = interface
        self._host = host
        self._rule = f"numgen random mod {PARTS} < {round(share * PARTS)}"
        self._condition = condition

    def __enter__(self) -> Self:
        self._host.run(
            ["nft", "-f", "-"],
            input=f"""table ip lossy {{
                chain incoming {{
                    type filter hook input priority 0
                    iifname != "{self._interface}" accept
                    {self._condition} counter
                    {self._condition} {self._rule} counter drop
                }}
            }}""",
        )
        return self

    @property
    def counts(self) -> tuple[int, int]:
        """How many packets came, and how many of them were lost."""
        shown = self._host.run(["nft", "list", "table", "ip", "lossy"]).stdout
        came, lost = re.findall(r"counter packets (\d+)", shown)
        return int(came), int(lost)

    def __exit__(self, *_: object) -> None:
        self._host.run(["nft", "delete", "table", "ip", "lossy"])


class LosesOne(Lossy):
    """The first that is longer than ``length``, and no other. It and its successor on the wire differ in nothing."""

    def __init__(self, host: Host, length: int) -> None:
        super().__init__(host, 0.0, f"udp length > {length}")
        self._rule = "numgen inc mod 1000000000 < 1"
