/* Robust mutexes in memory that processes share, of which the owners end: by execve, from any thread
   and of any thread, and by a kill while other processes wait and lock. Also passes on Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "children.h"
#include "inheriting.h"

/* Of a thread, more than the kernel releases in one portion. */
enum { EACH = 50, SLEEPS = EACH, SPINS = 2 * EACH, FIRST = 3 * EACH, MUTEXES = 4 * EACH };
enum { FROM_FIRST, FROM_ANOTHER, WAYS };

static struct shared {
    pthread_mutex_t mutex[MUTEXES];
    sem_t ready, go, turn;
    atomic_int inside, both, turns;
} *shared;
static char *own_path;
static int way, ends[2];

static volatile uint32_t *word(int index) {
    return (volatile uint32_t *)&shared->mutex[index];
}

static void begin(int protocol) {
    memset((void *)shared, 0, sizeof *shared);
    CHECK(sem_init(&shared->ready, 1, 0) == 0 && sem_init(&shared->go, 1, 0) == 0);
    CHECK(sem_init(&shared->turn, 1, 0) == 0);
    for (int i = 0; i < MUTEXES; i++)
        make(&shared->mutex[i], protocol, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED);
}

static void *does_nothing(void *unused) {
    sem_post(&shared->ready);
    for (;;)
        pause();
    return unused;
}

static void lock_from(int first) {
    for (int i = first; i < first + EACH; i++)
        CHECK(pthread_mutex_lock(&shared->mutex[i]) == 0);
    sem_post(&shared->ready);
}

static void *sleeps(void *unused) {
    lock_from(SLEEPS);
    for (;;)
        pause();
    return unused;
}

static void *spins(void *unused) {
    lock_from(SPINS);
    for (;;)
        ;
    return unused;
}

/* The program that it executes writes a byte when it runs, and stays. */
static void *execute(void *unused) {
    lock_from(0);
    sem_wait(&shared->go);
    char number[12];
    sprintf(number, "%d", ends[1]);
    execl("/none/such", "none", NULL);
    /* What has failed has changed nothing. */
    CHECK((*word(0) & FUTEX_TID_MASK) == (uint32_t)gettid());
    CHECK((*word(SLEEPS) & FUTEX_TID_MASK) != 0);
    execl(own_path, own_path, "stay", number, NULL);
    _exit(9);
    return unused;
}

static void owner(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sleeps, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, spins, NULL) == 0);
    lock_from(FIRST);
    if (way == FROM_FIRST)
        execute(NULL);
    CHECK(pthread_create(&thread, NULL, execute, NULL) == 0);
    for (;;)
        pause();
}

static void wait_for_sleeper(void) {
    CHECK(pthread_mutex_lock(&shared->mutex[SLEEPS + 7]) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&shared->mutex[SLEEPS + 7]) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex[SLEEPS + 7]) == 0);
}

/* All mutexes of all threads are free when the new program runs, and say that the owner has died. */
static void owners_execute(int protocol) {
    for (way = 0; way < WAYS; way++) {
        begin(protocol);
        CHECK(pipe(ends) == 0);
        pid_t child = fork_child(owner);
        for (int i = 0; i < 4; i++)
            sem_wait(&shared->ready);
        pid_t waiter = fork_child(wait_for_sleeper);
        until(word(SLEEPS + 7), FUTEX_WAITERS);
        sem_post(&shared->go);
        char byte;
        CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 1 && close(ends[0]) == 0);
        for (int i = 0; i < MUTEXES; i++) {
            if (i == SLEEPS + 7)
                continue;
            /* On Linux, a thread that is not the first has the number of the first by then. */
            if (i < EACH && way == FROM_ANOTHER && !is_cops())
                continue;
            int result = pthread_mutex_trylock(&shared->mutex[i]);
            if (result != EOWNERDEAD)
                printf("mutex %d: %d\n", i, result);
            CHECK(result == EOWNERDEAD);
            CHECK(pthread_mutex_consistent(&shared->mutex[i]) == 0);
            CHECK(pthread_mutex_unlock(&shared->mutex[i]) == 0);
        }
        ended_with(waiter, 0);
        kill_child(child);
    }
}

/* The first thread, which runs, ends while another one executes a program: its mutex is found. */
static void *execute_soon(void *unused) {
    sem_wait(&shared->go);
    execl(own_path, own_path, "end", NULL);
    _exit(9);
    return unused;
}

