/* ppoll, pselect6 and eventfd: what is ready, what is reported, what ends a wait. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "descriptors.h"

/* The call itself: the C library hides the rest of the time-out. */
static long ppoll_raw(struct pollfd *all, long count, struct timespec *time, const sigset_t *mask) {
    return syscall(SYS_ppoll, all, count, time, mask, 8L);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void pipes(void) {
    int ends[2];
    char bytes[4096] = {0};
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    CHECK(events_of(ends[0], POLLIN) == 0);
    CHECK(events_of(ends[1], POLLOUT) == POLLOUT);
    CHECK(events_of(ends[1], POLLOUT | POLLWRNORM) == (POLLOUT | POLLWRNORM));
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(events_of(ends[0], POLLIN | POLLOUT) == POLLIN);
    CHECK(events_of(ends[0], POLLRDNORM) == POLLRDNORM);
    CHECK(events_of(ends[0], 0) == 0);
    CHECK(read(ends[0], bytes, 10) == 1);
    while (write(ends[1], bytes, sizeof bytes) > 0)
        continue;
    CHECK(errno == EAGAIN && events_of(ends[1], POLLOUT) == 0);
    CHECK(read(ends[0], bytes, sizeof bytes) == sizeof bytes);
    CHECK(events_of(ends[1], POLLOUT) == POLLOUT);
    /* A short write is not split. */
    CHECK(write(ends[1], bytes, 100) == 100 && events_of(ends[1], POLLOUT) == 0);
    FAILS(write(ends[1], bytes, sizeof bytes), EAGAIN);
    CHECK(read(ends[0], bytes, sizeof bytes) == sizeof bytes);
    CHECK(events_of(ends[1], POLLOUT) == POLLOUT);
    CHECK(write(ends[1], bytes, sizeof bytes) == sizeof bytes);
    CHECK(close(ends[1]) == 0);
    CHECK(events_of(ends[0], POLLIN) == (POLLIN | POLLHUP));
    while (read(ends[0], bytes, sizeof bytes) > 0)
        continue;
    CHECK(events_of(ends[0], POLLIN) == POLLHUP);
    CHECK(close(ends[0]) == 0);
    CHECK(events_of(ends[0], POLLIN) == POLLNVAL);
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
    CHECK(events_of(ends[1], POLLOUT) == (POLLOUT | POLLERR));
    CHECK(close(ends[1]) == 0);
    int null = open("/dev/null", O_RDWR);
    CHECK(events_of(null, POLLIN | POLLOUT) == (POLLIN | POLLOUT));
    CHECK(close(null) == 0);
}

static void counters(void) {
    uint64_t value = 0;
    int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(events_of(fd, POLLIN | POLLOUT) == (POLLIN | POLLOUT));
    CHECK(read(fd, &value, 8) == 8 && value == 3);
    CHECK(events_of(fd, POLLIN | POLLOUT) == POLLOUT);
    FAILS(read(fd, &value, 8), EAGAIN);
    FAILS(read(fd, &value, 7), EINVAL);
    FAILS(write(fd, &value, 7), EINVAL);
    value = UINT64_MAX;
    FAILS(write(fd, &value, 8), EINVAL);
    value = UINT64_MAX - 1;
    CHECK(write(fd, &value, 8) == 8);
    CHECK(events_of(fd, POLLIN | POLLOUT) == POLLIN);
    value = 1;
    FAILS(write(fd, &value, 8), EAGAIN);
    value = 0;
    CHECK(write(fd, &value, 8) == 8);
    CHECK(read(fd, &value, 8) == 8 && value == UINT64_MAX - 1);
    CHECK(close(fd) == 0);
    fd = eventfd(2, EFD_SEMAPHORE);
    CHECK(read(fd, &value, 8) == 8 && value == 1);
    CHECK(read(fd, &value, 8) == 8 && value == 1);
    CHECK(events_of(fd, POLLIN) == 0);
    CHECK(close(fd) == 0);
    FAILS(eventfd(0, 2), EINVAL);
}

static int semaphore;
static void *add(void *argument) {
    uint64_t value = (long)argument;
    CHECK(write(semaphore, &value, 8) == 8);
    return NULL;
}

/* A read makes a full semaphore smaller by one. Of two writers that wait, the second one fits. */
static void writers(void) {
    pthread_t large, small;
    uint64_t value = UINT64_MAX - 1;
    semaphore = eventfd(0, EFD_SEMAPHORE);
    CHECK(semaphore >= 0 && write(semaphore, &value, 8) == 8);
    CHECK(pthread_create(&large, NULL, add, (void *)5L) == 0);
    usleep(20000);
    CHECK(pthread_create(&small, NULL, add, (void *)1L) == 0);
    usleep(20000);
    CHECK(read(semaphore, &value, 8) == 8 && value == 1);
    CHECK(pthread_join(small, NULL) == 0);
    CHECK(events_of(semaphore, POLLOUT) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(read(semaphore, &value, 8) == 8 && value == 1);
    CHECK(pthread_join(large, NULL) == 0);
    CHECK(events_of(semaphore, POLLOUT) == 0 && close(semaphore) == 0);
}

/* A read makes a full counter empty. Three writers wait, in this order; the first two do not fit
   together, and the third one fits beside either of them. */
static void writers_of_a_counter(void) {
    static const uint64_t values[] = {UINT64_MAX - 3, 5, 1};
    pthread_t threads[3];
    uint64_t value = UINT64_MAX - 1, read_so_far = 0, all = 0;
    semaphore = eventfd(0, 0);
    CHECK(semaphore >= 0 && write(semaphore, &value, 8) == 8);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, add, (void *)values[i]) == 0);
        all += values[i];
        usleep(20000);
    }
    CHECK(read(semaphore, &value, 8) == 8 && value == UINT64_MAX - 1);
    CHECK(pthread_join(threads[2], NULL) == 0);
    do {
        CHECK(read(semaphore, &value, 8) == 8);
        read_so_far += value;
    } while (read_so_far != all);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    CHECK(events_of(semaphore, POLLIN) == 0 && close(semaphore) == 0);
}

