/* Publishers and subscribers of protocols over byte streams, pipelined: many messages a call in both directions. */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"
#include "roles.h"

#include <errno.h>
#include <string.h>

#define CHUNK (256 << 10) /* bytes a read, and about as many a write */

/* -- publish: protocol= address= channel= count= size= rate= (messages a second; 0: as fast as they are taken) */

void stream_publish(void)
{
    const struct protocol *protocol = protocol_of_words();
    const char *channel = word("channel", NULL);
    long count = number("count", -1), size = number("size", -1);
    char *payload = memset(allocated(size), 'x', size);
    char *data = allocated(CHUNK + size + strlen(channel) + FRAME_OVERHEAD);
    size_t length = protocol->publish(data, channel, payload, size);
    long held = CHUNK / length > 0 ? CHUNK / length : 1;
    for (long i = 1; i < held; i++)
        memcpy(data + i * length, data, length);
    int fd = protocol->open(word("address", NULL));
    if (protocol == &redis) { /* nobody reads the number of receivers */
        static const char quiet[] = "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n";
        send_all(fd, quiet, sizeof quiet - 1);
    }
    long rate = number("rate", 0);
    if (rate && rate / 1000 < held)
        held = rate / 1000 + 1;
    struct tally tally = { .count = count, .first = now() };
    for (long left = count; left > 0; left -= held) {
        send_all(fd, data, (left < held ? left : held) * length);
        if (rate)
            sleep_until(tally.first + (count - left + held) * 1000000000LL / rate);
    }
    tally.last = now();
    print_tally(&tally);
    await_end();
}

static void subscriber(struct tally *tally)
{
    const struct protocol *protocol = protocol_of_words();
    long count = number("count", -1);
    size_t room = CHUNK + number("size", -1) + FRAME_OVERHEAD, held = 0;
    char *data = allocated(room);
    int fd = protocol->open(word("address", NULL));
    protocol->subscribe(fd, word("channel", NULL));
    say_ready();
    while (tally->count < count) {
        held += receive_some(fd, data + held, room - held);
        if (!tally->first)
            tally->first = now();
        size_t done = 0, length;
        struct frame frame;
        while ((length = protocol->next(data + done, held - done, &frame))) {
            tally->count += frame.message;
            done += length;
        }
        memmove(data, data + done, held -= done);
    }
    tally->last = now();
    errno = 0;
    if (tally->count > count)
        fail("%ld messages, %ld were published", tally->count, count);
}

void stream_subscribe(void)
{
    in_copies(subscriber);
}
