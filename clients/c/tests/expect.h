/* For the test programs: ends the program, with the line and the condition, if the condition is false. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>

/* Milliseconds until a test gives up. */
#define SOON 20000

#define expect(condition) expect_true(__FILE__, __LINE__, #condition, (condition) != 0)

static void expect_true(const char *file, int line, const char *condition, int is_true)
{
    if (!is_true) {
        fprintf(stderr, "%s:%d: not %s\n", file, line, condition);
        exit(1);
    }
}
#endif
