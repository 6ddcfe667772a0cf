// Processes: fork with memory and descriptors of their own, exec with arguments and environment,
// wait with every status, pipes between them, and posix_spawn.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int faults;
#define FAULT faults++
#include "check.h"

static const char *self;
static int in_data = 1;

// Waits for one child and returns its status.
static int status_of(pid_t child) {
    int status = -1;
    pid_t ended = waitpid(child, &status, 0);
    CHECK(ended == child);
    return status;
}

// Starts this program again in a child, in the part that the arguments name.
static int again(char *const arguments[], char *const environment[]) {
    pid_t child = fork();
    if (child == 0) {
        execve(self, arguments, environment);
        _exit(97);
    }
    return status_of(child);
}

static void memory_and_exit_codes(void) {
    char *heap = malloc(1 << 20);
    memset(heap, 1, 1 << 20);
    for (int code = 0; code < 256; code += 51) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            int same = heap[0] == 1 && heap[(1 << 20) - 1] == 1 && in_data == 1;
            memset(heap, 2, 1 << 20);
            in_data = 2;
            _exit(same && getpid() != getppid() ? code : 255 - code);
        }
        int status = status_of(child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
    }
    CHECK(in_data == 1 && heap[0] == 1 && heap[(1 << 20) - 1] == 1);
    free(heap);
}

static void compute(long milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    long end = time.tv_sec * 1000 + time.tv_nsec / 1000000 + milliseconds, now;
    do {
        clock_gettime(CLOCK_MONOTONIC, &time);
        now = time.tv_sec * 1000 + time.tv_nsec / 1000000;
    } while (now < end);
}

static long microseconds(const struct rusage *usage) {
    return usage->ru_utime.tv_sec * 1000000 + usage->ru_utime.tv_usec +
           usage->ru_stime.tv_sec * 1000000 + usage->ru_stime.tv_usec;
}

// The time on harts: of the process, of a thread, of children that were waited for and of theirs.
static void usage(void) {
    struct rusage own, children, before, of_child;
    struct tms times_before, times_after;
    int status;
    CHECK(getrusage(RUSAGE_CHILDREN, &before) == 0 && times(&times_before) != -1);
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            compute(60);
            _exit(0);
        }
        _exit(waitpid(grandchild, &status, 0) != grandchild);
    }
    CHECK(wait4(child, &status, 0, &of_child) == child && status == 0);
    // A loaded machine gives it less than all the time.
    CHECK(microseconds(&of_child) > 0);
    CHECK(getrusage(RUSAGE_CHILDREN, &children) == 0);
    long used = microseconds(&children) - microseconds(&before) - microseconds(&of_child);
    CHECK(used >= -2 && used <= 2);
    compute(20);
    CHECK(getrusage(RUSAGE_SELF, &own) == 0 && microseconds(&own) > 0 && own.ru_maxrss > 0);
    CHECK(getrusage(RUSAGE_THREAD, &before) == 0 && microseconds(&before) > 0);
    CHECK(times(&times_after) != -1 && times_after.tms_utime >= times_before.tms_utime);
    CHECK(times_after.tms_cutime >= times_before.tms_cutime);
    FAILS(getrusage(7, &own), EINVAL);
    FAILS(getrusage(RUSAGE_SELF, (struct rusage *)1), EFAULT);
}

static long now_of(clockid_t clock) {
    struct timespec now;
    CHECK(clock_gettime(clock, &now) == 0);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static _Atomic long seen;

/* What one thread has seen of the process's clock, no other sees less of. */
static void *sees_the_clock(void *unused) {
    for (int i = 0; i < 20000; i++) {
        long before = seen, now = now_of(CLOCK_PROCESS_CPUTIME_ID);
        CHECK(now >= before);
        while (before < now && !__atomic_compare_exchange_n(&seen, &before, now, 0, 5, 5))
            ;
    }
    return unused;
}

/* They move while a slice lasts, and never backwards. */
static void cpu_clocks(void) {
    enum { MOVES = 1000000 };
    for (int round = 0; round < 10; round++) {
        struct rusage own[2], thread[2];
        clock_t of_library = clock();
        CHECK(getrusage(RUSAGE_SELF, own) == 0 && getrusage(RUSAGE_THREAD, thread) == 0);
        long first[2] = {now_of(CLOCK_PROCESS_CPUTIME_ID), now_of(CLOCK_THREAD_CPUTIME_ID)};
        long last[2] = {first[0], first[1]};
        for (long end = now_of(CLOCK_MONOTONIC) + 3 * MOVES; now_of(CLOCK_MONOTONIC) < end;) {
            long now[2] = {now_of(CLOCK_PROCESS_CPUTIME_ID), now_of(CLOCK_THREAD_CPUTIME_ID)};
            CHECK(now[0] >= last[0] && now[1] >= last[1]);
            memcpy(last, now, sizeof last);
        }
        /* Most of the time may have passed since the last look. */
        last[0] = now_of(CLOCK_PROCESS_CPUTIME_ID), last[1] = now_of(CLOCK_THREAD_CPUTIME_ID);
        CHECK(getrusage(RUSAGE_SELF, own + 1) == 0 && getrusage(RUSAGE_THREAD, thread + 1) == 0);
        CHECK(last[0] - first[0] >= MOVES && last[1] - first[1] >= MOVES);
        CHECK(microseconds(own + 1) - microseconds(own) >= MOVES / 1000);
        CHECK(microseconds(thread + 1) - microseconds(thread) >= MOVES / 1000);
        CHECK((clock() - of_library) * (1000000 / CLOCKS_PER_SEC) >= MOVES / 1000);
    }
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(threads + i, NULL, sees_the_clock, NULL) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void users(void) {
    uid_t ids[3] = {7, 7, 7};
    if (getuid() != 0)
        return;
    CHECK(setuid(0) == 0 && setgid(0) == 0 && setreuid(-1, 0) == 0 && setresuid(0, -1, 0) == 0);
    CHECK(getresuid(&ids[0], &ids[1], &ids[2]) == 0 && ids[0] == 0 && ids[1] == 0 && ids[2] == 0);
    if (is_cops()) {
        CHECK(getgroups(0, NULL) == 0);
        FAILS(setuid(5), EPERM);
        FAILS(setresgid(0, 5, 0), EPERM);
    }
}

static void waiting(void) {
    int status;
    CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 5 : 6);
    }
    CHECK(waitpid(child, &status, WNOHANG) == 0);
    CHECK(waitpid(child + 1000, &status, WNOHANG) == -1 && errno == ECHILD);
    close(ends[1]);
    struct rusage usage;
    memset(&usage, 1, sizeof usage);
    CHECK(wait4(-1, &status, WUNTRACED, &usage) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5 && usage.ru_nswap == 0);
    close(ends[0]);
    // Ended by a signal, of the parent or its own.
    child = fork();
    if (child == 0)
        for (;;)
            pause();
    CHECK(kill(child, SIGKILL) == 0);
    status = status_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    child = fork();
    if (child == 0)
        abort();
    status = status_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    // Several, in any order.
    int sum = 0;
    for (int code = 1; code <= 8; code++)
        if (fork() == 0)
            _exit(code);
    while (wait(&status) > 0)
        sum += WEXITSTATUS(status);
    CHECK(sum == 36 && errno == ECHILD);
}

