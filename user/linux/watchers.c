/* Many watches: 30,000 entries and descriptors, thousands of watchers of one file, descriptors that
 * are closed and processes that are ended while they are waited for. All memory comes back. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int64_t free_bytes(void) {
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0);
    return (int64_t)info.freeram * info.mem_unit;
}

/* What is large is freed some time after it is closed. Caches of the kernel may keep a little. */
static void all_comes_back(int64_t before) {
    const int64_t caches = 512 * 1024;
    for (int i = 0; is_cops() && free_bytes() < before - caches; i++) {
        if (i == 3000)
            printf("%ld KiB are missing\n", (long)(before - free_bytes()) / 1024);
        CHECK(i < 3000);
        usleep(10000);
    }
}

static int add(int instance, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event);
}

enum { ENTRIES = 30000 };
static int counter[ENTRIES];
static unsigned char seen[ENTRIES];
static struct pollfd polled[ENTRIES];

static void add_one(int fd) {
    uint64_t value = 1;
    CHECK(write(fd, &value, 8) == 8);
}

static int many;
static void many_entries(void) {
    struct epoll_event events[64];
    int instance = epoll_create1(0), found = 0;
    many = 0;
    /* As many as the system lets it have: Linux may have a lower limit. */
    while (many < ENTRIES && (counter[many] = eventfd(0, EFD_NONBLOCK)) >= 0)
        many++;
    CHECK(many == ENTRIES || !is_cops());
    for (int i = 0; i < many; i++) {
        CHECK(add(instance, counter[i], EPOLLIN | EPOLLET, i) == 0);
        polled[i] = (struct pollfd){counter[i], POLLIN, 9};
    }
    CHECK(epoll_wait(instance, events, 64, 0) == 0);
    CHECK(poll(polled, many, 1) == 0 && polled[many - 1].revents == 0);
    add_one(counter[many - 1]);
    CHECK(epoll_wait(instance, events, 64, -1) == 1 && (int)events[0].data.u64 == many - 1);
    CHECK(poll(polled, many, -1) == 1 && polled[many - 1].revents == POLLIN);
    for (int i = 0; i < many; i++)
        add_one(counter[i]);
    CHECK(poll(polled, many, -1) == many);
    while (found < many) {
        int count = epoll_wait(instance, events, 64, -1);
        CHECK(count > 0);
        for (int i = 0; i < count; i++)
            CHECK(seen[events[i].data.u64]++ == 0);
        found += count;
    }
    CHECK(epoll_wait(instance, events, 64, 0) == 0);
    /* Half of them are closed; the instance takes what is left of all. */
    for (int i = 0; i < many; i += 2)
        CHECK(close(counter[i]) == 0);
    CHECK(epoll_wait(instance, events, 64, 0) == 0);
    CHECK(close(instance) == 0);
    for (int i = 1; i < many; i += 2)
        CHECK(close(counter[i]) == 0);
}

/* Instances and threads that watch one counter. */
enum { INSTANCES = 3000, THREADS = 200 };
static int one, instance_of[INSTANCES], woken;
static void *wait_for_one(void *argument) {
    struct pollfd all[2] = {{-1, POLLIN, 0}, {one, POLLIN, 0}};
    CHECK(argument == NULL && poll(all, 2, -1) == 1 && all[1].revents == POLLIN);
    __atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void many_watchers(void) {
    pthread_t thread[THREADS];
    struct epoll_event event;
    pthread_attr_t small;
    int instances = is_cops() ? INSTANCES : 300;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
    one = eventfd(0, 0);
    for (int i = 0; i < instances; i++) {
        CHECK((instance_of[i] = epoll_create1(0)) >= 0);
        CHECK(add(instance_of[i], one, EPOLLIN, i) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], &small, wait_for_one, NULL) == 0);
    usleep(50000);
    CHECK(woken == 0);
    /* Each write is an event for all: they are told once, and again when they have looked. */
    for (int i = 0; i < 100; i++)
        add_one(one);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(woken == THREADS);
    for (int i = 0; i < instances; i++) {
        CHECK(epoll_wait(instance_of[i], &event, 1, -1) == 1 && (int)event.data.u64 == i);
        if (i % 2)
            CHECK(close(instance_of[i]) == 0);
    }
    CHECK(close(one) == 0);
    for (int i = 0; i < instances; i += 2) {
        CHECK(epoll_wait(instance_of[i], &event, 1, 0) == 0);
        CHECK(close(instance_of[i]) == 0);
    }
}