static void errors(void) {
    struct pollfd one = {0, POLLIN, 0};
    struct timespec bad = {0, 1000000000}, negative = {-1, 0}, none = {0, 0};
    FAILS(ppoll_raw(&one, 1, &bad, NULL), EINVAL);
    FAILS(ppoll_raw(&one, 1, &negative, NULL), EINVAL);
    FAILS(ppoll_raw((void *)8, 1, &none, NULL), EFAULT);
    FAILS(ppoll_raw(&one, 1, (void *)8, NULL), EFAULT);
    FAILS(ppoll_raw(&one, 1L << 30, &none, NULL), EINVAL);
    FAILS(syscall(SYS_ppoll, &one, 1L, &none, &one, 4L), EINVAL);
    CHECK(ppoll_raw(NULL, 0, &none, NULL) == 0);
    struct pollfd some[3] = {{-1, POLLIN, 7}, {99, POLLIN, 7}, {-7, 0, 7}};
    CHECK(ppoll_raw(some, 3, &none, NULL) == 1);
    CHECK(some[0].revents == 0 && some[1].revents == POLLNVAL && some[2].revents == 0);
    fd_set set;
    struct timeval zero = {0, 0};
    FD_ZERO(&set);
    FD_SET(99, &set);
    FAILS(select(100, &set, NULL, NULL, &zero), EBADF);
    FAILS(select(-1, &set, NULL, NULL, &zero), EINVAL);
    FAILS(syscall(SYS_pselect6, 8L, 8L, 0L, 0L, &none, 0L), EFAULT);
    FAILS(syscall(SYS_pselect6, 8L, 0L, 0L, 0L, &bad, 0L), EINVAL);
}

