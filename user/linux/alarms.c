/* The interval timer of a process: once, repeatedly, replaced, after fork and exec. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "children.h"

static volatile int rung;

static void ring(int signal) {
    rung += signal == SIGALRM;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static struct itimerval in(long microseconds, long interval) {
    return (struct itimerval){{interval / 1000000, interval % 1000000},
                              {microseconds / 1000000, microseconds % 1000000}};
}

static long rest(void) {
    struct itimerval time;
    CHECK(getitimer(ITIMER_REAL, &time) == 0);
    return time.it_value.tv_sec * 1000000 + time.it_value.tv_usec;
}

/* Until the alarm has rung so often, or for ten seconds. */
static void wait_for(int times) {
    double end = now() + 10;
    while (rung < times && now() < end)
        usleep(1000);
    CHECK(rung >= times);
}

static void once(void) {
    struct itimerval time = in(30000, 0), before;
    CHECK(rest() == 0 && alarm(0) == 0);
    double start = now();
    CHECK(setitimer(ITIMER_REAL, &time, &before) == 0 && before.it_value.tv_usec == 0);
    CHECK(rest() <= 30000);
    wait_for(1);
    CHECK(rung == 1 && now() - start >= 0.03 && rest() == 0);

    /* Replaced, and taken back. */
    CHECK(alarm(100) == 0);
    CHECK(alarm(50) == 100);
    time = in(0, 0);
    CHECK(setitimer(ITIMER_REAL, &time, &before) == 0 && before.it_value.tv_sec <= 50);
    CHECK(before.it_value.tv_sec >= 39 && rest() == 0);
    for (int i = 0; i < 10000; i++)
        CHECK(alarm(1000) == (i > 0 ? 1000 : 0) || is_cops() == 0);
    CHECK(alarm(0) > 0 && rung == 1);

    /* It interrupts a call; repeatedly, because the call may begin late. */
    char byte;
    int ends[2];
    CHECK(pipe(ends) == 0);
    time = in(20000, 20000);
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    FAILS(read(ends[0], &byte, 1), EINTR);
    time = in(0, 0);
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    CHECK(rung >= 2 && close(ends[0]) == 0 && close(ends[1]) == 0);

    time = in(1000000, 0);
    FAILS(setitimer(ITIMER_REAL, (struct itimerval *)8, NULL), EFAULT);
    FAILS(getitimer(7, &time), EINVAL);
    time.it_value.tv_usec = 1000000;
    FAILS(setitimer(ITIMER_REAL, &time, NULL), EINVAL);
    time.it_value.tv_usec = -1;
    FAILS(setitimer(ITIMER_REAL, &time, NULL), EINVAL);
    CHECK(rest() == 0);
    /* Without times it is switched off. */
    time = in(1000000, 0);
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    CHECK(syscall(SYS_setitimer, ITIMER_REAL, 0, &time) == 0);
    CHECK(time.it_value.tv_sec > 0 || time.it_value.tv_usec > 0);
    CHECK(rest() == 0);
}

static void repeatedly(void) {
    struct itimerval time = in(5000, 5000);
    rung = 0;
    double start = now();
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    wait_for(10);
    CHECK(now() - start >= 0.04 && rest() > 0);
    /* As often as possible, which is not as often as asked for. (Linux does nothing else then.) */
    time = is_cops() ? in(1, 1) : in(1000, 1000);
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    wait_for(50);
    time = in(0, 0);
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    int last = rung;
    usleep(20000);
    CHECK(rung == last && rest() == 0);
}

static void *set_and_clear(void *nothing) {
    struct itimerval time;
    for (int i = 0; i < 500; i++) {
        time = in(i % 7 * 100, i % 3 * 100);
        CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    }
    return nothing;
}

/* Several threads replace it while it rings. */
static void replaced(void) {
    pthread_t threads[4];
    struct itimerval off = in(0, 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, set_and_clear, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    int last = rung;
    usleep(20000);
    CHECK(rung == last && rest() == 0);
}

static void processes(char *self) {
    /* A copy has none; it ends the process that has no handler. */
    CHECK(alarm(100) == 0);
    struct itimerval time = in(60000, 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(rest() == 0);
        signal(SIGALRM, SIG_DFL);
        setitimer(ITIMER_REAL, &time, NULL);
        for (;;)
            pause();
    }
    CHECK(alarm(0) > 0);
    ended_by(child, SIGALRM);
    /* Another program keeps it. */
    child = fork();
    if (child == 0) {
        char *arguments[] = {self, "again", NULL};
        time = in(300000, 0);
        setitimer(ITIMER_REAL, &time, NULL);
        execv(self, arguments);
        _exit(1);
    }
    ended_by(child, SIGALRM);
    /* Processes that end while it rings. */
    for (int i = 0; i < 30; i++) {
        child = fork();
        if (child == 0) {
            signal(SIGALRM, SIG_IGN);
            time = in(100, 100);
            setitimer(ITIMER_REAL, &time, NULL);
            usleep(i * 200);
            _exit(0);
        }
        ended_with(child, 0);
    }
}

int main(int count, char **arguments) {
    if (count > 1) {
        /* After `exec`: it rings, and there is no handler. */
        for (;;)
            pause();
    }
    struct sigaction action = {.sa_handler = ring};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    once();
    repeatedly();
    replaced();
    processes(arguments[0]);
    printf("alarms are in order\n");
    return 0;
}
