/* Tests libbccn with its internals: the other end of its socket is held here, or its connection is broken.
 * The argument is the socket of a daemon. The program prints only failures.
 */
#include "../bccn.c"
#include "expect.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define CHANNEL "inside/x"

static const char *address;
static int daemon_end;

static bccn_bus *opened(const char *name)
{
    bccn_bus *bus;
    bccn_options options = BCCN_OPTIONS_INIT;
    options.name = name;
    options.pack = 1;
    options.on_notice = NULL;
    options.timeout = SOON;
    expect(bccn_open(&bus, address, &options) == 0);
    return bus;
}

/* A bus connected to `daemon_end`, with packing agreed on. */
static bccn_bus *held(int timeout, bccn_notice_callback *on_notice, void *user)
{
    bccn_bus *bus;
    bccn_options options = BCCN_OPTIONS_INIT;
    int ends[2];
    options.timeout = timeout;
    options.on_notice = on_notice;
    options.notice_user = user;
    expect(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    expect(bccn_open(&bus, "@no daemon is there", &options) == BCCN_E_UNAVAILABLE);
    bus->fd = ends[0];
    bus->ready = 1;
    bus->pack_limit = PACK_LIMIT;
    daemon_end = ends[1];
    return bus;
}

static void let_all_go(bccn_bus *bus)
{
    bccn_close(bus);
    close(daemon_end);
}

/* Expect that the payloads in the socket are the numbers after `last`, and return the last of them. */
static long numbers_after(long last)
{
    static unsigned char bytes[2 * PACKET_LIMIT];
    ssize_t size;
    while ((size = recv(daemon_end, bytes, sizeof bytes - 1, MSG_DONTWAIT)) > 0) {
        size_t at = begins(bytes, (size_t)size, "PACK ") ? 9 : 0, head = strlen("MSG " CHANNEL) + 1;
        for (bytes[size] = 0; at < (size_t)size; at += head + 8 + 4)
            expect(strtol((char *)bytes + at + head, NULL, 10) == ++last);
    }
    return last;
}

static void test_a_full_socket_delays_the_rest_of_a_batch(void)
{
    bccn_bus *bus = held(20, NULL, NULL);
    char number[32];
    long sent = 0, code;
    expect(bccn_batch_begin(bus) == 0);
    do {
        snprintf(number, sizeof number, "%08ld", sent + 1);
        sent += (code = bccn_publish(bus, CHANNEL, number, 8)) == 0;
    } while (code == 0);
    expect(code == BCCN_E_TIMEOUT && bccn_batch_end(bus) == BCCN_E_TIMEOUT);
    long taken = numbers_after(0);
    expect(taken > 0 && taken < sent);
    snprintf(number, sizeof number, "%08ld", sent + 1);
    expect(bccn_publish(bus, CHANNEL, number, 8) == 0 && numbers_after(taken) == sent + 1);
    let_all_go(bus);
}

static void test_a_batch_keeps_its_order_over_a_new_connection(void)
{
    bccn_bus *bus = opened(NULL), *other = opened(NULL);
    const bccn_message *message;
    expect(bccn_subscribe(other, CHANNEL, NULL, NULL) == 0);
    expect(bccn_batch_begin(bus) == 0 && bccn_publish(bus, CHANNEL, "1", 1) == 0);
    let_go(bus);
    expect(bccn_publish(bus, CHANNEL, "2", 1) == 0 && bccn_batch_end(bus) == 0);
    for (int i = '1'; i <= '2'; i++)
        expect(bccn_receive(other, &message, SOON) == 1 && *(char *)message->payload == i);
    bccn_close(bus);
    bccn_close(other);
}

static void test_the_largest_packets(void)
{
    static char large[PACKET_LIMIT + 1], channel[65536];
    bccn_bus *bus = held(SOON, NULL, NULL);
    const bccn_message *message;
    memset(channel, 'c', sizeof channel - 1);
    expect(bccn_batch_begin(bus) == 0); /* a full PACK comes first, so that the packet just fits behind it */
    expect(bccn_publish(bus, "a", large, PACK_LIMIT - 5 - 4 - 6) == 0 && bus->out_size == PACK_LIMIT);
    expect(bccn_publish(bus, channel, large, 65536) == BCCN_E_TOO_LARGE);
    expect(bccn_publish(bus, channel, large, SIZE_MAX) == BCCN_E_TOO_LARGE);
    expect(bccn_publish(bus, "a", large, PACKET_LIMIT - 6) == 0);
    expect(recv(daemon_end, large, sizeof large, 0) > 0 && recv(daemon_end, large, sizeof large, 0) == PACKET_LIMIT);
    memcpy(large, "MSG a", 6);
    expect(send(daemon_end, large, PACKET_LIMIT, 0) > 0 && bccn_receive(bus, &message, 0) == 1);
    expect(message->size == PACKET_LIMIT - 6); /* cut short, a longer one would be another message */
    expect(send(daemon_end, large, PACKET_LIMIT + 1, 0) > 0 && bccn_receive(bus, &message, 0) == BCCN_E_PROTOCOL);
    let_all_go(bus);
}

static void count_connections(const bccn_notice *notice, void *user)
{
    *(int *)user += notice->kind == BCCN_NOTICE_RECONNECTED;
}

/* Nothing behind it can be trusted, in its PACK or on its connection. */
static void test_a_packet_that_cannot_be_read_ends_the_connection(void)
{
    static const struct {
        size_t size;
        const char *bytes;
    } packets[] = {
        { 3, "bad" }, { 0, "" }, { 5, "MSG a" }, { 6, "CMSG x" }, { 12, "CMSG dropped" }, { 6, "RECV \0" },
        { 12, "RECV a 1x b\0" }, { 10, "RECV a  b\0" }, { 13, "RECV a 1 b c \0" }, { 12, "RECV a 1 b \0" },
        { 31, "RECV a 111111111111111111111 b\0" },
    };
    const bccn_message *message;
    for (size_t i = 0; i <= COUNT(packets); i++) { /* the last one is longer than its PACK */
        const size_t size = i < COUNT(packets) ? packets[i].size : 0;
        unsigned char pack[64] = "PACK \0\0\0\7MSG a\0001", *at = pack + 16;
        uint32_t length = htonl(i < COUNT(packets) ? (uint32_t)size : 1);
        bccn_bus *bus = held(SOON, NULL, NULL);
        at = put(at, &length, 4);
        at = put(at, i < COUNT(packets) ? packets[i].bytes : "", size);
        expect(send(daemon_end, pack, (size_t)(at - pack), 0) > 0 && send(daemon_end, "MSG a\0002", 7, 0) > 0);
        expect(bccn_receive(bus, &message, 0) == BCCN_E_PROTOCOL && bus->fd < 0);
        expect(strstr(bccn_error_text(bus), "not of this protocol"));
        expect(bccn_receive(bus, &message, 0) == 1 && *(const char *)message->payload == '1');
        expect(bccn_receive(bus, &message, 0) == 0);
        let_all_go(bus);
    }
}

/* A daemon of the test itself, which greets nobody. The name of its socket is written to `name`. */
static int listen_at(char *name, int backlog)
{
    struct sockaddr_un its = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    snprintf(name, 64, "@bccn/inside/%ld", (long)getpid());
    strcpy(its.sun_path + 1, name + 1);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    expect(bind(listener, (struct sockaddr *)&its, size) == 0 && listen(listener, backlog) == 0);
    return listener;
}

/* Answer a packet as a daemon would, if it is a ping. 0: there is none. */
static int answer_one(int end)
{
    char packet[REQUEST_LIMIT];
    ssize_t size = recv(end, packet, sizeof packet, MSG_DONTWAIT);
    if (size > 9 && !memcmp(packet, "CMSG ping", 9)) {
        memcpy(packet, "CMSG pong", 9);
        expect(send(end, packet, (size_t)size, 0) == size);
    }
    return size > 0;
}

/* A bus that has lost its connection, and whose next one goes to `listener`. */
static bccn_bus *cut_off(int timeout, int *noticed, const char *name)
{
    bccn_bus *bus = held(timeout, count_connections, noticed);
    snprintf(bus->address, sizeof bus->address, "%s", name);
    bus->was_connected = 1;
    bus->retry_at = 0;
    let_go(bus);
    return bus;
}

/* However long the greeting takes, which goes on in the next call. */
static void test_a_deadline_holds_while_a_connection_is_greeted(void)
{
    char name[64];
    int noticed = 0, listener = listen_at(name, 8);
    bccn_bus *bus = cut_off(SOON, &noticed, name);
    const bccn_message *message;
    for (int i = 0; i < 2000; i++) { /* more than the socket has room for */
        struct subscription *slot = free_slot(bus);
        *slot = (struct subscription){ .pattern = strdup("inside/>"), .number = (uint64_t)i };
        bus->patterns++;
    }
    expect(bccn_receive(bus, &message, 1) == 0 && bccn_receive(bus, &message, 0) == 0 && bccn_dispatch(bus) == 0);
    expect(bus->fd >= 0 && !bus->ready && !bus->greeting && !*bccn_name(NULL));
    bus->options.timeout = 1; /* of calls, and not of the greeting that has begun */
    expect(bccn_publish(bus, CHANNEL, "", 0) == BCCN_E_UNAVAILABLE && bccn_subscribe(bus, "a", NULL, NULL) < 0);
    expect(!*bccn_name(bus) && bus->fd >= 0);

    /* Unsubscribed meanwhile: what has been said is taken back, and what has not is never said. */
    size_t said = bus->greeted - SETTINGS;
    expect(said > 0 && said < 2000 && !bus->withdrawn);
    expect(bccn_unsubscribe(bus, "inside/>") == BCCN_E_UNAVAILABLE && bus->patterns == 1999 && !bus->withdrawn);
    bus->subscriptions[0].number = 2000; /* now it is the last one */
    expect(bccn_unsubscribe(bus, "inside/>") == BCCN_E_UNAVAILABLE && bus->withdrawn && !bus->withdrawn->said);

    int end = accept(listener, NULL, NULL), fd = bccn_fileno(bus);
    for (int64_t until = deadline_in(SOON); !bus->ready && !is_past(until);) {
        while (answer_one(end))
            ;
        poll_until(fd, POLLIN, until);
        expect(bccn_dispatch(bus) == 0);
    }
    expect(bus->ready && noticed == 1 && bus->greeted == SETTINGS + bus->slots);
    bus->options.timeout = SOON;
    expect(bccn_publish(bus, CHANNEL, "", 0) == 0);
    while (bus->withdrawn) { /* the UNSUB has left with the next look */
        while (answer_one(end))
            ;
        expect(bccn_receive(bus, &message, 0) == 0);
    }
    bccn_close(bus);
    close(daemon_end);
    close(end);
    close(listener);
}

/* The pause before it would be far longer. */
static void test_a_call_waits_for_the_next_connection_up_to_its_timeout(void)
{
    char name[64];
    int noticed = 0, listener = listen_at(name, 8);
    bccn_bus *bus = cut_off(40, &noticed, name);
    const bccn_message *message;
    close(listener);
    bus->tried_at = now_ms(CLOCK_MONOTONIC);
    bus->retry_at = deadline_in(1000 * SOON);
    int64_t start = now_ms(CLOCK_MONOTONIC), tried = bus->tried_at;
    expect(bccn_publish(bus, CHANNEL, "", 0) == BCCN_E_UNAVAILABLE && now_ms(CLOCK_MONOTONIC) - start >= 39);
    expect(bus->tried_at > tried && strstr(bccn_error_text(bus), name)); /* and it has tried once more */
    bus->options.timeout = 1000 * SOON;
    expect(bccn_request(bus, CHANNEL, "", 0, &message, 1) == BCCN_E_UNAVAILABLE);
    expect(bccn_request_many(bus, CHANNEL, "", 0, 1, 1) == BCCN_E_UNAVAILABLE);
    bus->options.timeout = 0;
    bus->tried_at = deadline_in(1000 * SOON);
    bus->retry_at = deadline_in(1000 * SOON);
    expect(bccn_barrier(bus) == BCCN_E_UNAVAILABLE && strstr(bccn_error_text(bus), "not back yet"));
    let_all_go(bus);
}

static int stop_at_all(bccn_bus *bus, const bccn_message *message, void *user)
{
    (void)bus, (void)message, (void)user;
    return 1;
}

/* A further copy of a message, or a forged one, came for no subscription. */
static void test_a_callback_gets_nothing_that_was_rejected(void)
{
    static const char rejected[] = "RECV 127.0.0.1:1 1 duplicate\0BCCN1[9]a/b/1:1:a|x",
                      kept[] = "RECV local 1 retained\0BCCN1[9]a/b/1:1:a|x";
    bccn_bus *bus = held(SOON, NULL, NULL);
    const bccn_message *message;
    bus->options.tap = BCCN_TAP_ON;
    struct subscription *slot = free_slot(bus);
    *slot = (struct subscription){ .pattern = strdup("a"), .callback = stop_at_all };
    bus->patterns = (size_t)(bus->calls_back = 1);
    expect(send(daemon_end, rejected, sizeof rejected - 1, 0) > 0 && send(daemon_end, kept, sizeof kept - 1, 0) > 0);
    expect(bccn_receive(bus, &message, 0) == 1 && !strcmp(message->verdict, "duplicate"));
    expect(!strcmp(message->channel, "a") && message->seq == 1);
    expect(bccn_receive(bus, &message, 0) == BCCN_E_STOPPED);
    let_all_go(bus);
}

static void note_loss(const bccn_notice *notice, void *user)
{
    *(uint64_t *)user += notice->kind == BCCN_NOTICE_LOST ? notice->count : 0;
}

static void test_a_gap_stays_between_its_messages(void)
{
    static const unsigned char gap[] = "CMSG dropped\0002", before[] =
        "PACK \0\0\0\7MSG a\0001" "\0\0\0\16CMSG dropped\0003" "\0\0\0\7MSG a\0002";
    uint64_t reported = 0;
    bccn_bus *bus = held(SOON, note_loss, &reported);
    const bccn_message *message;
    expect(send(daemon_end, before, sizeof before - 1, 0) > 0 && send(daemon_end, gap, sizeof gap - 1, 0) > 0);
    expect(send(daemon_end, "MSG a\0003", 7, 0) > 0);
    while (read_packet(bus, 0) > 0) /* as a barrier would */
        ;
    expect(reported == 0 && bccn_receive(bus, &message, 0) == 1 && message->lost == 0);
    expect(bccn_receive(bus, &message, 0) == 1 && message->lost == 3 && *(char *)message->payload == '2');
    expect(reported == 3 && bccn_lost(bus) == 3);
    expect(bccn_receive(bus, &message, 0) == 1 && message->lost == 2 && *(char *)message->payload == '3');
    expect(reported == 5 && bccn_lost(bus) == 5);
    let_all_go(bus);
}

static int count_call(bccn_bus *bus, const bccn_message *message, void *user)
{
    (void)bus, (void)message;
    ++*(int *)user;
    return 0;
}

/* Each notice, and each call, causes another. */
static void notice_again(const bccn_notice *notice, void *user)
{
    ++*(int *)user;
    if (notice->kind == BCCN_NOTICE_REVOKED)
        expect(send(daemon_end, "CMSG revoked\0x", 14, 0) > 0);
}

static int call_again(bccn_bus *bus, const bccn_message *message, void *user)
{
    (void)bus, (void)message;
    ++*(int *)user;
    expect(send(daemon_end, "MSG !\0", 6, 0) > 0);
    return 0;
}

static void test_a_wait_ends_in_time_whatever_arrives(void)
{
    int called = 0, noticed = 0;
    bccn_bus *bus = held(SOON, notice_again, &noticed);
    const bccn_message *message;
    expect(send(daemon_end, "CMSG revoked\0x", 14, 0) > 0);
    expect(bccn_receive(bus, &message, 10) == 0 && bccn_receive(bus, &message, 0) == 0 && bccn_dispatch(bus) == 0);
    expect(next_reply(bus, deadline_in(10)) == 0 && noticed > 3 * TURN_LIMIT);
    bus->directed = (struct subscription){ .callback = call_again, .user = &called };
    bus->calls_back = 1;
    expect(send(daemon_end, "MSG !\0", 6, 0) > 0);
    expect(bccn_receive(bus, &message, 10) == 0 && bccn_receive(bus, &message, 0) == 0 && called >= TURN_LIMIT / 2);
    let_all_go(bus);
}

/* A daemon that has only notices to say, whether it reads or not. */
static void test_a_call_ends_in_time_whatever_arrives(void)
{
    static const char large[60000];
    int noticed = 0, code;
    bccn_bus *bus = held(10, notice_again, &noticed);
    expect(send(daemon_end, "CMSG revoked\0x", 14, 0) > 0);
    expect(bccn_barrier(bus) == BCCN_E_TIMEOUT && noticed >= TURN_LIMIT);
    while ((code = bccn_publish(bus, CHANNEL, large, sizeof large)) == 0)
        ;
    expect(code == BCCN_E_TIMEOUT);
    expect(shutdown(daemon_end, SHUT_RD) == 0 && bccn_publish(bus, CHANNEL, "", 0) == BCCN_E_UNAVAILABLE);
    let_all_go(bus);
}

static void test_an_endless_backlog_ends_a_call(void)
{
    bccn_bus *bus = held(SOON, NULL, NULL);
    bus->received.size = OVERFLOW_LIMIT + 1;
    expect(await(bus, NEVER) == BCCN_E_BACKLOG);
    bus->received.size = 0;
    let_all_go(bus);
}

/* A daemon that greets each client, and closes at what it says next. */
static pid_t start_fickle_daemon(char *name)
{
    struct sockaddr_un its = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    snprintf(name, 64, "@bccn/fickle/%ld", (long)getpid());
    strcpy(its.sun_path + 1, name + 1);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    expect(bind(listener, (struct sockaddr *)&its, size) == 0 && listen(listener, 8) == 0);
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (child == 0) {
        char packet[REQUEST_LIMIT];
        int client = accept(listener, NULL, NULL);
        ssize_t got;
        while ((got = recv(client, packet, sizeof packet, 0)) > 0 && memcmp(packet, "CMSG ping", 9))
            ;
        memcpy(packet, "CMSG pong", 9);
        if (got > 0 && send(client, packet, (size_t)got, MSG_NOSIGNAL) > 0) /* or else its time is over */
            recv(client, packet, sizeof packet, 0);
        close(client);
    }
    close(listener);
    return child;
}

static void test_a_daemon_that_always_closes_fails_a_call_in_time(void)
{
    char name[64];
    int connections = 0;
    pid_t daemon = start_fickle_daemon(name);
    bccn_bus *bus;
    const bccn_message *message;
    bccn_options options = BCCN_OPTIONS_INIT;
    options.on_notice = count_connections;
    options.notice_user = &connections;
    options.wait = SOON;
    expect(bccn_open(&bus, name, &options) == 0);
    bus->options.timeout = 200;
    int code = bccn_barrier(bus); /* a timeout, where the daemon holds a connection just then */
    expect((code == BCCN_E_UNAVAILABLE || code == BCCN_E_TIMEOUT) && connections <= 200 / (BACKOFF_FIRST / 2));
    expect(bccn_receive(bus, &message, 0) == 0);
    bccn_close(bus);
    expect(kill(daemon, SIGKILL) == 0 && waitpid(daemon, NULL, 0) == daemon);
}

static void say_reply(bccn_bus *bus)
{
    char reply[64];
    int size = snprintf(reply, sizeof reply, "MSG !me%c%s\n", 0, bus->token);
    expect(send(daemon_end, reply, (size_t)size, 0) > 0 && read_packet(bus, 0) == 1);
}

/* Whoever got a request can reply to it for ever. */
static void test_replies_that_nobody_takes_are_dropped(void)
{
    bccn_bus *bus = held(SOON, NULL, NULL);
    bus->requests = 1;
    say_reply(bus);
    expect(!bus->replies.first);
    bus->wanted_replies = -1;
    say_reply(bus);
    size_t one = bus->replies.size;
    bus->replies.size += BACKLOG_LIMIT;
    say_reply(bus);
    expect(one > 0 && bus->replies.size == one + BACKLOG_LIMIT && !bus->received.first);
    let_all_go(bus);
}

static void test_a_child_of_a_disconnected_program_has_its_own_name(void)
{
    bccn_bus *bus = opened("inside/parent/1");
    let_go(bus);
    pid_t child = fork();
    if (child == 0) {
        char name[64];
        snprintf(name, sizeof name, "inside/parent/1/%ld", (long)getpid());
        expect(!strcmp(bccn_name(bus), name));
        bccn_close(bus);
        _exit(0);
    }
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0 && !strcmp(bccn_name(bus), "inside/parent/1"));
    bccn_close(bus);
}

