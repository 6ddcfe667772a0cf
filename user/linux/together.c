/* Mutexes with priority inheritance in memory that processes share: an inversion that is removed
   across processes, a chain through a lock of one of them, deadlocks, owners that are killed or
   execute another program, waiters that are killed, hostile words. Also passes on Linux. "one": on
   one hart, levels decide alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "children.h"
#include "inheriting.h"
#include "times.h"

/* What the processes share. */
static struct shared {
    pthread_mutex_t mutex;
    sem_t ready, go;
    volatile uint32_t words[4];
    volatile long turns, sum, results[4];
    volatile int stop;
} *shared;

static void begin(void) {
    memset((void *)shared, 0, sizeof *shared);
    CHECK(sem_init(&shared->ready, 1, 0) == 0 && sem_init(&shared->go, 1, 0) == 0);
}

/* A process of the least urgent level holds the mutex and computes, one of a middle level computes
   for ever, and this one, the most urgent, wants the mutex. */
static void compute(void) {
    for (volatile int i = 0; i < 300000; i++)
        ;
}

static void hold(void) {
    CHECK(set(SCHED_IDLE, 0) == 0);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    sem_post(&shared->ready);
    compute();
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
}

/* The same, of which the holder waits for another thread of its process. */
static pthread_mutex_t inner;
static sem_t has_inner;

static void *hold_inner(void *unused) {
    CHECK(set(SCHED_IDLE, 0) == 0);
    CHECK(pthread_mutex_lock(&inner) == 0);
    sem_post(&has_inner);
    compute();
    CHECK(pthread_mutex_unlock(&inner) == 0);
    return unused;
}

