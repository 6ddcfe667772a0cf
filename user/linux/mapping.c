/* Shared memory, with and without a file: what one process writes, the others read; futexes,
   mutexes and semaphores in it; private mappings of files; and what is refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "faults.h"
#include "free_pages.h"

enum { PAGE = 4096, PAGES = 70 };
static const int RW = PROT_READ | PROT_WRITE;
/* A file in the directory that is the argument: in memory, or in a served file system. */
static char PATH[100];
static const char *directory = "/tmp";

static void *map(size_t length, int rights, int flags, int fd, off_t offset) {
    void *at = mmap(NULL, length, rights, flags, fd, offset);
    CHECK(at != MAP_FAILED);
    return at;
}

static void *shared(size_t length) { return map(length, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0); }

/* Runs this in a copy of the process, which must end with 0. */
#define IN_CHILD(...) \
    do { \
        pid_t child_ = fork(); \
        CHECK(child_ >= 0); \
        if (child_ == 0) { \
            __VA_ARGS__; \
            _exit(0); \
        } \
        expect_success(child_); \
    } while (0)

static void expect_success(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0)
        printf("child: status %x\n", status);
    CHECK(status == 0);
}

/* ---- without a file ---------------------------------------------------------------------- */

static void what_one_writes_the_other_reads(void) {
    volatile int *page[PAGES];
    /* With free addresses behind it. */
    char *at = map((PAGES + 8) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(at, (PAGES + 8) * PAGE) == 0);
    CHECK(mmap(at, PAGES * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    for (int i = 0; i < PAGES; i++)
        page[i] = (int *)(at + i * PAGE);
    /* Some pages exist before the fork, some are made by the parent and some by the child. */
    for (int i = 0; i < 20; i++)
        *page[i] = i + 1;
    int ends[2][2];
    CHECK(pipe(ends[0]) == 0 && pipe(ends[1]) == 0);
    char byte = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(read(ends[0][0], &byte, 1) == 1);
        for (int i = 0; i < 40; i++)
            CHECK(*page[i] == i + 1);
        CHECK(*page[50] == 0);
        for (int i = 0; i < PAGES; i++)
            *page[i] = 1000 + i;
        /* A copy of the copy has the same memory. */
        IN_CHILD(*page[60] = -1);
        /* What one unmaps, the others keep. */
        CHECK(munmap(at, PAGES * PAGE) == 0);
        CHECK(write(ends[1][1], "x", 1) == 1);
        _exit(0);
    }
    for (int i = 20; i < 40; i++)
        *page[i] = i + 1;
    CHECK(write(ends[0][1], "x", 1) == 1 && read(ends[1][0], &byte, 1) == 1);
    for (int i = 0; i < PAGES; i++)
        CHECK(*page[i] == (i == 60 ? -1 : 1000 + i));
    expect_success(child);
    for (int i = 0; i < 4; i++)
        CHECK(close(ends[i / 2][i % 2]) == 0);
    /* A part is unmapped, another is replaced by private memory, advice keeps what is there. */
    CHECK(munmap(at, PAGE) == 0 && reading(at) == SIGSEGV);
    CHECK(madvise(at + PAGE, PAGE, MADV_DONTNEED) == 0 && *page[1] == 1001);
    CHECK(mmap(at + 2 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 2 * PAGE);
    CHECK(*page[2] == 0 && *page[3] == 1003);
    IN_CHILD(*page[2] = 5; *page[3] = 5);
    CHECK(*page[2] == 0 && *page[3] == 5);
    /* Rights are those of the process, not of the memory. */
    CHECK(mprotect(at + 3 * PAGE, PAGE, PROT_READ) == 0 && writing(at + 3 * PAGE) == SIGSEGV);
    IN_CHILD(CHECK(writing(at + 3 * PAGE) == SIGSEGV);
             CHECK(mprotect(at + 3 * PAGE, PAGE, RW) == 0); *page[3] = 6);
    CHECK(*page[3] == 6 && writing(at + 3 * PAGE) == SIGSEGV);
    /* It shrinks, and grows in place, but there is nothing behind its end. */
    CHECK(mremap(at + 10 * PAGE, (PAGES - 10) * PAGE, 10 * PAGE, 0) == at + 10 * PAGE);
    CHECK(mremap(at + 10 * PAGE, 10 * PAGE, (PAGES - 9) * PAGE, 0) == at + 10 * PAGE);
    CHECK(*page[PAGES - 1] == 1000 + PAGES - 1);
    CHECK(reading(at + PAGES * PAGE) == SIGBUS && fault_address == at + PAGES * PAGE);
    CHECK(fault_code == BUS_ADRERR);
    CHECK(munmap(at, (PAGES + 1) * PAGE) == 0);
}

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *time) {
    return syscall(SYS_futex, word, operation, value, time, NULL, 0);
}

static void pause_shortly(void) {
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

static void futexes_between_processes(void) {
    uint32_t *words = shared(PAGE);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        while (words[0] == 0)
            CHECK(futex(words, FUTEX_WAIT, 0, NULL) == 0 || errno == EAGAIN);
        /* With the flag it is a futex of this process alone. */
        struct timespec time = {0, 200000000};
        FAILS(futex(words + 1, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &time), ETIMEDOUT);
        words[2] = 1;
        CHECK(futex(words + 2, FUTEX_WAKE, 1, NULL) >= 0);
        /* Moved from one word to another one, and woken there. */
        CHECK(futex(words + 3, FUTEX_WAIT, 0, NULL) == 0);
        _exit(0);
    }
    while (futex(words, FUTEX_WAKE, 1, NULL) == 0)
        pause_shortly();
    words[0] = 1;
    CHECK(futex(words, FUTEX_WAKE, 1, NULL) >= 0);
    while (words[2] == 0) {
        CHECK(futex(words + 1, FUTEX_WAKE, 1, NULL) == 0);
        CHECK(futex(words + 1, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL) == 0);
        pause_shortly();
    }
    while (syscall(SYS_futex, words + 3, FUTEX_REQUEUE, 0, (void *)1, words + 4, 0) == 0)
        pause_shortly();
    CHECK(futex(words + 3, FUTEX_WAKE, 1, NULL) == 0);
    CHECK(futex(words + 4, FUTEX_WAKE, 1, NULL) == 1);
    expect_success(child);
    CHECK(munmap(words, PAGE) == 0);
}

enum { WRITERS = 4, ROUNDS = 500 };
struct common {
    pthread_mutex_t mutex, robust;
    pthread_cond_t all_are_there;
    sem_t done;
    int there, sum;
};

static void locks_between_processes(void) {
    struct common *common = shared(sizeof *common);
    pthread_mutexattr_t of_mutex;
    pthread_condattr_t of_condition;
    CHECK(pthread_mutexattr_init(&of_mutex) == 0);
    CHECK(pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutex_init(&common->mutex, &of_mutex) == 0);
    CHECK(pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(&common->robust, &of_mutex) == 0);
    CHECK(pthread_condattr_init(&of_condition) == 0);
    CHECK(pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_cond_init(&common->all_are_there, &of_condition) == 0);
    CHECK(sem_init(&common->done, 1, 0) == 0);
    pid_t child[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (child[i] != 0)
            continue;
        CHECK(pthread_mutex_lock(&common->mutex) == 0);
        if (++common->there == WRITERS)
            CHECK(pthread_cond_broadcast(&common->all_are_there) == 0);
        while (common->there < WRITERS)
            CHECK(pthread_cond_wait(&common->all_are_there, &common->mutex) == 0);
        CHECK(pthread_mutex_unlock(&common->mutex) == 0);
        for (int round = 0; round < ROUNDS; round++) {
            CHECK(pthread_mutex_lock(&common->mutex) == 0);
            int sum = common->sum;
            if (round % 50 == 0)
                sched_yield();
            common->sum = sum + 1;
            CHECK(pthread_mutex_unlock(&common->mutex) == 0);
        }
        /* The first one dies with the robust mutex. */
        if (i == 0)
            CHECK(pthread_mutex_lock(&common->robust) == 0);
        CHECK(sem_post(&common->done) == 0);
        _exit(0);
    }
    for (int i = 0; i < WRITERS; i++)
        CHECK(sem_wait(&common->done) == 0);
    CHECK(common->sum == WRITERS * ROUNDS);
    /* Waits for it if it has not died yet. */
    CHECK(pthread_mutex_lock(&common->robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&common->robust) == 0);
    CHECK(pthread_mutex_unlock(&common->robust) == 0);
    for (int i = 0; i < WRITERS; i++)
        expect_success(child[i]);
    CHECK(munmap(common, sizeof *common) == 0);
}

/* The device of zeros has no contents that could be shared; its mappings are anonymous. */
static void zeros(void) {
    int fd = open("/dev/zero", O_RDWR);
    CHECK(fd >= 0);
    volatile char *own = map(PAGE, RW, MAP_PRIVATE, fd, 0);
    volatile char *common = map(PAGE, RW, MAP_SHARED, fd, 0);
    volatile char *another = map(PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(close(fd) == 0);
    CHECK(own[1] == 0 && common[1] == 0);
    IN_CHILD(own[0] = 1; common[0] = 2);
    CHECK(own[0] == 0 && common[0] == 2 && another[0] == 0);
    CHECK(munmap((void *)own, PAGE) == 0 && munmap((void *)common, PAGE) == 0);
    CHECK(munmap((void *)another, PAGE) == 0);
}

/* ---- files ------------------------------------------------------------------------------- */

static char pattern(size_t at) { return (char)(at / PAGE * 31 + at % 251 + 1); }

static int named_file(size_t length) {
    int fd = open(PATH, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    char bytes[PAGE];
    for (size_t done = 0; done < length;) {
        size_t count = length - done < PAGE ? length - done : PAGE;
        for (size_t i = 0; i < count; i++)
            bytes[i] = pattern(done + i);
        CHECK(write(fd, bytes, count) == (ssize_t)count);
        done += count;
    }
    return fd;
}

/* A file of this length, without a name. */
static int file(size_t length) {
    int fd = named_file(length);
    CHECK(unlink(PATH) == 0);
    return fd;
}

static void private_mappings(void) {
    enum { LENGTH = 3 * PAGE + 100 };
    int fd = file(LENGTH);
    char byte;
    volatile char *at = map(6 * PAGE, RW, MAP_PRIVATE, fd, 0);
    volatile char *from_2 = map(PAGE, PROT_READ, MAP_PRIVATE, fd, 2 * PAGE);
    for (size_t i = 0; i < LENGTH; i += 17)
        CHECK(at[i] == pattern(i));
    CHECK(from_2[5] == pattern(2 * PAGE + 5));
    /* Behind the end of the file there are zeros up to the end of the page, and then nothing. */
    CHECK(at[LENGTH] == 0 && at[4 * PAGE - 1] == 0);
    CHECK(reading(at + 4 * PAGE + 8) == SIGBUS && fault_address == at + 4 * PAGE + 8);
    CHECK(fault_code == BUS_ADRERR && writing(at + 5 * PAGE) == SIGBUS);
    /* The kernel does not read there either. */
    FAILS(write(fd, (char *)at + 4 * PAGE, 1), EFAULT);
    /* What is written stays in the process. */
    at[0] = 'a';
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == pattern(0));
    IN_CHILD(CHECK(at[0] == 'a'); at[0] = 'b'; at[PAGE] = 'b');
    CHECK(at[0] == 'a' && at[PAGE] == pattern(PAGE));
    /* The file can also be written from its mapping. */
    CHECK(pwrite(fd, (char *)at, 1, PAGE + 1) == 1);
    CHECK(pread(fd, &byte, 1, PAGE + 1) == 1 && byte == 'a');
    /* Pages that are not needed are read from the file again. */
    CHECK(madvise((void *)at, PAGE, MADV_DONTNEED) == 0 && at[0] == pattern(0));
    /* Rights of a part, and a mapping that outlives its descriptor. */
    CHECK(close(fd) == 0);
    CHECK(mprotect((void *)(at + PAGE), PAGE, PROT_READ) == 0 && writing(at + PAGE + 1) == SIGSEGV);
    CHECK(at[2 * PAGE] == pattern(2 * PAGE) && writing(at + 2 * PAGE) == 0);
    CHECK(munmap((void *)(at + PAGE), PAGE) == 0 && reading(at + PAGE) == SIGSEGV);
    CHECK(at[3 * PAGE] == pattern(3 * PAGE) && at[2 * PAGE] == 1);
    CHECK(munmap((void *)at, 6 * PAGE) == 0 && munmap((void *)from_2, PAGE) == 0);
}

/* A file that several processes have mapped: each sees what another one writes, through a mapping or
   through the file. */
static void shared_mappings_of_a_file(void) {
    int fd = named_file(3 * PAGE), reader = open(PATH, O_RDONLY);
    char byte = 'y';
    volatile char *at = map(4 * PAGE, RW, MAP_SHARED, fd, 0);
    volatile char *from_1 = map(PAGE, PROT_READ, MAP_SHARED, reader, PAGE);
    CHECK(at[5] == pattern(5) && from_1[7] == pattern(PAGE + 7));
    at[PAGE + 7] = 'x';
    CHECK(from_1[7] == 'x' && pread(fd, &byte, 1, PAGE + 7) == 1 && byte == 'x');
    CHECK(pwrite(fd, "y", 1, PAGE + 8) == 1 && at[PAGE + 8] == 'y' && from_1[8] == 'y');
    IN_CHILD(at[2 * PAGE] = 'z');
    CHECK(at[2 * PAGE] == 'z');
    IN_CHILD(int again = open(PATH, O_RDWR); volatile char *mine = map(PAGE, RW, MAP_SHARED, again, 2 * PAGE);
             CHECK(mine[0] == 'z'); mine[1] = 'u');
    CHECK(at[2 * PAGE + 1] == 'u');
    /* Rights: as far as the file has been opened for them. */
    CHECK(writing(from_1) == SIGSEGV);
    FAILS(mprotect((void *)from_1, PAGE, RW), EACCES);
    CHECK(mprotect((void *)at, PAGE, PROT_READ) == 0 && writing(at) == SIGSEGV);
    CHECK(mprotect((void *)at, PAGE, RW) == 0 && writing(at) == 0);
    if (is_cops())
        FAILS(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0), EACCES);
    /* The end of the file: beyond it there is nothing, until the file grows. */
    CHECK(reading(at + 3 * PAGE) == SIGBUS);
    CHECK(ftruncate(fd, 4 * PAGE) == 0 && at[3 * PAGE] == 0);
    at[3 * PAGE] = 'v';
    CHECK(pread(fd, &byte, 1, 3 * PAGE) == 1 && byte == 'v');
    if (is_cops()) {
        FAILS(ftruncate(fd, PAGE), ETXTBSY);
        FAILS(open(PATH, O_WRONLY | O_TRUNC), ETXTBSY);
    }
    CHECK(msync((void *)at, 4 * PAGE, MS_SYNC) == 0 && msync((void *)at, PAGE, MS_ASYNC) == 0);
    FAILS(msync((void *)(at + 1), PAGE, MS_SYNC), EINVAL);
    FAILS(msync((void *)at, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    FAILS(msync((void *)at, PAGE, 8), EINVAL);
    FAILS(msync((void *)at, (size_t)1 << 45, MS_SYNC), ENOMEM);
    /* Without descriptors and a name, the pages stay as long as they are mapped. */
    CHECK(munmap((void *)from_1, PAGE) == 0 && close(reader) == 0);
    CHECK(munmap((void *)at, 2 * PAGE) == 0 && unlink(PATH) == 0);
    IN_CHILD(at[2 * PAGE] = 'w');
    CHECK(at[2 * PAGE] == 'w' && pread(fd, &byte, 1, 2 * PAGE) == 1 && byte == 'w');
    CHECK(munmap((void *)(at + 2 * PAGE), 2 * PAGE) == 0);
    CHECK(ftruncate(fd, 10) == 0 && lseek(fd, 0, SEEK_END) == 10 && close(fd) == 0);
}

/* More pages than one portion of the kernel's work has, written back by msync and by the end of the
   mapping. */
static void many_pages(void) {
    enum { MANY = 3000 };
    int fd = open(PATH, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && ftruncate(fd, MANY * PAGE) == 0);
    for (int time = 1; time <= 2; time++) {
        volatile char *at = map(MANY * PAGE, RW, MAP_SHARED, fd, 0);
        for (int page = 0; page < MANY; page++) {
            CHECK(at[page * PAGE + 1] == (char)((time - 1) * (page % 100 + 1)));
            at[page * PAGE + 1] = (char)(time * (page % 100 + 1));
        }
        if (time == 1)
            CHECK(msync((void *)at, MANY * PAGE, MS_SYNC) == 0);
        IN_CHILD(CHECK(at[PAGE + 1] == time * 2));
        CHECK(munmap((void *)at, MANY * PAGE) == 0);
    }
    /* A process that ends leaves what it has written, however it ends. */
    pid_t child = fork();
    if (child == 0) {
        volatile char *at = map(MANY * PAGE, RW, MAP_SHARED, fd, 0);
        for (int page = 0; page < MANY; page += 7)
            at[page * PAGE + 2] = 'k';
        raise(SIGKILL);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    for (int page = 0; page < MANY; page += 7) {
        char bytes[2];
        CHECK(pread(fd, bytes, 2, page * PAGE + 1) == 2);
        CHECK(bytes[0] == (char)(2 * (page % 100 + 1)) && bytes[1] == 'k');
    }
    CHECK(ftruncate(fd, 1) == 0 && close(fd) == 0 && unlink(PATH) == 0);
}

/* What the C library makes of it. */
static void named_memory_and_semaphores(void) {
    const char *name = "/mapping-test";
    shm_unlink(name);
    sem_unlink(name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
    volatile int *counter = map(PAGE, RW, MAP_SHARED, fd, 0);
    sem_t *turn = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    CHECK(turn != SEM_FAILED && close(fd) == 0);
    pid_t child = fork();
    if (child == 0) {
        sem_t *theirs = sem_open(name, 0);
        CHECK(theirs != SEM_FAILED);
        int again = shm_open(name, O_RDWR, 0);
        volatile int *mine = map(PAGE, RW, MAP_SHARED, again, 0);
        *mine = 42;
        CHECK(sem_post(theirs) == 0);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && sem_wait(turn) == 0 && *counter == 42);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(sem_close(turn) == 0 && sem_unlink(name) == 0 && shm_unlink(name) == 0);
    CHECK(munmap((void *)counter, PAGE) == 0);
    FAILS(shm_open(name, O_RDWR, 0), ENOENT);
}

static void own_program(const char *path) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    volatile char *own = map(PAGE, RW, MAP_PRIVATE, fd, 0);
    volatile char *common = map(PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(memcmp((char *)own, "\177ELF", 4) == 0 && memcmp((char *)common, "\177ELF", 4) == 0);
    own[0] = 'x';
    CHECK(common[0] == '\177' && writing(common) == SIGSEGV);
    FAILS(mprotect((void *)common, PAGE, RW), EACCES);
    FAILS(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0), EACCES);
    off_t length = lseek(fd, 0, SEEK_END);
    off_t last = length / PAGE * PAGE;
    volatile char *end = map(2 * PAGE, PROT_READ, MAP_PRIVATE, fd, last);
    char byte;
    CHECK(pread(fd, &byte, 1, last) == 1 && end[0] == byte && end[length - last] == 0);
    CHECK(reading(end + PAGE) == SIGBUS);
    CHECK(munmap((void *)end, 2 * PAGE) == 0 && close(fd) == 0);
    CHECK(munmap((void *)own, PAGE) == 0 && munmap((void *)common, PAGE) == 0);
}

/* What a process may only read of a file that never changes takes no memory, however often it is
   mapped. What is written, by the process or for it, is its own. */
static void unchanging_pages(const char *path) {
    enum { TIMES = 20 };
    char *at[TIMES], byte;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    size_t pages = lseek(fd, 0, SEEK_END) / PAGE, length = pages * PAGE;
    CHECK(pages >= 40);
    long before = free_pages(), most = (long)(TIMES * pages);
    for (int i = 0; i < TIMES; i++) {
        at[i] = map(length, PROT_READ, MAP_PRIVATE, fd, 0);
        /* From the end, so each page is accessed before what is in front of it. */
        for (size_t page = pages; page-- > 0;)
            (void)*(volatile char *)(at[i] + page * PAGE);
    }
    long taken = before - free_pages();
    if (taken > most / 4)
        printf("%ld pages are taken of %ld that are mapped\n", taken, most);
    CHECK(taken <= most / 4);

    char *own = at[0], *other = at[1];
    CHECK(writing(own) == SIGSEGV && mprotect(own, length, RW) == 0);
    for (size_t page = 0; page < pages; page++)
        own[page * PAGE]++;
    for (size_t page = 0; page < pages; page++) {
        CHECK(pread(fd, &byte, 1, page * PAGE) == 1 && other[page * PAGE] == byte);
        CHECK(own[page * PAGE] == (char)(byte + 1) && own[page * PAGE + 9] == other[page * PAGE + 9]);
    }
    FAILS(pread(fd, other, 16, PAGE), EFAULT);
    CHECK(mprotect(at[2], length, RW) == 0 && pread(fd, at[2], 64, PAGE) == 64);
    CHECK(memcmp(at[2], other + PAGE, 64) == 0 && memcmp(other, "\177ELF", 4) == 0);
    IN_CHILD({
        CHECK(mprotect(at[3], length, RW) == 0);
        memset(at[3], 'x', length);
    });
    CHECK(memcmp(at[3], other, length) == 0);
    CHECK(madvise(own, length, MADV_DONTNEED) == 0 && memcmp(own, other, length) == 0);
    for (int i = 0; i < TIMES; i++)
        CHECK(munmap(at[i], length) == 0);

    /* What is behind a page that is accessed comes with it, but not beyond what is mapped. */
    char *part = map(5 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(mprotect(part + 2 * PAGE, PAGE, PROT_NONE) == 0 && munmap(part + 4 * PAGE, PAGE) == 0);
    CHECK(reading(part) == 0 && reading(part + 2 * PAGE) == SIGSEGV);
    CHECK(reading(part + 3 * PAGE) == 0 && reading(part + 4 * PAGE) == SIGSEGV);
    CHECK(munmap(part, 4 * PAGE) == 0 && close(fd) == 0);
}

/* A program that is executed before what was written to its mapping is anywhere else. */
static void written_program(const char *path) {
    int from = open(path, O_RDONLY), to = open(PATH, O_RDWR | O_CREAT | O_EXCL, 0700);
    off_t length = lseek(from, 0, SEEK_END);
    CHECK(from >= 0 && to >= 0 && length > 0 && ftruncate(to, length) == 0);
    char *source = map(length, PROT_READ, MAP_PRIVATE, from, 0);
    char *target = map(length, RW, MAP_SHARED, to, 0);
    memcpy(target, source, length);
    CHECK(munmap(source, length) == 0 && munmap(target, length) == 0);
    CHECK(close(from) == 0 && close(to) == 0);
    pid_t child = fork();
    if (child == 0) {
        execl(PATH, PATH, "seven", NULL);
        _exit(1);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && unlink(PATH) == 0);
}

static void errors(void) {
    int fd = file(PAGE), ends[2];
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, 999, 0), EBADF);
    FAILS(syscall(SYS_mmap, NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 100), EINVAL);
    FAILS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, 0, fd, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)-PAGE), EOVERFLOW);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, INT64_MAX / PAGE * PAGE), EOVERFLOW);
    FAILS(mmap(NULL, (size_t)1 << 45, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0), ENOMEM);
    volatile char *far = map(PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)1 << 40);
    CHECK(reading(far) == SIGBUS && munmap((void *)far, PAGE) == 0 && close(fd) == 0);
    CHECK(pipe(ends) == 0);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[0], 0), ENODEV);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[1], 0), EACCES);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK((fd = open(directory, O_RDONLY)) >= 0);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0), ENODEV);
    CHECK(close(fd) == 0 && (fd = open("/dev/null", O_RDWR)) >= 0);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0), ENODEV);
    CHECK(close(fd) == 0 && (fd = open(PATH, O_WRONLY | O_CREAT | O_EXCL, 0600)) >= 0);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0), EACCES);
    FAILS(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
    CHECK(close(fd) == 0 && (fd = open(PATH, O_RDONLY)) >= 0);
    FAILS(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0), EACCES);
    CHECK(close(fd) == 0 && unlink(PATH) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "seven") == 0)
        return 7;
    if (argc > 1)
        directory = argv[1];
    snprintf(PATH, sizeof PATH, "%s/mapping-test", directory);
    unlink(PATH);
    catch_faults();
    what_one_writes_the_other_reads();
    futexes_between_processes();
    locks_between_processes();
    zeros();
    private_mappings();
    shared_mappings_of_a_file();
    many_pages();
    named_memory_and_semaphores();
    own_program(argv[0]);
    unchanging_pages(argv[0]);
    written_program(argv[0]);
    errors();
    printf("mappings are in order\n");
    return 0;
}
