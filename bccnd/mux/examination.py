"""The request ``doctor``: what is wrong with the bus of this host, as far as the daemon's answers to the asker show.

Rules
- The daemon is asked with the rights of the asker: without the right to observe it refuses, and the asker learns
  that.
- Its answers are counted against the asker until the findings are made. Beyond PAGES pages of clients, or of sources,
  the rest is skipped, and a finding says so.
"""

import json
from typing import Any

from bccnd import __version__
from bccnd.doctor.facts import Facts
from bccnd.doctor.finding import Finding, Level, as_json
from bccnd.doctor.findings import examine
from bccnd.mux.speakers import WENT_AWAY, Connect, Errand, Room, refusal
from bpmux.entities import Request

# Pages of clients, and of sources, with 100 rows each: more would take too long in one turn.
PAGES = 20
# How many times its bytes a row takes in memory.
ROW_WEIGHT = 8

OTHERWISE = b"unavailable the daemon is of another version, and answers in another way"


class Examination(Errand):
    """Asks for the status, the clients and the sources, and answers with the findings.

    ``left_out``: names of clients that are not judged, such as the asker, with a space between them.
    """

    def __init__(self, room: Room, entity: Request, connect: Connect, left_out: bytes) -> None:
        self._left_out = set(left_out.decode(errors="replace").split(" "))
        self._status: dict[str, Any] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {"clients": [], "sources": []}
        self._cut: list[str] = []
        self._pages = self._weight = 0
        super().__init__(room, entity, connect, b"CMSG status")

    def received(self, packets: list[bytes]) -> None:
        head, _, answer = packets[0].partition(b"\0")
        title = head.removeprefix(b"CMSG ").decode(errors="replace")
        if not self._answers(head):
            self.end(refusal(packets[0]) or WENT_AWAY)
            return
        try:
            self._take(title, answer)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            self.end(OTHERWISE)

    def _take(self, title: str, answer: bytes) -> None:
        page = json.loads(answer)
        if title == "status":
            self._status = page
            self._ask("clients")
            return
        self._rows[title] += page[title] if title == "sources" else self._judged(page[title])
        self._weigh(ROW_WEIGHT * len(answer))
        self._pages += 1
        following = page["next"]
        if following is not None and self._pages < PAGES:
            self._ask(title, str(following))
            return
        if following is not None:
            self._cut.append(title)
        if title == "clients":
            self._pages = 0
            self._ask("sources")
        else:
            self._answer(json.dumps(as_json(self._findings())).encode())

    def _judged(self, clients: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in clients if row["name"] not in self._left_out]

    def _findings(self) -> list[Finding]:
        facts = Facts(
            __version__, status=self._status, clients=self._rows["clients"], sources=self._rows["sources"]
        )
        cut = [
            Finding(
                Level.WARNING,
                title,
                f"only the first {len(self._rows[title])} were looked at",
                "run: bccn doctor",
            )
            for title in self._cut
        ]
        return [*cut, *examine(facts)]

    def _ask(self, title: str, cursor: str = "") -> None:
        self._question = f"CMSG {title}\0{cursor}".rstrip("\0").encode()
        self._link.send((self._question,))

    def _weigh(self, amount: int) -> None:
        self._weight += amount
        self._room.weigh(amount)

    def _drop(self) -> None:
        self._weigh(-self._weight)
        super()._drop()
