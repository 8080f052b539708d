"""Who may still connect: every user has a share of the places, and root and the daemon's user have a reserve.

Rules
- A user other than root and the daemon's has at most ``limits.clients_per_user`` places, so that no program that
  connects again and again keeps others out.
- RESERVE of the places are for root and the daemon's user alone, so that ``bccn status`` and ``bccn doctor`` get in
  when all others are taken. Where few descriptors are allowed (RLIMIT_NOFILE), those are the places.
- Only a process of the daemon's own pid namespace counts as theirs: root of another may be no more than root of a
  container.
"""

import os
import resource
from collections import Counter
from collections.abc import Iterable

from bccnd.process.descriptors import SPARE
from bccnd.relay.identity import Peer
from bccnd.relay.options import Limits

# A shell, a doctor, a few services of root's, and room for them to come again before they were seen to leave.
RESERVE = 16

# Of the places, the part that is kept in reserve at most: a daemon for four clients keeps none.
RESERVED_PART = 8


class Places:
    """``owners``: the uids that are not limited."""

    def __init__(self, owners: Iterable[int] = ()) -> None:
        self._owners = frozenset(owners or (0, os.geteuid()))
        self._taken: Counter[int] = Counter()

    def refusal(self, peer: Peer, limits: Limits) -> str:
        """Why this client has no place, in words for it; empty when it has one."""
        taken = self._taken.total()
        if peer.uid in self._owners and peer.resident:
            return f"limit: at most {limits.clients} clients" if taken >= limits.clients else ""
        places = min(limits.clients, _descriptors() - SPARE)
        if taken >= places - min(RESERVE, places // RESERVED_PART):
            return f"limit: at most {places} clients, some of them root's"
        share = limits.share_of_a_user
        return f"limit: at most {share} clients of one user" if self._taken[peer.uid] >= share else ""

    def take(self, peer: Peer) -> None:
        self._taken[peer.uid] += 1

    def leave(self, peer: Peer) -> None:
        self._taken[peer.uid] -= 1
        if not self._taken[peer.uid]:
            del self._taken[peer.uid]


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft
