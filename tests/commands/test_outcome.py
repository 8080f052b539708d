"""Exit codes of ``bccn``."""

import pytest

import bccn
from bccnd.commands.outcome import complain, exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (bccn.UnavailableError("gone"), 5),
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


def test_complaints_are_lines_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    complain("what \udc80")
    assert capfd.readouterr() == ("", "bccn: what \\udc80\n")
