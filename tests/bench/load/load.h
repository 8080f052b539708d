/* What all load programs share: words on the command line, the clock, sockets, and how they report.
 *
 * A program is told what to do by words "name=value". It says "ready" on standard output once it is, where others
 * have to wait for that, and what it measured in a line of JSON. Whatever does not happen within PATIENCE seconds,
 * or goes wrong otherwise, is a line on standard error and exit code 1.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>

#define PATIENCE 20 /* seconds; on sockets for each single call */
#define BATCH 64    /* packets a call of recvmmsg and sendmmsg, as many as the daemon takes */

typedef long long nanoseconds;

/* What one subscriber or publisher has to tell; times are of CLOCK_MONOTONIC, which all processes share. */
struct tally {
    long count;               /* messages */
    long dropped;             /* that the relay says it did not deliver */
    nanoseconds first, last;  /* when the first was sent or came, and the last */
};

void take_words(int argc, char **argv);
const char *word(const char *name, const char *otherwise); /* otherwise NULL: it must be there */
long number(const char *name, long otherwise);             /* otherwise -1: it must be there */

nanoseconds now(void);
void sleep_until(nanoseconds moment);

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
void *allocated(size_t size);

int connected(const char *address); /* "tcp:<port>" on 127.0.0.1, "unix:<path>", "bus:<path>" (SEQPACKET) */
void be_patient(int fd);            /* PATIENCE for each send and receive */
void send_all(int fd, const void *data, size_t size);
void receive_all(int fd, void *data, size_t size);
size_t receive_some(int fd, void *data, size_t size); /* at least a byte */

/* Runs a role in "copies" processes and prints "ready" once each has called say_ready, then their tallies as one. */
void in_copies(void (*role)(struct tally *tally));
void say_ready(void);

void print_tally(const struct tally *tally);
bool told_to_end(void); /* whether standard input was closed */
void await_end(void);   /* until then: who leaves early may take along what the relay has not read yet */

#endif
