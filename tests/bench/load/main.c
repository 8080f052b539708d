/* usage: load ROLE NAME=VALUE... */
#define _GNU_SOURCE
#include "load.h"
#include "protocol.h"
#include "roles.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

static const struct {
    const char *name;
    void (*run)(void);
} roles[] = {
    { "packets-publish", packets_publish },
    { "packets-subscribe", packets_subscribe },
    { "stream-publish", stream_publish },
    { "stream-subscribe", stream_subscribe },
    { "ping", ping },
    { "echo", echo },
    { "churn", churn },
    { "datagrams-send", datagrams_send },
    { "datagrams-receive", datagrams_receive },
    { "door-subscribe", door_subscribe },
    { "door-publish", door_publish },
    { "door-late", door_late },
    { "fyrehose-publish", fyrehose_publish },
    { "fyrehose-subscribe", fyrehose_subscribe },
};

const struct protocol *protocol_of_words(void)
{
    static const struct protocol *const known[] = { &bus, &nats, &redis, &mqtt, &dbus };
    const char *name = word("protocol", NULL);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i]->name))
            return known[i];
    fail("protocol=%s: not known", name);
}

void await_text(int fd, const char *text)
{
    char data[8192];
    for (size_t held = 0; !held || !memmem(data, held, text, strlen(text));) {
        if (held == sizeof data)
            fail("no %s in %zu bytes", text, held);
        held += receive_some(fd, data + held, sizeof data - held);
    }
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1UL);
    errno = 0;
    if (argc < 2) {
        fputs("usage: load ROLE NAME=VALUE...\n", stderr);
        return 2;
    }
    take_words(argc - 2, argv + 2);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(argv[1], roles[i].name)) {
            roles[i].run();
            return 0;
        }
    fail("%s: not a role", argv[1]);
}
