"""Behaviours that cost others something today, each with the reason. Whoever mends one takes its line away: a line
for one that holds fails the suite, too.
"""

ONE_DATAGRAM = "a source's own message counts as a duplicate of one that was forged under its number"
TURNS = "turns are of connections, not of users: who has many has as many turns"
NOTICES = "a connection is announced to everybody at once, whatever that costs"

KNOWN = {
    "datagrams: one forged number that is 500 ahead of a source": ONE_DATAGRAM,
    "requests: PACKs of packets of one byte, by 1,900 connections of a user": TURNS,
    "names: connections that come and go, before 1,500 that hear of it": NOTICES,
}
