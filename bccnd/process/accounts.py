"""Users and groups by name or number, as settings give them.

A name must be known on this machine. A number need not be: an account of another machine may own it. The number
4294967295 (-1) is refused, because chown(2) takes it for "unchanged".
"""

import grp
import pwd

ID_MAX = (1 << 32) - 2

# Of a number; leading zeros are no fault.
DIGITS = 32


def uid_of(user: int | str) -> int:
    """Raises ValueError, with a rule for people as its text."""
    if isinstance(user, str) and not _is_number(user):
        try:
            return pwd.getpwnam(user).pw_uid
        except (KeyError, ValueError):
            raise ValueError("must be a user of this machine, by name or number") from None
    return _number(user)


def gid_of(group: int | str) -> int:
    """Raises ValueError, with a rule for people as its text."""
    if isinstance(group, str) and not _is_number(group):
        try:
            return grp.getgrnam(group).gr_gid
        except (KeyError, ValueError):
            raise ValueError("must be a group of this machine, by name or number") from None
    return _number(group)


def _is_number(text: str) -> bool:
    """Whether it is in plain digits, as few as an id has; no account has a name of more."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS


def _number(given: int | str) -> int:
    if isinstance(given, bool) or not isinstance(given, int | str) or not 0 <= int(given) <= ID_MAX:
        raise ValueError(f"must be a name, or a number from 0 to {ID_MAX}")
    return int(given)
