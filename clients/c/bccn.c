/* libbccn: the implementation of bccn.h.
 *
 * A bus outlives its connections. It remembers what the program wants, sends all of that to each new connection, and
 * keeps received packets until the program takes their messages.
 *
 *     program <- callbacks, bccn_receive <- received <- read_packet <- daemon
 *     program <- bccn_next_reply         <- replies  <-/
 *
 * Rules:
 * 1. The bus remembers settings and subscriptions once the daemon has agreed to them; `greet` sends them to a new
 *    connection.
 * 2. A call that waits for the daemon sends a numbered ping after its request. When the pong arrives, everything that
 *    the daemon has to say about the request has arrived. A late pong to an earlier request has another number.
 * 3. Every wait is a poll(2) with a deadline; only bccn_receive without a timeout blocks in recv(2). A wait keeps
 *    reading unless the backlog is full; otherwise two programs that wait for each other would wait for ever. A
 *    connection that has ended is read to its end.
 * 4. Received packets wait whole in the queue `received`. The program takes its messages from the first packet, which
 *    stays until the program asks for a message behind it: the message that the program holds does not move. Control
 *    packets and replies are handled when they arrive; messages, and notices of gaps between them, keep their order.
 * 5. The library drops nothing. If the program does not receive, its messages wait in the bounded queue of the daemon.
 * 6. A subscribe that fails leaves nothing. If its SUB has left, it is withdrawn: an UNSUB and a ping follow, and until
 *    the pong the library drops the messages that came for it alone.
 * 7. Of a watch the bus keeps the daemon's last word. bccn_receive calls the callback if it was told another one.
 * 8. In a child of fork the kernel has wiped `*alive`. The child only closes its copy of the parent's descriptors.
 * 9. A callback that stops leaves its message at the front of `received`; `passed` says who has had it. The next call
 *    goes on with the others.
 * 10. The deadline of a call holds while it connects, too: what is left of a greeting goes on in the next call.
 * 11. A packet is checked when it arrives. One that cannot be read ends the connection, and the call with it.
 *
 * recvmmsg and sendmmsg are not used: on this kind of socket they save a twentieth, and packing saves nine tenths.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "bccn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SERVICE_SOCKET "/run/bccnd/bus.sock"
#define NEVER INT64_MAX
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Sizes in bytes. The longest packet of the daemon has 71 kB; this limit holds in both directions. */
#define PACKET_LIMIT (96 * 1024)
/* The library sends no PACK longer than this, even if the daemon takes one. */
#define PACK_LIMIT 65536
#define REQUEST_LIMIT 4096
/* With so many bytes of messages waiting, calls that ask the daemon fail. More replies to a request are a flood. */
#define BACKLOG_LIMIT (64 * 1024 * 1024)
/* A call that began below that gives up here: what the daemon had queued comes before its answer. */
#define OVERFLOW_LIMIT (2 * BACKLOG_LIMIT)
/* A program that only sends still reads what the daemon reports, until so much waits. */
#define GLANCE_LIMIT (1024 * 1024)
/* Of a name, a queue, a heartbeat: more than the daemon takes. */
#define SETTING_LIMIT 320
/* No version will have so many options: a program that has not set the size at all. */
#define OPTIONS_LIMIT 4096
/* Of an error, which may quote a channel. */
#define TEXT_LIMIT 1536
/* Of RECV, a peer, a time, a verdict and an interface. */
#define HEAD_LIMIT 256
/* bccnd/wire/BCCN1.md, "Body". */
#define SRC_LIMIT 128
#define CHANNEL_LIMIT 1024
/* clients/PROTOCOL.md, "Request and reply". */
#define TOKEN_LIMIT 128
/* Of a number of 64 bits. */
#define DIGITS_LIMIT 20

/* Lines a second that bccn_print_notice writes for a bus: a program that reads too slowly has thousands of notices. */
#define PRINTED_LIMIT 10
/* Bytes of all pages of a listing. The daemon has some thousand rows of some hundred bytes each. */
#define LISTING_LIMIT (64 * 1024 * 1024)

/* Packets or messages between two looks at the clock, however many arrive. */
#define TURN_LIMIT 1024

/* Times in milliseconds. A failed connect(2) to a local socket costs microseconds, so the first pause is short. */
#define BACKOFF_FIRST 20
#define BACKOFF_LIMIT 1000
#define GLANCE_INTERVAL 100
/* poll(2) does not wait until the kernel has memory again. */
#define MEMORY_PAUSE 1
/* How soon a poll loop goes on with a greeting for which the socket had no room. */
#define GREETING_PAUSE 5

/* Whether anybody listens on other hosts is asked so often, since datagrams get lost. The first question waits, so that
 * a reply at once costs the segment nothing; a daemon answers in a fraction of the time between questions. */
#define QUESTIONS 3
#define ASK_AFTER 20
#define ASK_EVERY 100

/* The settings of a connection, in the order in which a new one gets them. */
enum { NAME, SEPARATOR, FORMAT, PACK, ECHO, QUEUE, TAP, HEARTBEAT, LISTEN, WHOAMI, SETTINGS };
static const char *const setting_keys[SETTINGS] = { "name",  "separator", "format",    "pack",   "echo/off",
                                                    "queue", "tap",       "heartbeat", "listen", "whoami" };

struct setting {
    int wanted;
    char value[SETTING_LIMIT];
};

struct subscription {
    char *pattern; /* NULL: a free slot; a subscription stays in its slot */
    bccn_callback *callback;
    bccn_handler *handler;
    void *user;
    uint64_t number; /* in the order in which they were made */
};

/* A pattern whose listeners the program asks about. `known` is the daemon's last word, and `told` the callback's: 1 if
 * anybody listens, 0 if nobody does, -1 before the first. */
struct watch {
    struct watch *next;
    bccn_watch_callback *callback; /* NULL: the daemon has not agreed yet */
    void *user;
    int known, told;
    int said; /* this connection has been asked */
    char pattern[];
};

/* An UNSUB or unwatch that nobody waits for. `ping` is the number of the ping behind it; 0: that has not left yet. */
struct withdrawal {
    struct withdrawal *next;
    uint64_t ping;
    int said;  /* the UNSUB has left */
    int watch; /* it ends a watch */
    char pattern[];
};

struct packet {
    struct packet *next;
    size_t size, at; /* the program has taken the bytes before `at` */
    int packed, cut; /* `cut`: the memory is as long as the packet, and not PACKET_LIMIT bytes */
    unsigned char bytes[];
};

struct queue {
    struct packet *first, **end;
    size_t size;
};

/* Where the words of RECV <peer> <unix_ns> <verdict>[ <interface>] NUL end, and where the NUL of a message is. */
struct head {
    const unsigned char *peer, *time, *verdict, *interface, *nul;
    uint64_t time_ns;
};

/* The text that a message of the format full points to. */
struct fields {
    char head[HEAD_LIMIT], body[SRC_LIMIT + 1 + 20 + 1 + CHANNEL_LIMIT + 1];
};

struct complaint {
    int code;
    uint64_t count;
    char text[TEXT_LIMIT]; /* of the first one */
};

struct bccn_bus {
    /* what the program wants */
    bccn_options options; /* its strings are in `settings` */
    char address[sizeof((struct sockaddr_un *)0)->sun_path];
    struct setting settings[SETTINGS];
    struct subscription *subscriptions, directed; /* `directed` is that of bccn_listen */
    size_t slots, patterns; /* `patterns` of the slots are in use */
    uint64_t subscribed;
    struct watch *watches;
    int listening; /* the program wants "!" for itself, and not only replies to its requests */

    /* the connection */
    int fd, epoll, timer;
    int ready; /* `fd` is greeted */
    int was_connected, opening;
    int64_t tried_at, retry_at, backoff, ring_at, glance_at;
    size_t greeted;       /* how many settings and slots of the greeting have left; watches follow them */
    uint64_t greeting;    /* the number of the ping behind them; 0: it has not left */
    int64_t greeting_until;
    char name[SRC_LIMIT + 1];
    size_t pack_limit;
    pid_t pid;
    volatile int *alive; /* NULL: the kernel cannot wipe memory, and `pid` shows a fork */

    /* asked and published */
    enum { UNSAID, SAID, ANSWERED } asking; /* how far the current request has come on this connection */
    struct withdrawal *withdrawn;
    int overhears; /* the daemon may deliver "!" for a SUB or listen that has failed */
    uint64_t asked, answered, published, confirmed, in_doubt;
    int64_t ask_until;   /* when a request ends for which the daemon is asked */
    const char *awaited; /* the key of the answer that is kept */
    char *answer;
    struct complaint complaint, rejection; /* about the current request; about messages since the last barrier */
    char token[32], requested[CHANNEL_LIMIT + 2];
    unsigned requests;
    int settled; /* somebody listens to the request, or nobody can know */
    int questions, wanted_replies; /* how often other hosts were asked; -1: any number */
    int64_t replies_until;

    /* received */
    struct queue received, replies; /* the program may hold the first packet of each */
    struct packet *spare; /* memory for the next packet */
    struct fields fields, reply_fields;
    bccn_message message, reply;
    struct head head;          /* of the packet at `headed`, which was handled last: it need not be read again */
    const unsigned char *headed;
    uint64_t lost, all_lost;
    int calls_back, delivering, doomed; /* there ever was a callback; one is running; one has closed the bus */
    size_t message_at, passed; /* where the message begins; how many slots have had it */
    int called, wanted; /* it went to a callback; it goes to bccn_receive */
    int news;           /* a callback of a watch may have to be told */

    /* notices that bccn_print_notice gets in this second */
    int64_t printing_until;
    unsigned printed;
    uint64_t unprinted;

    /* to be sent: "PACK ", the length and bytes of each gathered packet, and room for one more */
    size_t out_size;
    unsigned gathered;
    int batching;
    char text[TEXT_LIMIT];
    unsigned char out[PACK_LIMIT + 4 + PACKET_LIMIT];
};

static const struct code {
    int code;
    const char *word, *sentence;
} codes[] = {
    { BCCN_OK, "ok", "no error" },
    { BCCN_E_INVALID, "invalid", "an argument that cannot be sent at all" },
    { BCCN_E_MEMORY, "memory", "no memory or no descriptor left" },
    { BCCN_E_UNAVAILABLE, "unavailable", "no daemon, or it went away and did not come back in time" },
    { BCCN_E_UNCONFIRMED, "unconfirmed", "the daemon went away: messages may not have been published" },
    { BCCN_E_TIMEOUT, "timeout", "the daemon does not answer or takes no more, or no reply came" },
    { BCCN_E_BACKLOG, "backlog", "too many messages wait for this program: receive them before asking more" },
    { BCCN_E_PROTOCOL, "protocol", "the daemon sent a packet that is not of this protocol" },
    { BCCN_E_INTERRUPTED, "interrupted", "a signal handler ran while this program waited to receive" },
    { BCCN_E_NOBODY, "nobody", "nobody listens to this request" },
    { BCCN_E_CLOSED, "closed", "the bus is closed" },
    { BCCN_E_STOPPED, "stopped", "a callback returned a positive number" },
    { BCCN_E_BAD_PACKET, "bad-packet", "not a packet of the protocol" },
    { BCCN_E_BAD_CHANNEL, "bad-channel", "no channel has such a name" },
    { BCCN_E_BAD_PATTERN, "bad-pattern", "no channel can match this pattern" },
    { BCCN_E_BAD_VALUE, "bad-value", "the control request does not take this value" },
    { BCCN_E_BAD_NAME, "bad-name", "no program can have this name" },
    { BCCN_E_NAME_TAKEN, "name-taken", "another program has this name" },
    { BCCN_E_NOT_SUBSCRIBED, "not-subscribed", "not subscribed to this pattern" },
    { BCCN_E_TOO_LARGE, "too-large", "the message is too large" },
    { BCCN_E_UNKNOWN_KEY, "unknown-key", "the daemon does not know this control request" },
    { BCCN_E_REFUSED, "refused", "this program has no right to it" },
    { BCCN_E_LIMIT, "limit", "a limit of the daemon is reached" },
    { BCCN_E_NOT_AGREED, "not-agreed", "packing was not agreed on" },
    { BCCN_E_BAD_DATAGRAM, "bad-datagram", "not a BCCN1 datagram" },
    { BCCN_E_REJECTED, "rejected", "the daemon rejected it, with a code that this library does not know" },
};

