/* Signals of D-Bus (D-Bus Specification; sections in brackets). A channel is an object path, a payload an "ay". */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { METHOD_CALL = 1, METHOD_RETURN = 2, ERROR = 3, SIGNAL = 4 };             /* [Message Format] */
enum { PATH = 1, INTERFACE = 2, MEMBER = 3, DESTINATION = 6, SIGNATURE = 8 };   /* [Header Fields] */

#define FIXED_HEADER 16 /* up to and with the length of the array of header fields */

static uint32_t number_at(const char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static size_t aligned(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

/* [Marshaling] A header field: its code, a variant of type s, o or g. Each begins at a multiple of eight. */
static size_t put_field(char *message, size_t at, int code, char type, const char *text)
{
    size_t begin = aligned(at), size = strlen(text);
    memset(message + at, 0, begin - at);
    char *field = message + begin;
    *field++ = code;
    *field++ = 1;
    *field++ = type;
    *field++ = 0;
    if (type == 'g')
        *field++ = size;
    else
        field = (char *)memcpy(field, &(uint32_t){ size }, 4) + 4;
    memcpy(field, text, size + 1);
    return field + size + 1 - message;
}

/* Closes the header, which has grown to `at`; returns where the body begins. */
static size_t put_header(char *message, size_t at, int type, uint32_t body)
{
    const char fixed[4] = { 'l', type, type == SIGNAL, 1 }; /* little endian; a signal expects no reply */
    memcpy(message, fixed, sizeof fixed);
    memcpy(message + 4, &body, 4);
    memcpy(message + 8, &(uint32_t){ 1 }, 4); /* the serial: no two calls wait for replies at once */
    memcpy(message + 12, &(uint32_t){ at - FIXED_HEADER }, 4);
    memset(message + at, 0, aligned(at) - at);
    return aligned(at);
}

/* The length of the message, 0 if it is not all there. */
static size_t length_of(const char *data, size_t length)
{
    if (length < FIXED_HEADER)
        return 0;
    if (*data != 'l')
        fail("D-Bus: a message that is not little endian");
    size_t whole = aligned(FIXED_HEADER + number_at(data + 12)) + number_at(data + 4);
    return whole <= length ? whole : 0;
}

/* Calls a method of the bus itself and waits for its return; `text` is its one argument, or NULL. */
static void call_bus(int fd, const char *member, const char *text)
{
    char message[1024];
    size_t at = put_field(message, FIXED_HEADER, PATH, 'o', "/org/freedesktop/DBus");
    at = put_field(message, at, INTERFACE, 's', "org.freedesktop.DBus");
    at = put_field(message, at, MEMBER, 's', member);
    at = put_field(message, at, DESTINATION, 's', "org.freedesktop.DBus");
    if (text)
        at = put_field(message, at, SIGNATURE, 'g', "s");
    uint32_t body = text ? 4 + strlen(text) + 1 : 0;
    at = put_header(message, at, METHOD_CALL, body);
    if (text) {
        memcpy(message + at, &(uint32_t){ strlen(text) }, 4);
        memcpy(message + at + 4, text, strlen(text) + 1);
    }
    send_all(fd, message, at + body);
    for (char type = SIGNAL; type != METHOD_RETURN;) { /* signals to us come in between */
        receive_all(fd, message, FIXED_HEADER);
        size_t rest = aligned(FIXED_HEADER + number_at(message + 12)) + number_at(message + 4) - FIXED_HEADER;
        if (rest > sizeof message - FIXED_HEADER)
            fail("D-Bus: an answer of %zu bytes", rest);
        receive_all(fd, message + FIXED_HEADER, rest);
        type = message[1];
        if (type == ERROR)
            fail("D-Bus: %s refused: %.*s", member, (int)number_at(message + 4) - 4,
                 message + FIXED_HEADER + rest - number_at(message + 4));
    }
}

/* [Authentication Protocol, EXTERNAL] The user id, its decimal digits in hexadecimal. */
static int dbus_open(const char *address)
{
    char uid[16], hello[64] = "";
    size_t at = 1 + sprintf(hello + 1, "AUTH EXTERNAL "), digits = sprintf(uid, "%u", getuid());
    for (size_t i = 0; i < digits; i++)
        at += sprintf(hello + at, "%02x", uid[i]);
    at += sprintf(hello + at, "\r\n");
    int fd = connected(address);
    send_all(fd, hello, at);
    await_text(fd, "\r\n");
    send_all(fd, "BEGIN\r\n", 7);
    call_bus(fd, "Hello", NULL);
    return fd;
}

static void dbus_subscribe(int fd, const char *channel)
{
    char rule[512];
    snprintf(rule, sizeof rule, "type='signal',interface='bench.Load',path='/%s'", channel);
    call_bus(fd, "AddMatch", rule);
}

static size_t dbus_publish(char *out, const char *channel, const char *payload, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "/%s", channel);
    size_t at = put_field(out, FIXED_HEADER, PATH, 'o', path);
    at = put_field(out, at, INTERFACE, 's', "bench.Load");
    at = put_field(out, at, MEMBER, 's', "Message");
    at = put_field(out, at, SIGNATURE, 'g', "ay");
    at = put_header(out, at, SIGNAL, 4 + size);
    memcpy(out + at, &(uint32_t){ size }, 4);
    memcpy(out + at + 4, payload, size);
    return at + 4 + size;
}

static size_t dbus_next(const char *data, size_t length, struct frame *frame)
{
    size_t whole = length_of(data, length);
    if (!whole)
        return 0;
    *frame = (struct frame){ .message = data[1] == SIGNAL };
    if (frame->message) {
        frame->size = number_at(data + 4) - 4;
        frame->payload = data + whole - frame->size;
    }
    return whole;
}

const struct protocol dbus = { "dbus", false, dbus_open, dbus_subscribe, dbus_publish, dbus_next };
