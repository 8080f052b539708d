/* Tests what the conformance script cannot ask of libbccn: callbacks, descriptors, signals, fork with both, error
 * texts. The argument is the socket of a daemon. The program prints only failures.
 */
#define _GNU_SOURCE
#include "../bccn.h"
#include "expect.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *address;

static bccn_bus *opened(const bccn_options *options)
{
    bccn_bus *bus;
    int code = bccn_open(&bus, address, options);
    if (code < 0)
        fprintf(stderr, "%s\n", bccn_error_text(bus));
    expect(code == 0);
    return bus;
}

static int readable(int fd, int timeout)
{
    struct pollfd polled = { fd, POLLIN, 0 };
    return poll(&polled, 1, timeout) > 0;
}

static void count_call(bccn_bus *bus, const bccn_message *message, void *user)
{
    (void)bus, (void)message;
    ++*(int *)user;
}

/* Asks and publishes; the message of the callback must stay valid meanwhile. */
static void ask_inside(bccn_bus *bus, const bccn_message *message, void *user)
{
    bccn_message other;
    expect(bccn_recv(bus, &other, 0) == BCCN_E_INVALID);
    expect(bccn_dispatch(bus) == BCCN_E_INVALID);
    expect(bccn_subscribe(bus, "b/more") == 0);
    for (int i = 0; i < 100; i++)
        expect(bccn_send(bus, "b/more", "another", 7) == 0);
    expect(bccn_barrier(bus) == 0);
    expect(!strcmp(message->channel, "b/ask") && message->size == 5 && !memcmp(message->payload, "still", 5));
    ++*(int *)user;
}

static void remember_notice(const bccn_notice *notice, void *user)
{
    *(bccn_notice *)user = *notice;
}

static void test_callbacks(void)
{
    bccn_bus *bus = opened(NULL);
    bccn_notice notice = { 0, 0, 0, NULL };
    bccn_message message;
    int first = 0, second = 0, asked = 0;
    bccn_on_notice(bus, remember_notice, &notice);
    expect(bccn_listen(bus, "b/>", count_call, &first) == 0);
    expect(bccn_listen(bus, "b/x", count_call, &second) == 0);
    expect(bccn_send(bus, "b/x", NULL, 0) == 0 && bccn_send(bus, "b/y", "", 0) == 0 && bccn_barrier(bus) == 0);
    expect(bccn_dispatch(bus) == 2 && first == 2 && second == 1);

    expect(bccn_subscribe(bus, "b/y") == 0); /* the callback gets the message, and so does bccn_recv */
    expect(bccn_send(bus, "b/y", "too", 3) == 0 && bccn_recv(bus, &message, SOON) == 1);
    expect(first == 3 && message.size == 3 && bccn_recv(bus, &message, 0) == 0);

    expect(bccn_unsubscribe(bus, "b/>") == 0 && bccn_unsubscribe(bus, "b/x") == 0);
    expect(bccn_listen(bus, "b/ask", ask_inside, &asked) == 0);
    expect(bccn_send(bus, "b/ask", "still", 5) == 0);
    for (int i = 0; i < 100; i++)
        expect(bccn_recv(bus, &message, SOON) == 1 && !strcmp(message.channel, "b/more"));
    expect(asked == 1);

    expect(bccn_send(bus, "b/y", "for nobody", 10) == 0 && bccn_barrier(bus) == 0);
    expect(bccn_dispatch(bus) == 1 && notice.kind == BCCN_UNCLAIMED && notice.count == 1);
    bccn_close(bus);
}

static void test_descriptor(void)
{
    bccn_bus *bus = opened(NULL);
    bccn_message message;
    int fd = bccn_fd(bus), called = 0, status;
    expect(fd >= 0 && !readable(fd, 0));
    expect(bccn_listen(bus, "fd/x", count_call, &called) == 0);
    expect(bccn_send(bus, "fd/x", "1", 1) == 0 && readable(fd, SOON) && bccn_dispatch(bus) == 1 && !readable(fd, 0));
    /* The barrier reads the message, which then waits in the client and not in the socket. */
    expect(bccn_send(bus, "fd/x", "2", 1) == 0 && bccn_barrier(bus) == 0 && readable(fd, 0));
    expect(bccn_fd(bus) == fd && bccn_dispatch(bus) == 1 && !readable(fd, 0) && called == 2);

    pid_t child = fork(); /* a child closes the parent's client, another uses it: the parent notices neither */
    if (child == 0) {
        if (fork() == 0) {
            bccn_close(bus);
            _exit(0);
        }
        expect(wait(&status) > 0 && status == 0);
        int own = bccn_fd(bus);
        expect(own >= 0 && bccn_send(bus, "fd/x", "child", 5) == 0 && readable(own, SOON));
        expect(bccn_dispatch(bus) == 1);
        bccn_close(bus);
        _exit(0);
    }
    expect(waitpid(child, &status, 0) == child && status == 0);
    expect(readable(fd, SOON) && bccn_recv(bus, &message, 0) == 0 && called == 3 && !readable(fd, 0));
    bccn_close(bus);
}

