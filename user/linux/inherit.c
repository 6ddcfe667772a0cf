/* Mutexes with priority inheritance: an inversion that is removed, chains, deadlocks, owners that
   end, time-outs, and hostile words. "one": on one hart, levels decide alone. */
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "inheriting.h"
#include "times.h"

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

static long futex(volatile uint32_t *word, int operation, uint32_t value, const void *time,
                  volatile uint32_t *other, uint32_t last) {
    return syscall(SYS_futex, word, operation, value, time, other, last);
}

/* The inversion: a thread of the least urgent level holds a lock and computes, one of a middle
   level computes for ever, and this one, the most urgent, wants the lock. */
static volatile long turns, work;
static volatile int stop;

static void *middle(void *unused) {
    while (!stop)
        turns++;
    return unused;
}

struct holder {
    pthread_mutex_t *first, *second;
    sem_t *has_locked;
};

static void *hold(void *argument) {
    struct holder *holder = argument;
    CHECK(set(SCHED_IDLE, 0) == 0);
    CHECK(pthread_mutex_lock(holder->first) == 0);
    sem_post(holder->has_locked);
    if (holder->second) {
        CHECK(pthread_mutex_lock(holder->second) == 0);
        CHECK(pthread_mutex_unlock(holder->second) == 0);
    }
    for (int i = 0; i < 300000; i++)
        work++;
    CHECK(pthread_mutex_unlock(holder->first) == 0);
    return NULL;
}

/* Returns what the lock returned. `links`: threads that hold a lock; each but the first waits for
   that of the one before. */
static int invert(int protocol, int links, long milliseconds) {
    enum { MAX = 4 };
    pthread_mutex_t mutexes[MAX];
    pthread_t holders[MAX], between;
    struct holder arguments[MAX];
    sem_t has_locked;
    CHECK(sem_init(&has_locked, 0, 0) == 0);
    stop = 0;
    for (int i = 0; i < links; i++) {
        make(&mutexes[i], protocol, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_PRIVATE);
        arguments[i] = (struct holder){&mutexes[i], i ? &mutexes[i - 1] : NULL, &has_locked};
        CHECK(pthread_create(&holders[i], NULL, hold, &arguments[i]) == 0);
        sem_wait(&has_locked);
    }
    CHECK(pthread_create(&between, NULL, middle, NULL) == 0);
    /* More urgent than the one between, which is more urgent than the holders. */
    CHECK(set(SCHED_FIFO, 50) == 0);
    long before = turns;
    struct timespec until = in(CLOCK_REALTIME, milliseconds);
    int result = pthread_mutex_timedlock(&mutexes[links - 1], &until);
    if (result == 0) {
        printf("%d link(s): the middle thread ran %ld times\n", links, turns - before);
        CHECK(turns == before);
        CHECK(pthread_mutex_unlock(&mutexes[links - 1]) == 0);
    } else {
        /* A holder that inherits no more makes no progress while this one sleeps. */
        long done = work;
        usleep(30000);
        CHECK(work == done);
    }
    stop = 1;
    CHECK(set(SCHED_OTHER, 0) == 0);
    CHECK(pthread_join(between, NULL) == 0);
    for (int i = 0; i < links; i++)
        CHECK(pthread_join(holders[i], NULL) == 0);
    return result;
}

/* As `invert`, and the thread that holds the lock waits in a call when this one comes to want the
   lock. What completes the call is to be as urgent as the thread is then. */
static int ends[2];
static volatile int blocked_id;

enum way { READS, SLEEPS };

struct waiter {
    pthread_mutex_t *mutex;
    sem_t *sem;
    enum way way;
};

static void *wait_in_a_call(void *argument) {
    struct waiter *waiter = argument;
    char byte;
    blocked_id = gettid();
    CHECK(set(SCHED_IDLE, 0) == 0);
    if (waiter->mutex)
        CHECK(pthread_mutex_lock(waiter->mutex) == 0);
    sem_post(waiter->sem);
    if (waiter->way == READS)
        CHECK(read(ends[0], &byte, 1) == 1);
    else
        usleep(60000);
    if (waiter->mutex)
        CHECK(pthread_mutex_unlock(waiter->mutex) == 0);
    sem_post(waiter->sem);
    return NULL;
}

static pthread_t begin_to_wait(struct waiter *waiter, sem_t *sem, pthread_t *between) {
    pthread_t thread;
    CHECK(sem_init(sem, 0, 0) == 0 && pipe(ends) == 0);
    CHECK(pthread_create(&thread, NULL, wait_in_a_call, waiter) == 0);
    sem_wait(sem);
    /* It is in its call then. */
    usleep(20000);
    stop = 0;
    CHECK(pthread_create(between, NULL, middle, NULL) == 0);
    CHECK(set(SCHED_FIFO, 50) == 0);
    return thread;
}

