/* What the tests of priority inheritance need: levels, mutexes, and looks at their words. */
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* Sets the level of this thread. */
__attribute__((unused)) static int set(int policy, int priority) {
    struct sched_param parameter = {priority};
    return sched_setscheduler(0, policy, &parameter);
}

/* Locks and unlocks a word in memory that processes share. */
__attribute__((unused)) static long lock(volatile uint32_t *word, const struct timespec *until) {
    return syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, until, NULL, 0);
}

__attribute__((unused)) static long unlock(volatile uint32_t *word) {
    return syscall(SYS_futex, word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
}

__attribute__((unused)) static void make(pthread_mutex_t *mutex, int protocol, int robust, int sharing) {
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, protocol) == 0);
    CHECK(pthread_mutexattr_setrobust(&attributes, robust) == 0);
    CHECK(pthread_mutexattr_setpshared(&attributes, sharing) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
}

/* Waits until all of these bits are in the word. */
static void until(volatile uint32_t *word, uint32_t bits) {
    while ((*word & bits) != bits)
        usleep(1000);
}
