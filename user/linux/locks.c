/* Locks of files: flock, ranges of a process and of an open file, waiting, deadlocks, and uses that
 * mean harm. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "children.h"

static const char *path = "/tmp/locks";

static int open_again(void) {
    int file = open(path, O_RDWR);
    CHECK(file >= 0);
    return file;
}

static struct flock range(short type, long start, long length) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
}

static int set(int file, short type, long start, long length) {
    struct flock lock = range(type, start, length);
    return fcntl(file, F_SETLK, &lock);
}

static int set_and_wait(int file, short type, long start, long length) {
    struct flock lock = range(type, start, length);
    return fcntl(file, F_SETLKW, &lock);
}

static int set_of_file(int file, short type, long start, long length) {
    struct flock lock = range(type, start, length);
    return fcntl(file, F_OFD_SETLK, &lock);
}

/* What is in the way of another process. */
static struct flock *found;

static void ask_as_another(short type, long start, long length) {
    pid_t child = fork();
    if (child == 0) {
        int file = open_again();
        *found = range(type, start, length);
        CHECK(fcntl(file, F_GETLK, found) == 0);
        _exit(0);
    }
    ended_with(child, 0);
}

/* Another process would find this range in its way, owned by `owner`, or nothing. */
static void is_taken(short type, long at, short by, long start, long length, pid_t owner) {
    ask_as_another(type, at, 1);
    if (found->l_type != by)
        printf("at %ld: %d\n", at, found->l_type);
    CHECK(found->l_type == by);
    if (by != F_UNLCK) {
        if (found->l_start != start || found->l_len != length)
            printf("%ld, %ld\n", (long)found->l_start, (long)found->l_len);
        CHECK(found->l_start == start && found->l_len == length && found->l_pid == owner);
        CHECK(found->l_whence == SEEK_SET);
    } else {
        CHECK(found->l_start == at && found->l_len == 1);
    }
}

static void is_free(short type, long at) {
    is_taken(type, at, F_UNLCK, 0, 0, 0);
}

