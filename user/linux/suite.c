/* Runs each program of a folder, one after the other, in the order of their names: a line
   `suite: name=... result=...` for each. Process 1 of Linux mounts what programs expect, and powers
   the machine off at the end.

     suite [FOLDER [SECONDS]]

   FOLDER is /tests and SECONDS is 30 unless it is said, as process 1 has no arguments. A program runs in an empty folder, without input. What it prints is shown if it fails. One that
   takes more than SECONDS is killed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int is_program(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static double now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void begin_linux(void) {
    CHECK(mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) == 0);
    CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
    CHECK(mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0);
    CHECK(mkdir("/dev/shm", 0777) == 0 && mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0);
}

/* A process of its own group, so that what it has started ends with it. */
static pid_t start(const char *path, int output) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setpgid(0, 0);
        int input = open("/dev/null", O_RDONLY);
        if (input < 0 || dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
            _exit(126);
        closefrom(3);
        execl(path, path, NULL);
        _exit(127);
    }
    return child;
}

static void run(const char *folder, const char *name, double seconds) {
    char path[4096], output[16384];
    size_t length = 0;
    int ends[2], status, is_late = 0;
    CHECK(mkdir("/tmp/suite", 0777) == 0 && chdir("/tmp/suite") == 0);
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    double end = now() + seconds;
    pid_t child = start(path, ends[1]);
    CHECK(close(ends[1]) == 0);
    pid_t ended = 0;
    while (ended == 0) {
        struct pollfd more = {ends[0], POLLIN, 0};
        poll(&more, 1, 20);
        char rest[1024];
        ssize_t count = read(ends[0], rest, sizeof rest);
        if (count > 0 && length + count < sizeof output) {
            memcpy(output + length, rest, count);
            length += count;
        }
        if (count == 0)
            usleep(5000);
        ended = waitpid(child, &status, WNOHANG);
        if (ended == 0 && !is_late && now() > end) {
            is_late = 1;
            CHECK(kill(child, SIGKILL) == 0);
        }
    }
    CHECK(ended == child);
    kill(-child, SIGKILL);
    ssize_t count = read(ends[0], output + length, sizeof output - 1 - length);
    output[length + (count > 0 ? count : 0)] = 0;
    CHECK(close(ends[0]) == 0);
    int passes = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!passes)
        printf("%s\n", output);
    printf("suite: name=%s result=", name);
    if (passes)
        printf("passes\n");
    else if (is_late)
        printf("late\n");
    else if (WIFEXITED(status))
        printf("code-%d\n", WEXITSTATUS(status));
    else
        printf("signal-%d\n", WTERMSIG(status));
    fflush(stdout);
    /* What it has left there does not matter to the next one. */
    char remains[64];
    snprintf(remains, sizeof remains, "/tmp/suite-%d", child);
    CHECK(chdir("/") == 0 && rename("/tmp/suite", remains) == 0);
}

int main(int count, char **arguments) {
    int is_first = getpid() == 1 && !is_cops();
    const char *folder = count > 1 ? arguments[1] : "/tests";
    double seconds = count > 2 ? atof(arguments[2]) : 30;
    struct dirent **found;
    if (is_first)
        begin_linux();
    int programs = scandir(folder, &found, is_program, alphasort);
    CHECK(programs > 0);
    for (int i = 0; i < programs; i++)
        run(folder, found[i]->d_name, seconds);
    puts("all rows");
    fflush(stdout);
    if (is_first)
        reboot(RB_POWER_OFF);
    return 0;
}
