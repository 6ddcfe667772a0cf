/* Timers as files: once, repeatedly, absolute, with poll and epoll, shared, and closed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>

#include "children.h"

static const long MILLISECOND = 1000000;

static struct timespec nanoseconds(long count) {
    return (struct timespec){count / 1000000000, count % 1000000000};
}

static long in_nanoseconds(struct timespec time) {
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static long now(clockid_t clock) {
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    return in_nanoseconds(time);
}

static int make(clockid_t clock, int flags) {
    int timer = timerfd_create(clock, flags);
    CHECK(timer >= 0);
    return timer;
}

/* Sets it; returns what was left. */
static long set(int timer, int flags, long first, long interval) {
    struct itimerspec time = {nanoseconds(interval), nanoseconds(first)}, before;
    CHECK(timerfd_settime(timer, flags, &time, &before) == 0);
    return in_nanoseconds(before.it_value);
}

static long rest(int timer) {
    struct itimerspec time;
    CHECK(timerfd_gettime(timer, &time) == 0);
    return in_nanoseconds(time.it_value);
}

static uint64_t take(int timer) {
    uint64_t count = 0;
    CHECK(read(timer, &count, sizeof count) == sizeof count && count > 0);
    return count;
}

static short ready(int timer, int milliseconds) {
    struct pollfd one = {timer, POLLIN | POLLOUT, 0};
    CHECK(poll(&one, 1, milliseconds) >= 0);
    return one.revents;
}