static void errors(void) {
    int file = open_again(), reader = open(path, O_RDONLY), writer = open(path, O_WRONLY);
    int ends[2];
    CHECK(pipe(ends) == 0);
    FAILS(set(-1, F_RDLCK, 0, 1), EBADF);
    FAILS(set(1000, F_RDLCK, 0, 1), EBADF);
    FAILS(set(reader, F_WRLCK, 0, 1), EBADF);
    FAILS(set(writer, F_RDLCK, 0, 1), EBADF);
    CHECK(set(reader, F_RDLCK, 0, 1) == 0 && set(writer, F_WRLCK, 0, 1) == 0);
    CHECK(set(reader, F_UNLCK, 0, 1) == 0);
    FAILS(set(file, 3, 0, 1), EINVAL);
    FAILS(set(file, -1, 0, 1), EINVAL);
    FAILS(set(file, F_RDLCK, -1, 1), EINVAL);
    FAILS(set(file, F_RDLCK, 5, -6), EINVAL);
    FAILS(set(file, F_RDLCK, 1L << 62, 1L << 62 | 1L << 61), EOVERFLOW);
    FAILS(set(file, F_RDLCK, 0x7fffffffffffffff, 2), EOVERFLOW);
    struct flock lock = range(F_RDLCK, 0, 1);
    lock.l_whence = 3;
    FAILS(fcntl(file, F_SETLK, &lock), EINVAL);
    FAILS(fcntl(file, F_SETLK, (void *)8), EFAULT);
    FAILS(fcntl(file, F_SETLKW, (void *)-8L), EFAULT);
    FAILS(fcntl(file, F_GETLK, NULL), EFAULT);
    lock = range(F_UNLCK, 0, 1);
    FAILS(fcntl(file, F_GETLK, &lock), EINVAL);
    void *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(fcntl(file, F_GETLK, constant), EFAULT);
    lock = range(F_RDLCK, 0, 1);
    lock.l_pid = 1;
    FAILS(fcntl(file, F_OFD_SETLK, &lock), EINVAL);
    FAILS(fcntl(file, F_OFD_GETLK, &lock), EINVAL);
    FAILS(set_of_file(reader, F_WRLCK, 0, 1), EBADF);

    FAILS(flock(-1, LOCK_SH), EBADF);
    FAILS(flock(file, 0), EINVAL);
    FAILS(flock(file, LOCK_NB), EINVAL);
    FAILS(flock(file, LOCK_SH | LOCK_EX), EINVAL);
    FAILS(flock(file, 1 << 20), EINVAL);
    CHECK(flock(file, LOCK_UN) == 0 && flock(file, LOCK_UN | LOCK_NB) == 0);
    /* Any mode will do, and a directory. */
    CHECK(flock(reader, LOCK_EX) == 0 && flock(reader, LOCK_UN) == 0);
    int directory = open("/tmp", O_RDONLY);
    CHECK(flock(directory, LOCK_EX) == 0 && set(directory, F_RDLCK, 0, 1) == 0);
    if (is_cops()) {
        /* What is not in a file system has no locks. */
        FAILS(flock(ends[0], LOCK_SH), EINVAL);
        FAILS(set(ends[0], F_RDLCK, 0, 1), EINVAL);
    }
    CHECK(close(file) == 0 && close(reader) == 0 && close(writer) == 0 && close(directory) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void ranges(void) {
    int file = open_again();
    pid_t me = getpid();
    is_free(F_WRLCK, 0);
    CHECK(set(file, F_WRLCK, 0, 100) == 0);
    is_taken(F_RDLCK, 50, F_WRLCK, 0, 100, me);
    /* The process's own are not in its way. */
    struct flock lock = range(F_WRLCK, 0, 0);
    CHECK(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK && lock.l_len == 0);
    /* Split, and one again. */
    CHECK(set(file, F_UNLCK, 40, 20) == 0);
    is_taken(F_RDLCK, 39, F_WRLCK, 0, 40, me);
    is_free(F_WRLCK, 40);
    is_free(F_WRLCK, 59);
    is_taken(F_RDLCK, 60, F_WRLCK, 60, 40, me);
    CHECK(set(file, F_RDLCK, 40, 20) == 0);
    is_free(F_RDLCK, 45);
    is_taken(F_WRLCK, 45, F_RDLCK, 40, 20, me);
    CHECK(set(file, F_WRLCK, 35, 30) == 0);
    is_taken(F_RDLCK, 45, F_WRLCK, 0, 100, me);
    /* A shared piece in the middle, at the beginning, at the end. */
    CHECK(set(file, F_RDLCK, 30, 10) == 0 && set(file, F_RDLCK, 0, 5) == 0);
    CHECK(set(file, F_RDLCK, 90, 10) == 0);
    is_taken(F_WRLCK, 4, F_RDLCK, 0, 5, me);
    is_taken(F_WRLCK, 5, F_WRLCK, 5, 25, me);
    is_taken(F_WRLCK, 30, F_RDLCK, 30, 10, me);
    is_taken(F_WRLCK, 40, F_WRLCK, 40, 50, me);
    is_taken(F_WRLCK, 99, F_RDLCK, 90, 10, me);
    is_free(F_WRLCK, 100);
    CHECK(set(file, F_UNLCK, 0, 0) == 0);
    is_free(F_WRLCK, 0);

    /* To the end of all files, backwards, and from elsewhere. */
    CHECK(set(file, F_WRLCK, 1000, 0) == 0);
    is_taken(F_RDLCK, 1L << 62, F_WRLCK, 1000, 0, me);
    CHECK(set(file, F_UNLCK, 2000, 0) == 0);
    is_taken(F_RDLCK, 1000, F_WRLCK, 1000, 1000, me);
    CHECK(set(file, F_WRLCK, 0x7fffffffffffffff, 1) == 0);
    is_taken(F_RDLCK, 0x7fffffffffffffff, F_WRLCK, 0x7fffffffffffffff, 0, me);
    CHECK(set(file, F_UNLCK, 0, 0) == 0 && set(file, F_WRLCK, 10, -10) == 0);
    is_taken(F_RDLCK, 0, F_WRLCK, 0, 10, me);
    CHECK(set(file, F_UNLCK, 0, 0) == 0 && ftruncate(file, 500) == 0);
    CHECK(lseek(file, 20, SEEK_SET) == 20);
    lock = range(F_WRLCK, -5, 10);
    lock.l_whence = SEEK_CUR;
    CHECK(fcntl(file, F_SETLK, &lock) == 0 && lseek(file, 0, SEEK_CUR) == 20);
    is_taken(F_RDLCK, 15, F_WRLCK, 15, 10, me);
    lock = range(F_WRLCK, 0, -100);
    lock.l_whence = SEEK_END;
    CHECK(fcntl(file, F_SETLK, &lock) == 0 && lseek(file, 0, SEEK_CUR) == 20);
    is_taken(F_RDLCK, 450, F_WRLCK, 400, 100, me);
    is_free(F_WRLCK, 500);
    CHECK(close(file) == 0);
    is_free(F_WRLCK, 0);
}

/* The process `child` has done what it was to do first, or may go on. */
static int to_parent[2], to_child[2];

static void tell(int *ends) {
    CHECK(write(ends[1], "x", 1) == 1);
}

static void hear(int *ends) {
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
}

/* A child that takes a lock, and ends when it is told to. */
static pid_t holder(short type, long start, long length) {
    pid_t child = fork();
    if (child == 0) {
        int file = open_again();
        CHECK(set_and_wait(file, type, start, length) == 0);
        tell(to_parent);
        hear(to_child);
        _exit(0);
    }
    hear(to_parent);
    return child;
}

static void let_end(pid_t child) {
    tell(to_child);
    ended_with(child, 0);
}

static void several_owners(void) {
    int file = open_again();
    pid_t child = holder(F_RDLCK, 10, 10);
    CHECK(set(file, F_RDLCK, 0, 100) == 0);
    FAILS(set(file, F_WRLCK, 0, 100), EAGAIN);
    FAILS(set(file, F_WRLCK, 19, 1), EAGAIN);
    CHECK(set(file, F_WRLCK, 20, 80) == 0 && set(file, F_WRLCK, 0, 10) == 0);
    struct flock lock = range(F_WRLCK, 0, 0);
    CHECK(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_RDLCK && lock.l_pid == child);
    CHECK(lock.l_start == 10 && lock.l_len == 10);
    let_end(child);
    CHECK(set(file, F_WRLCK, 0, 100) == 0 && close(file) == 0);
}

static void what_releases(char *self) {
    pid_t me = getpid();
    int file = open_again(), other = open_again();
    /* Any descriptor that is closed, even if it has not locked. */
    CHECK(set(file, F_WRLCK, 0, 10) == 0 && close(other) == 0);
    is_free(F_WRLCK, 0);
    CHECK(set(file, F_WRLCK, 0, 10) == 0);
    other = dup(file);
    CHECK(close(other) == 0);
    is_free(F_WRLCK, 0);
    /* One that `dup2` closes. */
    CHECK((other = open_again()) >= 0 && set(file, F_WRLCK, 0, 10) == 0);
    CHECK(dup2(to_child[0], other) == other);
    is_free(F_WRLCK, 0);
    CHECK(close(other) == 0);
    /* Another file's does not matter. */
    other = open("/tmp/locks-2", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(other >= 0 && set(file, F_WRLCK, 0, 10) == 0 && set(other, F_WRLCK, 0, 10) == 0);
    CHECK(close(other) == 0);
    is_taken(F_RDLCK, 0, F_WRLCK, 0, 10, me);
    /* A copy of the process has none, and what it closes is its own. */
    pid_t child = fork();
    if (child == 0) {
        FAILS(set(file, F_RDLCK, 5, 1), EAGAIN);
        CHECK(close(file) == 0);
        _exit(0);
    }
    ended_with(child, 0);
    is_taken(F_RDLCK, 0, F_WRLCK, 0, 10, me);
    CHECK(close(file) == 0);
    /* Its end, of whatever kind. */
    for (int signal = 0; signal <= SIGKILL; signal += SIGKILL) {
        child = holder(F_WRLCK, 0, 10);
        is_taken(F_RDLCK, 0, F_WRLCK, 0, 10, child);
        if (signal) {
            CHECK(kill(child, signal) == 0);
            ended_by(child, signal);
        } else {
            let_end(child);
        }
        is_free(F_WRLCK, 0);
    }
    /* Another program keeps them, except those of files that it does not get. */
    for (int closes = 0; closes < 2; closes++) {
        child = fork();
        if (child == 0) {
            file = open(path, O_RDWR | (closes ? O_CLOEXEC : 0));
            CHECK(set(file, F_WRLCK, 0, 10) == 0);
            CHECK(dup2(to_parent[1], 100) == 100 && dup2(to_child[0], 101) == 101);
            execl(self, self, "again", NULL);
            _exit(1);
        }
        hear(to_parent);
        is_taken(F_RDLCK, 0, closes ? F_UNLCK : F_WRLCK, 0, 10, child);
        let_end(child);
    }
    is_free(F_WRLCK, 0);
}

static void of_open_files(void) {
    int file = open_again(), other = open_again(), copy = dup(file);
    CHECK(set_of_file(file, F_WRLCK, 0, 10) == 0);
    is_taken(F_RDLCK, 0, F_WRLCK, 0, 10, -1);
    /* Another open file is another owner, even in one process; so is the process. */
    FAILS(set_of_file(other, F_RDLCK, 0, 10), EAGAIN);
    FAILS(set(other, F_RDLCK, 9, 1), EAGAIN);
    FAILS(set(file, F_RDLCK, 9, 1), EAGAIN);
    CHECK(set_of_file(copy, F_RDLCK, 5, 5) == 0 && set_of_file(other, F_RDLCK, 5, 5) == 0);
    struct flock lock = range(F_WRLCK, 5, 1);
    CHECK(fcntl(other, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK && lock.l_pid == -1);
    /* The copy of a process has the same open file. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(set_of_file(file, F_WRLCK, 0, 3) == 0 && close(file) == 0 && close(copy) == 0);
        _exit(0);
    }
    ended_with(child, 0);
    is_taken(F_RDLCK, 0, F_WRLCK, 0, 5, -1);
    CHECK(close(other) == 0 && close(file) == 0);
    is_taken(F_WRLCK, 5, F_RDLCK, 5, 5, -1);
    CHECK(close(copy) == 0);
    is_free(F_WRLCK, 0);
}

static void of_whole_files(void) {
    int file = open_again(), other = open_again(), copy = dup(file);
    CHECK(flock(file, LOCK_SH) == 0 && flock(other, LOCK_SH) == 0);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EAGAIN);
    /* A change is not one step: what it was to replace is gone. */
    CHECK(flock(file, LOCK_EX | LOCK_NB) == 0 && flock(copy, LOCK_EX) == 0);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EAGAIN);
    /* Locks of ranges are separate. */
    CHECK(set(other, F_WRLCK, 0, 0) == 0);
    CHECK(close(file) == 0);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EAGAIN);
    CHECK(flock(copy, LOCK_SH) == 0 && flock(other, LOCK_SH | LOCK_NB) == 0);
    CHECK(flock(other, LOCK_UN) == 0 && flock(copy, LOCK_EX) == 0);
    /* A process that has the same open file can unlock it, and its end does not. */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    ended_with(child, 0);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EAGAIN);
    child = fork();
    if (child == 0) {
        CHECK(flock(copy, LOCK_UN) == 0);
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
    CHECK(close(copy) == 0 && close(other) == 0);
    file = open_again();
    CHECK(flock(file, LOCK_EX | LOCK_NB) == 0 && close(file) == 0);
}

static volatile int handled;

enum { HANDLED_AT = 100 };

static void handle(int signal) {
    handled = signal;
    /* For other processes. */
    ((volatile int *)found)[HANDLED_AT] = signal;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *flock_exclusive(void *file) {
    CHECK(flock((int)(long)file, LOCK_EX) == 0);
    return file;
}

static void *lock_range(void *file) {
    long result = set_and_wait((int)(long)file, F_WRLCK, 0, 1);
    return (void *)(result == 0 ? 0 : (long)errno);
}

static void waiting(void) {
    int file = open_again();
    /* Before the child exists: its time may begin before this process goes on. */
    double begin = now();
    pid_t child = fork();
    if (child == 0) {
        int other = open_again();
        CHECK(set(other, F_WRLCK, 0, 10) == 0);
        tell(to_parent);
        usleep(50000);
        /* In two steps, of which only the second one lets the other process go on. */
        CHECK(set(other, F_UNLCK, 0, 5) == 0);
        usleep(50000);
        CHECK(set(other, F_RDLCK, 5, 5) == 0);
        hear(to_child);
        _exit(0);
    }
    hear(to_parent);
    CHECK(set_and_wait(file, F_RDLCK, 3, 4) == 0 && now() - begin >= 0.1);
    let_end(child);
    CHECK(set(file, F_UNLCK, 0, 0) == 0);

    /* A signal ends a wait, or does not. */
    child = holder(F_WRLCK, 0, 10);
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    ualarm(30000, 30000);
    handled = 0;
    FAILS(set_and_wait(file, F_WRLCK, 0, 1), EINTR);
    CHECK(handled == SIGALRM);
    ualarm(0, 0);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    handled = 0;
    volatile int *seen = (volatile int *)found + HANDLED_AT;
    *seen = 0;
    pid_t second = fork();
    if (second == 0) {
        while (*seen == 0)
            usleep(1000);
        usleep(20000);
        tell(to_child);
        _exit(0);
    }
    ualarm(30000, 0);
    CHECK(set_and_wait(file, F_WRLCK, 0, 1) == 0 && handled == SIGALRM);
    ended_with(child, 0);
    ended_with(second, 0);
    CHECK(close(file) == 0);

    /* A process that is killed while it waits, and its place in the queue. */
    child = holder(F_WRLCK, 0, 1);
    pid_t waiter = fork();
    if (waiter == 0) {
        set_and_wait(open_again(), F_WRLCK, 0, 1);
        _exit(1);
    }
    usleep(20000);
    CHECK(kill(waiter, SIGKILL) == 0);
    ended_by(waiter, SIGKILL);
    let_end(child);
    is_free(F_WRLCK, 0);

    /* The file is closed by another thread while one waits. */
    child = holder(F_WRLCK, 0, 1);
    file = open_again();
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, lock_range, (void *)(long)file) == 0);
    usleep(50000);
    CHECK(close(file) == 0);
    let_end(child);
    CHECK(pthread_join(thread, &result) == 0 && (result == (void *)EBADF || result == NULL));
    is_free(F_WRLCK, 0);

    /* Two open files that both want more than they share: each gives up what it has. */
    file = open_again();
    int other = open_again();
    CHECK(flock(file, LOCK_SH) == 0 && flock(other, LOCK_SH) == 0);
    CHECK(pthread_create(&thread, NULL, flock_exclusive, (void *)(long)file) == 0);
    usleep(20000);
    CHECK(flock(other, LOCK_EX) == 0 || errno == EINTR);
    CHECK(flock(other, LOCK_UN) == 0 && pthread_join(thread, &result) == 0);
    CHECK(close(file) == 0 && close(other) == 0);
}

/* Of those that wait, the most urgent one is next. (On Linux, the one that waits longest.) */
static void priorities(void) {
    static const int nice[4] = {5, -5, 10, 0}, order[4] = {-5, 0, 5, 10};
    int file = open_again();
    int *count = (int *)found;
    pid_t child[4];
    CHECK(flock(file, LOCK_EX) == 0);
    *count = 0;
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            CHECK(setpriority(PRIO_PROCESS, 0, nice[i]) == 0);
            int own = open_again();
            tell(to_parent);
            CHECK(flock(own, LOCK_EX) == 0);
            count[1 + *count] = nice[i];
            ++*count;
            CHECK(flock(own, LOCK_UN) == 0);
            _exit(0);
        }
        hear(to_parent);
        until_asleep(child[i]);
    }
    CHECK(flock(file, LOCK_UN) == 0);
    for (int i = 0; i < 4; i++)
        ended_with(child[i], 0);
    CHECK(*count == 4 && (!is_cops() || memcmp(count + 1, order, sizeof order) == 0));
    CHECK(close(file) == 0);
}

