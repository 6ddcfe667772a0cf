/* /proc: formats, links, listings, what belongs to whom, processes that end meanwhile, and hostile
   opens, reads and seeks. Runs on Linux too. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[65536];

/* The whole file, which is read in pieces of `piece` bytes. */
static size_t read_file(const char *path, size_t piece) {
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    size_t length = 0;
    for (;;) {
        CHECK(length + piece < sizeof text);
        ssize_t count = read(file, text + length, piece);
        CHECK(count >= 0);
        if (count == 0) break;
        length += count;
    }
    text[length] = 0;
    CHECK(close(file) == 0);
    return length;
}

static char *path_of(int process, const char *name) {
    static char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", process, name);
    return path;
}

/* The value in the line of `status` or `meminfo` that begins with `name`. */
static long value_of(const char *name) {
    char *line = strstr(text, name);
    CHECK(line != NULL && (line == text || line[-1] == '\n'));
    return atol(line + strlen(name));
}

static void machine(void) {
    double up, idle;
    read_file("/proc/uptime", 4096);
    CHECK(sscanf(text, "%lf %lf\n", &up, &idle) == 2 && up > 0);
    double load[3];
    int running, count, last;
    read_file("/proc/loadavg", 4096);
    CHECK(sscanf(text, "%lf %lf %lf %d/%d %d\n", load, load + 1, load + 2, &running, &count, &last) == 6);
    CHECK(count >= 1 && last >= 1);
    read_file("/proc/meminfo", 4096);
    CHECK(strncmp(text, "MemTotal:", 9) == 0);
    CHECK(value_of("MemFree:") > 0 && value_of("MemFree:") <= value_of("MemTotal:"));
    CHECK(value_of("SwapTotal:") >= 0 && value_of("MemAvailable:") > 0);
    read_file("/proc/stat", 4096);
    unsigned long long times[10];
    CHECK(sscanf(text, "cpu  %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu\n", times, times + 1, times + 2,
                 times + 3, times + 4, times + 5, times + 6, times + 7, times + 8, times + 9) == 10);
    CHECK(strstr(text, "\ncpu0 ") && value_of("btime ") > 0 && value_of("processes ") >= 1);
    read_file("/proc/version", 4096);
    CHECK(strncmp(text, "Linux version ", 14) == 0);
    CHECK(read_file("/proc/sys/kernel/hostname", 4096) > 1 && text[strlen(text) - 1] == '\n');
    struct utsname name;
    CHECK(uname(&name) == 0);
    read_file("/proc/sys/kernel/osrelease", 4096);
    CHECK(strncmp(text, name.release, strlen(name.release)) == 0);
    read_file("/proc/mounts", 4096);
    CHECK(strstr(text, " / ") && strstr(text, "proc /proc proc "));
    read_file("/proc/filesystems", 4096);
    CHECK(strstr(text, "nodev\tproc\n"));
    read_file("/proc/cpuinfo", 4096);
    CHECK(strncmp(text, "processor\t: 0\n", 14) == 0);
    struct statfs usage;
    CHECK(statfs("/proc", &usage) == 0 && usage.f_type == 0x9fa0 && usage.f_blocks == 0);
    struct stat status;
    CHECK(stat("/proc/uptime", &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0);
    CHECK(status.st_nlink == 1 && (status.st_mode & 0777) == 0444);
    CHECK(stat("/proc/.", &status) == 0 && S_ISDIR(status.st_mode) && (status.st_mode & 0777) == 0555);
}

/* The fields of `stat` that the kernel can be asked for in another way. */
static void own(char **arguments) {
    char expected[64];
    int self = getpid();
    snprintf(expected, sizeof expected, "%d", self);
    char link[256] = {0};
    CHECK(readlink("/proc/self", link, sizeof link - 1) == (ssize_t)strlen(expected) && strcmp(link, expected) == 0);
    read_file("/proc/self/stat", 4096);
    int id, parent, group, session, fields = 3;
    char name[32], state;
    CHECK(sscanf(text, "%d (%31[^)]) %c %d %d %d ", &id, name, &state, &parent, &group, &session) == 6);
    CHECK(id == self && strcmp(name, "procfs") == 0 && state == 'R' && parent == getppid());
    CHECK(group == getpgrp() && session == getsid(0));
    long threads = 0, pages = 0;
    for (char *at = strchr(text, ')') + 2; (at = strchr(at, ' ')); at++) {
        fields++;
        if (fields == 20) threads = atol(at);
        if (fields == 24) pages = atol(at);
    }
    CHECK(fields == 52 && threads == 1 && pages > 0);
    read_file("/proc/self/status", 4096);
    CHECK(strncmp(text, "Name:\tprocfs\n", 13) == 0);
    CHECK(value_of("Pid:\t") == self && value_of("PPid:\t") == getppid() && value_of("Threads:\t") == 1);
    CHECK(value_of("VmRSS:\t") > 0 && value_of("VmRSS:\t") <= value_of("VmSize:\t"));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    CHECK(kill(self, SIGUSR1) == 0);
    read_file("/proc/self/status", 4096);
    CHECK(strstr(text, "ShdPnd:\t0000000000000200\n") && strstr(text, "SigBlk:\t0000000000000200\n"));
    CHECK(strstr(text, "SigIgn:\t0000000000000800\n"));
    signal(SIGUSR1, SIG_IGN);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    unsigned long size, present;
    read_file("/proc/self/statm", 4096);
    CHECK(sscanf(text, "%lu %lu", &size, &present) == 2 && present > 0 && present <= size);
    read_file("/proc/self/comm", 4096);
    CHECK(strcmp(text, "procfs\n") == 0);
    /* Arguments, with a zero after each. */
    size_t length = read_file("/proc/self/cmdline", 4096);
    CHECK(length == strlen(arguments[0]) + 1 && strcmp(text, arguments[0]) == 0);
    char byte;
    int file = open("/proc/self/cmdline", O_RDONLY);
    CHECK(pread(file, &byte, 1, 1) == 1 && byte == arguments[0][1]);
    CHECK(pread(file, &byte, 1, length) == 0 && pread(file, &byte, 1, INT64_MAX - 1) == 0);
    CHECK(close(file) == 0);
    /* A text is the same in small pieces, and new after a seek to its beginning. */
    file = open("/proc/self/stat", O_RDONLY);
    char first[1024], again[1024];
    ssize_t whole = read(file, first, sizeof first);
    CHECK(whole > 100 && read(file, again, sizeof again) == 0);
    CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, again, 10) == 10 && memcmp(first, again, 10) == 0);
    for (ssize_t at = 10; at < 60; at++) CHECK(read(file, again, 1) == 1);
    CHECK(lseek(file, INT64_MAX - 1, SEEK_SET) == INT64_MAX - 1 && read(file, again, 1) == 0);
    CHECK(close(file) == 0);
    file = open("/proc/self/comm", O_RDONLY);
    CHECK(read(file, again, 2) == 2 && prctl(PR_SET_NAME, "another-name") == 0);
    CHECK(read(file, again + 2, 100) == 5 && memcmp(again, "procfs\n", 7) == 0);
    CHECK(pread(file, again, 100, 0) == 13 && memcmp(again, "another-name\n", 13) == 0);
    CHECK(close(file) == 0 && prctl(PR_SET_NAME, "procfs") == 0);
}

