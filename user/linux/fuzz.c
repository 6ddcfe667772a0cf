/* A round of random system calls: children that make calls with arguments that are nearly right or
   arbitrary, and a supervisor that ends those that wait, and checks what no call may change.

       fuzz SEED CALLS
       fuzz --nap MICROSECONDS

   All choices of a child follow from the seed. The last lines of standard output are the results,
   as NAME=NUMBER, and what is wrong. The status is 0 if nothing is. Whether the system has freed
   everything is the business of its caller, /bin/fuzz.

   fuzz/calls.h has the calls, fuzz/arguments.h what they are given, fuzz/memory.h the memory that
   pointers point to, and fuzz/child.h the children. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

#include "fuzz/calls.h"
#include "fuzz/random.h"
static long call(long number, const long arguments[6]);
#include "fuzz/memory.h"
#include "fuzz/child.h"

/* Checks without a call by any child, after which those that are left are taken to wait forever. */
#define IDLE_CHECKS 20
/* The end of a process takes less than this on the slowest machine. */
#define PATIENCE_SECONDS 60
/* A round that takes longer is ended. */
#define ROUND_SECONDS 60

struct child {
    pid_t number;
    /* It is killed when its family has so many calls left. */
    long killed_at;
    int is_killed;
};

/* What calls of children must not change: the settings of the supervisor. */
struct settings {
    pid_t group, session;
    int policy, nice;
    mode_t mask;
    struct rlimit files, memory;
    char folder[64];
    sigset_t blocked;
    struct itimerval alarm;
};

/* Where the results are: far from everything that calls overwrite. */
#define RESULTS ((void *)0x2100000000)

static int faults;
static volatile sig_atomic_t last_signal;
static volatile pid_t last_sender;

#define FAULT_IF(what, ...) \
    do { \
        if (what) { \
            printf("FAULT: " __VA_ARGS__); \
            printf("\n"); \
            faults++; \
        } \
    } while (0)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void pause_for(long microseconds) {
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void note_signal(int signal, siginfo_t *information, void *context) {
    (void)context;
    last_signal = signal;
    last_sender = information->si_pid;
}

/* No child may send a signal to the supervisor. */
static void note_signals(void) {
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action = {.sa_sigaction = note_signal};
        action.sa_flags = SA_SIGINFO | SA_RESTART;
        if (signal != SIGCHLD && signal != SIGKILL && signal != SIGSTOP && signal != SIGSEGV &&
            signal != SIGBUS && signal != SIGILL && signal != SIGABRT)
            sigaction(signal, &action, NULL);
    }
}

static struct settings settings_now(void) {
    struct settings settings;
    memset(&settings, 0, sizeof settings);
    settings.group = getpgrp();
    settings.session = getsid(0);
    settings.policy = sched_getscheduler(0);
    settings.nice = getpriority(PRIO_PROCESS, 0);
    settings.mask = umask(0);
    umask(settings.mask);
    getrlimit(RLIMIT_NOFILE, &settings.files);
    getrlimit(RLIMIT_DATA, &settings.memory);
    CHECK(getcwd(settings.folder, sizeof settings.folder) != NULL);
    sigprocmask(SIG_BLOCK, NULL, &settings.blocked);
    getitimer(ITIMER_REAL, &settings.alarm);
    return settings;
}

/* The pages that no call may change are those of a file of which nothing else has the name. */
static char pattern_at(long place) { return place * 37 + place / 251; }

static void map_read_only_pages(void) {
    const char *path = "/tmp/fuzz-read-only";
    long length = 4 * PAGE_BYTES;
    char *bytes = malloc(length);
    CHECK(bytes != NULL);
    for (long place = 0; place < length; place++)
        bytes[place] = pattern_at(place);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && write(file, bytes, length) == length && close(file) == 0);
    file = open(path, O_RDONLY);
    CHECK(file >= 0);
    char *pages = page_at(READ_ONLY_PAGE);
    CHECK(mmap(pages, length, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == pages);
    CHECK(unlink(path) == 0);
    /* Children find it by a number that other files do not get. */
    CHECK(dup2(file, 63) == 63 && close(file) == 0);
    free(bytes);
}

