"""Which channels a pattern matches (``clients/PROTOCOL.md``, "Channels and patterns").

The daemon delivers one copy of a message and does not say which patterns it matched. To find the callbacks of a
message the client matches it again, by the same rules:

    a/b      that channel                 a/*/c    ``*`` is the rest of one token, possibly nothing
    a/       ``a/`` and anything after    a/>      ``a/`` and at least one byte after
    (empty)  every channel                >        every channel
"""

from __future__ import annotations


def matches(pattern: str, channel: str, separator: str = "/") -> bool:
    """Whether a subscription to ``pattern`` brings messages of ``channel``. Those to ``!`` go by name instead."""
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
    return star == len(pattern) - 1 and token.startswith(pattern[:-1])  # a ``*`` elsewhere never matches
