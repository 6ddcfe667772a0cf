/* malloc, realloc and free of small and large blocks; mmap, munmap, mprotect, mremap, madvise and
   brk with good and bad arguments; rights that are taken from a page while a thread sleeps that has
   used it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { PAGE = 4096, BLOCKS = 2000 };
static uint32_t state = 1;
static uint32_t draw(void) { return state = state * 1664525u + 1013904223u, state >> 8; }

static void heap(void) {
    static struct { unsigned char *at; size_t length; unsigned char fill; } block[BLOCKS];
    for (int step = 0; step < 20000; step++) {
        int i = draw() % BLOCKS;
        size_t length = draw() % 16 == 0 ? draw() % 400000 : draw() % 300;
        for (size_t k = 0; k < block[i].length; k += 97)
            CHECK(block[i].at[k] == block[i].fill);
        if (draw() % 3 == 0) {
            free(block[i].at);
            block[i].at = NULL;
            block[i].length = 0;
            continue;
        }
        size_t kept = length < block[i].length ? length : block[i].length;
        unsigned char *at = realloc(block[i].at, length + 1);
        CHECK(at != NULL);
        for (size_t k = 0; k < kept; k += 97)
            CHECK(at[k] == block[i].fill);
        block[i].fill = (unsigned char)draw();
        memset(at, block[i].fill, length + 1);
        block[i].at = at;
        block[i].length = length;
    }
    for (int i = 0; i < BLOCKS; i++)
        free(block[i].at);
    unsigned char *zeros = calloc(1, 3 << 20);
    CHECK(zeros != NULL);
    for (size_t k = 0; k < 3 << 20; k += PAGE / 2)
        CHECK(zeros[k] == 0);
    free(zeros);
    /* More than the machine has. */
    CHECK(malloc((size_t)1 << 36) == NULL && errno == ENOMEM);
}

