// Files of a file system that a process serves, at /disk (/bin/memfs starts this program): stdio,
// directories, links, positions that processes share, several threads, programs.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static int faults;
#define FAULT faults++
#include "check.h"

#define THREADS 4
#define BLOCK 300000

static void contents(void) {
    static char block[BLOCK], found[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        block[i] = (char)(i * 7 % 251);
    int fd = open("/disk/data", O_CREAT | O_EXCL | O_RDWR, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, block, BLOCK) == BLOCK);
    CHECK(pread(fd, found, BLOCK, 0) == BLOCK && memcmp(block, found, BLOCK) == 0);
    CHECK(pread(fd, found, BLOCK, BLOCK - 20000) == 20000);
    CHECK(memcmp(block + BLOCK - 20000, found, 20000) == 0);
    CHECK(lseek(fd, 0, SEEK_END) == BLOCK);
    CHECK(lseek(fd, -10, SEEK_CUR) == BLOCK - 10);
    CHECK(read(fd, found, 100) == 10 && memcmp(found, block + BLOCK - 10, 10) == 0);
    CHECK(read(fd, found, 100) == 0);
    CHECK(pread(fd, found, 1000, 12345) == 1000 && memcmp(found, block + 12345, 1000) == 0);
    struct iovec parts[2] = {{found, 3}, {found + 100, 5}};
    CHECK(preadv(fd, parts, 2, 50) == 8 && memcmp(found, block + 50, 3) == 0);
    CHECK(memcmp(found + 100, block + 53, 5) == 0);
    parts[0] = (struct iovec){"abc", 3};
    parts[1] = (struct iovec){"defgh", 5};
    CHECK(pwritev(fd, parts, 2, 60) == 8);
    CHECK(pread(fd, found, 8, 60) == 8 && memcmp(found, "abcdefgh", 8) == 0);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
    FAILS(fallocate(fd, 0, 0, 2 * BLOCK), EOPNOTSUPP);
    sync();
    struct stat status;
    CHECK(fstat(fd, &status) == 0 && status.st_size == BLOCK && S_ISREG(status.st_mode));
    CHECK(ftruncate(fd, 62) == 0 && fstat(fd, &status) == 0 && status.st_size == 62);
    CHECK(close(fd) == 0);
    FAILS(open("/disk/data", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST);
    FAILS(open("/disk/none", O_RDONLY), ENOENT);
    char *arguments[] = {"/disk/data", NULL};
    CHECK(chmod("/disk/data", 0755) == 0);
    FAILS(execv("/disk/data", arguments), ENOEXEC);
    CHECK(chmod("/disk/data", 0644) == 0);
    FAILS(execv("/disk/data", arguments), EACCES);
    CHECK(unlink("/disk/data") == 0);
    FAILS(stat("/disk/data", &status), ENOENT);
}

/* Two opens are one file: a lock of one is in the way of the other. */
static void locks(void) {
    int fd = open("/disk/locked", O_CREAT | O_RDWR, 0644), other = open("/disk/locked", O_RDWR);
    CHECK(fd >= 0 && other >= 0 && write(fd, "0123456789", 10) == 10);
    CHECK(flock(fd, LOCK_EX) == 0);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EAGAIN);
    CHECK(flock(fd, LOCK_UN) == 0 && flock(other, LOCK_EX | LOCK_NB) == 0);
    /* The size of the file, which the server knows, and the position. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -4, .l_len = 0};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = 1, .l_len = -2};
    CHECK(lseek(fd, 3, SEEK_SET) == 3 && fcntl(fd, F_OFD_GETLK, &lock) == 0);
    CHECK(lock.l_type == F_UNLCK);
    pid_t child = fork();
    if (child == 0) {
        lock = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_END, .l_start = -10};
        int own = open("/disk/locked", O_RDWR);
        _exit(fcntl(own, F_GETLK, &lock) != 0 || lock.l_pid != getppid() || lock.l_start != 6 ||
              lock.l_len != 0 || fcntl(own, F_SETLK, &lock) != -1 || errno != EAGAIN);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(other) == 0);
    child = fork();
    if (child == 0) {
        lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -10};
        _exit(fcntl(fd, F_SETLKW, &lock) != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(fd) == 0 && unlink("/disk/locked") == 0);
}

static void lines(void) {
    FILE *file = fopen("/disk/lines", "w");
    CHECK(file);
    for (int i = 0; i < 1000; i++)
        fprintf(file, "line %d\n", i);
    CHECK(fclose(file) == 0);
    file = fopen("/disk/lines", "a");
    CHECK(file && fprintf(file, "the last\n") == 9 && fclose(file) == 0);
    file = fopen("/disk/lines", "r");
    CHECK(file);
    char line[100];
    int count = 0;
    while (fgets(line, sizeof line, file)) {
        char expected[100];
        sprintf(expected, count < 1000 ? "line %d\n" : "the last\n", count);
        CHECK(strcmp(line, expected) == 0);
        count++;
    }
    CHECK(count == 1001 && fclose(file) == 0);
}

static void names(void) {
    CHECK(mkdir("/disk/d", 0755) == 0 && chdir("/disk/d") == 0);
    char path[200];
    CHECK(getcwd(path, sizeof path) && strcmp(path, "/disk/d") == 0);
    for (int i = 0; i < 100; i++) {
        sprintf(path, "file-%d", i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    CHECK(rename("file-7", "renamed") == 0 && link("renamed", "linked") == 0);
    CHECK(symlink("renamed", "symbolic") == 0);
    struct stat one, two;
    CHECK(stat("symbolic", &one) == 0 && stat("linked", &two) == 0);
    CHECK(one.st_ino == two.st_ino && one.st_nlink == 2);
    CHECK(readlink("symbolic", path, sizeof path) == 7 && memcmp(path, "renamed", 7) == 0);
    DIR *directory = opendir("/disk/d");
    CHECK(directory);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        count++;
        CHECK(strcmp(entry->d_name, "file-7") != 0);
        if (strncmp(entry->d_name, "file-", 5) == 0)
            CHECK(entry->d_type == DT_REG && unlink(entry->d_name) == 0);
    }
    CHECK(count == 104 && closedir(directory) == 0);
    FAILS(rmdir("/disk/d"), ENOTEMPTY);
    CHECK(unlink("renamed") == 0 && unlink("linked") == 0 && unlink("symbolic") == 0);
    CHECK(chdir("..") == 0 && rmdir("d") == 0);
    FAILS(rename("/disk/lines", "/tmp/lines"), EXDEV);
    struct statfs usage;
    CHECK(statfs("/disk", &usage) == 0 && usage.f_bsize == 4096);
    // That of memfs, or of ext4.
    CHECK(usage.f_type == 0x1234 || usage.f_type == 0xef53);
}

// A parent and its child write through one position.
static void shared_position(void) {
    int fd = open("/disk/log", O_CREAT | O_WRONLY | O_TRUNC, 0644);
    CHECK(fd >= 0);
    pid_t child = fork();
    for (int i = 0; i < 200; i++)
        CHECK(write(fd, child ? "parent\n" : "child.\n", 7) == 7);
    if (child == 0)
        _exit(faults);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(close(fd) == 0);
    FILE *file = fopen("/disk/log", "r");
    char line[100];
    int parents = 0, children = 0;
    while (file && fgets(line, sizeof line, file)) {
        parents += strcmp(line, "parent\n") == 0;
        children += strcmp(line, "child.\n") == 0;
    }
    CHECK(file && fclose(file) == 0 && parents == 200 && children == 200);
}

static int beside;
static volatile int has_begun;
static char beside_block[16384];
static ssize_t beside_count;

static void *write_beside(void *unused) {
    has_begun = 1;
    beside_count = write(beside, beside_block, sizeof beside_block);
    return unused;
}

// A seek beside a write of another thread is before it or after it, and is never lost.
static void seeks_beside_writes(void) {
    static char found[sizeof beside_block];
    const long size = sizeof beside_block;
    int before = 0, after = 0, lost = 0;
    beside = open("/disk/beside", O_CREAT | O_RDWR | O_TRUNC, 0644);
    CHECK(beside >= 0 && ftruncate(beside, 3 * size) == 0);
    for (int i = 1; i <= 60; i++) {
        memset(beside_block, i, sizeof beside_block);
        CHECK(lseek(beside, 2 * size, SEEK_SET) == 2 * size);
        has_begun = 0;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, write_beside, NULL) == 0);
        while (!has_begun)
            usleep(1);
        usleep(i * 5);
        // A lock from the position on waits for the same.
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = 1};
        CHECK(i % 10 || fcntl(beside, F_SETLK, &lock) == 0);
        CHECK(lseek(beside, 0, SEEK_SET) == 0);
        CHECK(pthread_join(thread, NULL) == 0 && beside_count == size);
        long end = lseek(beside, 0, SEEK_CUR);
        CHECK(pread(beside, found, sizeof found, 0) == size);
        int is_at_0 = memcmp(found, beside_block, sizeof found) == 0;
        CHECK(pread(beside, found, sizeof found, 2 * size) == size);
        int is_behind = memcmp(found, beside_block, sizeof found) == 0;
        before += is_at_0 && !is_behind && end == size;
        after += !is_at_0 && is_behind && end == 0;
    }
    lost = 60 - before - after;
    if (lost)
        printf("%d seeks before a write, %d after it, %d lost\n", before, after, lost);
    CHECK(lost == 0 && close(beside) == 0 && unlink("/disk/beside") == 0);
}

#define LISTED 200

static char is_listed[2][LISTED];

static void *list_some(void *own) {
    _Alignas(struct dirent64) char records[sizeof(struct dirent64)];
    for (long count; (count = syscall(SYS_getdents64, beside, records, sizeof records)) != 0;) {
        CHECK(count > 0);
        for (long at = 0; at < count;) {
            struct dirent64 *entry = (struct dirent64 *)(records + at);
            if (entry->d_name[0] != '.')
                ((char *)own)[atoi(entry->d_name) % LISTED]++;
            at += entry->d_reclen;
        }
    }
    return NULL;
}

// Two threads list one open directory: each entry is listed once.
static void listings_beside_each_other(void) {
    char path[100];
    CHECK(mkdir("/disk/listed", 0755) == 0);
    for (int i = 0; i < LISTED; i++) {
        sprintf(path, "/disk/listed/%d", i);
        int fd = open(path, O_CREAT | O_WRONLY, 0644);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    beside = open("/disk/listed", O_RDONLY | O_DIRECTORY);
    pthread_t thread;
    CHECK(beside >= 0 && pthread_create(&thread, NULL, list_some, is_listed[0]) == 0);
    list_some(is_listed[1]);
    CHECK(pthread_join(thread, NULL) == 0 && close(beside) == 0);
    for (int i = 0; i < LISTED; i++) {
        if (is_listed[0][i] + is_listed[1][i] != 1)
            printf("entry %d: listed %d and %d times\n", i, is_listed[0][i], is_listed[1][i]);
        CHECK(is_listed[0][i] + is_listed[1][i] == 1);
        sprintf(path, "/disk/listed/%d", i);
        CHECK(unlink(path) == 0);
    }
    CHECK(rmdir("/disk/listed") == 0);
}

static void *work(void *argument) {
    char path[100], text[200], found[200];
    for (int i = 0; i < 50; i++) {
        sprintf(path, "/disk/%d-%d", *(int *)argument, i);
        int length = sprintf(text, "I am %s", path);
        int fd = open(path, O_CREAT | O_RDWR, 0644);
        CHECK(fd >= 0 && write(fd, text, (size_t)length) == length);
        CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, found, sizeof found) == length);
        CHECK(memcmp(text, found, (size_t)length) == 0 && close(fd) == 0 && unlink(path) == 0);
    }
    return NULL;
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    ssize_t length = (ssize_t)strlen(text);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == length && close(fd) == 0);
}

static void ended_with(pid_t child, int code) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != code << 8)
        printf("status %x instead of code %d\n", status, code);
    CHECK(status == code << 8);
}

static pid_t execute(const char *directory, char *const arguments[]) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(chdir(directory) == 0);
        execv(arguments[0], arguments);
        _exit(errno);
    }
    return child;
}

static void count_signal(int signal) {
    (void)signal;
}

static void *never_end(void *unused) {
    for (;;)
        pause();
    return unused;
}

// This program, copied there, and scripts that it interprets.
static void programs(void) {
    static char block[16384];
    int from = open("/proc/self/exe", O_RDONLY);
    int to = open("/disk/program", O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    CHECK(from >= 0 && to >= 0);
    for (ssize_t count; (count = read(from, block, sizeof block)) != 0;)
        CHECK(count > 0 && write(to, block, (size_t)count) == count);
    CHECK(close(from) == 0 && close(to) == 0);
    put("/disk/script", "#!/disk/program executed\n");
    put("/disk/relative", "#!program executed\n");
    char *absolute[] = {"/disk/program", "executed", "x", NULL};
    char *relative[] = {"./program", "executed", "x", "y", NULL};
    char *script[] = {"/disk/script", "z", NULL}, *other[] = {"relative", NULL};
    for (int round = 0; round < 3; round++) {
        ended_with(execute("/", absolute), 43);
        ended_with(execute("/disk", relative), 44);
        ended_with(execute("/", script), 44);
        ended_with(execute("/disk", other), 43);
        ended_with(execute("/", other), ENOENT);
        pid_t child;
        CHECK(posix_spawn(&child, absolute[0], NULL, NULL, absolute, NULL) == 0);
        ended_with(child, 43);
    }
    // Signals with a handler do not end it. The new program ignores them.
    struct sigaction action = {.sa_handler = count_signal};
    CHECK(sigaction(SIGURG, &action, NULL) == 0);
    for (int round = 0; round < 10; round++) {
        int status = -1;
        pid_t child = execute("/", absolute);
        while (waitpid(child, &status, WNOHANG) == 0) {
            CHECK(kill(child, SIGURG) == 0);
            usleep(50);
        }
        CHECK(status == 43 << 8);
    }
    // With other threads, which end.
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&thread, NULL, never_end, NULL) == 0);
        execv(absolute[0], absolute);
        _exit(errno);
    }
    ended_with(child, 43);
    CHECK(unlink("/disk/program") == 0 && unlink("/disk/script") == 0);
    CHECK(unlink("/disk/relative") == 0);
}

static volatile sig_atomic_t hits;

static void count_hit(int signal) {
    (void)signal;
    hits++;
}

static volatile int is_hammering;

static void *hammer(void *thread) {
    while (is_hammering) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        usleep(100);
    }
    return NULL;
}

#define ROUNDS 200

// What is done once, although signals arrive while the server does it. Returns how many bytes were
// appended.
static long once(int fd) {
    static char block[BLOCK], found[BLOCK];
    static const char *names[2] = {"/disk/h/a", "/disk/h/b"};
    memset(block, 'x', BLOCK);
    long appended = 0;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(rename(names[i % 2], names[(i + 1) % 2]) == 0);
        CHECK(write(fd, "hit", 3) == 3);
        appended += 3;
        CHECK(fsync(fd) == 0);
        int made = open("/disk/h/made", O_CREAT | O_EXCL | O_RDWR, 0644);
        CHECK(made >= 0 && write(made, "made", 4) == 4 && close(made) == 0);
        CHECK(mkdir("/disk/h/d", 0755) == 0 && rmdir("/disk/h/d") == 0);
        CHECK(link("/disk/h/made", "/disk/h/link") == 0 && unlink("/disk/h/link") == 0);
        CHECK(truncate("/disk/h/made", 100) == 0 && unlink("/disk/h/made") == 0);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -1};
        CHECK(fcntl(fd, F_SETLK, &lock) == 0);
        lock.l_type = F_UNLCK;
        CHECK(fcntl(fd, F_SETLK, &lock) == 0);
        if (i % 40)
            continue;
        // In parts, of which each is a request.
        CHECK(write(fd, block, BLOCK) == BLOCK);
        appended += BLOCK;
        CHECK(pread(fd, found, BLOCK, appended - BLOCK) == BLOCK);
        CHECK(memcmp(found, block, BLOCK) == 0);
    }
    return appended;
}

// A call that waits for the server is not interrupted, and not made again: the server may have done
// already what it is asked for.
static void hammered(int flags) {
    struct sigaction action = {.sa_handler = count_hit, .sa_flags = flags};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(mkdir("/disk/h", 0755) == 0);
    put("/disk/h/a", "a");
    int fd = open("/disk/h/log", O_CREAT | O_APPEND | O_RDWR, 0644);
    CHECK(fd >= 0);
    hits = 0;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    long appended = once(fd);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(hits > 10);
    hits = 0;
    pthread_t self = pthread_self(), other;
    is_hammering = 1;
    CHECK(pthread_create(&other, NULL, hammer, &self) == 0);
    appended += once(fd);
    is_hammering = 0;
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(hits > 10);
    struct stat status;
    CHECK(fstat(fd, &status) == 0);
    if (status.st_size != appended)
        printf("%ld bytes instead of %ld\n", (long)status.st_size, appended);
    CHECK(status.st_size == appended);
    CHECK(close(fd) == 0 && unlink("/disk/h/log") == 0 && unlink("/disk/h/a") == 0);
    CHECK(rmdir("/disk/h") == 0);
}

// A process in such a call is stopped, continues, and is killed.
static void stopped(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        for (;;)
            put("/disk/stopped", "x");
    for (int i = 0; i < 20; i++) {
        CHECK(kill(child, SIGSTOP) == 0);
        CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        CHECK(kill(child, SIGCONT) == 0);
        usleep(1000);
    }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(unlink("/disk/stopped") == 0);
}

static void *spin(void *unused) {
    for (;;)
        ;
    return unused;
}

// Whether the process waits, as /proc says.
static int waits(pid_t process) {
    char path[100], line[100] = "";
    sprintf(path, "/proc/%d/stat", process);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, line, sizeof line - 1) > 0 && close(fd) == 0);
    char *name_end = strchr(line, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

static void end(pid_t process) {
    int status = -1;
    CHECK(kill(process, SIGKILL) == 0 && waitpid(process, &status, 0) == process);
}

// A signal that came while the process was stopped ends it when it continues, not when the server
// has answered, which is as urgent as its caller, and has no turn here.
static void ended_in_a_call(void) {
    int status = -1;
    pid_t child, spinning;
    CHECK(setpriority(PRIO_PROCESS, 0, -10) == 0);
    for (int attempt = 0;; attempt++) {
        child = fork();
        if (child == 0) {
            CHECK(setpriority(PRIO_PROCESS, 0, 10) == 0);
            for (;;)
                put("/disk/ended", "x");
        }
        usleep(50000);
        spinning = fork();
        if (spinning == 0) {
            CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0);
            pthread_t thread;
            for (int i = 0; i < 8; i++)
                CHECK(pthread_create(&thread, NULL, spin, NULL) == 0);
            spin(NULL);
        }
        usleep(100000);
        if (waits(child) || attempt == 100)
            break;
        // It has no turn either, between two calls.
        end(spinning);
        end(child);
    }
    CHECK(kill(child, SIGSTOP) == 0);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(kill(child, SIGTERM) == 0);
    usleep(10000);
    CHECK(waitpid(child, &status, WNOHANG) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    pid_t ended = 0;
    for (int i = 0; i < 500 && ended == 0; i++) {
        usleep(10000);
        ended = waitpid(child, &status, WNOHANG);
    }
    CHECK(ended == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    end(spinning);
    if (ended == 0)
        CHECK(waitpid(child, &status, 0) == child);
    CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0 && unlink("/disk/ended") == 0);
}

// The program at /disk: it was found there, and its name still leads to it.
static int executed(int count) {
    char path[100] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length == 13 && strcmp(path, "/disk/program") == 0);
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0 && read(fd, path, 4) == 4 && memcmp(path, "\x7f""ELF", 4) == 0);
    return faults ? 1 : 40 + count;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "executed") == 0)
        return executed(count);
    programs();
    contents();
    locks();
    lines();
    names();
    shared_position();
    seeks_beside_writes();
    listings_beside_each_other();
    hammered(0);
    hammered(SA_RESTART);
    stopped();
    ended_in_a_call();
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    if (faults)
        return 1;
    printf("served files are in order\n");
    return 0;
}
