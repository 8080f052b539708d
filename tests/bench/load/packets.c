/* Publishers and subscribers of the bus at full speed: up to BATCH packets a call, or packed, up to PACK messages a
 * packet, as many as the daemon reads at once.
 */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"
#include "roles.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define PACK 64           /* messages, or a lower power of two if those do not fit */
#define PACKED_BATCH 8    /* packets of several messages a call */
#define MARKERS 20        /* messages on the channel "end", as some may be lost on the way */
#define MARKERS_APART 20000000LL

static int open_bus(bool packed, size_t *pack_limit)
{
    int fd = bus.open(word("address", NULL));
    *pack_limit = 0;
    if (packed) {
        const char *answer = bus_request(fd, "CMSG pack\0on", 12);
        if (sscanf(answer, "on %zu", pack_limit) != 1)
            fail("CMSG pack: answered by %s", answer);
    }
    return fd;
}

/* -- publish: address= channel= channels= count= size= packed= rate= end= */

/* What is sent over and over: packets of one message, or of several. */
struct load {
    long packets;
    struct iovec *places;
    int messages; /* in each */
};

static size_t put_message(char *out, long index, long channels, const char *payload, size_t size)
{
    char channel[512];
    const char *base = word("channel", NULL);
    snprintf(channel, sizeof channel, channels > 1 ? "%s/%ld" : "%s", base, index % channels);
    return bus.publish(out, channel, payload, size);
}

/* As many packets as it takes to use every channel once. */
static struct load load_of_words(size_t pack_limit)
{
    long channels = number("channels", 1), size = number("size", -1);
    char *payload = memset(allocated(size + 1), 'x', size);
    size_t longest = strlen(word("channel", NULL)) + 32 + size;
    struct load load = { .messages = 1 };
    while (load.messages < PACK && 5 + 2 * load.messages * (4 + longest) <= pack_limit)
        load.messages *= 2;
    load.packets = (channels + load.messages - 1) / load.messages;
    load.places = allocated(load.packets * sizeof *load.places);
    size_t room = 5 + load.messages * (4 + longest);
    char *at = allocated(load.packets * room);
    for (long packet = 0; packet < load.packets; packet++, at += room) {
        char *end = at;
        if (load.messages > 1)
            end = (char *)memcpy(end, "PACK ", 5) + 5;
        for (int i = 0; i < load.messages; i++) {
            size_t prefix = load.messages > 1 ? 4 : 0;
            uint32_t length = put_message(end + prefix, packet * load.messages + i, channels, payload, size);
            if (prefix)
                memcpy(end, &(uint32_t){ htonl(length) }, 4);
            end += prefix + length;
        }
        load.places[packet] = (struct iovec){ at, end - at };
    }
    return load;
}

/* Sends `count` packets with as few calls as can be, `rate` packets a second or, for 0, as fast as they are taken. */
static void send_packets(int fd, const struct load *load, long count, long rate, nanoseconds begin)
{
    struct mmsghdr headers[BATCH] = { 0 };
    long most = load->messages > 1 ? PACKED_BATCH : BATCH;
    if (rate && rate / 1000 < most)
        most = rate / 1000 + 1;
    for (long sent = 0; sent < count;) {
        long batch = count - sent < most ? count - sent : most;
        for (long i = 0; i < batch; i++) {
            headers[i].msg_hdr.msg_iov = &load->places[(sent + i) % load->packets];
            headers[i].msg_hdr.msg_iovlen = 1;
        }
        int went = sendmmsg(fd, headers, batch, MSG_NOSIGNAL);
        if (went < 0 && errno != EINTR)
            fail("cannot send after %ld packets", sent);
        sent += went > 0 ? went : 0;
        if (rate)
            sleep_until(begin + sent * 1000000000LL / rate);
    }
}

void packets_publish(void)
{
    size_t pack_limit;
    long count = number("count", -1);
    int fd = open_bus(number("packed", 0), &pack_limit);
    struct load load = load_of_words(pack_limit);
    if (count % load.messages)
        fail("count=%ld: not a multiple of %d", count, load.messages);
    struct tally tally = { .count = count, .first = now() };
    send_packets(fd, &load, count / load.messages, number("rate", 0) / load.messages, tally.first);
    tally.last = now();
    const char *end = word("end", "");
    for (int i = 0; *end && i < MARKERS; i++) {
        char marker[1024];
        send_all(fd, marker, bus.publish(marker, end, ".", 1));
        sleep_until(now() + MARKERS_APART);
    }
    print_tally(&tally);
    await_end();
}

/* -- subscribe: address= channel= copies= packed= block= slot= and either count= or end=; connections= of each copy */

/* What a subscriber waits for: a number of messages, or the first one on the channel `end`. */
struct reader {
    struct tally *tally;
    char end[512]; /* "MSG <channel> NUL", or empty */
    size_t end_length;
    bool ended;
};

