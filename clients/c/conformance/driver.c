/* The driver of libbccn for the conformance suite: clients/CONFORMANCE.md describes its commands. */
#define _POSIX_C_SOURCE 200809L
#include "../bccn.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS 16
/* Requests that one serve replies to later. */
#define LATER 16
/* Milliseconds between looks at events other than messages. */
#define SLICE 20

struct word {
    char *text; /* ends with a NUL */
    size_t size;
};

/* What comes before the next message of the stream: a gap, a call, news of a watch, or a notice. */
struct event {
    const char *word;      /* a constant */
    uint64_t count;        /* of a gap; of a watch, whether it is wanted */
    bccn_message *message; /* of a call */
    char *pattern;         /* of a watch */
    struct event *next;
};

static bccn_bus *bus;
static bccn_options options = BCCN_OPTIONS_INIT;
static char *address;
static struct event *events, **events_end = &events;
static const bccn_message *held; /* came with the events, and is printed after them */
static uint64_t held_lost;
static bccn_message *shown;  /* the last one that was printed */
static char *notices;        /* " KIND COUNT CODE" of each that nobody has asked for yet */
static int reports;          /* notices go where they go by default */
static bccn_message *later[LATER];
static int later_count;
static int forked; /* this is a child of fork, whose exit the parent answers */

/* --- lines --- */

static int hex(char digit)
{
    return digit >= 'A' ? digit - 'A' + 10 : digit - '0';
}

/* Decodes in place, since decoding only shortens a word. */
static struct word decoded(char *text)
{
    char *out = text;
    for (const char *at = strcmp(text, "%") ? text : ""; *at; at++) {
        if (*at == '%' && at[1] && at[2]) {
            *out++ = (char)(hex(at[1]) * 16 + hex(at[2]));
            at += 2;
        } else {
            *out++ = *at;
        }
    }
    *out = 0;
    return (struct word){ text, (size_t)(out - text) };
}

static void say_word(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    putchar(' ');
    if (size == 0)
        putchar('%');
    for (size_t i = 0; i < size; i++)
        if (at[i] > ' ' && at[i] <= '~' && at[i] != '%')
            putchar(at[i]);
        else
            printf("%%%02X", at[i]);
}

static void say_text(const char *text)
{
    say_word(text, strlen(text));
}

static void say_error(const char *code, const char *text)
{
    printf("error %s", code);
    say_text(text);
}

/* Prints "ok" or the error, and returns whether it was "ok" and words may follow. */
static int say(int code)
{
    if (code < 0)
        say_error(bccn_code_word(code), bccn_error_text(bus));
    else
        printf("ok");
    return code >= 0;
}

static void usage(const char *text)
{
    say_error("usage", text);
}

/* --- events --- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct event *add_event(const char *word, uint64_t count, bccn_message *message)
{
    struct event *event = calloc(1, sizeof *event);
    *event = (struct event){ .word = word, .count = count, .message = message };
    *events_end = event;
    events_end = &event->next;
    return event;
}

static void noticed(const bccn_notice *notice, void *user)
{
    static const char *const kinds[] = { "?",      "lost",         "rejected",    "revoked",
                                         "closing", "disconnected", "reconnected", "unclaimed" };
    size_t size = notices ? strlen(notices) : 0;
    (void)user;
    notices = realloc(notices, size + 80);
    snprintf(notices + size, 80, " %s %llu %s", kinds[notice->kind], (unsigned long long)notice->count,
             notice->code ? bccn_code_word(notice->code) : "%");
    if (notice->kind == BCCN_NOTICE_DISCONNECTED)
        add_event("disconnected", 0, NULL);
    if (notice->kind == BCCN_NOTICE_RECONNECTED)
        add_event("reconnected", 0, NULL);
}

/* Ends the bccn_receive that calls it: this is an event, whose word it gets. */
static int called(bccn_bus *by, const bccn_message *message, void *word)
{
    (void)by;
    if (message->lost)
        add_event("lost", message->lost, NULL);
    add_event(word, 0, bccn_message_copy(message));
    return 1;
}

static int told(bccn_bus *by, const char *pattern, int wanted, void *user)
{
    (void)by, (void)user;
    add_event("wanted", (uint64_t)wanted, NULL)->pattern = strdup(pattern);
    return 1;
}

static void say_message(const char *word, const bccn_message *message)
{
    bccn_message_free(shown);
    shown = bccn_message_copy(message);
    printf("ok %s", word);
    say_text(message->channel);
    say_word(message->payload, message->size);
    if (message->peer) {
        say_text(message->src ? message->src : "");
        printf(" %llu", (unsigned long long)message->seq);
        say_text(message->peer);
        say_text(message->verdict);
    }
}

