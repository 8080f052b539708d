"""Behaviours that cost others something today, each with the reason. Whoever mends one takes its line away: a line
for one that holds fails the suite, too.
"""

IN_ONE_TURN = "a PACK is worked off in one turn, whatever it asks"
NOT_COUNTED = "what a client makes the daemon keep is in no account"
NO_RESERVE = "one user takes every place, that of the daemon's own user too"
ONE_DATAGRAM = "one forged number moves the window of a source"
ONE_A_TURN = "of a client that sends steadily one packet is read in a turn, of one that floods 512"
ROUTES = "routes are limited by number, not by bytes"

KNOWN = {
    "datagrams: one forged number that is 998 ahead of a source": ONE_DATAGRAM,
    "datagrams: forged numbers that are 998 ahead, again and again": ONE_DATAGRAM,
    "datagrams: channels of a thousand bytes that are new with each datagram": ROUTES,
    "log: a broken PACK, and again after connecting again": "a line for each client that is closed, without a limit",
    "memory: 1,024 SUBs of 1,020 bytes with 510 tokens each": NOT_COUNTED,
    "memory: messages on channels of many tokens, with patterns of as many": "a channel of many tokens is dear",
    "memory: 64 clients with a thousand patterns of 1,000 bytes each": NOT_COUNTED,
    "memory: 200 connections that do not read what their pings of 65 kB answer": NOT_COUNTED,
    "memory: four clients with the largest queues that never read": "the first to fill a queue keep all the room",
    "memory: messages on channels of 1,000 bytes, each a new one": ROUTES,
    "places: one user takes all 4,096 places": NO_RESERVE,
    "places: one user takes all of a hundred places": NO_RESERVE,
    "processes: a publisher that never stops, when the daemon must end": "a turn is 512 PACKs, whatever is in them",
    "publishing: pings to the daemon by message, longer than anybody waits": ONE_A_TURN,
    "requests: requests for clients one by one, longer than anybody waits": ONE_A_TURN,
    "requests: PACKs of 4,160 requests for a hundred clients": IN_ONE_TURN,
    "requests: PACKs of 1,000 requests for 65,000 sources": IN_ONE_TURN,
    "requests: a request for the sources behind the last one": "each page looks at all sources",
    "requests: PACKs of SUB and UNSUB with 4,000 last values": IN_ONE_TURN,
    "requests: SUB of a pattern that scans last values and matches none": "SUB looks at all last values",
    "requests: PACKs of SUB and UNSUB beside 16,000 cached channels": "SUB looks at all cached channels",
}
