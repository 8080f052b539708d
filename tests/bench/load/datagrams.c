/* UDP without a relay: the bare sender and the bare receiver that network figures are compared with.
 *
 * The sender plays a file of datagrams made beforehand, each behind its length (two bytes, little endian); the last
 * MARKERS of them are on the channel "end" and come one by one, so that a receiver that has lost some still ends.
 */
#define _GNU_SOURCE
#include "load.h"
#include "roles.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARKERS_APART 20000000LL
#define SLOT 2048

/* -- send: file= to= port= markers= rate= */

static struct iovec *datagrams_of(const char *path, long *count)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status))
        fail("%s", path);
    unsigned char *data = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (data == MAP_FAILED)
        fail("%s", path);
    close(fd);
    struct iovec *places = allocated((status.st_size / 2 + 1) * sizeof *places);
    *count = 0;
    for (unsigned char *at = data, *end = data + status.st_size; at < end; ++*count) {
        size_t length = at[0] | at[1] << 8;
        places[*count] = (struct iovec){ at + 2, length };
        at += 2 + length;
    }
    return places;
}

static int open_sender(void)
{
    struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(number("port", -1)) };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;
    inet_pton(AF_INET, word("to", NULL), &peer.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    if (fd < 0 || connect(fd, (struct sockaddr *)&peer, sizeof peer))
        fail("%s", word("to", NULL));
    be_patient(fd);
    return fd;
}

static void send_datagrams(int fd, struct iovec *places, long count, long rate, nanoseconds begin)
{
    struct mmsghdr headers[BATCH] = { 0 };
    long most = rate && rate / 1000 < BATCH ? rate / 1000 + 1 : BATCH;
    for (long sent = 0; sent < count;) {
        long batch = count - sent < most ? count - sent : most;
        for (long i = 0; i < batch; i++) {
            headers[i].msg_hdr.msg_iov = &places[sent + i];
            headers[i].msg_hdr.msg_iovlen = 1;
        }
        int went = sendmmsg(fd, headers, batch, 0);
        if (went < 0 && errno != EINTR)
            fail("cannot send after %ld datagrams", sent);
        sent += went > 0 ? went : 0;
        if (rate)
            sleep_until(begin + sent * 1000000000LL / rate);
    }
}

void datagrams_send(void)
{
    long count, markers = number("markers", -1);
    struct iovec *places = datagrams_of(word("file", NULL), &count);
    int fd = open_sender();
    struct tally tally = { .count = count - markers, .first = now() };
    send_datagrams(fd, places, tally.count, number("rate", 0), tally.first);
    tally.last = now();
    for (long i = tally.count; i < count; i++) {
        send_datagrams(fd, places + i, 1, 0, 0);
        sleep_until(now() + MARKERS_APART);
    }
    print_tally(&tally);
}

/* -- receive: port= bytes= (receive buffer) end= (channel); ready, then a tally, then it waits to be looked at */

static int open_receiver(void)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(number("port", -1)) };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = number("bytes", -1);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here))
        fail("port %ld", number("port", -1));
    be_patient(fd);
    return fd;
}

void datagrams_receive(void)
{
    static char slots[BATCH][SLOT];
    struct mmsghdr headers[BATCH] = { 0 };
    struct iovec places[BATCH];
    for (int i = 0; i < BATCH; i++) {
        places[i] = (struct iovec){ slots[i], SLOT };
        headers[i].msg_hdr.msg_iov = &places[i];
        headers[i].msg_hdr.msg_iovlen = 1;
    }
    char end[512];
    size_t usual = 0, end_length = snprintf(end, sizeof end, ":%s|", word("end", NULL));
    int fd = open_receiver();
    say_ready();
    struct tally tally = { 0 };
    for (bool ended = false; !ended;) {
        int came = recvmmsg(fd, headers, BATCH, MSG_WAITFORONE, NULL);
        nanoseconds moment = now();
        if (came < 0 && errno != EINTR)
            fail("nothing more after %ld datagrams", tally.count);
        for (int i = 0; i < came && !ended; i++) {
            size_t length = headers[i].msg_len;
            usual = usual ? usual : length;
            if (length != usual && memmem(slots[i], length, end, end_length)) {
                ended = true;
                break;
            }
            tally.count++;
            tally.first = tally.first ? tally.first : moment;
            tally.last = moment;
        }
    }
    print_tally(&tally);
    await_end();
}