static void drop_event(void)
{
    struct event *event = events;
    events = event->next;
    if (!events)
        events_end = &events;
    bccn_message_free(event->message);
    free(event->pattern);
    free(event);
}

static void say_event(void)
{
    const struct event *event = events;
    if (event->message) {
        say_message(event->word, event->message);
    } else if (event->pattern) {
        printf("ok %s", event->word);
        say_text(event->pattern);
        printf(event->count ? " yes" : " no");
    } else if (event->count) {
        printf("ok %s %llu", event->word, (unsigned long long)event->count);
    } else {
        printf("ok %s", event->word);
    }
    drop_event();
}

/* The next message of the stream, or what happens before it. 1: there is some; 0: not in time; or a code. */
static int wait_for_event(double seconds)
{
    double end = now() + seconds;
    while (!events && !held) {
        double left = (end - now()) * 1000;
        int code = bccn_receive(bus, &held, left < 0 ? 0 : left < SLICE ? (int)left : SLICE);
        if (code > 0)
            held_lost = held->lost;
        if (code < 0 && code != BCCN_E_STOPPED)
            return code;
        if (code == 0 && left <= 0 && !events)
            return 0;
    }
    return 1;
}

/* --- commands --- */

static int milliseconds(const struct word *seconds)
{
    return (int)(atof(seconds->text) * 1000);
}

static void close_bus(void)
{
    bccn_close(bus);
    bus = NULL;
    held = NULL;
    while (events)
        drop_event();
    bccn_message_free(shown);
    shown = NULL;
    free(notices);
    notices = NULL;
}

static int open_bus(void)
{
    options.on_notice = reports ? bccn_print_notice : noticed;
    return bccn_open(&bus, address, &options);
}

static void do_open(const struct word *words, int count)
{
    close_bus();
    free(address);
    address = count ? strdup(words[0].text) : NULL;
    if (say(open_bus()))
        say_text(bccn_name(bus));
    else
        close_bus();
}

static void do_recv(const struct word *words, int count)
{
    (void)count;
    int code = wait_for_event(atof(words[0].text));
    if (code < 0) {
        say(code);
    } else if (events) {
        say_event();
    } else if (held && held_lost) {
        printf("ok lost %llu", (unsigned long long)held_lost);
        held_lost = 0;
    } else if (held) {
        say_message("msg", held);
        held = NULL;
    } else {
        printf("ok timeout");
    }
}

static void do_await(const struct word *words, int count)
{
    int code = 0;
    (void)words, (void)count;
    do
        code = bccn_receive(bus, &held, -1);
    while (code == BCCN_E_STOPPED);
    if (code < 0)
        say(code);
    else
        say_message("msg", held);
    held = NULL;
}

static void do_origin(const struct word *words, int count)
{
    (void)words, (void)count;
    if (!shown || !shown->datagram) {
        usage("no message of the format full was printed");
        return;
    }
    printf("ok %llu", (unsigned long long)shown->time_ns);
    say_word(shown->datagram, shown->datagram_size);
    if (shown->interface)
        say_text(shown->interface);
}

static void do_dispatch(const struct word *words, int count)
{
    int code;
    (void)words, (void)count;
    do
        code = bccn_dispatch(bus);
    while (code == BCCN_E_STOPPED);
    say(code);
}

static void do_poll(const struct word *words, int count)
{
    struct pollfd descriptor = { .fd = bccn_fileno(bus), .events = POLLIN };
    (void)count;
    if (say(descriptor.fd))
        printf(" %d %s", descriptor.fd, poll(&descriptor, 1, milliseconds(&words[0])) > 0 ? "yes" : "no");
}

static void do_notices(const struct word *words, int count)
{
    (void)words, (void)count;
    printf("ok%s", notices ? notices : "");
    free(notices);
    notices = NULL;
}

static void do_count(const struct word *words, int count)
{
    unsigned long long wanted = strtoull(words[0].text, NULL, 10), received = 0, lost = 0;
    char last[256] = "";
    int code = 1;
    (void)count;
    while (received < wanted && (code = wait_for_event(atof(words[1].text))) > 0) {
        while (events)
            drop_event();
        if (!held)
            continue;
        received++;
        lost += held_lost;
        snprintf(last, sizeof last, "%.*s", (int)held->size, (const char *)held->payload);
        held = NULL;
    }
    if (say(code)) {
        printf(" %llu %llu", received, lost);
        say_text(last);
    }
}