static void errors(void) {
    struct itimerspec time = {{0, 0}, {0, 1}};
    char bytes[16];
    FAILS(timerfd_create(2, 0), EINVAL);
    FAILS(timerfd_create(-1, 0), EINVAL);
    FAILS(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
    FAILS(timerfd_create(CLOCK_MONOTONIC, O_APPEND), EINVAL);
    int timer = make(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), ends[2];
    CHECK(fcntl(timer, F_GETFD) == FD_CLOEXEC && (fcntl(timer, F_GETFL) & O_NONBLOCK));
    FAILS(timerfd_settime(timer, 4, &time, NULL), EINVAL);
    FAILS(timerfd_settime(timer, -1, &time, NULL), EINVAL);
    FAILS(timerfd_settime(timer, 0, (void *)8, NULL), EFAULT);
    FAILS(timerfd_gettime(timer, (void *)8), EFAULT);
    FAILS(timerfd_gettime(timer, (void *)-8L), EFAULT);
    FAILS(timerfd_gettime(-1, &time), EBADF);
    FAILS(timerfd_settime(1000, 0, &time, NULL), EBADF);
    CHECK(pipe(ends) == 0);
    FAILS(timerfd_gettime(ends[0], &time), EINVAL);
    FAILS(timerfd_settime(ends[1], 0, &time, NULL), EINVAL);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    for (int field = 0; field < 8; field++) {
        long bad[8] = {-1, 1000000000, 1L << 63, -1, -1, 1000000000, 1L << 63, -1};
        long fields[4] = {0, 0, 1, 0};
        /* Seconds are negative, nanoseconds too many or negative. */
        fields[field / 2] = field / 2 % 2 ? bad[field] : -1 - field;
        FAILS(syscall(SYS_timerfd_settime, timer, 0, fields, NULL), EINVAL);
    }
    CHECK(rest(timer) == 0);
    FAILS(read(timer, bytes, 8), EAGAIN);
    FAILS(read(timer, bytes, 7), EINVAL);
    FAILS(write(timer, bytes, 8), EINVAL);
    CHECK(set(timer, 0, 1, 0) == 0 && ready(timer, 1000) == POLLIN);
    FAILS(read(timer, bytes, 7), EINVAL);
    if (is_cops())
        FAILS(syscall(SYS_read, timer, 8L, 8L), EFAULT);
    CHECK(read(timer, bytes, 16) == 8);
    FAILS(read(timer, bytes, 8), EAGAIN);
    /* The old setting is stored after the new one has begun. */
    time.it_value.tv_sec = 100;
    FAILS(timerfd_settime(timer, 0, &time, (void *)8), EFAULT);
    CHECK(rest(timer) > 90000 * MILLISECOND);
    CHECK(close(timer) == 0);
}

static void once(clockid_t clock) {
    int timer = make(clock, 0);
    long begin = now(clock);
    CHECK(rest(timer) == 0 && set(timer, 0, 30 * MILLISECOND, 0) == 0);
    CHECK(rest(timer) > 0 && rest(timer) <= 30 * MILLISECOND && ready(timer, 0) == 0);
    CHECK(take(timer) == 1 && now(clock) - begin >= 30 * MILLISECOND && rest(timer) == 0);
    CHECK(ready(timer, 0) == 0);
    /* At a time, which may be over. */
    begin = now(clock);
    CHECK(set(timer, TFD_TIMER_ABSTIME, begin + 20 * MILLISECOND, 0) == 0);
    CHECK(take(timer) == 1 && now(clock) - begin >= 20 * MILLISECOND);
    CHECK(set(timer, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, 1, 0) == 0 && take(timer) == 1);
    CHECK(set(timer, TFD_TIMER_ABSTIME, now(clock) - 10 * MILLISECOND, MILLISECOND) == 0);
    CHECK(take(timer) >= 10);
    /* Replaced, and off. */
    set(timer, 0, 100000 * MILLISECOND, 7);
    long before = set(timer, 0, 0, 0);
    CHECK(before > 90000 * MILLISECOND && before <= 100000 * MILLISECOND && rest(timer) == 0);
    CHECK(ready(timer, 20) == 0);
    /* What has not been read is gone with a new setting. */
    set(timer, 0, 1, 0);
    CHECK(ready(timer, 1000) == POLLIN);
    set(timer, 0, 100000 * MILLISECOND, 0);
    CHECK(ready(timer, 0) == 0);
    /* Longer than any time. */
    struct itimerspec time = {{0x7fffffffffffffff, 999999999}, {0x7fffffffffffffff, 999999999}};
    CHECK(timerfd_settime(timer, 0, &time, NULL) == 0 && ready(timer, 0) == 0);
    CHECK(timerfd_settime(timer, TFD_TIMER_ABSTIME, &time, NULL) == 0 && ready(timer, 0) == 0);
    CHECK(close(timer) == 0);
}

static void repeatedly(void) {
    int timer = make(CLOCK_MONOTONIC, 0);
    long begin = now(CLOCK_MONOTONIC);
    set(timer, 0, 10 * MILLISECOND, 5 * MILLISECOND);
    struct itimerspec time;
    CHECK(timerfd_gettime(timer, &time) == 0 && in_nanoseconds(time.it_interval) == 5 * MILLISECOND);
    uint64_t count = 0;
    while (count < 10)
        count += take(timer);
    long passed = now(CLOCK_MONOTONIC) - begin;
    CHECK(passed >= 55 * MILLISECOND && (long)count <= (passed - 5 * MILLISECOND) / (5 * MILLISECOND));
    /* Those that are missed are counted, and the next one comes in time. */
    usleep(50000);
    CHECK(ready(timer, 0) == POLLIN && rest(timer) <= 5 * MILLISECOND && rest(timer) > 0);
    CHECK(take(timer) >= 10 && ready(timer, 1000) == POLLIN);
    /* As short as can be. */
    begin = now(CLOCK_MONOTONIC);
    set(timer, 0, 1, 1);
    count = take(timer);
    for (int i = 0; i < 100; i++)
        count += take(timer);
    CHECK(count <= (uint64_t)(now(CLOCK_MONOTONIC) - begin) + 1);
    CHECK(close(timer) == 0);
}

static void with_epoll(void) {
    enum { TIMERS = 50 };
    static int timer[TIMERS];
    static int taken[TIMERS];
    int instance = epoll_create1(0), left = TIMERS;
    for (int i = 0; i < TIMERS; i++) {
        struct epoll_event event = {EPOLLIN | (i % 2 ? EPOLLET : 0), {.u32 = i}};
        timer[i] = make(CLOCK_MONOTONIC, TFD_NONBLOCK);
        CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, timer[i], &event) == 0);
        set(timer[i], 0, (1 + i * 7 % 20) * MILLISECOND, i % 3 ? MILLISECOND : 0);
    }
    while (left > 0) {
        struct epoll_event events[8];
        int count = epoll_wait(instance, events, 8, 5000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            int at = events[i].data.u32, wanted = at % 3 ? 5 : 1;
            uint64_t more = 0;
            if (read(timer[at], &more, sizeof more) < 0)
                CHECK(errno == EAGAIN);
            int before = taken[at];
            taken[at] += more;
            if (before < wanted && taken[at] >= wanted) {
                left--;
                CHECK(close(timer[at]) == 0);
            }
        }
    }
    struct epoll_event event;
    CHECK(epoll_wait(instance, &event, 1, 20) == 0 && close(instance) == 0);
}

