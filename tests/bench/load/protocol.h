/* A relay's protocol as far as a load needs it. Channels are spelled a/b everywhere. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>

struct frame {
    bool message;        /* one that was published; otherwise an answer or a notice */
    const char *payload; /* of a message */
    size_t size;
};

struct protocol {
    const char *name;
    bool apart; /* a connection that has subscribed cannot publish */
    /* A connection to "address" that has been greeted. */
    int (*open)(const char *address);
    /* Returns once the subscription is in force. */
    void (*subscribe)(int fd, const char *channel);
    /* Writes what publishes a message, at most FRAME_OVERHEAD bytes longer than channel and payload; its length. */
    size_t (*publish)(char *out, const char *channel, const char *payload, size_t size);
    /* The length of what stands first in the data, 0 if it is not all there yet. */
    size_t (*next)(const char *data, size_t length, struct frame *frame);
};

#define FRAME_OVERHEAD 256

extern const struct protocol bus, nats, redis, mqtt, dbus;

const struct protocol *protocol_of_words(void); /* "protocol" */

/* Of the bus alone: an answer to a control request, which must be there, into a buffer of its own. */
const char *bus_request(int fd, const char *request, size_t size);

/* Reads until `text` has come. */
void await_text(int fd, const char *text);

#endif
