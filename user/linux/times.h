/* Moments, for calls that wait until one. */
#pragma once

#include <time.h>

/* So many milliseconds from now, by this clock. */
static struct timespec in(clockid_t clock, long milliseconds) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}
