/* libbccn: LISTEN/NOTIFY between the programs of a network segment. This is the client of the bccnd bus for C.
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
 * - One thread at a time uses a bus.
 * - Functions return 0 or more, or a negative code (BCCN_E_...). `bccn_error_text` explains the last error in one line.
 * - A bus reconnects by itself, with every subscription and setting. A call waits for that, as for any answer of the
 *   daemon, up to the timeout of the bus. Times are an int in milliseconds; -1 waits for ever.
 * - A child of fork may use the bus of its parent. The first call opens a connection of its own, with the same
 *   subscriptions, under the name <parent's name>/<pid>. Or the child closes that bus and opens another
 *   (clients/PROTOCOL.md, "Names and numbers"). Messages that waited for the parent stay with the parent.
 * - The library starts no thread, handles no signal and raises no SIGPIPE.
 * - The daemon gives the sequence numbers; there is no function to get or set them.
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
    CODE(BCCN_E_BACKLOG, -6, "backlog", "too many messages wait for this program: receive them before asking more") \
    CODE(BCCN_E_PROTOCOL, -7, "protocol", "the daemon sent a packet that is not of this protocol") \
    CODE(BCCN_E_INTERRUPTED, -8, "interrupted", "a signal handler ran while this program waited to receive") \
    CODE(BCCN_E_NOBODY, -9, "nobody", "nobody listens to this request") \
    /* The daemon rejected it: */ \
    CODE(BCCN_E_BAD_PACKET, -20, "bad-packet", "not a packet of the protocol") \
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
    CODE(BCCN_E_NOT_AGREED, -31, "not-agreed", "packing was not agreed on") \
    CODE(BCCN_E_BAD_DATAGRAM, -32, "bad-datagram", "not a BCCN1 datagram") \
    CODE(BCCN_E_REJECTED, -33, "rejected", "the daemon rejected it, with a code that this library does not know")

#define BCCN_CODE_VALUE(name, value, word, sentence) name = value,
typedef enum { BCCN_CODES(BCCN_CODE_VALUE) } bccn_code;
#undef BCCN_CODE_VALUE

const char *bccn_strerror(int code);  /* the sentence; never NULL */
const char *bccn_code_word(int code); /* the word: "too-large", ... */

/* --- a bus --- */

typedef struct {
    const char *name;  /* own src; NULL: the daemon gives <host>/<program>/<pid> */
    const char *queue; /* what may wait in the daemon: "packets=1000 bytes=1000000 policy=block", or a part of it */
    char separator;    /* of the tokens in patterns: '/' (also 0) or '.' */
    char full;         /* 1: messages have src, seq, peer, time and verdict */
    char pack;         /* 1: several messages share a packet, both ways: bursts are many times faster */
    char no_echo;      /* 1: own messages that match are not received */
    char tap;          /* 1: every datagram of the segment is received, too (needs the right to tap) */
    char once;         /* 1: no reconnecting; calls fail with BCCN_E_UNAVAILABLE once the connection is gone */
    int timeout;       /* milliseconds that a call waits for the daemon; 0: 5000 */
    int wait;          /* milliseconds that bccn_open keeps trying */
} bccn_options;

/* Connect to `address`: a path, "@name" (abstract), or NULL for the usual places: $BCCN_SOCKET, /run/bccnd/bus.sock,
 * $XDG_RUNTIME_DIR/bccnd/bus.sock. NULL `options` are all zero.
 *
 * `*bus` is set on failure, too, for bccn_error_text; close it then as well. It is NULL only without memory.
 * Errors: BCCN_E_UNAVAILABLE, BCCN_E_REFUSED, or the daemon's answer to the options. */
int bccn_open(bccn_bus **bus, const char *address, const bccn_options *options);

/* Close the connection at once; call bccn_barrier first to be sure that everything has arrived. NULL is ignored. */
void bccn_close(bccn_bus *bus);

const char *bccn_error_text(const bccn_bus *bus); /* of the last call that failed; `bus` may be NULL */
const char *bccn_get_name(bccn_bus *bus);         /* own src as others see it; "" while there is no connection */
int bccn_set_name(bccn_bus *bus, const char *name);

/* Have the daemon publish a heartbeat on heartbeat/<name> every `seconds`. `text` (or NULL) is its payload; another
 * call changes it, and 0 seconds end the heartbeats. */
int bccn_heartbeat_start(bccn_bus *bus, int seconds, const char *text);

/* Send any other control request (clients/PROTOCOL.md, "Control requests"); `value` may be NULL. `*answer` is valid
 * until the next call; `answer` may be NULL. A new connection does not repeat the request. */
int bccn_control(bccn_bus *bus, const char *key, const char *value, const char **answer);

/* --- publishing --- */

/* Hand one message to the daemon. The call waits only while the daemon is away or takes no more. If the daemon then
 * rejects the message, a notice says so, and the next bccn_barrier fails. After BCCN_E_UNAVAILABLE and BCCN_E_TIMEOUT
 * the message was not sent. */
int bccn_send(bccn_bus *bus, const char *channel, const void *payload, size_t size);
/* bccn_send under the other name that BCCN1 programs use. */
int bccn_send_topic(bccn_bus *bus, const char *channel, const void *payload, size_t size);
int bccn_send_all(bccn_bus *bus, const void *payload, size_t size); /* to every listening program */
int bccn_send_to(bccn_bus *bus, const char *target, const void *payload, size_t size); /* to that src, or all below */

