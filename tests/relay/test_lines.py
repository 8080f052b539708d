"""Who waits in line: each owner has its turn, however much another has waiting."""

import pytest

from bccnd.relay.lines import Lines


def test_each_owner_has_its_turn():
    lines: Lines[int] = Lines()
    for number in range(5):
        lines.add(b"much", number)
    lines.add(b"little", 10)
    assert [lines.take()[1] for _ in range(3)] == [0, 10, 1]
    lines.add(b"little", 11)
    assert (len(lines), lines.length(b"much"), lines.length(b"little")) == (4, 3, 1)
    assert lines.take() == (b"much", 2)
    assert lines.take() == (b"little", 11)
    lines.put_back(b"little", 11)
    lines.put_back(b"much", 2)
    assert [lines.take()[1] for _ in range(4)] == [2, 11, 3, 4]
    assert not lines
    assert lines.length(b"much") == 0
    with pytest.raises(LookupError):
        lines.take()