/* The parent and the child both go on with the message of the callback. */
static int fork_inside(bccn_bus *bus, const bccn_message *message, void *user)
{
    pid_t child = fork();
    if (child == 0) {
        expect(bccn_publish(bus, "inside/child", message->payload, message->size) == 0 && bccn_barrier(bus) == 0);
        expect(message->size == 5 && !memcmp(message->payload, "still", 5));
        bccn_close(bus);
        _exit(0);
    }
    expect(waitpid(child, (int *)user, 0) == child);
    return 0;
}

static void test_a_callback_that_forks(void)
{
    bccn_bus *bus = opened(NULL);
    const bccn_message *message;
    int status = -1;
    expect(bccn_subscribe(bus, "inside/child", NULL, NULL) == 0);
    expect(bccn_subscribe(bus, CHANNEL, fork_inside, &status) == 0);
    expect(bccn_publish(bus, CHANNEL, "still", 5) == 0 && bccn_receive(bus, &message, SOON) == 1 && status == 0);
    expect(!strcmp(message->channel, "inside/child") && message->size == 5);
    bccn_close(bus);
}

static void test_connecting_waits_behind_other_clients(void)
{
    struct sockaddr_un full;
    char name[64];
    int ends[8], made = 0, listener = listen_at(name, 0);
    socklen_t size = sizeof full;
    expect(getsockname(listener, (struct sockaddr *)&full, &size) == 0);
    do {
        expect(made < 8);
        ends[made] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    } while (connect(ends[made++], (struct sockaddr *)&full, size) == 0);
    expect(errno == EAGAIN);

    bccn_bus *bus;
    bccn_options options = BCCN_OPTIONS_INIT;
    options.timeout = 100;
    int64_t start = now_ms(CLOCK_MONOTONIC);
    expect(bccn_open(&bus, name, &options) == BCCN_E_UNAVAILABLE && now_ms(CLOCK_MONOTONIC) - start >= 99);
    bccn_close(bus);
    while (made > 0)
        close(ends[--made]);
    close(listener);
}

