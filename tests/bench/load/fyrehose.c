/* Clients of a backbone (bccnd/wire/FYREHOSE.md): one that publishes, and subscribers, each in a process.
 *
 * UDP waits for nobody, so the publisher is at most WINDOW messages ahead of the slowest subscriber, or as many as a
 * receive buffer holds. They share a file, progress=, with a line of 64 bytes for each: how many have joined, then how
 * far each of them is. A subscriber that misses a number, or gets one twice, ends the run.
 */
#define _GNU_SOURCE
#include "load.h"
#include "roles.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DELIVER 0x01
#define PUSH 0x02
#define KEEPALIVE 0x10
#define ACK 0x20
#define HEAD 9

#define WINDOW 1024
#define HELD 2048         /* bytes of a receive buffer that a message takes, at most */
#define ROOM 50000LL      /* between two looks whether there is room in it */
#define KEEP 1000000000LL /* between two KEEPALIVEs of a subscriber */
#define BUFFER (4 << 20)  /* as the backbone asks for */
#define SLOT 2048

struct line {
    _Atomic long count;
    char apart[64 - sizeof(long)];
};

static struct line *lines_of_words(long *subscribers)
{
    struct stat status;
    int fd = open(word("progress", NULL), O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status))
        fail("%s", word("progress", NULL));
    struct line *lines = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (lines == MAP_FAILED)
        fail("%s", word("progress", NULL));
    close(fd);
    *subscribers = status.st_size / sizeof *lines - 1;
    return lines;
}

static int open_client(void)
{
    struct sockaddr_in backbone = { .sin_family = AF_INET, .sin_port = htons(number("port", -1)) };
    backbone.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = BUFFER;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (fd < 0 || connect(fd, (struct sockaddr *)&backbone, sizeof backbone))
        fail("port %ld", number("port", -1));
    be_patient(fd);
    return fd;
}

static long window(int fd)
{
    int bytes = 0;
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &(socklen_t){ sizeof bytes });
    long most = bytes / HELD < WINDOW ? bytes / HELD : WINDOW;
    return most < BATCH ? BATCH : most;
}

static long slowest(const struct line *lines, long subscribers)
{
    long least = lines[1].count;
    for (long i = 2; i <= subscribers; i++)
        least = lines[i].count < least ? lines[i].count : least;
    return least;
}

/* -- publish: port= progress= count= size= */

void fyrehose_publish(void)
{
    static unsigned char packet[SLOT];
    struct mmsghdr headers[BATCH] = { 0 };
    long count = number("count", -1), size = number("size", -1), subscribers, seen = 0;
    struct line *lines = lines_of_words(&subscribers);
    struct iovec place = { packet, HEAD + size };
    if (place.iov_len > SLOT)
        fail("size=%ld: too much", size);
    packet[0] = PUSH, packet[1] = size >> 8, packet[2] = size & 255;
    memset(packet + HEAD, 'x', size);
    for (int i = 0; i < BATCH; i++)
        headers[i].msg_hdr = (struct msghdr){ .msg_iov = &place, .msg_iovlen = 1 };
    int fd = open_client();
    long most = window(fd);
    struct tally tally = { .count = count, .first = now() };
    nanoseconds moved = tally.first;
    for (long sent = 0; sent < count;) {
        long least = slowest(lines, subscribers), batch = count - sent < BATCH ? count - sent : BATCH;
        if (least > seen)
            seen = least, moved = now();
        if (sent + batch - least > most) {
            errno = 0;
            if (now() - moved > PATIENCE * 1000000000LL)
                fail("the slowest subscriber has %ld of %ld messages", least, sent);
            sleep_until(now() + ROOM);
            continue;
        }
        int went = sendmmsg(fd, headers, batch, 0);
        if (went < 0 && errno != EINTR)
            fail("cannot send after %ld messages", sent);
        sent += went > 0 ? went : 0;
    }
    tally.last = now();
    print_tally(&tally);
}

/* -- subscribe: port= progress= count= copies= */

static void keep(int fd)
{
    static const unsigned char packet[29] = { KEEPALIVE }; /* all else is 0: from here, no flags, any TOKEN */
    if (send(fd, packet, sizeof packet, 0) != sizeof packet)
        fail("no KEEPALIVE");
}

static long number_of(const unsigned char *packet)
{
    long seq = 0;
    for (int i = 3; i < HEAD; i++)
        seq = seq << 8 | packet[i];
    return seq;
}

static void subscriber(struct tally *tally)
{
    static unsigned char slots[BATCH][SLOT];
    struct mmsghdr headers[BATCH] = { 0 };
    struct iovec places[BATCH];
    for (int i = 0; i < BATCH; i++) {
        places[i] = (struct iovec){ slots[i], SLOT };
        headers[i].msg_hdr = (struct msghdr){ .msg_iov = &places[i], .msg_iovlen = 1 };
    }
    long count = number("count", -1), subscribers, last = 0;
    struct line *lines = lines_of_words(&subscribers), *mine = &lines[1 + lines[0].count++];
    int fd = open_client();
    nanoseconds kept = now(), heard = kept;
    keep(fd);
    if (recv(fd, slots[0], SLOT, 0) < 1 || slots[0][0] != ACK)
        fail("no ACK");
    say_ready();
    struct timeval again = { KEEP / 1000000000, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &again, sizeof again);
    while (tally->count < count) {
        int came = recvmmsg(fd, headers, BATCH, MSG_WAITFORONE, NULL), error = errno;
        nanoseconds moment = now();
        if (moment - kept > KEEP) {
            kept = moment;
            keep(fd);
        }
        if (came < 0) {
            if ((error != EINTR && error != EAGAIN) || moment - heard > PATIENCE * 1000000000LL)
                fail("nothing more after %ld messages", tally->count);
            continue;
        }
        for (int i = 0; i < came; i++) {
            if (slots[i][0] != DELIVER)
                continue;
            long seq = number_of(slots[i]);
            errno = 0;
            if (last && seq != last + 1)
                fail("message %ld comes after %ld", seq, last);
            last = seq;
            tally->count++;
            tally->last = heard = moment;
            tally->first = tally->first ? tally->first : moment;
        }
        mine->count = tally->count;
    }
}

void fyrehose_subscribe(void)
{
    in_copies(subscriber);
}