static void times(void) {
    struct timespec time = {0, 30000000};
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct pollfd one = {ends[0], POLLIN, 1};
    int64_t begin = now();
    CHECK(ppoll_raw(&one, 1, &time, NULL) == 0 && one.revents == 0);
    CHECK(now() - begin >= 30000000);
    /* What is left of the time replaces it. */
    CHECK(time.tv_sec == 0 && time.tv_nsec == 0);
    CHECK(poll(NULL, 0, 20) == 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval wait = {0, 20000};
    begin = now();
    CHECK(select(ends[0] + 1, &set, NULL, NULL, &wait) == 0 && !FD_ISSET(ends[0], &set));
    CHECK(now() - begin >= 20000000);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void selects(void) {
    int a[2], b[2];
    CHECK(pipe(a) == 0 && pipe(b) == 0 && dup2(b[0], 200) == 200 && dup2(b[1], 201) == 201);
    fd_set in, out, other;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&other);
    FD_SET(a[0], &in);
    FD_SET(a[1], &out);
    FD_SET(200, &in);
    FD_SET(201, &out);
    FD_SET(a[0], &other);
    FD_SET(200, &out);
    CHECK(write(201, "x", 1) == 1);
    CHECK(select(202, &in, &out, &other, NULL) == 3);
    CHECK(!FD_ISSET(a[0], &in) && FD_ISSET(200, &in));
    CHECK(FD_ISSET(a[1], &out) && FD_ISSET(201, &out) && !FD_ISSET(200, &out));
    CHECK(!FD_ISSET(a[0], &other));
    /* Bits from the count on are no descriptors. */
    FD_ZERO(&in);
    FD_SET(200, &in);
    FD_SET(63, &in);
    struct timeval none = {0, 0};
    CHECK(select(10, &in, NULL, NULL, &none) == 0);
    CHECK(close(200) == 0 && close(201) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(close(a[i]) == 0 && close(b[i]) == 0);
}

static int wake_pipe[2];
static void *write_soon(void *argument) {
    usleep(20000);
    CHECK(write(*(int *)argument, "12345678", 8) == 8);
    return NULL;
}

/* A wait for one of many, which another thread makes ready: of so many that the kernel looks at
   them in one step or in several, in the call itself and after it. */
enum { MANY = 100 };
static int sizes[] = {16, 17, 32, 33, 48, 49, MANY};
static int many_ends[MANY][2];

static void one_of(int size, int which) {
    struct pollfd all[MANY];
    pthread_t thread;
    char bytes[8];
    fd_set set;
    FD_ZERO(&set);
    for (int i = 0; i < size; i++) {
        all[i] = (struct pollfd){many_ends[i][0], POLLIN, 0x55};
        FD_SET(many_ends[i][0], &set);
    }
    int64_t begin = now();
    CHECK(pthread_create(&thread, NULL, write_soon, &many_ends[which][1]) == 0);
    CHECK(poll(all, size, 20000) == 1);
    for (int i = 0; i < size; i++)
        CHECK(all[i].revents == (i == which ? POLLIN : 0));
    CHECK(pthread_join(thread, NULL) == 0 && read(many_ends[which][0], bytes, 8) == 8);
    struct timeval time = {20, 0};
    CHECK(pthread_create(&thread, NULL, write_soon, &many_ends[which][1]) == 0);
    CHECK(select(many_ends[size - 1][0] + 1, &set, NULL, NULL, &time) == 1);
    for (int i = 0; i < size; i++)
        CHECK(!FD_ISSET(many_ends[i][0], &set) == (i != which));
    CHECK(pthread_join(thread, NULL) == 0 && read(many_ends[which][0], bytes, 8) == 8);
    /* At the end of the time a call finds what has not woken it. */
    CHECK(now() - begin < 20000000000);
}

static void many(void) {
    for (int i = 0; i < MANY; i++)
        CHECK(pipe(many_ends[i]) == 0);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int which[] = {0, 15, 16, sizes[i] - 1};
        for (int j = 0; j < 4; j++)
            if (which[j] < sizes[i])
                one_of(sizes[i], which[j]);
    }
    for (int i = 0; i < MANY; i++)
        CHECK(close(many_ends[i][0]) == 0 && close(many_ends[i][1]) == 0);
}

/* What is left of the time replaces it when a call has found something, too. */
static void rest_of_time(void) {
    int ends[2];
    char bytes[8];
    CHECK(pipe(ends) == 0);
    for (int way = 0; way < 2; way++) {
        pthread_t thread;
        struct pollfd one = {ends[0], POLLIN, 0};
        struct timespec time = {100, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        CHECK(pthread_create(&thread, NULL, write_soon, &ends[1]) == 0);
        if (way == 0)
            CHECK(ppoll_raw(&one, 1, &time, NULL) == 1);
        else
            CHECK(syscall(SYS_pselect6, ends[0] + 1, &set, NULL, NULL, &time, NULL) == 1);
        CHECK(time.tv_sec < 100 && time.tv_sec > 10 && time.tv_nsec < 1000000000);
        CHECK(pthread_join(thread, NULL) == 0 && read(ends[0], bytes, 8) == 8);
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    /* Memory that cannot be written changes nothing else. */
    static const struct timespec constant = {0, 1000000};
    CHECK(ppoll_raw(NULL, 0, (struct timespec *)&constant, NULL) == 0);
}

static volatile int handled;
static void handle(int signal) { handled = signal; }

static pthread_t first;
static void *signal_soon(void *argument) {
    usleep(20000);
    CHECK(pthread_kill(first, (int)(long)argument) == 0);
    return NULL;
}

/* A call that only looks, with a mask that lets a signal through which is pending: of one, and of so
   many descriptors that the kernel looks at them in several steps. */
enum { LOOKED_AT = 100 };
static long look(int way, int count, fd_set *set) {
    static const struct timespec zero;
    struct { const sigset_t *mask; long bytes; } pair;
    struct pollfd all[LOOKED_AT];
    struct timespec time = zero;
    sigset_t none;
    sigemptyset(&none);
    pair.mask = &none, pair.bytes = 8;
    FD_ZERO(set);
    for (int i = 0; i < count; i++) {
        int fd = i == count - 1 ? wake_pipe[0] : 200 + i;
        all[i] = (struct pollfd){fd, POLLIN, 0};
        FD_SET(fd, set);
    }
    if (way == 0)
        return ppoll_raw(all, count, &time, &none);
    if (way == 1)
        return ppoll_raw(all, count, (struct timespec *)&zero, &none);
    return syscall(SYS_pselect6, 200 + LOOKED_AT, set, NULL, NULL, &time, &pair);
}

static void looks(void) {
    sigset_t blocked, before;
    fd_set set;
    char byte;
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < LOOKED_AT; i++)
        CHECK(dup2(ends[0], 200 + i) == 200 + i);
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1), sigaddset(&blocked, SIGCHLD);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        int way = i % 3, count = i < 3 ? 1 : LOOKED_AT;
        /* Nothing is ready: the handler runs before the call ends. */
        handled = 0;
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
        FAILS(look(way, count, &set), EINTR);
        CHECK(handled == SIGUSR1 && FD_ISSET(wake_pipe[0], &set) != 0);
        /* A signal that has no effect ends no call. */
        CHECK(pthread_kill(pthread_self(), SIGCHLD) == 0);
        CHECK(look(way, count, &set) == 0);
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGUSR1));
        /* Something is ready: the signal stays pending. */
        handled = 0;
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0 && write(wake_pipe[1], "x", 1) == 1);
        CHECK(look(way, count, &set) == 1 && handled == 0 && read(wake_pipe[0], &byte, 1) == 1);
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGUSR1));
        CHECK(pthread_sigmask(SIG_UNBLOCK, &blocked, NULL) == 0 && handled == SIGUSR1);
        CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    }
    CHECK(pthread_sigmask(SIG_UNBLOCK, &blocked, NULL) == 0);
    for (int i = 0; i < LOOKED_AT; i++)
        CHECK(close(200 + i) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void signals(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigset_t blocked, none, before;
    pthread_t thread;
    struct pollfd one = {wake_pipe[0], POLLIN, 0};
    first = pthread_self();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigemptyset(&none), sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
    /* A handler ends the wait, also with SA_RESTART, and the rest of the time is stored. */
    struct timespec time = {10, 0};
    CHECK(pthread_create(&thread, NULL, signal_soon, (void *)SIGUSR1) == 0);
    FAILS(ppoll_raw(&one, 1, &time, NULL), EINTR);
    CHECK(handled == SIGUSR1 && pthread_join(thread, NULL) == 0);
    /* User-mode QEMU stores it only if nothing has interrupted the call. */
    CHECK(!is_cops() || time.tv_sec < 10);
    /* A blocked signal does not. */
    handled = 0;
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
    CHECK(pthread_kill(first, SIGUSR1) == 0 && handled == 0);
    CHECK(poll(&one, 1, 30) == 0 && handled == 0);
    /* With a mask that lets it through, it does, and the mask is then as before. */
    FAILS(ppoll(&one, 1, NULL, &none), EINTR);
    CHECK(handled == SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGUSR1));
    handled = 0;
    CHECK(pthread_create(&thread, NULL, signal_soon, (void *)SIGUSR1) == 0);
    FAILS(pselect(0, NULL, NULL, NULL, NULL, &none), EINTR);
    CHECK(handled == SIGUSR1 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGUSR1));
    /* Something ready comes first, and the signal stays pending. */
    handled = 0;
    CHECK(pthread_kill(first, SIGUSR1) == 0 && write(wake_pipe[1], "x", 1) == 1);
    CHECK(ppoll(&one, 1, NULL, &none) == 1 && one.revents == POLLIN && handled == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGUSR1));
    char byte;
    CHECK(read(wake_pipe[0], &byte, 1) == 1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &blocked, NULL) == 0 && handled == SIGUSR1);
    looks();
    /* The mask of a call blocks what comes meanwhile; it arrives when the call is over. User-mode
     * QEMU says that it has interrupted the call. */
    if (!is_cops())
        return;
    handled = 0;
    CHECK(pthread_create(&thread, NULL, signal_soon, (void *)SIGUSR1) == 0);
    time = (struct timespec){0, 60000000};
    CHECK(ppoll(&one, 1, &time, &blocked) == 0 && handled == SIGUSR1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && !sigismember(&before, SIGUSR1));
}

