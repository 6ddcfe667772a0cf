/* vfork, and what the C library makes of it: what the child writes, its parent sees; the caller
   waits, other threads do not; errors of posix_spawn; signals and ends of both meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "children.h"

enum { PAGE = 4096 };
extern char **environ;
static volatile int word;
static volatile int *page;
static const char *self;

static int spawn(pid_t *child, const char *path, char **arguments) {
    return posix_spawn(child, path, NULL, NULL, arguments, environ);
}

/* A child on a stack of its own that shares the memory, as posix_spawn starts one. User-mode QEMU
   makes a copy of such a process instead, and executes no programs for RISC-V. */
static pid_t borrow(int (*child)(void *), void *argument) {
    static char stack[8][16 * PAGE] __attribute__((aligned(16)));
    static int next;
    return clone(child, stack[next++ % 8 + 1], CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
}

static int writes(void *unused) {
    (void)unused;
    usleep(20000);
    for (int i = 0; i < 40; i++)
        page[i * PAGE / sizeof *page] = i + 1;
    word = 5;
    _exit(3);
}

static void the_parent_waits_and_sees(void) {
    word = 0;
    pid_t child = borrow(writes, NULL);
    CHECK(child > 0);
    if (is_cops()) {
        CHECK(word == 5);
        for (int i = 0; i < 40; i++)
            CHECK(page[i * PAGE / sizeof *page] == i + 1);
    }
    ended_with(child, 3);
}

static int executes(void *path) {
    char *arguments[] = {path, "end", NULL};
    word = 6;
    execve(path, arguments, environ);
    word = errno;
    _exit(9);
}

/* The caller goes on when the child has another program, which runs for a while. */
static void until_exec(void) {
    int status;
    pid_t child = borrow(executes, (void *)self);
    CHECK(child > 0 && waitpid(child, &status, WNOHANG) == 0);
    if (is_cops())
        CHECK(word == 6);
    ended_with(child, 17);
    child = borrow(executes, "/nowhere");
    ended_with(child, 9);
    if (is_cops())
        CHECK(word == ENOENT);
    /* What the new program writes is its own. */
    page[0] = 77;
    child = borrow(executes, (void *)self);
    ended_with(child, 17);
    CHECK(page[0] == 77);
}

static void library(void) {
    pid_t child;
    char *arguments[] = {(char *)self, "end", NULL}, *wrong[] = {"nothing", NULL};
    CHECK(spawn(&child, self, arguments) == 0);
    ended_with(child, 17);
    if (is_cops())
        CHECK(spawn(&child, "/nowhere", wrong) == ENOENT);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    child = vfork();
    if (child == 0)
        _exit(21);
    ended_with(child, 21);
    /* After a fork, pages are common with a third process. */
    pid_t third = fork();
    CHECK(third >= 0);
    if (third == 0) {
        pause();
        _exit(0);
    }
    if (is_cops())
        CHECK(spawn(&child, "/nowhere", wrong) == ENOENT);
    CHECK(kill(third, SIGKILL) == 0);
    ended_by(third, SIGKILL);
}

static volatile int handled;
static void on_signal(int signal) { handled += signal == SIGUSR1; }

static int is_killed(void *to) {
    (void)to;
    usleep(20000);
    raise(SIGKILL);
    return 0;
}

static int sleeps(void *unused) {
    (void)unused;
    usleep(100000);
    _exit(handled);
}

static void *sends(void *thread) {
    usleep(30000);
    CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    word = 8;
    return NULL;
}

/* A handler runs when the child no longer has the stack; other threads go on. */
static void signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t me = pthread_self(), sender;
    CHECK(pthread_create(&sender, NULL, sends, &me) == 0);
    pid_t child = borrow(sleeps, NULL);
    CHECK(child > 0);
    if (is_cops())
        CHECK(handled == 1 && word == 8);
    CHECK(pthread_join(sender, NULL) == 0);
    ended_with(child, 0);
    ended_by(borrow(is_killed, NULL), SIGKILL);
}

/* The parent is killed while its child has the memory. */
static void killed_parent(void) {
    for (int round = 0; round < 10; round++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        pid_t parent = fork();
        CHECK(parent >= 0);
        if (parent == 0) {
            CHECK(close(ends[0]) == 0);
            borrow(sleeps, NULL);
            _exit(0);
        }
        CHECK(close(ends[1]) == 0);
        usleep(5000 + round * 3000);
        CHECK(kill(parent, SIGKILL) == 0);
        int status;
        CHECK(waitpid(parent, &status, 0) == parent);
        /* The child goes on; it ends by itself. */
        char byte;
        CHECK(read(ends[0], &byte, 1) == 0 && close(ends[0]) == 0);
    }
}

