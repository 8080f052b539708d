"""Behaviours that cost others something today, each with the reason. Whoever mends one takes its line away: a line
for one that holds fails the suite, too.
"""

IN_ONE_TURN = "a PACK is worked off in one turn, whatever it asks"
NOT_COUNTED = "what a client makes the daemon keep is in no account"
ONE_DATAGRAM = "a source's own message counts as a duplicate of one that was forged under its number"
ONE_A_TURN = "of a client that sends steadily one packet is read in a turn, of one that floods 512"
ROUTES = "routes are limited by number, not by bytes"

KNOWN = {
    "datagrams: one forged number that is 500 ahead of a source": ONE_DATAGRAM,
    "datagrams: channels of a thousand bytes that are new with each datagram": ROUTES,
    "memory: 64 clients with a thousand patterns of 1,000 bytes each": NOT_COUNTED,
    "memory: 200 connections that do not read what their pings of 65 kB answer": NOT_COUNTED,
    "memory: four clients with the largest queues that never read": "the first to fill a queue keep all the room",
    "memory: messages on channels of 1,000 bytes, each a new one": ROUTES,
    "processes: a publisher that never stops, when the daemon must end": "a turn takes 512 PACKs",
    "publishing: pings to the daemon by message, longer than anybody waits": ONE_A_TURN,
    "requests: requests for clients one by one, longer than anybody waits": ONE_A_TURN,
    "requests: PACKs of 4,160 requests for a hundred clients": IN_ONE_TURN,
    "requests: PACKs of 1,000 requests for 65,000 sources": IN_ONE_TURN,
    "requests: a request for the sources behind the last one": "each page looks at all sources",
    "requests: PACKs of SUB and UNSUB with 4,000 last values": IN_ONE_TURN,
    "requests: SUB of a pattern that scans last values and matches none": "SUB looks at all last values",
}
