/* Process groups and sessions, signals to groups, stopped processes, and what a parent learns of
   them. Runs on Linux too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "children.h"
#include "free_pages.h"

static int data[2], ready[2];

static void open_pipes(void) {
    CHECK(pipe(data) == 0 && pipe(ready) == 0);
}

static void close_pipes(void) {
    for (int end = 0; end < 2; end++)
        CHECK(close(data[end]) == 0 && close(ready[end]) == 0);
}

static void is_ready(void) {
    if (write(ready[1], "r", 1) != 1)
        _exit(90);
}

static void await_ready(int count) {
    char byte;
    while (count-- > 0)
        CHECK(read(ready[0], &byte, 1) == 1);
}

/* A child that is in a group (0: its own, new one) and does this until it is killed. */
static pid_t start(void (*what)(void), pid_t group) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (group >= 0)
            setpgid(0, group);
        is_ready();
        what();
        _exit(0);
    }
    if (group >= 0)
        setpgid(child, group);
    await_ready(1);
    return child;
}

static void pause_for_ever(void) {
    sigset_t none;
    sigemptyset(&none);
    for (;;)
        sigsuspend(&none);
}

static void is_continued(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, WCONTINUED) == child);
    CHECK(WIFCONTINUED(status));
}

static void groups(void) {
    open_pipes();
    CHECK(getpgid(0) == getpgrp() && getpgid(getpid()) == getpgrp());
    CHECK(getsid(0) == getsid(getpid()));
    FAILS(getpgid(1 << 22), ESRCH);
    FAILS(getsid(1 << 22), ESRCH);
    FAILS(setpgid(0, -1), EINVAL);
    FAILS(setpgid(-5, 0), EINVAL);
    FAILS(setpgid(-5, 1), ESRCH);
    FAILS(setpgid(1 << 22, 0), ESRCH);
    FAILS(setpgid(getppid() ? getppid() : 1 << 22, 0), ESRCH);
    pid_t first = start(pause_for_ever, -1);
    CHECK(getpgid(first) == getpgrp() && getsid(first) == getsid(0));
    FAILS(setpgid(first, 1 << 21), EPERM);
    CHECK(setpgid(first, 0) == 0 && getpgid(first) == first);
    CHECK(setpgid(first, getpgrp()) == 0 && getpgid(first) == getpgrp());
    CHECK(setpgid(first, first) == 0);
    pid_t second = start(pause_for_ever, first);
    CHECK(getpgid(second) == first);
    /* In a session of its own, it is out of reach. */
    pid_t leader = fork();
    if (leader == 0) {
        pid_t me = getpid();
        CHECK(setsid() == me && getsid(0) == me && getpgrp() == me);
        FAILS(setsid(), EPERM);
        FAILS(setpgid(0, 0), EPERM);
        FAILS(setpgid(0, first), EPERM);
        is_ready();
        pause_for_ever();
    }
    await_ready(1);
    CHECK(getsid(leader) == leader);
    FAILS(setpgid(leader, leader), EPERM);
    FAILS(setpgid(second, leader), EPERM);
    CHECK(kill(-first, 0) == 0 && kill(-first, SIGTERM) == 0);
    ended_by(first, SIGTERM);
    ended_by(second, SIGTERM);
    FAILS(kill(-first, 0), ESRCH);
    FAILS(kill(-(1 << 21), SIGTERM), ESRCH);
    CHECK(kill(-leader, SIGKILL) == 0);
    ended_by(leader, SIGKILL);
    /* The leader of a group that has ended is not in the way. */
    first = start(pause_for_ever, 0);
    second = start(pause_for_ever, first);
    CHECK(kill(first, SIGKILL) == 0);
    ended_by(first, SIGKILL);
    pid_t third = start(pause_for_ever, first);
    CHECK(getpgid(third) == first && kill(-first, SIGKILL) == 0);
    ended_by(second, SIGKILL);
    ended_by(third, SIGKILL);
    close_pipes();
}

