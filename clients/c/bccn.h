/* libbccn: LISTEN/NOTIFY between the programs of a network segment; the client of the bccnd bus for C.
 *
 *     bccn_bus *bus;
 *     if (bccn_open(&bus, NULL, NULL) < 0)
 *         fprintf(stderr, "%s\n", bccn_error_text(bus));
 *     bccn_subscribe(bus, "demo/>");
 *     bccn_send(bus, "demo/greeting", "hello", 5);
 *     bccn_message message;
 *     while (bccn_recv(bus, &message, -1) > 0)
 *         printf("%s %.*s\n", message.channel, (int)message.size, (const char *)message.payload);
 *     bccn_close(bus);
 *
 * - A bus belongs to one thread at a time.
 * - Functions return 0 or more, or a negative code (BCCN_E_...); `bccn_error_text` says more, in one line.
 * - The connection is made again by itself when it breaks, with every subscription and setting. Calls wait for that, as
 *   for anything of the daemon, up to the bus's timeout. Milliseconds are an int; -1 is for ever.
 * - A child of fork may use its parent's bus: the first call gives it a connection of its own, subscribed alike, named
 *   <parent's name>/<pid> (pattern B of bccn.txt, "Fork handling"); or it opens one for itself (pattern A). What waited
 *   for the parent stays the parent's. The library starts no thread and handles no signal; SIGPIPE is not raised.
 * - Sequence numbers are given by the daemon; there is none to get or set.
 */
#ifndef BCCN_H
#define BCCN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BCCN_VERSION "0.1.0"

typedef struct bccn_bus bccn_bus;

/* name, value, word of the protocol, sentence */
#define BCCN_CODES(CODE) \
    CODE(BCCN_OK, 0, "ok", "no error") \
    CODE(BCCN_E_INVALID, -1, "invalid", "an argument that cannot be sent at all") \
    CODE(BCCN_E_MEMORY, -2, "memory", "no memory or no descriptor left") \
    CODE(BCCN_E_UNAVAILABLE, -3, "unavailable", "no daemon, or it went away and did not come back in time") \
    CODE(BCCN_E_UNCONFIRMED, -4, "unconfirmed", "the daemon went away: messages may not have been published") \
    CODE(BCCN_E_TIMEOUT, -5, "timeout", "the daemon does not answer or takes no more") \
    CODE(BCCN_E_BACKLOG, -6, "backlog", "this program asks and asks, and does not receive what waits for it") \
    CODE(BCCN_E_PROTOCOL, -7, "protocol", "the daemon sent what is not of this protocol") \
    CODE(BCCN_E_INTERRUPTED, -8, "interrupted", "a signal handler ran while this program waited to receive") \
    CODE(BCCN_E_NOBODY, -9, "nobody", "nobody listens to this request") \
    /* The daemon said no: */ \
    CODE(BCCN_E_BAD_PACKET, -20, "bad-packet", "no packet of the protocol") \
    CODE(BCCN_E_BAD_CHANNEL, -21, "bad-channel", "no channel has such a name") \
    CODE(BCCN_E_BAD_PATTERN, -22, "bad-pattern", "no channel can match this pattern") \
    CODE(BCCN_E_BAD_VALUE, -23, "bad-value", "the control request does not take this value") \
    CODE(BCCN_E_BAD_NAME, -24, "bad-name", "no program can have this name") \
    CODE(BCCN_E_NAME_TAKEN, -25, "name-taken", "another program has this name") \
    CODE(BCCN_E_NOT_SUBSCRIBED, -26, "not-subscribed", "not subscribed to this pattern") \
    CODE(BCCN_E_TOO_LARGE, -27, "too-large", "the message is too large") \
    CODE(BCCN_E_UNKNOWN_KEY, -28, "unknown-key", "the daemon does not know this control request") \
    CODE(BCCN_E_REFUSED, -29, "refused", "this program has no right to it") \
    CODE(BCCN_E_LIMIT, -30, "limit", "a limit of the daemon is reached") \
    CODE(BCCN_E_NOT_AGREED, -31, "not-agreed", "packed packets were not agreed on") \
    CODE(BCCN_E_BAD_DATAGRAM, -32, "bad-datagram", "no BCCN1 datagram") \
    CODE(BCCN_E_REJECTED, -33, "rejected", "the daemon rejected it, with a code that this library does not know")

