/* Threads that wait on futexes, and what ends a wait: a wake, a signal, the end of the process,
   another program in its place. Runs on Linux too. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "children.h"

typedef _Atomic uint32_t word;

static char *self;
/* In memory that processes share; `alone` is used by one of them. */
static struct shared {
    word crowd, alone;
    _Atomic int woken;
} *shared;
static word own;

static long futex(word *at, int operation, uint32_t value, void *moved, word *to) {
    return syscall(SYS_futex, at, operation, value, moved, to, 0);
}

/* How many wait: each is moved to where it is. */
static long waiters(word *at) {
    return futex(at, FUTEX_REQUEUE, 0, (void *)(uintptr_t)INT_MAX, at);
}

static void until_waiters(word *at, long count) {
    while (waiters(at) != count)
        sched_yield();
}

/* The same for waiters that are less urgent. */
static void until_waiters_asleep(word *at, long count) {
    while (waiters(at) != count)
        usleep(1000);
}

static void nothing(int signal) {
    (void)signal;
}

static void handle(int number, int flags) {
    struct sigaction action = {.sa_handler = nothing, .sa_flags = flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}

/* A word that other processes could see must exist. */
static void words_that_are_none(void) {
    word *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(gone != MAP_FAILED && futex(gone, FUTEX_WAKE, 1, NULL, NULL) == 0);
    CHECK(munmap(gone, 4096) == 0);
    FAILS(futex(gone, FUTEX_WAKE, 1, NULL, NULL), EFAULT);
    CHECK(futex(gone, FUTEX_WAKE_PRIVATE, 1, NULL, NULL) == 0);
}

/* A handler ends the wait, or it goes on. */

static void *wait_once(void *at) {
    return (void *)(futex(at, FUTEX_WAIT, 0, NULL, NULL) == 0 ? 0L : (long)errno);
}

static void signals(void) {
    pthread_t thread;
    void *result;
    handle(SIGUSR1, 0);
    handle(SIGUSR2, SA_RESTART);
    for (int i = 0; i < 100; i++) {
        CHECK(pthread_create(&thread, NULL, wait_once, &own) == 0);
        until_waiters(&own, 1);
        CHECK(pthread_kill(thread, i % 2 ? SIGUSR1 : SIGUSR2) == 0);
        if (i % 2 == 0) {
            until_waiters(&own, 1);
            /* The signal may not have come yet: the wait is woken, or made again and then woken. */
            while (futex(&own, FUTEX_WAKE, 1, NULL, NULL) == 0)
                sched_yield();
        }
        CHECK(pthread_join(thread, &result) == 0);
        CHECK((long)result == (i % 2 ? EINTR : 0));
    }
}

/* A wait with a time-out is not made again after a handler: it would last longer. */
static _Atomic int begins;
static void *wait_for_a_time(void *operation) {
    struct timespec time = {0, 100000000};
    if ((long)operation == FUTEX_WAIT_BITSET) {
        CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
        time.tv_sec += 1;
    }
    begins = 1;
    long result = syscall(SYS_futex, &own, (long)operation, 0, &time, NULL, FUTEX_BITSET_MATCH_ANY);
    return (void *)(result == 0 ? 0L : (long)errno);
}

static void timed(void) {
    long operations[] = {FUTEX_WAIT, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, FUTEX_WAIT_BITSET};
    handle(SIGUSR2, SA_RESTART);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        begins = 0;
        CHECK(pthread_create(&thread, NULL, wait_for_a_time, (void *)operations[i]) == 0);
        while (!begins)
            sched_yield();
        usleep(20000);
        CHECK(pthread_kill(thread, SIGUSR2) == 0);
        CHECK(pthread_join(thread, &result) == 0 && (long)result == EINTR);
    }
}

/* Wakes and signals at the same time: each wake that says that it has woken one has. */

#define RACES 3000
#define SENDERS 3

static _Atomic int is_over;
static long woken, interrupted;
static pthread_t interrupted_thread;

static void *wait_always(void *at) {
    while (!is_over) {
        long result = futex(at, FUTEX_WAIT, 0, NULL, NULL);
        CHECK(result == 0 || result == -1);
        if (result == 0)
            woken++;
        else if (errno == EINTR)
            interrupted++;
        else
            CHECK(errno == EAGAIN);
    }
    return NULL;
}

/* A signal that comes late must not cut short the wait after the one that it was meant for. */
static void *interrupt_always(void *unused) {
    while (!is_over)
        CHECK(pthread_kill(interrupted_thread, SIGUSR1) == 0);
    return unused;
}

