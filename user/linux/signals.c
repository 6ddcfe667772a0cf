// Signals: handlers and what they are told, masks, calls that they interrupt, alternate stacks,
// faults, and what a child inherits. Also passes on Linux.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static int faults;
#define FAULT faults++
#include "check.h"

static volatile sig_atomic_t count, last, code, sender, depth, deepest;
static void *volatile address;

static void note(int signal, siginfo_t *info, void *context) {
    (void)context;
    count++;
    last = signal;
    code = info->si_code;
    sender = info->si_pid;
    address = info->si_addr;
}

static void on(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | flags};
    action.sa_sigaction = handler;
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static sigset_t only(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

static int status_of(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
        ;
    return status;
}

static void nap(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

static void wrong_numbers(void) {
    FAILS(syscall(SYS_tkill, 0, 0), EINVAL);
    FAILS(syscall(SYS_tkill, -1, 0), EINVAL);
    FAILS(syscall(SYS_tkill, 1 << 29 | 12345, 0), ESRCH);
    FAILS(syscall(SYS_tgkill, 0, getpid(), 0), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), 0, 0), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), 1 << 29 | 12345, 0), ESRCH);
    uint32_t half[2] = {7, 7};
    CHECK(syscall(SYS_rt_sigpending, half, 4) == 0 && half[0] == 0 && half[1] == 7);
    FAILS(syscall(SYS_rt_sigpending, half, 16), EINVAL);
    FAILS(syscall(SYS_wait4, INT_MIN, 0, 0, 0), ESRCH);
    // Random numbers of both kinds.
    FAILS(syscall(SYS_getrandom, half, 4, 6), EINVAL);
    CHECK(syscall(SYS_getrandom, half, 4, 5) == 4);
}

static void handlers_and_masks(void) {
    on(SIGUSR1, note, 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(count == 1 && last == SIGUSR1 && code == SI_USER && sender == getpid());
    CHECK(raise(SIGUSR1) == 0 && count == 2 && code == SI_TKILL);
    sigset_t blocked = only(SIGUSR1), pending, old;
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(count == 2 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
    CHECK(sigprocmask(SIG_UNBLOCK, &blocked, &old) == 0);
    CHECK(sigismember(&old, SIGUSR1) == 1 && count == 3);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 0);
    // Once, and then the default again.
    struct sigaction now;
    on(SIGUSR2, note, SA_RESETHAND);
    CHECK(raise(SIGUSR2) == 0 && count == 4);
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    // Those that cannot be changed, and ignored ones.
    CHECK(signal(SIGKILL, SIG_IGN) == SIG_ERR && errno == EINVAL);
    CHECK(signal(SIGSTOP, SIG_IGN) == SIG_ERR && errno == EINVAL);
    CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR && raise(SIGUSR2) == 0);
    CHECK(signal(SIGUSR2, SIG_DFL) != SIG_ERR && kill(getpid(), 0) == 0);
    CHECK(kill(getpid(), 65) == -1 && errno == EINVAL);
}

static void nest(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    if (++depth > deepest)
        deepest = depth;
    if (depth < 3 && count++ < 5)
        raise(signal);
    depth--;
}

static void nesting(void) {
    on(SIGUSR1, nest, SA_NODEFER);
    count = 0;
    raise(SIGUSR1);
    CHECK(deepest == 3 && depth == 0);
    deepest = 0;
    // Blocked while it runs: one after the other.
    on(SIGUSR1, nest, 0);
    count = 0;
    raise(SIGUSR1);
    CHECK(deepest == 1 && depth == 0 && count == 6);
}