static void take_message(struct reader *reader, const char *packet, size_t length)
{
    if (length > 4 && !memcmp(packet, "MSG ", 4)) {
        if (reader->end_length && length >= reader->end_length &&
            !memcmp(packet, reader->end, reader->end_length))
            reader->ended = true;
        else if (!reader->ended)
            reader->tally->count++;
    } else if (length > 13 && !memcmp(packet, "CMSG dropped", 13)) {
        reader->tally->dropped += strtol(packet + 13, NULL, 10);
    } else {
        fail("unexpected: %.*s", (int)length, packet);
    }
}

static void take_packet(struct reader *reader, const char *packet, size_t length)
{
    if (length < 5 || memcmp(packet, "PACK ", 5)) {
        take_message(reader, packet, length);
        return;
    }
    for (size_t at = 5; at < length;) {
        uint32_t size;
        memcpy(&size, packet + at, 4);
        at += 4;
        if (ntohl(size) > length - at)
            fail("a PACK that says more than it holds");
        take_message(reader, packet + at, ntohl(size));
        at += ntohl(size);
    }
}

/* One call of recvmmsg; when it has brought the last message, that is the time of it. */
static void read_batch(int fd, struct reader *reader, struct mmsghdr *headers, int batch)
{
    struct tally *tally = reader->tally;
    long before = tally->count;
    bool ended = reader->ended;
    int came = recvmmsg(fd, headers, batch, MSG_WAITFORONE, NULL);
    nanoseconds moment = now();
    if (came < 0 && errno == EINTR)
        return;
    if (came < 0)
        fail("nothing more after %ld messages and %ld dropped", tally->count, tally->dropped);
    for (int i = 0; i < came; i++) {
        size_t length = headers[i].msg_len;
        if (!length || headers[i].msg_hdr.msg_flags & MSG_TRUNC)
            fail(length ? "a packet was cut" : "closed after %ld messages", tally->count);
        char *packet = headers[i].msg_hdr.msg_iov->iov_base;
        packet[length] = 0; /* so that a number at its end can be read */
        take_packet(reader, packet, length);
    }
    if (!before && tally->count)
        tally->first = moment;
    if (tally->count > before || (reader->ended && !ended && !tally->count))
        tally->last = moment;
}

/* A connection that has agreed to packing, or not, and to wait. */
static int open_reader(bool packed, size_t *pack_limit)
{
    int fd = open_bus(packed, pack_limit);
    if (number("block", 0))
        bus_request(fd, "CMSG queue\0policy=block", 23);
    return fd;
}

static void watch(int all, int fd)
{
    if (epoll_ctl(all, EPOLL_CTL_ADD, fd, &(struct epoll_event){ .events = EPOLLIN, .data.fd = fd }))
        fail("cannot wait for %d", fd);
}

static void subscriber(struct tally *tally)
{
    size_t pack_limit, slot = number("slot", 2048);
    bool packed = number("packed", 0);
    long count = number("count", 0), connections = number("connections", 1);
    struct reader reader = { .tally = tally };
    if (!count)
        reader.end_length = snprintf(reader.end, sizeof reader.end, "MSG %s", word("end", NULL)) + 1;
    int fd = open_reader(packed, &pack_limit), batch = packed ? PACKED_BATCH : BATCH;
    if (pack_limit > slot)
        slot = pack_limit;
    struct mmsghdr headers[BATCH] = { 0 };
    struct iovec places[BATCH];
    for (int i = 0; i < batch; i++) {
        places[i] = (struct iovec){ allocated(slot + 1), slot };
        headers[i].msg_hdr.msg_iov = &places[i];
        headers[i].msg_hdr.msg_iovlen = 1;
    }
    if (reader.end_length)
        bus.subscribe(fd, word("end", NULL));
    bus.subscribe(fd, word("channel", NULL));
    int all = epoll_create1(EPOLL_CLOEXEC);
    watch(all, fd);
    for (long i = 1; i < connections; i++) {
        int another = open_reader(packed, &pack_limit);
        bus.subscribe(another, word("channel", NULL));
        watch(all, another);
    }
    count *= connections;
    say_ready();
    while (count ? tally->count < count : !reader.ended) {
        struct epoll_event ready[BATCH];
        int several = connections == 1 ? 0 : epoll_wait(all, ready, BATCH, PATIENCE * 1000);
        if (connections == 1)
            read_batch(fd, &reader, headers, batch);
        else if (!several)
            fail("nothing more after %ld messages and %ld dropped", tally->count, tally->dropped);
        for (int i = 0; i < several; i++)
            read_batch(ready[i].data.fd, &reader, headers, batch);
    }
    errno = 0;
    if (count && (tally->count > count || tally->dropped))
        fail("%ld messages and %ld dropped, %ld were published", tally->count, tally->dropped, count);
}

void packets_subscribe(void)
{
    in_copies(subscriber);
}