static volatile sig_atomic_t seen[65], last_code, last_status;
static void note(int signal, siginfo_t *about, void *context) {
    (void)context;
    seen[signal]++;
    last_code = about->si_code;
    last_status = about->si_status;
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART | flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

/* A process signals its own group: itself too, and last. */
static void own_group(void) {
    open_pipes();
    pid_t leader = fork();
    if (leader == 0) {
        CHECK(setpgid(0, 0) == 0);
        handle(SIGUSR1, 0);
        pid_t children[5];
        for (int index = 0; index < 5; index++)
            children[index] = start(pause_for_ever, -1);
        CHECK(kill(0, SIGUSR1) == 0 && seen[SIGUSR1] == 1);
        for (int index = 0; index < 5; index++) {
            int status;
            CHECK(waitpid(children[index], &status, 0) == children[index]);
        }
        CHECK(kill(0, SIGKILL) == 0);
        _exit(1);
    }
    /* The children have the handler too, and pause again: they end by another signal. */
    usleep(50000);
    CHECK(kill(-leader, SIGTERM) == 0);
    int status;
    CHECK(waitpid(leader, &status, 0) == leader && WIFSIGNALED(status));
    close_pipes();
}

static void waits(void) {
    open_pipes();
    int status;
    pid_t one = start(pause_for_ever, 0), two = start(pause_for_ever, one), own = start(pause_for_ever, -1);
    CHECK(waitpid(-one, &status, WNOHANG) == 0 && waitpid(0, &status, WNOHANG) == 0);
    FAILS(waitpid(-own, &status, WNOHANG), ECHILD);
    CHECK(kill(two, SIGKILL) == 0);
    CHECK(waitpid(-one, &status, 0) == two);
    CHECK(kill(own, SIGKILL) == 0);
    CHECK(waitpid(0, &status, 0) == own);
    FAILS(waitpid(0, &status, 0), ECHILD);
    siginfo_t about;
    memset(&about, 1, sizeof about);
    CHECK(waitid(P_PGID, one, &about, WEXITED | WNOHANG) == 0 && about.si_pid == 0 && about.si_signo == 0);
    FAILS(waitid(P_ALL, 0, &about, WNOHANG), EINVAL);
    FAILS(waitid(P_PID, 0, &about, WEXITED), EINVAL);
    FAILS(waitid(P_PID, 1 << 22, &about, WEXITED), ECHILD);
    CHECK(kill(one, SIGSTOP) == 0);
    CHECK(waitid(P_PID, one, &about, WSTOPPED | WNOWAIT) == 0);
    CHECK(about.si_pid == one && about.si_code == CLD_STOPPED && about.si_status == SIGSTOP);
    CHECK(about.si_signo == SIGCHLD);
    CHECK(waitid(P_PID, one, &about, WSTOPPED) == 0 && about.si_pid == one);
    CHECK(waitid(P_PID, one, &about, WSTOPPED | WNOHANG) == 0 && about.si_pid == 0);
    CHECK(kill(one, SIGCONT) == 0);
    CHECK(waitid(P_ALL, 0, &about, WCONTINUED) == 0);
    CHECK(about.si_pid == one && about.si_code == CLD_CONTINUED && about.si_status == SIGCONT);
    CHECK(kill(one, SIGTERM) == 0);
    CHECK(waitid(P_PID, one, &about, WEXITED | WNOWAIT) == 0 && about.si_code == CLD_KILLED);
    CHECK(about.si_status == SIGTERM);
    CHECK(waitid(P_PID, one, NULL, WEXITED) == 0);
    FAILS(waitid(P_ALL, 0, &about, WEXITED), ECHILD);
    close_pipes();
}

/* Threads that compute, and measure for how long they did not. */
enum { THREADS = 6, STOP_MS = 300 };
static atomic_int pauses_seen, begun;

static long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void *compute(void *unused) {
    int has_seen = 0;
    long last = now_ms();
    begun++;
    for (;;) {
        long now = now_ms();
        if (now - last >= STOP_MS && !has_seen) {
            has_seen = 1;
            pauses_seen++;
        }
        last = now;
    }
    return unused;
}

static void compute_and_report(void) {
    pthread_t thread;
    for (int index = 0; index < THREADS; index++)
        if (pthread_create(&thread, NULL, compute, NULL))
            _exit(91);
    while (begun != THREADS)
        usleep(1000);
    is_ready();
    while (pauses_seen != THREADS)
        usleep(1000);
    _exit(33);
}

static void *sleep_long(void *unused) {
    sleep(1000);
    return unused;
}

static void *count_and_sleep(void *unused) {
    for (;;) {
        usleep(20000);
        pauses_seen++;
    }
    return unused;
}

/* More threads become ready while it is stopped than are released at once. */
static void many_threads(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32768);
    pthread_t thread;
    for (int index = 0; index < 400; index++)
        if (pthread_create(&thread, &small, index % 4 ? count_and_sleep : sleep_long, NULL))
            _exit(91);
    is_ready();
    char byte;
    if (read(data[0], &byte, 1) != 1)
        _exit(92);
    for (int before = pauses_seen; pauses_seen < before + 2000;)
        usleep(1000);
    _exit(34);
}

