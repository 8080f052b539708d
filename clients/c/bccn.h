/* libbccn: LISTEN/NOTIFY between the programs of a network segment. This is the client of the bccnd bus for C.
 *
 *     bccn_bus *bus;
 *     const bccn_message *message;
 *     if (bccn_open(&bus, NULL, NULL) < 0)
 *         fprintf(stderr, "%s\n", bccn_error_text(bus));
 *     bccn_subscribe(bus, "demo/>", NULL, NULL);
 *     bccn_publish(bus, "demo/greeting", "hello", 5);
 *     while (bccn_receive(bus, &message, -1) > 0)
 *         printf("%s %.*s\n", message->channel, (int)message->size, (const char *)message->payload);
 *     bccn_close(bus);
 *
 * - One thread at a time uses a bus.
 * - Functions return 0 or more, or a negative code (BCCN_E_...). `bccn_error_text` explains the last error in one line.
 *   Without a bus (NULL) they fail with BCCN_E_CLOSED.
 * - A bus reconnects by itself, with every subscription and setting. A call waits for that, as for any answer of the
 *   daemon, up to the timeout of the bus. Times are an int in milliseconds; -1 waits for ever.
 * - A child of fork may use the bus of its parent. The first call opens a connection of its own, with the same
 *   subscriptions, under the name <parent's name>/<pid>. Or the child closes that bus and opens another
 *   (clients/PROTOCOL.md, "Names and numbers"). Messages that waited for the parent stay with the parent.
 * - The library starts no thread, handles no signal and raises no SIGPIPE.
 * - Structs get new members only at their end, enums new values: ignore codes and kinds that you do not know.
 *
 * bccn(3) and the pages that it names say more.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef BCCN_H
#define BCCN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header: 10000 * major + 100 * minor + patch. */
#define BCCN_VERSION "0.1.0"
#define BCCN_VERSION_NUMBER 100

const char *bccn_version(void); /* of the library that runs, like BCCN_VERSION */

typedef struct bccn_bus bccn_bus;

typedef enum {
    BCCN_OK = 0,
    BCCN_E_INVALID = -1,      /* an argument that cannot be sent at all */
    BCCN_E_MEMORY = -2,       /* no memory or no descriptor left */
    BCCN_E_UNAVAILABLE = -3,  /* no daemon, or it went away and did not come back in time */
    BCCN_E_UNCONFIRMED = -4,  /* the daemon went away: messages may not have been published */
    BCCN_E_TIMEOUT = -5,      /* the daemon does not answer or takes no more, or no reply came */
    BCCN_E_BACKLOG = -6,      /* too many messages wait for this program: receive them before asking more */
    BCCN_E_PROTOCOL = -7,     /* the daemon sent a packet that is not of this protocol: the connection has ended */
    BCCN_E_INTERRUPTED = -8,  /* a signal handler ran while this program waited to receive */
    BCCN_E_NOBODY = -9,       /* nobody listens to this request */
    BCCN_E_CLOSED = -10,      /* the bus is closed */
    BCCN_E_STOPPED = -11,     /* a callback returned a positive number */
    /* The daemon rejected it: */
    BCCN_E_BAD_PACKET = -20,
    BCCN_E_BAD_CHANNEL = -21,
    BCCN_E_BAD_PATTERN = -22,
    BCCN_E_BAD_VALUE = -23,
    BCCN_E_BAD_NAME = -24,
    BCCN_E_NAME_TAKEN = -25,
    BCCN_E_NOT_SUBSCRIBED = -26,
    BCCN_E_TOO_LARGE = -27,
    BCCN_E_UNKNOWN_KEY = -28,
    BCCN_E_REFUSED = -29,
    BCCN_E_LIMIT = -30,
    BCCN_E_NOT_AGREED = -31,
    BCCN_E_BAD_DATAGRAM = -32,
    BCCN_E_REJECTED = -33     /* with a code that this library does not know; the text has it */
} bccn_code;

const char *bccn_strerror(int code);              /* a sentence; never NULL */
const char *bccn_code_word(int code);             /* the word of the protocol: "too-large", ... */
const char *bccn_error_text(const bccn_bus *bus); /* of the last call that failed; valid until the next call */

/* --- notices about the connection --- */

