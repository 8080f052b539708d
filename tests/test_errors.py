"""One exception tree, as its docstring draws it."""

import pytest

from bccnd import errors
from bccnd.errors import BccndError, FramingError, PacketError, WireError


def drawn_tree(drawing: str) -> list[tuple[str, str]]:
    """(class, base) of every line of the docstring's drawing; four columns are one level."""
    bases: dict[int, str] = {}
    tree = []
    for line in drawing.splitlines():
        name = line.replace("|--", "").split()[0] if line.strip() else ""
        if not name.endswith("Error"):
            continue
        level = line.index(name) // 4
        bases[level] = name
        tree.append((name, bases.get(level - 1, "Exception")))
    return tree


def test_the_docstring_draws_the_real_tree() -> None:
    defined = [
        (name, kind.__base__.__name__)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, BccndError) and kind.__base__
    ]
    assert drawn_tree(errors.__doc__ or "") == defined


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("BccndError", 1),
        ("ConfigError", 2),
        ("RefusedError", 4),
        ("UnavailableError", 5),
        ("ProtocolError", 1),
    ],
)
def test_exit_codes(error: str, code: int) -> None:
    assert getattr(errors, error).exit_code == code


def test_a_wire_error_carries_its_reason() -> None:
    assert WireError("length").reason == "length"
    assert str(WireError("length")) == "length"
    assert str(WireError("length", "98 said, 97 there")) == "length: 98 said, 97 there"


def test_a_packet_error_shows_code_and_text() -> None:
    error: PacketError = FramingError("bad-packet", "packet: no such type")
    assert (error.code, error.text, str(error)) == (
        "bad-packet",
        "packet: no such type",
        "bad-packet packet: no such type",
    )
