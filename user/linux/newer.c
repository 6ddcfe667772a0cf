/* Calls that came to Linux late: close_range, memfd_create, sync_file_range; and fallocate. Also
   passes on Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "children.h"

enum { PAGE = 4096, UNSHARE = 2, ON_EXEC = 4 };

static int is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

/* Copies of a pipe's end with these numbers. */
static void open_some(int first, int last) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (int fd = first; fd <= last; fd++)
        CHECK(dup2(ends[0], fd) == fd);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static long range(unsigned long first, unsigned long last, unsigned flags) {
    return syscall(SYS_close_range, first, last, flags);
}

static void ranges(void) {
    open_some(100, 300);
    CHECK(range(150, 250, 0) == 0);
    CHECK(is_open(149) && !is_open(150) && !is_open(250) && is_open(251));
    /* Nothing is open there any more. */
    CHECK(range(150, 250, 0) == 0 && range(40000, ~0U, 0) == 0 && range(~0U, ~0U, 0) == 0);
    CHECK(range(100, 100, 0) == 0 && !is_open(100) && is_open(101));
    CHECK(range(280, ~0U, ON_EXEC) == 0);
    CHECK(fcntl(279, F_GETFD) == 0 && fcntl(280, F_GETFD) == FD_CLOEXEC);
    CHECK(range(290, 295, UNSHARE) == 0 && is_open(289) && !is_open(290) && is_open(296));
    CHECK(range(100, ~0U, UNSHARE | ON_EXEC) == 0 && fcntl(101, F_GETFD) == FD_CLOEXEC);
    FAILS(range(200, 199, 0), EINVAL);
    FAILS(range(100, 300, 1), EINVAL);
    FAILS(range(100, 300, 8), EINVAL);
    FAILS(range(100, 300, ~0U), EINVAL);
    /* The upper halves of the registers have no meaning. */
    CHECK(is_open(101) && range(101 | 1UL << 32, 101 | 1UL << 40, 0) == 0 && !is_open(101));
    CHECK(range(100, ~0U, 0) == 0 && !is_open(102) && !is_open(300) && is_open(2));
}

/* Tens of thousands: in portions, during which another thread opens files. */
static volatile int stop;
static void *opens(void *unused) {
    while (!stop) {
        int fd = dup(2);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    return unused;
}

static void many(void) {
    enum { LAST = 30000 };
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = limit.rlim_cur > LAST ? LAST : (int)limit.rlim_cur - 1;
    open_some(100, last);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, opens, NULL) == 0);
    CHECK(range(100, last, ON_EXEC) == 0 && fcntl(last, F_GETFD) == FD_CLOEXEC);
    CHECK(range(100, last, 0) == 0 && !is_open(100) && !is_open(last));
    /* The table of a process with threads is not divided here. */
    if (is_cops())
        FAILS(range(100, 200, UNSHARE), EINVAL);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void memory_files(void) {
    int fd = memfd_create("a name", MFD_CLOEXEC), other = memfd_create("a name", 0);
    struct stat first, second;
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(other >= 0 && fcntl(other, F_GETFD) == 0);
    CHECK(fstat(fd, &first) == 0 && S_ISREG(first.st_mode) && first.st_size == 0);
    CHECK(fstat(other, &second) == 0 && first.st_nlink == 0);
    CHECK(first.st_ino != second.st_ino && first.st_dev == second.st_dev);
    char text[16] = "";
    CHECK(ftruncate(fd, 3 * PAGE) == 0 && pwrite(fd, "hello", 5, PAGE) == 5);
    char *at = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED && strcmp(at + PAGE, "hello") == 0 && at[2 * PAGE] == 0);
    strcpy(at + PAGE, "shared");
    CHECK(pread(fd, text, sizeof text, PAGE) == sizeof text && strcmp(text, "shared") == 0);
    CHECK(pread(other, text, sizeof text, 0) == 0);
    /* A child has the file too, and the mapping outlives the descriptors. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(pwrite(fd, "child", 6, PAGE) == 6);
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(close(fd) == 0 && strcmp(at + PAGE, "child") == 0);
    CHECK(munmap(at, 3 * PAGE) == 0 && close(other) == 0);
    char name[300];
    memset(name, 'n', sizeof name);
    name[249] = 0;
    fd = memfd_create(name, 0);
    CHECK(fd >= 0 && close(fd) == 0);
    name[249] = 'n', name[250] = 0;
    FAILS(memfd_create(name, 0), EINVAL);
    FAILS(memfd_create("a", 0x20), EINVAL);
    FAILS(memfd_create("a", ~0U), EINVAL);
    FAILS(memfd_create((char *)8, 0), EFAULT);
    if (is_cops())
        FAILS(memfd_create("a", MFD_ALLOW_SEALING), EINVAL);
}

/* As many as there may be, and nothing is left of them. */
static void many_files(void) {
    enum { FILES = 2000 };
    static int fds[FILES];
    struct sysinfo before, after;
    for (int round = 0; round < 3; round++) {
        int count = 0;
        for (; count < FILES && (fds[count] = memfd_create("many", 0)) >= 0; count++)
            CHECK(count % 100 != 0 || write(fds[count], "x", 1) == 1);
        CHECK(count == FILES || errno == EMFILE || errno == ENOMEM || errno == ENOSPC);
        CHECK(count > 500);
        while (count > 0)
            CHECK(close(fds[--count]) == 0);
        CHECK(sysinfo(round == 0 ? &before : &after) == 0);
    }
    if (is_cops())
        CHECK(after.freeram + (1 << 20) > before.freeram);
}

