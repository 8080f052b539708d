"""What a door answers to who asks what is wrong."""

import json
from typing import Any

import pytest

from bccnd.mux import limits
from bccnd.mux.examination import OTHERWISE, PAGES, ROW_WEIGHT
from bccnd.mux.speakers import WENT_AWAY
from bpmux.entities import Request
from bpmux.events import Responded
from tests.mux.fake_link import FakeLink, Talk, answers, endings

STATUS = {
    "version": "0.1.0", "host": "here", "pid": 7, "segments": [], "kernel": {"dropped": 0},
    "counters": {"unsent": 0}, "rejected": {},
}  # fmt: skip
CLIENT = {"name": "here/a/1", "dropped": 3, "queued": 0, "slow": None}
SOURCE = {"src": "b/c/1", "peer": "10.0.0.2:5400", "received": 9, "lost": 1}


def page(title: str, following: object, *rows: dict[str, Any]) -> bytes:
    return f"CMSG {title}\0".encode() + json.dumps({title: rows, "next": following}).encode()


def begun(talk: Talk, question: bytes = b"doctor") -> tuple[Request, FakeLink]:
    request = talk.ask(question)
    talk.settle()
    link = talk.links[-1]
    link.owner.joined()
    return request, link


STATUS_ANSWER = b"CMSG status\0" + json.dumps(STATUS).encode()


def test_findings_are_of_status_clients_and_sources() -> None:
    talk = Talk()
    _, link = begun(talk)
    link.say(STATUS_ANSWER)
    link.say(page("clients", 4, CLIENT))
    link.say(page("clients", None, {**CLIENT, "name": "here/b/2"}))
    link.say(page("sources", None, SOURCE))
    assert link.taken == [b"CMSG status", b"CMSG clients", b"CMSG clients\x004", b"CMSG sources"]
    told = json.loads(answers(talk.settle())[0])
    assert (told["problems"], told["warnings"]) == (1, 2)
    said = {(each["level"], each["what"]): each["finding"] for each in told["findings"]}
    assert "no socket to the segment" in said["problem", "interfaces"]
    assert "here/a/1 (3), here/b/2 (3)" in said["warning", "clients"]
    assert "b/c/1 (10.0%)" in said["warning", "sources"]
    assert link.is_closed
    assert (len(talk.conversation), talk.conversation.waiting) == (0, 0)


def test_an_examination_waits_for_its_turn_as_any_request() -> None:
    talk = Talk()
    for _ in range(limits.ERRANDS):
        begun(talk, b"status")
    request = talk.ask(b"doctor here/page/1")
    talk.settle()
    assert talk.conversation.waiting == len(b"here/page/1")
    talk.links[0].say(STATUS_ANSWER)
    talk.settle()
    link = talk.links[-1]
    link.owner.joined()
    for said in (STATUS_ANSWER, page("clients", None), page("sources", None)):
        link.say(said)
    assert [event.request for event in talk.settle() if isinstance(event, Responded)] == [request]
    assert (len(talk.conversation), talk.conversation.waiting) == (limits.ERRANDS - 1, 0)


def test_clients_may_be_left_out() -> None:
    talk = Talk()
    _, link = begun(talk, b"doctor here/page/1 here/a/1")
    link.say(STATUS_ANSWER)
    link.say(page("clients", None, CLIENT, {**CLIENT, "name": "here/b/2"}))
    link.say(page("sources", None))
    findings = json.loads(answers(talk.settle())[0])["findings"]
    (said,) = [each["finding"] for each in findings if each["what"] == "clients"]
    assert "here/b/2 (3)" in said
    assert "here/a/1" not in said


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"CMSG error\0refused CMSG status", b"refused CMSG status"),
        (b"CMSG closing\0limit: too many clients", b"limit: too many clients"),
        (page("sources", None), WENT_AWAY),
    ],
    ids=["no right", "closing", "another answer"],
)
def test_what_is_no_answer_ends_it_with_a_reason(said: bytes, reason: bytes) -> None:
    talk = Talk()
    request, link = begun(talk)
    link.say(said)
    assert endings(talk.settle(), request) == [reason]


def test_a_daemon_of_another_version_is_no_fault() -> None:
    for strange in (b"CMSG status\0{", b"CMSG status\0[]", b"CMSG status\0{}"):
        talk = Talk()
        request, link = begun(talk)
        link.say(strange)
        link.say(page("clients", None))
        link.say(page("sources", None))
        assert endings(talk.settle(), request) == [OTHERWISE]
        assert link.is_closed
    for row in ("dropped", {"name": "a/b/1", "dropped": {}, "queued": 0, "slow": "now"}):
        talk = Talk()
        request, link = begun(talk)
        for said in (STATUS_ANSWER, page("clients", None), page("sources", None, row)):  # type: ignore[arg-type]
            link.say(said)
        assert endings(talk.settle(), request) == [OTHERWISE]


def test_what_is_kept_meanwhile_weighs_and_has_an_end() -> None:
    talk = Talk()
    request, link = begun(talk)
    link.say(STATUS_ANSWER)
    size = len(page("clients", 1, CLIENT).partition(b"\0")[2])
    link.say(page("clients", 1, CLIENT))
    assert talk.conversation.waiting == ROW_WEIGHT * size
    for _ in range(PAGES - 1):
        link.say(page("clients", 1, CLIENT))
    assert link.taken[-1] == b"CMSG sources"
    link.say(page("sources", 7, SOURCE))
    assert link.taken[-1] == b"CMSG sources\x007", "sources have pages of their own"
    link.say(page("sources", None))
    findings = json.loads(answers(talk.settle())[0])["findings"]
    assert (findings[0]["what"], findings[0]["finding"]) == (
        "clients",
        f"only the first {PAGES} were looked at",
    )
    request, link = begun(talk)
    link.say(STATUS_ANSWER, page("clients", 1, CLIENT))
    talk.peer.cancel(request)
    talk.settle()
    assert link.is_closed
    assert talk.conversation.waiting == 0
