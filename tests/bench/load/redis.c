/* Publish and subscribe of Redis in RESP2 (redis.io, "Redis serialization protocol"). */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int redis_open(const char *address)
{
    return connected(address);
}

static void redis_subscribe(int fd, const char *channel)
{
    char request[512];
    int size = snprintf(request, sizeof request, "*2\r\n$9\r\nSUBSCRIBE\r\n$%zu\r\n%s\r\n", strlen(channel), channel);
    send_all(fd, request, size);
    await_text(fd, ":1\r\n");
}

static size_t redis_publish(char *out, const char *channel, const char *payload, size_t size)
{
    size_t header =
        sprintf(out, "*3\r\n$7\r\nPUBLISH\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(channel), channel, size);
    memcpy(out + header, payload, size);
    memcpy(out + header + size, "\r\n", 2);
    return header + size + 2;
}

/* The number of a line "<sign><number> CR LF" at *at, which moves behind it; -1 if it is not all there. */
static long line_number(const char **at, const char *end)
{
    const char *line_end = memchr(*at, '\n', end - *at);
    if (!line_end)
        return -1;
    long value = strtol(*at + 1, NULL, 10);
    *at = line_end + 1;
    return value;
}

/* A message is an array of three: "message", channel, payload. Answers are single lines: ":<receivers>". */
static size_t redis_next(const char *data, size_t length, struct frame *frame)
{
    const char *at = data, *end = data + length;
    if (length && *data == '-')
        fail("Redis: %.*s", (int)length, data);
    long parts = line_number(&at, end);
    if (parts < 0)
        return 0;
    *frame = (struct frame){ .message = *data == '*' };
    for (long i = 0; frame->message && i < parts; i++) {
        long size = at < end ? line_number(&at, end) : -1;
        if (size < 0 || end - at < size + 2)
            return 0;
        frame->payload = at;
        frame->size = size;
        at += size + 2;
    }
    return at - data;
}

const struct protocol redis = { "redis", true, redis_open, redis_subscribe, redis_publish, redis_next };