static int64_t used(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* A wait with a mask of its own sleeps: it uses no time of a hart. A busy machine may keep a hart
 * from running for a while, so one of several tries is enough. */
static void sleeps(void) {
    sigset_t none;
    pthread_t thread;
    sigemptyset(&none);
    int slept = 0;
    for (int i = 0; i < 10 && !slept; i++) {
        int64_t begin = now(), begin_used = used();
        CHECK(pthread_create(&thread, NULL, signal_soon, (void *)SIGUSR1) == 0);
        if (i % 2)
            FAILS(sigsuspend(&none), EINTR);
        else
            FAILS(ppoll(NULL, 0, NULL, &none), EINTR);
        slept = (used() - begin_used) * 4 < now() - begin;
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(slept);
}

/* Two processes that wait for the same pipe see its end. */
static void processes(void) {
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    pid_t child[2];
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            struct pollfd one = {ends[0], POLLIN, 0};
            close(ends[1]);
            _exit(poll(&one, 1, -1) == 1 && one.revents == POLLHUP ? 5 : 6);
        }
    }
    usleep(30000);
    CHECK(close(ends[1]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(waitpid(child[i], &status, 0) == child[i] && status == 5 << 8);
    /* A process that is ended while it waits. */
    CHECK(pipe(ends) == 0);
    child[0] = fork();
    if (child[0] == 0) {
        struct pollfd one = {ends[0], POLLIN, 0};
        _exit(poll(&one, 1, -1));
    }
    usleep(20000);
    CHECK(kill(child[0], SIGKILL) == 0);
    CHECK(waitpid(child[0], &status, 0) == child[0] && status == SIGKILL);
    CHECK(write(ends[1], "x", 1) == 1 && events_of(ends[0], POLLIN) == POLLIN);
}

int main(void) {
    CHECK(pipe(wake_pipe) == 0);
    pipes();
    counters();
    writers();
    writers_of_a_counter();
    errors();
    times();
    selects();
    many();
    rest_of_time();
    signals();
    sleeps();
    processes();
    puts("polling is in order");
}