static void links(void) {
    char link[4096] = {0};
    CHECK(readlink("/proc/self/exe", link, sizeof link - 1) > 5);
    CHECK(link[0] == '/' && strcmp(strrchr(link, '/'), "/procfs") == 0);
    struct stat one, other;
    CHECK(stat(link, &one) == 0 && stat("/proc/self/exe", &other) == 0 && one.st_ino == other.st_ino);
    CHECK(lstat("/proc/self/exe", &one) == 0 && S_ISLNK(one.st_mode));
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(read(file, link, 4) == 4 && memcmp(link, "\177ELF", 4) == 0 && close(file) == 0);
    CHECK(chdir("/tmp") == 0 && (mkdir("proc-test", 0777) == 0 || errno == EEXIST) && chdir("proc-test") == 0);
    memset(link, 0, sizeof link);
    CHECK(readlink("/proc/self/cwd", link, sizeof link - 1) == 14 && strcmp(link, "/tmp/proc-test") == 0);
    file = open("/proc/self/cwd/made", O_CREAT | O_RDWR, 0600);
    CHECK(file >= 0 && write(file, "text", 4) == 4 && stat("/tmp/proc-test/made", &one) == 0 && one.st_size == 4);
    /* A descriptor leads to its file, also when the file has no name any more. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK(unlink("made") == 0);
    int again = open(path, O_RDONLY);
    CHECK(again >= 0 && again != file && read(again, link, 5) == 4 && memcmp(link, "text", 4) == 0);
    CHECK(lstat(path, &one) == 0 && S_ISLNK(one.st_mode) && stat(path, &one) == 0 && S_ISREG(one.st_mode));
    CHECK(close(again) == 0 && close(file) == 0);
    FAILS(open(path, O_RDONLY), ENOENT);
    int ends[2];
    CHECK(pipe(ends) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    /* The number of the file, which is not an address of the kernel. */
    CHECK(fstat(ends[0], &one) == 0 && one.st_ino < 1UL << 32);
    char expected[32];
    int length = snprintf(expected, sizeof expected, "pipe:[%lu]", (unsigned long)one.st_ino);
    CHECK(readlink(path, link, sizeof link) == length && memcmp(link, expected, length) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK(chdir("/proc/self/fd") == 0 && getcwd(link, sizeof link) != NULL);
    snprintf(path, sizeof path, "/proc/%d/fd", getpid());
    CHECK(strcmp(link, path) == 0 && access("../stat", R_OK) == 0 && access("../../uptime", R_OK) == 0);
    CHECK(chdir("/proc/sys/kernel") == 0 && access("ostype", R_OK) == 0 && chdir("../..") == 0);
    CHECK(getcwd(link, sizeof link) != NULL && strcmp(link, "/proc") == 0 && chdir("/tmp") == 0);
    CHECK(rmdir("proc-test") == 0);
}

/* Maps of `count` regions, read in pieces at any offset. */
static void regions(void) {
    char *area = mmap(NULL, 4096 * 2000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    for (int page = 0; page < 2000; page += 2) CHECK(mprotect(area + page * 4096L, 4096, PROT_READ | PROT_WRITE) == 0);
    int file = open("/proc/self/maps", O_RDONLY), lines = 0;
    FILE *maps = fdopen(file, "r");
    char line[512];
    unsigned long before = 0, start, end;
    int here = 0, stack = 0;
    while (fgets(line, sizeof line, maps)) {
        char rights[5];
        CHECK(sscanf(line, "%lx-%lx %4s ", &start, &end, rights) == 3);
        CHECK(before <= start && start < end && strlen(rights) == 4);
        here += start >= (unsigned long)area && end <= (unsigned long)area + 4096 * 2000L && rights[2] == '-';
        stack += strstr(line, "[stack]") && start <= (unsigned long)&line && (unsigned long)&line < end;
        before = end;
        lines++;
    }
    CHECK(here == 2000 || here == 1999);
    CHECK(stack == 1 && lines > 2000);
    CHECK(lseek(fileno(maps), INT64_MAX / 2, SEEK_SET) >= 0 && read(fileno(maps), line, sizeof line) == 0);
    fclose(maps);
    CHECK(munmap(area, 4096 * 2000) == 0);
}

static int listed(const char *path, const char *wanted) {
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    int found = 0;
    struct dirent *entry;
    while ((entry = readdir(directory))) found += strcmp(entry->d_name, wanted) == 0;
    CHECK(closedir(directory) == 0);
    return found;
}

static void others(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        if (is_cops()) {
            /* What is only for a process and its ancestors. */
            int parent = getppid();
            FAILS(open(path_of(parent, "maps"), O_RDONLY), EACCES);
            FAILS(open(path_of(parent, "fd"), O_RDONLY), EACCES);
            FAILS(open(path_of(parent, "environ"), O_RDONLY), EACCES);
            FAILS(open(path_of(parent, "fd/0"), O_RDONLY), EACCES);
            FAILS(readlink(path_of(parent, "exe"), text, 10), EACCES);
            FAILS(chdir(path_of(parent, "cwd")), EACCES);
        }
        CHECK(read_file(path_of(getppid(), "stat"), 4096) > 0);
        CHECK(read_file(path_of(getppid(), "cmdline"), 4096) > 0);
        read(ends[0], &byte, 1);
        _exit(0);
    }
    close(ends[0]);
    char name[16];
    snprintf(name, sizeof name, "%d", child);
    CHECK(listed("/proc", name) == 1 && listed("/proc", "self") == 1 && listed("/proc", "uptime") == 1);
    CHECK(listed(path_of(child, ""), "stat") == 1 && listed(path_of(child, "fd"), "0") == 1);
    CHECK(read_file(path_of(child, "maps"), 4096) > 0);
    int file = open(path_of(child, "stat"), O_RDONLY), unread = open(path_of(child, "status"), O_RDONLY);
    int directory = open(path_of(child, "."), O_RDONLY | O_DIRECTORY);
    CHECK(file >= 0 && unread >= 0 && directory >= 0 && read(file, text, 5) == 5);
    close(ends[1]);
    /* It has ended, and is not waited for. */
    siginfo_t information;
    CHECK(waitid(P_PID, child, &information, WEXITED | WNOWAIT) == 0);
    read_file(path_of(child, "stat"), 4096);
    CHECK(strstr(text, ") Z "));
    CHECK(read_file(path_of(child, "cmdline"), 4096) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    FAILS(read(unread, text, 5), ESRCH);
    CHECK(openat(directory, "stat", O_RDONLY) == -1 && (errno == ENOENT || (!is_cops() && errno == ESRCH)));
    FAILS(open(path_of(child, "stat"), O_RDONLY), ENOENT);
    CHECK(listed("/proc", name) == 0);
    CHECK(close(file) == 0 && close(unread) == 0 && close(directory) == 0);
}

static void refused(void) {
    FAILS(open("/proc/0", O_RDONLY), ENOENT);
    FAILS(open("/proc/01", O_RDONLY), ENOENT);
    FAILS(open("/proc/4294967297", O_RDONLY), ENOENT);
    FAILS(open("/proc/-1", O_RDONLY), ENOENT);
    FAILS(open("/proc/99999999999999999999", O_RDONLY), ENOENT);
    FAILS(open("/proc/self/fd/99999999999999999999", O_RDONLY), ENOENT);
    FAILS(open("/proc/self/fd/00", O_RDONLY), ENOENT);
    FAILS(open("/proc/uptime/x", O_RDONLY), ENOTDIR);
    FAILS(open("/proc/new", O_CREAT | O_RDWR, 0600), ENOENT);
    FAILS(mkdir("/proc/new", 0700), ENOENT);
    FAILS(mkdir("/proc/self", 0700), EEXIST);
    FAILS(unlink("/proc/uptime"), EPERM);
    FAILS(rename("/proc/uptime", "/proc/version"), EPERM);
    FAILS(readlink("/proc/uptime", text, 10), EINVAL);
    FAILS(read(open("/proc", O_RDONLY), text, 10), EISDIR);
    FAILS(open("/proc/self/exe", O_RDONLY | O_NOFOLLOW), ELOOP);
    int file = open("/proc/uptime", O_RDONLY);
    FAILS(write(file, "x", 1), EBADF);
    FAILS(lseek(file, -1, SEEK_SET), EINVAL);
    void *volatile nowhere = (void *)8;
    FAILS(read(file, nowhere, 100), EFAULT);
    CHECK(close(file) == 0);
    if (is_cops()) FAILS(open("/proc/uptime", O_WRONLY), EACCES);
}

/* Opens until there are no more descriptors, and reads each; then nothing is left. */
static void crowd(void) {
    static int files[30000];
    int count = 0;
    const char *names[] = {"/proc/self/status", "/proc/self/fd", "/proc/meminfo", "/proc/self/maps"};
    while (count < 30000) {
        int file = open(names[count % 4], O_RDONLY);
        if (file < 0) break;
        files[count++] = file;
        if (count % 2) CHECK(read(file, text, 100) == 100);
    }
    CHECK(count >= 250);
    CHECK(count == 30000 || errno == EMFILE || errno == ENFILE || errno == ENOMEM);
    /* All are still good. */
    for (int at = 0; at < count; at += 97) CHECK(lseek(files[at], 0, SEEK_SET) == 0);
    while (count) CHECK(close(files[--count]) == 0);
    int file = open("/proc/self/status", O_RDONLY);
    CHECK(file >= 0 && read(file, text, 100) == 100 && close(file) == 0);
}

/* Reads and lists while processes begin and end. */
static void churn(void) {
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int depth = 0; depth < 3 && fork() == 0; depth++);
            _exit(0);
        }
        DIR *directory = opendir("/proc");
        struct dirent *entry;
        while ((entry = readdir(directory))) {
            int id = atoi(entry->d_name);
            if (id == 0) continue;
            for (int which = 0; which < 5; which++) {
                const char *names[] = {"stat", "status", "cmdline", "maps", "fd/1"};
                int file = open(path_of(id, names[which]), O_RDONLY);
                if (file < 0) {
                    CHECK(errno == ENOENT || errno == EACCES || errno == ESRCH || errno == ENXIO || errno == EPERM);
                    continue;
                }
                if (which < 4) {
                    ssize_t got = read(file, text, 4096);
                    CHECK(got >= 0 || errno == ESRCH);
                }
                CHECK(close(file) == 0);
            }
        }
        CHECK(closedir(directory) == 0 && waitpid(child, NULL, 0) == child);
    }
}

