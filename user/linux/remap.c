/* mremap that moves: private and shared memory, files, pages that are common after a fork, buffers of
   calls in flight; what is at the target, what is left at the source, and what is refused. An
   argument is the directory of the files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "children.h"
#include "faults.h"

enum { PAGE = 4096 };
static const int RW = PROT_READ | PROT_WRITE;
static const int OWN = MAP_PRIVATE | MAP_ANONYMOUS;
static const int MOVE = MREMAP_MAYMOVE;
static const int MOVE_TO = MREMAP_MAYMOVE | MREMAP_FIXED;
static const char *directory = "/tmp";

static char *map(size_t pages, int rights, int flags, int fd, off_t offset) {
    char *at = mmap(NULL, pages * PAGE, rights, flags, fd, offset);
    CHECK(at != MAP_FAILED);
    return at;
}

/* Addresses at which nothing is mapped, and where memory is charged when it is mapped. */
static char *room(size_t pages) {
    char *at = map(pages, RW, OWN, -1, 0);
    CHECK(munmap(at, pages * PAGE) == 0);
    return at;
}

static void mark(char *at, int first, int pages) {
    for (int i = 0; i < pages; i++)
        *(int *)(at + i * PAGE) = first + i;
}

static int is_marked(char *at, int first, int pages) {
    for (int i = 0; i < pages; i++)
        if (*(int *)(at + i * PAGE) != first + i)
            return 0;
    return 1;
}

static int is_zero(char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0)
            return 0;
    return 1;
}

/* ---- private memory ---------------------------------------------------------------------- */

static void blocked_by_what_is_behind(void) {
    char *place = room(16);
    char *at = mmap(place, 8 * PAGE, RW, OWN | MAP_FIXED, -1, 0);
    char *next = mmap(place + 8 * PAGE, PAGE, RW, OWN | MAP_FIXED, -1, 0);
    CHECK(at == place && next == place + 8 * PAGE);
    /* Every second page is accessed. */
    for (int i = 0; i < 8; i += 2)
        mark(at + i * PAGE, 100 + i, 1);
    CHECK(mprotect(next, PAGE, PROT_READ) == 0);
    FAILS(mremap(at, 8 * PAGE, 9 * PAGE, 0), ENOMEM);
    char *moved = mremap(at, 8 * PAGE, 700 * PAGE, MOVE);
    CHECK(moved != MAP_FAILED && moved != at);
    for (int i = 0; i < 8; i++)
        CHECK(*(int *)(moved + i * PAGE) == (i % 2 ? 0 : 100 + i));
    CHECK(is_zero(moved + 8 * PAGE, 692 * PAGE) && is_zero(next, PAGE));
    CHECK(reading(at) == SIGSEGV && reading(at + 7 * PAGE) == SIGSEGV);
    /* Back, which makes it shorter, and what is at the target goes. */
    mark(moved + 30 * PAGE, 7, 1);
    CHECK(mremap(moved, 700 * PAGE, 9 * PAGE, MOVE_TO, at) == at);
    CHECK(*(int *)at == 100 && is_zero(at + 8 * PAGE, PAGE) && writing(next) == 0);
    CHECK(reading(moved) == SIGSEGV && reading(moved + 8 * PAGE) == SIGSEGV);
    CHECK(reading(moved + 30 * PAGE) == SIGSEGV);
    CHECK(munmap(at, 9 * PAGE) == 0);
}