/* Return once the daemon has processed everything sent before. The error is the first that the daemon reported about a
 * message since the last barrier, or BCCN_E_UNCONFIRMED if the connection broke in between. */
int bccn_barrier(bccn_bus *bus);

/* Messages sent between these two calls share packets, if packing was agreed on: many times the throughput. They have
 * been handed over when bccn_batch_end returns, or when anything is asked of the daemon. If that fails for now, they
 * stay, and go before whatever is sent next. */
int bccn_batch_begin(bccn_bus *bus);
int bccn_batch_end(bccn_bus *bus);

/* --- receiving --- */

/* A message is valid until the next bccn_recv or bccn_dispatch; an answer until the next bccn_request or
 * bccn_next_answer; a message given to a callback until that returns. The fields below `lost` belong to the format
 * full, and are NULL and 0 otherwise. */
typedef struct {
    const char *channel; /* "!" and "!<target>": to all, to this program */
    const void *payload;
    size_t size;
    uint64_t lost;       /* messages that the daemon dropped directly before this one: this program read too slowly */
    const char *src;
    uint64_t seq;
    const char *peer;    /* "ip:port", or "local" */
    uint64_t time_ns;    /* when the daemon received it, in nanoseconds of Unix time */
    const char *verdict; /* "ok"; "retained": a last value from before the subscription; others only for a tap */
    const void *datagram;
    size_t datagram_size;
} bccn_message;

typedef void bccn_callback(bccn_bus *bus, const bccn_message *message, void *user);

/* Subscribe, and return when the subscription is in force; after a failure there is none (clients/PROTOCOL.md, "A
 * subscribe that fails"), and unsubscribing ends one even if the daemon does not answer. bccn_recv and bccn_dispatch
 * pass its messages to `callback`, which must not call those two, nor bccn_close. Without a callback (NULL), bccn_recv
 * returns the messages.
 *
 * The pattern "!" stands for messages to all and to this program. Any other subscription brings these, too, and
 * bccn_recv returns them. */
int bccn_listen(bccn_bus *bus, const char *pattern, bccn_callback *callback, void *user);
int bccn_subscribe(bccn_bus *bus, const char *pattern);   /* bccn_listen without a callback */
int bccn_unsubscribe(bccn_bus *bus, const char *pattern); /* takes back the last subscription to the pattern */

/* Wait for the next message that is not for callbacks alone, and call the callbacks meanwhile. 1: a message; 0: none in
 * time; or a code: BCCN_E_INTERRUPTED after a signal handler. While the daemon is away the call waits and does not
 * fail. */
int bccn_recv(bccn_bus *bus, bccn_message *message, int timeout);

/* Call the callbacks of all messages that wait here, and return how many messages that were, without waiting. A message
 * without a callback is dropped, and a notice says so: a program with both kinds of subscription calls
 * `while (bccn_recv(bus, &message, 0) > 0)` instead. */
int bccn_dispatch(bccn_bus *bus);

/* A descriptor for poll loops. When it is readable, call bccn_dispatch, or bccn_recv until it returns 0. The descriptor
 * stays the same over reconnections, but not over fork. */
int bccn_fd(bccn_bus *bus);

/* Whether a subscription to `pattern` brings messages of `channel`. */
int bccn_matches(const char *pattern, const char *channel, char separator);

/* --- request and reply ---
 *
 * The payload of a request is a token, an LF, and the question. An answer goes to !<asker> and begins with the same
 * line (clients/PROTOCOL.md, "Request and reply"). */

/* Ask, and wait for the first answer (without the line). 1: an answer; 0: none in time; or a code: BCCN_E_NOBODY,
 * within a third of a second, if no program of this host or of another with a daemon would get the request. Other
 * messages wait. */
int bccn_request(bccn_bus *bus, const char *channel, const void *question, size_t size, bccn_message *answer,
                 int timeout);
/* Wait for another answer to the last bccn_request. Answers that come after the next request are dropped. */
int bccn_next_answer(bccn_bus *bus, bccn_message *answer, int timeout);

/* Where the question begins in the payload of a request; NULL: the message is not a request. */
const void *bccn_question(const bccn_message *request, size_t *size);

/* Answer a request; needs the format full. BCCN_E_INVALID: the message is not a request, or its sender is unknown. */
int bccn_reply(bccn_bus *bus, const bccn_message *request, const void *answer, size_t size);

/* --- notices about the connection --- */

typedef enum {
    BCCN_LOST = 1,     /* the daemon dropped `count` messages: this program read too slowly */
    BCCN_REJECTED,     /* the daemon rejected a message, or a setting on a new connection; the text says what and why */
    BCCN_REVOKED,      /* the daemon took back a right, and what rested on it has ended */
    BCCN_CLOSING,      /* the daemon closes the connection; the text says why */
    BCCN_DISCONNECTED, /* the connection ended; `count` published messages may not have been taken */
    BCCN_RECONNECTED,  /* there is a connection again, with every subscription in force */
    BCCN_UNCLAIMED     /* bccn_dispatch dropped `count` messages without a callback */
} bccn_notice_kind;

typedef struct {
    bccn_notice_kind kind;
    int code; /* of BCCN_REJECTED */
    uint64_t count;
    const char *text; /* a line for people */
} bccn_notice;

/* Set the function that gets notices. Any function of the bus may call it; it must not call one itself. Without a
 * callback there are no notices. */
typedef void bccn_notice_callback(const bccn_notice *notice, void *user);
void bccn_on_notice(bccn_bus *bus, bccn_notice_callback *callback, void *user);

#ifdef __cplusplus
}
#endif
#endif