/* The children have read all that they were told. */
static void until_heard(void) {
    int left = 1;
    for (int looks = 0; left != 0; looks++) {
        CHECK(ioctl(to_child[0], FIONREAD, &left) == 0 && looks < 10000);
        usleep(1000);
    }
}

/* A child that has byte `own` and then wants byte `next`; ends with the error, or 0. */
static pid_t chain(long own, long next) {
    pid_t child = fork();
    if (child == 0) {
        int file = open_again();
        CHECK(set(file, F_WRLCK, own, 1) == 0);
        tell(to_parent);
        hear(to_child);
        _exit(set_and_wait(file, F_WRLCK, next, 1) == 0 ? 0 : errno);
    }
    hear(to_parent);
    return child;
}

static void deadlocks(void) {
    int file = open_again();
    for (int count = 1; count <= 5; count++) {
        pid_t child[5];
        CHECK(set(file, F_WRLCK, 0, 1) == 0);
        for (int i = 0; i < count; i++)
            child[i] = chain(i + 1, i);
        for (int i = 0; i < count; i++)
            tell(to_child);
        until_heard();
        for (int i = 0; i < count; i++)
            until_asleep(child[i]);
        /* This process closes the cycle, so it is told; nothing has changed. */
        FAILS(set_and_wait(file, F_WRLCK, count, 1), EDEADLK);
        FAILS(set_and_wait(file, F_RDLCK, 1, 1), EDEADLK);
        is_taken(F_RDLCK, 0, F_WRLCK, 0, 1, getpid());
        CHECK(set(file, F_UNLCK, 0, 1) == 0);
        for (int i = 0; i < count; i++)
            ended_with(child[i], 0);
    }
    /* None with open files as owners, nor for one that does not wait. */
    CHECK(set_of_file(file, F_WRLCK, 0, 1) == 0);
    pid_t child = chain(1, 0);
    tell(to_child);
    until_heard();
    until_asleep(child);
    FAILS(set_of_file(file, F_WRLCK, 1, 1), EAGAIN);
    CHECK(set_of_file(file, F_UNLCK, 0, 1) == 0);
    ended_with(child, 0);

    /* Two processes that hand a pair of bytes to each other: each releases one before it waits
     * for the other, so there is no cycle, whatever the other has noticed. */
    enum { TURNS = 300 };
    pid_t pair[2];
    for (int i = 0; i < 2; i++) {
        pair[i] = fork();
        if (pair[i] == 0) {
            file = open_again();
            for (int turn = 0; turn < TURNS; turn++) {
                CHECK(set_and_wait(file, F_WRLCK, 0, 1) == 0);
                CHECK(set_and_wait(file, F_WRLCK, 1, 1) == 0);
                CHECK(set(file, F_UNLCK, 0, 1) == 0);
                CHECK(set(file, F_UNLCK, 1, 1) == 0);
            }
            _exit(0);
        }
    }
    ended_with(pair[0], 0);
    ended_with(pair[1], 0);
    CHECK(close(file) == 0);
}

