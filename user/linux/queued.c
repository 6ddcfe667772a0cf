/* Signals that queue, and signals that a thread takes without a handler. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "children.h"

#define MANY 100

static volatile int count, wrong;
static volatile int last = -1;

static void handle(int signal, siginfo_t *information, void *context) {
    (void)context;
    wrong |= signal != information->si_signo || information->si_code != SI_QUEUE;
    wrong |= information->si_pid != getpid() || information->si_value.sival_int != last + 1;
    last = information->si_value.sival_int;
    count++;
}

static void count_only(int signal) {
    (void)signal;
    count++;
}

static sigset_t set_of(int first, int second) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    if (second)
        sigaddset(&set, second);
    return set;
}

static void queue(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigset_t set = set_of(SIGRTMIN, 0), before;
    union sigval value;
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &set, &before) == 0);
    for (value.sival_int = 0; value.sival_int < MANY; value.sival_int++)
        CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0);
    CHECK(count == 0 && sigpending(&set) == 0 && sigismember(&set, SIGRTMIN));
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(count == MANY && last == MANY - 1 && !wrong);
    CHECK(sigpending(&set) == 0 && !sigismember(&set, SIGRTMIN));

    /* A standard signal does not queue. */
    action = (struct sigaction){.sa_handler = count_only};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGRTMIN, &action, NULL) == 0);
    set = set_of(SIGUSR1, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    count = 0;
    for (int i = 0; i < 5; i++)
        CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && count == 1);

    /* Those to one thread queue too. */
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    count = 0;
    for (int i = 0; i < 100; i++)
        CHECK(pthread_kill(pthread_self(), SIGRTMIN) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && count == 100);

    /* A full queue refuses; what has no effect is not queued. */
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    count = 0;
    int sent = 0;
    value.sival_int = 0;
    while (sent < 1000000 && sigqueue(getpid(), SIGRTMIN, value) == 0)
        sent++;
    CHECK(sent >= 32 && errno == EAGAIN);
    CHECK(kill(getpid(), SIGRTMIN) == 0);
    CHECK(signal(SIGRTMIN, SIG_IGN) != SIG_ERR);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && count == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0);

    FAILS(sigqueue(getpid(), 65, value), EINVAL);
    FAILS(sigqueue(999999, SIGUSR1, value), ESRCH);
    FAILS(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, 1), EFAULT);
    siginfo_t information = {0};
    information.si_code = SI_USER;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(1);
    }
    /* Only the kernel says that `kill` has sent a signal to another process. */
    FAILS(syscall(SYS_rt_sigqueueinfo, child, SIGTERM, &information), EPERM);
    CHECK(sigqueue(child, SIGTERM, value) == 0);
    ended_by(child, SIGTERM);
}

static void *send_later(void *signal) {
    struct timespec time = {0, 20000000};
    nanosleep(&time, NULL);
    CHECK(kill(getpid(), (int)(long)signal) == 0);
    return NULL;
}

static void *take(void *result) {
    sigset_t set = set_of(SIGUSR2, 0);
    siginfo_t information;
    *(int *)result = sigwaitinfo(&set, &information);
    return NULL;
}

static void waiting(void) {
    sigset_t set = set_of(SIGUSR1, SIGCHLD), before;
    siginfo_t information;
    struct timespec none = {0, 0}, soon = {0, 20000000}, bad = {0, 1000000000};
    pthread_t other;
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    FAILS(sigtimedwait(&set, &information, &none), EAGAIN);
    FAILS(sigtimedwait(&set, &information, &soon), EAGAIN);
    FAILS(sigtimedwait(&set, &information, &bad), EINVAL);
    FAILS(syscall(SYS_rt_sigtimedwait, &set, NULL, NULL, 4), EINVAL);
    FAILS(syscall(SYS_rt_sigtimedwait, 1, NULL, NULL, 8), EFAULT);

    /* One that waits already, and one that comes. No handler runs. */
    count = 0;
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigtimedwait(&set, &information, &none) == SIGUSR1);
    CHECK(information.si_signo == SIGUSR1 && information.si_code == SI_USER);
    CHECK(information.si_pid == getpid());
    for (int i = 0; i < 10; i++) {
        CHECK(pthread_create(&other, NULL, send_later, (void *)SIGUSR1) == 0);
        CHECK(sigwaitinfo(&set, &information) == SIGUSR1);
        CHECK(pthread_join(other, NULL) == 0);
    }
    CHECK(count == 0);

    /* A child that ends: a signal that is ignored otherwise. */
    pid_t child = fork();
    if (child == 0) {
        nanosleep(&soon, NULL);
        _exit(5);
    }
    CHECK(sigwaitinfo(&set, &information) == SIGCHLD);
    CHECK(information.si_pid == child && information.si_status == 5);
    ended_with(child, 5);

    /* A handler of another signal ends it. */
    struct sigaction action = {.sa_handler = count_only, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK(pthread_create(&other, NULL, send_later, (void *)SIGUSR2) == 0);
    FAILS(sigwaitinfo(&set, &information), EINTR);
    CHECK(count == 1 && pthread_join(other, NULL) == 0);

    /* Of several threads, the one that waits for it gets it. */
    int result = 0;
    sigset_t second = set_of(SIGUSR2, 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &second, NULL) == 0);
    CHECK(pthread_create(&other, NULL, take, &result) == 0);
    nanosleep(&soon, NULL);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    CHECK(pthread_join(other, NULL) == 0 && result == SIGUSR2 && count == 1);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0 && count == 1);
}

