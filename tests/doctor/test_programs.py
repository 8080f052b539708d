"""What is found of uplinks and gateways, by what they say of themselves."""

import re
from pathlib import Path
from typing import Any

import pytest

from bccnd.dndm import account
from bccnd.dndm.troubles import TWICE
from bccnd.doctor.facts import Facts
from bccnd.doctor.finding import Finding, Level
from bccnd.doctor.programs import LET_GO, LOST, gateways, uplinks

GATEWAY: dict[str, Any] = {
    "gateway": "here/bccnd-dndm/7",
    "state": "up",
    "peers": 2,
    "lost": {},
    "troubles": [],
}
UPLINK: dict[str, Any] = {
    "uplink": "here/bccnd-uplink/8",
    "state": "up",
    "reason": "",
    "losses": {},
    "links": [],
}
ARM, LINE = "tcp://10.0.0.7:8080/arm", "serial:///dev/ttyUSB0/arm"


def found_of(gateway: dict[str, Any]) -> list[Finding]:
    return list(gateways(Facts("0.1.0", gateways=[GATEWAY | gateway])))


def trouble(peer: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"troubles": [{"peer": peer, "kind": kind, "seconds": 41.2, "count": 3, **more}]}


@pytest.mark.parametrize(
    ("gateway", "text", "remedy"),
    [
        (trouble(ARM, "away", reason="Connection refused"), f"{ARM} is cut off for 41 s: Connection refused",
         "start it, and let it through the firewall"),
        (trouble(ARM, "away", reason="bus"), f"{ARM} is cut off for 41 s: it is a gateway of this bus", "stop one"),
        (trouble(LINE, "away", reason="No such file or directory"),
         f"{LINE} has no device for 41 s: No such file or directory", "plug it in"),
        (trouble(LINE, "away", reason="another program has it"),
         f"{LINE} has a device that cannot be opened, for 41 s: another program has it", "ls -l /dev/serial/by-id"),
        (trouble(LINE, "away", reason="silent"), f"{LINE} is cut off for 41 s: it said nothing", "the link to it"),
        (trouble(ARM, "let go", reason="frame"),
         f"{ARM} was refused 3 times, last 41 s ago: what it sent is no frame of DNDM", "something else"),
        (trouble(ARM, "let go", reason="of tomorrow"), "41 s ago: of tomorrow", "journalctl -u bccnd-dndm"),
        (trouble(ARM, "slow", count=40, waiting=1048576),
         f"{ARM} does not read fast enough: 40 messages for it lost, 1048576 bytes wait", "a larger backlog"),
        ({"more_troubles": 5}, "5 more peers in trouble", "journalctl"),
        ({"not_accepted": 1}, "1 connection came from networks that accept does not name", "add their network"),
        ({"lost": {"too large for the segment": 12}},
         "12 messages too large for a datagram of the segment: only peers and local/dndm/", "1200 bytes"),
        ({"unheard": 12, "unwatched": 1}, "the daemon has no room for 12 interests and 1 intent of peers",
         "raise limits.subscriptions, reload bccnd, then bccnd-dndm"),
    ],
)  # fmt: skip
def test_each_trouble_of_robots_is_one_line(gateway: dict[str, Any], text: str, remedy: str) -> None:
    (found,) = found_of(gateway)
    assert (found.level, found.what) == (Level.WARNING, "robots")
    assert text in found.finding
    assert remedy in found.remedy


def test_a_gateway_without_trouble_is_said_to_be_well() -> None:
    (found,) = found_of({"lost": {"slow": 0, "of tomorrow": 3}})
    assert (found.level, found.finding) == (Level.OK, "2 peers of here/bccnd-dndm/7, none in trouble")


def test_where_several_gateways_answer_each_trouble_has_a_name() -> None:
    others = {"gateway": "here/cat/9", **trouble(ARM, "away", reason="silent")}
    found = list(gateways(Facts("0.1.0", gateways=[GATEWAY | others, GATEWAY])))
    assert found[0].finding.startswith(f"here/cat/9: {ARM} is cut off for 41 s")
    assert len(found) == 2


def test_what_another_program_answers_is_shown_or_left_out() -> None:
    """Of all fields but the name there may be none."""
    (found,) = gateways(Facts("0.1.0", gateways=[{"gateway": "here/cat/9", "state": "up", "troubles": [{}]}]))
    assert found.finding == "a peer was refused 1 time, last 0 s ago: no reason given"
    (found,) = uplinks(Facts("0.1.0", uplinks=[{"uplink": "here/cat/9", "state": "down", "links": []}]))
    assert found.finding == "here/cat/9 is down for 0 s: no reason given"


def test_every_reason_and_loss_of_a_gateway_has_a_remedy() -> None:
    folder = Path(account.__file__).parent
    said = re.findall(r"_(?:close|wait_on)\([^\n]*?\"([a-z ]+)\"", (folder / "core.py").read_text())
    refused = re.findall(r"return (?:\"\" if .* else )?\"([a-z]+)\"", (folder / "handshake.py").read_text())
    assert {*said, *refused} - {TWICE} == set(LET_GO)
    assert set(LOST) == {*account.LOST, *account.LOST_THERE.values()} - {"slow"}


@pytest.mark.parametrize(
    ("uplink", "level", "text"),
    [
        ({}, Level.OK, "here/bccnd-uplink/8 is up, and has lost nothing"),
        (
            {"state": "cut off", "reason": "no answer", "seconds": 9.0},
            Level.WARNING,
            "is cut off for 9 s: no answer",
        ),
        ({"reason": "two have a name"}, Level.WARNING, "is up: two have a name"),
        (
            {"losses": {"rate": 2, "link": 3, "crowded": 0}},
            Level.WARNING,
            "lost messages for good: 3 link, 2 rate",
        ),
    ],
)
def test_an_uplink_is_up_or_in_trouble(uplink: dict[str, Any], level: Level, text: str) -> None:
    (found,) = uplinks(Facts("0.1.0", uplinks=[UPLINK | uplink]))
    assert (found.level, text in found.finding) == (level, True)
    assert bool(found.remedy) == (level is not Level.OK)