typedef enum {
    BCCN_NOTICE_LOST = 1,         /* the daemon dropped `count` messages: this program read too slowly */
    BCCN_NOTICE_REJECTED = 2,     /* the daemon rejected a message, or a setting on a new connection */
    BCCN_NOTICE_REVOKED = 3,      /* the daemon took back a right, and what rested on it has ended */
    BCCN_NOTICE_CLOSING = 4,      /* the daemon closes the connection; the text says why */
    BCCN_NOTICE_DISCONNECTED = 5, /* the connection ended; `count` published messages may not have been taken */
    BCCN_NOTICE_RECONNECTED = 6,  /* there is a connection again, with every subscription in force */
    BCCN_NOTICE_UNCLAIMED = 7     /* bccn_dispatch dropped `count` messages without a callback */
} bccn_notice_kind;

typedef struct {
    bccn_notice_kind kind;
    bccn_code code; /* of BCCN_NOTICE_REJECTED; else BCCN_OK */
    uint64_t count;
    const char *text; /* a line for people */
} bccn_notice;

/* Any function of the bus may call it; it must not call one itself. The notice is valid until it returns. */
typedef void bccn_notice_callback(const bccn_notice *notice, void *user);

/* Print "bccn: <text>" on stderr. This is what a bus does with its notices, unless its options say otherwise; it then
 * prints at most ten in a second, and says how many it left out. */
void bccn_print_notice(const bccn_notice *notice, void *user);

/* --- a bus --- */

typedef enum { BCCN_FORMAT_PLAIN = 0, BCCN_FORMAT_FULL = 1 } bccn_format;
typedef enum { BCCN_TAP_OFF = 0, BCCN_TAP_ON = 1, BCCN_TAP_INTERFACE = 2 } bccn_tap;
typedef enum {
    BCCN_POLICY_DEFAULT = 0, /* of the daemon's settings */
    BCCN_POLICY_DROP_OLDEST = 1,
    BCCN_POLICY_DROP_NEWEST = 2,
    BCCN_POLICY_BLOCK = 3,
    BCCN_POLICY_DISCONNECT = 4
} bccn_policy;

/* Begin with `bccn_options options = BCCN_OPTIONS_INIT;`. `size` says which members the program knows: the library
 * reads only these, and takes the defaults of the rest. 0 is the default of every member that a later version adds. A
 * library that is older than the program and meets one that is not 0 refuses it (BCCN_E_INVALID). */
typedef struct {
    size_t size;                     /* sizeof(bccn_options) */
    const char *name;                /* own src; NULL: the daemon gives <host>/<program>/<pid> */
    bccn_notice_callback *on_notice; /* gets the notices; bccn_print_notice at first; NULL drops them all */
    void *notice_user;
    size_t queue_bytes;              /* what may wait in the daemon; 0: as its settings say */
    unsigned queue_packets;
    bccn_policy queue_policy;        /* what happens when no more may wait */
    bccn_format format;              /* BCCN_FORMAT_FULL: messages have src, seq, peer, time_ns, verdict and datagram */
    bccn_tap tap;                    /* every datagram of the segment is received, too; needs the right to tap */
    int pack;                        /* 1: several messages share a packet, both ways: bursts are many times faster */
    int echo;                        /* 0: own messages that match are not received */
    int reconnect;                   /* 0: calls fail with BCCN_E_UNAVAILABLE once the connection has ended */
    int separator;                   /* of the tokens in patterns: '/' or '.' */
    int timeout;                     /* milliseconds that a call waits for the daemon */
    int wait;                        /* milliseconds that bccn_open keeps trying */
} bccn_options;

#define BCCN_OPTIONS_INIT \
    { sizeof(bccn_options), NULL, bccn_print_notice, NULL, 0, 0, BCCN_POLICY_DEFAULT, BCCN_FORMAT_PLAIN, BCCN_TAP_OFF, \
      0, 1, 1, '/', 5000, 0 }

/* Connect to `path`: that of a socket, "@name" (abstract), or NULL for the usual places: $BCCN_SOCKET,
 * /run/bccnd/bus.sock, $XDG_RUNTIME_DIR/bccnd/bus.sock. NULL `options` are the defaults.
 *
 * `*bus` is set on failure, too, for bccn_error_text; close it then as well. It is NULL only without memory.
 * Errors: BCCN_E_UNAVAILABLE, BCCN_E_REFUSED, BCCN_E_INVALID, or what the daemon rejects of the options. */
int bccn_open(bccn_bus **bus, const char *path, const bccn_options *options);