static void middle_of_a_mapping(void) {
    char *at = map(900, RW, OWN, -1, 0), *to = room(600);
    mark(at, 0, 900);
    CHECK(mremap(at + 200 * PAGE, 500 * PAGE, 600 * PAGE, MOVE_TO, to) == to);
    CHECK(is_marked(at, 0, 200) && is_marked(at + 700 * PAGE, 700, 200));
    CHECK(is_marked(to, 200, 500) && is_zero(to + 500 * PAGE, 100 * PAGE));
    CHECK(reading(at + 200 * PAGE) == SIGSEGV && reading(at + 699 * PAGE) == SIGSEGV);
    FAILS(mremap(at, 900 * PAGE, 901 * PAGE, MOVE), EFAULT);
    CHECK(is_marked(at, 0, 200));
    /* The addresses can be used again. */
    CHECK(mmap(at + 200 * PAGE, 500 * PAGE, RW, OWN | MAP_FIXED_NOREPLACE, -1, 0) == at + 200 * PAGE);
    CHECK(is_zero(at + 200 * PAGE, 500 * PAGE) && is_marked(to, 200, 500));
    CHECK(munmap(at, 900 * PAGE) == 0 && munmap(to, 600 * PAGE) == 0);
}

static void rights_stay(void) {
    char *at = map(3, RW, OWN, -1, 0), *to = room(3);
    mark(at, 1, 3);
    CHECK(mprotect(at, 3 * PAGE, PROT_READ) == 0);
    CHECK(mremap(at, 3 * PAGE, 3 * PAGE, MOVE_TO, to) == to && is_marked(to, 1, 3));
    CHECK(writing(to) == SIGSEGV);
    CHECK(mprotect(to, PAGE, PROT_NONE) == 0);
    CHECK(mremap(to, PAGE, PAGE, MOVE_TO, at) == at && reading(at) == SIGSEGV);
    CHECK(mprotect(at, PAGE, RW) == 0 && is_marked(at, 1, 1) && writing(at) == 0);
    /* Code: li a0, 42; ret. */
    const uint32_t code[] = {0x02a00513, 0x00008067};
    memcpy(at, code, sizeof code);
    CHECK(mprotect(at, PAGE, PROT_READ | PROT_EXEC) == 0);
    __builtin___clear_cache(at, at + PAGE);
    CHECK(((int (*)(void))at)() == 42);
    CHECK(mremap(at, PAGE, 2 * PAGE, MOVE_TO, to + PAGE) == to + PAGE);
    CHECK(((int (*)(void))(to + PAGE))() == 42 && writing(to + PAGE) == SIGSEGV);
    CHECK(munmap(to, 3 * PAGE) == 0);
}

static void after_a_fork(void) {
    char *at = map(200, RW, OWN, -1, 0), *to = room(200);
    mark(at, 0, 200);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(mremap(at, 200 * PAGE, 200 * PAGE, MOVE_TO, to) == to && is_marked(to, 0, 200));
        mark(to, 1000, 100);
        CHECK(is_marked(to, 1000, 100) && is_marked(to + 100 * PAGE, 100, 100));
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(is_marked(at, 0, 200));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(20000);
        _exit(!is_marked(at, 0, 200));
    }
    CHECK(mremap(at, 200 * PAGE, 200 * PAGE, MOVE_TO, to) == to);
    mark(to, 2000, 200);
    CHECK(is_marked(to, 2000, 200));
    ended_with(child, 0);
    CHECK(munmap(to, 200 * PAGE) == 0);
}