static void mappings(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *at = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(at != MAP_FAILED);
    memset(at, 1, 8 * PAGE);
    /* MAP_FIXED replaces a part; the rest stays. */
    CHECK(mmap(at + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == at + 2 * PAGE);
    CHECK(at[2 * PAGE] == 0 && at[4 * PAGE - 1] == 0 && at[2 * PAGE - 1] == 1 && at[4 * PAGE] == 1);
    FAILS(mmap(at, PAGE, PROT_READ, flags | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    /* A hint is taken if it is free, and otherwise another address is found. */
    char *hint = (char *)0x2000000000 + 100 * PAGE;
    CHECK(mmap(hint, PAGE, PROT_READ, flags, -1, 0) == hint);
    char *other = mmap(hint, PAGE, PROT_READ, flags, -1, 0);
    CHECK(other != MAP_FAILED && other != hint);
    CHECK(munmap(hint, PAGE) == 0 && munmap(other, PAGE) == 0);
    /* Advice. */
    CHECK(madvise(at, PAGE, MADV_DONTNEED) == 0 && at[0] == 0 && at[PAGE] == 1);
    CHECK(madvise(at, PAGE, MADV_WILLNEED) == 0 && at[PAGE] == 1);
    FAILS(madvise(at, PAGE, 77), EINVAL);
    if (is_cops()) {
        /* What would change something, and does not exist here. */
        FAILS(madvise(at, PAGE, MADV_REMOVE), EINVAL);
        FAILS(madvise(at, PAGE, MADV_DONTFORK), EINVAL);
        FAILS(madvise(at, PAGE, MADV_WIPEONFORK), EINVAL);
        at[0] = 3;
        CHECK(madvise(at, PAGE, 24 /* MADV_DONTNEED_LOCKED */) == 0 && at[0] == 0);
    }
    /* At a hole, the rest is advised all the same. */
    char *hole = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(hole != MAP_FAILED && munmap(hole + PAGE, PAGE) == 0);
    hole[0] = hole[2 * PAGE] = 1;
    FAILS(madvise(hole, 3 * PAGE, MADV_WILLNEED), ENOMEM);
    FAILS(madvise(hole, 3 * PAGE, MADV_DONTNEED), ENOMEM);
    CHECK(hole[0] == 0 && hole[2 * PAGE] == 0);
    CHECK(munmap(hole, 3 * PAGE) == 0);
    /* What can be written can be read. */
    char *writable = mmap(NULL, PAGE, PROT_WRITE, flags, -1, 0);
    CHECK(writable != MAP_FAILED && writable[1] == 0);
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], writable, 1) == 1);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && munmap(writable, PAGE) == 0);
    FAILS(madvise(at + 1, PAGE, MADV_DONTNEED), EINVAL);
    /* Shrinking, growing in place, and growing where the next page is in use. */
    CHECK(mremap(at, 8 * PAGE, 4 * PAGE, 0) == at);
    CHECK(mremap(at, 4 * PAGE, 6 * PAGE, 0) == at && at[5 * PAGE] == 0 && at[PAGE] == 1);
    char *next = mmap(at + 6 * PAGE, PAGE, PROT_NONE, flags | MAP_FIXED, -1, 0);
    CHECK(next == at + 6 * PAGE);
    FAILS(mremap(at, 6 * PAGE, 7 * PAGE, 0), ENOMEM);
    FAILS(mremap(at + 9 * PAGE, PAGE, 2 * PAGE, 0), EFAULT);
    FAILS(mremap(at + 1, PAGE, 2 * PAGE, 0), EINVAL);
    CHECK(mprotect(at, 0, PROT_READ) == 0);
    FAILS(mprotect(at, SIZE_MAX, PROT_READ), ENOMEM);
    FAILS(mprotect(at + 1, PAGE, PROT_READ), EINVAL);
    FAILS(mmap(NULL, SIZE_MAX, PROT_READ, flags, -1, 0), ENOMEM);
    FAILS(mmap((void *)-4096L, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0), ENOMEM);
    FAILS(mmap(at + 1, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0), EINVAL);
    CHECK(mprotect(at, PAGE, PROT_NONE) == 0 && mprotect(at, PAGE, PROT_READ) == 0);
    CHECK(munmap(at, 7 * PAGE) == 0);
    /* 64 GiB of addresses cost nothing until they are used. */
    char *large = mmap(NULL, (size_t)1 << 36, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
    CHECK(large != MAP_FAILED);
    CHECK(mprotect(large + ((size_t)1 << 35), PAGE, PROT_READ | PROT_WRITE) == 0);
    large[(size_t)1 << 35] = 1;
    CHECK(munmap(large, (size_t)1 << 36) == 0);
    /* Refused. */
    FAILS(mmap(NULL, (size_t)1 << 36, PROT_READ | PROT_WRITE, flags, -1, 0), ENOMEM);
    FAILS(mmap(NULL, 0, PROT_READ, flags, -1, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_WRITE | PROT_EXEC, flags, -1, 0), EACCES);
    FAILS(mmap((void *)0x3f00000000, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0), EINVAL);
    FAILS(mmap((void *)1, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0), EINVAL);
    FAILS(munmap((void *)0x3f00000000, PAGE), EINVAL);
}

static void program_break(void) {
    char *end = sbrk(0);
    CHECK(sbrk(5 * PAGE + 1) == end && end[5 * PAGE] == 0);
    memset(end, 1, 5 * PAGE);
    CHECK(sbrk(-5 * PAGE) == end + 5 * PAGE + 1);
    CHECK(sbrk(5 * PAGE) != (void *)-1 && end[4 * PAGE] == 0);
    FAILS(brk((void *)0x3000000000), ENOMEM);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == 8 << 20);
}

enum { ROUNDS = 300 };
static volatile int turn; /* Of main, or of the thread. */
static volatile char *page;
static volatile int faults;
static sigjmp_buf before_fault;

static void give_turn(int to) {
    turn = to;
    CHECK(syscall(SYS_futex, &turn, FUTEX_WAKE, 1, 0, 0, 0) >= 0);
}

static void await_turn(int own) {
    while (turn != own)
        syscall(SYS_futex, &turn, FUTEX_WAIT, !own, 0, 0, 0);
}

static void on_fault(int signal) {
    (void)signal;
    faults++;
    siglongjmp(before_fault, 1);
}

/* Uses the page, sleeps while its rights are taken away, and uses it again. */
static void *uses(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        page[round] = 1;
        give_turn(0);
        await_turn(1);
        if (sigsetjmp(before_fault, 1) == 0)
            page[round] = 2;
        give_turn(0);
        await_turn(1);
    }
    return unused;
}