/* A number in a file, counted up by several processes that lock its bytes. */
static void counted(int with_flock) {
    enum { PROCESSES = 6, TURNS = 200 };
    int file = open_again();
    long value = 0;
    CHECK(pwrite(file, &value, sizeof value, 0) == sizeof value);
    pid_t child[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            file = open_again();
            for (int turn = 0; turn < TURNS; turn++) {
                CHECK((with_flock ? flock(file, LOCK_EX) : set_and_wait(file, F_WRLCK, 0, 8)) == 0);
                CHECK(pread(file, &value, sizeof value, 0) == sizeof value);
                value++;
                CHECK(pwrite(file, &value, sizeof value, 0) == sizeof value);
                CHECK((with_flock ? flock(file, LOCK_UN) : set(file, F_UNLCK, 0, 8)) == 0);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; i++)
        ended_with(child[i], 0);
    CHECK(pread(file, &value, sizeof value, 0) == sizeof value && value == PROCESSES * TURNS);
    CHECK(close(file) == 0);
}

enum { WAITERS = 200 };

static void *wait_for_byte(void *at) {
    static int file = -1;
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once);
    if (file < 0)
        file = open_again();
    pthread_mutex_unlock(&once);
    return (void *)(long)set_and_wait(file, F_WRLCK, (long)at, 1);
}

