/* The driver of libbccn for the conformance suite: clients/CONFORMANCE.md describes its commands. */
#define _POSIX_C_SOURCE 200809L
#include "../bccn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS 16
/* Milliseconds between looks at events other than messages. */
#define SLICE 20

struct word {
    char *text; /* ends with a NUL */
    size_t size;
};

struct event {
    bccn_notice_kind kind;
    struct event *next;
};

static bccn_bus *bus;
static bccn_options options;
static char *address, queue[256];
static struct event *events, **events_end = &events;
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

/* --- notices --- */

static void noticed(const bccn_notice *notice, void *user)
{
    (void)user;
    if (notice->kind != BCCN_DISCONNECTED && notice->kind != BCCN_RECONNECTED)
        return;
    struct event *event = calloc(1, sizeof *event);
    event->kind = notice->kind;
    *events_end = event;
    events_end = &event->next;
}

static int next_event(void)
{
    struct event *event = events;
    if (!event)
        return 0;
    int kind = (int)event->kind;
    events = event->next;
    if (!events)
        events_end = &events;
    free(event);
    return kind;
}

/* --- commands --- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int milliseconds(const struct word *seconds)
{
    return (int)(atof(seconds->text) * 1000);
}

static void close_bus(void)
{
    bccn_close(bus);
    bus = NULL;
    while (next_event())
        ;
}

static int open_bus(void)
{
    int code = bccn_open(&bus, address, &options);
    bccn_on_notice(bus, noticed, NULL);
    return code;
}

static void do_open(const struct word *words, int count)
{
    close_bus();
    free(address);
    address = count ? strdup(words[0].text) : NULL;
    if (say(open_bus()))
        say_text(bccn_get_name(bus));
    else
        close_bus();
}

static void say_message(const bccn_message *message)
{
    printf(" msg");
    say_text(message->channel);
    say_word(message->payload, message->size);
    if (message->peer) {
        say_text(message->src);
        printf(" %llu", (unsigned long long)message->seq);
        say_text(message->peer);
        say_text(message->verdict);
    }
}

static void do_recv(const struct word *words, int count)
{
    static bccn_message message;
    static int waits; /* the loss before `message` is printed, and the message not yet; the next recv prints it */
    double end = now() + atof(words[0].text);
    (void)count;
    for (;;) {
        int kind = next_event();
        if (kind) {
            printf("ok %s", kind == BCCN_RECONNECTED ? "reconnected" : "disconnected");
            return;
        }
        double left = (end - now()) * 1000;
        int code = waits ? 1 : bccn_recv(bus, &message, left < 0 ? 0 : left < SLICE ? (int)left : SLICE);
        if (code > 0 && message.lost) {
            printf("ok lost %llu", (unsigned long long)message.lost);
            message.lost = 0;
            waits = 1;
            return;
        }
        if (code < 0 || code > 0) {
            waits = 0;
            if (say(code))
                say_message(&message);
            return;
        }
        if (left <= 0 && !events) {
            printf("ok timeout");
            return;
        }
    }
}

static void do_count(const struct word *words, int count)
{
    unsigned long long wanted = strtoull(words[0].text, NULL, 10), received = 0, lost = 0;
    char last[256] = "";
    int code = 1;
    (void)count;
    while (received < wanted) {
        bccn_message message;
        code = bccn_recv(bus, &message, milliseconds(&words[1]));
        if (code <= 0)
            break;
        received++;
        lost += message.lost;
        snprintf(last, sizeof last, "%.*s", (int)message.size, (const char *)message.payload);
    }
    while (next_event())
        ;
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
        code = bccn_send(bus, words[0].text, payload, digits < size ? size : digits);
    }
    say(code < 0 ? code : bccn_batch_end(bus));
}

static void do_request(const struct word *words, int count)
{
    double end = now() + atof(words[2].text);
    int wanted = count > 3 ? atoi(words[3].text) : 1, answers = 0;
    bccn_message answer;
    int code = bccn_request(bus, words[0].text, words[1].text, words[1].size, &answer, milliseconds(&words[2]));
    while (code > 0) {
        if (!answers++)
            printf("ok");
        say_word(answer.payload, answer.size);
        double left = (end - now()) * 1000;
        code = answers == wanted ? 0 : bccn_next_answer(bus, &answer, left < 0 ? 0 : (int)left);
    }
    if (!answers && code == 0)
        say_error("timeout", "no answer in time");
    else if (!answers)
        say(code);
}

