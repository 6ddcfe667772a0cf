/* Nice values and real-time priorities are levels: on one hart, a less urgent thread does not run
   while a more urgent one computes. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static volatile long turns;
static volatile int id;

static void *spin(void *unused) {
    id = gettid();
    for (;;)
        turns++;
    return unused;
}

/* Computes for a while, which is more than a time slice. Returns how often the other one ran. */
static long compute(void) {
    long before = turns;
    clock_t end = clock() + CLOCKS_PER_SEC / 20;
    while (clock() < end)
        continue;
    return turns - before;
}

static int set(int thread, int policy, int priority) {
    struct sched_param parameter = {priority};
    return sched_setscheduler(thread, policy, &parameter);
}

int main(void) {
    struct sched_param parameter;
    CHECK(getpriority(PRIO_PROCESS, 0) == 0 && sched_getscheduler(0) == SCHED_OTHER);
    CHECK(setpriority(PRIO_PROCESS, 0, -7) == 0 && getpriority(PRIO_PROCESS, 0) == -7);
    CHECK(setpriority(PRIO_PROCESS, 0, 100) == 0 && getpriority(PRIO_PROCESS, 0) == 19);
    FAILS(setpriority(PRIO_PROCESS, 1 << 29, 0), ESRCH);
    FAILS(setpriority(PRIO_USER, 0, 0), EINVAL);
    CHECK(set(0, SCHED_FIFO, 99) == 0 && sched_getscheduler(0) == SCHED_FIFO);
    CHECK(sched_getparam(0, &parameter) == 0 && parameter.sched_priority > 90);
    FAILS(set(0, SCHED_FIFO, 0), EINVAL);
    FAILS(set(0, SCHED_FIFO, 100), EINVAL);
    FAILS(set(0, SCHED_OTHER, 1), EINVAL);
    FAILS(set(0, 17, 0), EINVAL);
    FAILS(set(1 << 29, SCHED_OTHER, 0), ESRCH);
    FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, 8), EFAULT);
    FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, 0), EINVAL);
    FAILS(syscall(SYS_sched_setscheduler, -1, SCHED_OTHER, &parameter), EINVAL);
    FAILS(syscall(SYS_sched_setparam, 0, 0), EINVAL);
    FAILS(syscall(SYS_sched_setparam, 0, 8), EFAULT);
    FAILS(syscall(SYS_sched_getparam, 0, 0), EINVAL);
    FAILS(syscall(SYS_sched_getparam, -1, &parameter), EINVAL);
    FAILS(syscall(SYS_sched_getscheduler, -1), EINVAL);
    FAILS(syscall(SYS_sched_getscheduler, 1 << 29), ESRCH);
    unsigned long mask[16];
    FAILS(syscall(SYS_sched_getaffinity, 1 << 29, sizeof mask, mask), ESRCH);
    FAILS(syscall(SYS_sched_getaffinity, -1, sizeof mask, mask), ESRCH);
    CHECK(syscall(SYS_sched_getaffinity, getpid(), sizeof mask, mask) > 0);
    CHECK(syscall(SYS_sched_getaffinity, getppid(), sizeof mask, mask) > 0);
    CHECK(set(0, SCHED_IDLE, 0) == 0 && sched_getscheduler(0) == SCHED_IDLE);
    CHECK(set(0, SCHED_OTHER, 0) == 0 && getpriority(PRIO_PROCESS, 0) == 0);
    CHECK(sched_get_priority_max(SCHED_RR) == 99 && sched_get_priority_min(SCHED_RR) == 1);
    FAILS(sched_get_priority_max(17), EINVAL);

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, spin, NULL) == 0);
    while (id == 0)
        sched_yield();
    /* Equals alternate. */
    while (compute() == 0)
        continue;
    CHECK(setpriority(PRIO_PROCESS, (id_t)id, 5) == 0 && getpriority(PRIO_PROCESS, (id_t)id) == 5);
    sched_yield();
    CHECK(compute() == 0);
    /* It runs while this thread sleeps. */
    long before = turns;
    for (int sleeps = 0; turns == before; sleeps++) {
        CHECK(sleeps < 100);
        usleep(30000);
    }
    CHECK(set(id, SCHED_IDLE, 0) == 0);
    CHECK(compute() == 0);
    /* The more urgent thread runs while this one wants to; it is left when the time has come. */
    CHECK(set(0, SCHED_RR, 50) == 0 && set(id, SCHED_FIFO, 10) == 0);
    CHECK(compute() == 0);
    printf("priorities are in order\n");
    return 0;
}
