/* usage: limit PATH [BYTES]
 *
 * The relay that does nothing but relay, as the limit of what the kernel lets pass: what a client sends goes to every
 * client that has said SUB, but for itself. A batch of packets is read with one call and sent with one call per
 * subscriber, from where it lies; a subscriber that is slow holds everybody up, so nothing is lost. CMSG is answered,
 * so that clients of the daemon can be clients of this. BYTES: the longest packet.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BATCH 64
#define CLIENTS 8192

static int subscribers[CLIENTS], subscriber_count;
static struct mmsghdr headers[BATCH];
static struct iovec places[BATCH];
static size_t longest = 2048;

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

static void leave(int client)
{
    for (int i = 0; i < subscriber_count; i++)
        if (subscribers[i] == client)
            subscribers[i--] = subscribers[--subscriber_count];
    close(client);
}

static bool begins(const struct iovec *packet, const char *word)
{
    return packet->iov_len > strlen(word) && !memcmp(packet->iov_base, word, strlen(word));
}

/* Requests are answered and taken out; the messages move together. How many they are. */
static int messages_of(int client, int came)
{
    int count = 0;
    for (int i = 0; i < came; i++) {
        struct iovec *place = &places[i];
        place->iov_len = headers[i].msg_len;
        if (begins(place, "SUB ")) {
            if (subscriber_count == CLIENTS)
                give_up("too many subscribers");
            subscribers[subscriber_count++] = client;
        } else if (begins(place, "CMSG ")) {
            send(client, "CMSG done", 9, MSG_NOSIGNAL);
        } else {
            struct iovec message = *place;
            *place = places[count];
            places[count++] = message;
        }
    }
    return count;
}

static void relay(int sender, int count)
{
    for (int i = 0; i < subscriber_count; i++)
        for (int sent = 0; sent < count && subscribers[i] != sender;) {
            int went = sendmmsg(subscribers[i], headers + sent, count - sent, MSG_NOSIGNAL);
            if (went < 0 && errno != EINTR)
                break; /* it has left, which its own turn will tell */
            sent += went > 0 ? went : 0;
        }
}

static void read_client(int client)
{
    for (int i = 0; i < BATCH; i++)
        places[i].iov_len = longest;
    int came = recvmmsg(client, headers, BATCH, MSG_DONTWAIT, NULL);
    if (came < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool left = came < 0;
    while (came > 0 && !headers[came - 1].msg_len) { /* the end, again and again */
        came--;
        left = true;
    }
    if (came > 0)
        relay(client, messages_of(client, came));
    if (left)
        leave(client);
}

int main(int argc, char **argv)
{
    struct sockaddr_un here = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), poll = epoll_create1(EPOLL_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc < 2 || strlen(argv[1]) >= sizeof here.sun_path)
        return 2;
    if (argc > 2)
        longest = atol(argv[2]);
    strcpy(here.sun_path, argv[1]);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1024))
        give_up(argv[1]);
    for (int i = 0; i < BATCH; i++) {
        if (!(places[i].iov_base = malloc(longest)))
            give_up("malloc");
        headers[i].msg_hdr.msg_iov = &places[i];
        headers[i].msg_hdr.msg_iovlen = 1;
    }
    struct epoll_event event = { .events = EPOLLIN, .data.fd = listener }, events[BATCH];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(poll, events, BATCH, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) {
                read_client(events[i].data.fd);
                continue;
            }
            int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (client < 0)
                continue;
            event.data.fd = client;
            epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
        }
    }
}
