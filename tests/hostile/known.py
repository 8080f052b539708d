"""Behaviours that cost others something today, each with the reason. Whoever mends one takes its line away: a line
for one that holds fails the suite, too.
"""

ONE_DATAGRAM = "a source's own message counts as a duplicate of one that was forged under its number"

KNOWN = {
    "datagrams: one forged number that is 500 ahead of a source": ONE_DATAGRAM,
}
