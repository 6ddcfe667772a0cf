/* fork in a program with several threads: the child has the memory of one moment. Whatever it sees
   of a thread, it sees all that the thread wrote before. A C library relies on that: its lists of
   threads and of free memory are in many pages. Runs on Linux too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "children.h"

enum { PAGES = 200, WORDS = 4096 / sizeof(long) };

static volatile long *up, *down, *big;

static volatile long *map(int pages, int flags) {
    void *place = mmap(NULL, pages * 4096L, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    return place;
}

static void start(void *(*what)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, what, NULL) == 0);
}

/* Writers, each of the same number to all pages, in this order or that. */

static void *write_up(void *unused) {
    for (long round = 1;; round++)
        for (int page = 0; page < PAGES; page++)
            up[page * WORDS] = round;
    return unused;
}

static void *write_down(void *unused) {
    for (long round = 1;; round++)
        for (int page = PAGES - 1; page >= 0; page--)
            down[page * WORDS] = round;
    return unused;
}

/* The kernel writes to one page, the thread to the others. */
static volatile struct {
    long by_kernel[WORDS], between[8 * WORDS], by_thread[WORDS];
} both __attribute__((aligned(4096)));

static void *write_by_calls(void *unused) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (long round = 1;; round++) {
        CHECK(write(ends[1], &round, sizeof round) == sizeof round);
        CHECK(read(ends[0], (void *)&both.by_kernel, sizeof round) == sizeof round);
        both.by_thread[0] = round;
    }
    return unused;
}

/* In the child: no number is older than one that was written after it. */
static void look(void) {
    for (int page = 1; page < PAGES; page++) {
        long before = up[(page - 1) * WORDS], after = up[page * WORDS];
        CHECK(before == after || before == after + 1);
        before = down[page * WORDS], after = down[(page - 1) * WORDS];
        CHECK(before == after || before == after + 1);
    }
    CHECK(up[0] - up[(PAGES - 1) * WORDS] <= 1 && down[(PAGES - 1) * WORDS] - down[0] <= 1);
    long called = both.by_kernel[0], wrote = both.by_thread[0];
    CHECK(called == wrote || called == wrote + 1);
}

static void *fork_often(void *unused) {
    for (int round = 0; round < 60; round++)
        ended_with(fork_child(look), 0);
    return unused;
}

/* Several threads fork, while others write. */
static void several(void) {
    start(write_up);
    start(write_down);
    start(write_by_calls);
    pthread_t others[2];
    for (int other = 0; other < 2; other++)
        CHECK(pthread_create(&others[other], NULL, fork_often, NULL) == 0);
    fork_often(NULL);
    for (int other = 0; other < 2; other++)
        CHECK(pthread_join(others[other], NULL) == 0);
}

/* A signal stops the process in the middle of that, and another one makes it go on. */
static void stopped_meanwhile(void) {
    pid_t forker = fork_child(several);
    for (int stop = 0; stop < 40; stop++) {
        usleep(1000 + 700 * (stop % 9));
        CHECK(kill(forker, SIGSTOP) == 0);
        int status;
        CHECK(waitpid(forker, &status, WUNTRACED) == forker);
        if (WIFEXITED(status)) {
            CHECK(WEXITSTATUS(status) == 0 && stop > 2);
            return;
        }
        CHECK(WIFSTOPPED(status) && kill(forker, SIGCONT) == 0);
    }
    ended_with(forker, 0);
}

/* It is killed in the middle of that. */
static void killed_meanwhile(void) {
    for (int round = 0; round < 20; round++) {
        pid_t forker = fork_child(several);
        usleep(1000 + 1700 * round);
        CHECK(kill(forker, SIGKILL) == 0);
        int status;
        CHECK(waitpid(forker, &status, 0) == forker);
        CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    }
}

