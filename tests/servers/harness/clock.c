/* Preloaded into a server, so that its wall clock is the system's plus an offset in microseconds from a file. Monotonic
   clocks are unchanged, so a clock that is set back does not block the server.

   Preloaded into a test, so that its wall clock begins at TIDEGATE_CLOCK_STARTS, in seconds since 1970. Its children have the
   same clock: they find its offset in TIDEGATE_CLOCK_AHEAD.

   It makes the system calls itself, because an
   allocator may read the time before symbols of other libraries can be resolved. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *ahead;
static long long ahead_of_system;

__attribute__((constructor)) static void begin(void) {
    const char *inherited = getenv("TIDEGATE_CLOCK_AHEAD"), *starts = getenv("TIDEGATE_CLOCK_STARTS");
    char text[32];
    struct timespec now;
    if (inherited) {
        ahead_of_system = atoll(inherited);
    } else if (starts && syscall(SYS_clock_gettime, CLOCK_REALTIME, &now) == 0) {
        ahead_of_system = (atoll(starts) - now.tv_sec) * 1000000 - now.tv_nsec / 1000;
        snprintf(text, sizeof text, "%lld", ahead_of_system);
        setenv("TIDEGATE_CLOCK_AHEAD", text, 1);
    }
}

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("TIDEGATE_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) ahead = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, clock, time);
    long long offset = ahead_of_system + (ahead ? *ahead : 0);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long nanos = time->tv_nsec + offset % 1000000 * 1000;
        long long carry = nanos < 0 ? -1 : nanos / 1000000000;
        time->tv_sec += offset / 1000000 + carry;
        time->tv_nsec = nanos - carry * 1000000000;
    }
    return (int)result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