/* Bytes behind the last option would be undefined, and part of the size. */
typedef char options_end_without_padding[sizeof(bccn_options) == offsetof(bccn_options, wait) + sizeof(int) ? 1 : -1];

const char *bccn_version(void)
{
    return BCCN_VERSION;
}

static const struct code *find_code(int code)
{
    for (size_t i = 0; i < COUNT(codes); i++)
        if (codes[i].code == code)
            return &codes[i];
    return code > 0 ? codes : codes + COUNT(codes) - 1;
}

const char *bccn_strerror(int code)
{
    return find_code(code)->sentence;
}

const char *bccn_code_word(int code)
{
    return find_code(code)->word;
}

static int fail(bccn_bus *bus, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(bus->text, sizeof bus->text, format, arguments);
    va_end(arguments);
    return code;
}

static int alien(bccn_bus *bus)
{
    return fail(bus, BCCN_E_PROTOCOL, "%s", bccn_strerror(BCCN_E_PROTOCOL));
}

static int full(bccn_bus *bus)
{
    return fail(bus, BCCN_E_BACKLOG, "%zu bytes of messages wait: receive them", bus->received.size);
}

static char separator_of(const bccn_bus *bus)
{
    return (char)bus->options.separator;
}

static int keep(bccn_bus *bus, char *kept, size_t room, const char *value)
{
    if (strlen(value ? value : "") >= room)
        return fail(bus, BCCN_E_INVALID, "%.64s...: too long", value);
    strcpy(kept, value ? value : "");
    return 0;
}

static int want(bccn_bus *bus, int setting, const char *value)
{
    struct setting *kept = &bus->settings[setting];
    kept->wanted = value != NULL;
    return keep(bus, kept->value, sizeof kept->value, value);
}

static int64_t now_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t deadline_in(int timeout)
{
    return timeout < 0 ? NEVER : now_ms(CLOCK_MONOTONIC) + timeout;
}

static int is_past(int64_t deadline)
{
    return deadline != NEVER && now_ms(CLOCK_MONOTONIC) >= deadline;
}

void bccn_print_notice(const bccn_notice *notice, void *user)
{
    (void)user;
    fprintf(stderr, "bccn: %s\n", notice->text);
}

static void print_rest(bccn_bus *bus)
{
    if (bus->unprinted)
        fprintf(stderr, "bccn: %llu more notices were not printed\n", (unsigned long long)bus->unprinted);
    bus->unprinted = bus->printed = 0;
}

/* Whether bccn_print_notice gets one more notice in this second. */
static int may_print(bccn_bus *bus)
{
    if (is_past(bus->printing_until)) {
        print_rest(bus);
        bus->printing_until = deadline_in(1000);
    }
    if (bus->printed < PRINTED_LIMIT)
        bus->printed++;
    else
        bus->unprinted++;
    return !bus->unprinted;
}

static void notify(bccn_bus *bus, bccn_notice_kind kind, int code, uint64_t count, const char *format, ...)
{
    char text[TEXT_LIMIT + 64];
    bccn_notice notice = { kind, (bccn_code)code, count, text };
    bccn_notice_callback *callback = bus->options.on_notice;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (callback && (callback != bccn_print_notice || may_print(bus)))
        callback(&notice, bus->options.notice_user);
}

/* poll(2) until `deadline`, without a descriptor if `fd` is -1. The events, 0 at the deadline, -1 on a signal. */
static int poll_until(int fd, short events, int64_t deadline)
{
    int64_t left = deadline == NEVER ? 0 : deadline - now_ms(CLOCK_MONOTONIC);
    struct timespec time = { left > 0 ? left / 1000 : 0, left > 0 ? left % 1000 * 1000000 : 0 };
    struct pollfd polled = { fd, events, 0 };
    int ready = ppoll(&polled, 1, deadline == NEVER ? NULL : &time, NULL);
    return ready > 0 ? polled.revents : ready;
}

/* --- waiting packets --- */

static void append(struct queue *queue, struct packet *packet)
{
    if (!queue->first)
        queue->end = &queue->first;
    packet->next = NULL;
    *queue->end = packet;
    queue->end = &packet->next;
    queue->size += sizeof *packet + packet->size;
}

/* The oldest packet that is not taken to its end, or NULL. The program gives up what it held before. */
static inline struct packet *front(bccn_bus *bus, struct queue *queue)
{
    struct packet *packet;
    while ((packet = queue->first) && packet->at == packet->size) {
        queue->first = packet->next;
        queue->size -= sizeof *packet + packet->size;
        if (bus->spare || packet->cut)
            free(packet);
        else
            bus->spare = packet;
    }
    return packet;
}

static struct packet *newest(const struct queue *queue)
{
    struct packet *packet = queue->first;
    while (packet && packet->next)
        packet = packet->next;
    return packet;
}

/* Drop all that waits, except the packet that the program holds. */
static void pass_over(struct queue *queue)
{
    struct packet *held = queue->first;
    for (struct packet *next; held && (next = held->next);) {
        held->next = next->next;
        queue->size -= sizeof *next + next->size;
        free(next);
    }
    if (held) {
        held->at = held->size;
        queue->end = &held->next;
    }
}

static inline int begins(const unsigned char *packet, size_t size, const char *word)
{
    size_t length = strlen(word);
    return size >= length && !memcmp(packet, word, length);
}

/* Take the next packet of a PACK, or another packet whole. NULL: a length reaches beyond the PACK. */
static inline unsigned char *next_part(struct packet *packet, size_t *size)
{
    unsigned char *at = packet->bytes + packet->at;
    size_t left = packet->size - packet->at;
    *size = left;
    packet->at = packet->size;
    if (packet->packed) {
        if (left < 4)
            return NULL;
        *size = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
        if (*size > left - 4)
            return NULL;
        packet->at -= left - 4 - *size;
        at += 4;
    }
    return at;
}

/* --- packets of the daemon --- */

static int complain(bccn_bus *bus, const struct complaint *complaint)
{
    return fail(bus, complaint->code, "%s", complaint->text);
}

/* `CMSG error NUL <code> <packet>: <text>` */
static void control_error(bccn_bus *bus, const char *value)
{
    size_t word = strcspn(value, " "), row = 0;
    while (row < COUNT(codes) - 1 && (codes[row].code > BCCN_E_BAD_PACKET || strlen(codes[row].word) != word
                                      || strncmp(codes[row].word, value, word)))
        row++; /* the last row is for unknown words */
    int code = codes[row].code;
    const char *about = value + word + (value[word] != 0);
    int asked = !strncmp(about, "CMSG ", 5) || !strncmp(about, "SUB ", 4) || !strncmp(about, "UNSUB ", 6);
    struct complaint *complaint = asked ? &bus->complaint : &bus->rejection;
    if (!complaint->count++) {
        complaint->code = code;
        snprintf(complaint->text, sizeof complaint->text, "%s (%.*s)", about, (int)word, value);
    }
    if (!asked || (!bus->ready && bus->was_connected))
        notify(bus, BCCN_NOTICE_REJECTED, code, 1, "%s (%.*s)", about, (int)word, value);
}

/* `CMSG wanted NUL <where> <pattern>` */
static void control_wanted(bccn_bus *bus, const char *value)
{
    size_t word = strcspn(value, " ");
    const char *pattern = value + word + (value[word] != 0);
    int known = word != 2 || strncmp(value, "no", 2) != 0; /* any other word means somebody */
    for (struct watch *at = bus->watches; at; at = at->next)
        if (!strcmp(at->pattern, pattern)) {
            at->known = known;
            bus->news = 1;
        }
}

/* The daemon has agreed to a watch: what it had said of the pattern belongs to an earlier one. */
static void forget_news(bccn_bus *bus, const char *pattern)
{
    for (struct watch *at = bus->watches; at; at = at->next)
        if (!strcmp(at->pattern, pattern))
            at->known = at->told;
}

/* Forget the withdrawals whose ping has at most this number. */
static void settle(bccn_bus *bus, uint64_t number)
{
    for (struct withdrawal **at = &bus->withdrawn, *done; (done = *at);) {
        if (done->ping && done->ping <= number) {
            *at = done->next;
            free(done);
        } else {
            at = &done->next;
        }
    }
}

static int control(bccn_bus *bus, const unsigned char *packet, size_t size)
{
    const char *key = (const char *)packet + 5, *value = memchr(key, 0, size - 5);
    if (!value++)
        return alien(bus);
    size_t length = size - (size_t)(value - (const char *)packet);
    char text[TEXT_LIMIT - 64];
    snprintf(text, sizeof text, "%.*s", (int)length, value);
    uint64_t number = strtoull(text, NULL, 10);
    if (!strcmp(key, "error")) {
        control_error(bus, text);
    } else if (!strcmp(key, "dropped")) {
        bus->lost += number;
        bus->all_lost += number;
        notify(bus, BCCN_NOTICE_LOST, 0, number, "%s message%s lost: they came faster than they were read", text,
               number == 1 ? "" : "s");
    } else if (!strcmp(key, "revoked")) {
        notify(bus, BCCN_NOTICE_REVOKED, 0, 1, "no longer allowed: %s", text);
    } else if (!strcmp(key, "wanted")) {
        control_wanted(bus, text);
    } else if (!strcmp(key, "closing")) {
        notify(bus, BCCN_NOTICE_CLOSING, 0, 0, "the daemon closes the connection: %s", text);
    } else if (!strcmp(key, "pong")) {
        bus->answered = number;
        settle(bus, number);
        if (number != bus->asked)
            bus->complaint.count = 0; /* the errors until now belong to a request that was given up */
    } else {
        if (!strcmp(key, "whoami") || !strcmp(key, "name"))
            snprintf(bus->name, sizeof bus->name, "%.*s", SRC_LIMIT, text);
        else if (!strcmp(key, "pack"))
            bus->pack_limit = strncmp(text, "on ", 3) ? 0 : strtoul(text + 3, NULL, 10);
        else if (!strcmp(key, "watch"))
            forget_news(bus, text);
        if (bus->awaited && !strcmp(key, bus->awaited)) {
            free(bus->answer);
            if (!(bus->answer = strndup(value, length)))
                return fail(bus, BCCN_E_MEMORY, "no memory for an answer");
        }
    } /* Other keys are notices of a newer daemon. */
    return 0;
}

/* Pass by a number of decimal digits. NULL: there is none, or no 64 bits hold it. */
static const unsigned char *read_number(const unsigned char *at, const unsigned char *end, uint64_t *number)
{
    const unsigned char *first = at;
    uint64_t read = 0;
    for (; at < end && (unsigned)(*at - '0') < 10; at++)
        read = read * 10 + (unsigned)(*at - '0');
    *number = read;
    return at > first && at - first <= DIGITS_LIMIT ? at : NULL;
}