/* Many locks: taken one by one, replaced at once, released at once. */
static void many_ranges(void) {
    pid_t me = getpid();
    int file = open_again();
    /* Linux looks at all of them each time. */
    const long many = is_cops() ? 30000 : 2000;
    for (int end = 0; end < 3; end++) {
        for (long i = 0; i < many; i++)
            CHECK(set(file, F_WRLCK, 2 * i, 1) == 0);
        is_taken(F_RDLCK, 2 * many - 2, F_WRLCK, 2 * many - 2, 1, me);
        is_free(F_WRLCK, many + 1);
        if (end == 0) {
            CHECK(set(file, F_RDLCK, 0, 0) == 0);
            is_taken(F_WRLCK, 7, F_RDLCK, 0, 0, me);
            CHECK(set(file, F_UNLCK, 0, 0) == 0);
        } else if (end == 1) {
            CHECK(set(file, F_UNLCK, 1, 2 * many) == 0);
            is_taken(F_RDLCK, 0, F_WRLCK, 0, 1, me);
        } else {
            CHECK(close(file) == 0);
        }
    }
    is_free(F_WRLCK, 0);
    /* A process that is killed with them. */
    pid_t child = fork();
    if (child == 0) {
        file = open_again();
        for (long i = 0; i < many; i++)
            CHECK(set(file, F_WRLCK, 2 * i, 1) == 0);
        tell(to_parent);
        hear(to_child);
        _exit(1);
    }
    hear(to_parent);
    CHECK(kill(child, SIGKILL) == 0);
    ended_by(child, SIGKILL);
    is_free(F_WRLCK, 0);
    if (is_cops()) {
        /* There are limits, and what fails changes nothing. */
        file = open_again();
        long i = 0;
        while (i < 70000 && set(file, F_WRLCK, 2 * i, 1) == 0)
            i++;
        CHECK(i == 65535 && errno == ENOLCK);
        is_taken(F_RDLCK, 2 * i - 2, F_WRLCK, 2 * i - 2, 1, me);
        is_free(F_WRLCK, 2 * i);
        CHECK(close(file) == 0);
    }
}

