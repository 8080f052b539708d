"""Users and groups, by name and by number."""

import grp
import os
import pwd
from collections.abc import Callable

import pytest

from bccnd.process.accounts import ID_MAX, gid_of, uid_of


def test_names_and_numbers() -> None:
    me, mine = pwd.getpwuid(os.getuid()), grp.getgrgid(os.getgid())
    assert uid_of(me.pw_name) == uid_of(me.pw_uid) == uid_of(str(me.pw_uid)) == me.pw_uid
    assert gid_of(mine.gr_name) == gid_of(mine.gr_gid) == gid_of(str(mine.gr_gid)) == mine.gr_gid


@pytest.mark.parametrize("find", [uid_of, gid_of])
def test_a_number_needs_no_account(find: Callable[[int | str], int]) -> None:
    assert find(ID_MAX) == find(str(ID_MAX)) == ID_MAX


@pytest.mark.parametrize("find", [uid_of, gid_of])
@pytest.mark.parametrize(
    "given", ["no-such-name", "", "-1", "a\0b", " 0", -1, ID_MAX + 1, str(ID_MAX + 1), True, 1.5]
)
def test_a_number_that_no_account_can_have_is_refused(find: Callable[[object], int], given: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a "):
        find(given)


@pytest.mark.parametrize(
    "number", ["9" * 5000, "٣", "-1", "99999999999999999999"], ids=lambda text: text[:12]
)
def test_a_number_that_is_no_id_is_refused_with_the_rule(number: str) -> None:
    for find in (uid_of, gid_of):
        with pytest.raises(ValueError, match=r"^must be a "):
            find(number)