/* Whether the text up to the NUL at `end` is such a head. */
static int read_head(const unsigned char *packet, const unsigned char *end, struct head *head)
{
    const unsigned char *text = packet + 5;
    if (end - packet >= HEAD_LIMIT || !(head->peer = memchr(text, ' ', (size_t)(end - text)))
        || !(head->time = read_number(head->peer + 1, end, &head->time_ns)) || *head->time != ' ')
        return 0;
    text = head->time + 1;
    head->verdict = memchr(text, ' ', (size_t)(end - text));
    head->interface = head->verdict ? end : NULL;
    if (!head->verdict)
        head->verdict = end;
    text = head->verdict + 1;
    return !head->interface || (text < end && !memchr(text, ' ', (size_t)(end - text)));
}

/* Whether a packet is a MSG or a RECV. */
static inline int is_message(const unsigned char *packet, size_t size, struct head *head)
{
    const unsigned char *nul = head->nul = memchr(packet, 0, size);
    return nul && (begins(packet, size, "MSG ") || (begins(packet, size, "RECV ") && read_head(packet, nul, head)));
}

/* Take ...]<src>:<seq>:<chan>|<payload> apart. Only a tap gets bytes without these, since they are not BCCN1. */
static void parse_datagram(const unsigned char *datagram, const unsigned char *end, struct fields *fields,
                           bccn_message *message)
{
    const unsigned char *body = memchr(datagram, ']', (size_t)(end - datagram));
    body = body ? body + 1 : end;
    const unsigned char *bar = memchr(body, '|', (size_t)(end - body)), *src, *seq;
    uint64_t number;
    if (!bar || (size_t)(bar - body) >= sizeof fields->body || !(src = memchr(body, ':', (size_t)(bar - body)))
        || !(seq = read_number(src + 1, bar, &number)) || *seq != ':' || memchr(seq + 1, ':', (size_t)(bar - seq - 1)))
        return;
    char *text = memcpy(fields->body, body, (size_t)(bar - body));
    text[src - body] = text[bar - body] = 0;
    message->src = text;
    message->seq = number;
    message->channel = text + (seq + 1 - body);
    message->payload = bar + 1;
    message->size = (size_t)(end - bar - 1);
}

/* Take a MSG or a RECV with this head apart without changing it. */
static inline void parse(const unsigned char *packet, size_t size, const struct head *head, struct fields *fields,
                         bccn_message *message)
{
    const unsigned char *nul = head->nul, *end = packet + size;
    *message = (bccn_message){ .channel = (const char *)packet + 4, .payload = end };
    if (*packet == 'M') {
        message->payload = nul + 1;
        message->size = (size_t)(end - nul - 1);
        return;
    }
    char *text = memcpy(fields->head, packet + 5, (size_t)(nul - packet) - 4);
    text[head->peer - packet - 5] = text[head->time - packet - 5] = text[head->verdict - packet - 5] = 0;
    message->channel = "";
    message->peer = text;
    message->time_ns = head->time_ns;
    message->verdict = text + (head->time + 1 - packet - 5);
    message->interface = head->interface ? text + (head->verdict + 1 - packet - 5) : NULL;
    message->datagram = nul + 1;
    message->datagram_size = (size_t)(end - nul - 1);
    parse_datagram(nul + 1, end, fields, message);
}

/* Take a packet that was handled before apart. */
static inline void parse_again(const bccn_bus *bus, const unsigned char *packet, size_t size, struct fields *fields,
                               bccn_message *message)
{
    struct head head;
    const struct head *known = packet == bus->headed ? &bus->head : &head;
    if (known == &head)
        is_message(packet, size, &head);
    parse(packet, size, known, fields, message);
}

/* Whether a message is a reply to our requests. 1: to the last one; 0: no; -1: no, and the program shall not see it. */
static int is_reply(bccn_bus *bus, const bccn_message *message)
{
    if ((!bus->requests && !bus->overhears) || message->channel[0] != '!')
        return 0;
    size_t ours = strcspn(bus->token, ".") + 1, whole = strlen(bus->token);
    const char *at = message->payload;
    if (message->verdict && strcmp(message->verdict, "ok")) /* only a tap gets it */
        return 0;
    if (message->size < ours || memcmp(at, bus->token, ours) || !strcmp(message->channel, bus->requested))
        return bus->listening || bus->patterns || bus->options.tap ? 0 : -1; /* any subscription listens, too */
    if (message->size <= whole || memcmp(at, bus->token, whole) || (at[whole] != '\n' && at[whole] != '?'))
        return -1; /* late */
    bus->settled = 1;
    return at[whole] == '\n' ? 1 : -1; /* "?": a daemon with listeners */
}

/* Whether a message came for nothing but a subscribe that was withdrawn. */
static int is_unwanted(const bccn_bus *bus, const bccn_message *message)
{
    int withdrawn = 0;
    if (message->channel[0] == '!')
        return bus->overhears && !bus->listening && !bus->patterns;
    for (const struct withdrawal *at = bus->withdrawn; at && !withdrawn; at = at->next)
        withdrawn = !at->watch && bccn_matches(at->pattern, message->channel, separator_of(bus));
    for (size_t i = 0; i < bus->slots && withdrawn; i++)
        if (bus->subscriptions[i].pattern)
            withdrawn = !bccn_matches(bus->subscriptions[i].pattern, message->channel, separator_of(bus));
    return withdrawn && !bus->options.tap;
}

/* Keep a reply to our request until the program asks for it. Whoever replies can reply any number of times. */
static int keep_reply(bccn_bus *bus, const unsigned char *packet, size_t size)
{
    if (!bus->wanted_replies || bus->replies.size > BACKLOG_LIMIT)
        return 0;
    struct packet *copy = malloc(sizeof *copy + size);
    if (!copy)
        return fail(bus, BCCN_E_MEMORY, "no memory for a reply");
    *copy = (struct packet){ .size = size, .cut = 1 };
    memcpy(copy->bytes, packet, size);
    append(&bus->replies, copy);
    return 0;
}

/* Handle a packet that has just arrived. 1: it waits for the program; 0: it is done; or a code. */
static int handle(bccn_bus *bus, const unsigned char *packet, size_t size)
{
    struct fields fields;
    bccn_message message;
    bus->headed = NULL;
    if (begins(packet, size, "CMSG "))
        return size > 12 && !memcmp(packet, "CMSG dropped", 13) ? 1 : control(bus, packet, size);
    if (!is_message(packet, size, &bus->head))
        return alien(bus);
    bus->headed = packet;
    if (!bus->requests && !bus->overhears)
        return 1;
    parse(packet, size, &bus->head, &fields, &message);
    int replies = is_reply(bus, &message);
    return replies > 0 ? keep_reply(bus, packet, size) : replies == 0 && !is_unwanted(bus, &message);
}

/* Handle a packet that waits since before a subscribe was withdrawn, as `handle` does. */
static int handle_again(bccn_bus *bus, const unsigned char *packet, size_t size)
{
    struct fields fields;
    bccn_message message;
    if (!*packet)
        return 0;
    if (begins(packet, size, "CMSG "))
        return 1;
    parse_again(bus, packet, size, &fields, &message);
    return !is_unwanted(bus, &message);
}

/* Handle all parts of a packet with `one`. A NUL replaces the first byte of those that are done. One that cannot be
 * read ends the packet: what is behind it is no better. */
static inline int handle_parts(bccn_bus *bus, struct packet *packet,
                               int (*one)(bccn_bus *, const unsigned char *, size_t))
{
    size_t start = packet->at, size;
    int failed = 0, waits = 0;
    while (packet->at < packet->size) {
        size_t at = packet->at;
        unsigned char *part = next_part(packet, &size);
        int code = part ? one(bus, part, size) : alien(bus);
        if (code == BCCN_E_PROTOCOL) {
            packet->size = at;
            failed = code;
        } else if (code > 0) {
            waits = 1;
        } else {
            *part = 0;
            failed = failed ? failed : code;
        }
    }
    packet->at = waits ? start : packet->size;
    return failed;
}

/* --- the connection --- */

/* At the end of a call: set the timer of poll loops. It rings when a message or news of a watch waits here, or when it
 * is time to connect again. */
static int leave(bccn_bus *bus, int code)
{
    if (bus->epoll < 0)
        return code;
    const struct packet *first = bus->received.first;
    int64_t ring_at = bus->ready ? NEVER : bus->fd < 0 ? bus->retry_at : bus->greeting_until;
    if (bus->fd >= 0 && !bus->ready && !bus->greeting)
        ring_at = now_ms(CLOCK_MONOTONIC) + GREETING_PAUSE;
    if (bus->news || (first && (first->at < first->size || first->next)))
        ring_at = 0;
    if (ring_at != bus->ring_at) {
        struct itimerspec timer = { { 0, 0 }, { 0, 0 } };
        if (ring_at != NEVER) /* zero would be no timer */
            timer.it_value = (struct timespec){ ring_at / 1000, ring_at % 1000 * 1000000 + 1 };
        timerfd_settime(bus->timer, TFD_TIMER_ABSTIME, &timer, NULL);
        bus->ring_at = ring_at;
    }
    return code;
}

static int add_to_epoll(bccn_bus *bus, int fd)
{
    struct epoll_event event = { .events = EPOLLIN };
    return bus->epoll >= 0 && fd >= 0 ? epoll_ctl(bus->epoll, EPOLL_CTL_ADD, fd, &event) : 0;
}

static void close_epoll(bccn_bus *bus)
{
    if (bus->epoll >= 0)
        close(bus->epoll);
    if (bus->timer >= 0)
        close(bus->timer);
    bus->epoll = bus->timer = -1;
}

static void let_go(bccn_bus *bus)
{
    if (bus->fd < 0)
        return;
    if (bus->epoll >= 0) /* close(2) does not remove it while a child of fork has a copy */
        epoll_ctl(bus->epoll, EPOLL_CTL_DEL, bus->fd, NULL);
    close(bus->fd);
    bus->fd = -1;
    bus->ready = 0;
    bus->name[0] = 0;
    bus->pack_limit = 0;
    bus->asking = UNSAID;
    for (struct withdrawal *next; bus->withdrawn; bus->withdrawn = next) { /* a new connection knows nothing of them */
        next = bus->withdrawn->next;
        free(bus->withdrawn);
    }
}

/* Have the next attempt to connect wait. */
static void put_off(bccn_bus *bus)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* the last digits are random enough to spread clients */
    bus->retry_at = now_ms(CLOCK_MONOTONIC) + bus->backoff / 2 + now.tv_nsec / 64 % (bus->backoff + 1);
}

/* The connection has ended and has been read to its end. */
static int lose(bccn_bus *bus, const char *reason)
{
    uint64_t doubt = bus->published - bus->confirmed;
    int was_ready = bus->ready;
    let_go(bus);
    bus->confirmed = bus->published;
    bus->in_doubt += doubt;
    if (bus->options.reconnect) /* a daemon may close each connection at once */
        put_off(bus);
    if (was_ready)
        notify(bus, BCCN_NOTICE_DISCONNECTED, 0, doubt, "%s", reason);
    return fail(bus, BCCN_E_UNAVAILABLE, "%s", reason);
}

/* A packet of the connection cannot be read. */
static int lose_alien(bccn_bus *bus)
{
    lose(bus, bccn_strerror(BCCN_E_PROTOCOL));
    return BCCN_E_PROTOCOL; /* its text is that of the notice */
}

