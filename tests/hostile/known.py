"""Behaviours that cost others something today: the one fault that each shows, and no other. Whoever mends one takes
its line away: a line for one that holds fails the suite, too.
"""

# A source's own message counts as a duplicate of one that was forged under its number.
ONE_MESSAGE = r"the bystander lost 1 of \d+ messages"

KNOWN = {
    "datagrams: one forged number that is 500 ahead of a source": ONE_MESSAGE,
}