static void test_a_failed_call_changes_no_setting(void)
{
    char text[SETTING_LIMIT + 1];
    bccn_bus *bus = opened(NULL);
    memset(text, 'x', SETTING_LIMIT);
    text[SETTING_LIMIT] = 0;
    expect(bccn_heartbeat(bus, 1, text) == BCCN_E_INVALID && !bus->settings[HEARTBEAT].wanted);
    expect(bccn_subscribe(bus, "ab*c", count_call, NULL) == BCCN_E_BAD_PATTERN && bus->patterns == 0);
    expect(bccn_unsubscribe(bus, "ab*c") == BCCN_E_INVALID);
    bccn_close(bus);
}

static void expect_value(const char *text, const char *name, const char *value)
{
    struct span found = json_member(text, name);
    expect(found.size == strlen(value) && !strncmp(found.at, value, found.size));
}

static void test_members_of_json(void)
{
    const char *page = "{\"new\": {\"next\":[1,\"}\"]}, \"rows\" : [{\"a\":\"],\\\"\"},2] ,\"next\":\"b\\\\\\\"c\"}";
    char cursor[16] = "";
    expect_value(page, "rows", "[{\"a\":\"],\\\"\"},2]");
    expect_value(page, "new", "{\"next\":[1,\"}\"]}");
    expect_value(page, "absent", "");
    expect_value("", "absent", "");
    expect_value("{}", "absent", "");
    expect_value("{\"a\"", "a", "");
    expect(next_cursor(json_member(page, "next"), cursor, sizeof cursor) == 1 && !strcmp(cursor, "b\\\"c"));
    expect(next_cursor(json_member(page, "next"), cursor, sizeof cursor) == 0); /* it does not go on */
    expect(next_cursor(json_member("{\"next\":17}", "next"), cursor, sizeof cursor) == 1 && !strcmp(cursor, "17"));
    expect(next_cursor(json_member("{\"next\":null}", "next"), cursor, sizeof cursor) == 0);
    expect(next_cursor(json_member("{\"next\":\"longer than 16 bytes\"}", "next"), cursor, sizeof cursor) == 0);
}

