/* Checks libbccn against the golden vectors: reads the lines of vector_lines.py, and prints only differences.
 *
 * The connection of the bus is one end of a socket pair; this program writes and reads at the other.
 */
#include "../bccn.c"

#define WORDS 64

struct bytes {
    unsigned char *at;
    size_t size;
};

static int lines, wrong, daemon_end;
static bccn_bus *bus;

static void differs(const char *line, const char *what)
{
    printf("%.200s: %s\n", line, what);
    wrong++;
}

/* Decodes hex or "-" in place, and adds a NUL. */
static struct bytes bytes_of(char *word)
{
    struct bytes bytes = { (unsigned char *)word, 0 };
    for (const char *at = word; *at && *at != '-'; at += 2) {
        char digits[3] = { at[0], at[1], 0 };
        bytes.at[bytes.size++] = (unsigned char)strtoul(digits, NULL, 16);
    }
    bytes.at[bytes.size] = 0;
    return bytes;
}

static int same(const void *found, size_t size, struct bytes expected)
{
    return size == expected.size && (size == 0 || !memcmp(found, expected.at, size));
}

static int same_text(const char *found, char *expected)
{
    struct bytes bytes = bytes_of(expected);
    return found && same(found, strlen(found), bytes);
}

static void match(const char *line, char **words)
{
    char separator = (char)bytes_of(words[0]).at[0];
    int found = bccn_matches((char *)bytes_of(words[1]).at, (char *)bytes_of(words[2]).at, separator);
    if (found != !strcmp(words[3], "yes"))
        differs(line, found ? "matches" : "does not match");
}

static void sends(const char *line, char **words)
{
    unsigned char packet[PACKET_LIMIT];
    struct bytes expected = bytes_of(words[0]), channel = bytes_of(words[1]), payload = bytes_of(words[2]);
    if (strlen((char *)channel.at) != channel.size)
        return;
    if (bccn_publish(bus, (char *)channel.at, payload.at, payload.size) < 0)
        differs(line, bccn_error_text(bus));
    else if (!same(packet, (size_t)recv(daemon_end, packet, sizeof packet, 0), expected))
        differs(line, "other bytes were sent");
}

static void say(struct bytes packet)
{
    if (send(daemon_end, packet.at, packet.size, 0) < 0)
        abort();
}

static void receives(const char *line, char **words, int count)
{
    const bccn_message *message;
    say(bytes_of(words[0]));
    for (int i = 1; i < count; i += 2) {
        if (bccn_receive(bus, &message, 0) <= 0 || !same_text(message->channel, words[i])
            || !same(message->payload, message->size, bytes_of(words[i + 1])) || message->src || message->peer)
            differs(line, "another message");
    }
    if (bccn_receive(bus, &message, 0) != 0)
        differs(line, "another message follows");
}

static void receives_full(const char *line, char **words)
{
    const bccn_message *message;
    say(bytes_of(words[0]));
    if (bccn_receive(bus, &message, 0) <= 0 || !same_text(message->channel, words[1])
        || !same(message->payload, message->size, bytes_of(words[2])) || !same_text(message->src, words[3])
        || message->seq != strtoull(words[4], NULL, 10) || !same_text(message->peer, words[5])
        || message->time_ns != strtoull(words[6], NULL, 10) || !same_text(message->verdict, words[7])
        || !same(message->datagram, message->datagram_size, bytes_of(words[8])))
        differs(line, "another message");
}

/* Give the bus a new connection: what cannot be read has ended that before. */
static void connect_here(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) < 0)
        abort();
    let_go(bus);
    bus->fd = ends[0];
    bus->ready = 1;
    daemon_end = ends[1];
}

static void refuses(const char *line, char **words)
{
    const bccn_message *message;
    int code;
    say(bytes_of(words[0]));
    while ((code = bccn_receive(bus, &message, 0)) > 0)
        ;
    if (code != BCCN_E_PROTOCOL || bus->fd >= 0)
        differs(line, "accepted");
    while (bccn_receive(bus, &message, 0) > 0) /* what came before it */
        ;
    close(daemon_end);
    connect_here();
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    bccn_options options = BCCN_OPTIONS_INIT;
    options.on_notice = NULL;
    bccn_open(&bus, "@no daemon is there", &options);
    connect_here();
    while (getline(&line, &room, stdin) > 0) {
        char *words[WORDS], *save, *copy = strdup(line), *kind = strtok_r(copy, " \n", &save);
        int count = 0;
        while (count < WORDS && (words[count] = strtok_r(NULL, " \n", &save)))
            count++;
        lines++;
        if (!strcmp(kind, "match"))
            match(line, words);
        else if (!strcmp(kind, "send"))
            sends(line, words);
        else if (!strcmp(kind, "recv"))
            receives(line, words, count);
        else if (!strcmp(kind, "full"))
            receives_full(line, words);
        else if (!strcmp(kind, "broken"))
            refuses(line, words);
        else
            differs(line, "unknown kind");
        free(copy);
    }
    free(line);
    bccn_close(bus);
    close(daemon_end);
    printf("%d vectors, %d wrong\n", lines, wrong);
    return wrong > 0 || lines == 0;
}