/* Close the connection at once, and free the bus; call bccn_barrier first to be sure that everything has arrived. A
 * callback may close its bus: the bccn_receive or bccn_dispatch that called it then returns BCCN_E_CLOSED. NULL is
 * ignored. */
void bccn_close(bccn_bus *bus);

const char *bccn_name(bccn_bus *bus); /* own src as others see it; "" while there is no connection */
int bccn_set_name(bccn_bus *bus, const char *name);

/* --- publishing --- */

/* Hand one message to the daemon. The call waits only while the daemon is away or takes no more. If the daemon then
 * rejects the message, a notice says so, and the next bccn_barrier fails. After BCCN_E_UNAVAILABLE and BCCN_E_TIMEOUT
 * the message was not sent. */
int bccn_publish(bccn_bus *bus, const char *channel, const void *payload, size_t size);
int bccn_publish_all(bccn_bus *bus, const void *payload, size_t size); /* to every listening program */
int bccn_publish_to(bccn_bus *bus, const char *target, const void *payload, size_t size); /* that src, or all below */

/* Pass on a whole BCCN1 datagram from elsewhere, as bccn_publish does with a message. Needs the right to bridge. */
int bccn_send_datagram(bccn_bus *bus, const void *datagram, size_t size);

/* Messages published between these two calls share packets, if packing was agreed on: many times the throughput. They
 * have been handed over when bccn_batch_end returns, or when anything is asked of the daemon. If that fails for now,
 * they stay, and go before whatever is published next. */
int bccn_batch_begin(bccn_bus *bus);
int bccn_batch_end(bccn_bus *bus);

/* Return once the daemon has processed everything sent before. The error is the first that the daemon reported about a
 * message since the last barrier, or BCCN_E_UNCONFIRMED if the connection broke in between. */
int bccn_barrier(bccn_bus *bus);

/* --- messages --- */

/* The library makes it. It is valid until the next bccn_receive or bccn_dispatch; a reply until the next request or
 * bccn_next_reply; and what a callback gets until that returns. The members below `lost` belong to the format full, and
 * are NULL and 0 otherwise. */
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
    const char *interface; /* that a datagram came by, with BCCN_TAP_INTERFACE; "-": from this host */
} bccn_message;

/* A copy to keep, with all that it points to; NULL: no memory. */
bccn_message *bccn_message_copy(const bccn_message *message);
void bccn_message_free(bccn_message *copy);

/* --- subscribing --- */

/* Gets each message once. It may call the bus, but for bccn_receive and bccn_dispatch.
 *
 * 0 goes on. Anything else ends the bccn_receive or bccn_dispatch that called it: that returns a negative number as it
 * is, and BCCN_E_STOPPED for a positive one. Nothing is lost then: what is left for others of this message, and what
 * waits behind it, comes with the next call. */
typedef int bccn_callback(bccn_bus *bus, const bccn_message *message, void *user);

/* Subscribe, and return when the subscription is in force; after a failure there is none (clients/PROTOCOL.md, "A
 * subscribe that fails"). bccn_receive and bccn_dispatch pass its messages to `callback`; without one (NULL),
 * bccn_receive returns them. */
int bccn_subscribe(bccn_bus *bus, const char *pattern, bccn_callback *callback, void *user);

/* End the last subscription to the pattern, or the last that has this `user`, even if the daemon does not answer. */
int bccn_unsubscribe(bccn_bus *bus, const char *pattern);
int bccn_unsubscribe_user(bccn_bus *bus, const char *pattern, const void *user);

/* Have messages to all ("!") and to this program delivered, to `callback` or without one to bccn_receive. Another call
 * replaces the callback. Any subscription has these messages delivered, too; bccn_receive returns them. */
int bccn_listen(bccn_bus *bus, bccn_callback *callback, void *user);

/* Whether a subscription to `pattern` brings messages of `channel`. */
int bccn_matches(const char *pattern, const char *channel, char separator);

/* Gets a pattern, and whether anybody listens: 1 or 0. It may call the bus and returns a number as bccn_callback. */
typedef int bccn_watch_callback(bccn_bus *bus, const char *pattern, int wanted, void *user);

/* Have bccn_receive and bccn_dispatch tell `callback` whether anybody else listens to channels of the pattern, as soon as
 * that is known and at each change, over reconnections, too (clients/PROTOCOL.md, "Watches"). Another call for the
 * pattern replaces the callback. After bccn_unwatch it is called no more; a pattern that is not watched is no error. */
