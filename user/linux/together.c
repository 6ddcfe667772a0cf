/* Mutexes with priority inheritance in memory that processes share: an inversion that is removed
   across processes, a chain through a lock of one of them, deadlocks, owners that are killed or
   execute another program, waiters that are killed, hostile words and long lines. Also passes on
   Linux. "one": on one hart, levels decide alone. */
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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
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

static long lock(volatile uint32_t *word, const struct timespec *until) {
    return syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, until, NULL, 0);
}

static long unlock(volatile uint32_t *word) {
    return syscall(SYS_futex, word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
}

static void begin(void) {
    memset((void *)shared, 0, sizeof *shared);
    CHECK(sem_init(&shared->ready, 1, 0) == 0 && sem_init(&shared->go, 1, 0) == 0);
}

static pid_t start(void (*body)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    return child;
}

static void ended(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void killed(pid_t child) {
    int status;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
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
    pid_t first = start(holder);
    sem_wait(&shared->ready);
    pid_t second = start(middle);
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
    ended(second);
    ended(first);
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
        children[i] = start(add);
    for (int i = 0; i < COUNT; i++)
        ended(children[i]);
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
    pid_t child = start(lock_two);
    until(&shared->words[1], FUTEX_WAITERS);
    CHECK((shared->words[0] & FUTEX_TID_MASK) == (uint32_t)child);
    FAILS(lock(&shared->words[0], NULL), EDEADLK);
    FAILS(unlock(&shared->words[0]), EPERM);
    CHECK(unlock(&shared->words[1]) == 0);
    CHECK((shared->words[1] & FUTEX_TID_MASK) == (uint32_t)child);
    struct timespec soon = in(CLOCK_REALTIME, 5);
    FAILS(lock(&shared->words[1], &soon), ETIMEDOUT);
    sem_post(&shared->go);
    ended(child);
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
    pid_t owner = start(lock_and_stay);
    sem_wait(&shared->ready);
    pid_t waiter = start(want_word);
    sem_wait(&shared->ready);
    until(&shared->words[0], FUTEX_WAITERS);
    killed(owner);
    ended(waiter);
    CHECK(shared->results[1] == 1);
    CHECK((shared->results[2] & FUTEX_TID_MASK) == waiter);
    CHECK(shared->results[2] & FUTEX_OWNER_DIED);

    /* A robust mutex, which nobody waited for, and then one that a process waits for. */
    for (int waits = 0; waits < 2; waits++) {
        begin();
        shared->results[0] = 1;
        make(&shared->mutex, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED);
        owner = start(lock_and_stay);
        sem_wait(&shared->ready);
        if (waits) {
            waiter = start(want_mutex);
            until((volatile uint32_t *)&shared->mutex, FUTEX_WAITERS);
            killed(owner);
            ended(waiter);
        } else {
            killed(owner);
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
    pid_t owner = start(lock_and_execute);
    sem_wait(&shared->ready);
    pid_t waiter = start(want_word);
    sem_wait(&shared->ready);
    until(&shared->words[0], FUTEX_WAITERS);
    sem_post(&shared->go);
    ended(waiter);
    CHECK(shared->results[1] == 1 && (shared->results[2] & FUTEX_OWNER_DIED));
    killed(owner);
}

/* Waiters are killed: the lock goes to one that is left. */
static void waiters_are_killed(void) {
    begin();
    pid_t waiters[6];
    CHECK(lock(&shared->words[0], NULL) == 0);
    for (int i = 0; i < 6; i++)
        waiters[i] = start(want_word);
    for (int i = 0; i < 6; i++)
        sem_wait(&shared->ready);
    until(&shared->words[0], FUTEX_WAITERS);
    usleep(5000);
    for (int i = 0; i < 5; i++)
        killed(waiters[i]);
    CHECK(unlock(&shared->words[0]) == 0);
    ended(waiters[5]);
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
    pid_t stranger = start(forget_memory);
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
    killed(stranger);
}

/* Hostile: a line of processes, each of which waits for the one before, and a crowd that waits for
   the last one at all levels. All of it is killed. */
enum { LINKS = 12, CROWD = 100 };

static volatile uint32_t *line;
static int place;

static void stand_in_line(void) {
    CHECK(lock(&line[place], NULL) == 0);
    sem_post(&shared->ready);
    if (place > 0) {
        /* From some length on it is refused. */
        CHECK(lock(&line[place - 1], NULL) == -1 && errno == EDEADLK);
        shared->results[0]++;
    }
    for (;;)
        pause();
}

static void *press(void *level) {
    setpriority(PRIO_PROCESS, (id_t)gettid(), (int)(long)level);
    sem_post(&shared->ready);
    lock(&line[LINKS - 1], NULL);
    return NULL;
}

static void crowd(void) {
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 65536) == 0);
    for (long i = 0; i < CROWD; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &attributes, press, (void *)(19 - i % 39)) == 0);
    }
    for (;;)
        pause();
}

static void lines_and_crowds(void) {
    pid_t links[LINKS];
    begin();
    line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(line != MAP_FAILED);
    for (place = 0; place < LINKS; place++) {
        links[place] = start(stand_in_line);
        sem_wait(&shared->ready);
        if (place > 0)
            until(&line[place - 1], FUTEX_WAITERS);
    }
    usleep(5000);
    if (is_cops())
        CHECK(shared->results[0] >= 1 && shared->results[0] <= 3);
    pid_t child = start(crowd);
    for (int i = 0; i < CROWD; i++)
        sem_wait(&shared->ready);
    until(&line[LINKS - 1], FUTEX_WAITERS);
    killed(child);
    for (int i = LINKS - 1; i >= 0; i--)
        killed(links[i]);
    CHECK(munmap((void *)line, 4096) == 0);
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
    lines_and_crowds();
    puts("processes lock together");
    return 0;
}