#define BCCN_CODE_VALUE(name, value, word, sentence) name = value,
typedef enum { BCCN_CODES(BCCN_CODE_VALUE) } bccn_code;
#undef BCCN_CODE_VALUE

const char *bccn_strerror(int code);  /* the sentence; never NULL */
const char *bccn_code_word(int code); /* the word: "too-large", ... */

/* --- a bus --- */

typedef struct {
    const char *name;  /* own src; NULL: the daemon's <host>/<program>/<pid> */
    const char *queue; /* the daemon's queue for us: "packets=1000 bytes=1000000 policy=drop-oldest", or parts of it */
    char separator;    /* of the tokens in patterns: '/' (also 0) or '.' */
    char full;         /* 1: messages with src, seq, peer, time and verdict */
    char pack;         /* 1: many messages in one packet, both ways: many times the throughput for bursts */
    char no_echo;      /* 1: own messages that match are not received */
    char tap;          /* 1: every datagram of the segment, too (needs the right) */
    char once;         /* 1: no reconnecting; calls fail with BCCN_E_UNAVAILABLE once the connection is gone */
    int timeout;       /* milliseconds a call waits for the daemon; 0: 5000 */
    int wait;          /* milliseconds to keep trying for the first connection */
} bccn_options;

/* Connect to `address`: a path, "@name" (abstract), or NULL: $BCCN_SOCKET, else /run/bccnd/bus.sock, else that of
 * $XDG_RUNTIME_DIR. NULL options are all zero. `*bus` is set on failure, too (NULL: no memory), for bccn_error_text,
 * and to be closed. BCCN_E_UNAVAILABLE, BCCN_E_REFUSED, or what the daemon had against the options. */
int bccn_open(bccn_bus **bus, const char *address, const bccn_options *options);
void bccn_close(bccn_bus *bus); /* at once: call bccn_barrier first to know that all has arrived. NULL is ignored */

const char *bccn_error_text(const bccn_bus *bus); /* of the last call that failed; NULL: no memory for a bus */
const char *bccn_get_name(bccn_bus *bus);         /* own src as others see it; "" while there is no connection */
int bccn_set_name(bccn_bus *bus, const char *name);

/* Have the daemon say on heartbeat/<name> every so many seconds that we are there. `text` (or NULL) says how we are;
 * another call changes it, 0 seconds end it. */
int bccn_heartbeat_start(bccn_bus *bus, int seconds, const char *text);

/* Any other control request of the protocol; `value` may be NULL. `*answer`, if `answer` is not NULL, is valid until
 * the next call. Not said again to a new connection. */
int bccn_control(bccn_bus *bus, const char *key, const char *value, const char **answer);

/* --- publishing --- */

/* Hand one message to the daemon: waits only while it is away or takes no more. What the daemon then rejects is a
 * notice, and an error of the next bccn_barrier. On BCCN_E_UNAVAILABLE and BCCN_E_TIMEOUT it was not sent. */
int bccn_send(bccn_bus *bus, const char *channel, const void *payload, size_t size);
int bccn_send_topic(bccn_bus *bus, const char *channel, const void *payload, size_t size); /* bccn.txt's name for it */
int bccn_send_all(bccn_bus *bus, const void *payload, size_t size); /* to every listening program */
int bccn_send_to(bccn_bus *bus, const char *target, const void *payload, size_t size); /* to that src, or all below */

/* Return once the daemon has processed everything sent before. An error is the first that it had against a message
 * since the last barrier; BCCN_E_UNCONFIRMED when the connection broke in between. */
int bccn_barrier(bccn_bus *bus);

/* What is sent between these is packed, if that was agreed on: many times the throughput. When the second returns, or
 * anything is asked of the daemon, it has been handed over. Where that fails for now, what is gathered stays, and goes
 * before whatever is sent next. */
int bccn_batch_begin(bccn_bus *bus);
int bccn_batch_end(bccn_bus *bus);

/* --- receiving --- */

/* Valid until the next bccn_recv or bccn_dispatch; an answer until the next bccn_request or bccn_next_answer; one given
 * to a callback until that returns. What stands below `lost` is of the format full, otherwise NULL and 0. */