static void stops(void) {
    open_pipes();
    int status;
    pid_t child = start(compute_and_report, 0);
    await_ready(1);
    CHECK(kill(child, SIGSTOP) == 0);
    stopped_by(child, SIGSTOP);
    CHECK(waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
    CHECK(kill(child, SIGSTOP) == 0);
    CHECK(waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
    usleep(2 * STOP_MS * 1000);
    CHECK(kill(child, SIGCONT) == 0);
    ended_with(child, 33);

    child = start(many_threads, 0);
    await_ready(1);
    CHECK(kill(child, SIGSTOP) == 0);
    stopped_by(child, SIGSTOP);
    usleep(100000);
    CHECK(write(data[1], "x", 1) == 1 && kill(child, SIGCONT) == 0);
    ended_with(child, 34);

    /* A call in flight completes, and the process learns of it when it goes on. */
    for (int is_sleep = 0; is_sleep < 2; is_sleep++) {
        child = fork();
        if (child == 0) {
            char byte = 0;
            is_ready();
            if (is_sleep)
                _exit(usleep(100000) == 0 ? 35 : 1);
            _exit(read(data[0], &byte, 1) == 1 && byte == 'y' ? 35 : 1);
        }
        await_ready(1);
        usleep(20000);
        CHECK(kill(child, SIGSTOP) == 0);
        stopped_by(child, SIGSTOP);
        if (!is_sleep)
            CHECK(write(data[1], "y", 1) == 1);
        usleep(200000);
        CHECK(waitpid(child, &status, WNOHANG) == 0);
        CHECK(kill(child, SIGCONT) == 0);
        ended_with(child, 35);
    }

    /* A stopped process can be killed; another fatal signal waits until it goes on. */
    child = start(pause_for_ever, 0);
    CHECK(kill(child, SIGTSTP) == 0);
    stopped_by(child, SIGTSTP);
    CHECK(kill(child, SIGTERM) == 0);
    usleep(20000);
    CHECK(waitpid(child, &status, WNOHANG) == 0);
    CHECK(kill(child, SIGKILL) == 0);
    ended_by(child, SIGKILL);
    child = start(pause_for_ever, 0);
    CHECK(kill(child, SIGTTIN) == 0);
    stopped_by(child, SIGTTIN);
    CHECK(kill(child, SIGTERM) == 0 && kill(child, SIGCONT) == 0);
    ended_by(child, SIGTERM);

    /* It stops itself. */
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        raise(SIGSTOP);
        raise(SIGTSTP);
        _exit(36);
    }
    stopped_by(child, SIGSTOP);
    CHECK(kill(child, SIGCONT) == 0);
    stopped_by(child, SIGTSTP);
    CHECK(kill(-child, SIGCONT) == 0);
    ended_with(child, 36);
    close_pipes();
}

/* What a child does with the signals that stop. */
static void handlers(void) {
    open_pipes();
    int status;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        handle(SIGTSTP, 0);
        handle(SIGCONT, 0);
        signal(SIGTTIN, SIG_IGN);
        sigset_t ttou;
        sigemptyset(&ttou);
        sigaddset(&ttou, SIGTTOU);
        sigprocmask(SIG_BLOCK, &ttou, NULL);
        is_ready();
        while (!seen[SIGTSTP])
            usleep(1000);
        is_ready();
        while (!seen[SIGCONT])
            usleep(1000);
        is_ready();
        /* SIGTTOU was blocked, waited, and was forgotten when SIGCONT came. */
        sigset_t waiting;
        sigpending(&waiting);
        CHECK(!sigismember(&waiting, SIGTTOU));
        raise(SIGTTOU);
        sigpending(&waiting);
        CHECK(sigismember(&waiting, SIGTTOU));
        is_ready();
        sigprocmask(SIG_UNBLOCK, &ttou, NULL);
        _exit(seen[SIGCONT] == 2 ? 37 : 1);
    }
    await_ready(1);
    CHECK(kill(child, SIGTTIN) == 0 && kill(child, SIGTTOU) == 0 && kill(child, SIGTSTP) == 0);
    await_ready(1);
    CHECK(waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    await_ready(2);
    stopped_by(child, SIGTTOU);
    CHECK(kill(child, SIGCONT) == 0);
    ended_with(child, 37);
    close_pipes();
}

/* The handler of SIGCONT runs before anything else of a process that goes on. */
static void handler_first(void) {
    enum { ROUNDS = 300 };
    pid_t child = fork();
    if (child == 0) {
        handle(SIGCONT, 0);
        for (int round = 1; round <= ROUNDS; round++) {
            raise(SIGSTOP);
            if (seen[SIGCONT] != round)
                _exit(94);
        }
        _exit(39);
    }
    for (int round = 1; round <= ROUNDS; round++) {
        stopped_by(child, SIGSTOP);
        CHECK(kill(child, SIGCONT) == 0);
    }
    ended_with(child, 39);
}

static void stop_every_other_time(int signal, siginfo_t *about, void *context) {
    note(signal, about, context);
    if (seen[SIGCONT] % 2 == 1)
        raise(SIGSTOP);
}

/* What a handler of SIGCONT does comes after that signal: a stop stays. */
static void handler_stops(void) {
    enum { ROUNDS = 1000 };
    open_pipes();
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = stop_every_other_time, .sa_flags = SA_SIGINFO};
        CHECK(sigaction(SIGCONT, &action, NULL) == 0);
        for (int round = 1; round <= ROUNDS; round++) {
            is_ready();
            while (seen[SIGCONT] < 2 * round)
                continue;
        }
        _exit(40);
    }
    for (int round = 1; round <= ROUNDS; round++) {
        await_ready(1);
        CHECK(kill(child, SIGCONT) == 0);
        stopped_by(child, SIGSTOP);
        CHECK(kill(child, SIGCONT) == 0);
    }
    ended_with(child, 40);
    close_pipes();
}