static void refused(void) {
    char *at = map(8, RW, OWN, -1, 0), *to = room(20);
    mark(at, 0, 8);
    /* User-mode QEMU looks for the mapping first. */
    if (is_cops()) {
        FAILS(mremap(at, 0, PAGE, MOVE), EINVAL);
        FAILS(mremap(at, PAGE, 0, MOVE), EINVAL);
    }
    FAILS(mremap(at, PAGE, PAGE, MREMAP_FIXED, to), EINVAL);
    FAILS(mremap(at, PAGE, PAGE, 64, to), EINVAL);
    FAILS(mremap(at, PAGE, PAGE, MOVE_TO, to + 1), EINVAL);
    FAILS(mremap(at + 8, PAGE, PAGE, MOVE_TO, to), EINVAL);
    /* Ranges that overlap, by one page and altogether. */
    FAILS(mremap(at, 4 * PAGE, 4 * PAGE, MOVE_TO, at), EINVAL);
    FAILS(mremap(at, 4 * PAGE, 4 * PAGE, MOVE_TO, at + 3 * PAGE), EINVAL);
    FAILS(mremap(at + 4 * PAGE, PAGE, 5 * PAGE, MOVE_TO, at), EINVAL);
    FAILS(mremap(at, PAGE, PAGE, MOVE_TO, (char *)(1UL << 62)), EINVAL);
    FAILS(mremap(to, PAGE, PAGE, MOVE_TO, at), EFAULT);
    FAILS(mremap(to, PAGE, 2 * PAGE, MOVE), EFAULT);
    FAILS(mremap(to, 20 * PAGE, 10 * PAGE, MOVE), EFAULT);
    FAILS(mremap(to, 20 * PAGE, 10 * PAGE, 0), EFAULT);
    FAILS(mremap(at, PAGE, (size_t)1 << 36, MOVE), ENOMEM);
    CHECK(is_marked(at, 0, 8));
    if (is_cops())
        FAILS(mremap(at, PAGE, PAGE, MOVE_TO, (char *)0x3f00000000), EINVAL);
    CHECK(munmap(at, 8 * PAGE) == 0);
}

static void above_the_limit(void) {
    char *at = map(64, RW, OWN, -1, 0), *to = room(512);
    mark(at, 0, 64);
    struct rlimit before, limit = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
    CHECK(getrlimit(RLIMIT_DATA, &before) == 0);
    limit.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    /* User-mode QEMU has limits of its own. */
    if (is_cops()) {
        FAILS(mremap(at, 64 * PAGE, 512 * PAGE, MOVE_TO, to), ENOMEM);
        CHECK(is_marked(at, 0, 64) && reading(to) == SIGSEGV);
    }
    /* A move alone needs no memory. */
    CHECK(mremap(at, 64 * PAGE, 64 * PAGE, MOVE_TO, to) == to && is_marked(to, 0, 64));
    CHECK(setrlimit(RLIMIT_DATA, &before) == 0);
    CHECK(munmap(to, 64 * PAGE) == 0);
}