static void do_flood(const struct word *words, int count)
{
    static char payload[1 << 16];
    int code = bccn_batch_begin(bus);
    long messages = atol(words[1].text);
    size_t size = count > 2 ? (size_t)atol(words[2].text) : 0;
    for (long i = 1; i <= messages && code >= 0; i++) {
        size_t digits = (size_t)snprintf(payload, sizeof payload, "%ld", i);
        if (digits < size)
            memset(payload + digits, '.', size - digits);
        code = bccn_publish(bus, words[0].text, payload, digits < size ? size : digits);
    }
    say(code < 0 ? code : bccn_batch_end(bus));
}

static void do_request(const struct word *words, int count)
{
    const bccn_message *reply;
    const struct word *question = &words[1];
    int timeout = milliseconds(&words[2]), many = count > 3, code;
    if (many)
        code = bccn_request_many(bus, words[0].text, question->text, question->size, timeout, atoi(words[3].text));
    else
        code = bccn_request(bus, words[0].text, question->text, question->size, &reply, timeout);
    if (many && code == 0)
        code = bccn_next_reply(bus, &reply);
    if (!say(code))
        return;
    for (; code > 0; code = many ? bccn_next_reply(bus, &reply) : 0)
        say_word(reply->payload, reply->size);
}

static int reply(bccn_bus *to, const bccn_message *request, const void *question, size_t size, void *user)
{
    char *text = malloc(size + 3);
    memcpy(text, "re:", 3);
    memcpy(text + 3, question, size);
    int code = bccn_reply(to, request, text, size + 3);
    free(text);
    ++*(int *)user;
    return code < 0 ? code : 1;
}

/* Keeps a request: it is replied to when this has returned. */
static int keep(bccn_bus *to, const bccn_message *request, const void *question, size_t size, void *user)
{
    (void)to, (void)question, (void)size, (void)user;
    if (later_count < LATER)
        later[later_count++] = bccn_message_copy(request);
    return 1;
}

static int reply_later(int *served)
{
    int code = 0;
    while (later_count) {
        size_t size;
        bccn_message *request = later[--later_count];
        const void *question = bccn_question(request, &size);
        code = reply(bus, request, question, size, served);
        bccn_message_free(request);
    }
    return code;
}

static void do_serve(const struct word *words, int count)
{
    int wanted = atoi(words[0].text), served = 0, before;
    int code = count > 2 ? bccn_serve(bus, words[2].text, count > 3 ? keep : reply, &served) : 0;
    do {
        const bccn_message *message;
        const void *question;
        size_t size;
        before = served;
        if (code < 0 || served == wanted)
            break;
        code = bccn_receive(bus, &message, milliseconds(&words[1]));
        if (code > 0 && count == 2 && (question = bccn_question(message, &size)))
            code = reply(bus, message, question, size, &served);
        if (code == BCCN_E_STOPPED)
            code = 1;
        if (later_count)
            code = reply_later(&served);
    } while (code > 0 || served > before);
    if (count > 2 && code >= 0)
        code = bccn_unsubscribe(bus, words[2].text);
    if (say(code))
        printf(" %d", served);
}