/* Notices have no bound, but the lines of bccn_print_notice have: the test reads them. */
static void test_a_flood_of_notices_is_a_few_lines(void)
{
    bccn_bus *bus = held(SOON, bccn_print_notice, NULL);
    const bccn_message *message;
    bus->printing_until = NEVER;
    for (int i = 0; i < 50; i++)
        expect(send(daemon_end, "CMSG revoked\0x", 14, 0) > 0);
    expect(bccn_receive(bus, &message, 0) == 0);
    let_all_go(bus);
}

/* What was read of a packet when it came serves when it is received, if none has come meanwhile. */
static void test_messages_that_wait_keep_their_own_heads(void)
{
    static const char first[] = "RECV 10.0.0.1:5400 1 ok\0BCCN1[9]a/b:17:x|one";
    static const char second[] = "RECV local 22 retained eth0\0BCCN1[9]longer/c:18:y/z|two";
    bccn_bus *bus = held(SOON, NULL, NULL);
    const bccn_message *message;
    char pack[sizeof first + sizeof second + 16] = "PACK ";
    const size_t sizes[] = { sizeof first - 1, sizeof second - 1 };
    size_t at = 5;
    for (int i = 0; i < 2; i++) {
        memcpy(pack + at, (char[]){ 0, 0, 0, (char)sizes[i] }, 4);
        memcpy(pack + at + 4, i ? second : first, sizes[i]);
        at += 4 + sizes[i];
    }
    expect(send(daemon_end, first, sizes[0], 0) > 0 && send(daemon_end, second, sizes[1], 0) > 0);
    expect(send(daemon_end, pack, at, 0) > 0 && send(daemon_end, "MSG plain\0x", 11, 0) > 0);
    for (int i = 0; i < 3; i++)
        expect(read_packet(bus, 0) == 1);
    for (int i = 0; i < 4; i++) {
        const int is_second = i % 2;
        expect(bccn_receive(bus, &message, 0) == 1 && message->time_ns == (is_second ? 22 : 1));
        expect(!strcmp(message->peer, is_second ? "local" : "10.0.0.1:5400"));
        expect(!strcmp(message->verdict, is_second ? "retained" : "ok"));
        expect(!strcmp(message->channel, is_second ? "y/z" : "x") && !strcmp(message->src, is_second ? "longer/c" : "a/b"));
        expect(is_second ? !strcmp(message->interface, "eth0") : !message->interface);
        expect(message->size == 3 && !memcmp(message->payload, is_second ? "two" : "one", 3));
    }
    expect(bccn_receive(bus, &message, 0) == 1 && !strcmp(message->channel, "plain") && !message->peer);
    let_all_go(bus);
}