static void races(void) {
    pthread_t thread, senders[SENDERS];
    long wakes = 0;
    CHECK(pthread_create(&thread, NULL, wait_always, &own) == 0);
    interrupted_thread = thread;
    for (int i = 0; i < SENDERS; i++)
        CHECK(pthread_create(&senders[i], NULL, interrupt_always, NULL) == 0);
    for (unsigned i = 0; i < RACES; i++) {
        if (i * 2654435761U >> 31)
            CHECK(pthread_kill(thread, SIGUSR1) == 0);
        if (i * 2246822519U >> 31)
            wakes += futex(&own, FUTEX_WAKE, 1, NULL, NULL);
        if (i % 3 == 0)
            sched_yield();
    }
    is_over = 1;
    for (int i = 0; i < SENDERS; i++)
        CHECK(pthread_join(senders[i], NULL) == 0);
    own = 1;
    wakes += futex(&own, FUTEX_WAKE, 1, NULL, NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    own = 0;
    CHECK(wakes == woken);
    CHECK(interrupted > 0);
}

/* Threads that end while they wait are no waiters any more. */

#define CROWD 3

static void *count_wake(void *at) {
    while (futex(at, FUTEX_WAIT, 0, NULL, NULL) != 0)
        CHECK(errno == EINTR);
    shared->woken++;
    return NULL;
}

/* The kernel keeps a wait with a time-out apart. */
static void *wait_long(void *at) {
    struct timespec time = {1000, 0};
    return (void *)futex(at, FUTEX_WAIT, 0, &time, NULL);
}

static void start_crowd(int is_timed) {
    for (int i = 0; i < CROWD; i++) {
        pthread_t thread;
        void *(*wait)(void *) = is_timed ? wait_long : wait_once;
        CHECK(pthread_create(&thread, NULL, wait, &shared->crowd) == 0);
        CHECK(pthread_create(&thread, NULL, wait_once, &own) == 0);
    }
    until_waiters(&own, CROWD);
}

static void ends(int by_exec, int is_timed) {
    pthread_t thread;
    int signal = SIGKILL;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        start_crowd(is_timed);
        if (!by_exec)
            for (;;)
                pause();
        wait_once(&shared->alone);
        execl(self, self, "leaf", NULL);
        _exit(1);
    }
    until_waiters(&shared->crowd, CROWD);
    shared->woken = 0;
    CHECK(pthread_create(&thread, NULL, count_wake, &shared->crowd) == 0);
    until_waiters(&shared->crowd, CROWD + 1);
    if (by_exec) {
        while (futex(&shared->alone, FUTEX_WAKE, 1, NULL, NULL) == 0)
            sched_yield();
        ended_with(child, 3);
    } else {
        CHECK(kill(child, signal) == 0);
    }
    /* The others waited for longer. Here, the wake goes to one that lives; Linux may wake a thread
       that is ending. */
    long count = futex(&shared->crowd, FUTEX_WAKE, 1, NULL, NULL);
    CHECK(count == 1);
    if (!is_cops())
        while (!shared->woken)
            futex(&shared->crowd, FUTEX_WAKE, 1, NULL, NULL);
    for (int looks = 0; !shared->woken && looks < 20000; looks++)
        usleep(1000);
    CHECK(shared->woken && pthread_join(thread, NULL) == 0);
    if (!by_exec)
        ended_by(child, signal);
    CHECK(waiters(&shared->crowd) == 0);
}

/* A thread that becomes more urgent while it waits is woken first. Linux keeps the order. */

static _Atomic int number_of_second;
static word first_is_woken;

static void *wait_as_second(void *at) {
    number_of_second = syscall(SYS_gettid);
    return wait_once(at);
}

static void *wait_as_first(void *at) {
    wait_once(at);
    first_is_woken = 1;
    return NULL;
}

static void priorities(void) {
    pthread_t first, second;
    CHECK(pthread_create(&first, NULL, wait_as_first, &own) == 0);
    until_waiters(&own, 1);
    CHECK(pthread_create(&second, NULL, wait_as_second, &own) == 0);
    until_waiters(&own, 2);
    CHECK(setpriority(PRIO_PROCESS, number_of_second, -5) == 0);
    CHECK(futex(&own, FUTEX_WAKE, 1, NULL, NULL) == 1);
    CHECK(pthread_join(second, NULL) == 0);
    CHECK(!first_is_woken);
    CHECK(futex(&own, FUTEX_WAKE, 1, NULL, NULL) == 1);
    CHECK(pthread_join(first, NULL) == 0);
}

