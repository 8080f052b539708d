/* A worker: answers requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
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

static void on_job(bccn_bus *bus, const bccn_message *message, void *user)
{
    struct worker *worker = user;
    size_t size;
    const char *text = bccn_question(message, &size);
    char *answer = text ? malloc(size + 1) : NULL;
    if (!answer)
        return;
    for (size_t i = 0; i < size; i++)
        answer[i] = (char)toupper((unsigned char)text[i]);
    check(bus, bccn_reply(bus, message, answer, size));
    free(answer);

    char health[64];
    snprintf(health, sizeof health, "%lu done", ++worker->done);
    check(bus, bccn_heartbeat_start(bus, 5, health));
}

static void on_directed(bccn_bus *bus, const bccn_message *message, void *user)
{
    struct worker *worker = user;
    (void)bus;
    worker->stopped = message->size == 4 && !memcmp(message->payload, "stop", 4);
}

static void on_notice(const bccn_notice *notice, void *user)
{
    (void)user;
    fprintf(stderr, "worker: %s\n", notice->text);
}

int main(int count, char **words)
{
    bccn_options options = { .full = 1, .wait = 10000 }; /* the format full shows who asks */
    struct worker worker = { 0, 0 };
    bccn_bus *bus;
    int code = bccn_open(&bus, count > 1 ? words[1] : NULL, &options);
    check(bus, code);
    bccn_on_notice(bus, on_notice, NULL);
    check(bus, bccn_listen(bus, "jobs/upper", on_job, &worker));
    check(bus, bccn_listen(bus, "!", on_directed, &worker));
    check(bus, bccn_heartbeat_start(bus, 5, "ready"));
    printf("%s is ready\n", bccn_get_name(bus));
    fflush(stdout);

    /* Any loop around poll, select or epoll works; add other descriptors as needed. */
    struct pollfd ready = { bccn_fd(bus), POLLIN, 0 };
    check(bus, ready.fd);
    while (!worker.stopped) {
        poll(&ready, 1, -1);
        check(bus, bccn_dispatch(bus));
    }
    code = bccn_barrier(bus); /* everything has arrived */
    check(bus, code);
    printf("%lu done\n", worker.done);
    bccn_close(bus);
    return 0;
}