/* What a callback of a watch was told, and what it does about it. */
struct watcher {
    int calls, wanted, returns;
    enum { GOES_ON, ENDS_WATCH, CLOSES } then;
};

/* Have the answer to the next request come, behind news. */
static void answer_ahead(const bccn_bus *bus, const char *where)
{
    char packet[64];
    int size = snprintf(packet, sizeof packet, "CMSG wanted%c%s a/>", 0, where);
    expect(send(daemon_end, packet, (size_t)size, 0) == size);
    size = snprintf(packet, sizeof packet, "CMSG pong%c%llu", 0, (unsigned long long)bus->asked + 1);
    expect(send(daemon_end, packet, (size_t)size, 0) == size);
}

static int told(bccn_bus *bus, const char *pattern, int wanted, void *user)
{
    const bccn_message *message;
    struct watcher *watcher = user;
    watcher->calls++;
    watcher->wanted = wanted;
    expect(bccn_receive(bus, &message, 0) == BCCN_E_INVALID);
    if (watcher->then == ENDS_WATCH) {
        answer_ahead(bus, "no");
        expect(bccn_unwatch(bus, pattern) == 0 && !strcmp(pattern, "a/>"));
    }
    if (watcher->then == CLOSES)
        bccn_close(bus);
    return watcher->returns;
}