static void hold_both(void) {
    pthread_t thread;
    make(&inner, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_PRIVATE);
    CHECK(sem_init(&has_inner, 0, 0) == 0);
    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    CHECK(pthread_create(&thread, NULL, hold_inner, NULL) == 0);
    sem_wait(&has_inner);
    CHECK(set(SCHED_IDLE, 0) == 0);
    sem_post(&shared->ready);
    CHECK(pthread_mutex_lock(&inner) == 0 && pthread_mutex_unlock(&inner) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void middle(void) {
    while (!shared->stop)
        shared->turns++;
}

static int invert(int protocol, void (*holder)(void), long milliseconds) {
    begin();
    make(&shared->mutex, protocol, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_SHARED);
    pid_t first = fork_child(holder);
    sem_wait(&shared->ready);
    pid_t second = fork_child(middle);
    CHECK(set(SCHED_FIFO, 50) == 0);
    long before = shared->turns;
    struct timespec time = in(CLOCK_REALTIME, milliseconds);
    int result = pthread_mutex_timedlock(&shared->mutex, &time);
    if (result == 0) {
        printf("the process in the middle ran %ld times\n", shared->turns - before);
        CHECK(shared->turns == before);
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
    shared->stop = 1;
    CHECK(set(SCHED_OTHER, 0) == 0);
    ended_with(second, 0);
    ended_with(first, 0);
    return result;
}

static void add(void) {
    for (int i = 0; i < 500; i++) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        long sum = shared->sum;
        if (i % 16 == 0)
            sched_yield();
        shared->sum = sum + 1;
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
}

static void many(void) {
    enum { COUNT = 8 };
    pid_t children[COUNT];
    begin();
    make(&shared->mutex, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < COUNT; i++)
        children[i] = fork_child(add);
    for (int i = 0; i < COUNT; i++)
        ended_with(children[i], 0);
    CHECK(shared->sum == COUNT * 500);
}

/* Has the first word and waits for the second. */
static void lock_two(void) {
    CHECK(lock(&shared->words[0], NULL) == 0);
    CHECK(lock(&shared->words[1], NULL) == 0);
    sem_wait(&shared->go);
    CHECK(unlock(&shared->words[1]) == 0 && unlock(&shared->words[0]) == 0);
}

static void deadlocks_and_times(void) {
    begin();
    CHECK(lock(&shared->words[1], NULL) == 0);
    pid_t child = fork_child(lock_two);
    until(&shared->words[1], FUTEX_WAITERS);
    /* The mark is set before the wait. If this process waited first, the child would be told. */
    until_asleep(child);
    CHECK((shared->words[0] & FUTEX_TID_MASK) == (uint32_t)child);
    FAILS(lock(&shared->words[0], NULL), EDEADLK);
    FAILS(unlock(&shared->words[0]), EPERM);
    CHECK(unlock(&shared->words[1]) == 0);
    CHECK((shared->words[1] & FUTEX_TID_MASK) == (uint32_t)child);
    struct timespec soon = in(CLOCK_REALTIME, 5);
    FAILS(lock(&shared->words[1], &soon), ETIMEDOUT);
    sem_post(&shared->go);
    ended_with(child, 0);
    CHECK(lock(&shared->words[1], NULL) == 0 && unlock(&shared->words[1]) == 0);
}

static void lock_and_stay(void) {
    if (shared->results[0])
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    else
        CHECK(lock(&shared->words[0], NULL) == 0);
    sem_post(&shared->ready);
    sem_wait(&shared->go);
    execl("/none/such", "none", NULL);
    for (;;)
        pause();
}

static void want_word(void) {
    sem_post(&shared->ready);
    shared->results[1] = lock(&shared->words[0], NULL) == 0 ? 1 : -errno;
    shared->results[2] = shared->words[0];
    CHECK(unlock(&shared->words[0]) == 0);
}

static void want_mutex(void) {
    CHECK(pthread_mutex_lock(&shared->mutex) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&shared->mutex) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
}

/* The owner is killed while another process waits: that one gets the lock and is told. */
static void owners_are_killed(void) {
    begin();
    pid_t owner = fork_child(lock_and_stay);
    sem_wait(&shared->ready);
    pid_t waiter = fork_child(want_word);
    sem_wait(&shared->ready);
    until(&shared->words[0], FUTEX_WAITERS);
    kill_child(owner);
    ended_with(waiter, 0);
    CHECK(shared->results[1] == 1);
    CHECK((shared->results[2] & FUTEX_TID_MASK) == waiter);
    CHECK(shared->results[2] & FUTEX_OWNER_DIED);

    /* A robust mutex, which nobody waited for, and then one that a process waits for. */
    for (int waits = 0; waits < 2; waits++) {
        begin();
        shared->results[0] = 1;
        make(&shared->mutex, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED);
        owner = fork_child(lock_and_stay);
        sem_wait(&shared->ready);
        if (waits) {
            waiter = fork_child(want_mutex);
            until((volatile uint32_t *)&shared->mutex, FUTEX_WAITERS);
            kill_child(owner);
            ended_with(waiter, 0);
        } else {
            kill_child(owner);
            want_mutex();
        }
        CHECK(pthread_mutex_lock(&shared->mutex) == 0 && pthread_mutex_unlock(&shared->mutex) == 0);
    }
}

static char *own_path;

static void lock_and_execute(void) {
    CHECK(lock(&shared->words[0], NULL) == 0);
    sem_post(&shared->ready);
    sem_wait(&shared->go);
    execl(own_path, own_path, "stay", NULL);
    _exit(9);
}

/* The owner executes another program, which has nothing of the memory. */
static void owners_execute(void) {
    begin();
    pid_t owner = fork_child(lock_and_execute);
    sem_wait(&shared->ready);
    pid_t waiter = fork_child(want_word);
    sem_wait(&shared->ready);
    until(&shared->words[0], FUTEX_WAITERS);
    sem_post(&shared->go);
    ended_with(waiter, 0);
    CHECK(shared->results[1] == 1 && (shared->results[2] & FUTEX_OWNER_DIED));
    kill_child(owner);
}

/* Waiters are killed: the lock goes to one that is left. */
static void waiters_are_killed(void) {
    begin();
    pid_t waiters[6];
    CHECK(lock(&shared->words[0], NULL) == 0);
    for (int i = 0; i < 6; i++)
        waiters[i] = fork_child(want_word);
    for (int i = 0; i < 6; i++)
        sem_wait(&shared->ready);
    until(&shared->words[0], FUTEX_WAITERS);
    usleep(5000);
    for (int i = 0; i < 5; i++)
        kill_child(waiters[i]);
    CHECK(unlock(&shared->words[0]) == 0);
    ended_with(waiters[5], 0);
    CHECK(shared->results[1] == 1 && shared->words[0] == 0);
}

static void forget_memory(void) {
    struct shared *memory = shared;
    sem_post(&memory->ready);
    CHECK(munmap(memory, sizeof *memory) == 0);
    for (;;)
        pause();
}

/* A word with the id of a thread that cannot have locked it. On Linux, that one would count as the
   owner. */
static void strangers(void) {
    begin();
    pid_t stranger = fork_child(forget_memory);
    sem_wait(&shared->ready);
    struct timespec soon = in(CLOCK_REALTIME, 30);
    for (int tries = 0; tries < 1000; tries++) {
        shared->words[0] = (uint32_t)stranger;
        long result = lock(&shared->words[0], &soon);
        CHECK(result == -1);
        if (errno == ESRCH || !is_cops())
            break;
        /* It has not unmapped it yet. */
        CHECK(errno == ETIMEDOUT);
        soon = in(CLOCK_REALTIME, 5);
    }
    CHECK(!is_cops() || errno == ESRCH);
    shared->words[1] = 1 << 29;
    if (is_cops())
        FAILS(lock(&shared->words[1], NULL), ESRCH);
    kill_child(stranger);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "stay") == 0)
        for (;;)
            pause();
    own_path = arguments[0];
    setvbuf(stdout, NULL, _IONBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    if (count > 1 && strcmp(arguments[1], "one") == 0) {
        CHECK(invert(PTHREAD_PRIO_NONE, hold, 100) == ETIMEDOUT);
        CHECK(invert(PTHREAD_PRIO_INHERIT, hold, 100000) == 0);
        CHECK(invert(PTHREAD_PRIO_INHERIT, hold_both, 100000) == 0);
    }
    many();
    deadlocks_and_times();
    owners_are_killed();
    owners_execute();
    waiters_are_killed();
    strangers();
    puts("processes lock together");
    return 0;
}
