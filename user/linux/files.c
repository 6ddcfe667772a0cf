/* How fast files are read and written: a line `files: operation=... nanoseconds=...` for each row.
   Unmodified on COPS and on Linux (./cops bench files); the rows of a native program are made by
   user/apps/src/bin/measure/files.rs in the same way.

     files FOLDER MEBIBYTES ROUNDS [make]

   FOLDER has the files `0` to `5`, which nothing has read since the boot, and `data`. Each has
   MEBIBYTES (a power of two). In the first and the last word of each page of a file is the position
   of the word plus the file's number << 32; `data` has number 15. With `make`, they are made first,
   so that they are in caches already.

   In a row, threads take the numbers of requests from a common counter until there are no more. A
   row of `cold` reads reads each block of its file once, other rows do so ROUNDS times. A row of
   writes ends with an fsync, and is checked afterwards. */
#define _GNU_SOURCE
#include "first.h"
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define WORD sizeof(unsigned long)
#define SEQUENTIAL_BYTES (64 * 1024UL)
#define MOST_THREADS 256

static const unsigned counts[] = {1, 16, MOST_THREADS};
static unsigned long file_bytes;

enum kind { COLD, WARM, WRITES };

/* A row, and its progress. */
static struct {
    int fd;
    enum kind kind;
    int is_random;
    /* What the first word of the file is. */
    unsigned long base;
    unsigned long bytes, requests;
    /* The next request, and the number of those that have completed. */
    unsigned long next, done;
    unsigned long end;
    pthread_barrier_t begin;
} row;

static unsigned long now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (unsigned long)time.tv_sec * 1000000000UL + (unsigned long)time.tv_nsec;
}

/* Where request `number` reads or writes. In random order, each step maps the numbers of the blocks
   one to one, as their count is a power of two. */
static unsigned long offset_of(unsigned long number) {
    unsigned long blocks = file_bytes / row.bytes;
    unsigned half = (unsigned)(__builtin_ctzl(blocks) + 1) / 2;
    unsigned long block = number % blocks;
    if (row.is_random) {
        for (int i = 0; i < 3; i++) {
            block = (block * 0x9e3779b97f4a7c15UL + 0x7f4a7c15UL) % blocks;
            block ^= block >> half;
        }
    }
    return block * row.bytes;
}

static unsigned long *word(char *page, unsigned long at) {
    return (unsigned long *)(void *)(page + at);
}

static void fill(char *buffer, unsigned long bytes, unsigned long first) {
    for (unsigned long at = 0; at < bytes; at += PAGE) {
        *word(buffer, at) = first + at;
        *word(buffer, at + PAGE - WORD) = first + at + PAGE - WORD;
    }
}

static void check(char *buffer, unsigned long bytes, unsigned long first) {
    for (unsigned long at = 0; at < bytes; at += PAGE) {
        CHECK(*word(buffer, at) == first + at);
        CHECK(*word(buffer, at + PAGE - WORD) == first + at + PAGE - WORD);
    }
}

static void *requests(void *buffer) {
    pthread_barrier_wait(&row.begin);
    for (;;) {
        unsigned long number = __atomic_fetch_add(&row.next, 1, __ATOMIC_RELAXED);
        if (number >= row.requests)
            return NULL;
        unsigned long offset = offset_of(number);
        if (row.kind == WRITES) {
            fill(buffer, row.bytes, row.base + offset);
            CHECK(pwrite(row.fd, buffer, row.bytes, (off_t)offset) == (long)row.bytes);
        } else {
            CHECK(pread(row.fd, buffer, row.bytes, (off_t)offset) == (long)row.bytes);
            check(buffer, row.bytes, row.base + offset);
        }
        if (__atomic_add_fetch(&row.done, 1, __ATOMIC_RELAXED) == row.requests)
            row.end = now();
    }
}

static char *buffers;

/* Does what `row` says with `count` threads; returns the time in nanoseconds. The time to start the
   threads and to join them is not included. */
