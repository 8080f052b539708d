/* The client protocol of NATS (docs.nats.io, "Client Protocol"). */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int nats_open(const char *address)
{
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\nPING\r\n";
    int fd = connected(address);
    send_all(fd, hello, sizeof hello - 1);
    await_text(fd, "PONG\r\n");
    return fd;
}

static void nats_subscribe(int fd, const char *channel)
{
    char request[512];
    send_all(fd, request, snprintf(request, sizeof request, "SUB %s 1\r\nPING\r\n", channel));
    await_text(fd, "PONG\r\n");
}

static size_t nats_publish(char *out, const char *channel, const char *payload, size_t size)
{
    size_t header = sprintf(out, "PUB %s %zu\r\n", channel, size);
    memcpy(out + header, payload, size);
    memcpy(out + header + size, "\r\n", 2);
    return header + size + 2;
}

/* MSG <subject> <sid> <size> CR LF <payload> CR LF; anything else is a line. */
static size_t nats_next(const char *data, size_t length, struct frame *frame)
{
    const char *line_end = memchr(data, '\n', length);
    if (!line_end)
        return 0;
    size_t header = line_end + 1 - data;
    *frame = (struct frame){ .message = length > 4 && !memcmp(data, "MSG ", 4) };
    if (!frame->message) {
        if (*data == '-')
            fail("NATS: %.*s", (int)header, data);
        return header;
    }
    const char *blank = memrchr(data, ' ', header);
    frame->payload = line_end + 1;
    frame->size = strtoul(blank + 1, NULL, 10);
    size_t whole = header + frame->size + 2;
    return whole <= length ? whole : 0;
}

const struct protocol nats = { "nats", false, nats_open, nats_subscribe, nats_publish, nats_next };