static void *take_one(void *timer) {
    return (void *)(long)take((int)(long)timer);
}

static void handle(int signal) {
    (void)signal;
}

/* Several threads wait for one timer: each expiration goes to one of them. */
static void waiting(void) {
    enum { THREADS = 8 };
    pthread_t thread[THREADS];
    int timer = make(CLOCK_MONOTONIC, 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, take_one, (void *)(long)timer) == 0);
    usleep(10000);
    set(timer, 0, 2 * MILLISECOND, 2 * MILLISECOND);
    long sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *count;
        CHECK(pthread_join(thread[i], &count) == 0);
        sum += (long)count;
    }
    CHECK(sum >= THREADS);
    /* A signal ends a wait. */
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    set(timer, 0, 0, 0);
    ualarm(20000, 20000);
    uint64_t count;
    FAILS(read(timer, &count, sizeof count), EINTR);
    ualarm(0, 0);
    CHECK(close(timer) == 0);
}

static void processes(void) {
    int timer = make(CLOCK_REALTIME, 0);
    struct stat status;
    char link[64], name[64] = "";
    CHECK(fstat(timer, &status) == 0 && (status.st_mode & S_IFMT) == 0);
    snprintf(link, sizeof link, "/proc/self/fd/%d", timer);
    CHECK(readlink(link, name, sizeof name - 1) > 0);
    CHECK(strcmp(name, "anon_inode:[timerfd]") == 0);
    /* The one that has set it ends, and is waited for. */
    pid_t child = fork();
    if (child == 0) {
        set(timer, 0, 30 * MILLISECOND, 10 * MILLISECOND);
        _exit(0);
    }
    ended_with(child, 0);
    for (int i = 0; i < 3; i++)
        CHECK(take(timer) >= 1);
    /* Processes that end while they wait for it, and while it expires. */
    for (int i = 0; i < 20; i++) {
        child = fork();
        if (child == 0) {
            int own = make(CLOCK_MONOTONIC, 0);
            set(own, 0, MILLISECOND, 100000);
            set(timer, 0, i * 100000 + 1, 50000);
            for (;;)
                take(i % 2 ? own : timer);
        }
        usleep(i * 300);
        CHECK(kill(child, SIGKILL) == 0);
        ended_by(child, SIGKILL);
    }
    set(timer, 0, MILLISECOND, 0);
    CHECK(take(timer) == 1 && close(timer) == 0);
}

static void *set_it(void *timer) {
    for (int i = 0; i < 2000; i++)
        set((int)(long)timer, 0, i % 5 * 20000, i % 3 * 1000);
    return timer;
}

/* Set by several threads while another one reads; as many as there may be; closed while on. */
static void many(void) {
    enum { THREADS = 3, TIMERS = 1000 };
    pthread_t thread[THREADS];
    static int more[TIMERS];
    int timer = make(CLOCK_MONOTONIC, TFD_NONBLOCK);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, set_it, (void *)(long)timer) == 0);
    for (int i = 0; i < 5000; i++) {
        uint64_t count = 0;
        if (read(timer, &count, sizeof count) < 0)
            CHECK(errno == EAGAIN);
        else
            CHECK(count > 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    for (int i = 0; i < TIMERS; i++) {
        more[i] = make(CLOCK_MONOTONIC, 0);
        set(more[i], 0, 5 * MILLISECOND, 1000);
    }
    usleep(10000);
    for (int i = 0; i < TIMERS; i += 2)
        CHECK(take(more[i]) > 1);
    for (int i = 0; i < TIMERS; i++)
        CHECK(close(more[i]) == 0);
    CHECK(close(timer) == 0);
}

int main(void) {
    errors();
    once(CLOCK_MONOTONIC);
    once(CLOCK_REALTIME);
    once(CLOCK_BOOTTIME);
    repeatedly();
    with_epoll();
    waiting();
    processes();
    many();
    printf("timers are in order\n");
    return 0;
}