/* Receive a packet; with `wait`, block until there is one. 1: a packet; 0: none; or a code. */
static int read_packet(bccn_bus *bus, int wait)
{
    struct packet *packet = bus->spare ? bus->spare : malloc(sizeof *packet + PACKET_LIMIT);
    ssize_t size;
    if (!(bus->spare = packet))
        return fail(bus, BCCN_E_MEMORY, "no memory for a packet");
    while ((size = recv(bus->fd, packet->bytes, PACKET_LIMIT, MSG_TRUNC | (wait ? 0 : MSG_DONTWAIT))) < 0) {
        if (errno == EAGAIN)
            return 0;
        if (errno == EINTR && wait)
            return fail(bus, BCCN_E_INTERRUPTED, "a signal came while waiting");
        if (errno != EINTR && errno != ECONNRESET) /* ECONNRESET comes once; earlier packets can still be read */
            return lose(bus, strerror(errno));
    }
    if (size == 0)
        return lose(bus, "the daemon went away");
    if (size > PACKET_LIMIT)
        return lose_alien(bus);
    int packed = begins(packet->bytes, (size_t)size, "PACK ");
    *packet = (struct packet){ .size = (size_t)size, .at = packed ? 5 : 0, .packed = packed };
    int failed = handle_parts(bus, packet, handle);
    if (packet->at < packet->size) {
        struct packet *cut = bus->received.first ? realloc(packet, sizeof *packet + packet->size) : NULL;
        if (cut)
            cut->cut = 1;
        append(&bus->received, cut ? cut : packet);
        bus->spare = NULL;
    }
    if (failed == BCCN_E_PROTOCOL)
        return lose_alien(bus);
    return failed ? failed : 1;
}

/* Whether a wait goes on no longer, although packets arrive: for turn TURN_LIMIT and later the clock decides. */
static int is_spent(unsigned turn, int64_t deadline)
{
    return turn > TURN_LIMIT && is_past(deadline);
}

/* Send a packet on this connection. */
static int send_here(bccn_bus *bus, const void *packet, size_t size, int64_t deadline)
{
    for (unsigned turn = 1; send(bus->fd, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0; turn++) {
        int error = errno, code = 0;
        short reading = bus->received.size < BACKLOG_LIMIT ? POLLIN : 0;
        if (error == EAGAIN) { /* keep reading: the daemon may be waiting for us to read */
            int ready = poll_until(bus->fd, (short)(POLLOUT | reading), deadline);
            if (ready > 0 && (ready & reading) && !is_spent(turn, deadline))
                code = read_packet(bus, 0);
            else if (ready == 0 || is_spent(turn, deadline))
                code = fail(bus, BCCN_E_TIMEOUT, "not sent: the daemon takes no more");
        } else if (error == ENOBUFS || error == ENOMEM) {
            if (is_past(deadline))
                code = fail(bus, BCCN_E_TIMEOUT, "not sent: the kernel has no memory for it");
            poll(NULL, 0, MEMORY_PAUSE);
        } else if (error == EMSGSIZE) {
            code = fail(bus, BCCN_E_TOO_LARGE, "packet: %zu bytes, too many to send", size);
        } else if (error != EINTR) { /* the daemon is gone: read what it had sent */
            while (bus->received.size < OVERFLOW_LIMIT && !is_spent(turn++, deadline)
                   && (code = read_packet(bus, 0)) > 0)
                ;
            if (code >= 0)
                code = lose(bus, "the daemon went away");
        }
        if (code < 0)
            return code;
    }
    return 0;
}

/* Send a packet formatted as by printf on this connection. */
static int post(bccn_bus *bus, int64_t deadline, const char *format, ...)
{
    char packet[REQUEST_LIMIT];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(packet, sizeof packet, format, arguments);
    va_end(arguments);
    return send_here(bus, packet, (size_t)size, deadline);
}

/* Send what is left to send of withdrawals. */
static int take_back(bccn_bus *bus, int64_t deadline)
{
    int code = 0;
    for (struct withdrawal *at = bus->ready ? bus->withdrawn : NULL, *next; at && code == 0; at = next) {
        next = at->next;
        if (at->ping)
            continue;
        if (!at->said && at->watch)
            code = post(bus, deadline, "CMSG unwatch%c%s", 0, at->pattern);
        else if (!at->said)
            code = post(bus, deadline, "UNSUB %s", at->pattern);
        if (code == 0) /* else the connection may have ended, and this with it */
            at->said = 1;
        if (code == 0 && (code = post(bus, deadline, "CMSG ping%c%llu", 0, (unsigned long long)bus->asked + 1)) == 0)
            at->ping = ++bus->asked;
    }
    return code;
}

/* Wait for the pong to the last ping. */
static int await_pong(bccn_bus *bus, int64_t deadline)
{
    int code = 0;
    for (unsigned turn = 1; code >= 0 && bus->answered != bus->asked; turn++) {
        if (bus->received.size > OVERFLOW_LIMIT)
            return full(bus);
        code = read_packet(bus, 0);
        if (code == 0 ? poll_until(bus->fd, POLLIN, deadline) == 0 : code > 0 && is_spent(turn, deadline))
            code = fail(bus, BCCN_E_TIMEOUT, "the daemon does not answer");
    }
    return code < 0 ? code : 0;
}

/* Wait until the daemon has processed all that was sent on this connection. */
static int await(bccn_bus *bus, int64_t deadline)
{
    int code = post(bus, deadline, "CMSG ping%c%llu", 0, (unsigned long long)++bus->asked);
    if (code == 0 && (code = await_pong(bus, deadline)) == 0)
        bus->confirmed = bus->published;
    return code;
}

/* Send the next setting or subscription to a new connection. */
static int greet_on(bccn_bus *bus, int64_t deadline)
{
    size_t slot = bus->greeted - SETTINGS;
    if (bus->greeted >= SETTINGS)
        return bus->subscriptions[slot].pattern ? post(bus, deadline, "SUB %s", bus->subscriptions[slot].pattern) : 0;
    const struct setting *setting = &bus->settings[bus->greeted];
    return setting->wanted ? post(bus, deadline, "CMSG %s%c%s", setting_keys[bus->greeted], 0, setting->value) : 0;
}

/* Send what is left of the greeting of a new connection, and wait for the answer to it. BCCN_E_TIMEOUT: it is not
 * complete at the deadline. */
static int greet(bccn_bus *bus, int64_t deadline)
{
    int code = 0;
    while (bus->greeted < SETTINGS + bus->slots && (code = greet_on(bus, deadline)) == 0)
        bus->greeted++;
    for (struct watch *at = bus->watches; at && code == 0; at = at->next)
        if (!at->said && (code = post(bus, deadline, "CMSG watch%c%s", 0, at->pattern)) == 0)
            at->said = 1;
    if (code == 0 && !bus->greeting
        && (code = post(bus, deadline, "CMSG ping%c%llu", 0, (unsigned long long)bus->asked + 1)) == 0)
        bus->greeting = ++bus->asked;
    if (code == 0)
        code = await_pong(bus, deadline);
    if (code || !bus->complaint.count)
        return code;
    if (!bus->was_connected)
        return complain(bus, &bus->complaint);
    if (bus->complaint.code == BCCN_E_NAME_TAKEN) /* our old connection may hold the name a little longer */
        return fail(bus, BCCN_E_UNAVAILABLE, "%s", bus->complaint.text);
    return 0; /* a notice has reported it */
}

static int connect_once(bccn_bus *bus, int64_t deadline)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char own[sizeof address.sun_path];
    const char *path = *bus->address ? bus->address : getenv("BCCN_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");
    if (!path || !*path) { /* if neither exists, the error names the socket of the service */
        snprintf(own, sizeof own, "%s/bccnd/bus.sock", runtime ? runtime : "");
        path = runtime && *runtime && access(SERVICE_SOCKET, F_OK) && !access(own, F_OK) ? own : SERVICE_SOCKET;
    }
    size_t size = strlen(path);
    if (size >= sizeof address.sun_path)
        return fail(bus, BCCN_E_INVALID, "%.64s...: too long for a socket", path);
    memcpy(address.sun_path, path, size);
    if (*path == '@')
        address.sun_path[0] = 0;
    size += offsetof(struct sockaddr_un, sun_path) + (*path != '@');

    /* SO_SNDTIMEO bounds connect(2), which waits while the backlog of the listener is full; send(2) never waits here.
     * SO_RCVTIMEO, however long, makes every signal end recv(2) (signal(7)). */
    int64_t left = deadline == NEVER ? 0 : deadline - now_ms(CLOCK_MONOTONIC);
    struct timeval patience = { left > 0 ? left / 1000 : 0, left > 0 ? left % 1000 * 1000 : 0 };
    patience.tv_usec += deadline != NEVER && left <= 0; /* zero would be for ever */
    struct timeval long_wait = { 3600, 0 };
    bus->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    /* In a program that was started without stdout, what it prints must not go to the bus as packets. */
    if (bus->fd >= 0 && bus->fd <= STDERR_FILENO) {
        int low = bus->fd;
        bus->fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        close(low);
    }
    setsockopt(bus->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(bus->fd, SOL_SOCKET, SO_RCVTIMEO, &long_wait, sizeof long_wait);
    if (bus->fd >= 0 && connect(bus->fd, (struct sockaddr *)&address, (socklen_t)size) == 0)
        return 0;
    int error = errno;
    let_go(bus);
    if (error == EACCES && !bus->was_connected)
        return fail(bus, BCCN_E_REFUSED, "no permission to connect to %s", path);
    if (error == EAGAIN) /* the queue of its listener stayed full */
        return fail(bus, BCCN_E_UNAVAILABLE, "the daemon at %s is busy: too many programs connect", path);
    return fail(bus, BCCN_E_UNAVAILABLE, "no daemon at %s: %s", path, strerror(error));
}

/* Whether a broken connection stays broken. */
static int is_over(const bccn_bus *bus)
{
    return bus->was_connected && !bus->options.reconnect && bus->fd < 0;
}

/* Connect and greet once, or go on with that, until `deadline`. 0: the connection is ready; BCCN_E_UNAVAILABLE: it is
 * not, or, if there is a socket, not yet. */
static int attempt(bccn_bus *bus, int64_t deadline)
{
    int code = 0;
    if (is_over(bus))
        return fail(bus, BCCN_E_UNAVAILABLE, "the connection to the daemon is gone");
    if (bus->fd < 0) {
        bus->tried_at = now_ms(CLOCK_MONOTONIC);
        bus->greeting_until = deadline_in(bus->options.timeout);
        bus->greeted = 0;
        bus->greeting = bus->complaint.count = 0;
        for (struct watch *at = bus->watches; at; at = at->next)
            at->said = !at->callback; /* the call itself asks for that one */
    }
    if (bus->opening || deadline > bus->greeting_until)
        deadline = bus->greeting_until;
    if (bus->fd < 0 && (code = connect_once(bus, deadline)) == 0)
        add_to_epoll(bus, bus->fd);
    if (code == 0 && (code = greet(bus, deadline)) == BCCN_E_TIMEOUT) {
        code = BCCN_E_UNAVAILABLE;
        if (!is_past(bus->greeting_until))
            return code;
    }
    if (code < 0) {
        let_go(bus);
        put_off(bus);
        bus->backoff = bus->backoff * 2 < BACKOFF_LIMIT ? bus->backoff * 2 : BACKOFF_LIMIT;
        return code;
    }
    bus->ready = 1;
    if (bus->was_connected)
        notify(bus, BCCN_NOTICE_RECONNECTED, 0, 0, "connected to the daemon again");
    bus->was_connected = 1;
    bus->backoff = BACKOFF_FIRST;
    bus->retry_at = 0;
    return 0;
}

/* Wait until it is time to connect, or for the deadline. At that there is one more attempt, unless the last one was a
 * moment ago: a daemon that is back is found by calls with a timeout shorter than the pause. */
static int await_turn(bccn_bus *bus, int64_t deadline)
{
    int64_t until = bus->retry_at < deadline ? bus->retry_at : deadline;
    while (!is_past(until))
        poll_until(-1, 0, until);
    if (is_past(bus->retry_at) || is_past(bus->tried_at + BACKOFF_FIRST))
        return 0;
    return fail(bus, BCCN_E_UNAVAILABLE, "the daemon went away, and is not back yet");
}

/* Connect if there is no connection; try until `deadline`. */
static int ensure(bccn_bus *bus, int64_t deadline)
{
    int code = 0;
    while (!bus->ready && code == 0) {
        if (bus->fd < 0 && !is_over(bus))
            code = await_turn(bus, deadline);
        if (code == 0)
            code = attempt(bus, deadline);
        if (code == BCCN_E_UNAVAILABLE && !is_over(bus) && !is_past(deadline))
            code = 0;
    }
    return code;
}

/* Receive a packet, or connect again when that is due. 1: something happened; 0: the deadline has come; or a code.
 * `turn` counts the calls of one wait: the clock is read only when nothing arrives, or after many turns. */
static int read_until(bccn_bus *bus, int64_t deadline, unsigned turn)
{
    size_t before = bus->received.size;
    int code = 0;
    if (is_spent(turn, deadline))
        return 0;
    if (bus->withdrawn)
        take_back(bus, 0);
    if (!bus->ready)
        code = bus->fd >= 0 || is_past(bus->retry_at) ? attempt(bus, 0) : BCCN_E_UNAVAILABLE;
    if (bus->received.size != before)
        return 1;
    if (code == 0 && (code = read_packet(bus, deadline == NEVER)) == BCCN_E_UNAVAILABLE)
        return is_over(bus) ? code : 1; /* the next turn connects again */
    if (code != 0 && (code != BCCN_E_UNAVAILABLE || is_over(bus)))
        return code;
    if (is_past(deadline))
        return 0;
    int64_t due = bus->ready ? NEVER : bus->fd < 0 ? bus->retry_at : bus->greeting_until;
    short events = bus->ready || bus->greeting ? POLLIN : POLLIN | POLLOUT;
    if (poll_until(bus->fd, events, due < deadline ? due : deadline) < 0)
        return fail(bus, BCCN_E_INTERRUPTED, "a signal came while waiting");
    return 1;
}

/* Send a packet (0 bytes: none) that holds so many messages, over reconnections and a full socket. With `asking`, wait
 * until the daemon has processed it. */
static int transmit(bccn_bus *bus, int64_t deadline, const void *packet, size_t size, unsigned messages, int asking)
{
    bus->asking = UNSAID;
    for (;;) {
        int code = ensure(bus, deadline);
        if (code < 0)
            return code;
        if (asking && bus->received.size > BACKLOG_LIMIT)
            return full(bus);
        code = take_back(bus, deadline);
        if (code == 0 && size)
            code = send_here(bus, packet, size, deadline);
        bus->published += code == 0 ? messages : 0;
        if (code == 0 && asking) {
            bus->asking = SAID;
            bus->complaint.count = 0;
            if ((code = await(bus, deadline)) == 0)
                bus->asking = ANSWERED;
        }
        if (code != BCCN_E_UNAVAILABLE || is_past(deadline))
            return code;
    }
}

/* --- a bus --- */

/* The state of a process that has not connected yet. */
static void begin(bccn_bus *bus)
{
    uint64_t chance = 0;
    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) < 0)
        chance = (uint64_t)now_ms(CLOCK_REALTIME) << 22 | (uint64_t)getpid();
    snprintf(bus->token, sizeof bus->token, "%016llx.", (unsigned long long)chance);
    bus->pid = getpid();
    if (bus->alive)
        *bus->alive = 1;
    bus->ask_until = NEVER;
    bus->fd = bus->epoll = bus->timer = -1;
    bus->was_connected = bus->batching = bus->ready = 0;
    bus->backoff = BACKOFF_FIRST;
    bus->retry_at = bus->tried_at = bus->glance_at = 0;
    bus->published = bus->confirmed = bus->in_doubt = bus->lost = bus->all_lost = 0;
    bus->complaint.count = bus->rejection.count = 0;
    bus->out_size = 5;
    bus->gathered = 0;
    bus->wanted_replies = bus->news = 0;
    bus->passed = bus->delivering ? bus->passed : 0;
    pass_over(&bus->received);
    pass_over(&bus->replies);
}