/* SIGCHLD tells of stops, unless it is not wanted. */
static void child_signals(void) {
    open_pipes();
    for (int quiet = 0; quiet < 2; quiet++) {
        seen[SIGCHLD] = 0;
        handle(SIGCHLD, quiet ? SA_NOCLDSTOP : 0);
        pid_t child = start(pause_for_ever, 0);
        CHECK(kill(child, SIGSTOP) == 0);
        stopped_by(child, SIGSTOP);
        while (!quiet && !seen[SIGCHLD])
            usleep(1000);
        CHECK(quiet || (last_code == CLD_STOPPED && last_status == SIGSTOP));
        CHECK(kill(child, SIGCONT) == 0);
        is_continued(child);
        while (!quiet && seen[SIGCHLD] < 2)
            usleep(1000);
        CHECK(quiet || (last_code == CLD_CONTINUED && last_status == SIGCONT));
        CHECK(!quiet || seen[SIGCHLD] == 0);
        CHECK(kill(child, SIGKILL) == 0);
        ended_by(child, SIGKILL);
        while (seen[SIGCHLD] < (quiet ? 1 : 3))
            usleep(1000);
        CHECK(last_code == CLD_KILLED);
    }
    signal(SIGCHLD, SIG_DFL);
    close_pipes();
}

static void on_hangup(int signal) {
    (void)signal;
    if (write(data[1], "h", 1) != 1)
        _exit(93);
}

/* A group that no shell can make go on does not stop, and one that loses its shell goes on. */
static void orphans(void) {
    open_pipes();
    char byte;
    pid_t shell = fork();
    if (shell == 0) {
        setsid();
        /* Its own group has no parent in the session. */
        raise(SIGTSTP);
        raise(SIGTTIN);
        pid_t job = fork();
        if (job == 0) {
            setpgid(0, 0);
            signal(SIGHUP, on_hangup);
            raise(SIGTSTP);
            /* Orphaned now. */
            raise(SIGTSTP);
            if (write(data[1], "o", 1) != 1)
                _exit(93);
            _exit(0);
        }
        stopped_by(job, SIGTSTP);
        _exit(38);
    }
    ended_with(shell, 38);
    CHECK(read(data[0], &byte, 1) == 1 && byte == 'h');
    CHECK(read(data[0], &byte, 1) == 1 && byte == 'o');
    close_pipes();
}

static pid_t member_of(pid_t group) {
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    CHECK(child > 0 && (group == 0 || setpgid(child, group) == 0));
    return child;
}

/* The same of groups with as many members as are examined. */
static void large_orphans(void) {
    enum { MEMBERS = 32 };
    CHECK(pipe(data) == 0);
    pid_t shell = fork();
    if (shell == 0) {
        pid_t members[MEMBERS];
        setsid();
        for (int i = 1; i < MEMBERS; i++)
            members[i] = member_of(0);
        CHECK(kill(0, SIGTSTP) == 0);
        usleep(20000);
        CHECK(waitpid(-1, NULL, WUNTRACED | WNOHANG) == 0);
        for (int i = 1; i < MEMBERS; i++)
            CHECK(kill(members[i], SIGKILL) == 0 && waitpid(members[i], NULL, 0) == members[i]);
        members[0] = member_of(0);
        CHECK(setpgid(members[0], members[0]) == 0);
        for (int i = 1; i < MEMBERS; i++)
            members[i] = member_of(members[0]);
        CHECK(kill(members[MEMBERS - 1], SIGSTOP) == 0);
        stopped_by(members[MEMBERS - 1], SIGSTOP);
        _exit(39);
    }
    char byte;
    CHECK(close(data[1]) == 0);
    ended_with(shell, 39);
    /* All of them have ended. */
    CHECK(read(data[0], &byte, 1) == 0 && close(data[0]) == 0);
}