/* Files that other threads close while they are waited for. */
static void *close_soon(void *argument) {
    usleep(20000);
    CHECK(close((int)(long)argument) == 0);
    return NULL;
}

static void closed_meanwhile(void) {
    pthread_t thread;
    struct epoll_event event;
    int ends[2], instance = epoll_create1(0);
    CHECK(pipe(ends) == 0);
    struct pollfd all = {ends[0], POLLIN, 0};
    CHECK(pthread_create(&thread, NULL, close_soon, (void *)(long)ends[0]) == 0);
    int count = poll(&all, 1, 300);
    CHECK(!is_cops() || (count == 1 && all.revents == POLLNVAL));
    CHECK(pthread_join(thread, NULL) == 0 && close(ends[1]) == 0);
    CHECK(pipe(ends) == 0 && add(instance, ends[0], EPOLLIN, 1) == 0);
    CHECK(pthread_create(&thread, NULL, close_soon, (void *)(long)ends[0]) == 0);
    CHECK(epoll_wait(instance, &event, 1, 50) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && close(ends[1]) == 0);
    /* The instance itself. */
    CHECK(pthread_create(&thread, NULL, close_soon, (void *)(long)instance) == 0);
    CHECK(epoll_wait(instance, &event, 1, 50) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    FAILS(epoll_wait(instance, &event, 1, 0), EBADF);
}

/* Entries that threads add, change, delete and harvest at the same time. */
enum { ROUNDS = 2000, RACERS = 4 };
static int arena, track[8];
static void *race(void *argument) {
    struct epoll_event events[8];
    uint64_t value = 1;
    unsigned random = (unsigned)(long)argument * 7919 + 1;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1103515245 + 12345;
        int fd = track[random >> 16 & 7];
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | (random & EPOLLET), .data.u64 = 5};
        switch (random >> 20 & 7) {
        case 0: case 1:
            CHECK(epoll_ctl(arena, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST);
            break;
        case 2: case 3:
            CHECK(epoll_ctl(arena, EPOLL_CTL_DEL, fd, &event) == 0 || errno == ENOENT);
            break;
        case 4:
            CHECK(epoll_ctl(arena, EPOLL_CTL_MOD, fd, &event) == 0 || errno == ENOENT);
            break;
        case 5:
            value = 1;
            CHECK(write(fd, &value, 8) == 8);
            break;
        case 6:
            CHECK(read(fd, &value, 8) == 8 || errno == EAGAIN);
            break;
        default:
            CHECK(epoll_wait(arena, events, 8, random >> 24 & 1) >= 0);
        }
    }
    return NULL;
}

static void races(void) {
    pthread_t thread[RACERS];
    struct epoll_event event;
    arena = epoll_create1(0);
    for (int i = 0; i < 8; i++)
        track[i] = eventfd(0, EFD_NONBLOCK);
    for (long i = 0; i < RACERS; i++)
        CHECK(pthread_create(&thread[i], NULL, race, (void *)i) == 0);
    for (int i = 0; i < RACERS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    for (int i = 0; i < 8; i++) {
        CHECK(epoll_ctl(arena, EPOLL_CTL_DEL, track[i], &event) == 0 || errno == ENOENT);
        add_one(track[i]);
    }
    CHECK(epoll_wait(arena, &event, 1, 0) == 0 && close(arena) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(close(track[i]) == 0);
}

/* Processes that are ended while they wait for many. */
static void ended_meanwhile(void) {
    int status;
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        if (child == 0) {
            struct epoll_event event;
            int instance = epoll_create1(0);
            for (int i = 0; i < 300; i++) {
                polled[i] = (struct pollfd){eventfd(0, 0), POLLIN, 0};
                CHECK(add(instance, polled[i].fd, EPOLLIN, i) == 0);
            }
            _exit(round % 2 ? epoll_wait(instance, &event, 1, -1) : poll(polled, 300, -1));
        }
        usleep(20000 + 1000 * round);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && status == SIGKILL);
    }
}

/* In a process of its own, because a table of files keeps its size. */
static void apart(void (*part)(void)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        part();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    int64_t before = 0;
    /* The first round is for what the kernel keeps. */
    for (int round = 0; round < 2; round++) {
        before = free_bytes();
        apart(many_entries);
        apart(many_watchers);
        apart(races);
        apart(closed_meanwhile);
        ended_meanwhile();
    }
    all_comes_back(before);
    puts("no watch is left");
}
