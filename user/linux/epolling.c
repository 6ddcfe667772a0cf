/* epoll: entries, level and edge, one-shot, several instances and threads. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int control(int instance, int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(instance, operation, fd, &event);
}

/* The call itself: the compiler knows what the C library's function must not get. */
static long wait_raw(int instance, void *events, int count) {
    return syscall(SYS_epoll_pwait, instance, events, count, 0, 0L, 8L);
}

/* The events of a wait that does not wait, or -1 for none; only one is expected. */
static int64_t ready_data;
static int ready(int instance) {
    struct epoll_event events[4];
    int count = epoll_wait(instance, events, 4, 0);
    CHECK(count == 0 || count == 1);
    ready_data = count ? (int64_t)events[0].data.u64 : -1;
    return count ? (int)events[0].events : -1;
}

static void errors(void) {
    int instance = epoll_create1(EPOLL_CLOEXEC), ends[2], file = open("/tmp/epoll", O_RDWR | O_CREAT, 0600);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(instance >= 0 && file >= 0 && pipe(ends) == 0);
    CHECK(fcntl(instance, F_GETFD) == FD_CLOEXEC);
    FAILS(epoll_create1(1), EINVAL);
    FAILS(epoll_ctl(99, EPOLL_CTL_ADD, ends[0], &event), EBADF);
    FAILS(epoll_ctl(instance, EPOLL_CTL_ADD, 99, &event), EBADF);
    FAILS(epoll_ctl(instance, EPOLL_CTL_ADD, instance, &event), EINVAL);
    FAILS(epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event), EINVAL);
    FAILS(epoll_ctl(instance, EPOLL_CTL_ADD, file, &event), EPERM);
    FAILS(epoll_ctl(instance, 4, ends[0], &event), EINVAL);
    FAILS(epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], (void *)8), EFAULT);
    FAILS(epoll_ctl(instance, EPOLL_CTL_MOD, ends[0], &event), ENOENT);
    FAILS(epoll_ctl(instance, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &event) == 0);
    FAILS(epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &event), EEXIST);
    FAILS(epoll_wait(99, &event, 1, 0), EBADF);
    FAILS(epoll_wait(ends[0], &event, 1, 0), EINVAL);
    FAILS(wait_raw(instance, &event, 0), EINVAL);
    FAILS(wait_raw(instance, &event, -1), EINVAL);
    CHECK(write(ends[1], "x", 1) == 1);
    FAILS(wait_raw(instance, (void *)8, 1), EFAULT);
    CHECK(ready(instance) == EPOLLIN);
    char byte;
    FAILS(read(instance, &byte, 1), EINVAL);
    CHECK(epoll_ctl(instance, EPOLL_CTL_DEL, ends[0], NULL) == 0 && ready(instance) == -1);
    CHECK(close(instance) == 0 && close(file) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void levels_and_edges(void) {
    int instance = epoll_create1(0), ends[2];
    char bytes[8];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    CHECK(control(instance, EPOLL_CTL_ADD, ends[0], EPOLLIN, 11) == 0 && ready(instance) == -1);
    CHECK(write(ends[1], "ab", 2) == 2);
    for (int i = 0; i < 3; i++)
        CHECK(ready(instance) == EPOLLIN && ready_data == 11);
    CHECK(read(ends[0], bytes, 8) == 2 && ready(instance) == -1);
    /* By edge: once for each write, also if nothing was read. */
    CHECK(write(ends[1], "c", 1) == 1);
    CHECK(control(instance, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 12) == 0);
    CHECK(ready(instance) == EPOLLIN && ready_data == 12 && ready(instance) == -1);
    CHECK(write(ends[1], "d", 1) == 1 && ready(instance) == EPOLLIN && ready(instance) == -1);
    CHECK(read(ends[0], bytes, 1) == 1 && ready(instance) == -1);
    /* One shot: once, until it is modified. */
    CHECK(control(instance, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 13) == 0);
    CHECK(ready(instance) == EPOLLIN && ready_data == 13 && ready(instance) == -1);
    CHECK(write(ends[1], "e", 1) == 1 && ready(instance) == -1);
    CHECK(control(instance, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 14) == 0);
    CHECK(ready(instance) == EPOLLIN && ready_data == 14);
    /* The end is reported without being asked for. */
    CHECK(control(instance, EPOLL_CTL_MOD, ends[0], 0, 15) == 0 && ready(instance) == -1);
    CHECK(close(ends[1]) == 0 && ready(instance) == EPOLLHUP && ready_data == 15);
    CHECK(close(ends[0]) == 0 && ready(instance) == -1);
    /* Both directions of a counter, by edge. */
    uint64_t value = 1;
    int counter = eventfd(0, EFD_NONBLOCK);
    CHECK(control(instance, EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLOUT | EPOLLET, 16) == 0);
    CHECK(ready(instance) == EPOLLOUT && ready(instance) == -1);
    CHECK(write(counter, &value, 8) == 8 && ready(instance) == (EPOLLIN | EPOLLOUT));
    CHECK(read(counter, &value, 8) == 8 && ready(instance) == EPOLLOUT && ready(instance) == -1);
    CHECK(close(counter) == 0 && close(instance) == 0);
}

/* An entry belongs to its descriptor and its file. */
static void closing(void) {
    int instance = epoll_create1(0), ends[2];
    CHECK(pipe(ends) == 0 && control(instance, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1) == 0);
    CHECK(write(ends[1], "x", 1) == 1 && ready(instance) == EPOLLIN);
    /* A duplicate keeps the file open, and the entry. */
    int copy = dup(ends[0]);
    CHECK(close(ends[0]) == 0 && ready(instance) == EPOLLIN);
    FAILS(control(instance, EPOLL_CTL_DEL, ends[0], 0, 0), EBADF);
    FAILS(control(instance, EPOLL_CTL_DEL, copy, 0, 0), ENOENT);
    CHECK(close(copy) == 0 && ready(instance) == -1 && close(ends[1]) == 0);
    /* The same number for another file is another entry. */
    int counter = eventfd(1, 0);
    CHECK(counter == ends[0] && control(instance, EPOLL_CTL_ADD, counter, EPOLLIN, 2) == 0);
    CHECK(ready(instance) == EPOLLIN && ready_data == 2);
    /* Two entries for one file. */
    copy = dup(counter);
    CHECK(control(instance, EPOLL_CTL_ADD, copy, EPOLLIN, 3) == 0);
    struct epoll_event events[4];
    CHECK(epoll_wait(instance, events, 4, -1) == 2);
    CHECK(events[0].data.u64 + events[1].data.u64 == 5);
    CHECK(close(counter) == 0 && close(copy) == 0 && ready(instance) == -1);
    CHECK(close(instance) == 0);
}

enum { PIPES = 6, ROUNDS = 5000 };

static void *write_often(void *argument) {
    int (*ends)[2] = argument;
    for (int i = 0; i < PIPES * ROUNDS; i++)
        CHECK(write(ends[i / 2 % PIPES][1], "x", 1) == 1);
    for (int i = 0; i < PIPES; i++)
        CHECK(close(ends[i][1]) == 0);
    return NULL;
}

/* An event while events are reported is for the next call: a call reports a file once. */
static void once_in_a_report(void) {
    int instance = epoll_create1(0), ends[PIPES][2], got = 0, open = PIPES, ended[PIPES] = {0};
    struct epoll_event events[2 * PIPES];
    pthread_t writer;
    for (int i = 0; i < PIPES; i++) {
        CHECK(pipe2(ends[i], O_NONBLOCK) == 0 && fcntl(ends[i][1], F_SETFL, 0) == 0);
        CHECK(control(instance, EPOLL_CTL_ADD, ends[i][0], EPOLLIN | EPOLLET, i) == 0);
    }
    CHECK(pthread_create(&writer, NULL, write_often, ends) == 0);
    while (open > 0) {
        /* Meanwhile there are events of several files, so that the call has much to report. */
        for (volatile int i = 0; i < 10000; i++)
            continue;
        int count = epoll_wait(instance, events, 2 * PIPES, 10000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            char bytes[64];
            int fd = ends[events[i].data.u64][0], part;
            for (int other = 0; other < i; other++)
                CHECK(events[other].data.u64 != events[i].data.u64);
            while ((part = read(fd, bytes, sizeof bytes)) > 0)
                got += part;
            CHECK(part == 0 || errno == EAGAIN);
            if (part == 0 && !ended[events[i].data.u64]++)
                open--;
        }
    }
    CHECK(got == PIPES * ROUNDS);
    for (int i = 0; i < PIPES; i++)
        CHECK(close(ends[i][0]) == 0);
    CHECK(pthread_join(writer, NULL) == 0 && close(instance) == 0);
}

static void several_instances(void) {
    int counter = eventfd(0, 0), one = epoll_create1(0), two = epoll_create1(0);
    uint64_t value = 1;
    CHECK(control(one, EPOLL_CTL_ADD, counter, EPOLLIN, 1) == 0);
    CHECK(control(two, EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLET, 2) == 0);
    struct pollfd both[2] = {{one, POLLIN, 0}, {two, POLLIN, 0}};
    CHECK(poll(both, 2, 10) == 0);
    CHECK(write(counter, &value, 8) == 8);
    CHECK(poll(both, 2, -1) == 2 && both[0].revents == POLLIN && both[1].revents == POLLIN);
    CHECK(ready(one) == EPOLLIN && ready(two) == EPOLLIN && ready(two) == -1);
    CHECK(poll(both, 2, -1) == 1 && both[0].revents == POLLIN && both[1].revents == 0);
    CHECK(read(counter, &value, 8) == 8 && poll(both, 2, 0) == 0);
    if (is_cops())
        FAILS(control(one, EPOLL_CTL_ADD, two, EPOLLIN, 3), ELOOP);
    CHECK(close(one) == 0 && close(two) == 0 && close(counter) == 0);
}

/* Entries that have been reported and are not ready any more: a poll of their instance waits for
   their next events. More of them, and of instances, than the kernel looks at in one step. */
enum { INSTANCES = 20, STALE = 9 };
static int stale[INSTANCES][STALE];
static void *write_stale(void *argument) {
    uint64_t value = 1;
    usleep(20000);
    CHECK(write(*(int *)argument, &value, 8) == 8);
    return NULL;
}

static int64_t milliseconds(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void polls_of_stale(int instances, int entries, int which) {
    struct pollfd all[INSTANCES];
    struct epoll_event events[STALE];
    uint64_t value = 1;
    pthread_t thread;
    for (int i = 0; i < instances; i++) {
        all[i] = (struct pollfd){epoll_create1(0), POLLIN, 0};
        for (int j = 0; j < entries; j++) {
            stale[i][j] = eventfd(0, 0);
            CHECK(control(all[i].fd, EPOLL_CTL_ADD, stale[i][j], EPOLLIN, j) == 0);
            CHECK(write(stale[i][j], &value, 8) == 8);
        }
        CHECK(epoll_wait(all[i].fd, events, STALE, -1) == entries);
        for (int j = 0; j < entries; j++) {
            /* The second event uses up the watch that the report has armed. */
            CHECK(write(stale[i][j], &value, 8) == 8);
            CHECK(read(stale[i][j], &value, 8) == 8 && value == 2);
            value = 1;
        }
    }
    /* One that does not ask for it sleeps. */
    struct pollfd other = {all[0].fd, POLLOUT, 0};
    CHECK(poll(&other, 1, 1) == 0 && poll(all, instances, which % 2) == 0);
    CHECK(pthread_create(&thread, NULL, write_stale, &stale[which][entries - 1]) == 0);
    int64_t begin = milliseconds();
    CHECK(poll(all, instances, 10000) == 1 && milliseconds() - begin < 10000);
    for (int i = 0; i < instances; i++)
        CHECK(all[i].revents == (i == which ? POLLIN : 0));
    CHECK(ready(all[which].fd) == EPOLLIN && ready_data == entries - 1);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < instances; i++) {
        for (int j = 0; j < entries; j++)
            CHECK(close(stale[i][j]) == 0);
        CHECK(close(all[i].fd) == 0);
    }
}

static void stale_entries(void) {
    polls_of_stale(1, 1, 0);
    polls_of_stale(1, STALE, 0);
    for (int which = 0; which < INSTANCES; which++)
        polls_of_stale(INSTANCES, 8, which);
}

/* Entries by level take turns: all are reported, however few a call returns. */
enum { MANY = 50 };
static void turns(void) {
    int instance = epoll_create1(0), counter[MANY], seen[MANY] = {0};
    struct epoll_event events[8];
    for (int i = 0; i < MANY; i++) {
        counter[i] = eventfd(1, 0);
        CHECK(control(instance, EPOLL_CTL_ADD, counter[i], EPOLLIN, i) == 0);
    }
    for (int calls = 0; calls < 2 * MANY; calls++) {
        int count = epoll_wait(instance, events, 8, -1);
        CHECK(count > 0 && count <= 8);
        for (int i = 0; i < count; i++)
            seen[events[i].data.u64]++;
    }
    for (int i = 0; i < MANY; i++) {
        CHECK(seen[i] > 10);
        CHECK(close(counter[i]) == 0);
    }
    CHECK(epoll_wait(instance, events, 8, 0) == 0 && close(instance) == 0);
}

/* Threads that wait for one instance share its events: each is taken once. */
enum { THREADS = 4, TOKENS = 2000 };
static int shared, pipes[8][2], taken[THREADS];
static void *take(void *argument) {
    for (;;) {
        struct epoll_event event;
        CHECK(epoll_wait(shared, &event, 1, -1) == 1);
        char byte;
        int fd = pipes[event.data.u64][0];
        while (read(fd, &byte, 1) == 1) {
            if (byte == 'e')
                return NULL;
            taken[(long)argument]++;
        }
        CHECK(errno == EAGAIN);
        CHECK(control(shared, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, event.data.u64) == 0);
    }
}

static void threads(void) {
    pthread_t thread[THREADS];
    shared = epoll_create1(0);
    for (int i = 0; i < 8; i++) {
        CHECK(pipe2(pipes[i], O_NONBLOCK) == 0);
        CHECK(control(shared, EPOLL_CTL_ADD, pipes[i][0], EPOLLIN | EPOLLONESHOT, i) == 0);
    }
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, take, (void *)i) == 0);
    for (int i = 0; i < TOKENS; i++) {
        CHECK(write(pipes[i % 8][1], "t", 1) == 1);
        if (i % 100 == 0)
            usleep(1000);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(write(pipes[i][1], "e", 1) == 1);
    int sum = 0;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
        sum += taken[i];
    }
    /* What is in pipes that nobody looks at any more. */
    char byte;
    for (int i = 0; i < 8; i++)
        while (read(pipes[i][0], &byte, 1) == 1)
            sum += byte == 't';
    CHECK(sum == TOKENS);
    CHECK(close(shared) == 0);
}