/* A hart that slept in between has forgotten the page, too. */
static void rights_of_a_sleeper(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_fault}, before;
    CHECK(sigaction(SIGSEGV, &action, &before) == 0);
    page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    turn = 1;
    CHECK(pthread_create(&thread, 0, uses, 0) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        await_turn(0);
        CHECK(mprotect((void *)page, PAGE, PROT_READ) == 0);
        give_turn(1);
        await_turn(0);
        CHECK(faults == round + 1 && page[round] == 1);
        CHECK(mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE) == 0);
        give_turn(1);
    }
    CHECK(pthread_join(thread, 0) == 0);
    CHECK(sigaction(SIGSEGV, &before, 0) == 0);
}

/* A thread takes the first page that munmap frees, and then sends signals until the call is over.
   Their handler makes a call that works in portions, too. */
enum { MANY = 3000 };
static pthread_t caller;
static char *watched; /* NULL: brk is called, which frees what nothing takes. */
static volatile int is_over;
static char *changes;

static void on_signal(int signal) {
    (void)signal;
    int before = errno;
    mprotect(changes, PAGE, PROT_READ | PROT_WRITE);
    errno = before;
}

static void *takes_and_signals(void *unused) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (watched != NULL) {
        while (mmap(watched, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) != watched)
            CHECK(errno == EEXIST);
        watched[0] = 7;
    }
    while (!is_over)
        CHECK(pthread_kill(caller, SIGUSR1) == 0);
    return unused;
}

static void handlers_between_portions(void) {
    int ends[2], rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    caller = pthread_self();
    changes = mmap(NULL, PAGE, rights, flags, -1, 0);
    CHECK(changes != MAP_FAILED && pipe(ends) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < 20; round++) {
        watched = mmap(NULL, MANY * PAGE, rights, flags, -1, 0);
        CHECK(watched != MAP_FAILED);
        memset(watched, 1, MANY * PAGE);
        is_over = 0;
        CHECK(pthread_create(&thread, NULL, takes_and_signals, NULL) == 0);
        CHECK(munmap(watched, MANY * PAGE) == 0);
        is_over = 1;
        CHECK(pthread_join(thread, NULL) == 0);
        /* What the thread has mapped stays. */
        CHECK(write(ends[1], watched, 1) == 1 && read(ends[0], watched + 1, 1) == 1);
        CHECK(watched[1] == 7 && munmap(watched, PAGE) == 0);
    }
    watched = NULL;
    for (int round = 0; round < 20; round++) {
        char *end = sbrk(MANY * PAGE);
        CHECK(end != (void *)-1);
        memset(end, 1, MANY * PAGE);
        is_over = 0;
        CHECK(pthread_create(&thread, NULL, takes_and_signals, NULL) == 0);
        CHECK(brk(end) == 0);
        is_over = 1;
        CHECK(pthread_join(thread, NULL) == 0);
        for (int i = 1; i < MANY; i++)
            FAILS(write(ends[1], end + i * PAGE, 1), EFAULT);
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && munmap(changes, PAGE) == 0);
}

/* A mapping that replaces another one in one portion: no access finds neither of them, of a thread
   or of a child. The handler's mprotect is another portion between those of the caller. */
static void *reads(void *from) {
    while (!is_over)
        CHECK(*(volatile char *)from == 0);
    return NULL;
}

static void replaced_while_it_is_read(void) {
    int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    pthread_t reader, signaller;
    char *at = mmap(NULL, 8 * PAGE, rights, flags, -1, 0);
    changes = mmap(NULL, PAGE, rights, flags, -1, 0);
    CHECK(at != MAP_FAILED && changes != MAP_FAILED);
    is_over = 0;
    CHECK(pthread_create(&reader, NULL, reads, at + 3 * PAGE) == 0);
    CHECK(pthread_create(&signaller, NULL, takes_and_signals, NULL) == 0);
    for (int round = 0; round < 2000; round++)
        CHECK(mmap(at, 8 * PAGE, rights, flags | MAP_FIXED, -1, 0) == at);
    is_over = 1;
    CHECK(pthread_join(reader, NULL) == 0 && pthread_join(signaller, NULL) == 0);
    CHECK(munmap(at, 8 * PAGE) == 0 && munmap(changes, PAGE) == 0);
}

static int deep(int depth) {
    volatile char space[PAGE];
    space[0] = (char)depth;
    return depth == 0 ? 0 : deep(depth - 1) + space[0] - (char)depth;
}

int main(void) {
    heap();
    mappings();
    program_break();
    rights_of_a_sleeper();
    handlers_between_portions();
    replaced_while_it_is_read();
    CHECK(deep(1500) == 0); /* Six of the stack's eight MiB. */
    printf("memory is in order\n");
    return 0;
}