/* In a child of the process that used the bus before, become a source of our own. */
static int start_anew(bccn_bus *bus)
{
    char name[SETTING_LIMIT];
    const char *parent = bus->name[0] ? bus->name : bus->settings[NAME].value;
    int size = snprintf(name, sizeof name, "%s/%ld", parent, (long)getpid());
    want(bus, NAME, *parent && size < SETTING_LIMIT ? name : NULL);
    close_epoll(bus);
    let_go(bus);
    begin(bus);
    return 0;
}

/* At the beginning of a call. Without an open bus the call ends here. */
static inline int enter(bccn_bus *bus)
{
    if (!bus || bus->doomed)
        return BCCN_E_CLOSED;
    return (bus->alive ? *bus->alive : bus->pid == getpid()) ? 0 : start_anew(bus);
}

/* Take the options that the program knows, and the defaults of the rest. */
static int read_options(bccn_bus *bus, const bccn_options *options)
{
    const bccn_options defaults = BCCN_OPTIONS_INIT;
    const unsigned char *bytes = (const unsigned char *)options;
    bus->options = defaults;
    if (!options)
        return 0;
    if (options->size < sizeof options->size || options->size > OPTIONS_LIMIT)
        return fail(bus, BCCN_E_INVALID, "options that do not begin with BCCN_OPTIONS_INIT");
    for (size_t i = sizeof defaults; i < options->size; i++)
        if (bytes[i])
            return fail(bus, BCCN_E_INVALID, "an option that version %s of the library does not know", BCCN_VERSION);
    memcpy(&bus->options, options, options->size < sizeof defaults ? options->size : sizeof defaults);
    return 0;
}

/* Write what `CMSG queue` takes; an empty text for no wishes. */
static void describe_queue(const bccn_options *options, const char *policy, char *text, size_t room)
{
    int at = 0;
    *text = 0;
    if (options->queue_packets)
        at += snprintf(text, room, " packets=%u", options->queue_packets);
    if (options->queue_bytes)
        at += snprintf(text + at, room - (size_t)at, " bytes=%zu", options->queue_bytes);
    if (*policy)
        snprintf(text + at, room - (size_t)at, " policy=%s", policy);
}

/* Check the options, and turn them into the settings of a connection. */
static int set_up(bccn_bus *bus, const bccn_options *options)
{
    static const char *const policies[] = { "", "drop-oldest", "drop-newest", "block", "disconnect" };
    static const char *const taps[] = { NULL, "on", "interface" };
    char queue[SETTING_LIMIT];
    unsigned policy = (unsigned)options->queue_policy, tap = (unsigned)options->tap;
    if (policy >= COUNT(policies))
        return fail(bus, BCCN_E_BAD_VALUE, "queue_policy: there is no policy %u", policy);
    if (tap >= COUNT(taps))
        return fail(bus, BCCN_E_BAD_VALUE, "tap: there is no tap %u", tap);
    if ((unsigned)options->format > BCCN_FORMAT_FULL)
        return fail(bus, BCCN_E_BAD_VALUE, "format: there is no format %u", (unsigned)options->format);
    if (options->separator != '/' && options->separator != '.')
        return fail(bus, BCCN_E_BAD_VALUE, "separator: '/' or '.', not the character %d", options->separator);
    describe_queue(options, policies[policy], queue, sizeof queue);
    const char *settings[SETTINGS] = {
        [NAME] = options->name,
        [SEPARATOR] = options->separator == '.' ? "." : NULL,
        [FORMAT] = options->format == BCCN_FORMAT_FULL ? "full" : NULL,
        [PACK] = options->pack ? "on" : NULL,
        [ECHO] = options->echo ? NULL : "",
        [QUEUE] = *queue ? queue + 1 : NULL,
        [TAP] = taps[tap],
        [WHOAMI] = "",
    };
    int code = 0;
    for (int i = 0; i < SETTINGS && code == 0; i++)
        code = want(bus, i, settings[i]);
    return code;
}

int bccn_open(bccn_bus **made, const char *path, const bccn_options *options)
{
    bccn_bus *bus = *made = calloc(1, sizeof *bus);
    if (!bus)
        return BCCN_E_MEMORY;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *alive = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive != MAP_FAILED && madvise(alive, page, MADV_WIPEONFORK) == 0)
        bus->alive = alive;
    else if (alive != MAP_FAILED)
        munmap(alive, page);
    begin(bus);
    memcpy(bus->out, "PACK ", 5);
    int code = read_options(bus, options);
    if (code == 0)
        code = set_up(bus, &bus->options);
    if (code == 0)
        code = keep(bus, bus->address, sizeof bus->address, path);
    bus->opening = 1; /* the greeting has its own time */
    if (code == 0)
        code = ensure(bus, deadline_in(bus->options.wait));
    bus->opening = 0;
    return code;
}

void bccn_close(bccn_bus *bus)
{
    if (!bus)
        return;
    close_epoll(bus); /* first: let_go must not remove the socket from the epoll of a parent */
    let_go(bus);
    bus->doomed = 1;
    if (bus->delivering) /* bccn_receive or bccn_dispatch frees it, once the callback has returned */
        return;
    print_rest(bus);
    for (size_t i = 0; i < bus->slots; i++)
        free(bus->subscriptions[i].pattern);
    free(bus->subscriptions);
    for (struct watch *next; bus->watches; bus->watches = next) {
        next = bus->watches->next;
        free(bus->watches);
    }
    pass_over(&bus->received);
    pass_over(&bus->replies);
    free(bus->received.first);
    free(bus->replies.first);
    free(bus->spare);
    free(bus->answer);
    if (bus->alive)
        munmap((void *)(uintptr_t)bus->alive, (size_t)sysconf(_SC_PAGESIZE));
    free(bus);
}

const char *bccn_error_text(const bccn_bus *bus)
{
    return bus ? bus->text : "there is no bus: it is closed, or there was no memory for it";
}

const char *bccn_name(bccn_bus *bus)
{
    if (enter(bus) < 0)
        return "";
    leave(bus, ensure(bus, deadline_in(bus->options.timeout)));
    return bus->ready ? bus->name : "";
}

/* --- publishing --- */

/* When a call gives up that waits for the daemon. */
static int64_t usual_deadline(const bccn_bus *bus)
{
    int64_t deadline = deadline_in(bus->options.timeout);
    return deadline < bus->ask_until ? deadline : bus->ask_until;
}

/* Send the gathered messages. On failure they stay gathered, unless they can never be sent. */
static int flush(bccn_bus *bus, int64_t deadline)
{
    if (!bus->gathered)
        return 0;
    size_t head = bus->gathered == 1 ? 9 : 0; /* one goes alone */
    int code = transmit(bus, deadline, bus->out + head, bus->out_size - head, bus->gathered, 0);
    if (code == 0 || code == BCCN_E_TOO_LARGE) {
        bus->gathered = 0;
        bus->out_size = 5;
    }
    return code;
}

/* For programs that only send: read now and then what the daemon reports. */
static void glance(bccn_bus *bus)
{
    int64_t now = now_ms(CLOCK_MONOTONIC_COARSE);
    if (now < bus->glance_at)
        return;
    bus->glance_at = now + GLANCE_INTERVAL;
    for (int i = 0; i < TURN_LIMIT && bus->ready && bus->received.size < GLANCE_LIMIT; i++)
        if (read_packet(bus, 0) <= 0)
            break;
    leave(bus, 0);
}

