"""The errors of the Python client: one tree, each also the built-in exception that a program expects."""

import re

import pytest

import bccn
from bccn.errors import rejected
from tests.clients.drivers import CLIENTS

KINDS = [getattr(bccn, name) for name in bccn.__all__ if name.endswith("Error")]


def test_every_error_is_of_the_one_tree() -> None:
    assert len(KINDS) == 11
    assert all(issubclass(kind, bccn.BccnError) for kind in KINDS)


@pytest.mark.parametrize(
    ("kind", "built_in"),
    [
        (bccn.InvalidError, ValueError),
        (bccn.UnavailableError, ConnectionError),
        (bccn.UnconfirmedError, bccn.UnavailableError),
        (bccn.TimedOutError, TimeoutError),
        (bccn.RefusedError, bccn.RejectedError),
    ],
)
def test_errors_are_also_what_programs_expect(kind: type, built_in: type) -> None:
    assert issubclass(kind, built_in)


def test_a_rejection_says_its_code_and_its_text() -> None:
    error = rejected("too-large MSG a: 1500 bytes, at most 1400")
    assert type(error) is bccn.RejectedError
    assert (error.code, error.text) == ("too-large", "MSG a: 1500 bytes, at most 1400")
    assert str(error) == "MSG a: 1500 bytes, at most 1400 (too-large)"


def test_a_missing_right_is_a_refusal() -> None:
    assert type(rejected("refused CMSG tap: no right")) is bccn.RefusedError


def test_every_error_has_the_code_of_the_protocol() -> None:
    text = (CLIENTS / "PROTOCOL.md").read_text()
    (table,) = re.findall(r"\| error \| meaning \|\n\|---\|---\|\n(.*?)\n\n", text, re.DOTALL)
    wanted = set(re.findall(r"^\| `([a-z]+)`", table, re.MULTILINE))
    kinds = [
        each for each in vars(bccn).values() if isinstance(each, type) and issubclass(each, bccn.BccnError)
    ]
    assert {kind.code for kind in kinds if not issubclass(kind, bccn.RejectedError)} == wanted | {""}
    assert rejected("too-large MSG a: no").code == "too-large"