/* What is locked can be unlocked by a process that has used up its quota. */
static void without_memory(void) {
    if (!is_cops())
        return;
    pid_t child = fork();
    if (child == 0) {
        int file = open_again();
        CHECK(set(file, F_WRLCK, 0, 10) == 0);
        for (size_t bytes = (size_t)1 << 30; bytes >= 4096; bytes /= 2)
            while (mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                   != MAP_FAILED)
                ;
        long at = 20;
        while (set(file, F_WRLCK, at, 1) == 0)
            at += 2;
        /* The quota is used up, and not the number of ranges. */
        CHECK(errno == ENOLCK && at < 2 * 60000);
        /* A part of a range frees nothing, so there is no more memory for the next one. */
        CHECK(set(file, F_UNLCK, 0, 1) == 0 && set(file, F_UNLCK, 9, 1) == 0);
        CHECK(set(file, F_UNLCK, 5, 15) == 0 && set(file, F_UNLCK, 0, 0) == 0);
        _exit(0);
    }
    ended_with(child, 0);
    is_free(F_WRLCK, 0);
}

static void many_owners(void) {
    enum { FILES = 400 };
    static int file[FILES];
    int count = 0;
    for (int i = 0; i < FILES; i++)
        file[i] = open_again();
    while (count < FILES && flock(file[count], LOCK_SH) == 0)
        count++;
    CHECK(count == FILES || (is_cops() && errno == ENOLCK && count == 341));
    /* One more when one has gone. */
    CHECK(flock(file[0], LOCK_UN) == 0);
    CHECK(flock(file[count - 1], LOCK_SH) == 0);
    for (int i = 0; i < FILES; i++)
        CHECK(close(file[i]) == 0);
    file[0] = open_again();
    CHECK(flock(file[0], LOCK_EX | LOCK_NB) == 0 && close(file[0]) == 0);
}

