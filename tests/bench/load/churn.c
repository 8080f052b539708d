/* A client that subscribes and unsubscribes all the time, until it is told to end.
 *
 * address= rate= (pairs of SUB and UNSUB a second) patterns= (how many it goes through) tail= (after each number)
 */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"
#include "roles.h"

#include <stdio.h>
#include <string.h>

void churn(void)
{
    long rate = number("rate", -1), patterns = number("patterns", 100);
    const char *tail = word("tail", "");
    int fd = bus.open(word("address", NULL));
    bus_request(fd, "CMSG ping", 9);
    say_ready();
    struct tally tally = { .first = now() };
    while (!told_to_end()) {
        char packet[256];
        long which = tally.count % patterns;
        send_all(fd, packet, snprintf(packet, sizeof packet, "SUB churn/%ld%s", which, tail));
        send_all(fd, packet, snprintf(packet, sizeof packet, "UNSUB churn/%ld%s", which, tail));
        tally.count++;
        sleep_until(tally.first + tally.count * 1000000000LL / rate);
    }
    bus_request(fd, "CMSG ping", 9); /* a refusal would come before this answer */
    tally.last = now();
    print_tally(&tally);
}
