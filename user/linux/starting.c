/* Signals to many processes, of which one is being started: the child takes them too. Either it is
   a copy of a parent that has handled the signal, or it gets the signal itself. Runs on Linux too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "children.h"

/* The memory of a fork that takes long. */
enum { PAGES = 1000 };

static volatile struct { int round, sent, stop, group; } *shared;
static volatile sig_atomic_t seen;

static void *map(size_t bytes, int flags) {
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    return place;
}

static void make_forks_slow(void) {
    char *memory = map(PAGES * 4096, MAP_PRIVATE);
    for (int page = 0; page < PAGES; page++)
        memory[page * 4096] = 1;
    for (int file = 20; file < 1000; file++)
        CHECK(dup2(0, file) == file);
}

static void count(int signal) {
    (void)signal;
    seen++;
}

/* More urgent than what forks, on one hart; on Linux several processors must do. */
static void set_nice(int nice) {
    if (is_cops())
        CHECK(setpriority(PRIO_PROCESS, 0, nice) == 0);
}

/* Until this round begins, and a part of its fork is over. */
static void until_in_fork(int round) {
    while (shared->round < round)
        usleep(20);
    usleep(7 * (round % 40));
}

/* A process forks all the time; its group gets a signal in each fork, with a handler or blocked. */

enum { SIGNALLED = 200 };

static void fork_in_group(void) {
    set_nice(0);
    CHECK(setpgid(0, 0) == 0);
    shared->group = getpid();
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    make_forks_slow();
    for (int round = 1; round <= SIGNALLED; round++) {
        shared->round = round;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            while (shared->sent < round)
                usleep(20);
            /* A signal that has been sent is there when a call returns. */
            usleep(1);
            _exit(seen >= round ? 0 : 1);
        }
        ended_with(child, 0);
        CHECK(seen == round);
    }
}

static void group_with_handlers(void) {
    shared->round = shared->sent = shared->group = 0;
    pid_t forker = fork_child(fork_in_group);
    for (int round = 1; round <= SIGNALLED; round++) {
        until_in_fork(round);
        CHECK(kill(-shared->group, SIGUSR1) == 0);
        shared->sent = round;
    }
    ended_with(forker, 0);
}

/* A group is killed in the middle of a fork: no member is left. */

enum { KILLED = 60 };

static void fork_and_wait(void) {
    set_nice(0);
    CHECK(setpgid(0, 0) == 0);
    make_forks_slow();
    shared->group = getpid();
    for (;;) {
        shared->round++;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            for (;;)
                pause();
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    }
}

static void killed_groups(void) {
    for (int round = 1; round <= KILLED; round++) {
        /* At the end of this pipe all have ended. */
        int ends[2];
        char byte;
        CHECK(pipe(ends) == 0);
        shared->round = shared->group = 0;
        pid_t forker = fork_child(fork_and_wait);
        CHECK(close(ends[1]) == 0);
        until_in_fork(round % 3 + 1);
        usleep(9 * round);
        CHECK(kill(-shared->group, round % 2 ? SIGTERM : SIGKILL) == 0);
        ended_by(forker, round % 2 ? SIGTERM : SIGKILL);
        CHECK(read(ends[0], &byte, 1) == 0 && close(ends[0]) == 0);
    }
}

/* A thread of the parent kills all descendants in the middle of a fork: that returns a child, which
   can be waited for. On Linux the signal would reach all processes of the user. */

static void *kill_all(void *unused) {
    set_nice(-15);
    for (int round = 1; !shared->stop; round++) {
        until_in_fork(round);
        int result = kill(-1, SIGKILL);
        CHECK(result == 0 || errno == ESRCH || errno == EPERM);
        shared->sent = round;
        if (round == SIGNALLED)
            break;
    }
    return unused;
}

static void killed_children(void) {
    shared->round = shared->sent = 0;
    make_forks_slow();
    pthread_t killer;
    CHECK(pthread_create(&killer, NULL, kill_all, NULL) == 0);
    for (int round = 1; round <= SIGNALLED; round++) {
        shared->round = round;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            for (;;)
                pause();
        while (shared->sent < round)
            usleep(20);
        CHECK(kill(child, SIGTERM) == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
    }
    CHECK(pthread_join(killer, NULL) == 0);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    /* A forker that has failed begins no more rounds. */
    alarm(90);
    shared = map(4096, MAP_SHARED);
    set_nice(-15);
    group_with_handlers();
    killed_groups();
    if (is_cops()) {
        set_nice(0);
        killed_children();
    }
    puts("signals reach processes that are being started");
    return 0;
}
