/* The stream door (clients/BPMUX.md) as fast as it can be read and written: channels on one connection, all of which get
 * the same messages; a publisher; and how late messages come to readers of which one stalls.
 *
 * Chunks are judged as far as counting needs it: whatever is no message, opening or credit is passed over or ends it.
 */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"
#include "roles.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM (1 << 20)        /* bytes a read; more than any chunk */
#define WINDOW (256 << 10)    /* bytes of credit that a channel has at a time */
#define RESERVE (1 << 30)     /* that the top level gets once: no more than this is told to us */
#define PACK 64               /* messages a packet of a packed publisher */
#define PING_TOP 0xd3         /* all of a chunk: whether we are there */
#define PONG_TOP 0xdb
#define CHANNELS 1024         /* as many as the door takes on one connection */

enum { CANCEL = 2, CLOSE = 4, MESSAGE = 6, MESSAGE_PEER = 7, STREAM = 11, DUPLEX = 12, PING = 13, CREDIT = 14, PARTIAL = 15 };

struct door {
    int fd;
    size_t held;
    char *data;
    size_t unsaid; /* bytes of `out` */
    char out[64 << 10];
    size_t total, begun; /* of a message that comes in several chunks, and how much of it is there */
    char *partial;
    long room;           /* credit of the session that it publishes by */
    long owed[CHANNELS]; /* bytes that came on a channel, and were not granted anew */
};

static size_t put_head(char *out, int kind, long ident, uint32_t number)
{
    size_t at = 0;
    out[at++] = kind << 4 | (ident < 0 ? 3 : 1) << 2 | 2;
    if (ident >= 0) {
        memcpy(out + at, &(uint16_t){ htons(ident) }, 2);
        at += 2;
    }
    memcpy(out + at, &(uint32_t){ htonl(number) }, 4);
    return at + 4;
}

static void flush(struct door *door)
{
    send_all(door->fd, door->out, door->unsaid);
    door->unsaid = 0;
}

static void say(struct door *door, int kind, long ident, uint32_t number, const void *payload, size_t size)
{
    if (door->unsaid + size + 16 > sizeof door->out)
        flush(door);
    door->unsaid += put_head(door->out + door->unsaid, kind, ident, number);
    memcpy(door->out + door->unsaid, payload, size);
    door->unsaid += size;
}

static struct door *open_door(void)
{
    struct door *door = allocated(sizeof *door);
    door->fd = connected(word("address", NULL));
    door->data = allocated(ROOM);
    door->partial = allocated(ROOM);
    say(door, CREDIT, -1, RESERVE, "", 0);
    return door;
}

static void open_channel(struct door *door, int kind, long ident, const char *text, uint32_t window)
{
    say(door, kind, ident, strlen(text), text, strlen(text));
    if (window)
        say(door, CREDIT, ident, window, "", 0);
}

/* What came as a whole. `number`: the length of the payload, or the amount. */
struct chunk {
    int kind;
    long ident; /* -1: the top level */
    uint64_t number;
    const char *payload;
};

/* The length of the first chunk at `at`, 0 if it is not all there. */
static size_t next_chunk(const struct door *door, size_t at, struct chunk *chunk)
{
    const unsigned char *data = (const unsigned char *)door->data + at;
    size_t left = door->held - at, head = 1;
    if (!left)
        return 0;
    int first = *data >> 2 & 3, width = 1 << (*data & 3), id_width = first == 3 ? 0 : 1 << first;
    *chunk = (struct chunk){ .kind = *data >> 4, .ident = first == 3 ? -1 : 0 };
    if (*data == PING_TOP)
        return 1;
    if (left < head + id_width + width)
        return 0;
    for (int i = 0; i < id_width; i++)
        chunk->ident = chunk->ident << 8 | data[head++];
    for (int i = 0; i < width; i++)
        chunk->number = chunk->number << 8 | data[head++];
    bool carries = chunk->kind < PING && (first != 3 || chunk->kind == CANCEL || chunk->kind == CLOSE);
    chunk->payload = (const char *)data + head;
    size_t length = head + (carries ? chunk->number : 0);
    if (length > ROOM)
        fail("a chunk of %zu bytes", length);
    return left < length ? 0 : length;
}

static long messages_of(const char *packet, size_t length)
{
    if (length > 4 && !memcmp(packet, "MSG ", 4))
        return 1;
    if (length < 5 || memcmp(packet, "PACK ", 5))
        fail("unexpected: %.*s", (int)length, packet);
    long count = 0;
    for (size_t at = 5; at < length; count++) {
        uint32_t size;
        memcpy(&size, packet + at, 4);
        at += 4 + ntohl(size);
        if (at > length)
            fail("a PACK that says more than it holds");
    }
    return count;
}