static unsigned char *put(unsigned char *at, const void *bytes, size_t size)
{
    return size ? (unsigned char *)memcpy(at, bytes, size) + size : at;
}

static int fits_pack(const bccn_bus *bus, size_t size)
{
    size_t limit = !bus->batching ? 0 : bus->pack_limit < PACK_LIMIT ? bus->pack_limit : PACK_LIMIT;
    return bus->out_size + 4 + size <= limit;
}

/* Hand over the packet of `size` bytes that lies behind the gathered ones. */
static inline int hand_over(bccn_bus *bus, size_t size)
{
    unsigned char *packet = bus->out + bus->out_size + 4;
    int code = 0;
    if (bus->gathered && !fits_pack(bus, size)) {
        if ((code = flush(bus, usual_deadline(bus))) < 0)
            return leave(bus, code);
        packet = memmove(bus->out + bus->out_size + 4, packet, size);
    }
    if (fits_pack(bus, size)) {
        uint32_t length = htonl((uint32_t)size);
        memcpy(packet - 4, &length, sizeof length);
        bus->out_size += 4 + size;
        bus->gathered++;
        return 0;
    }
    if (bus->ready && send(bus->fd, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        bus->published++;
    else if ((code = transmit(bus, usual_deadline(bus), packet, size, 1, 0)) < 0)
        return leave(bus, code);
    glance(bus);
    return 0;
}

/* Write MSG <channel> NUL behind the gathered packets; with a `!` if it is directed. Where the payload of `size` bytes
 * goes, or NULL: that would be too large. Everything is copied there before anything is read, since the arguments may
 * lie in a message that the caller holds. */
static inline unsigned char *begin_msg(bccn_bus *bus, int directed, const char *channel, size_t size)
{
    size_t named = strlen(channel) + 1;
    unsigned char *at = bus->out + bus->out_size + 4;
    if (size > PACKET_LIMIT || named > PACKET_LIMIT - 5 || 4 + (size_t)directed + named + size > PACKET_LIMIT) {
        fail(bus, BCCN_E_TOO_LARGE, "MSG %s%.64s: %zu bytes, too many to send", directed ? "!" : "", channel, size);
        return NULL;
    }
    memcpy(at, "MSG !", 5);
    memcpy(at + 4 + directed, channel, named);
    return at + 4 + directed + named;
}

/* Hand over the packet whose last byte is before `end`. */
static inline int end_msg(bccn_bus *bus, const unsigned char *end)
{
    return hand_over(bus, (size_t)(end - bus->out) - bus->out_size - 4);
}

static inline int publish(bccn_bus *bus, int directed, const char *channel, const void *payload, size_t size)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    unsigned char *at = begin_msg(bus, directed, channel, size);
    return at ? end_msg(bus, put(at, payload, size)) : BCCN_E_TOO_LARGE;
}

int bccn_publish(bccn_bus *bus, const char *channel, const void *payload, size_t size)
{
    return publish(bus, 0, channel, payload, size);
}

int bccn_publish_all(bccn_bus *bus, const void *payload, size_t size)
{
    return publish(bus, 0, "!", payload, size);
}

int bccn_publish_to(bccn_bus *bus, const char *target, const void *payload, size_t size)
{
    return publish(bus, 1, target, payload, size);
}

/* Publish a request or a reply: `line` is its first one. */
static int publish_exchange(bccn_bus *bus, int directed, const char *channel, const void *line, size_t line_size,
                            const void *payload, size_t size)
{
    unsigned char *at = begin_msg(bus, directed, channel, size > PACKET_LIMIT ? size : line_size + size);
    return at ? end_msg(bus, put(put(at, line, line_size), payload, size)) : BCCN_E_TOO_LARGE;
}

int bccn_send_datagram(bccn_bus *bus, const void *datagram, size_t size)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (!size || !begins(datagram, size, "BCCN1[")) /* it would be another packet */
        return fail(bus, BCCN_E_INVALID, "what does not begin with BCCN1[ is no datagram");
    if (size > PACKET_LIMIT)
        return fail(bus, BCCN_E_TOO_LARGE, "datagram: %zu bytes, too many to send", size);
    put(bus->out + bus->out_size + 4, datagram, size);
    return hand_over(bus, size);
}

int bccn_batch_begin(bccn_bus *bus)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    int code = ensure(bus, deadline_in(bus->options.timeout));
    bus->batching = code == 0;
    return leave(bus, code);
}

int bccn_batch_end(bccn_bus *bus)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    bus->batching = 0;
    int code = flush(bus, deadline_in(bus->options.timeout));
    glance(bus);
    return leave(bus, code);
}

/* --- asking --- */

/* Send a request formatted as by printf (NULL: only a ping), and wait until the daemon has processed it. The answer
 * with the key `awaited` is then in bus->answer. If the connection breaks, the request is repeated on the next one. */
static int ask(bccn_bus *bus, const char *awaited, const char *format, ...)
{
    char packet[REQUEST_LIMIT];
    va_list arguments;
    va_start(arguments, format);
    int size = format ? vsnprintf(packet, sizeof packet, format, arguments) : 0;
    va_end(arguments);
    free(bus->answer);
    bus->answer = NULL;
    if (size >= REQUEST_LIMIT)
        return fail(bus, BCCN_E_TOO_LARGE, "%.64s...: %d bytes, at most %d", packet, size, REQUEST_LIMIT - 1);
    int64_t deadline = usual_deadline(bus);
    int code = flush(bus, deadline);
    bus->awaited = awaited;
    if (code == 0)
        code = transmit(bus, deadline, packet, (size_t)size, 0, 1);
    bus->awaited = NULL;
    return code == 0 && bus->complaint.count ? complain(bus, &bus->complaint) : code;
}

int bccn_control(bccn_bus *bus, const char *key, const char *value, const char **answer)
{
    int code;
    if (answer)
        *answer = "";
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (!*key || key[strcspn(key, " \t\n\v\f\r")] || !strcmp(key, "ping"))
        code = fail(bus, BCCN_E_INVALID, "control key '%.64s': must be a word, and not ping: call bccn_barrier", key);
    else
        code = ask(bus, key, "CMSG %s%c%s", key, 0, value ? value : "");
    if (answer && bus->answer)
        *answer = bus->answer;
    return leave(bus, code);
}

int bccn_set_name(bccn_bus *bus, const char *name)
{
    int code = bccn_control(bus, "name", name, NULL);
    return code ? code : want(bus, NAME, name);
}

int bccn_heartbeat(bccn_bus *bus, int seconds, const char *text)
{
    char value[SETTING_LIMIT];
    int size = snprintf(value, sizeof value, text && *text ? "%d %s" : "%d", seconds, text);
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (seconds && size >= SETTING_LIMIT)
        return fail(bus, BCCN_E_INVALID, "heartbeat text of %zu bytes: too long", strlen(text));
    int code = bccn_control(bus, "heartbeat", seconds ? value : "off", NULL);
    return code ? code : want(bus, HEARTBEAT, seconds ? value : NULL);
}

/* A part of a JSON text. */
struct span {
    const char *at;
    size_t size;
};

/* The JSON value, or name of a member, at the beginning of a text. The daemon writes JSON, so nothing is checked. */
static struct span json_value(const char *text)
{
    struct span found = { text + strspn(text, " \t\n\r"), 0 };
    int depth = 0, quoted = 0;
    for (const char *at = found.at; *at && (quoted || depth || !strchr(",:]} \t\n\r", *at)); at++) {
        if (quoted && *at == '\\' && at[1])
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
        found.size = (size_t)(at + 1 - found.at);
    }
    return found;
}

/* The value of a member of the JSON object `text`; size 0: there is none. */
static struct span json_member(const char *text, const char *name)
{
    for (text += strspn(text, " \t\n\r"); *text == '{' || *text == ',';) {
        struct span key = json_value(text + 1);
        text = key.at + key.size + strspn(key.at + key.size, " \t\n\r");
        if (*text != ':')
            break;
        struct span value = json_value(text + 1);
        if (key.size == strlen(name) + 2 && !strncmp(key.at + 1, name, key.size - 2))
            return value;
        text = value.at + value.size + strspn(value.at + value.size, " \t\n\r");
    }
    return (struct span){ "", 0 };
}

/* Take the cursor of the next page, a number or a string of printable ASCII. 1: there is one; 0: this page is the last,
 * or it does not go on. */
static int next_cursor(struct span next, char *cursor, size_t room)
{
    char before[SETTING_LIMIT];
    size_t size = 0;
    strcpy(before, cursor);
    if (next.size == 0 || next.size >= room || !strncmp(next.at, "null", next.size))
        return 0;
    for (size_t i = *next.at == '"'; i < next.size - (*next.at == '"'); i++) {
        if (next.at[i] == '\\')
            i++;
        cursor[size++] = next.at[i];
    }
    cursor[size] = 0;
    return strcmp(before, cursor) != 0;
}

/* Ask for all pages `{"<key>":[...],"next":<cursor>}`. Their rows, as one array, are then in bus->answer. */
static int list(bccn_bus *bus, const char *key)
{
    int64_t deadline = deadline_in(bus->options.timeout);
    char cursor[SETTING_LIMIT] = "", *all = NULL;
    size_t size = 1; /* with the "[" */
    int code;
    while ((code = ask(bus, key, "CMSG %s%c%s", key, 0, cursor)) == 0) {
        const char *page = bus->answer ? bus->answer : "";
        struct span rows = json_member(page, key);
        int sound = rows.size >= 2 && *rows.at == '[' && size < LISTING_LIMIT;
        char *grown = sound ? realloc(all, size + rows.size + 2) : NULL;
        if (!grown) {
            code = sound ? fail(bus, BCCN_E_MEMORY, "no memory for rows") : alien(bus);
            break;
        }
        all = grown;
        all[0] = '[';
        if (size > 1 && rows.size > 2)
            all[size++] = ',';
        memcpy(all + size, rows.at + 1, rows.size - 2);
        size += rows.size - 2;
        if (!next_cursor(json_member(page, "next"), cursor, sizeof cursor))
            break;
        if (is_past(deadline)) { /* there may be pages without an end */
            code = fail(bus, BCCN_E_TIMEOUT, "%s: more pages than there is time for", key);
            break;
        }
    }
    if (code < 0) {
        free(all);
        return code;
    }
    memcpy(all + size, "]", 2);
    free(bus->answer);
    bus->answer = all;
    return 0;
}

static int listing(bccn_bus *bus, const char *key, const char **json)
{
    *json = "";
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    int code = list(bus, key);
    if (code == 0)
        *json = bus->answer;
    return leave(bus, code);
}

int bccn_status(bccn_bus *bus, const char **json)
{
    return bccn_control(bus, "status", NULL, json);
}

int bccn_clients(bccn_bus *bus, const char **json)
{
    return listing(bus, "clients", json);
}

int bccn_sources(bccn_bus *bus, const char **json)
{
    return listing(bus, "sources", json);
}

int bccn_barrier(bccn_bus *bus)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    int code = ask(bus, NULL, NULL);
    uint64_t rejected = bus->rejection.count, doubt = bus->in_doubt;
    if (code < 0)
        return leave(bus, code);
    bus->rejection.count = bus->in_doubt = 0;
    if (rejected)
        code = fail(bus, bus->rejection.code, rejected > 1 ? "%s; %llu more rejected" : "%s", bus->rejection.text,
                    (unsigned long long)rejected - 1);
    else if (doubt)
        code = fail(bus, BCCN_E_UNCONFIRMED, "the daemon went away: up to %llu messages may not have been published",
                    (unsigned long long)doubt);
    return leave(bus, code);
}

/* --- subscribing --- */