/* From where pages are charged when they are accessed to where they are charged at once, and back. */
static void reservations(void) {
    char *lazy = map(2000, RW, OWN | MAP_NORESERVE, -1, 0);
    char *eager = map(2000, RW, OWN, -1, 0);
    mark(lazy, 0, 1000);
    CHECK(mremap(lazy, 2000 * PAGE, 2000 * PAGE, MOVE_TO, eager) == eager);
    CHECK(is_marked(eager, 0, 1000) && is_zero(eager + 1000 * PAGE, 1000 * PAGE));
    CHECK(mremap(eager, 2000 * PAGE, 2000 * PAGE, MOVE_TO, lazy) == lazy);
    CHECK(is_marked(lazy, 0, 1000) && is_zero(lazy + 1000 * PAGE, 1000 * PAGE));
    CHECK(munmap(lazy, 2000 * PAGE) == 0);
    /* 64 GiB of addresses, of which little is used. */
    size_t large = (size_t)1 << 36;
    char *at = mmap(NULL, large, RW, OWN | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    mark(at + large / 2, 5, 1);
    mark(at + large - PAGE, 6, 1);
    char *to = mremap(at, large, large + PAGE, MOVE);
    CHECK(to != MAP_FAILED && is_marked(to + large / 2, 5, 1) && is_marked(to + large - PAGE, 6, 1));
    CHECK(munmap(to, large + PAGE) == 0);
}

/* ---- objects ----------------------------------------------------------------------------- */

static void shared_memory(void) {
    char *at = map(100, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *to = room(100);
    mark(at, 0, 50);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(mremap(at + 10 * PAGE, 80 * PAGE, 80 * PAGE, MOVE_TO, to) == to);
        CHECK(is_marked(to, 10, 40) && is_marked(at, 0, 10) && is_zero(to + 40 * PAGE, PAGE));
        /* Pages that exist, and one that does not yet. */
        mark(to + 70 * PAGE, 80, 10);
        mark(to, 210, 40);
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(is_marked(at, 0, 10) && is_marked(at + 10 * PAGE, 210, 40));
    CHECK(is_marked(at + 80 * PAGE, 80, 10) && is_zero(at + 90 * PAGE, 10 * PAGE));
    CHECK(munmap(at, 100 * PAGE) == 0);
}

static void files(void) {
    char path[100], text[16];
    snprintf(path, sizeof path, "%s/remap", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    for (int i = 0; i < 40; i++) {
        memset(text, 0, sizeof text);
        *(int *)text = 500 + i;
        CHECK(pwrite(fd, text, sizeof text, i * PAGE) == sizeof text);
    }
    CHECK(pwrite(fd, "", 1, 40 * PAGE - 1) == 1);
    /* A private mapping of a part, of which some pages have been accessed. */
    char *at = map(30, RW, MAP_PRIVATE, fd, 5 * PAGE), *to = room(40);
    mark(at, 1, 10);
    CHECK(mremap(at + 5 * PAGE, 20 * PAGE, 20 * PAGE, MOVE_TO, to) == to);
    CHECK(is_marked(to, 6, 5) && is_marked(to + 5 * PAGE, 515, 15));
    CHECK(is_marked(at, 1, 5) && is_marked(at + 25 * PAGE, 530, 5));
    CHECK(munmap(to, 20 * PAGE) == 0 && munmap(at, 30 * PAGE) == 0);
    /* One of many pages in a copy of the process, after another one that exists no more. */
    at = map(1, RW, MAP_PRIVATE, fd, 0), to = map(40, RW, MAP_PRIVATE, fd, 0);
    mark(to, 1, 40);
    CHECK(munmap(at, PAGE) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *target = room(50);
        CHECK(mremap(to, 40 * PAGE, 40 * PAGE, MOVE_TO, target) == target);
        CHECK(is_marked(target, 1, 40));
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(munmap(to, 40 * PAGE) == 0);
    /* A shared one. */
    at = map(40, RW, MAP_SHARED, fd, 0), to = room(40);
    CHECK(is_marked(at, 500, 20));
    CHECK(mremap(at, 40 * PAGE, 40 * PAGE, MOVE_TO, to) == to && is_marked(to, 500, 40));
    mark(to + 39 * PAGE, 9, 1);
    mark(to, 3, 1);
    CHECK(msync(to, 40 * PAGE, MS_SYNC) == 0);
    CHECK(pread(fd, text, 4, 0) == 4 && *(int *)text == 3);
    CHECK(pread(fd, text, 4, 39 * PAGE) == 4 && *(int *)text == 9);
    CHECK(mremap(to, 40 * PAGE, PAGE, MOVE_TO, at) == at && is_marked(at, 3, 1));
    CHECK(munmap(at, PAGE) == 0 && reading(to) == SIGSEGV);
    CHECK(close(fd) == 0 && unlink(path) == 0);
}

/* ---- beside other things ----------------------------------------------------------------- */

static int ends[2];
static void *receives(void *buffer) {
    return (void *)(long)read(ends[0], buffer, 3 * PAGE);
}

/* A read that waits receives into the pages, wherever they are. Linux looks for the address when the
   bytes arrive, and finds nothing there. */
static void read_in_flight(void) {
    pthread_t thread;
    char *at = map(4, RW, OWN, -1, 0), *to = room(4), message[300];
    memset(message, 'm', sizeof message);
    CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, receives, at + PAGE - 100) == 0);
    usleep(20000);
    CHECK(mremap(at, 4 * PAGE, 4 * PAGE, MOVE_TO, to) == to);
    CHECK(write(ends[1], message, sizeof message) == sizeof message);
    void *received;
    CHECK(pthread_join(thread, &received) == 0);
    if (is_cops())
        CHECK((long)received == 300 && memcmp(to + PAGE - 100, message, sizeof message) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && munmap(to, 4 * PAGE) == 0);
}

/* A thread maps other memory, or another part, where the rest of the source was. The move must not
   take that: it fails, unless it was faster. */
enum { REST = 8000 };
static char *source;
static int file_of_two;
static _Atomic int is_done;

static void *replaces(void *offset) {
    struct sched_param urgent = {50};
    CHECK(sched_setscheduler(0, SCHED_FIFO, &urgent) == 0);
    /* Until the first page has been moved. */
    while (msync(source, PAGE, MS_ASYNC) == 0)
        usleep(50);
    CHECK(errno == ENOMEM);
    if (is_done)
        return NULL;
    CHECK(munmap(source, REST * PAGE) == 0);
    int fd = offset == NULL ? -1 : file_of_two;
    int flags = MAP_SHARED | MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_ANONYMOUS : 0);
    CHECK(mmap(source, REST * PAGE, RW, flags, fd, (off_t)offset) == source);
    mark(source, 1000000, REST);
    return offset;
}

static void replaced_meanwhile(off_t offset) {
    pthread_t thread;
    int fd = offset == 0 ? -1 : file_of_two;
    int flags = MAP_SHARED | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);
    /* The page behind it is in the way of a longer one. */
    source = map(REST + 1, PROT_READ, OWN, -1, 0);
    CHECK(mmap(source, REST * PAGE, RW, flags, fd, 0) == source);
    mark(source, 0, REST);
    is_done = 0;
    CHECK(setpriority(PRIO_PROCESS, 0, 8) == 0);
    CHECK(pthread_create(&thread, NULL, replaces, (void *)offset) == 0);
    usleep(20000);
    char *moved = mremap(source, REST * PAGE, (REST + 1) * PAGE, MOVE);
    int error = errno;
    is_done = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0);
    if (moved == MAP_FAILED)
        CHECK(error == EFAULT || error == ENOMEM);
    else
        CHECK(is_marked(moved, 0, REST) && munmap(moved, (REST + 1) * PAGE) == 0);
    CHECK(munmap(source, (REST + 1) * PAGE) == 0);
}

