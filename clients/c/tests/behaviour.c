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

static void remember_notice(const bccn_notice *notice, void *user)
{
    bccn_notice *kept = user;
    if (kept)
        *kept = *notice;
}

/* Their notices go to `notice`, or nowhere. */
static bccn_options options_with(bccn_notice *notice)
{
    bccn_options options = BCCN_OPTIONS_INIT;
    options.on_notice = remember_notice;
    options.notice_user = notice;
    options.timeout = SOON;
    return options;
}

static bccn_bus *opened(const bccn_options *options)
{
    const bccn_options defaults = options_with(NULL);
    bccn_bus *bus;
    int code = bccn_open(&bus, address, options ? options : &defaults);
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

static int count_call(bccn_bus *bus, const bccn_message *message, void *user)
{
    (void)bus, (void)message;
    ++*(int *)user;
    return 0;
}

/* Asks and publishes; the message of the callback must stay valid meanwhile. */
static int ask_inside(bccn_bus *bus, const bccn_message *message, void *user)
{
    const bccn_message *other;
    expect(bccn_receive(bus, &other, 0) == BCCN_E_INVALID);
    expect(bccn_dispatch(bus) == BCCN_E_INVALID);
    expect(bccn_subscribe(bus, "b/more", NULL, NULL) == 0);
    for (int i = 0; i < 100; i++)
        expect(bccn_publish(bus, "b/more", "another", 7) == 0);
    expect(bccn_barrier(bus) == 0);
    expect(!strcmp(message->channel, "b/ask") && message->size == 5 && !memcmp(message->payload, "still", 5));
    ++*(int *)user;
    return 0;
}

static void test_callbacks(void)
{
    bccn_notice notice = { 0, 0, 0, NULL };
    bccn_options options = options_with(&notice);
    bccn_bus *bus = opened(&options);
    const bccn_message *message;
    int first = 0, second = 0, asked = 0;
    expect(bccn_subscribe(bus, "b/>", count_call, &first) == 0);
    expect(bccn_subscribe(bus, "b/x", count_call, &second) == 0);
    expect(bccn_publish(bus, "b/x", NULL, 0) == 0 && bccn_publish(bus, "b/y", "", 0) == 0 && bccn_barrier(bus) == 0);
    expect(bccn_dispatch(bus) == 2 && first == 2 && second == 1);

    expect(bccn_subscribe(bus, "b/y", NULL, NULL) == 0); /* the callback gets the message, and so does bccn_receive */
    expect(bccn_publish(bus, "b/y", "too", 3) == 0 && bccn_receive(bus, &message, SOON) == 1);
    expect(first == 3 && message->size == 3 && bccn_receive(bus, &message, 0) == 0);

    expect(bccn_unsubscribe(bus, "b/>") == 0 && bccn_unsubscribe(bus, "b/x") == 0);
    expect(bccn_subscribe(bus, "b/ask", ask_inside, &asked) == 0);
    expect(bccn_publish(bus, "b/ask", "still", 5) == 0);
    for (int i = 0; i < 100; i++)
        expect(bccn_receive(bus, &message, SOON) == 1 && !strcmp(message->channel, "b/more"));
    expect(asked == 1);

    expect(bccn_publish(bus, "b/y", "for nobody", 10) == 0 && bccn_barrier(bus) == 0);
    expect(bccn_dispatch(bus) == 1 && notice.kind == BCCN_NOTICE_UNCLAIMED && notice.count == 1);
    bccn_close(bus);
}

/* Returns what `*user` says, once; then 0. */
static int stop_once(bccn_bus *bus, const bccn_message *message, void *user)
{
    int code = *(int *)user;
    (void)bus, (void)message;
    *(int *)user = 0;
    return code;
}

static int close_bus(bccn_bus *bus, const bccn_message *message, void *user)
{
    (void)user;
    bccn_close(bus);
    expect(bccn_publish(bus, "stop/x", "", 0) == BCCN_E_CLOSED && !strcmp(message->channel, "stop/close"));
    return 0;
}

static void test_a_callback_stops_and_nothing_is_lost(void)
{
    bccn_bus *bus = opened(NULL);
    const bccn_message *message;
    int fd = bccn_fileno(bus), code = 7, before = 0, behind = 0;
    expect(bccn_subscribe(bus, "stop/x", count_call, &before) == 0);
    expect(bccn_subscribe(bus, "stop/x", stop_once, &code) == 0);
    expect(bccn_subscribe(bus, "stop/*", count_call, &behind) == 0);
    expect(bccn_publish(bus, "stop/x", "1", 1) == 0 && bccn_publish(bus, "stop/y", "2", 1) == 0);
    expect(bccn_barrier(bus) == 0);
    expect(bccn_dispatch(bus) == BCCN_E_STOPPED && strstr(bccn_error_text(bus), "7") && before == 1 && behind == 0);
    expect(readable(fd, 0) && bccn_dispatch(bus) == 1 && before == 1 && behind == 2);

    code = BCCN_E_NOBODY; /* a code of its own comes back as it is */
    expect(bccn_subscribe(bus, "stop/x", NULL, NULL) == 0 && bccn_publish(bus, "stop/x", "3", 1) == 0);
    expect(bccn_receive(bus, &message, SOON) == BCCN_E_NOBODY && !message && strstr(bccn_error_text(bus), "nobody"));
    expect(bccn_receive(bus, &message, 0) == 1 && *(const char *)message->payload == '3' && before == 2 && behind == 3);

    expect(bccn_subscribe(bus, "stop/close", close_bus, NULL) == 0);
    expect(bccn_publish(bus, "stop/close", "", 0) == 0 && bccn_receive(bus, &message, SOON) == BCCN_E_CLOSED);
    expect(bccn_receive(NULL, &message, 0) == BCCN_E_CLOSED && bccn_barrier(NULL) == BCCN_E_CLOSED);
    expect(!*bccn_name(NULL) && bccn_lost(NULL) == 0 && *bccn_error_text(NULL));
}

static void test_a_subscription_ends_by_its_user(void)
{
    bccn_bus *bus = opened(NULL);
    int first = 0, second = 0, third = 0;
    expect(bccn_subscribe(bus, "by/gap", NULL, NULL) == 0 && bccn_subscribe(bus, "by/x", count_call, &first) == 0);
    expect(bccn_unsubscribe(bus, "by/gap") == 0); /* leaves a slot before that of `first` */
    expect(bccn_subscribe(bus, "by/x", count_call, &second) == 0);
    expect(bccn_subscribe(bus, "by/x", count_call, &third) == 0);
    expect(bccn_unsubscribe_user(bus, "by/x", &third) == 0);
    expect(bccn_unsubscribe_user(bus, "by/x", &third) == BCCN_E_INVALID);
    expect(bccn_unsubscribe(bus, "by/x") == 0); /* the last one, wherever it is */
    expect(bccn_publish(bus, "by/x", "", 0) == 0 && bccn_barrier(bus) == 0 && bccn_dispatch(bus) == 1);
    expect(first == 1 && second == 0 && third == 0);
    bccn_close(bus);
}

static int keep_request(bccn_bus *bus, const bccn_message *request, const void *question, size_t size, void *user)
{
    bccn_message **kept = user;
    expect(size == 4 && !memcmp(question, "what", 4));
    if (*kept) /* the second request */
        return bccn_reply(bus, request, "at once", 7);
    *kept = bccn_message_copy(request);
    return 1;
}

static void test_replies_now_and_later(void)
{
    bccn_options full = options_with(NULL);
    full.format = BCCN_FORMAT_FULL;
    bccn_bus *server = opened(&full), *asker = opened(NULL);
    const bccn_message *message;
    bccn_message *kept = NULL;
    expect(bccn_serve(asker, "serve/x", keep_request, NULL) == BCCN_E_INVALID);
    expect(bccn_serve(server, "serve/x", keep_request, &kept) == 0);
    expect(bccn_publish(asker, "serve/x", "no request", 10) == 0); /* is ignored */
    expect(bccn_request_many(asker, "serve/x", "what", 4, SOON, 1) == 0);
    expect(bccn_receive(server, &message, SOON) == BCCN_E_STOPPED && kept && kept->src && kept->datagram_size);
    expect(bccn_request_many(asker, "serve/x", "what", 4, SOON, 2) == 0);
    expect(bccn_barrier(asker) == 0 && bccn_barrier(server) == 0 && bccn_dispatch(server) == 1);
    expect(bccn_reply(server, kept, "too late", 8) == 0 && bccn_barrier(server) == 0);
    bccn_message_free(kept);
    expect(bccn_next_reply(asker, &message) == 1 && message->size == 7 && !memcmp(message->payload, "at once", 7));
    expect(bccn_request(asker, "serve/x", "what", 4, &message, 0) == BCCN_E_TIMEOUT && !message);
    expect(bccn_next_reply(asker, &message) == 0);
    expect(bccn_unsubscribe(server, "serve/x") == 0);
    expect(bccn_request(asker, "local/nobody", "", 0, &message, SOON) == BCCN_E_NOBODY);
    expect(bccn_next_reply(asker, &message) == 0);
    bccn_close(server);
    bccn_close(asker);
}

static void test_a_copy_needs_no_bus(void)
{
    bccn_options full = options_with(NULL);
    full.format = BCCN_FORMAT_FULL;
    bccn_bus *bus = opened(&full);
    const bccn_message *message;
    expect(bccn_subscribe(bus, "copy/x", NULL, NULL) == 0 && bccn_publish(bus, "copy/x", "a\0b", 3) == 0);
    expect(bccn_receive(bus, &message, SOON) == 1);
    bccn_message *copy = bccn_message_copy(message);
    bccn_close(bus);
    expect(!strcmp(copy->channel, "copy/x") && copy->size == 3 && !memcmp(copy->payload, "a\0b", 3));
    expect(copy->datagram_size > 3 && !strcmp(copy->peer, "local") && !strcmp(copy->verdict, "ok") && !copy->interface);
    bccn_message_free(copy);
    bccn_message_free(NULL);
}

static void test_the_interface_of_a_tap(void)
{
    bccn_options options = options_with(NULL);
    options.tap = BCCN_TAP_INTERFACE;
    bccn_bus *bus = opened(&options);
    const bccn_message *message;
    expect(bccn_publish(bus, "tapped/here", "", 0) == 0);
    do
        expect(bccn_receive(bus, &message, SOON) == 1);
    while (strcmp(message->channel, "tapped/here") || strcmp(message->verdict, "ok"));
    expect(message->interface && *message->interface);
    bccn_close(bus);
}

/* Also after a request of its own: then a bus that does not listen drops them. */
static void test_a_tap_gets_what_is_directed_to_others(void)
{
    bccn_options options = options_with(NULL);
    options.format = BCCN_FORMAT_FULL;
    options.tap = BCCN_TAP_ON;
    bccn_bus *bus = opened(&options);
    const bccn_message *message;
    expect(bccn_request(bus, "local/nobody", "", 0, &message, SOON) == BCCN_E_NOBODY);
    expect(bccn_publish_to(bus, "tapped/other/1", "", 0) == 0);
    do
        expect(bccn_receive(bus, &message, SOON) == 1);
    while (strcmp(message->channel, "!tapped/other/1"));
    bccn_close(bus);
}

static void close_noted(const bccn_notice *notice, void *user)
{
    (void)notice;
    expect(!*(int *)user);
}

static int close_inside(bccn_bus *bus, const bccn_message *message, void *user)
{
    (void)message;
    bccn_close(bus);
    *(int *)user = 1;
    return 0;
}

/* What notices go to may be gone with the bus. */
static void test_no_notice_comes_after_close(void)
{
    int closed = 0;
    bccn_options options = options_with(NULL);
    options.on_notice = close_noted;
    options.notice_user = &closed;
    bccn_bus *bus = opened(&options);
    expect(bccn_subscribe(bus, "close/unclaimed", NULL, NULL) == 0);
    expect(bccn_subscribe(bus, "close/now", close_inside, &closed) == 0);
    expect(bccn_publish(bus, "close/unclaimed", "", 0) == 0 && bccn_publish(bus, "close/now", "", 0) == 0);
    expect(bccn_barrier(bus) == 0 && bccn_dispatch(bus) == BCCN_E_CLOSED && closed);
}

static void test_wrong_options_are_refused(void)
{
    bccn_options options;
    bccn_bus *bus;
    for (int i = 0; i < 6; i++) {
        options = options_with(NULL);
        options.separator = i == 0 ? ':' : '/';
        options.format = i == 1 ? (bccn_format)7 : BCCN_FORMAT_PLAIN;
        options.tap = i == 2 ? (bccn_tap)7 : BCCN_TAP_OFF;
        options.queue_policy = i == 3 ? (bccn_policy)7 : BCCN_POLICY_DEFAULT;
        options.size = i == 4 ? 0 : i == 5 ? (size_t)-1 : sizeof options; /* were not BCCN_OPTIONS_INIT */
        expect(bccn_open(&bus, address, &options) == (i < 4 ? BCCN_E_BAD_VALUE : BCCN_E_INVALID));
        expect(*bccn_error_text(bus));
        bccn_close(bus);
    }
}

static void test_descriptor(void)
{
    bccn_bus *bus = opened(NULL);
    const bccn_message *message;
    int fd = bccn_fileno(bus), called = 0, status;
    expect(fd >= 0 && !readable(fd, 0));
    expect(bccn_subscribe(bus, "fd/x", count_call, &called) == 0);
    expect(bccn_publish(bus, "fd/x", "1", 1) == 0 && readable(fd, SOON) && bccn_dispatch(bus) == 1 && !readable(fd, 0));
    /* The barrier reads the message, which then waits in the client and not in the socket. */
    expect(bccn_publish(bus, "fd/x", "2", 1) == 0 && bccn_barrier(bus) == 0 && readable(fd, 0));
    expect(bccn_fileno(bus) == fd && bccn_dispatch(bus) == 1 && !readable(fd, 0) && called == 2);

    pid_t child = fork(); /* a child closes the parent's client, another uses it: the parent notices neither */
    if (child == 0) {
        if (fork() == 0) {
            bccn_close(bus);
            _exit(0);
        }
        expect(wait(&status) > 0 && status == 0);
        int own = bccn_fileno(bus);
        expect(own >= 0 && bccn_publish(bus, "fd/x", "child", 5) == 0 && readable(own, SOON));
        expect(bccn_dispatch(bus) == 1);
        bccn_close(bus);
        _exit(0);
    }
    expect(waitpid(child, &status, 0) == child && status == 0);
    expect(readable(fd, SOON) && bccn_receive(bus, &message, 0) == 0 && called == 3 && !readable(fd, 0));
    bccn_close(bus);
}

static void ignore(int signal)
{
    (void)signal;
}

static void test_signals(void)
{
    bccn_bus *bus = opened(NULL);
    const bccn_message *message;
    struct itimerval soon = { { 0, 20000 }, { 0, 20000 } }, never = { { 0, 0 }, { 0, 0 } };
    signal(SIGALRM, ignore); /* signal(3) makes system calls restart */
    setitimer(ITIMER_REAL, &soon, NULL);
    expect(bccn_receive(bus, &message, -1) == BCCN_E_INTERRUPTED);
    expect(bccn_receive(bus, &message, SOON) == BCCN_E_INTERRUPTED);
    setitimer(ITIMER_REAL, &never, NULL);
    expect(bccn_receive(bus, &message, 0) == 0 && bccn_barrier(bus) == 0);
    bccn_close(bus);
}

static void test_errors(void)
{
    bccn_notice notice = { 0, 0, 0, NULL };
    bccn_options options = options_with(&notice);
    options.name = "libbccn/test/1";
    options.queue_packets = 10;
    bccn_bus *bus = opened(&options), *other;
    const char *answer;
    char large[1500] = "";
    expect(!strcmp(bccn_name(bus), "libbccn/test/1"));
    expect(bccn_open(&other, address, &options) == BCCN_E_NAME_TAKEN && strstr(bccn_error_text(other), "name-taken"));
    bccn_close(other);
    expect(bccn_publish(bus, "a b", "", 0) == 0 && bccn_publish(bus, "a", large, sizeof large) == 0);
    expect(bccn_barrier(bus) == BCCN_E_BAD_CHANNEL && strstr(bccn_error_text(bus), "1 more rejected"));
    expect(notice.kind == BCCN_NOTICE_REJECTED && notice.code == BCCN_E_TOO_LARGE);
    expect(bccn_barrier(bus) == 0);
    expect(bccn_publish(bus, "local/x", large, 1 << 20) == BCCN_E_TOO_LARGE);
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
    bccn_options options = options_with(NULL);
    options.reconnect = 0;
    options.queue_packets = 1;
    options.queue_policy = BCCN_POLICY_DISCONNECT;
    bccn_bus *bus = opened(&options), *other = opened(NULL);
    const bccn_message *message;
    int code;
    expect(bccn_subscribe(bus, "once/x", NULL, NULL) == 0);
    for (int i = 0; i < 5000; i++)
        expect(bccn_publish(other, "once/x", "", 0) == 0);
    expect(bccn_barrier(other) == 0);
    while ((code = bccn_receive(bus, &message, SOON)) > 0)
        ;
    expect(code == BCCN_E_UNAVAILABLE && bccn_publish(bus, "a", "", 0) == BCCN_E_UNAVAILABLE);
    expect(bccn_receive(bus, &message, SOON) == BCCN_E_UNAVAILABLE && bccn_dispatch(bus) == BCCN_E_UNAVAILABLE);
    bccn_close(bus);
    bccn_close(other);
}

int main(int count, char **words)
{
    expect(count == 2);
    address = words[1];
    test_callbacks();
    test_a_callback_stops_and_nothing_is_lost();
    test_a_subscription_ends_by_its_user();
    test_replies_now_and_later();
    test_a_copy_needs_no_bus();
    test_the_interface_of_a_tap();
    test_a_tap_gets_what_is_directed_to_others();
    test_no_notice_comes_after_close();
    test_wrong_options_are_refused();
    test_descriptor();
    test_signals();
    test_errors();
    test_a_lost_connection_without_reconnecting();
    return 0;
}