/* The last subscription to `pattern`, or of those the last with `*user`. NULL: there is none. */
static struct subscription *find(const bccn_bus *bus, const char *pattern, const void *const *user)
{
    struct subscription *found = NULL;
    for (size_t i = 0; i < bus->slots; i++) {
        struct subscription *slot = &bus->subscriptions[i];
        if (slot->pattern && !strcmp(slot->pattern, pattern) && (!user || slot->user == *user)
            && (!found || found->number < slot->number))
            found = slot;
    }
    return found;
}

/* A free slot. NULL: no memory. */
static struct subscription *free_slot(bccn_bus *bus)
{
    for (size_t i = 0; i < bus->slots && bus->patterns < bus->slots; i++)
        if (!bus->subscriptions[i].pattern)
            return &bus->subscriptions[i];
    struct subscription *grown = realloc(bus->subscriptions, (bus->slots + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    bus->subscriptions = grown;
    grown[bus->slots] = (struct subscription){ .pattern = NULL };
    return &grown[bus->slots++];
}

static struct withdrawal *new_withdrawal(const char *pattern)
{
    struct withdrawal *made = calloc(1, sizeof *made + strlen(pattern) + 1);
    if (made)
        strcpy(made->pattern, pattern);
    return made;
}

/* Drop those messages behind the packet `before` that came for nothing but what has failed. */
static void sift(bccn_bus *bus, const struct packet *before)
{
    bus->overhears = !bus->options.tap;
    for (struct packet *at = before ? before->next : bus->received.first; at; at = at->next)
        handle_parts(bus, at, handle_again);
}

/* Have an UNSUB or unwatch sent, without waiting for it. The messages behind the packet `before` that came for a SUB
 * reach nobody. */
static void withdraw(bccn_bus *bus, struct withdrawal *made, const struct packet *before)
{
    char why[sizeof bus->text];
    struct withdrawal **end = &bus->withdrawn;
    while (*end)
        end = &(*end)->next;
    *end = made;
    if (!made->watch)
        sift(bus, before);
    memcpy(why, bus->text, sizeof why);
    take_back(bus, 0); /* what finds no room goes before the next request */
    memcpy(bus->text, why, sizeof why);
}

static int remember(bccn_bus *bus, const char *pattern, struct subscription wanted)
{
    struct withdrawal *made = new_withdrawal(pattern);
    const struct packet *before = newest(&bus->received);
    struct subscription *slot = free_slot(bus);
    wanted.pattern = strdup(pattern);
    bus->asking = UNSAID;
    int code = wanted.pattern && made && slot ? ask(bus, NULL, "SUB %s", pattern)
                                              : fail(bus, BCCN_E_MEMORY, "no memory");
    if (code < 0 && bus->asking == SAID)
        withdraw(bus, made, before);
    else
        free(made);
    if (code < 0) {
        free(wanted.pattern);
        return code;
    }
    wanted.number = ++bus->subscribed;
    *slot = wanted;
    bus->patterns++;
    bus->calls_back |= wanted.callback || wanted.handler;
    return 0;
}

static int check_pattern(bccn_bus *bus, const char *pattern)
{
    for (const char *at = pattern; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at > 127 || at - pattern >= CHANNEL_LIMIT)
            return fail(bus, BCCN_E_INVALID, "pattern '%.1024s': must be ASCII without white space, at most 1024",
                        pattern);
    return 0;
}

static int subscribe(bccn_bus *bus, const char *pattern, struct subscription wanted)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (wanted.handler && bus->options.format != BCCN_FORMAT_FULL)
        return fail(bus, BCCN_E_INVALID, "to serve needs the format full, which shows who asks");
    int code = check_pattern(bus, pattern);
    return code < 0 ? code : leave(bus, remember(bus, pattern, wanted));
}

int bccn_subscribe(bccn_bus *bus, const char *pattern, bccn_callback *callback, void *user)
{
    return subscribe(bus, pattern, (struct subscription){ .callback = callback, .user = user });
}

int bccn_serve(bccn_bus *bus, const char *pattern, bccn_handler *handler, void *user)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (!handler) /* it would be a subscription without a callback */
        return fail(bus, BCCN_E_INVALID, "to serve needs a handler");
    return subscribe(bus, pattern, (struct subscription){ .handler = handler, .user = user });
}

int bccn_listen(bccn_bus *bus, bccn_callback *callback, void *user)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    const struct packet *before = newest(&bus->received);
    bus->asking = UNSAID;
    int code = ask(bus, NULL, "CMSG listen");
    if (code == 0) {
        want(bus, LISTEN, "");
        bus->listening = 1;
        bus->directed = (struct subscription){ .callback = callback, .user = user };
        bus->calls_back |= callback != NULL;
    } else if (bus->asking == SAID) {
        sift(bus, before);
    }
    return leave(bus, code);
}

static int unsubscribe(bccn_bus *bus, const char *pattern, const void *const *user)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    struct subscription *slot = find(bus, pattern, user);
    if (!slot)
        return leave(bus, fail(bus, BCCN_E_INVALID, "pattern %.1024s: not subscribed", pattern));
    struct withdrawal *made = new_withdrawal(pattern);
    bus->asking = UNSAID;
    int code = ask(bus, NULL, "UNSUB %s", slot->pattern);
    int is_said = bus->fd >= 0 && (bus->ready || bus->greeted > SETTINGS + (size_t)(slot - bus->subscriptions));
    free(slot->pattern);
    *slot = (struct subscription){ .pattern = NULL };
    bus->patterns--;
    if (made && code < 0 && bus->asking == UNSAID && is_said)
        withdraw(bus, made, newest(&bus->received));
    else
        free(made);
    return leave(bus, code);
}

int bccn_unsubscribe(bccn_bus *bus, const char *pattern)
{
    return unsubscribe(bus, pattern, NULL);
}

int bccn_unsubscribe_user(bccn_bus *bus, const char *pattern, const void *user)
{
    return unsubscribe(bus, pattern, &user);
}

int bccn_matches(const char *pattern, const char *channel, char separator)
{
    const char *at = pattern;
    if (*channel == '!')
        return 0;
    for (; *at; at++) {
        if ((at == pattern || at[-1] == separator) && !strcmp(at, ">"))
            return *channel != 0;
        if (*at != '*') {
            if (*at != *channel++)
                return 0;
        } else if (at[1] && at[1] != separator) {
            return 0;
        } else {
            while (*channel && *channel != separator)
                channel++;
        }
    }
    return !*channel || at == pattern || at[-1] == separator;
}

/* --- watching --- */

/* Forget what watches the pattern, but for `kept`. Returns whether there was something. */
static int forget_watch(bccn_bus *bus, const char *pattern, const struct watch *kept)
{
    int held = 0;
    for (struct watch **at = &bus->watches, *gone; (gone = *at);) {
        if (gone == kept || strcmp(gone->pattern, pattern)) {
            at = &gone->next;
        } else {
            *at = gone->next;
            free(gone);
            held = 1;
        }
    }
    return held;
}

int bccn_watch(bccn_bus *bus, const char *pattern, bccn_watch_callback *callback, void *user)
{
    struct watch *made, **end;
    struct withdrawal *back;
    int code, held = 0;
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (!callback)
        return fail(bus, BCCN_E_INVALID, "to watch needs a callback");
    if ((code = check_pattern(bus, pattern)) < 0)
        return code;
    made = calloc(1, sizeof *made + strlen(pattern) + 1);
    back = new_withdrawal(pattern);
    if (!made || !back) {
        free(made);
        free(back);
        return fail(bus, BCCN_E_MEMORY, "no memory");
    }
    *made = (struct watch){ .known = -1, .told = -1, .said = 1 };
    strcpy(made->pattern, pattern);
    for (end = &bus->watches; *end; end = &(*end)->next)
        held |= !strcmp((*end)->pattern, pattern);
    *end = made; /* first: news may come before the answer to the ping */
    bus->asking = UNSAID;
    code = ask(bus, NULL, "CMSG watch%c%s", 0, pattern);
    back->watch = 1;
    if (code < 0 && bus->asking == SAID && !held)
        withdraw(bus, back, NULL);
    else
        free(back);
    if (code < 0) {
        *end = NULL;
        free(made);
        return leave(bus, code);
    }
    made->callback = callback;
    made->user = user;
    forget_watch(bus, pattern, made);
    return leave(bus, 0);
}

int bccn_unwatch(bccn_bus *bus, const char *pattern)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    int code = check_pattern(bus, pattern);
    if (code < 0)
        return code;
    struct withdrawal *back = new_withdrawal(pattern);
    if (!back)
        return fail(bus, BCCN_E_MEMORY, "no memory");
    back->watch = 1;
    int held = forget_watch(bus, pattern, NULL);
    bus->asking = UNSAID;
    code = ask(bus, NULL, "CMSG unwatch%c%s", 0, pattern);
    if (code < 0 && bus->asking == UNSAID && held && bus->fd >= 0)
        withdraw(bus, back, NULL);
    else
        free(back);
    return leave(bus, code);
}

/* --- requests that came --- */

const void *bccn_question(const bccn_message *request, size_t *size)
{
    const char *line = request->size ? memchr(request->payload, '\n', request->size) : NULL;
    size_t token = line ? (size_t)(line - (const char *)request->payload) : 0;
    if (token < 1 || token > TOKEN_LIMIT)
        return NULL;
    *size = request->size - token - 1;
    return line + 1;
}

/* Whether its sender is known: without the format full nobody is, and "?" and prefixes are no programs. */
static int can_reply(const bccn_message *request)
{
    return request->src && !strpbrk(request->src, "?*");
}

int bccn_reply(bccn_bus *bus, const bccn_message *request, const void *payload, size_t size)
{
    size_t asked;
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (!bccn_question(request, &asked) || !can_reply(request))
        return fail(bus, BCCN_E_INVALID, "not a request with a known sender (which needs the format full)");
    return publish_exchange(bus, 1, request->src, request->payload, request->size - asked, payload, size);
}

/* --- receiving --- */

/* Take the next message that waits here into bus->message. 1: a message; 0: none; or a code. */
static int next_message(bccn_bus *bus)
{
    struct packet *packet;
    int code = 0;
    while (code == 0 && (packet = front(bus, &bus->received))) {
        size_t size, at = packet->at;
        const unsigned char *part = next_part(packet, &size);
        if (!*part) /* handled when it arrived */
            continue;
        if (*part == 'C') {
            code = control(bus, part, size);
        } else {
            parse_again(bus, part, size, &bus->fields, &bus->message);
            code = 1;
        }
        bus->message_at = at;
    }
    if (code > 0) {
        bus->message.lost = bus->lost;
        bus->lost = 0;
    }
    return code;
}

/* Call the handler with a request that can be replied to. Of what a tap and a channel with last values bring, nobody
 * waits for a reply. */
static int handle_request(bccn_bus *bus, const struct subscription *to)
{
    size_t size;
    const void *question = bccn_question(&bus->message, &size);
    if (!question || !can_reply(&bus->message) || strcmp(bus->message.verdict, "ok"))
        return 0;
    return to->handler(bus, &bus->message, question, size, to->user);
}

static inline int call(bccn_bus *bus, const struct subscription *to)
{
    bus->called = 1;
    bus->text[0] = 0;
    int code = to->callback ? to->callback(bus, &bus->message, to->user) : handle_request(bus, to);
    return bus->doomed ? BCCN_E_CLOSED : code;
}

/* What a call returns that a callback has stopped. */
static int stopped(bccn_bus *bus, int code)
{
    if (code > 0)
        return fail(bus, BCCN_E_STOPPED, "a callback stopped: it returned %d", code);
    return *bus->text ? code : fail(bus, code, "a callback stopped: %s", bccn_strerror(code));
}