/* Two threads send, one takes; nothing is lost. */
static void *send_many(void *first) {
    union sigval value;
    for (value.sival_int = (int)(long)first; value.sival_int < 2000; value.sival_int += 2)
        while (sigqueue(getpid(), SIGRTMIN + 1, value) != 0) {
            CHECK(errno == EAGAIN);
            sched_yield();
        }
    return NULL;
}

static void many(void) {
    static char taken[2000];
    sigset_t set = set_of(SIGRTMIN + 1, 0);
    siginfo_t information;
    pthread_t senders[2];
    int next[2] = {0, 1};
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    for (long i = 0; i < 2; i++)
        CHECK(pthread_create(&senders[i], NULL, send_many, (void *)i) == 0);
    for (int i = 0; i < 2000; i++) {
        CHECK(sigwaitinfo(&set, &information) == SIGRTMIN + 1);
        int value = information.si_value.sival_int;
        /* In the order in which each thread has sent them. */
        CHECK(value == next[value % 2] && !taken[value]);
        next[value % 2] += 2;
        taken[value] = 1;
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(senders[i], NULL) == 0);
    struct timespec none = {0, 0};
    FAILS(sigtimedwait(&set, &information, &none), EAGAIN);
}

static void *disturb(void *thread) {
    struct timespec soon = {0, 20000000};
    for (int i = 0; i < 3; i++) {
        nanosleep(&soon, NULL);
        CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    }
    return NULL;
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *stand_by(void *nothing) {
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return nothing;
}

/* A thread that waits is found among many that do not; blocked signals to a thread disturb neither
   its time-out nor its call. */
static void crowd(void) {
    pthread_t threads[100], waiter;
    int result = 0;
    sigset_t set = set_of(SIGUSR2, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && pthread_mutex_lock(&gate) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(pthread_create(&threads[i], NULL, stand_by, NULL) == 0);
    CHECK(pthread_create(&waiter, NULL, take, &result) == 0);
    struct timespec soon = {0, 20000000};
    nanosleep(&soon, NULL);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    CHECK(pthread_join(waiter, NULL) == 0 && result == SIGUSR2);
    CHECK(pthread_mutex_unlock(&gate) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);

    int ends[2];
    static char bytes[200000];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        /* Reads after the writer has been disturbed. */
        for (int i = 0; i < 5; i++)
            nanosleep(&soon, NULL);
        close(ends[1]);
        while (read(ends[0], bytes, sizeof bytes) > 0)
            continue;
        _exit(0);
    }
    pthread_t self = pthread_self();
    CHECK(pthread_create(&waiter, NULL, disturb, &self) == 0);
    CHECK(write(ends[1], bytes, sizeof bytes) == sizeof bytes);
    CHECK(pthread_join(waiter, NULL) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    ended_with(child, 0);
}

/* Seconds until a test that waits for a signal gives up. */
#define PATIENCE 5

static volatile int handled_second, came_in_time;

static int in_time(volatile int *what) {
    time_t began = time(NULL);
    while (!*what && time(NULL) - began < PATIENCE)
        continue;
    return *what;
}

static void on_second(int signal) {
    (void)signal;
    handled_second = 1;
}

static void await_second(int signal) {
    (void)signal;
    came_in_time = in_time(&handled_second);
}

static void *stand_in(void *nothing) {
    for (;;)
        pause();
    return nothing;
}

static void *take_one(void *taken) {
    sigset_t set = set_of(SIGUSR1, SIGUSR2);
    int signal;
    CHECK(sigwait(&set, &signal) == 0);
    *(volatile int *)taken = signal;
    for (;;)
        pause();
    return NULL;
}

/* Both signals, in one go for a process that is stopped meanwhile. */
static void send_both(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    struct timespec soon = {0, 20000000};
    nanosleep(&soon, NULL);
    CHECK(kill(child, SIGUSR1) == 0 && kill(child, SIGUSR2) == 0 && kill(child, SIGCONT) == 0);
    ended_with(child, 0);
}

static volatile int is_sent, turn;

static void *send_second(void *nothing) {
    sigset_t set = set_of(SIGUSR2, 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    for (int round = 1; round <= 300; round++) {
        while (turn != round)
            sched_yield();
        is_sent = round;
        CHECK(kill(getpid(), SIGUSR2) == 0);
    }
    return nothing;
}

/* A signal that one thread does not take after all, because it blocks it meanwhile or has taken
   another one, is for another thread. */
static void pass_on(void) {
    struct sigaction first = {.sa_handler = await_second}, second = {.sa_handler = on_second};
    struct timespec soon = {0, 20000000};
    pthread_t other;
    sigset_t both = set_of(SIGUSR1, SIGUSR2), usr2 = set_of(SIGUSR2, 0), before;
    sigaddset(&first.sa_mask, SIGUSR2);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &both, &before) == 0);
    CHECK(sigaction(SIGUSR1, &first, NULL) == 0 && sigaction(SIGUSR2, &second, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pthread_create(&other, NULL, stand_in, NULL) == 0);
        nanosleep(&soon, NULL);
        kill(getpid(), SIGSTOP);
        CHECK(in_time(&came_in_time));
        _exit(0);
    }
    send_both(child);

    /* Of two threads that wait for both, each takes one. */
    CHECK(pthread_sigmask(SIG_BLOCK, &both, NULL) == 0);
    child = fork();
    if (child == 0) {
        static volatile int taken[2];
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&other, NULL, take_one, (void *)&taken[i]) == 0);
        nanosleep(&soon, NULL);
        kill(getpid(), SIGSTOP);
        CHECK(in_time(&taken[0]) && in_time(&taken[1]));
        CHECK(taken[0] + taken[1] == SIGUSR1 + SIGUSR2);
        _exit(0);
    }
    send_both(child);

    /* It is blocked just when it comes. */
    child = fork();
    if (child == 0) {
        CHECK(pthread_sigmask(SIG_UNBLOCK, &usr2, NULL) == 0);
        CHECK(pthread_create(&other, NULL, stand_in, NULL) == 0);
        CHECK(pthread_create(&other, NULL, send_second, NULL) == 0);
        for (int round = 1; round <= 300; round++) {
            handled_second = 0;
            turn = round;
            while (is_sent != round)
                continue;
            for (volatile int i = 0; i < round * 4; i++)
                continue;
            CHECK(pthread_sigmask(SIG_BLOCK, &usr2, NULL) == 0);
            CHECK(in_time(&handled_second));
            CHECK(pthread_sigmask(SIG_UNBLOCK, &usr2, NULL) == 0);
        }
        CHECK(pthread_join(other, NULL) == 0);
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(signal(SIGUSR1, SIG_DFL) != SIG_ERR && signal(SIGUSR2, SIG_DFL) != SIG_ERR);
}