static void end_waiting(pthread_t thread, pthread_t between) {
    stop = 1;
    CHECK(set(SCHED_OTHER, 0) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && pthread_join(between, NULL) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void invert_in_a_call(enum way way) {
    sem_t sem;
    pthread_t between;
    pthread_mutex_t mutex;
    struct waiter waiter = {&mutex, &sem, way};
    make(&mutex, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_PRIVATE);
    pthread_t thread = begin_to_wait(&waiter, &sem, &between);
    long before = turns;
    /* The read is to be completed from now on, by what is not urgent yet. */
    CHECK(way != READS || write(ends[1], "x", 1) == 1);
    struct timespec until = in(CLOCK_REALTIME, 5000);
    CHECK(pthread_mutex_timedlock(&mutex, &until) == 0);
    CHECK(way != READS || turns == before);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    end_waiting(thread, between);
}

/* A thread that waits in a call becomes more urgent. */
static void raise_in_a_call(void) {
    sem_t sem;
    pthread_t between;
    struct waiter waiter = {NULL, &sem, READS};
    pthread_t thread = begin_to_wait(&waiter, &sem, &between);
    long before = turns;
    CHECK(write(ends[1], "x", 1) == 1);
    struct sched_param parameter = {40};
    CHECK(sched_setscheduler(blocked_id, SCHED_FIFO, &parameter) == 0);
    struct timespec until = in(CLOCK_REALTIME, 5000);
    CHECK(sem_timedwait(&sem, &until) == 0);
    CHECK(turns == before);
    end_waiting(thread, between);
}

/* Many threads of different levels, and one lock. */
static pthread_mutex_t shared;
static long sum;

static void *count(void *argument) {
    set(SCHED_FIFO, 1 + (int)(intptr_t)argument * 10);
    for (int i = 0; i < 3000; i++) {
        CHECK(pthread_mutex_lock(&shared) == 0);
        long seen = sum;
        if (i % 64 == 0)
            sched_yield();
        sum = seen + 1;
        int error = pthread_mutex_unlock(&shared);
        if (error)
            printf("thread %d, unlock %d: error %d\n", (int)(intptr_t)argument, i, error);
        CHECK(error == 0);
    }
    return NULL;
}

static void many(void) {
    pthread_t threads[8];
    make(&shared, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_PRIVATE);
    for (intptr_t i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, count, (void *)i) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(sum == 8 * 3000);
}

/* Words that a thread locks, in this order, by the raw call; then it ends without an unlock. */
struct locker {
    volatile uint32_t *words[3];
    volatile int locked, result;
    sem_t go;
};

static void *lock_some(void *argument) {
    struct locker *locker = argument;
    for (int i = 0; i < 3 && locker->words[i]; i++) {
        locker->result = futex(locker->words[i], FUTEX_LOCK_PI, 0, NULL, NULL, 0) ? errno : 0;
        locker->locked = i + 1;
    }
    sem_wait(&locker->go);
    return NULL;
}

static pthread_t start(struct locker *locker) {
    pthread_t thread;
    CHECK(sem_init(&locker->go, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, lock_some, locker) == 0);
    return thread;
}

static void deadlocks_and_errors(void) {
    volatile uint32_t a = 0, b = 0;
    uint32_t own = (uint32_t)gettid();
    CHECK(futex(&a, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0 && a == own);
    FAILS(futex(&a, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    FAILS(futex(&a, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    FAILS(futex(&b, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
    b = 1 << 29;
    FAILS(futex(&b, FUTEX_LOCK_PI, 0, NULL, NULL, 0), ESRCH);
    b = 0;
    volatile char *odd = (volatile char *)&b;
    FAILS(futex((volatile uint32_t *)(odd + 1), FUTEX_LOCK_PI, 0, NULL, NULL, 0), EINVAL);
    FAILS(futex((volatile uint32_t *)8, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex((volatile uint32_t *)8, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EFAULT);
    if (is_cops()) {
        FAILS(futex(&b, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, &a, 0), ENOSYS);
        FAILS(futex(&b, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &a, 0), ENOSYS);
    }

    /* The other one has b and waits for a, which this one has. */
    struct locker other = {.words = {&b, &a}};
    pthread_t thread = start(&other);
    until(&a, FUTEX_WAITERS);
    /* The mark is set before the wait. If this thread waited first, the other one would be told. */
    usleep(50000);
    FAILS(futex(&b, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EAGAIN);
    FAILS(futex(&b, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    struct timespec past = {0, 0};
    FAILS(futex(&b, FUTEX_LOCK_PI2, 0, &past, NULL, 0), EDEADLK);
    CHECK(futex(&a, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    while (other.locked != 2)
        usleep(1000);
    CHECK((a & FUTEX_TID_MASK) != own && other.result == 0);
    FAILS(futex(&a, FUTEX_LOCK_PI2, 0, &past, NULL, 0), ETIMEDOUT);
    struct timespec soon = in(CLOCK_REALTIME, 5);
    FAILS(futex(&a, FUTEX_LOCK_PI, 0, &soon, NULL, 0), ETIMEDOUT);

    /* It ends with both: this one gets them, and is told. */
    b &= ~FUTEX_WAITERS; /* Set by the waits that were refused. */
    struct locker waits = {.words = {&b}};
    pthread_t waiting = start(&waits);
    until(&b, FUTEX_WAITERS);
    sem_post(&other.go);
    CHECK(pthread_join(thread, NULL) == 0);
    while (waits.locked != 1)
        usleep(1000);
    CHECK(waits.result == 0 && (b & FUTEX_OWNER_DIED) && !(b & FUTEX_WAITERS));
    sem_post(&waits.go);
    CHECK(pthread_join(waiting, NULL) == 0);
    /* Nothing waited for a since the time-outs: its owner is a thread that does not exist. */
    a &= FUTEX_TID_MASK;
    FAILS(futex(&a, FUTEX_LOCK_PI, 0, NULL, NULL, 0), ESRCH);
}

/* Threads in a line, each of which has a lock and waits for that of the next one; the last waits for
   this thread. From some length on, a wait is refused. Then each gets its lock when the next has
   ended. */
static void long_chain(void) {
    enum { COUNT = 40 };
    static struct locker lockers[COUNT];
    static volatile uint32_t words[COUNT + 1];
    pthread_t threads[COUNT];
    int refused = 0;
    CHECK(futex(&words[COUNT], FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    for (int i = COUNT - 1; i >= 0; i--) {
        lockers[i].words[0] = &words[i];
        lockers[i].words[1] = &words[i + 1];
        threads[i] = start(&lockers[i]);
        until(&words[i + 1], FUTEX_WAITERS);
        usleep(1000);
        refused += lockers[i].result == EDEADLK;
    }
    if (is_cops())
        CHECK(refused >= 1 && refused <= 5);
    CHECK(futex(&words[COUNT], FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    for (int i = COUNT - 1; i >= 0; i--) {
        while (lockers[i].locked != 2)
            usleep(1000);
        CHECK(lockers[i].result == 0 || lockers[i].result == EDEADLK);
        sem_post(&lockers[i].go);
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static pthread_mutex_t robust;

static void *die_with_it(void *unused) {
    CHECK(pthread_mutex_lock(&robust) == 0);
    usleep(20000);
    return unused;
}

static void owners_end(void) {
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        make(&robust, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_PRIVATE);
        CHECK(pthread_create(&thread, NULL, die_with_it, NULL) == 0);
        if (round == 0)
            CHECK(pthread_join(thread, NULL) == 0);
        else
            while ((*(volatile uint32_t *)&robust & (FUTEX_TID_MASK | FUTEX_OWNER_DIED)) == 0)
                usleep(1000);
        CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
        CHECK(pthread_mutex_consistent(&robust) == 0);
        CHECK(pthread_mutex_unlock(&robust) == 0);
        CHECK(pthread_mutex_lock(&robust) == 0 && pthread_mutex_unlock(&robust) == 0);
        if (round == 1)
            CHECK(pthread_join(thread, NULL) == 0);
    }
}

/* A handler runs while a thread waits for a lock: it goes on waiting. */
static volatile int handled;

static void handle(int signal) {
    handled = signal;
}

static void *wait_for_shared(void *unused) {
    CHECK(pthread_mutex_lock(&shared) == 0);
    CHECK(handled == SIGUSR1);
    CHECK(pthread_mutex_unlock(&shared) == 0);
    return unused;
}

static void interrupted(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    make(&shared, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_PRIVATE);
    CHECK(pthread_mutex_lock(&shared) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_shared, NULL) == 0);
    until((volatile uint32_t *)&shared, FUTEX_WAITERS);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    while (!handled)
        usleep(1000);
    usleep(5000);
    CHECK(pthread_mutex_unlock(&shared) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A process is killed while its threads hold locks and wait for them. */
static void killed(void) {
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        static volatile uint32_t words[21];
        static struct locker lockers[20];
        for (int i = 0; i < 20; i++) {
            lockers[i].words[0] = &words[i];
            lockers[i].words[1] = &words[20];
            start(&lockers[i]);
        }
        until(&words[20], FUTEX_WAITERS);
        CHECK(write(ends[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    int status;
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "one") == 0) {
        CHECK(invert(PTHREAD_PRIO_NONE, 1, 100) == ETIMEDOUT);
        CHECK(invert(PTHREAD_PRIO_INHERIT, 1, 100000) == 0);
        CHECK(invert(PTHREAD_PRIO_INHERIT, 4, 100000) == 0);
        invert_in_a_call(READS);
        invert_in_a_call(SLEEPS);
        raise_in_a_call();
    }
    /* Often: the kernel must mark a word that others lock and unlock by themselves all the time. */
    for (int round = 0; round < 100; round++) {
        sum = 0;
        many();
    }
    deadlocks_and_errors();
    long_chain();
    owners_end();
    interrupted();
    killed();
    printf("inheritance is in order\n");
    return 0;
}