static void do_serve(const struct word *words, int count)
{
    int wanted = atoi(words[0].text), served = 0, code = 1;
    (void)count;
    while (served < wanted && code > 0) {
        bccn_message message;
        size_t size;
        const char *question;
        code = bccn_recv(bus, &message, milliseconds(&words[1]));
        if (code <= 0 || !(question = bccn_question(&message, &size)))
            continue;
        char *answer = malloc(size + 3);
        memcpy(answer, "re:", 3);
        memcpy(answer + 3, question, size);
        code = bccn_reply(bus, &message, answer, size + 3);
        free(answer);
        served++;
        code = code == 0 ? 1 : code;
    }
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
    say_text(bccn_get_name(bus));
}

static void do_name(const struct word *words, int count)
{
    int code = count ? bccn_set_name(bus, words[0].text) : 0;
    if (say(code))
        say_text(bccn_get_name(bus));
}

static void do_sub(const struct word *words, int count)
{
    (void)count;
    say(bccn_subscribe(bus, words[0].text));
}

static void do_unsub(const struct word *words, int count)
{
    (void)count;
    say(bccn_unsubscribe(bus, words[0].text));
}

static void do_listen(const struct word *words, int count)
{
    (void)words, (void)count;
    say(bccn_subscribe(bus, "!"));
}

static void do_heartbeat(const struct word *words, int count)
{
    say(bccn_heartbeat_start(bus, atoi(words[0].text), count > 1 ? words[1].text : NULL));
}

static void do_pub(const struct word *words, int count)
{
    (void)count;
    say(bccn_send(bus, words[0].text, words[1].text, words[1].size));
}

static void do_send_to(const struct word *words, int count)
{
    (void)count;
    say(bccn_send_to(bus, words[0].text, words[1].text, words[1].size));
}

static void do_send_all(const struct word *words, int count)
{
    (void)count;
    say(bccn_send_all(bus, words[0].text, words[0].size));
}

static void do_barrier(const struct word *words, int count)
{
    (void)words, (void)count;
    say(bccn_barrier(bus));
}

static void do_format(const struct word *words, int count)
{
    (void)count;
    options.full = strcmp(words[0].text, "full") == 0;
    say(0);
}

static void do_pack(const struct word *words, int count)
{
    (void)count;
    options.pack = strcmp(words[0].text, "on") == 0;
    say(0);
}

static void do_separator(const struct word *words, int count)
{
    (void)count;
    options.separator = words[0].text[0];
    say(0);
}

static void do_queue(const struct word *words, int count)
{
    size_t used = 0;
    queue[0] = 0;
    for (int i = 0; i < count && used < sizeof queue; i++)
        used += (size_t)snprintf(queue + used, sizeof queue - used, "%s%s", i ? " " : "", words[i].text);
    options.queue = queue;
    say(0);
}

static void do_timeout(const struct word *words, int count)
{
    (void)count;
    options.timeout = (int)(strtod(words[0].text, NULL) * 1000);
    say(0);
}

static void do_unsupported(const struct word *words, int count)
{
    (void)words, (void)count;
    say_error("unsupported", "a call cannot be cancelled");
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
    { "timeout", do_timeout, 1, 1, 0 },   { "cancel", do_unsupported, 2, 2, 0 },
    { "open", do_open, 0, 1, 0 },         { "close", do_close, 0, 0, 0 },
    { "whoami", do_name, 0, 0, 1 },       { "name", do_name, 1, 1, 1 },
    { "sub", do_sub, 1, 1, 1 },           { "unsub", do_unsub, 1, 1, 1 },
    { "listen", do_listen, 0, 0, 1 },     { "heartbeat", do_heartbeat, 1, 2, 1 },
    { "pub", do_pub, 2, 2, 1 },           { "pub-to", do_send_to, 2, 2, 1 },
    { "pub-all", do_send_all, 1, 1, 1 }, { "flood", do_flood, 2, 3, 1 },
    { "barrier", do_barrier, 0, 0, 1 },   { "recv", do_recv, 1, 1, 1 },
    { "count", do_count, 2, 2, 1 },       { "request", do_request, 3, 4, 1 },
    { "serve", do_serve, 2, 2, 1 },       { "fork", do_fork, 1, 1, 1 },
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
    free(address);
    free(line);
    if (forked)
        _exit(0); /* the buffers belong to the parent */
    return 0;
}