/* Processes that move between groups all the time, stop and continue each other, and fork. */
static void storm(void) {
    open_pipes();
    pid_t head = fork();
    if (head == 0) {
        setpgid(0, 0);
        pid_t family[6];
        for (int index = 0; index < 6; index++) {
            family[index] = fork();
            if (family[index] == 0) {
                unsigned chance = getpid() * 2654435761u;
                for (;;) {
                    chance = chance * 1664525 + 1013904223;
                    pid_t other = family[(chance >> 8) % (index + 1)];
                    switch (chance >> 28) {
                    case 0:
                    case 1:
                    case 2:
                        setpgid(0, (chance >> 20) % 2 ? 0 : head);
                        break;
                    case 3:
                    case 4:
                        setpgid(0, other ? other : 0);
                        break;
                    case 5: {
                        pid_t child = fork();
                        if (child == 0)
                            _exit(0);
                        kill(child, SIGSTOP);
                        setpgid(child, child);
                        kill(-child, SIGCONT);
                        waitpid(child, NULL, 0);
                        break;
                    }
                    default:
                        waitpid(0, NULL, WNOHANG | WUNTRACED | WCONTINUED);
                    }
                }
            }
        }
        is_ready();
        for (unsigned round = 0;; round++) {
            pid_t one = family[round % 6];
            kill(one, SIGSTOP);
            setpgid(one, round % 3 ? one : head);
            if (round % 4)
                waitpid(-1, NULL, WUNTRACED | WCONTINUED | WNOHANG);
            kill(round % 5 ? one : -one, SIGCONT);
            kill(one, SIGCONT);
        }
    }
    await_ready(1);
    usleep(400000);
    /* The head may be anywhere; its family lives on in several groups. */
    if (access("/etc/init", F_OK) == 0)
        kill(-1, SIGKILL);
    else
        kill(head, SIGKILL);
    ended_by(head, SIGKILL);
    close_pipes();
}

static void crowd(int count) {
    open_pipes();
    pid_t leader = start(pause_for_ever, 0);
    for (int index = 1; index < count; index++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            setpgid(0, leader);
            is_ready();
            pause_for_ever();
        }
    }
    await_ready(count - 1);
    CHECK(kill(-leader, SIGSTOP) == 0);
    for (int index = 0; index < count; index++) {
        int status;
        CHECK(waitpid(-leader, &status, WUNTRACED) > 0 && WIFSTOPPED(status));
    }
    CHECK(kill(-leader, SIGCONT) == 0);
    CHECK(kill(-leader, SIGKILL) == 0);
    for (int index = 0; index < count; index++) {
        int status;
        CHECK(waitpid(-leader, &status, 0) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    FAILS(waitpid(-1, NULL, 0), ECHILD);
    close_pipes();
}

/* As many members as the quota permits, all ended by one signal, in portions. */
static void a_large_group(void) {
    enum { MOST = 2000 };
    int count = 0, ended = 0, status;
    pid_t leader = 0;
    for (; count < MOST; count++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0)
            for (;;)
                pause();
        leader = leader ? leader : child;
        CHECK(setpgid(child, leader) == 0);
    }
    CHECK(count >= 500 && kill(-leader, SIGTERM) == 0);
    while (wait(&status) > 0)
        ended += WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
    CHECK(ended == count && kill(-leader, 0) == -1 && errno == ESRCH);
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int processes = count > 1 ? atoi(arguments[1]) : 60;
    groups();
    own_group();
    waits();
    stops();
    handlers();
    handler_first();
    handler_stops();
    child_signals();
    orphans();
    large_orphans();
    crowd(processes);
    long before = free_pages();
    for (int round = 0; round < 2; round++) {
        crowd(processes);
        stops();
        if (access("/etc/init", F_OK) == 0)
            storm();
    }
    long lost = before - free_pages();
    if (access("/etc/init", F_OK) == 0) {
        /* Orphans may be on their way out. */
        for (int round = 0; round < 100 && lost > 64; round++) {
            usleep(10000);
            lost = before - free_pages();
        }
        if (lost > 64)
            printf("%ld pages are lost\n", lost);
        CHECK(lost <= 64);
    }
    a_large_group();
    puts("jobs are in order");
    return 0;
}