/* A wait that a signal, a time-out, or an event ends. */
static volatile int handled;
static void handle(int signal) { handled = signal; }
static int late;
static void *write_late(void *argument) {
    uint64_t value = 1;
    usleep(20000);
    if (argument)
        CHECK(kill(getpid(), SIGUSR1) == 0);
    else
        CHECK(write(late, &value, 8) == 8);
    return NULL;
}

static void waits(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct epoll_event event;
    sigset_t none, blocked;
    pthread_t thread;
    int instance = epoll_create1(0);
    late = eventfd(0, 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(epoll_wait(instance, &event, 1, 20) == 0);
    CHECK(control(instance, EPOLL_CTL_ADD, late, EPOLLIN | EPOLLET, 7) == 0);
    CHECK(pthread_create(&thread, NULL, write_late, NULL) == 0);
    CHECK(epoll_wait(instance, &event, 1, -1) == 1 && event.data.u64 == 7);
    CHECK(pthread_join(thread, NULL) == 0);
    sigemptyset(&none), sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
    CHECK(pthread_create(&thread, NULL, write_late, "signal") == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    /* The other thread takes it, unless it blocks it too. */
    CHECK(pthread_join(thread, NULL) == 0);
    handled = 0;
    CHECK(raise(SIGUSR1) == 0 && handled == 0);
    CHECK(epoll_wait(instance, &event, 1, 20) == 0 && handled == 0);
    FAILS(epoll_pwait(instance, &event, 1, -1, &none), EINTR);
    CHECK(handled == SIGUSR1 && close(instance) == 0 && close(late) == 0);
}

/* An instance outlives fork, and is waited for in a process that ends. */
static void processes(void) {
    int instance = epoll_create1(0), counter = eventfd(0, 0), status;
    struct epoll_event event;
    uint64_t value = 1;
    CHECK(control(instance, EPOLL_CTL_ADD, counter, EPOLLIN, 5) == 0);
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(epoll_wait(instance, &event, 1, -1) == 1 ? (int)event.data.u64 : 99);
        usleep(10000);
        if (i % 2 == 0) {
            CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
            CHECK(status == SIGKILL);
        } else {
            CHECK(write(counter, &value, 8) == 8);
            CHECK(waitpid(child, &status, 0) == child && status == 5 << 8);
            CHECK(ready(instance) == EPOLLIN && read(counter, &value, 8) == 8);
        }
    }
    CHECK(close(counter) == 0 && close(instance) == 0);
}

int main(void) {
    errors();
    levels_and_edges();
    closing();
    once_in_a_report();
    several_instances();
    stale_entries();
    turns();
    threads();
    waits();
    processes();
    puts("epoll is in order");
}
