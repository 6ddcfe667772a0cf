/* When the status of a file has changed: what changes that time, and what only asks. In the
   directory that is the argument, otherwise in /tmp. Also passes on Linux. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct stat of(const char *path) {
    struct stat status;
    CHECK(lstat(path, &status) == 0);
    return status;
}

static int same(struct timespec one, struct timespec other) {
    return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

/* Whether the status of `path` has changed since the last call for it, and its contents have not.
   The next change has another time. */
static int only_status(const char *path, struct stat *before) {
    struct stat now = of(path);
    int has_changed = !same(now.st_ctim, before->st_ctim) && same(now.st_mtim, before->st_mtim);
    *before = now;
    usleep(30000);
    return has_changed;
}

static int nothing(const char *path, struct stat *before) {
    struct stat now = of(path);
    int is_same = same(now.st_ctim, before->st_ctim) && same(now.st_mtim, before->st_mtim);
    *before = now;
    usleep(30000);
    return is_same;
}

static int contents(const char *path, struct stat *before) {
    struct stat now = of(path);
    int has_changed = !same(now.st_ctim, before->st_ctim) && !same(now.st_mtim, before->st_mtim);
    *before = now;
    usleep(30000);
    return has_changed;
}

static void of_a_file(void) {
    int fd = open("a", O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    struct stat a = of("a");
    usleep(30000);
    CHECK(access("a", R_OK | W_OK) == 0 && nothing("a", &a));
    static const int flags[] = {O_RDONLY, O_RDWR, O_WRONLY, O_RDWR | O_CREAT, O_WRONLY | O_APPEND};
    for (int i = 0; i < 5; i++) {
        fd = open("a", flags[i], 0600);
        CHECK(fd >= 0 && close(fd) == 0 && nothing("a", &a));
    }
    struct timespec omitted[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    CHECK(utimensat(AT_FDCWD, "a", omitted, 0) == 0 && nothing("a", &a));
    CHECK(chmod("a", 0640) == 0 && only_status("a", &a));
    struct timespec read[2] = {{5, 0}, {0, UTIME_OMIT}};
    CHECK(utimensat(AT_FDCWD, "a", read, 0) == 0 && only_status("a", &a));
    fd = open("a", O_WRONLY | O_TRUNC);
    CHECK(fd >= 0 && close(fd) == 0 && contents("a", &a));
}

/* Names are a part of the status, and the contents of their directories. */
static void of_names(void) {
    CHECK(mkdir("d", 0700) == 0 && mkdir("e", 0700) == 0);
    struct stat a = of("a"), d = of("d"), e = of("e");
    usleep(30000);
    CHECK(link("a", "d/b") == 0 && only_status("a", &a) && contents("d", &d));
    FAILS(link("a", "d/b"), EEXIST);
    CHECK(nothing("a", &a) && nothing("d", &d));
    CHECK(rename("d/b", "e/c") == 0 && only_status("a", &a));
    CHECK(contents("d", &d) && contents("e", &e));
    /* Two names of one file. */
    CHECK(rename("a", "e/c") == 0 && nothing("a", &a) && nothing("e", &e));
    /* In the place of another name of it. */
    int fd = open("new", O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0 && close(fd) == 0 && rename("new", "e/c") == 0 && only_status("a", &a));
    CHECK(contents("e", &e) && link("a", "d/b") == 0 && only_status("a", &a));
    CHECK(unlink("a") == 0 && only_status("d/b", &a));
    /* A directory. */
    CHECK(contents("d", &d) && rename("d", "e/d") == 0 && only_status("e/d", &d));
    CHECK(contents("e", &e));
    CHECK(unlink("e/d/b") == 0 && rmdir("e/d") == 0 && unlink("e/c") == 0 && rmdir("e") == 0);
}

int main(int count, char **arguments) {
    CHECK(chdir(count > 1 ? arguments[1] : "/tmp") == 0);
    of_a_file();
    of_names();
    printf("times of changes are in order\n");
    return 0;
}