// Many signals while registers of all kinds are in use.
static void storm(void) {
    on(SIGUSR1, note, 0);
    count = 0;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        // The parent has authority over the child, so the child is the one that computes.
        volatile double sum = 0;
        double step = 0.5, x = 1.25, y = 3.5;
        long number = 1;
        for (long i = 0; count < 200 && i < 2000000000; i++) {
            x = x * 1.0000001 + step;
            y = y - x * 0.0000001;
            number = number * 6364136223846793005 + 1442695040888963407;
            if (x > 1000000 || number == 0) {
                x = 1.25;
                sum = sum + y;
            }
            if (step != 0.5)
                _exit(1);
        }
        _exit(count < 200 ? 2 : 0);
    }
    CHECK(parent == getpid());
    int ended = 0, status = 0;
    while (!ended) {
        kill(child, SIGUSR1);
        ended = waitpid(child, &status, WNOHANG) == child;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// A child that reads from a pipe gets a signal while it waits.
static int interrupted_read(int flags) {
    int ends[2], ready[2];
    CHECK(pipe(ends) == 0 && pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        count = 0;
        on(SIGUSR1, note, flags);
        write(ready[1], "r", 1);
        ssize_t got = read(ends[0], &byte, 1);
        _exit(count < 1 ? 3 : got == 1 ? 1 : got == -1 && errno == EINTR ? 2 : 4);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    nap(30);
    kill(child, SIGUSR1);
    nap(30);
    CHECK(write(ends[1], "x", 1) == 1);
    int status = status_of(child);
    for (int i = 0; i < 2; i++)
        close(ends[i]), close(ready[i]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void interrupted_calls(void) {
    CHECK(interrupted_read(SA_RESTART) == 1);
    CHECK(interrupted_read(0) == 2);
    // A sleep tells what is left.
    pid_t child = fork();
    if (child == 0) {
        struct timespec time = {1000, 0}, left = {0, 0};
        on(SIGUSR1, note, SA_RESTART);
        int result = nanosleep(&time, &left);
        _exit(!(result == -1 && errno == EINTR && left.tv_sec > 900 && left.tv_sec < 1000));
    }
    nap(50);
    kill(child, SIGUSR1);
    CHECK(status_of(child) == 0);
    // An ignored signal interrupts nothing.
    child = fork();
    if (child == 0) {
        signal(SIGUSR1, SIG_IGN);
        struct timespec time = {0, 100000000};
        _exit(nanosleep(&time, NULL) != 0);
    }
    nap(20);
    kill(child, SIGUSR1);
    CHECK(status_of(child) == 0);
    // A signal that is blocked until sigsuspend.
    sigset_t blocked = only(SIGUSR1), none, now;
    sigemptyset(&none);
    on(SIGUSR1, note, 0);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    count = 0;
    raise(SIGUSR1);
    CHECK(count == 0 && sigsuspend(&none) == -1 && errno == EINTR && count == 1);
    CHECK(sigprocmask(SIG_UNBLOCK, &blocked, &now) == 0 && sigismember(&now, SIGUSR1) == 1);
}

static long milliseconds_now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

enum way { NANOSLEEP, CLOCK_NANOSLEEP, PPOLL, PSELECT, EPOLL, SIGTIMEDWAIT, FUTEX, WAYS };

// Waits for so long. Some calls store what is left if a signal ends them. The calls are those of
// the kernel, because the C library makes some of them again.
static long wait_by(enum way way, struct timespec *left) {
    static int word, instance = -1;
    struct epoll_event event;
    sigset_t set = only(SIGUSR2);
    if (instance < 0)
        instance = epoll_create1(0);
    switch (way) {
    case NANOSLEEP: return syscall(SYS_nanosleep, left, left);
    case CLOCK_NANOSLEEP: return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, left, left);
    case PPOLL: return syscall(SYS_ppoll, NULL, 0, left, &set, 8);
    case PSELECT: return syscall(SYS_pselect6, 0, NULL, NULL, NULL, left, NULL);
    case EPOLL:
        return syscall(SYS_epoll_pwait, instance, &event, 1, left->tv_nsec / 1000000 + 1, &set, 8);
    case SIGTIMEDWAIT: return syscall(SYS_rt_sigtimedwait, &set, NULL, left, 8);
    default: return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, left, NULL, 0);
    }
}

static volatile int is_over;

// Sends signals for which the first thread is chosen, and takes most of them itself.
static void *send_and_take(void *argument) {
    sigset_t none;
    sigemptyset(&none);
    for (int i = 0; i < 40 && !is_over; i++) {
        usleep(50000);
        kill(getpid(), SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &none, NULL);
    }
    return argument;
}

// A wait does not become longer because of signals that another thread takes.
static void taken_by_another_thread(void) {
    on(SIGUSR1, note, 0);
    for (enum way way = 0; way < WAYS; way++) {
        pthread_t thread;
        struct timespec left = {0, 300000000};
        count = is_over = 0;
        CHECK(pthread_create(&thread, NULL, send_and_take, NULL) == 0);
        long start = milliseconds_now(), taken;
        while (wait_by(way, &left) == -1 && errno == EINTR) {
            // What a call blocks while it waits it blocks no longer.
            sigset_t now;
            CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR2) == 0);
            if (way >= EPOLL) {
                taken = milliseconds_now() - start;
                left.tv_nsec = taken < 300 ? (300 - taken) * 1000000 : 0;
            }
        }
        taken = milliseconds_now() - start;
        is_over = 1;
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(count > 0);
        if (taken < 295 || taken > 1000)
            printf("way %d takes %ld ms\n", way, taken), faults++;
    }
}

static void children(void) {
    on(SIGCHLD, note, SA_RESTART);
    count = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    CHECK(status_of(child) == 3 << 8);
    nap(10);
    CHECK(count == 1 && last == SIGCHLD && code == CLD_EXITED && sender == child);
    child = fork();
    if (child == 0)
        for (;;)
            nap(1000);
    kill(child, SIGTERM);
    int status = status_of(child);
    nap(10);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM && code == CLD_KILLED);
    signal(SIGCHLD, SIG_DFL);
    // A child inherits handlers and masks, and no signal that waits.
    on(SIGUSR1, note, 0);
    sigset_t blocked = only(SIGUSR1), pending, now;
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR1);
    child = fork();
    if (child == 0) {
        sigpending(&pending);
        sigprocmask(SIG_UNBLOCK, &blocked, &now);
        count = 0;
        int before = count;
        raise(SIGUSR1);
        _exit(sigismember(&pending, SIGUSR1) || !sigismember(&now, SIGUSR1) || before
              || count != 1);
    }
    CHECK(status_of(child) == 0);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

