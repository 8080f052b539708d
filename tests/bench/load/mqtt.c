/* MQTT 3.1.1, QoS 0 (OASIS standard; sections in brackets). */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"

#include <string.h>
#include <unistd.h>

/* [2.2.3] Remaining Length: seven bits a byte, the lowest first. */
static char *put_length(char *out, size_t length)
{
    do {
        *out++ = (length & 127) | (length > 127 ? 128 : 0);
        length >>= 7;
    } while (length);
    return out;
}

/* [1.5.3] Two bytes of length, then the text. */
static char *put_text(char *out, const char *text, size_t size)
{
    *out++ = size >> 8;
    *out++ = size;
    memcpy(out, text, size);
    return out + size;
}

/* [3.1, 3.2] A clean session, no keep-alive, and the client identifier that the broker chooses. */
static int mqtt_open(const char *address)
{
    static const char connect[] = "\x10\x0c\0\4MQTT\4\2\0\0\0";
    char acknowledged[4];
    int fd = connected(address);
    send_all(fd, connect, 14);
    receive_all(fd, acknowledged, sizeof acknowledged);
    if (acknowledged[0] != 0x20 || acknowledged[3])
        fail("MQTT: refused with code %d", acknowledged[3]);
    return fd;
}

/* [3.8, 3.9] */
static void mqtt_subscribe(int fd, const char *channel)
{
    char request[512], acknowledged[5];
    size_t size = strlen(channel);
    *request = (char)0x82;
    char *at = put_length(request + 1, 2 + 2 + size + 1);
    *at++ = 0;
    *at++ = 1;
    at = put_text(at, channel, size);
    *at++ = 0;
    send_all(fd, request, at - request);
    receive_all(fd, acknowledged, sizeof acknowledged);
    if ((unsigned char)acknowledged[0] != 0x90 || acknowledged[4])
        fail("MQTT: subscription refused");
}

/* [3.3] */
static size_t mqtt_publish(char *out, const char *channel, const char *payload, size_t size)
{
    size_t topic = strlen(channel);
    *out = 0x30;
    char *at = put_text(put_length(out + 1, 2 + topic + size), channel, topic);
    memcpy(at, payload, size);
    return at + size - out;
}

static size_t mqtt_next(const char *data, size_t length, struct frame *frame)
{
    size_t remaining = 0, at = 1;
    for (unsigned shift = 0;; shift += 7) {
        if (at >= length)
            return 0;
        unsigned char byte = data[at++];
        remaining |= (size_t)(byte & 127) << shift;
        if (!(byte & 128))
            break;
    }
    if (at + remaining > length)
        return 0;
    *frame = (struct frame){ .message = (data[0] & 0xf0) == 0x30 };
    if (frame->message) {
        size_t topic = (unsigned char)data[at] << 8 | (unsigned char)data[at + 1];
        frame->payload = data + at + 2 + topic;
        frame->size = remaining - 2 - topic;
    }
    return at + remaining;
}

const struct protocol mqtt = { "mqtt", false, mqtt_open, mqtt_subscribe, mqtt_publish, mqtt_next };