// Where no file system can do it, the C library writes to each block.
static void reserved(void) {
    struct stat status;
    int fd = open("/tmp/newer", O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2];
    int reading = open("/tmp/newer", O_RDONLY);
    CHECK(fd >= 0 && reading >= 0 && pipe(ends) == 0);
    if (is_cops())
        FAILS(fallocate(fd, 0, 0, 100), EOPNOTSUPP);
    FAILS(fallocate(fd, 0x4000, 0, 100), EOPNOTSUPP);
    FAILS(fallocate(fd, 0, -1, 100), EINVAL);
    FAILS(fallocate(fd, 0, 0, 0), EINVAL);
    FAILS(fallocate(fd, 0, 1, 0x7fffffffffffffff), EFBIG);
    FAILS(fallocate(reading, 0, 0, 100), EBADF);
    FAILS(fallocate(ends[1], 0, 0, 100), ESPIPE);
    FAILS(fallocate(999, 0, 0, 100), EBADF);
    CHECK(posix_fallocate(fd, 0, 10000) == 0);
    CHECK(fstat(fd, &status) == 0 && status.st_size == 10000);
    CHECK(close(fd) == 0 && close(reading) == 0 && unlink("/tmp/newer") == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void synchronised(void) {
    int fd = open("/tmp/newer", O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2];
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && pipe(ends) == 0);
    for (unsigned flags = 0; flags < 8; flags++)
        CHECK(sync_file_range(fd, 0, flags % 2 ? 1 : 0, flags) == 0);
    FAILS(sync_file_range(fd, 0, 1, 8), EINVAL);
    FAILS(sync_file_range(fd, -1, 1, 2), EINVAL);
    FAILS(sync_file_range(fd, 1, -1, 2), EINVAL);
    FAILS(sync_file_range(fd, 1, 0x7fffffffffffffff, 2), EINVAL);
    FAILS(sync_file_range(ends[0], 0, 1, 2), ESPIPE);
    FAILS(sync_file_range(999, 0, 1, 2), EBADF);
    CHECK(close(fd) == 0 && unlink("/tmp/newer") == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    ranges();
    memory_files();
    many_files();
    synchronised();
    reserved();
    many();
    puts("newer calls are in order");
    return 0;
}