/* Blocks what its creator blocks until there is a byte, and then nothing. */
static void *block_until(void *end) {
    char byte;
    sigset_t none;
    sigemptyset(&none);
    CHECK(read(*(int *)end, &byte, 1) == 1);
    CHECK(pthread_sigmask(SIG_SETMASK, &none, NULL) == 0);
    return NULL;
}

/* A signal that waits is forgotten when the program ignores it from then on. */
static void forgotten(void) {
    sigset_t set = set_of(SIGUSR1, SIGRTMIN), before, pending;
    const int signals[] = {SIGUSR1, SIGRTMIN};
    pthread_t other;
    int ends[2];
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && pipe(ends) == 0);
    count = 0;
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&other, NULL, block_until, &ends[0]) == 0);
        for (int j = 0; j < 3; j++) {
            CHECK(kill(getpid(), signals[i]) == 0);
            CHECK(pthread_kill(pthread_self(), signals[i]) == 0);
            CHECK(pthread_kill(other, signals[i]) == 0);
        }
        CHECK(sigpending(&pending) == 0 && sigismember(&pending, signals[i]));
        CHECK(signal(signals[i], SIG_IGN) != SIG_ERR);
        CHECK(sigpending(&pending) == 0 && !sigismember(&pending, signals[i]));
        struct sigaction action = {.sa_handler = count_only};
        CHECK(sigaction(signals[i], &action, NULL) == 0);
        CHECK(sigpending(&pending) == 0 && !sigismember(&pending, signals[i]));
        CHECK(write(ends[1], "x", 1) == 1 && pthread_join(other, NULL) == 0);
        CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0 && count == 0);
        CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    }
    /* By its default effect, this one is ignored. */
    struct sigaction action = {.sa_handler = count_only};
    sigset_t window = set_of(SIGWINCH, 0);
    CHECK(sigaction(SIGWINCH, &action, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &window, NULL) == 0 && kill(getpid(), SIGWINCH) == 0);
    CHECK(signal(SIGWINCH, SIG_DFL) != SIG_ERR && sigpending(&pending) == 0);
    CHECK(!sigismember(&pending, SIGWINCH));
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

int main(void) {
    queue();
    pass_on();
    forgotten();
    waiting();
    many();
    crowd();
    printf("signals are in order\n");
    return 0;
}