static void ignore(int signal)
{
    (void)signal;
}

static void test_signals(void)
{
    bccn_bus *bus = opened(NULL);
    bccn_message message;
    struct itimerval soon = { { 0, 20000 }, { 0, 20000 } }, never = { { 0, 0 }, { 0, 0 } };
    signal(SIGALRM, ignore); /* signal(3) makes system calls restart */
    setitimer(ITIMER_REAL, &soon, NULL);
    expect(bccn_recv(bus, &message, -1) == BCCN_E_INTERRUPTED);
    expect(bccn_recv(bus, &message, SOON) == BCCN_E_INTERRUPTED);
    setitimer(ITIMER_REAL, &never, NULL);
    expect(bccn_recv(bus, &message, 0) == 0 && bccn_barrier(bus) == 0);
    bccn_close(bus);
}

static void test_errors(void)
{
    bccn_options options = { .name = "libbccn/test/1", .queue = "packets=10" };
    bccn_bus *bus = opened(&options), *other;
    const char *answer;
    char large[1500] = "";
    expect(!strcmp(bccn_get_name(bus), "libbccn/test/1"));
    expect(bccn_open(&other, address, &options) == BCCN_E_NAME_TAKEN && strstr(bccn_error_text(other), "name-taken"));
    bccn_close(other);
    expect(bccn_send(bus, "a b", "", 0) == 0 && bccn_send(bus, "a", large, sizeof large) == 0);
    expect(bccn_barrier(bus) == BCCN_E_BAD_CHANNEL && strstr(bccn_error_text(bus), "1 more rejected"));
    expect(bccn_barrier(bus) == 0);
    expect(bccn_send(bus, "local/x", large, 1 << 20) == BCCN_E_TOO_LARGE);
    expect(bccn_control(bus, "queue", NULL, &answer) == 0 && strstr(answer, "packets=10 "));
    expect(bccn_control(bus, "nonsense", NULL, &answer) == BCCN_E_UNKNOWN_KEY && !*answer);
    expect(bccn_control(bus, "two words", NULL, NULL) == BCCN_E_INVALID);
    expect(!strcmp(bccn_code_word(BCCN_E_TOO_LARGE), "too-large"));
    expect(*bccn_strerror(-1000) && !strcmp(bccn_strerror(7), "no error"));
    bccn_close(bus);
    bccn_close(NULL);
}

static void test_a_lost_connection_without_reconnecting(void)
{
    bccn_options options = { .once = 1, .queue = "packets=1 policy=disconnect" };
    bccn_bus *bus = opened(&options), *other = opened(NULL);
    bccn_message message;
    int code;
    expect(bccn_subscribe(bus, "once/x") == 0);
    for (int i = 0; i < 5000; i++)
        expect(bccn_send(other, "once/x", "", 0) == 0);
    expect(bccn_barrier(other) == 0);
    while ((code = bccn_recv(bus, &message, SOON)) > 0)
        ;
    expect(code == BCCN_E_UNAVAILABLE && bccn_send(bus, "a", "", 0) == BCCN_E_UNAVAILABLE);
    expect(bccn_recv(bus, &message, SOON) == BCCN_E_UNAVAILABLE && bccn_dispatch(bus) == BCCN_E_UNAVAILABLE);
    bccn_close(bus);
    bccn_close(other);
}

int main(int count, char **words)
{
    expect(count == 2);
    address = words[1];
    test_callbacks();
    test_descriptor();
    test_signals();
    test_errors();
    test_a_lost_connection_without_reconnecting();
    return 0;
}