static void replaced_by_another_object(void) {
    file_of_two = memfd_create("two", 0);
    CHECK(file_of_two >= 0 && ftruncate(file_of_two, 2 * REST * PAGE) == 0);
    replaced_meanwhile(0);
    replaced_meanwhile(REST * PAGE);
    CHECK(close(file_of_two) == 0);
}

/* Handlers make calls that have portions, too. */
static volatile int handled;
static void on_alarm(int signal) {
    (void)signal;
    char *at = mmap(NULL, 100 * PAGE, RW, OWN, -1, 0);
    if (at != MAP_FAILED && mprotect(at, 50 * PAGE, PROT_READ) == 0 && munmap(at, 100 * PAGE) == 0)
        handled++;
}

static void handlers_meanwhile(void) {
    enum { PAGES = 5000 };
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    char *at = map(PAGES, RW, OWN, -1, 0), *to = room(PAGES);
    mark(at, 0, PAGES);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int round = 0; round < 400 && handled < 20; round++) {
        CHECK(mremap(at, PAGES * PAGE, PAGES * PAGE, MOVE_TO, to) == to);
        char *before = at;
        at = to, to = before;
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(handled > 0 && is_marked(at, 0, PAGES));
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

/* Threads move, map, and unmap; another one forks. */
enum { MOVERS = 3, BLOCKS = 4, STEPS = 40, COPIES = 2 };

static void *moves(void *number) {
    uint32_t state = (uint32_t)(long)number * 7919;
    struct { char *at; int pages, first; } block[BLOCKS] = {0};
    for (int step = 0; step < STEPS; step++) {
        state = state * 1664525u + 1013904223u;
        int i = (state >> 8) % BLOCKS, pages = 1 + (state >> 16) % 40;
        if (block[i].at == NULL) {
            block[i].at = map(pages, RW, OWN, -1, 0);
        } else {
            CHECK(is_marked(block[i].at, block[i].first, block[i].pages));
            int kept = pages < block[i].pages ? pages : block[i].pages;
            char *to = (state >> 28) % 2 ? map(pages, RW, OWN, -1, 0) : NULL;
            char *moved = mremap(block[i].at, block[i].pages * PAGE, pages * PAGE,
                                 to != NULL ? MOVE_TO : MOVE, to);
            CHECK(moved != MAP_FAILED && (to == NULL || moved == to));
            CHECK(is_marked(moved, block[i].first, kept));
            CHECK(is_zero(moved + kept * PAGE, (pages - kept) * PAGE));
            block[i].at = moved;
        }
        block[i].pages = pages;
        block[i].first = (int)(state >> 4);
        mark(block[i].at, block[i].first, pages);
    }
    for (int i = 0; i < BLOCKS; i++)
        CHECK(block[i].at == NULL || munmap(block[i].at, block[i].pages * PAGE) == 0);
    return NULL;
}

static void *copies(void *unused) {
    for (int i = 0; i < COPIES; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(7);
        ended_with(child, 7);
        usleep(20000);
    }
    return unused;
}

static void many_threads(void) {
    pthread_t mover[MOVERS], copier;
    for (long i = 0; i < MOVERS; i++)
        CHECK(pthread_create(&mover[i], NULL, moves, (void *)(i + 1)) == 0);
    CHECK(pthread_create(&copier, NULL, copies, NULL) == 0);
    for (int i = 0; i < MOVERS; i++)
        CHECK(pthread_join(mover[i], NULL) == 0);
    CHECK(pthread_join(copier, NULL) == 0);
}

/* A child is killed in the middle. */
static void killed_meanwhile(void) {
    for (int round = 0; round < 8; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char *at = map(3000, RW, OWN, -1, 0), *to = room(3000);
            mark(at, 0, 3000);
            for (;; ) {
                char *before = at;
                CHECK(mremap(at, 3000 * PAGE, 3000 * PAGE, MOVE_TO, to) == to);
                at = to, to = before;
            }
        }
        usleep(1000 + round * 1000);
        CHECK(kill(child, SIGKILL) == 0);
        ended_by(child, SIGKILL);
    }
}

