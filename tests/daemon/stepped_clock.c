/* The wall clock of one process, set by whoever writes to a file: LD_PRELOAD this, and name in $CLOCK_STEP a file
 * of eight bytes, the nanoseconds (signed, native) by which the clock is wrong. Monotonic clocks stay true.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static int64_t step(void)
{
    static const volatile int64_t *mapped;
    if (!mapped) {
        int fd = open(getenv("CLOCK_STEP"), O_RDONLY | O_CLOEXEC);
        void *at = mmap(NULL, sizeof *mapped, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (at == MAP_FAILED)
            _exit(99);
        mapped = at;
    }
    return *mapped;
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, id, now);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_sec * SECOND + now->tv_nsec + step();
        now->tv_sec = ns / SECOND;
        now->tv_nsec = ns % SECOND;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec ts;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    now->tv_sec = ts.tv_sec;
    now->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}