// A wait that a child's own signal finds asleep returns the child, and one that returns the child
// finds the signal delivered.
static void waits_and_signals(void) {
    on(SIGCHLD, note, 0);
    for (int i = 0; i < 100; i++) {
        count = 0;
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(i);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == i);
        CHECK(count == 1 && last == SIGCHLD && code == CLD_EXITED && sender == child);
    }
    // The same for calls that do not wait.
    for (int i = 0; i < 100; i++) {
        count = 0;
        pid_t child = fork(), found = 0;
        if (child == 0)
            _exit(0);
        for (int looks = 0; found == 0 && looks < 1000000; looks++)
            found = waitpid(child, NULL, WNOHANG);
        CHECK(found == child && count == 1 && sender == child);
    }
    signal(SIGCHLD, SIG_DFL);
}

static void pipes(void) {
    for (int how = 0; how < 3; how++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        close(ends[0]);
        pid_t child = fork();
        if (child == 0) {
            count = 0;
            if (how == 1)
                signal(SIGPIPE, SIG_IGN);
            if (how == 2)
                on(SIGPIPE, note, 0);
            ssize_t written = write(ends[1], "x", 1);
            _exit(!(written == -1 && errno == EPIPE && count == (how == 2)));
        }
        close(ends[1]);
        int status = status_of(child);
        if (how == 0)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
        else
            CHECK(status == 0);
    }
}

static sigjmp_buf back;

static void leap(int signal, siginfo_t *info, void *context) {
    note(signal, info, context);
    siglongjmp(back, 1);
}

static void skip(int signal, siginfo_t *info, void *context) {
    note(signal, info, context);
    ((ucontext_t *)context)->uc_mcontext.__gregs[0] += 4;
}

static volatile int deepest_level = 1 << 30;

static __attribute__((noinline)) int descend(int level) {
    volatile char place[4096];
    place[0] = (char)level;
    return level < deepest_level ? descend(level + 1) + place[0] : 0;
}

static void bad_accesses(void) {
    on(SIGSEGV, leap, 0);
    int *nowhere = (int *)8;
    __asm__ volatile("" : "+r"(nowhere));
    count = 0;
    if (!sigsetjmp(back, 1))
        *nowhere = 1;
    CHECK(count == 1 && last == SIGSEGV && address == (void *)8);
    on(SIGILL, skip, 0);
    double kept = 2.5;
    __asm__ volatile(".4byte 0xffffffff" : "+f"(kept));
    CHECK(count == 2 && last == SIGILL && kept == 2.5);
    // The end of the stack, handled on another one.
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other}, now;
    CHECK(sigaltstack(&stack, NULL) == 0);
    on(SIGSEGV, leap, SA_ONSTACK);
    if (!sigsetjmp(back, 1))
        descend(0);
    CHECK(count == 3 && last == SIGSEGV);
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == other && now.ss_flags == 0);
    // Blocked, or with a stack that cannot be written to: the end.
    for (int how = 0; how < 2; how++) {
        pid_t child = fork();
        if (child == 0) {
            sigset_t blocked = only(SIGSEGV);
            void *bad = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            stack_t none = {.ss_sp = bad, .ss_size = 65536};
            if (how == 0)
                sigprocmask(SIG_BLOCK, &blocked, NULL);
            else
                sigaltstack(&none, NULL);
            if (!sigsetjmp(back, 1))
                *nowhere = 1;
            _exit(1);
        }
        int status = status_of(child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    // As on Linux, this flag means nothing here.
    stack.ss_flags = SS_ONSTACK;
    CHECK(sigaltstack(&stack, NULL) == 0);
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == other && now.ss_flags == 0);
    stack.ss_flags = 4;
    FAILS(sigaltstack(&stack, NULL), EINVAL);
    if (is_cops()) {
        stack.ss_flags = (int)(1U << 31);
        FAILS(sigaltstack(&stack, NULL), EINVAL);
    }
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGILL, SIG_DFL);
}

static void other_programs(const char *self) {
    pid_t child = fork();
    if (child == 0) {
        signal(SIGUSR1, SIG_IGN);
        on(SIGUSR2, note, 0);
        execl(self, self, "part", NULL);
        _exit(97);
    }
    CHECK(status_of(child) == 0);
}

int main(int argument_count, char **arguments) {
    if (argument_count > 1) {
        struct sigaction one, two;
        sigaction(SIGUSR1, NULL, &one);
        sigaction(SIGUSR2, NULL, &two);
        return one.sa_handler != SIG_IGN || two.sa_handler != SIG_DFL;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    wrong_numbers();
    handlers_and_masks();
    nesting();
    storm();
    interrupted_calls();
    taken_by_another_thread();
    children();
    waits_and_signals();
    pipes();
    bad_accesses();
    other_programs(arguments[0]);
    if (!faults)
        puts("signals are in order");
    return faults != 0;
}