static unsigned long measure(unsigned count) {
    static pthread_t threads[MOST_THREADS];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 * 1024) == 0);
    row.next = row.done = row.end = 0;
    CHECK(pthread_barrier_init(&row.begin, NULL, count + 1) == 0);
    for (unsigned i = 0; i < count; i++) {
        char *buffer = buffers + i * SEQUENTIAL_BYTES;
        CHECK(pthread_create(&threads[i], &small, requests, buffer) == 0);
    }
    unsigned long start = now();
    pthread_barrier_wait(&row.begin);
    for (unsigned i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(row.done == row.requests);
    if (row.kind == WRITES) {
        CHECK(fsync(row.fd) == 0);
        row.end = now();
    }
    CHECK(pthread_barrier_destroy(&row.begin) == 0);
    return row.end - start;
}

static const char *folder;

/* Opens the file `name`, of which `number` is the number. */
static void open_file(const char *name, unsigned long number, int flags) {
    char path[100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    row.fd = open(path, flags, 0644);
    if (row.fd < 0)
        printf("%s: ", path);
    CHECK(row.fd >= 0);
    row.base = number << 32;
}

#define DATA "data"
#define DATA_NUMBER 15UL

static void make(const char *name, unsigned long number) {
    open_file(name, number, O_CREAT | O_WRONLY);
    for (unsigned long at = 0; at < file_bytes; at += SEQUENTIAL_BYTES) {
        fill(buffers, SEQUENTIAL_BYTES, row.base + at);
        CHECK(pwrite(row.fd, buffers, SEQUENTIAL_BYTES, (off_t)at) == SEQUENTIAL_BYTES);
    }
    CHECK(fsync(row.fd) == 0 && close(row.fd) == 0);
}

/* Checks what a row of writes has left. */
static void check_file(void) {
    for (unsigned long at = 0; at < file_bytes; at += SEQUENTIAL_BYTES) {
        CHECK(pread(row.fd, buffers, SEQUENTIAL_BYTES, (off_t)at) == SEQUENTIAL_BYTES);
        check(buffers, SEQUENTIAL_BYTES, row.base + at);
    }
}

/* The rows of one kind, with 1, 16 and 256 threads. */
static void rows(enum kind kind, int is_random, unsigned long rounds) {
    static unsigned long generation = DATA_NUMBER;
    row.kind = kind;
    row.is_random = is_random;
    row.bytes = is_random ? PAGE : SEQUENTIAL_BYTES;
    row.requests = file_bytes / row.bytes * (kind == COLD ? 1 : rounds);
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (kind == COLD) {
            unsigned number = i + (is_random ? 3 : 0);
            char name[2] = {(char)('0' + number), 0};
            open_file(name, number, O_RDONLY);
        } else {
            open_file(DATA, DATA_NUMBER, O_RDWR);
        }
        if (kind == WRITES)
            row.base = ++generation << 32;
        if (kind == WARM)
            check_file();
        unsigned long time = measure(counts[i]);
        if (kind == WRITES)
            check_file();
        CHECK(close(row.fd) == 0);
        printf("files: operation=%s order=%s cache=%s bytes=%lu tasks=%u requests=%lu "
               "nanoseconds=%lu\n",
               kind == WRITES ? "write" : "read", is_random ? "random" : "sequential",
               kind == COLD ? "cold" : "warm", row.bytes, counts[i], row.requests, time);
        fflush(stdout);
    }
}

int main(int count, char **arguments) {
    int is_first = is_first_of_linux();
    if (is_first)
        begin_linux(&count, &arguments);
    CHECK(count >= 4);
    folder = arguments[1];
    file_bytes = strtoul(arguments[2], NULL, 10) << 20;
    unsigned long rounds = strtoul(arguments[3], NULL, 10);
    CHECK(file_bytes > 0 && (file_bytes & (file_bytes - 1)) == 0 && rounds > 0);
    buffers = aligned_alloc(PAGE, MOST_THREADS * SEQUENTIAL_BYTES);
    CHECK(buffers != NULL);
    memset(buffers, 1, MOST_THREADS * SEQUENTIAL_BYTES);
    if (count > 4 && strcmp(arguments[4], "make") == 0) {
        for (unsigned long number = 0; number < 6; number++)
            make((char[]){(char)('0' + number), 0}, number);
        make(DATA, DATA_NUMBER);
    }
    for (enum kind kind = COLD; kind <= WRITES; kind++)
        for (int is_random = 0; is_random <= 1; is_random++)
            rows(kind, is_random, rounds);
    puts("all rows");
    fflush(stdout);
    if (is_first)
        end_linux();
    return 0;
}