// A chain of processes, each of which adds 1 to what it reads.
static void pipeline(void) {
    enum { STAGES = 6, NUMBERS = 1000 };
    int in[2];
    CHECK(pipe(in) == 0);
    int first = in[1], last = in[0];
    for (int stage = 0; stage < STAGES; stage++) {
        int out[2];
        CHECK(pipe(out) == 0);
        if (fork() == 0) {
            close(first);
            close(out[0]);
            int number;
            while (read(last, &number, sizeof number) == sizeof number) {
                number++;
                if (write(out[1], &number, sizeof number) != sizeof number)
                    _exit(1);
            }
            _exit(0);
        }
        close(last);
        close(out[1]);
        last = out[0];
    }
    if (fork() == 0) {
        close(last);
        for (int number = 0; number < NUMBERS; number++)
            if (write(first, &number, sizeof number) != sizeof number)
                _exit(1);
        _exit(0);
    }
    close(first);
    int number, count = 0;
    while (read(last, &number, sizeof number) == sizeof number)
        CHECK(number == count++ + STAGES);
    CHECK(count == NUMBERS);
    close(last);
    int status;
    while (wait(&status) > 0)
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void programs(void) {
    char *environment[] = {"HOME=/home", "EMPTY=", "A=b=c", NULL};
    char *code[] = {(char *)self, "code", "42", NULL};
    char *seen[] = {(char *)self, "environment", "", "three words here", NULL};
    int status = again(code, environment);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = again(seen, environment);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    // A descriptor that is closed by exec, and one that is not.
    int open_one = open("/etc/init", O_RDONLY), closed = open("/etc/init", O_RDONLY | O_CLOEXEC);
    char numbers[2][12];
    sprintf(numbers[0], "%d", open_one);
    sprintf(numbers[1], "%d", closed);
    char *files[] = {(char *)self, "files", numbers[0], numbers[1], NULL};
    status = again(files, environment);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(open_one);
    close(closed);
    // What fails leaves everything as it was.
    CHECK(execve("/none", code, environment) == -1 && errno == ENOENT);
    CHECK(execve("/etc/init", code, environment) == -1 && errno == ENOEXEC);
    CHECK(syscall(SYS_execve, self, 8, environment) == -1 && errno == EFAULT);
    char *spawned[] = {(char *)self, "code", "9", NULL};
    pid_t child;
    CHECK(posix_spawn(&child, self, NULL, NULL, spawned, environment) == 0);
    CHECK(status_of(child) == 9 << 8);
    child = vfork();
    if (child == 0) {
        execve(self, spawned, environment);
        _exit(97);
    }
    CHECK(status_of(child) == 9 << 8);
    // A native program of COPS, and back.
    child = fork();
    if (child == 0) {
        execl("/bin/hello", "hello", NULL);
        _exit(97);
    }
    CHECK(status_of(child) == 0);
}

// What this program does when it was started by exec.
static int part(int count, char **arguments, char **environment) {
    if (!strcmp(arguments[1], "code") && count == 3)
        return atoi(arguments[2]);
    if (!strcmp(arguments[1], "environment"))
        return !(count == 4 && !strcmp(arguments[2], "") && !strcmp(arguments[3], "three words here")
                 && !strcmp(environment[0], "HOME=/home") && !strcmp(getenv("A"), "b=c")
                 && !strcmp(getenv("EMPTY"), "") && !environment[3]);
    if (!strcmp(arguments[1], "files") && count == 4)
        return fcntl(atoi(arguments[2]), F_GETFD) != 0 || fcntl(atoi(arguments[3]), F_GETFD) != -1;
    return 99;
}

int main(int count, char **arguments, char **environment) {
    self = arguments[0];
    if (count > 1)
        return part(count, arguments, environment);
    setvbuf(stdout, NULL, _IONBF, 0);
    memory_and_exit_codes();
    waiting();
    usage();
    cpu_clocks();
    users();
    pipeline();
    programs();
    if (!faults)
        puts("processes are in order");
    return faults != 0;
}