/* There is no memory for the copy of the last mappings: the other threads go on. */
static void without_memory(void) {
    start(write_up);
    while (mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        continue;
    for (int round = 0; round < 20; round++) {
        FAILS(fork(), ENOMEM);
        for (long before = up[0]; up[0] == before;)
            sched_yield();
    }
}

/* A handler of the thread that forks comes before the fork or after it: it can wait for another
   thread. It forks itself. */
static volatile int handled;

/* With the same arguments each time. The C library's fork has locks, which a handler must not wait
   for. */
static pid_t bare_fork(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
}

static void handle(int unused) {
    (void)unused;
    handled++;
    for (long before = up[0]; up[0] == before;)
        sched_yield();
    pid_t child = bare_fork();
    if (child == 0)
        _exit(7);
    CHECK(child > 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
}

static void handlers_meanwhile(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
    start(write_up);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
    /* Files are copied first, which takes several portions. */
    for (int file = 3; file < 1000; file++)
        CHECK(dup2(0, file) == file);
    for (int round = 0; round < 120; round++) {
        struct itimerval soon = {{0, 0}, {0, 10 + 4 * round}}, never = {0};
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        pid_t child = bare_fork();
        if (child == 0)
            _exit(0);
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    }
    CHECK(handled > 40);
}

/* On one hart: the end of a child takes two turns of a thread that computes meanwhile, and not one
   for each part of the child that the kernel frees. */

static volatile long steps;

static void *step(void *unused) {
    for (;;)
        steps++;
    return unused;
}

static void ends_in_time(void) {
    start(step);
    while (steps == 0)
        sched_yield();
    long before = steps;
    usleep(200000);
    long in_two_tenths = steps - before;
    for (int round = 0; round < 5; round++) {
        before = steps;
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        ended_with(child, 0);
        long meanwhile = steps - before;
        if (meanwhile > 2 * in_two_tenths)
            printf("%ld of %ld\n", meanwhile, in_two_tenths);
        CHECK(meanwhile <= 2 * in_two_tenths);
    }
}

/* On one hart: a thread waits for the fork of a less urgent one, and with it for nothing else. The
   process `spinner` is of a level between them. */

enum { BIG = 4000, SPINS = 20000000 };

static volatile long *spun;
static volatile int ends;

static void *fork_big(void *unused) {
    CHECK(setpriority(PRIO_PROCESS, 0, 19) == 0);
    while (!ends) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    }
    return unused;
}

static void spinner(void) {
    for (;;) {
        usleep(9000);
        for (long spin = 0; spin < SPINS; spin++)
            ++*spun;
    }
}

static void most_urgent_waits_for_nothing_else(void) {
    spun = map(1, MAP_SHARED);
    big = map(BIG, MAP_PRIVATE);
    for (int page = 0; page < BIG; page++)
        big[page * WORDS] = page;
    pid_t between = fork_child(spinner);
    CHECK(setpriority(PRIO_PROCESS, 0, -15) == 0);
    pthread_t forker;
    CHECK(pthread_create(&forker, NULL, fork_big, NULL) == 0);
    /* So much of its work the spinner does in one sleep of this thread, which is much shorter, also
       if the emulator is late with the timer because the host has other things to do. */
    long most = 0;
    while (*spun < 6L * SPINS) {
        long before = *spun;
        usleep(500);
        long during = *spun - before;
        most = during > most ? during : most;
    }
    if (most > SPINS / 2)
        printf("%ld of %d\n", most, SPINS);
    CHECK(most <= SPINS / 2);
    kill_child(between);
    ends = 1;
    CHECK(pthread_join(forker, NULL) == 0);
}

/* On one hart: when a stopped process continues, its threads do so by their levels. Many starve
   because process `between` computes, and do not delay an urgent one. A thread that becomes urgent
   since the urgent one waits for its mutex continues too. */

enum { STARVING = 60 };

static struct {
    int turns, releases, rounds;
} volatile *seen;
static pthread_mutex_t owned[STARVING];
static volatile int owners;

static void *starve(void *mutex) {
    CHECK(pthread_mutex_lock(mutex) == 0);
    owners++;
    CHECK(setpriority(PRIO_PROCESS, 0, 19) == 0);
    while (!seen->releases)
        continue;
    CHECK(pthread_mutex_unlock(mutex) == 0);
    return step(NULL);
}

static void one_urgent_of_many(void) {
    pthread_mutexattr_t inherits;
    CHECK(pthread_mutexattr_init(&inherits) == 0);
    CHECK(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT) == 0);
    for (int i = 0; i < STARVING; i++) {
        pthread_t thread;
        CHECK(pthread_mutex_init(&owned[i], &inherits) == 0);
        CHECK(pthread_create(&thread, NULL, starve, &owned[i]) == 0);
    }
    while (owners < STARVING)
        usleep(1000);
    CHECK(setpriority(PRIO_PROCESS, 0, -10) == 0);
    for (;; seen->turns++) {
        usleep(5000);
        if (!seen->releases)
            continue;
        for (int i = 0; i < STARVING; i++)
            CHECK(pthread_mutex_lock(&owned[i]) == 0 && pthread_mutex_unlock(&owned[i]) == 0);
        seen->rounds++;
    }
}

static void between(void) {
    CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0);
    for (;;)
        continue;
}

static void grows(volatile int *count) {
    int before = *count;
    for (int looks = 0; *count < before + 3; looks++) {
        CHECK(looks < 2000);
        usleep(1000);
    }
}

static void continues_by_levels(void) {
    seen = (void *)map(1, MAP_SHARED);
    CHECK(setpriority(PRIO_PROCESS, 0, -15) == 0);
    pid_t many = fork_child(one_urgent_of_many);
    grows(&seen->turns);
    CHECK(kill(many, SIGSTOP) == 0);
    int status;
    CHECK(waitpid(many, &status, WUNTRACED) == many && WIFSTOPPED(status));
    /* The urgent one comes last. */
    usleep(50000);
    pid_t computes = fork_child(between);
    CHECK(kill(many, SIGCONT) == 0);
    grows(&seen->turns);
    seen->releases = 1;
    grows(&seen->rounds);
    kill_child(computes);
    kill_child(many);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    up = map(PAGES, MAP_PRIVATE);
    down = map(PAGES, MAP_PRIVATE);
    ended_with(fork_child(several), 0);
    ended_with(fork_child(handlers_meanwhile), 0);
    stopped_meanwhile();
    killed_meanwhile();
    if (is_cops())
        ended_with(fork_child(without_memory), 0);
    if (get_nprocs() == 1) {
        ended_with(fork_child(ends_in_time), 0);
        most_urgent_waits_for_nothing_else();
        continues_by_levels();
    }
    puts("each child has the memory of one moment");
    return 0;
}