/* The child answers the command and goes on with the script; the parent answers the exit of the child. */
static void do_fork(const struct word *words, int count)
{
    (void)count;
    fflush(stdout);
    pid_t child = fork();
    if (child > 0) {
        int status = 0;
        waitpid(child, &status, 0);
        printf("ok %d", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        return;
    }
    forked = 1;
    int code = 0;
    if (words[0].text[0] == 'A') {
        close_bus();
        code = open_bus();
    }
    if (!say(code))
        return;
    printf(" %ld", (long)getpid());
    say_text(bccn_name(bus));
}

static void do_name(const struct word *words, int count)
{
    int code = count ? bccn_set_name(bus, words[0].text) : 0;
    if (say(code))
        say_text(bccn_name(bus));
}

static void do_sub(const struct word *words, int count)
{
    (void)count;
    say(bccn_subscribe(bus, words[0].text, NULL, NULL));
}

static void do_callback(const struct word *words, int count)
{
    (void)count;
    say(bccn_subscribe(bus, words[0].text, called, "call"));
}

static void do_unsub(const struct word *words, int count)
{
    (void)count;
    say(bccn_unsubscribe(bus, words[0].text));
}

static void do_listen(const struct word *words, int count)
{
    const char *word = count && !strcmp(words[0].text, "second") ? "second" : "first";
    say(bccn_listen(bus, count ? called : NULL, (void *)word));
}

static void do_watch(const struct word *words, int count)
{
    (void)count;
    say(bccn_watch(bus, words[0].text, told, NULL));
}

static void do_unwatch(const struct word *words, int count)
{
    (void)count;
    say(bccn_unwatch(bus, words[0].text));
}

static void do_lost(const struct word *words, int count)
{
    (void)words, (void)count;
    printf("ok %llu", (unsigned long long)bccn_lost(bus));
}

static void do_version(const struct word *words, int count)
{
    (void)words, (void)count;
    printf("ok %s", bccn_version());
}

static void do_control(const struct word *words, int count)
{
    const char *answer;
    if (say(bccn_control(bus, words[0].text, count > 1 ? words[1].text : NULL, &answer)))
        say_text(answer);
}

static void do_matches(const struct word *words, int count)
{
    (void)count;
    printf("ok %s", bccn_matches(words[0].text, words[1].text, words[2].text[0]) ? "yes" : "no");
}

static void say_json(int code, const char *json)
{
    if (say(code))
        say_text(json);
}

static void do_status(const struct word *words, int count)
{
    const char *json;
    int code = bccn_status(bus, &json);
    (void)words, (void)count;
    say_json(code, json);
}

static void do_clients(const struct word *words, int count)
{
    const char *json;
    int code = bccn_clients(bus, &json);
    (void)words, (void)count;
    say_json(code, json);
}

static void do_sources(const struct word *words, int count)
{
    const char *json;
    int code = bccn_sources(bus, &json);
    (void)words, (void)count;
    say_json(code, json);
}

static void do_datagram(const struct word *words, int count)
{
    (void)count;
    say(bccn_send_datagram(bus, words[0].text, words[0].size));
}

static void do_heartbeat(const struct word *words, int count)
{
    say(bccn_heartbeat(bus, atoi(words[0].text), count > 1 ? words[1].text : NULL));
}

static void do_pub(const struct word *words, int count)
{
    (void)count;
    say(bccn_publish(bus, words[0].text, words[1].text, words[1].size));
}

static void do_publish_to(const struct word *words, int count)
{
    (void)count;
    say(bccn_publish_to(bus, words[0].text, words[1].text, words[1].size));
}

static void do_publish_all(const struct word *words, int count)
{
    (void)count;
    say(bccn_publish_all(bus, words[0].text, words[0].size));
}

static void do_barrier(const struct word *words, int count)
{
    (void)words, (void)count;
    say(bccn_barrier(bus));
}

static void do_format(const struct word *words, int count)
{
    (void)count;
    options.format = strcmp(words[0].text, "full") ? BCCN_FORMAT_PLAIN : BCCN_FORMAT_FULL;
    say(0);
}

static void do_pack(const struct word *words, int count)
{
    (void)count;
    options.pack = strcmp(words[0].text, "on") == 0;
    say(0);
}

static void do_echo(const struct word *words, int count)
{
    (void)count;
    options.echo = strcmp(words[0].text, "on") == 0;
    say(0);
}

static void do_reconnect(const struct word *words, int count)
{
    (void)count;
    options.reconnect = strcmp(words[0].text, "on") == 0;
    say(0);
}

static void do_tap(const struct word *words, int count)
{
    const char *word = words[0].text;
    (void)count;
    options.tap = !strcmp(word, "off") ? BCCN_TAP_OFF : !strcmp(word, "on") ? BCCN_TAP_ON : BCCN_TAP_INTERFACE;
    say(0);
}

static void do_separator(const struct word *words, int count)
{
    (void)count;
    options.separator = words[0].text[0];
    say(0);
}

static bccn_policy policy_of(const char *word)
{
    static const char *const words[] = { "drop-oldest", "drop-newest", "block", "disconnect" };
    int i = 0;
    while (i < 4 && strcmp(words[i], word))
        i++;
    return (bccn_policy)(BCCN_POLICY_DROP_OLDEST + i); /* bccn_open refuses the one behind the last */
}

static void do_queue(const struct word *words, int count)
{
    options.queue_packets = 0;
    options.queue_bytes = 0;
    options.queue_policy = BCCN_POLICY_DEFAULT;
    for (int i = 0; i < count; i++) {
        const char *value = words[i].text + strcspn(words[i].text, "=");
        value += *value != 0;
        if (words[i].text[0] == 'b')
            options.queue_bytes = strtoul(value, NULL, 10);
        else if (value - words[i].text == 8)
            options.queue_packets = (unsigned)strtoul(value, NULL, 10);
        else
            options.queue_policy = policy_of(value);
    }
    say(0);
}

static void do_timeout(const struct word *words, int count)
{
    (void)count;
    options.timeout = (int)(strtod(words[0].text, NULL) * 1000);
    say(0);
}

static void do_wait(const struct word *words, int count)
{
    (void)count;
    options.wait = milliseconds(&words[0]);
    say(0);
}

static void do_as(const struct word *words, int count)
{
    (void)count;
    free((char *)options.name);
    options.name = strdup(words[0].text);
    say(0);
}

static void do_report(const struct word *words, int count)
{
    (void)count;
    reports = strcmp(words[0].text, "on") == 0;
    say(0);
}

static void do_unsupported(const struct word *words, int count)
{
    (void)words, (void)count;
    say_error("unsupported", "not in C");
}

static void do_close(const struct word *words, int count)
{
    (void)words, (void)count;
    close_bus();
    say(0);
}

static const struct {
    const char *name;
    void (*function)(const struct word *words, int count);
    int least, most, open;
} commands[] = {
    { "format", do_format, 1, 1, 0 },     { "pack", do_pack, 1, 1, 0 },
    { "separator", do_separator, 1, 1, 0 }, { "queue", do_queue, 1, 3, 0 },
    { "timeout", do_timeout, 1, 1, 0 },   { "echo", do_echo, 1, 1, 0 },
    { "reconnect", do_reconnect, 1, 1, 0 }, { "tap", do_tap, 1, 1, 0 },
    { "wait", do_wait, 1, 1, 0 },         { "as", do_as, 1, 1, 0 },
    { "report", do_report, 1, 1, 0 },     { "matches", do_matches, 3, 3, 0 },
    { "ask", do_unsupported, 2, 2, 0 },   { "control", do_control, 1, 2, 1 },
    { "await", do_await, 0, 0, 1 },       { "origin", do_origin, 0, 0, 1 },
    { "dispatch", do_dispatch, 0, 0, 1 }, { "poll", do_poll, 1, 1, 1 },
    { "notices", do_notices, 0, 0, 1 },   { "cancel", do_unsupported, 2, 2, 0 }, { "stream", do_unsupported, 1, 1, 0 },
    { "take", do_unsupported, 2, 2, 0 },  { "version", do_version, 0, 0, 0 },
    { "open", do_open, 0, 1, 0 },         { "close", do_close, 0, 0, 0 },
    { "whoami", do_name, 0, 0, 1 },       { "name", do_name, 1, 1, 1 },
    { "sub", do_sub, 1, 1, 1 },           { "unsub", do_unsub, 1, 1, 1 },
    { "callback", do_callback, 1, 1, 1 }, { "lost", do_lost, 0, 0, 1 },
    { "status", do_status, 0, 0, 1 },     { "clients", do_clients, 0, 0, 1 },
    { "sources", do_sources, 0, 0, 1 },   { "datagram", do_datagram, 1, 1, 1 },
    { "watch", do_watch, 1, 1, 1 },       { "unwatch", do_unwatch, 1, 1, 1 },
    { "listen", do_listen, 0, 1, 1 },     { "heartbeat", do_heartbeat, 1, 2, 1 },
    { "pub", do_pub, 2, 2, 1 },           { "pub-to", do_publish_to, 2, 2, 1 },
    { "pub-all", do_publish_all, 1, 1, 1 }, { "flood", do_flood, 2, 3, 1 },
    { "barrier", do_barrier, 0, 0, 1 },   { "recv", do_recv, 1, 1, 1 },
    { "count", do_count, 2, 2, 1 },       { "request", do_request, 3, 4, 1 },
    { "serve", do_serve, 2, 4, 1 },       { "fork", do_fork, 1, 1, 1 },
};

static void obey(const char *name, const struct word *words, int count)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        if (count < commands[i].least || count > commands[i].most)
            usage("wrong number of arguments");
        else if (commands[i].open && !bus)
            say_error("closed", "there is no open client");
        else
            commands[i].function(words, count);
        return;
    }
    usage("no such command");
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    setvbuf(stdin, NULL, _IONBF, 0); /* a child goes on reading where its parent stopped, and the other way round */
    while (getline(&line, &room, stdin) >= 0) {
        struct word words[WORDS];
        int count = 0;
        char *save, *name = strtok_r(line, " \n", &save), *text;
        while (name && count < WORDS && (text = strtok_r(NULL, " \n", &save)))
            words[count++] = decoded(text);
        if (name && strcmp(name, "exit") == 0)
            break;
        obey(name ? name : "", words, count);
        putchar('\n');
        fflush(stdout);
    }
    close_bus();
    free((char *)options.name);
    free(address);
    free(line);
    if (forked)
        _exit(0); /* the buffers belong to the parent */
    return 0;
}