/* Puts the chunks of a message together. False: it is not whole. Nobody else's come between: a session is alone. */
static bool make_whole(struct door *door, struct chunk *chunk)
{
    if (!door->total)
        return true;
    if (door->begun + chunk->number > door->total)
        fail("%zu bytes announced, more have come", door->total);
    memcpy(door->partial + door->begun, chunk->payload, chunk->number);
    if ((door->begun += chunk->number) < door->total)
        return false;
    *chunk = (struct chunk){ chunk->kind, chunk->ident, door->total, door->partial };
    door->total = door->begun = 0;
    return true;
}

/* Reads once, grants what half a window is used of, and has `take` told of each message. */
static void read_door(struct door *door, void (*take)(void *context, const struct chunk *chunk), void *context)
{
    door->held += receive_some(door->fd, door->data + door->held, ROOM - door->held);
    size_t done = 0, length;
    struct chunk chunk;
    while ((length = next_chunk(door, done, &chunk))) {
        done += length;
        if (chunk.kind == MESSAGE_PEER && chunk.ident >= 0 && chunk.ident < CHANNELS) {
            long *owed = &door->owed[chunk.ident];
            if ((*owed += chunk.number) >= WINDOW / 2) {
                say(door, CREDIT, chunk.ident, *owed, "", 0);
                *owed = 0;
            }
            if (make_whole(door, &chunk))
                take(context, &chunk);
        } else if (chunk.kind == PING) {
            door->out[door->unsaid++] = PONG_TOP;
        } else if (chunk.kind == PARTIAL && chunk.ident < 0) {
            if ((door->total = chunk.number) > ROOM)
                fail("a message of %zu bytes", door->total);
        } else if (chunk.kind == CREDIT || chunk.kind == PARTIAL) {
            door->room += chunk.ident < 0 ? 0 : chunk.number;
        } else {
            fail("the door says %d of %ld: %.*s", chunk.kind, chunk.ident, (int)chunk.number, chunk.payload);
        }
    }
    memmove(door->data, door->data + done, door->held -= done);
    flush(door);
}

static void open_streams(struct door *door, long streams, bool last_stalls)
{
    char opening[600];
    if (streams > CHANNELS)
        fail("streams=%ld: the door takes %d", streams, CHANNELS);
    snprintf(opening, sizeof opening, "SUB %s", word("channel", NULL));
    for (long i = 0; i < streams; i++)
        open_channel(door, STREAM, i, opening, last_stalls && i == streams - 1 ? 0 : WINDOW);
    flush(door);
}

/* -- session: its answers to control requests come before anything else */

static void read_answer(void *context, const struct chunk *chunk)
{
    if (chunk->number < 5 || memcmp(chunk->payload, "CMSG ", 5) || !memcmp(chunk->payload, "CMSG error", 10))
        fail("answered by %.*s", (int)chunk->number, chunk->payload);
    char **answer = context;
    *answer = strndup(chunk->payload + strlen(chunk->payload) + 1,
                      chunk->number - strlen(chunk->payload) - 1);
}

static void send_packet(struct door *door, const char *packet, size_t size)
{
    door->room -= size;
    say(door, MESSAGE, 0, size, packet, size);
}

static size_t request(struct door *door, const char *packet, size_t size)
{
    char *answer = NULL;
    size_t pack_limit = 0;
    send_packet(door, packet, size);
    flush(door);
    while (!answer)
        read_door(door, read_answer, &answer);
    sscanf(answer, "on %zu", &pack_limit);
    free(answer);
    return pack_limit;
}

static struct door *open_session(size_t *pack_limit)
{
    struct door *door = open_door();
    open_channel(door, DUPLEX, 0, "bus", WINDOW);
    flush(door);
    while (door->room < 1)
        read_door(door, read_answer, NULL);
    *pack_limit = number("packed", 0) ? request(door, "CMSG pack\0on", 12) : 0;
    return door;
}

/* -- subscribe: address= channel= count= streams= (0: a session) packed= */

static void count_messages(void *context, const struct chunk *chunk)
{
    *(long *)context += messages_of(chunk->payload, chunk->number);
}