/* What the C library does with a large block. */
static void growing_block(void) {
    struct sysinfo before, after;
    CHECK(sysinfo(&before) == 0);
    for (int round = 0; round < 3; round++) {
        char *block = malloc(1 << 20), *in_the_way = NULL;
        CHECK(block != NULL);
        mark(block, 0, 256);
        for (int pages = 512; pages <= 8192; pages *= 2) {
            free(in_the_way);
            in_the_way = malloc(1 << 20);
            block = realloc(block, (size_t)pages * PAGE);
            CHECK(block != NULL && is_marked(block, 0, pages / 2));
            mark(block, 0, pages);
        }
        free(block);
        free(in_the_way);
    }
    CHECK(sysinfo(&after) == 0);
    /* Natively, other programs of the machine use memory too. */
    if (is_cops())
        CHECK(after.freeram + (2 << 20) > before.freeram);
}

int main(int count, char **arguments) {
    if (count > 1)
        directory = arguments[1];
    catch_faults();
    blocked_by_what_is_behind();
    middle_of_a_mapping();
    rights_stay();
    after_a_fork();
    refused();
    above_the_limit();
    reservations();
    shared_memory();
    files();
    read_in_flight();
    /* Its priorities need a privilege on Linux, where a move is one step. */
    if (is_cops())
        replaced_by_another_object();
    handlers_meanwhile();
    many_threads();
    killed_meanwhile();
    growing_block();
    printf("moves are in order\n");
    return 0;
}