static void test_a_watch_is_told_changes_where_callbacks_run(void)
{
    bccn_bus *bus = held(SOON, NULL, NULL);
    struct watcher first = { .returns = 7 }, second = { .then = ENDS_WATCH }, last = { .then = CLOSES };
    struct pollfd polled = { bccn_fileno(bus), POLLIN, 0 };
    expect(bccn_watch(bus, "a/>", NULL, NULL) == BCCN_E_INVALID && bccn_unwatch(bus, "a b") == BCCN_E_INVALID);
    answer_ahead(bus, "here");
    expect(bccn_watch(bus, "a/>", told, &first) == 0 && first.calls == 0);
    expect(poll(&polled, 1, 0) == 1); /* the news waits in the bus, and no more in the socket */
    expect(bccn_dispatch(bus) == BCCN_E_STOPPED && first.calls == 1 && first.wanted == 1);
    answer_ahead(bus, "no");
    expect(bccn_barrier(bus) == 0);
    answer_ahead(bus, "beyond"); /* whatever is not "no" means somebody */
    expect(bccn_barrier(bus) == 0 && bccn_dispatch(bus) == 0 && first.calls == 1); /* it was told the last state */

    answer_ahead(bus, "elsewhere");
    expect(bccn_watch(bus, "a/>", told, &second) == 0);
    expect(bccn_dispatch(bus) == 0 && second.calls == 1 && second.wanted == 1);
    answer_ahead(bus, "here");
    expect(bccn_barrier(bus) == 0 && bccn_dispatch(bus) == 0 && second.calls == 1); /* it has ended */

    answer_ahead(bus, "no");
    expect(bccn_watch(bus, "a/>", told, &last) == 0);
    expect(bccn_dispatch(bus) == BCCN_E_CLOSED && last.calls == 1 && last.wanted == 0);
    close(daemon_end);
}

