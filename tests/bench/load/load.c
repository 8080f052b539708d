#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char **words;
static int ready_pipe[2] = { -1, -1 };

void take_words(int argc, char **argv)
{
    words = argv;
    for (int i = 0; i < argc; i++)
        if (!strchr(argv[i], '='))
            fail("%s: not name=value", argv[i]);
}

const char *word(const char *name, const char *otherwise)
{
    size_t length = strlen(name);
    for (char **each = words; *each; each++)
        if (!strncmp(*each, name, length) && (*each)[length] == '=')
            return *each + length + 1;
    if (!otherwise)
        fail("%s= is missing", name);
    return otherwise;
}

long number(const char *name, long otherwise)
{
    const char *text = word(name, otherwise < 0 ? NULL : "");
    char *end;
    if (!*text)
        return otherwise;
    long value = strtol(text, &end, 10);
    if (*end || value < 0)
        fail("%s=%s: not a number", name, text);
    return value;
}

nanoseconds now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

void sleep_until(nanoseconds moment)
{
    struct timespec time = { moment / 1000000000, moment % 1000000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

void fail(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, error ? " (%s)\n" : "\n", strerror(error));
    exit(1);
}

void *allocated(size_t size)
{
    void *memory = calloc(1, size);
    if (!memory)
        fail("no memory for %zu bytes", size);
    return memory;
}

/* -- sockets */

static int connected_by(int family, int type, const void *address, socklen_t size, const char *shown)
{
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, address, size))
        fail("%s", shown);
    be_patient(fd);
    return fd;
}

int connected(const char *address)
{
    const char *where = strchr(address, ':');
    if (!where)
        fail("%s: not tcp:, unix: or bus:", address);
    where++;
    if (!strncmp(address, "tcp:", 4)) {
        struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(atoi(where)) };
        peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd = connected_by(AF_INET, SOCK_STREAM, &peer, sizeof peer, address);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
        return fd;
    }
    struct sockaddr_un peer = { .sun_family = AF_UNIX };
    if (strlen(where) >= sizeof peer.sun_path)
        fail("%s: too long", address);
    strcpy(peer.sun_path, where);
    return connected_by(AF_UNIX, *address == 'b' ? SOCK_SEQPACKET : SOCK_STREAM, &peer, sizeof peer, address);
}

void be_patient(int fd)
{
    struct timeval patience = { PATIENCE, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

void send_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size;) {
        ssize_t went = send(fd, at, size, MSG_NOSIGNAL);
        if (went < 0 && errno == EINTR)
            continue;
        if (went < 0)
            fail("cannot send");
        at += went;
        size -= went;
    }
}

size_t receive_some(int fd, void *data, size_t size)
{
    ssize_t came;
    do
        came = recv(fd, data, size, 0);
    while (came < 0 && errno == EINTR);
    if (came == 0)
        errno = 0;
    if (came <= 0)
        fail(came ? "cannot receive" : "the relay has closed the connection");
    return came;
}

void receive_all(int fd, void *data, size_t size)
{
    for (char *at = data; size;) {
        size_t came = receive_some(fd, at, size);
        at += came;
        size -= came;
    }
}

/* -- several processes in one role */

static void run_copy(void (*role)(struct tally *), struct tally *tally)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ready_pipe[0]);
    role(tally);
    exit(0);
}

static void await_ready(int copies)
{
    struct pollfd ready = { ready_pipe[0], POLLIN, 0 };
    char bytes[BATCH];
    while (copies > 0) {
        if (poll(&ready, 1, PATIENCE * 1000) <= 0)
            fail("%d subscribers are not ready", copies);
        ssize_t came = read(ready_pipe[0], bytes, sizeof bytes);
        if (came <= 0)
            fail("%d subscribers have ended early", copies);
        copies -= came;
    }
}

void in_copies(void (*role)(struct tally *))
{
    int copies = number("copies", 1);
    size_t size = copies * sizeof(struct tally);
    struct tally *tallies = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tallies == MAP_FAILED || pipe(ready_pipe))
        fail("cannot begin");
    for (int i = 0; i < copies; i++)
        switch (fork()) {
        case -1:
            fail("fork");
        case 0:
            run_copy(role, &tallies[i]);
        }
    close(ready_pipe[1]);
    await_ready(copies);
    puts("ready");
    fflush(stdout);
    for (int i = 0, status; i < copies; i++)
        if (wait(&status) < 0 || status)
            exit(1); /* it has said why */
    struct tally all = tallies[0];
    for (int i = 1; i < copies; i++) {
        all.count += tallies[i].count;
        all.dropped += tallies[i].dropped;
        all.first = tallies[i].first < all.first ? tallies[i].first : all.first;
        all.last = tallies[i].last > all.last ? tallies[i].last : all.last;
    }
    print_tally(&all);
}

void say_ready(void)
{
    if (ready_pipe[1] >= 0) {
        if (write(ready_pipe[1], "r", 1) != 1)
            fail("cannot say ready");
        close(ready_pipe[1]);
    } else {
        puts("ready");
        fflush(stdout);
    }
}

/* -- reports */

void print_tally(const struct tally *tally)
{
    printf("{\"count\": %ld, \"dropped\": %ld, \"first\": %lld, \"last\": %lld}\n", tally->count, tally->dropped,
           tally->first, tally->last);
    fflush(stdout);
}

bool told_to_end(void)
{
    struct pollfd input = { STDIN_FILENO, POLLIN, 0 };
    return poll(&input, 1, 0) > 0;
}

void await_end(void)
{
    struct pollfd input = { STDIN_FILENO, POLLIN, 0 };
    while (poll(&input, 1, -1) < 0 && errno == EINTR)
        ;
}