void door_subscribe(void)
{
    struct tally tally = { 0 };
    long streams = number("streams", 0), count = number("count", -1) * (streams ? streams : 1);
    struct door *door;
    if (streams) {
        door = open_door();
        open_streams(door, streams, false);
    } else {
        size_t pack_limit;
        char opening[600];
        door = open_session(&pack_limit);
        request(door, "CMSG queue\0policy=block", 23);
        send_packet(door, opening, snprintf(opening, sizeof opening, "SUB %s", word("channel", NULL)));
        request(door, "CMSG ping", 9);
    }
    say_ready();
    while (tally.count < count) {
        long before = tally.count;
        read_door(door, count_messages, &tally.count);
        if (!before && tally.count)
            tally.first = now();
    }
    tally.last = now();
    if (tally.count > count)
        fail("%ld messages, %ld were published", tally.count, count);
    print_tally(&tally);
    await_end();
}

/* -- publish: address= channel= count= size= packed= */

static void take_nothing(void *context, const struct chunk *chunk)
{
    (void)context;
    fail("unexpected: %.*s", (int)chunk->number, chunk->payload);
}

void door_publish(void)
{
    size_t pack_limit;
    long count = number("count", -1), size = number("size", -1), messages = 1;
    struct door *door = open_session(&pack_limit);
    char *payload = memset(allocated(size + 1), 'x', size), *packet = allocated(ROOM), *end = packet;
    size_t longest = strlen(word("channel", NULL)) + 32 + size;
    while (messages < PACK && 5 + 2 * messages * (4 + longest) <= pack_limit)
        messages *= 2;
    if (count % messages)
        fail("count=%ld: not a multiple of %ld", count, messages);
    if (messages > 1)
        end = (char *)memcpy(end, "PACK ", 5) + 5;
    for (long i = 0; i < messages; i++) {
        size_t prefix = messages > 1 ? 4 : 0;
        uint32_t length = bus.publish(end + prefix, word("channel", NULL), payload, size);
        if (prefix)
            memcpy(end, &(uint32_t){ htonl(length) }, 4);
        end += prefix + length;
    }
    struct tally tally = { .count = count, .first = now() };
    for (long left = count; left; left -= messages) {
        while (door->room < end - packet) {
            flush(door);
            read_door(door, take_nothing, NULL);
        }
        send_packet(door, packet, end - packet);
    }
    flush(door);
    tally.last = now();
    print_tally(&tally);
    await_end();
}

/* -- late: address= bus= channel= streams= stalled= count= rate= size=
 * Publishes by a socket of the daemon, each message with its time, and looks at all streams but the last, which stalls
 * or does not.
 */

struct lateness {
    long count, readers;
    uint32_t *microseconds;
};

static void note_lateness(void *context, const struct chunk *chunk)
{
    struct lateness *late = context;
    if (chunk->ident >= late->readers)
        return;
    const char *nul = memchr(chunk->payload, 0, chunk->number);
    nanoseconds sent;
    if (!nul || chunk->payload + chunk->number < nul + 1 + sizeof sent)
        fail("unexpected: %.*s", (int)chunk->number, chunk->payload);
    memcpy(&sent, nul + 1, sizeof sent);
    late->microseconds[late->count++] = (now() - sent) / 1000;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void door_late(void)
{
    long streams = number("streams", -1), count = number("count", -1), rate = number("rate", -1);
    long size = number("size", -1), due = count * (streams - 1);
    char *payload = memset(allocated(size + sizeof(nanoseconds)), 'x', size), packet[4096], go;
    struct door *door = open_door();
    int daemon = bus.open(word("bus", NULL));
    open_streams(door, streams, number("stalled", 0));
    say_ready();
    if (read(STDIN_FILENO, &go, 1) != 1)
        fail("told to end before it began");
    struct lateness late = { .readers = streams - 1, .microseconds = allocated(due * sizeof(uint32_t)) };
    nanoseconds begun = now();
    for (long sent = 0; late.count < due;) {
        nanoseconds next = begun + sent * 1000000000LL / rate, moment = now();
        if (sent < count && moment >= next) {
            moment = now();
            memcpy(payload, &moment, sizeof moment);
            send_all(daemon, packet, bus.publish(packet, word("channel", NULL), payload, size));
            sent++;
            continue;
        }
        nanoseconds wait = sent < count ? next - moment : PATIENCE * 1000000000LL;
        struct timespec patience = { wait / 1000000000, wait % 1000000000 };
        struct pollfd readable = { door->fd, POLLIN, 0 };
        int came = ppoll(&readable, 1, &patience, NULL);
        if (came > 0)
            read_door(door, note_lateness, &late);
        else if (sent == count)
            fail("%ld messages have come of %ld", late.count, due);
    }
    qsort(late.microseconds, late.count, sizeof *late.microseconds, ascending);
    printf("{\"p50\": %u, \"p99\": %u}\n", late.microseconds[late.count / 2],
           late.microseconds[late.count * 99 / 100]);
    fflush(stdout);
}
