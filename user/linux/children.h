/* How children begin, end and stop; what is wrong is printed with the status. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

__attribute__((unused)) static void ended_by(pid_t child, int signal) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != signal)
        printf("status %x\n", status);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
}

__attribute__((unused)) static void ended_with(pid_t child, int code) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        printf("status %x\n", status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

/* A child that ends with 0 after `body`. */
__attribute__((unused)) static pid_t fork_child(void (*body)(void)) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    return child;
}

__attribute__((unused)) static void kill_child(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0);
    ended_by(child, SIGKILL);
}

__attribute__((unused)) static void stopped_by(pid_t child, int signal) {
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    if (!WIFSTOPPED(status))
        printf("status %x\n", status);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == signal);
}

/* Returns when `child` sleeps in a system call; it must be one that another process ends. */
__attribute__((unused)) static void until_asleep(pid_t child) {
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    for (int looks = 0, asleep = 0; asleep < 2; looks++) {
        int file = open(path, O_RDONLY);
        ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text - 1);
        CHECK(bytes > 0 && close(file) == 0 && looks < 10000);
        text[bytes] = 0;
        /* Twice in a row: a call that has been ended may look asleep for a moment. */
        char *name_end = strrchr(text, ')');
        asleep = name_end != NULL && name_end[2] == 'S' ? asleep + 1 : 0;
        usleep(1000);
    }
}
