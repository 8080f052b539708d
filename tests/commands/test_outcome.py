"""Exit codes of ``bccn``."""

import pytest

import bccn
from bccnd.commands.outcome import Reporter, complain, exit_code, remedy


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (bccn.UnavailableError("gone"), 5),
        (bccn.UnavailableError("busy", "busy"), 5),
        (bccn.UnavailableError("closed", "shutdown"), 5),
        (bccn.UnavailableError("closed", "limit: 7 clients at most"), 4),
        (bccn.TimedOutError("late"), 3),
        (bccn.NobodyListensError("nobody"), 6),
        (bccn.RefusedError("refused", "no"), 4),
        (bccn.RejectedError("name-taken", "no"), 4),
        (bccn.RejectedError("limit", "no"), 4),
        (bccn.RejectedError("too-large", "no"), 2),
        (bccn.InvalidError("no"), 2),
        (bccn.BacklogError("ours"), 1),
        (bccn.ProtocolError("theirs"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: bccn.BccnError, code: int) -> None:
    assert exit_code(error) == code


def test_who_has_nothing_to_advise_is_silent() -> None:
    assert remedy(bccn.UnavailableError("gone")).startswith("is bccnd running?")
    assert remedy(bccn.UnavailableError("no door at unix:/x: gone")).startswith("is bccnd-mux running")
    wrong = bccn.UnavailableError("the door at tls://x:1 does not prove that it is that: self-signed")
    assert remedy(wrong).startswith("$BCCN_TLS_CA names")
    own = bccn.RefusedError("refused", "the door at tls://x:1 does not take our certificate: unknown ca")
    assert remedy(own).startswith("$BCCN_TLS_CERT and")
    assert remedy(bccn.RefusedError("refused", "no")) == ""
    assert "limits" in remedy(bccn.UnavailableError("closed", "limit: 7 clients at most"))
    assert remedy(bccn.UnavailableError("closed", "framing")) == ""
    assert remedy(bccn.UnconfirmedError("gone")) == ""
    assert remedy(bccn.InvalidError("no")) == ""


def test_complaints_are_lines_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    complain("what \udc80")
    assert capfd.readouterr() == ("", "bccn: what \\udc80\n")


def test_what_is_said_at_each_attempt_is_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    report = Reporter()
    for kind, text in [
        ("closing", "full"), ("closing", "full"), ("closing", "\x1b[1mstopped"), ("lost", "1 message lost"),
        ("lost", "1 message lost"), ("reconnected", "again"), ("closing", "full"),
    ]:  # fmt: skip
        report(bccn.Notice(kind, text))
    assert capfd.readouterr().err.splitlines() == [
        "bccn: full", "bccn: \\e[1mstopped", "bccn: 1 message lost", "bccn: 1 message lost", "bccn: again",
        "bccn: full",
    ]  # fmt: skip
