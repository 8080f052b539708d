"""Which channels a pattern means (``sbus.txt``, "Routing keys"; README, "Channels and patterns").

The daemon delivers one copy and does not say which patterns it matched; to find the callbacks of a message a
client asks again here, by the same rules:

    a/b      that channel                 a/*/c    ``*`` is the rest of one token, possibly nothing
    a/       ``a/`` and anything after    a/>      ``a/`` and at least one byte after
    (empty)  every channel                >        every channel
"""

from __future__ import annotations


def matches(pattern: str, channel: str, separator: str = "/") -> bool:
    """Whether a subscription to ``pattern`` brings messages of ``channel``. ``!`` goes by name instead."""
    if channel.startswith("!"):
        return False
    *head, last = pattern.split(separator)
    tokens = channel.split(separator, len(head))  # the last one holds all the rest, separators too
    if len(tokens) <= len(head) or not all(map(_token_matches, head, tokens)):
        return False
    rest = tokens[-1]
    if last == "":
        return True
    if last == ">":
        return rest != ""
    return separator not in rest and _token_matches(last, rest)


def _token_matches(pattern: str, token: str) -> bool:
    star = pattern.find("*")
    if star < 0:
        return pattern == token
    return star == len(pattern) - 1 and token.startswith(pattern[:-1])  # a ``*`` elsewhere can never match