static void runs_beside_execve(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, execute_soon, NULL) == 0);
    CHECK(pthread_mutex_lock(&shared->mutex[0]) == 0);
    sem_post(&shared->ready);
    for (;;)
        ;
}

/* As pthread_mutex_lock, but for a few seconds only. */
static int lock_in_time(int index) {
    struct timespec until;
    CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_sec += 20;
    return pthread_mutex_timedlock(&shared->mutex[index], &until);
}

static void first_ends_late(void) {
    for (int round = 0; round < 100; round++) {
        begin(PTHREAD_PRIO_NONE);
        pid_t child = fork_child(runs_beside_execve);
        sem_wait(&shared->ready);
        sem_post(&shared->go);
        CHECK(lock_in_time(0) == EOWNERDEAD);
        ended_with(child, 0);
    }
}

/* A mutex with inheritance is handed over to a thread that another one ends by execve at about that
   time: it does not stay with it. */
static void *waits_for_mutex(void *unused) {
    sem_post(&shared->ready);
    pthread_mutex_lock(&shared->mutex[0]);
    for (;;)
        pause();
    return unused;
}

static void waits_beside_execve(void) {
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, &small, waits_for_mutex, NULL) == 0);
    sem_wait(&shared->ready);
    /* Their ends take a while. */
    for (int i = 0; i < 300; i++)
        CHECK(pthread_create(&thread, &small, does_nothing, NULL) == 0);
    for (int i = 0; i < 300; i++)
        sem_wait(&shared->ready);
    until(word(0), FUTEX_WAITERS);
    sem_post(&shared->turn);
    execute_soon(NULL);
}

static void handed_over_late(void) {
    for (int round = 0; round < 120; round++) {
        begin(PTHREAD_PRIO_INHERIT);
        CHECK(pthread_mutex_lock(&shared->mutex[0]) == 0);
        pid_t child = fork_child(waits_beside_execve);
        sem_wait(&shared->turn);
        sem_post(&shared->go);
        usleep(round * 40);
        CHECK(pthread_mutex_unlock(&shared->mutex[0]) == 0);
        int result = lock_in_time(0);
        if (result != 0 && result != EOWNERDEAD)
            printf("round %d: %d\n", round, result);
        CHECK(result == 0 || result == EOWNERDEAD);
        ended_with(child, 0);
    }
}

/* A thread ends after it has unlocked a mutex, and before it has woken a waiter. */
static void unlocks_in_part(void) {
    static void *head[3];
    head[0] = head;
    head[1] = (void *)0;
    head[2] = (void *)&shared->both;
    CHECK(syscall(SYS_set_robust_list, head, 24L) == 0);
    shared->both = 0;
}

static void waits_for_both(void) {
    struct timespec time = {20, 0};
    CHECK(syscall(SYS_futex, &shared->both, FUTEX_WAIT, 1, &time, NULL, 0) == 0);
}

static void unlocked_in_part(void) {
    begin(PTHREAD_PRIO_NONE);
    shared->both = 1;
    pid_t waiter = fork_child(waits_for_both);
    until_asleep(waiter);
    ended_with(fork_child(unlocks_in_part), 0);
    ended_with(waiter, 0);
}

/* Many threads of a program wait for one of them, and then another process. They end together. */
enum { CROWD = 30 };
static void *in_crowd(void *unused) {
    while ((*word(0) & FUTEX_TID_MASK) == 0)
        usleep(1000);
    sem_post(&shared->ready);
    pthread_mutex_lock(&shared->mutex[0]);
    return unused;
}

static void *owns_in_crowd(void *unused) {
    CHECK(pthread_mutex_lock(&shared->mutex[0]) == 0);
    sem_post(&shared->ready);
    for (;;)
        pause();
    return unused;
}

/* The owner is the first thread, the last one, or one between. */
static int owner_at;
static void crowd(void) {
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
    pthread_t thread;
    if (owner_at == 0) {
        CHECK(pthread_mutex_lock(&shared->mutex[0]) == 0);
        sem_post(&shared->ready);
    }
    for (int i = 1; i <= CROWD; i++)
        CHECK(pthread_create(&thread, &small, i == owner_at ? owns_in_crowd : in_crowd, NULL) == 0);
    execute_soon(NULL);
}

static void waits_behind_crowd(void) {
    CHECK(lock_in_time(0) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&shared->mutex[0]) == 0);
    CHECK(pthread_mutex_unlock(&shared->mutex[0]) == 0);
}

