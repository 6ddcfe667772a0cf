/* Wakes of many, which the kernel does in portions: what happens between two portions of one. The
   waiters are more urgent than the thread that wakes them, so with one hart they run there. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "children.h"

enum { MANY = 40 };

typedef _Atomic uint32_t word;

/* In memory that processes share. */
static struct shared {
    word crowd, begun;
} *shared;
static char *self;
static word own;
static _Atomic int woken;

static long futex(word *at, int operation, uint32_t value, void *moved, word *to) {
    return syscall(SYS_futex, at, operation, value, moved, to, 0);
}

static long wake_all(word *at) {
    return futex(at, FUTEX_WAKE, INT_MAX, NULL, NULL);
}

/* Each waiter is moved to where it is, and so counted. */
static void until_waiters(word *at, long count) {
    while (futex(at, FUTEX_REQUEUE, 0, (void *)(uintptr_t)INT_MAX, at) != count)
        usleep(1000);
}

static void until_woken(int count) {
    for (int looks = 0; woken != count && looks < 5000; looks++)
        usleep(1000);
    if (woken != count)
        printf("woken: %d of %d\n", woken, count);
    CHECK(woken == count);
}

static void become_urgent(void) {
    struct sched_param parameter = {50};
    CHECK(sched_setscheduler(0, SCHED_FIFO, &parameter) == 0);
}

static void become_idle(void) {
    CHECK(setpriority(PRIO_PROCESS, 0, 8) == 0);
}

static pthread_t start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    return thread;
}

static void start_many(pthread_t *threads, void *(*body)(void *), void *argument) {
    for (int i = 0; i < MANY; i++)
        threads[i] = start(body, argument);
}

static void join_many(pthread_t *threads) {
    for (int i = 0; i < MANY; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- the last one becomes more urgent than those before it ---------------------------------- */

static _Atomic int last_number;

static void *wait_as_last(void *lock) {
    become_idle();
    last_number = syscall(SYS_gettid);
    if (lock != NULL)
        CHECK(pthread_mutex_lock(lock) == 0);
    CHECK(futex(&own, FUTEX_WAIT, 0, NULL, NULL) == 0);
    if (lock != NULL)
        CHECK(pthread_mutex_unlock(lock) == 0);
    woken++;
    return NULL;
}

/* The first one that is woken makes the last one urgent: it says so, or waits for its lock. */
static void *wait_before_it(void *lock) {
    become_urgent();
    CHECK(futex(&own, FUTEX_WAIT, 0, NULL, NULL) == 0);
    if (lock != NULL) {
        CHECK(pthread_mutex_lock(lock) == 0 && pthread_mutex_unlock(lock) == 0);
        woken++;
    } else if (woken++ == 0) {
        struct sched_param parameter = {99};
        CHECK(sched_setscheduler(last_number, SCHED_FIFO, &parameter) == 0);
    }
    return NULL;
}

static void raised(pthread_mutex_t *lock) {
    pthread_t last, threads[MANY];
    woken = 0;
    last = start(wait_as_last, lock);
    until_waiters(&own, 1);
    start_many(threads, wait_before_it, lock);
    until_waiters(&own, MANY + 1);
    CHECK(wake_all(&own) == MANY + 1);
    until_woken(MANY + 1);
    join_many(threads);
    CHECK(pthread_join(last, NULL) == 0);
}

static void inherits(void) {
    pthread_mutex_t lock;
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&lock, &attributes) == 0);
    raised(&lock);
}

/* ---- the thread that wakes is ended: with its process, or by another program in its place ---- */

static pid_t child;

static void *wait_and_kill(void *unused) {
    become_urgent();
    CHECK(futex(&shared->crowd, FUTEX_WAIT, 0, NULL, NULL) == 0);
    if (woken++ == 0 && child != 0)
        CHECK(kill(child, SIGKILL) == 0);
    return unused;
}

static void *sweep(void *count) {
    become_idle();
    until_waiters(&shared->crowd, (long)count);
    wake_all(&shared->crowd);
    for (;;)
        pause();
    return count;
}

static void sweep_until_killed(void) {
    sweep((void *)(long)MANY);
}

static void killed(void) {
    pthread_t threads[MANY];
    woken = 0;
    child = fork_child(sweep_until_killed);
    start_many(threads, wait_and_kill, NULL);
    until_woken(MANY);
    join_many(threads);
    ended_by(child, SIGKILL);
}

/* The first of the waiters. */
static void *wait_and_execute(void *unused) {
    become_urgent();
    shared->begun = 1;
    CHECK(futex(&shared->crowd, FUTEX_WAIT, 0, NULL, NULL) == 0);
    execl(self, self, "leaf", NULL);
    CHECK(0);
    return unused;
}

static void wait_beside_sweeper(void) {
    start(sweep, (void *)(long)(MANY + 1));
    wait_and_execute(NULL);
}

static void sweep_beside_waiter(void) {
    start(wait_and_execute, NULL);
    sweep((void *)(long)(MANY + 1));
}

static void replaced(void (*body)(void)) {
    pthread_t threads[MANY];
    woken = shared->begun = 0;
    pid_t replaced = fork_child(body);
    while (!shared->begun)
        usleep(1000);
    usleep(10000);
    child = 0;
    start_many(threads, wait_and_kill, NULL);
    until_woken(MANY);
    join_many(threads);
    ended_with(replaced, 3);
}

int main(int count, char **arguments) {
    if (count > 1)
        return 3;
    self = arguments[0];
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    raised(NULL);
    inherits();
    killed();
    replaced(sweep_beside_waiter);
    replaced(wait_beside_sweeper);
    printf("sweeps are in order\n");
    return 0;
}