static void many_waiters(void) {
    static pthread_t thread[WAITERS];
    /* In one process, of which the owner in their way is killed. */
    pid_t child = holder(F_WRLCK, 0, 0);
    for (long i = 0; i < WAITERS; i++)
        CHECK(pthread_create(&thread[i], NULL, wait_for_byte, (void *)i) == 0);
    usleep(50000);
    CHECK(kill(child, SIGKILL) == 0);
    ended_by(child, SIGKILL);
    for (int i = 0; i < WAITERS; i++) {
        void *result;
        CHECK(pthread_join(thread[i], &result) == 0 && result == NULL);
    }
    is_taken(F_RDLCK, 0, F_WRLCK, 0, WAITERS, getpid());
    CHECK(set(open_again(), F_UNLCK, 0, 0) == 0);
    /* A process that is killed with all its waits. */
    child = holder(F_WRLCK, 0, 0);
    pid_t waiter = fork();
    if (waiter == 0) {
        for (long i = 0; i < WAITERS; i++)
            CHECK(pthread_create(&thread[i], NULL, wait_for_byte, (void *)i) == 0);
        tell(to_parent);
        pause();
    }
    hear(to_parent);
    usleep(20000);
    CHECK(kill(waiter, SIGKILL) == 0);
    ended_by(waiter, SIGKILL);
    let_end(child);
    is_free(F_WRLCK, 0);
}

int main(int count, char **arguments) {
    if (count > 1) {
        /* After `exec`. */
        CHECK(write(100, "x", 1) == 1);
        char byte;
        CHECK(read(101, &byte, 1) == 1);
        return 0;
    }
    found = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(found != MAP_FAILED && pipe(to_parent) == 0 && pipe(to_child) == 0);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && close(file) == 0);
    errors();
    ranges();
    several_owners();
    what_releases(arguments[0]);
    of_open_files();
    of_whole_files();
    waiting();
    priorities();
    deadlocks();
    counted(0);
    counted(1);
    many_ranges();
    without_memory();
    many_owners();
    many_waiters();
    CHECK(unlink(path) == 0 && unlink("/tmp/locks-2") == 0);
    printf("locks are in order\n");
    return 0;
}