typedef struct {
    const char *channel; /* "!" and "!<target>": to all, to this program */
    const void *payload;
    size_t size;
    uint64_t lost;       /* messages for us that the daemon dropped directly before this one: we read too slowly */
    const char *src;
    uint64_t seq;
    const char *peer;    /* "ip:port", or "local" */
    uint64_t time_ns;    /* when the daemon received it, Unix time */
    const char *verdict; /* "ok"; "retained": a last value from before the subscription; others only for a tap */
    const void *datagram;
    size_t datagram_size;
} bccn_message;

typedef void bccn_callback(bccn_bus *bus, const bccn_message *message, void *user);

/* Return when the subscription is in force; after a failure there is none. Its messages go to `callback`, from inside
 * bccn_recv and bccn_dispatch (which it must not call, nor bccn_close), or with NULL out of bccn_recv. The pattern "!"
 * means what is directed to this program or to all; who subscribes to anything gets that, too, out of bccn_recv. */
int bccn_listen(bccn_bus *bus, const char *pattern, bccn_callback *callback, void *user);
int bccn_subscribe(bccn_bus *bus, const char *pattern);   /* bccn_listen without a callback */
int bccn_unsubscribe(bccn_bus *bus, const char *pattern); /* takes back one of either, the last one of that pattern */

/* 1: the next message that is not for callbacks only, calling those meanwhile; 0: none in time; or a code. Times out
 * rather than fails while the daemon is away; BCCN_E_INTERRUPTED after a signal handler. */
int bccn_recv(bccn_bus *bus, bccn_message *message, int timeout);

/* Call the callbacks of all that is pending, without waiting; how many messages. One without a callback is passed over,
 * and a notice says so: for programs that have both, `while (bccn_recv(bus, &message, 0) > 0)` is the call. */
int bccn_dispatch(bccn_bus *bus);

/* A descriptor for poll loops: readable means bccn_dispatch (or bccn_recv until 0). It stays the same over
 * reconnections, but not over fork. */
int bccn_fd(bccn_bus *bus);

/* Whether a subscription to `pattern` brings messages of `channel`. */
int bccn_matches(const char *pattern, const char *channel, char separator);

/* --- request and reply ---
 * A request's payload is a line of the asker's choice, an LF, and the question; its answer goes to !<asker> and begins
 * with the same line. */

/* Ask, and wait for the first answer (without the line): 1, 0 for none in time, or a code: BCCN_E_NOBODY, within a
 * third of a second, when no program of this host or of another with a daemon would get it. Other messages wait. */
int bccn_request(bccn_bus *bus, const char *channel, const void *question, size_t size, bccn_message *answer,
                 int timeout);
/* Another answer to the last bccn_request. One that comes after the next request is passed over. */
int bccn_next_answer(bccn_bus *bus, bccn_message *answer, int timeout);

/* For who answers, in the format full: where the question in the payload of a request begins (NULL: it is none), and
 * how to answer it. BCCN_E_INVALID: no request, or its sender is unknown. */
const void *bccn_question(const bccn_message *request, size_t *size);
int bccn_reply(bccn_bus *bus, const bccn_message *request, const void *answer, size_t size);

/* --- what happens to the connection --- */

typedef enum {
    BCCN_LOST = 1,     /* `count` messages: they came faster than they were read */
    BCCN_REJECTED,     /* something published, or wanted again, was not taken; the text says what and why */
    BCCN_REVOKED,      /* a right was taken back, and what rests on it has ended */
    BCCN_CLOSING,      /* the daemon says that it closes the connection, and why */
    BCCN_DISCONNECTED, /* `count` published messages may not have been taken */
    BCCN_RECONNECTED,  /* with every subscription in force */
    BCCN_UNCLAIMED     /* `count` messages without a callback were passed over by bccn_dispatch */
} bccn_notice_kind;

typedef struct {
    bccn_notice_kind kind;
    int code; /* of BCCN_REJECTED */
    uint64_t count;
    const char *text; /* a line for people */
} bccn_notice;

/* Called from inside any function of the bus; it must not call one. Without it notices are not told. */
typedef void bccn_notice_callback(const bccn_notice *notice, void *user);
void bccn_on_notice(bccn_bus *bus, bccn_notice_callback *callback, void *user);

#ifdef __cplusplus
}
#endif
#endif
