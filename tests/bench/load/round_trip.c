/* Request and answer between two programs, one at a time, with pauses in which everybody falls asleep. */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"
#include "roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM (64 << 10)

/* A subscribed connection with what was read from it and not yet looked at, and one to publish by, mostly the same. */
struct conversation {
    const struct protocol *protocol;
    int fd, way_out;
    size_t held;
    char data[ROOM];
};

static struct conversation *begin(const char *channel)
{
    struct conversation *with = allocated(sizeof *with);
    with->protocol = protocol_of_words();
    with->fd = with->protocol->open(word("address", NULL));
    with->way_out = with->protocol->apart ? with->protocol->open(word("address", NULL)) : with->fd;
    with->protocol->subscribe(with->fd, channel);
    return with;
}

static void publish(struct conversation *with, const char *channel, const char *payload, size_t size)
{
    char out[ROOM];
    send_all(with->way_out, out, with->protocol->publish(out, channel, payload, size));
}

/* The payload of the next message, copied out; its size. */
static size_t next_message(struct conversation *with, char *payload)
{
    for (;;) {
        struct frame frame;
        size_t length = with->protocol->next(with->data, with->held, &frame);
        if (!length) {
            with->held += receive_some(with->fd, with->data + with->held, ROOM - with->held);
            continue;
        }
        if (frame.message)
            memcpy(payload, frame.payload, frame.size);
        memmove(with->data, with->data + length, with->held -= length);
        if (frame.message)
            return frame.size;
    }
}

/* protocol= address= request= answer=; until it is ended */
void echo(void)
{
    char payload[ROOM];
    const char *answer = word("answer", NULL);
    struct conversation *with = begin(word("request", NULL));
    say_ready();
    for (;;) {
        size_t size = next_message(with, payload);
        publish(with, answer, payload, size);
    }
}

/* protocol= address= request= answer= count= size= pause= (microseconds) */
void ping(void)
{
    const char *request = word("request", NULL);
    long count = number("count", -1), size = number("size", -1), pause = number("pause", -1);
    char *payload = memset(allocated(size + 1), 'x', size), answer[ROOM];
    nanoseconds *took = allocated(count * sizeof *took);
    struct conversation *with = begin(word("answer", NULL));
    if (size < 10)
        fail("size=%ld: too short to number the requests", size);
    for (long i = 0; i < count; i++) {
        sleep_until(now() + pause * 1000);
        char mark[11];
        memcpy(payload, mark, snprintf(mark, sizeof mark, "%010ld", i));
        nanoseconds begun = now();
        publish(with, request, payload, size);
        size_t came = next_message(with, answer);
        took[i] = now() - begun;
        if (came != (size_t)size || memcmp(answer, payload, size))
            fail("answer %ld is not to the request", i);
    }
    printf("{\"nanoseconds\": [");
    for (long i = 0; i < count; i++)
        printf("%s%lld", i ? ", " : "", took[i]);
    puts("]}");
}