static void map_arena(void) {
    long length = ARENA_PAGES * PAGE_BYTES, rights = PROT_READ | PROT_WRITE;
    base = mmap(NULL, length, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    memset(base, PATTERN, length);
    char *shared = page_at(SHARED_PAGE);
    long shared_length = (READ_ONLY_PAGE - SHARED_PAGE) * PAGE_BYTES;
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    CHECK(mmap(shared, shared_length, rights, flags | MAP_FIXED, -1, 0) == shared);
    CHECK(munmap(page_at(HOLE_PAGE), HOLE_PAGES * PAGE_BYTES) == 0);
    map_read_only_pages();
    results = mmap(RESULTS, sizeof *results, rights, flags | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(results == RESULTS);
}

/* A page of the arena that is the supervisor's own. */
static int is_own(int page) {
    return page < SHARED_PAGE || page >= HOLE_PAGE + HOLE_PAGES ||
           (page >= READ_ONLY_PAGE + 4 && page < HOLE_PAGE);
}

static void check_memory(void) {
    long changed = 0;
    for (int page = 0; page < ARENA_PAGES; page++)
        for (long place = 0; is_own(page) && place < PAGE_BYTES; place++)
            changed += page_at(page)[place] != PATTERN;
    FAULT_IF(changed > 0, "%ld bytes of the supervisor's memory are changed", changed);
    changed = 0;
    for (long place = 0; place < 4 * PAGE_BYTES; place++)
        changed += page_at(READ_ONLY_PAGE)[place] != pattern_at(place);
    FAULT_IF(changed > 0, "%ld bytes that can only be read are changed", changed);
}

static long calls_left(void) {
    long left = 0;
    for (int number = 0; number < CHILDREN; number++)
        left += __atomic_load_n(&results->families[number].left, __ATOMIC_RELAXED);
    return left;
}

/* How the children have ended. */
static long exited, killed, ended_by[NSIG];

/* Whether the child has ended. One that was killed must end. */
static int has_ended(struct child *child, double begin) {
    int status;
    pid_t ended;
    do {
        ended = waitpid(child->number, &status, WNOHANG);
        if (ended == 0 && child->is_killed)
            pause_for(1000);
    } while (ended == 0 && child->is_killed && now() - begin < PATIENCE_SECONDS);
    if (ended == 0 && child->is_killed) {
        FAULT_IF(1, "process %d is killed and does not end", child->number);
        return 1;
    }
    if (ended == 0)
        return 0;
    CHECK(ended == child->number);
    if (WIFSIGNALED(status) && child->is_killed)
        killed++;
    else if (WIFSIGNALED(status))
        ended_by[WTERMSIG(status)]++;
    else
        exited++;
    return 1;
}

/* Waits until all children have ended; kills those that have reached their limit, and those that
   wait forever. */
static void follow(struct child *children) {
    double begin = now();
    long last_left = calls_left();
    int idle = 0, running = CHILDREN;
    while (running > 0) {
        pause_for(1000);
        long left = calls_left();
        idle = last_left - left > 2 * running ? 0 : idle + 1;
        last_left = left;
        for (int number = 0; number < CHILDREN; number++) {
            struct child *child = &children[number];
            struct family *family = &results->families[number];
            if (child->number == 0)
                continue;
            int is_over = idle > IDLE_CHECKS || now() - begin > ROUND_SECONDS ||
                          __atomic_load_n(&family->left, __ATOMIC_RELAXED) < child->killed_at;
            if (is_over && !child->is_killed) {
                CHECK(kill(child->number, SIGKILL) == 0);
                child->is_killed = 1;
            }
            if (has_ended(child, now())) {
                child->number = 0;
                running--;
                /* What it has left behind ends at its next call. */
                __atomic_store_n(&family->left, 0, __ATOMIC_RELAXED);
            }
        }
    }
}

/* Ends the processes that children have left behind, and those that these start meanwhile. */
static void end_others(void) {
    double begin = now();
    while (kill(-1, SIGKILL) == 0 && now() - begin < PATIENCE_SECONDS) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        pause_for(1000);
    }
    FAULT_IF(kill(-1, 0) == 0, "there are still processes of children");
}

/* A program that begins now runs as ever. */
static void check_fresh_program(void) {
    pid_t child = fork();
    if (child == 0) {
        execl("/fuzz", "fuzz", "--nap", "0", NULL);
        _exit(1);
    }
    int status = -1;
    FAULT_IF(child < 0 || waitpid(child, &status, 0) != child || status != 0,
             "a new program ends with status %x, errno %d", status, errno);
}

static void print_results(void) {
    long calls = 0;
    for (int index = 0; index <= SIGNATURES; index++) {
        long made = results->calls[index];
        calls += made;
        if (index < SIGNATURES)
            printf("%s()=%ld\n", signatures[index].name, made);
    }
    printf("calls=%ld\nprocesses=%ld\nthreads=%ld\nhandlers=%ld\n", calls, results->processes,
           results->threads, results->handlers);
    printf("exited=%ld\nkilled=%ld\n", exited, killed);
    long faulted = 0;
    for (int signal = 1; signal < NSIG; faulted += ended_by[signal++])
        if (ended_by[signal] > 0)
            printf("signal-%d=%ld\n", signal, ended_by[signal]);
    printf("faulted=%ld\n", faulted);
    printf("success=%ld\n", results->errors[0]);
    for (int error = 1; error < ERRORS; error++)
        if (results->errors[error] > 0)
            printf("%s=%ld\n", strerrorname_np(error), results->errors[error]);
}

static int supervise(uint64_t seed, long calls) {
    struct child children[CHILDREN];
    struct garbage garbage = garbage_of(seed);
    supervisor_number = getpid();
    first_number = getppid();
    /* So that no child is in the session of the caller. */
    setsid();
    note_signals();
    map_arena();
    struct settings before = settings_now();
    for (int number = 0; number < CHILDREN; number++) {
        long share = calls / CHILDREN;
        results->families[number].left = share;
        children[number].is_killed = 0;
        children[number].killed_at = one_in(&garbage, 2) ? (long)below(&garbage, share) : LONG_MIN;
        children[number].number = fork();
        CHECK(children[number].number >= 0);
        if (children[number].number == 0)
            be_child(number, seed);
    }
    follow(children);
    end_others();
    struct settings after = settings_now();
    FAULT_IF(memcmp(&before, &after, sizeof before) != 0, "the supervisor's settings are changed");
    FAULT_IF(last_signal != 0, "signal %d of process %d has reached the supervisor", last_signal,
             last_sender);
    FAULT_IF(results->wrong_result != 0, "call %ld has the result %ld", results->wrong_number,
             results->wrong_result);
    check_memory();
    check_fresh_program();
    print_results();
    printf(faults == 0 ? "nothing wrong\n" : "%d faults\n", faults);
    return faults != 0;
}

int main(int count, char **arguments) {
    if (count >= 2 && strcmp(arguments[1], "--nap") == 0) {
        pause_for(count > 2 ? atol(arguments[2]) : 0);
        return 0;
    }
    /* Children also execute this program with arguments that are wrong. */
    if (count != 3 || atol(arguments[2]) < CHILDREN) {
        printf("usage: fuzz SEED CALLS\n");
        return 3;
    }
    return supervise(strtoull(arguments[1], NULL, 0), atol(arguments[2]));
}