/* The connection ends with the attempt, and frees what was to be sent. */
static void test_a_watch_is_taken_back_from_a_daemon_that_has_gone(void)
{
    bccn_bus *bus = held(SOON, NULL, NULL);
    struct withdrawal *back = new_withdrawal("a");
    back->watch = 1;
    close(daemon_end);
    withdraw(bus, back, NULL);
    expect(!bus->withdrawn && bus->fd < 0);
    bccn_close(bus);
}

int main(int count, char **words)
{
    expect(count == 2);
    address = words[1];
    alarm(60); /* a wait without an end is a failure, too */
    test_a_full_socket_delays_the_rest_of_a_batch();
    test_a_batch_keeps_its_order_over_a_new_connection();
    test_the_largest_packets();
    test_a_packet_that_cannot_be_read_ends_the_connection();
    test_a_deadline_holds_while_a_connection_is_greeted();
    test_a_call_waits_for_the_next_connection_up_to_its_timeout();
    test_a_callback_gets_nothing_that_was_rejected();
    test_a_gap_stays_between_its_messages();
    test_a_wait_ends_in_time_whatever_arrives();
    test_a_call_ends_in_time_whatever_arrives();
    test_an_endless_backlog_ends_a_call();
    test_a_daemon_that_always_closes_fails_a_call_in_time();
    test_replies_that_nobody_takes_are_dropped();
    test_a_child_of_a_disconnected_program_has_its_own_name();
    test_a_callback_that_forks();
    test_connecting_waits_behind_other_clients();
    test_a_failed_call_changes_no_setting();
    test_members_of_json();
    test_a_flood_of_notices_is_a_few_lines();
    test_messages_that_wait_keep_their_own_heads();
    test_a_watch_is_told_changes_where_callbacks_run();
    test_a_watch_is_taken_back_from_a_daemon_that_has_gone();
    return 0;
}