/* A waiter that has been woken, and not run yet, gets a signal: it says that it was woken. Or its
   process is killed: the wake goes to another waiter with a bit of it. */

static struct bits_waiter {
    word *at;
    uint32_t bits;
    _Atomic int number, result;
} with_both, without, with_one;

enum { WAITS = -1 };

static void *wait_for_bits(void *argument) {
    struct bits_waiter *waiter = argument;
    struct timespec time;
    CHECK(setpriority(PRIO_PROCESS, 0, 8) == 0 && clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    time.tv_sec += 1000;
    waiter->number = syscall(SYS_gettid);
    long result = syscall(SYS_futex, waiter->at, FUTEX_WAIT_BITSET, 0, &time, NULL, waiter->bits);
    waiter->result = result == 0 ? 0 : errno;
    return NULL;
}

static pthread_t start_bits_waiter(struct bits_waiter *waiter, word *at, uint32_t bits) {
    pthread_t thread;
    waiter->at = at;
    waiter->bits = bits;
    waiter->result = WAITS;
    CHECK(pthread_create(&thread, NULL, wait_for_bits, waiter) == 0);
    return thread;
}

static void wake_bits_until(word *at, uint32_t bits, struct bits_waiter *waiter) {
    while (waiter->result == WAITS) {
        syscall(SYS_futex, at, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, bits);
        usleep(1000);
    }
}

static void bits(int is_killed) {
    word *at = &shared->crowd;
    pthread_t threads[3];
    pid_t child = 0;
    /* Other threads run here only while this one sleeps, if there is one processor. */
    struct sched_param urgent = {50}, usual = {0};
    cpu_set_t processors;
    CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);
    CHECK(sched_setscheduler(0, SCHED_FIFO, &urgent) == 0);
    if (is_killed) {
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            start_bits_waiter(&with_both, at, 6);
            for (;;)
                pause();
        }
    } else {
        threads[0] = start_bits_waiter(&with_both, at, 6);
    }
    until_waiters_asleep(at, 1);
    threads[1] = start_bits_waiter(&without, at, 5);
    until_waiters_asleep(at, 2);
    threads[2] = start_bits_waiter(&with_one, at, 2);
    until_waiters_asleep(at, 3);
    CHECK(syscall(SYS_futex, at, FUTEX_WAKE_BITSET, 1, NULL, NULL, 2) == 1);
    if (is_killed) {
        CHECK(kill(child, SIGKILL) == 0);
        ended_by(child, SIGKILL);
        usleep(20000);
        if (CPU_COUNT(&processors) == 1)
            CHECK(with_one.result == 0);
    } else {
        CHECK(syscall(SYS_tgkill, getpid(), with_both.number, SIGUSR1) == 0);
        CHECK(pthread_join(threads[0], NULL) == 0 && with_both.result == 0);
        CHECK(with_one.result == WAITS);
    }
    CHECK(without.result == WAITS);
    wake_bits_until(at, 2, &with_one);
    wake_bits_until(at, 1, &without);
    CHECK(with_one.result == 0 && without.result == 0);
    CHECK(pthread_join(threads[1], NULL) == 0 && pthread_join(threads[2], NULL) == 0);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &usual) == 0);
}

/* A thread of a stopped process is woken, and runs when the process goes on. */
static void stops(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        while (futex(&shared->alone, FUTEX_WAIT, 0, NULL, NULL) != 0)
            CHECK(errno == EINTR);
        _exit(4);
    }
    until_waiters(&shared->alone, 1);
    CHECK(kill(child, SIGSTOP) == 0);
    stopped_by(child, SIGSTOP);
    /* Linux takes the wait out to stop, and makes it again. */
    CHECK(futex(&shared->alone, FUTEX_WAKE, 1, NULL, NULL) == is_cops());
    CHECK(waitpid(child, NULL, WNOHANG) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    if (!is_cops())
        while (futex(&shared->alone, FUTEX_WAKE, 1, NULL, NULL) == 0)
            sched_yield();
    ended_with(child, 4);
}

int main(int count, char **arguments) {
    if (count > 1)
        return 3;
    self = arguments[0];
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    words_that_are_none();
    signals();
    timed();
    races();
    for (int i = 0; i < 40; i++)
        ends(i % 4 == 3, i % 3 == 1);
    for (int i = 0; i < 10; i++)
        stops();
    if (is_cops()) {
        priorities();
        bits(0);
        bits(1);
    }
    printf("futexes are in order\n");
    return 0;
}