int bccn_watch(bccn_bus *bus, const char *pattern, bccn_watch_callback *callback, void *user);
int bccn_unwatch(bccn_bus *bus, const char *pattern);

/* --- receiving --- */

/* Wait for the next message that is not for callbacks alone, and call the callbacks meanwhile. 1: a message; 0: none in
 * time; or a code: BCCN_E_INTERRUPTED after a signal handler, and what a callback ended it with. While the daemon is
 * away the call waits and does not fail. It connects again within its timeout; what is left of that, the next call
 * does. */
int bccn_receive(bccn_bus *bus, const bccn_message **message, int timeout);

/* Call the callbacks of all messages that wait here, and return how many messages that were, without waiting. A message
 * without a callback is dropped, and a notice says so: a program with both kinds of subscription calls
 * `while (bccn_receive(bus, &message, 0) > 0)` instead. */
int bccn_dispatch(bccn_bus *bus);

/* A descriptor for poll loops. When it is readable, call bccn_dispatch, or bccn_receive until it returns 0. The
 * descriptor stays the same over reconnections, but not over fork. */
int bccn_fileno(bccn_bus *bus);

/* How many messages the daemon has dropped in all, because this program read too slowly. */
uint64_t bccn_lost(const bccn_bus *bus);

/* --- request and reply ---
 *
 * The payload of a request is a token, an LF, and the question. A reply goes to !<asker> and begins with the same line
 * (clients/PROTOCOL.md, "Request and reply"). Other messages wait while a program asks. */

/* Ask, and wait for the first reply (without the line). 1: a reply. Errors: BCCN_E_TIMEOUT, or within a third of a
 * second BCCN_E_NOBODY, if no program of this host or of another with a daemon would get the request. */
int bccn_request(bccn_bus *bus, const char *channel, const void *question, size_t size, const bccn_message **reply,
                 int timeout);

/* Ask for up to `count` replies (0: any number) within `timeout`, and take them one by one. bccn_next_reply returns 1:
 * a reply; 0: there are no more, or no more in time; or a code: BCCN_E_NOBODY. The next request drops what is left. */
int bccn_request_many(bccn_bus *bus, const char *channel, const void *question, size_t size, int timeout, int count);
int bccn_next_reply(bccn_bus *bus, const bccn_message **reply);

/* Gets each request: the message, and the question in it. It replies with bccn_reply, then or later, with a copy of the
 * message. What it returns is as with bccn_callback. */
typedef int bccn_handler(bccn_bus *bus, const bccn_message *request, const void *question, size_t size, void *user);

/* Subscribe, and call `handler` with each request that can be replied to; other messages are ignored. Needs the format
 * full, else BCCN_E_INVALID. bccn_unsubscribe ends it. */
int bccn_serve(bccn_bus *bus, const char *pattern, bccn_handler *handler, void *user);

/* These two read of a request its payload, size and src alone, so that a program may make it up. */

/* Where the question begins in the payload of a request; NULL: the message is not a request. */
const void *bccn_question(const bccn_message *request, size_t *size);

/* Reply to a request; needs the format full. BCCN_E_INVALID: the message is not a request, or its sender is unknown. */
int bccn_reply(bccn_bus *bus, const bccn_message *request, const void *payload, size_t size);

/* --- control requests --- */

/* Have the daemon publish a heartbeat on heartbeat/<name> every `seconds`. `text` (or NULL) is its payload; another
 * call changes it, and 0 seconds end the heartbeats. */
int bccn_heartbeat(bccn_bus *bus, int seconds, const char *text);

/* Send any other control request (clients/PROTOCOL.md, "Control requests"); `value` may be NULL. `*answer` is valid
 * until the next call; `answer` may be NULL. A new connection does not repeat the request. */
int bccn_control(bccn_bus *bus, const char *key, const char *value, const char **answer);

/* The daemon, its settings and its counters: a JSON object. Its clients, and the sources that it hears: arrays of
 * objects, all pages together. `*json` is valid until the next call. They need the right to observe. */
int bccn_status(bccn_bus *bus, const char **json);
int bccn_clients(bccn_bus *bus, const char **json);
int bccn_sources(bccn_bus *bus, const char **json);

#ifdef __cplusplus
}
#endif
#endif