static void do_nothing(int signal) { (void)signal; }

/* So many that the kernel only looks at them in the first portion of the call. */
#define PIECES 70

/* Reads its own status. All of it fits into the first buffer. */
static void *read_status(void *is_over) {
    static char piece[4096], rest[PIECES];
    struct iovec buffers[PIECES] = {{.iov_base = piece, .iov_len = sizeof piece}};
    for (int at = 1; at < PIECES; at++)
        buffers[at] = (struct iovec){.iov_base = &rest[at], .iov_len = 1};
    int file = open("/proc/self/status", O_RDONLY);
    CHECK(file >= 0);
    for (int round = 0; round < 3000; round++)
        CHECK(preadv(file, buffers, PIECES, 0) > 64 && memcmp(piece, "Name:", 5) == 0);
    CHECK(close(file) == 0);
    __atomic_store_n((int *)is_over, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Signals for a thread that reads which signals wait for its process: the kernel looks at the
   thread's call on behalf of the one, and at the signals on behalf of the other. */
static void signals_beside_status(void) {
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread;
    int is_over = 0;
    CHECK(pthread_create(&thread, NULL, read_status, &is_over) == 0);
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    for (unsigned round = 0; !__atomic_load_n(&is_over, __ATOMIC_SEQ_CST); round++) {
        /* At a moment that the other one does not know. */
        for (volatile unsigned turn = round * 7919 % 4001; turn > 0; turn--);
        CHECK(kill(getpid(), SIGUSR1) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 1);
    machine();
    own(arguments);
    links();
    regions();
    others();
    refused();
    crowd();
    churn();
    signals_beside_status();
    puts("/proc is in order");
    return 0;
}
