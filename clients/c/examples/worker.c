/* A worker: replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
 * somebody sends it "stop".
 *
 *     cc -o worker worker.c $(pkg-config --cflags --libs bccn)
 *     ./worker &
 *     bccn req jobs/upper 'hello there'
 */
#include "bccn.h"

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    unsigned long done;
    int stopped;
};

static void check(bccn_bus *bus, int code)
{
    if (code < 0) {
        fprintf(stderr, "worker: %s\n", bccn_error_text(bus));
        exit(1);
    }
}

static int on_job(bccn_bus *bus, const bccn_message *request, const void *question, size_t size, void *user)
{
    struct worker *worker = user;
    const unsigned char *text = question;
    char health[64], *reply = malloc(size + 1);
    if (!reply)
        return BCCN_E_MEMORY; /* ends bccn_dispatch, which returns it */
    for (size_t i = 0; i < size; i++)
        reply[i] = (char)toupper(text[i]);
    int code = bccn_reply(bus, request, reply, size);
    free(reply);
    if (code < 0)
        return code;
    snprintf(health, sizeof health, "%lu done", ++worker->done);
    return bccn_heartbeat(bus, 5, health);
}

static int on_directed(bccn_bus *bus, const bccn_message *message, void *user)
{
    struct worker *worker = user;
    (void)bus;
    worker->stopped |= message->size == 4 && !memcmp(message->payload, "stop", 4);
    return 0;
}

int main(int count, char **words)
{
    bccn_options options = BCCN_OPTIONS_INIT;
    struct worker worker = { 0, 0 };
    bccn_bus *bus;
    options.format = BCCN_FORMAT_FULL; /* it shows who asks */
    options.wait = 10000;
    int code = bccn_open(&bus, count > 1 ? words[1] : NULL, &options);
    check(bus, code);
    check(bus, bccn_serve(bus, "jobs/upper", on_job, &worker));
    check(bus, bccn_listen(bus, on_directed, &worker));
    check(bus, bccn_heartbeat(bus, 5, "ready"));
    printf("%s is ready\n", bccn_name(bus));
    fflush(stdout);

    /* Any loop around poll, select or epoll works; add other descriptors as needed. */
    struct pollfd ready = { bccn_fileno(bus), POLLIN, 0 };
    check(bus, ready.fd);
    while (!worker.stopped) {
        poll(&ready, 1, -1);
        check(bus, bccn_dispatch(bus));
    }
    check(bus, bccn_barrier(bus)); /* everything has arrived */
    printf("%lu done\n", worker.done);
    bccn_close(bus);
    return 0;
}