/* A callback has stopped: leave the message for those that have not had it. */
static int stop(bccn_bus *bus, int code)
{
    bus->received.first->at = bus->message_at;
    bus->lost = bus->message.lost;
    return stopped(bus, code);
}

/* Tell the callbacks of watches what they do not know. 0, or a code. */
static int tell(bccn_bus *bus)
{
    char pattern[CHANNEL_LIMIT + 1]; /* a callback may end its watch */
    for (struct watch *at = bus->watches; at;) {
        if (!at->callback || at->known == at->told) {
            at = at->next;
            continue;
        }
        strcpy(pattern, at->pattern);
        at->told = at->known;
        bus->text[0] = 0;
        bus->delivering = 1;
        int code = at->callback(bus, pattern, at->known, at->user);
        bus->delivering = 0;
        if (bus->doomed)
            return BCCN_E_CLOSED;
        if (code)
            return stopped(bus, code);
        at = bus->watches; /* a callback may change them */
    }
    bus->news = 0;
    return 0;
}

/* Whether a tap shows a datagram that was not delivered: it came for no subscription. */
static int is_rejected(const bccn_message *message)
{
    const char *verdict = message->verdict;
    return verdict && strcmp(verdict, "ok") && strcmp(verdict, "repaired") && strcmp(verdict, "retained");
}

/* Call those callbacks of the message that have not had it. 1: bccn_receive returns it, too; 0: not; or a code. */
static int deliver(bccn_bus *bus)
{
    const char *channel = bus->message.channel;
    int code = 0;
    if (bus->options.tap && is_rejected(&bus->message))
        return 1;
    if (!bus->passed)
        bus->called = bus->wanted = 0;
    bus->delivering = 1;
    if (*channel == '!' && bus->directed.callback && !bus->passed++)
        code = call(bus, &bus->directed);
    for (size_t i = bus->passed; i < bus->slots && *channel != '!' && !code; i++) {
        const struct subscription *to = &bus->subscriptions[i]; /* a callback may move and change them */
        if (!to->pattern || !bccn_matches(to->pattern, channel, separator_of(bus)))
            continue;
        if (!to->callback && !to->handler) {
            bus->wanted = 1;
            continue;
        }
        bus->passed = i + 1;
        code = call(bus, to);
    }
    bus->delivering = 0;
    if (code)
        return bus->doomed ? code : stop(bus, code);
    bus->passed = 0;
    return bus->wanted || !bus->called;
}

/* The next message for bccn_receive. 1: a message; 0: none in time; or a code. `*count` grows by each message taken. */
static int receive(bccn_bus *bus, int timeout, unsigned *count)
{
    int64_t deadline = timeout < 0 ? NEVER : 0; /* a message that is here already costs no look at the clock */
    if (bus->delivering)
        return fail(bus, BCCN_E_INVALID, "a callback cannot receive");
    for (unsigned turn = 1;; turn++) {
        int code = bus->news ? tell(bus) : 0;
        if (code == 0)
            code = next_message(bus);
        if (code > 0) {
            *count += bus->passed == 0;
            code = bus->calls_back ? deliver(bus) : 1;
            if (code != 0)
                return code;
            continue;
        }
        if (code == 0 && (code = read_until(bus, deadline, turn)) == 0 && timeout > 0 && deadline == 0)
            deadline = deadline_in(timeout);
        else if (code <= 0)
            return code;
    }
}

/* At the end of a call that calls callbacks, one of which may have closed the bus. */
static int leave_or_close(bccn_bus *bus, int code)
{
    if (!bus->doomed)
        return leave(bus, code);
    bccn_close(bus);
    return BCCN_E_CLOSED;
}

int bccn_receive(bccn_bus *bus, const bccn_message **message, int timeout)
{
    unsigned count = 0; /* it may wrap around: a program that only has callbacks stays here for ever */
    *message = NULL;
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    int code = receive(bus, timeout, &count);
    if (code > 0)
        *message = &bus->message;
    return leave_or_close(bus, code);
}

int bccn_dispatch(bccn_bus *bus)
{
    uint64_t unclaimed = 0;
    unsigned count = 0;
    int code = 0;
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    while (count < TURN_LIMIT && (code = receive(bus, 0, &count)) > 0)
        unclaimed++;
    if (unclaimed && !bus->doomed)
        notify(bus, BCCN_NOTICE_UNCLAIMED, 0, unclaimed, "%llu message%s without a callback dropped: nobody receives",
               (unsigned long long)unclaimed, unclaimed == 1 ? "" : "s");
    return leave_or_close(bus, code < 0 ? code : (int)count);
}

int bccn_fileno(bccn_bus *bus)
{
    int code = 0;
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    if (bus->epoll < 0) {
        bus->epoll = epoll_create1(EPOLL_CLOEXEC);
        bus->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        bus->ring_at = NEVER;
        if (bus->epoll < 0 || bus->timer < 0 || add_to_epoll(bus, bus->timer) < 0
            || add_to_epoll(bus, bus->fd) < 0) {
            code = fail(bus, BCCN_E_MEMORY, "no descriptor: %s", strerror(errno));
            close_epoll(bus);
        }
    }
    return leave(bus, code < 0 ? code : bus->epoll);
}

uint64_t bccn_lost(const bccn_bus *bus)
{
    return bus ? bus->all_lost : 0;
}

bccn_message *bccn_message_copy(const bccn_message *message)
{
    const bccn_message *from = message;
    const char *const texts[] = { from->channel, from->src, from->peer, from->verdict, from->interface };
    char *to[COUNT(texts)];
    size_t size = sizeof *message + from->size + from->datagram_size;
    for (size_t i = 0; i < COUNT(texts); i++)
        size += texts[i] ? strlen(texts[i]) + 1 : 0;
    bccn_message *copy = malloc(size);
    if (!copy)
        return NULL;
    unsigned char *at = (unsigned char *)(copy + 1);
    *copy = *from;
    for (size_t i = 0; i < COUNT(texts); i++) {
        to[i] = texts[i] ? (char *)at : NULL;
        at = put(at, texts[i], texts[i] ? strlen(texts[i]) + 1 : 0);
    }
    copy->channel = to[0];
    copy->src = to[1];
    copy->peer = to[2];
    copy->verdict = to[3];
    copy->interface = to[4];
    copy->payload = at;
    at = put(at, from->payload, from->size);
    copy->datagram = from->datagram ? at : NULL;
    put(at, from->datagram, from->datagram_size);
    return copy;
}

void bccn_message_free(bccn_message *copy)
{
    free(copy);
}

/* --- requests that go out --- */

/* Take the next reply to the last request into bus->reply. 1: a reply; 0: none until `deadline`; or a code. */
static int next_reply(bccn_bus *bus, int64_t deadline)
{
    struct packet *packet;
    for (unsigned turn = 1; !(packet = front(bus, &bus->replies)); turn++) {
        if (bus->received.size > BACKLOG_LIMIT)
            return full(bus);
        int code = read_until(bus, deadline, turn);
        if (code <= 0)
            return code;
    }
    size_t size, head = strlen(bus->token) + 1;
    const unsigned char *part = next_part(packet, &size);
    parse_again(bus, part, size, &bus->reply_fields, &bus->reply);
    bus->reply.payload = (const char *)bus->reply.payload + head;
    bus->reply.size -= head;
    return 1;
}

/* Publish a request, and find out whether the daemon took it and whether anybody on this host listens. */
static int publish_request(bccn_bus *bus, const char *channel, const void *question, size_t size)
{
    char head[sizeof bus->token + 1];
    int code = 0;
    if (!bus->settings[LISTEN].wanted) {
        bus->overhears = !bus->options.tap; /* also if it fails */
        code = ask(bus, NULL, "CMSG listen");
    } else if (bus->published > bus->confirmed || bus->gathered) {
        code = ask(bus, NULL, NULL); /* any later rejection is about this request */
    }
    if (code < 0)
        return code;
    want(bus, LISTEN, "");
    pass_over(&bus->replies);
    snprintf(bus->requested, sizeof bus->requested, "%s", channel);
    snprintf(strchr(bus->token, '.') + 1, 12, "%u", ++bus->requests);
    int head_size = snprintf(head, sizeof head, "%s\n", bus->token);
    struct complaint before = bus->rejection;
    bus->rejection.count = 0;
    code = publish_exchange(bus, 0, channel, head, (size_t)head_size, question, size);
    if (code == 0)
        code = ask(bus, "listeners", "CMSG listeners%c%s", 0, channel);
    if (bus->rejection.count)
        code = complain(bus, &bus->rejection);
    bus->rejection = before;
    bus->settled = code == BCCN_E_UNKNOWN_KEY || (bus->answer && strcmp(bus->answer, "0"));
    return code == BCCN_E_UNKNOWN_KEY ? 0 : code;
}

/* That the daemon has not answered when the time of a request is over ends the replies, without an error. */
static int unless_late(const bccn_bus *bus, int code)
{
    return code == BCCN_E_TIMEOUT && is_past(bus->replies_until) ? 0 : code;
}

/* Ask other hosts whether anybody listens to the last request. */
static int ask_others(bccn_bus *bus)
{
    if (bus->questions++ == QUESTIONS)
        return fail(bus, BCCN_E_NOBODY, "nobody listens to %.1024s", bus->requested);
    bus->ask_until = bus->replies_until;
    int code = ask(bus, "listeners", "CMSG listeners%c%s %s?", 0, bus->requested, bus->token);
    bus->ask_until = NEVER;
    const char *said = bus->answer ? bus->answer : "";
    if (code == 0 && !strcmp(said, "0"))
        return fail(bus, BCCN_E_NOBODY, "nobody on this host listens to %.1024s, a local channel", bus->requested);
    bus->settled |= strcmp(said, "0 asked") != 0;
    return code;
}

int bccn_request_many(bccn_bus *bus, const char *channel, const void *question, size_t size, int timeout, int count)
{
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    bus->questions = 0;
    bus->replies_until = bus->ask_until = deadline_in(timeout);
    bus->wanted_replies = count > 0 ? count : -1;
    int code = ensure(bus, usual_deadline(bus));
    if (code == 0)
        code = publish_request(bus, channel, question, size);
    bus->ask_until = NEVER;
    if (code < 0)
        bus->wanted_replies = 0;
    return leave(bus, unless_late(bus, code));
}

int bccn_next_reply(bccn_bus *bus, const bccn_message **reply)
{
    int code = 0;
    *reply = NULL;
    if (enter(bus) < 0)
        return BCCN_E_CLOSED;
    while (code == 0 && bus->wanted_replies) {
        int64_t due = now_ms(CLOCK_MONOTONIC) + (bus->questions ? ASK_EVERY : ASK_AFTER);
        due = bus->settled || due > bus->replies_until ? bus->replies_until : due;
        code = next_reply(bus, due);
        if (code == 0 && due == bus->replies_until)
            break;
        if (code == 0 && !bus->settled)
            code = unless_late(bus, ask_others(bus));
    }
    if (code > 0) {
        *reply = &bus->reply;
        bus->wanted_replies -= bus->wanted_replies > 0;
    } else if (code == BCCN_E_NOBODY) {
        bus->wanted_replies = 0;
    }
    return leave(bus, code);
}

int bccn_request(bccn_bus *bus, const char *channel, const void *question, size_t size, const bccn_message **reply,
                 int timeout)
{
    *reply = NULL;
    int code = bccn_request_many(bus, channel, question, size, timeout, 1);
    if (code == 0) {
        code = bccn_next_reply(bus, reply);
        bus->wanted_replies = 0;
    }
    return code ? code : fail(bus, BCCN_E_TIMEOUT, "no reply on %.1024s in time", bus->requested);
}