/* A child that has borrowed memory starts a copy, which is a copy. */
static int copies(void *unused) {
    (void)unused;
    page[0] = 1;
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        page[0] = 2;
        _exit(page[0] == 2 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    _exit(status == 0 && page[0] == 1 ? 4 : 5);
}

static void copy_of_a_borrower(void) {
    ended_with(borrow(copies, NULL), 4);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        page[0] = 99;
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(page[0] != 99);
}

/* A call that fails for want of memory, at whatever step, has started nothing: its child would run
   on the stack that it returns to. */
static int counts_itself(void *count) {
    __atomic_fetch_add((int *)count, 1, __ATOMIC_SEQ_CST);
    _exit(0);
}

/* Frees small pieces of memory, the first `first` at once and then `step` at a time, until a child
   can be started. Stores how many it was. In a process of its own, of which no call has waited yet:
   so the first one that does is charged. */
static void sweeps(int *started, int *released, int first, int step) {
    enum { LOCKS = 40000 };
    int file = open("/tmp/vfork", O_RDWR | O_CREAT, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_len = 1};
    /* Small pieces of memory: a lock, with a gap behind it. */
    for (; lock.l_start < 2 * LOCKS; lock.l_start += 2)
        CHECK(fcntl(file, F_SETLK, &lock) == 0);
    /* The rest in large pieces, of which a child is not charged its part. */
    for (size_t bytes = (size_t)1 << 30; bytes >= PAGE; bytes /= 2)
        while (mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
               != MAP_FAILED)
            ;
    lock.l_type = F_UNLCK;
    pid_t child = -1;
    for (*released = 0; child < 0 && *released < LOCKS;) {
        for (int i = 0; i < (*released == 0 ? first : step); i++, ++*released) {
            lock.l_start -= 2;
            CHECK(fcntl(file, F_SETLK, &lock) == 0);
        }
        child = borrow(counts_itself, started);
        CHECK(child > 0 || errno == ENOMEM || errno == EAGAIN);
    }
    CHECK(child > 0);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec - begin.tv_sec < 2);
    ended_with(child, 0);
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    _exit(0);
}

/* What has to be released differs by some hundreds from process to process: a hart keeps freed
   memory, and an earlier process is still being taken away. So the round of single steps begins far
   below what the round before it needed, and lower again if its first child could be started. */
static void at_the_quota(void) {
    enum { STEP = 100, ROUNDS = 6 };
    if (!is_cops())
        return;
    int *seen = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    int first = STEP, step = STEP;
    for (int round = 0; round < ROUNDS; round++) {
        seen[0] = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            sweeps(&seen[0], &seen[1], first, step);
        ended_with(child, 0);
        CHECK(seen[0] == 1);
        if (step == 1 && seen[1] > first)
            break;
        CHECK(round + 1 < ROUNDS && seen[1] > 5 * STEP);
        first = seen[1] - 5 * STEP;
        step = 1;
    }
    CHECK(unlink("/tmp/vfork") == 0);
}

/* The memory that the program may have, in bytes. */
static size_t most_memory(void) {
    size_t most = 0;
    for (size_t step = (size_t)1 << 30; step >= PAGE; step /= 2) {
        int rights = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS;
        void *tried = mmap(NULL, most + step, rights, flags, -1, 0);
        if (tried != MAP_FAILED) {
            most += step;
            CHECK(munmap(tried, most) == 0);
        }
    }
    return most;
}

static void uses(size_t bytes) {
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    volatile char *own = mmap(NULL, bytes, rights, flags, -1, 0);
    CHECK(own != MAP_FAILED);
    for (size_t i = 0; i < bytes; i += PAGE)
        own[i] = 1;
}

/* What a program has mapped ends with its execve, before its parent goes on: a file may be cut off
   that only the child had mapped last. Its memory is free before the new program begins. */
static void nothing_is_left_of_the_old_program(void) {
    char *end[] = {(char *)self, "end", NULL}, *again[] = {(char *)self, "again", NULL};
    size_t much = 2048 * PAGE;
    int rights = PROT_READ | PROT_WRITE;
    int file = open("/tmp/mapped", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char *own = mmap(NULL, much, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(file >= 0 && own != MAP_FAILED);
    memset(own, 1, much);
    pid_t child;
    for (int round = 0; round < 10; round++) {
        CHECK(ftruncate(file, PAGE) == 0);
        char *mapped = mmap(NULL, PAGE, rights, MAP_SHARED, file, 0);
        CHECK(mapped != MAP_FAILED);
        mapped[0] = 1;
        CHECK(spawn(&child, self, end) == 0);
        CHECK(munmap(mapped, PAGE) == 0 && ftruncate(file, 0) == 0);
        ended_with(child, 17);
    }
    CHECK(close(file) == 0 && unlink("/tmp/mapped") == 0);
    CHECK(munmap(own, much) == 0);
    CHECK(spawn(&child, self, again) == 0);
    ended_with(child, 17);
}


int main(int count, char **arguments) {
    self = arguments[0];
    if (count > 1 && strcmp(arguments[1], "again") == 0) {
        size_t bytes = most_memory() / 3 * 2;
        char number[24], *once_more[] = {arguments[0], "once more", number, NULL};
        snprintf(number, sizeof number, "%zu", bytes);
        uses(bytes);
        execve(self, once_more, environ);
        return 98;
    }
    if (count > 2 && strcmp(arguments[1], "once more") == 0) {
        uses(strtoul(arguments[2], NULL, 10));
        return 17;
    }
    if (count > 1 && strcmp(arguments[1], "end") == 0) {
        usleep(20000);
        return 17;
    }
    page = mmap(NULL, 40 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    for (int i = 0; i < 40; i++)
        page[i * PAGE / sizeof *page] = -1;
    the_parent_waits_and_sees();
    until_exec();
    library();
    signals();
    killed_parent();
    copy_of_a_borrower();
    at_the_quota();
    if (is_cops())
        nothing_is_left_of_the_old_program();
    printf("children are in order\n");
    return 0;
}
