/* The local bus of bccnd, one packet one message; the limit relay understands as much of it as is used here. */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

const char *bus_request(int fd, const char *request, size_t size)
{
    static char answer[4096];
    send_all(fd, request, size);
    size_t length = receive_some(fd, answer, sizeof answer - 1);
    answer[length] = 0;
    if (strncmp(answer, "CMSG ", 5) || !strcmp(answer, "CMSG error"))
        fail("%s: answered by %s %s", request, answer, answer + strlen(answer) + 1);
    return answer + strlen(answer) + 1; /* behind the NUL; an empty text where there is none */
}

static int bus_open(const char *address)
{
    return connected(address);
}

static void bus_subscribe(int fd, const char *channel)
{
    char packet[2048];
    send_all(fd, packet, snprintf(packet, sizeof packet, "SUB %s", channel));
    bus_request(fd, "CMSG ping", 9);
}

static size_t bus_publish(char *out, const char *channel, const char *payload, size_t size)
{
    size_t header = sprintf(out, "MSG %s", channel) + 1;
    memcpy(out + header, payload, size);
    return header + size;
}

static size_t bus_next(const char *data, size_t length, struct frame *frame)
{
    if (!length)
        return 0;
    const char *nul = memchr(data, 0, length);
    *frame = (struct frame){ .message = nul && !memcmp(data, "MSG ", 4) };
    if (frame->message) {
        frame->payload = nul + 1;
        frame->size = data + length - frame->payload;
    }
    return length;
}

const struct protocol bus = { "bus", false, bus_open, bus_subscribe, bus_publish, bus_next };
