/* Limits that a process sets for itself: descriptors and memory, after fork and exec too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "children.h"

static struct rlimit limit(int which) {
    struct rlimit limit;
    CHECK(getrlimit(which, &limit) == 0);
    return limit;
}

static void set(int which, rlim_t soft) {
    struct rlimit limits = limit(which);
    limits.rlim_cur = soft;
    CHECK(setrlimit(which, &limits) == 0 && limit(which).rlim_cur == soft);
}

static void descriptors(void) {
    struct rlimit before = limit(RLIMIT_NOFILE), one;
    int ends[2];
    set(RLIMIT_NOFILE, 10);
    for (int number = 3; number < 10; number++)
        CHECK(open("/", O_RDONLY) == number);
    FAILS(open("/", O_RDONLY), EMFILE);
    FAILS(dup(0), EMFILE);
    FAILS(dup2(0, 10), EBADF);
    FAILS(fcntl(0, F_DUPFD, 10), EINVAL);
    FAILS(fcntl(0, F_DUPFD, 9), EMFILE);
    CHECK(dup2(0, 9) == 9);
    /* Room for one is not room for two. */
    CHECK(close(7) == 0);
    FAILS(pipe(ends), EMFILE);
    CHECK(close(4) == 0 && pipe(ends) == 0 && ends[0] == 4 && ends[1] == 7);
    pid_t child = fork();
    if (child == 0) {
        FAILS(dup(0), EMFILE);
        CHECK(limit(RLIMIT_NOFILE).rlim_cur == 10);
        exit(0);
    }
    ended_with(child, 0);
    /* What is open stays open. */
    set(RLIMIT_NOFILE, 5);
    CHECK(fcntl(9, F_GETFD) == 0 && close(3) == 0 && open("/", O_RDONLY) == 3);
    FAILS(open("/", O_RDONLY), EMFILE);
    for (int number = 3; number < 10; number++)
        CHECK(close(number) == 0);
    set(RLIMIT_NOFILE, 0);
    FAILS(open("/", O_RDONLY), EMFILE);
    one = (struct rlimit){20, 10};
    FAILS(setrlimit(RLIMIT_NOFILE, &one), EINVAL);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    int fd = open("/", O_RDONLY);
    CHECK(fd == 3 && close(fd) == 0);
}

/* `open` takes its number first: a call that fails for want of one changes no file. */
#define ROUNDS 300

static int missing;

static void *open_and_close(void *argument) {
    char path[64];
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(path, sizeof path, "/tmp/limits-%ld-%d", (long)argument, round);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd < 0) {
            CHECK(errno == EMFILE && access(path, F_OK) != 0 && errno == ENOENT);
            __atomic_fetch_add(&missing, 1, __ATOMIC_RELAXED);
        } else {
            sched_yield();
            CHECK(close(fd) == 0 && unlink(path) == 0);
        }
    }
    return NULL;
}

static void opens(void) {
    struct rlimit before = limit(RLIMIT_NOFILE);
    struct stat status;
    int fd = open("/tmp/limits-kept", O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(fd == 3 && write(fd, "kept", 4) == 4);
    set(RLIMIT_NOFILE, 4);
    FAILS(open("/tmp/limits-kept", O_WRONLY | O_TRUNC), EMFILE);
    CHECK(stat("/tmp/limits-kept", &status) == 0 && status.st_size == 4);
    FAILS(open("/tmp/limits-new", O_CREAT | O_EXCL | O_WRONLY, 0600), EMFILE);
    FAILS(open("/tmp/limits-new", O_CREAT | O_WRONLY, 0600), EMFILE);
    FAILS(stat("/tmp/limits-new", &status), ENOENT);
    /* Also before the path is walked. */
    FAILS(open("/tmp/limits-new", O_RDONLY), EMFILE);
    CHECK(unlink("/tmp/limits-kept") == 0 && close(fd) == 0);
    /* One number for several threads. */
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, open_and_close, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(missing < 4 * ROUNDS);
    /* No call has kept it. */
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    fd = open("/", O_RDONLY);
    CHECK(fd == 3 && close(fd) == 0);
}

static void *map(size_t length) {
    return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void memory(void) {
    struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    char *start = sbrk(0);
    set(RLIMIT_DATA, 0);
    FAILS(sbrk(1 << 20), ENOMEM);
    CHECK(brk(start) == 0);
    /* Linux counts mappings only for limits that are not 0. */
    set(RLIMIT_DATA, 4096);
    CHECK(map(1 << 20) == MAP_FAILED && errno == ENOMEM);
    CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
    set(RLIMIT_AS, 64 << 20);
    char *some = map(1 << 20), *more;
    CHECK(some != MAP_FAILED);
    CHECK(map(100 << 20) == MAP_FAILED && errno == ENOMEM);
    CHECK(mremap(some, 1 << 20, 100 << 20, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(malloc(100 << 20) == NULL && errno == ENOMEM);
    more = malloc(10 << 20);
    CHECK(more != NULL);
    memset(more, 1, 10 << 20);
    free(more);
    pid_t child = fork();
    if (child == 0) {
        CHECK(map(100 << 20) == MAP_FAILED && errno == ENOMEM);
        CHECK(limit(RLIMIT_AS).rlim_cur == 64 << 20);
        exit(0);
    }
    ended_with(child, 0);
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    more = map(100 << 20);
    CHECK(more != MAP_FAILED && munmap(more, 100 << 20) == 0 && munmap(some, 1 << 20) == 0);
}

static void others(char *self) {
    struct rlimit one = limit(RLIMIT_STACK);
    CHECK(one.rlim_cur >= 1 << 20 && one.rlim_cur <= one.rlim_max);
    set(RLIMIT_CORE, 0);
    FAILS(getrlimit(99, &one), EINVAL);
    FAILS(setrlimit(99, &one), EINVAL);
    FAILS(setrlimit(RLIMIT_CORE, (struct rlimit *)1), EFAULT);
    FAILS(getrlimit(RLIMIT_CORE, (struct rlimit *)1), EFAULT);
    if (is_cops()) {
        one = (struct rlimit){1, 1};
        FAILS(setrlimit(RLIMIT_FSIZE, &one), EPERM);
        FAILS(setrlimit(RLIMIT_CPU, &one), EPERM);
    }
    set(RLIMIT_NOFILE, 12);
    char *arguments[] = {self, "again", NULL};
    pid_t child = fork();
    if (child == 0) {
        execv(self, arguments);
        exit(1);
    }
    ended_with(child, 0);
}

int main(int count, char **arguments) {
    if (count > 1) {
        /* After `exec`. */
        CHECK(limit(RLIMIT_NOFILE).rlim_cur == 12 && limit(RLIMIT_CORE).rlim_cur == 0);
        FAILS(dup2(0, 12), EBADF);
        CHECK(dup2(0, 11) == 11);
        return 0;
    }
    descriptors();
    opens();
    memory();
    others(arguments[0]);
    printf("limits are in order\n");
    return 0;
}
