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
    memcpy(large, "MSG a", 6); /* cut short, it would be another message */
    expect(send(daemon_end, large, PACKET_LIMIT + 1, 0) > 0 && bccn_receive(bus, &message, 0) == BCCN_E_PROTOCOL);
    expect(send(daemon_end, large, PACKET_LIMIT, 0) > 0 && bccn_receive(bus, &message, 0) == 1);
    expect(message->size == PACKET_LIMIT - 6);
    let_all_go(bus);
}

static void test_broken_parts_leave_the_others_intact(void)
{
    static const unsigned char pack[] = "PACK \0\0\0\7MSG a\0001" "\0\0\0\3bad" "\0\0\0\10CMSG x\0y"
                                        "\0\0\0\7MSG a\0002" "\0\0\1\0";
    bccn_bus *bus = held(SOON, NULL, NULL);
    const bccn_message *message;
    for (int ahead = 0; ahead < 2; ahead++) {
        expect(send(daemon_end, pack, sizeof pack - 1, 0) > 0 && (!ahead || read_packet(bus, 0) == 1));
        expect(bccn_receive(bus, &message, 0) == 1 && *(char *)message->payload == '1');
        expect(bccn_receive(bus, &message, 0) == BCCN_E_PROTOCOL);
        expect(bccn_receive(bus, &message, 0) == 1 && *(char *)message->payload == '2');
        expect(bccn_receive(bus, &message, 0) == BCCN_E_PROTOCOL && bccn_receive(bus, &message, 0) == 0);
    }
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
        while (recv(client, packet, sizeof packet, 0) > 0 && memcmp(packet, "CMSG ping", 9))
            ;
        memcpy(packet, "CMSG pong", 9);
        expect(send(client, packet, 9 + 1 + strlen(packet + 10), MSG_NOSIGNAL) > 0);
        recv(client, packet, sizeof packet, 0);
        close(client);
    }
    close(listener);
    return child;
}

static void count_connections(const bccn_notice *notice, void *user)
{
    *(int *)user += notice->kind == BCCN_NOTICE_RECONNECTED;
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
    expect(bccn_barrier(bus) == BCCN_E_UNAVAILABLE && connections <= 200 / (BACKOFF_FIRST / 2));
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
    struct sockaddr_un full = { .sun_family = AF_UNIX };
    char name[64];
    int ends[8], made = 0, listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    snprintf(name, sizeof name, "@bccn/inside/%ld", (long)getpid());
    strcpy(full.sun_path + 1, name + 1);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    expect(bind(listener, (struct sockaddr *)&full, size) == 0 && listen(listener, 0) == 0);
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

int main(int count, char **words)
{
    expect(count == 2);
    address = words[1];
    alarm(60); /* a wait without an end is a failure, too */
    test_a_full_socket_delays_the_rest_of_a_batch();
    test_a_batch_keeps_its_order_over_a_new_connection();
    test_the_largest_packets();
    test_broken_parts_leave_the_others_intact();
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
    return 0;
}
