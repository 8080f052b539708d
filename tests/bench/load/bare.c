/* usage: bare PORT [divided]
 *
 * The backbone that does nothing but number and send, as the limit of what the kernel lets pass. A batch is read with
 * one call, each PUSH becomes its DELIVER where it lies, and up to VECTOR datagrams are sent with one call, each message
 * to all subscribers in turn. Whoever sends a KEEPALIVE is a subscriber for good.
 *
 * With "divided" a batch goes to each subscriber as one datagram, which the kernel divides. So all PUSHes must be of
 * one length.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/udp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#ifndef SOL_UDP
#define SOL_UDP 17
#endif
#define BATCH 64
#define VECTOR 1024
#define SUBSCRIBERS 1024
#define SLOT 2048
#define BUFFER (4 << 20)

static struct sockaddr_in subscribers[SUBSCRIBERS], senders[BATCH];
static int width;
static unsigned long long next = 1;
static unsigned char slots[BATCH][SLOT];

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

static void keep(int fd, const struct sockaddr_in *sender, unsigned char *packet)
{
    int known = 0;
    for (int i = 0; i < width; i++)
        known |= !memcmp(&subscribers[i], sender, sizeof *sender);
    if (!known && width < SUBSCRIBERS)
        subscribers[width++] = *sender;
    packet[12] = 0x20; /* an ACK: this byte, and the TOKEN behind it */
    sendto(fd, packet + 12, 17, 0, (const struct sockaddr *)sender, sizeof *sender);
}

static void send_to_all(int fd, struct iovec *messages, int count)
{
    static struct mmsghdr headers[BATCH * SUBSCRIBERS];
    int total = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < width; j++)
            headers[total++].msg_hdr = (struct msghdr){
                .msg_name = &subscribers[j], .msg_namelen = sizeof *subscribers, .msg_iov = &messages[i], .msg_iovlen = 1
            };
    for (int sent = 0; sent < total;) {
        int went = sendmmsg(fd, headers + sent, total - sent < VECTOR ? total - sent : VECTOR, 0);
        if (went < 0 && errno != EINTR)
            went = 1; /* this one does not go */
        sent += went > 0 ? went : 0;
    }
}

static void send_divided(int fd, struct iovec *messages, int count)
{
    static struct mmsghdr headers[SUBSCRIBERS];
    union {
        char room[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr aligned;
    } control = { .aligned = { CMSG_LEN(sizeof(uint16_t)), SOL_UDP, UDP_SEGMENT } };
    uint16_t length = count ? messages[0].iov_len : 0;
    memcpy(CMSG_DATA(&control.aligned), &length, sizeof length);
    for (int j = 0; j < width; j++)
        headers[j].msg_hdr = (struct msghdr){
            .msg_name = &subscribers[j], .msg_namelen = sizeof *subscribers, .msg_iov = messages, .msg_iovlen = count,
            .msg_control = &control, .msg_controllen = sizeof control.room
        };
    for (int sent = 0; count && sent < width;) {
        int went = sendmmsg(fd, headers + sent, width - sent, 0);
        if (went < 0 && errno != EINTR)
            went = 1; /* this one does not go */
        sent += went > 0 ? went : 0;
    }
}

int main(int argc, char **argv)
{
    bool divided = argc > 2;
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0) };
    struct mmsghdr headers[BATCH] = { 0 };
    struct iovec places[BATCH], messages[BATCH];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = BUFFER;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&here, sizeof here))
        give_up("bind");
    puts("ready");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < BATCH; i++) {
            places[i] = (struct iovec){ slots[i], SLOT };
            headers[i].msg_hdr = (struct msghdr){
                .msg_name = &senders[i], .msg_namelen = sizeof *senders, .msg_iov = &places[i], .msg_iovlen = 1
            };
        }
        int came = recvmmsg(fd, headers, BATCH, MSG_WAITFORONE, NULL), count = 0;
        if (came < 0 && errno != EINTR)
            give_up("recvmmsg");
        for (int i = 0; i < came; i++) {
            if (slots[i][0] == 0x10) {
                keep(fd, &senders[i], slots[i]);
                continue;
            }
            slots[i][0] = 0x01;
            for (int at = 3; at < 9; at++)
                slots[i][at] = next >> (8 * (8 - at));
            next++;
            messages[count++] = (struct iovec){ slots[i], headers[i].msg_len };
        }
        (divided ? send_divided : send_to_all)(fd, messages, count);
    }
}
