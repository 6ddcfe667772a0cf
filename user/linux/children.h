/* How children end and stop; what is wrong is printed with the status. */
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

__attribute__((unused)) static void stopped_by(pid_t child, int signal) {
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    if (!WIFSTOPPED(status))
        printf("status %x\n", status);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == signal);
}
