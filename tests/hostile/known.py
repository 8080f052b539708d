"""Behaviours that cost others something today, each with the reason. Whoever mends one takes its line away: a line
for one that holds fails the suite, too.
"""

KNOWN: dict[str, str] = {}