static void behind_many(void) {
    for (int round = 0; round < 6; round++) {
        begin(PTHREAD_PRIO_NONE);
        owner_at = round / 2 * CROWD / 2;
        pid_t child = fork_child(crowd);
        for (int i = 0; i <= CROWD - (owner_at != 0); i++)
            sem_wait(&shared->ready);
        usleep(50000);
        pid_t waiter = fork_child(waits_behind_crowd);
        until_asleep(waiter);
        if (round % 2 == 0)
            kill_child(child);
        else
            sem_post(&shared->go), ended_with(child, 0);
        ended_with(waiter, 0);
    }
}

/* Hostile: the list of one thread is a circle, that of another leads nowhere. */
static void *has_circle(void *unused) {
    static void *head[3], *entry;
    head[0] = &entry;
    entry = &entry;
    head[1] = (void *)((char *)word(0) - (char *)&entry);
    CHECK(syscall(SYS_set_robust_list, head, 24L) == 0);
    return sleeps(unused);
}

static void *leads_nowhere(void *unused) {
    static void *head[3] = {(void *)0x123456789000, (void *)3, (void *)-8};
    CHECK(syscall(SYS_set_robust_list, head, 24L) == 0);
    sem_post(&shared->ready);
    for (;;)
        pause();
    return unused;
}

static void bad_lists(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, has_circle, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, leads_nowhere, NULL) == 0);
    for (int i = 0; i < 2; i++)
        sem_wait(&shared->ready);
    sem_post(&shared->go);
    execute(NULL);
}

static void hostile_lists(void) {
    begin(PTHREAD_PRIO_NONE);
    CHECK(pipe(ends) == 0);
    pid_t child = fork_child(bad_lists);
    char byte;
    CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 1 && close(ends[0]) == 0);
    CHECK(pthread_mutex_trylock(&shared->mutex[0]) == EOWNERDEAD);
    kill_child(child);
}

/* A process that is killed has a mutex with inheritance, for which another one waits. A third locks
   it at the moment at which the word says that the owner has died: it is one after the other. */
static void has_many_threads(void) {
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
    pthread_t thread;
    for (int i = 0; i < 100; i++)
        CHECK(pthread_create(&thread, &small, does_nothing, NULL) == 0);
    CHECK(pthread_create(&thread, &small, sleeps, NULL) == 0);
    for (;;)
        pause();
}

static void enter(void) {
    int result = pthread_mutex_lock(&shared->mutex[SLEEPS]);
    CHECK(result == 0 || result == EOWNERDEAD);
    if (result == EOWNERDEAD)
        CHECK(pthread_mutex_consistent(&shared->mutex[SLEEPS]) == 0);
    if (atomic_fetch_add(&shared->inside, 1) != 0)
        shared->both = 1;
    usleep(2000);
    atomic_fetch_sub(&shared->inside, 1);
    shared->turns++;
    CHECK(pthread_mutex_unlock(&shared->mutex[SLEEPS]) == 0);
}

static void enter_when_it_has_died(void) {
    while ((*word(SLEEPS) & FUTEX_OWNER_DIED) == 0 && shared->turns == 0)
        ;
    enter();
}

static void one_after_the_other(void) {
    for (int round = 0; round < 10; round++) {
        begin(PTHREAD_PRIO_INHERIT);
        pid_t child = fork_child(has_many_threads);
        for (int i = 0; i < 101; i++)
            sem_wait(&shared->ready);
        pid_t waits = fork_child(enter);
        until(word(SLEEPS), FUTEX_WAITERS);
        pid_t comes = fork_child(enter_when_it_has_died);
        usleep(2000);
        kill_child(child);
        ended_with(waits, 0);
        ended_with(comes, 0);
        CHECK(shared->turns == 2 && shared->both == 0);
    }
}

int main(int count, char **arguments) {
    if (count > 2 && strcmp(arguments[1], "stay") == 0) {
        CHECK(write(atoi(arguments[2]), "x", 1) == 1);
        for (;;)
            pause();
    }
    if (count > 1 && strcmp(arguments[1], "end") == 0)
        return 0;
    own_path = arguments[0];
    setvbuf(stdout, NULL, _IONBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    one_after_the_other();
    owners_execute(PTHREAD_PRIO_NONE);
    owners_execute(PTHREAD_PRIO_INHERIT);
    hostile_lists();
    first_ends_late();
    handed_over_late();
    unlocked_in_part();
    behind_many();
    puts("no mutex is lost");
    return 0;
}
