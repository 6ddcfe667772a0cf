/* The terminal of a session: its foreground group, reads and changes in the background, hang-up.
   Runs on Linux too, on a terminal of its own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "children.h"

static int terminal, pipes[2];

static volatile sig_atomic_t was_noted;

static void tell(char byte) {
    if (write(pipes[1], &byte, 1) != 1)
        _exit(90);
}

static void note(int signal) {
    was_noted = 1;
    tell((char)signal);
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_handler = note, .sa_flags = flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static int noted(void) {
    char byte;
    CHECK(read(pipes[0], &byte, 1) == 1);
    return byte;
}

/* A child in a group of its own that does this. */
static pid_t start(void (*what)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setpgid(0, 0);
        what();
        _exit(0);
    }
    setpgid(child, child);
    return child;
}

/* A process without a terminal, and one that takes it. */
static void taking(void) {
    pid_t group;
    pid_t child = fork();
    if (child == 0) {
        FAILS(tcgetpgrp(terminal), ENOTTY);
        FAILS(tcsetpgrp(terminal, getpgrp()), ENOTTY);
        FAILS(ioctl(terminal, TIOCGSID, &group), ENOTTY);
        FAILS(ioctl(terminal, TIOCNOTTY), ENOTTY);
        FAILS(ioctl(terminal, TIOCSCTTY, 0), EPERM);
        _exit(7);
    }
    ended_with(child, 7);
    CHECK(setsid() == getpid());
    CHECK(ioctl(terminal, TIOCSCTTY, 0) == 0 && ioctl(terminal, TIOCSCTTY, 0) == 0);
    CHECK(tcgetpgrp(terminal) == getpgrp());
    CHECK(ioctl(terminal, TIOCGSID, &group) == 0 && group == getpid());
    struct termios settings;
    CHECK(tcgetattr(terminal, &settings) == 0);
    CHECK((settings.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG));
    CHECK(settings.c_cc[VINTR] == 3 && settings.c_cc[VSUSP] == 26 && settings.c_cc[VQUIT] == 28);
    /* All of it is kept. */
    settings.c_cc[VINTR] = 'x';
    settings.c_lflag |= TOSTOP;
    CHECK(tcsetattr(terminal, TCSAFLUSH, &settings) == 0);
    memset(&settings, 0, sizeof settings);
    CHECK(tcgetattr(terminal, &settings) == 0);
    CHECK(settings.c_cc[VINTR] == 'x' && settings.c_lflag & TOSTOP);
    settings.c_cc[VINTR] = 3;
    settings.c_lflag &= ~TOSTOP;
    CHECK(tcsetattr(terminal, TCSANOW, &settings) == 0);
}

/* Which groups can be in the foreground. */
static void foreground(void) {
    FAILS(tcsetpgrp(terminal, -1), EINVAL);
    FAILS(tcsetpgrp(terminal, 1 << 21), ESRCH);
    FAILS(ioctl(terminal, TIOCSPGRP, (void *)8), EFAULT);
    pid_t other = fork();
    if (other == 0) {
        setsid();
        tell(1);
        /* It has no terminal, cannot take this one, and cannot change its foreground. */
        FAILS(tcgetpgrp(terminal), ENOTTY);
        FAILS(tcsetpgrp(terminal, getpgrp()), ENOTTY);
        FAILS(ioctl(terminal, TIOCSCTTY, 0), EPERM);
        if (is_cops()) {
            char byte;
            struct termios settings;
            FAILS(read(terminal, &byte, 1), EIO);
            CHECK(tcgetattr(terminal, &settings) == 0);
            FAILS(tcsetattr(terminal, TCSANOW, &settings), EIO);
        }
        pause();
    }
    CHECK(noted() == 1);
    FAILS(tcsetpgrp(terminal, other), EPERM);
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
    CHECK(tcgetpgrp(terminal) == getpgrp());
}

static void read_one(void) {
    char byte;
    _exit(read(terminal, &byte, 1) == -1 && errno == EIO ? 5 : 6);
}

static void set_foreground(void) {
    _exit(tcsetpgrp(terminal, getpgrp()) == 0 ? 5 : 6);
}

static void set_settings(void) {
    struct termios settings;
    tcgetattr(terminal, &settings);
    settings.c_cc[VSTART] ^= 1;
    _exit(tcsetattr(terminal, TCSANOW, &settings) == 0 ? 5 : 6);
}

static void write_one(void) {
    _exit(write(terminal, "\n", 1) == 1 ? 5 : 6);
}

static void set_stop_of_writers(int on) {
    struct termios settings;
    CHECK(tcgetattr(terminal, &settings) == 0);
    settings.c_lflag = on ? settings.c_lflag | TOSTOP : settings.c_lflag & ~TOSTOP;
    CHECK(tcsetattr(terminal, TCSANOW, &settings) == 0);
}

static void ignoring(int which, void (*what)(void)) {
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        signal(which, SIG_IGN);
        what();
    }
    setpgid(child, child);
    ended_with(child, 5);
    CHECK(tcsetpgrp(terminal, getpgrp()) == 0);
}

static void blocking(int which, void (*what)(void)) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, which);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t child = start(what);
    ended_with(child, 5);
    CHECK(tcsetpgrp(terminal, getpgrp()) == 0);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Reads and changes of a process in the background stop it, until it is in the foreground. */
static void background(void) {
    signal(SIGTTOU, SIG_IGN);
    int status;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        signal(SIGTTOU, SIG_DFL);
        read_one();
    }
    setpgid(child, child);
    stopped_by(child, SIGTTIN);
    /* It stops again, as long as it is in the background. */
    CHECK(kill(child, SIGCONT) == 0);
    stopped_by(child, SIGTTIN);
    CHECK(kill(-child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    signal(SIGTTOU, SIG_DFL);
    void (*changes[])(void) = {set_foreground, set_settings};
    for (int index = 0; index < 2; index++) {
        child = start(changes[index]);
        stopped_by(child, SIGTTOU);
        CHECK(kill(child, SIGCONT) == 0);
        stopped_by(child, SIGTTOU);
        CHECK(tcsetpgrp(terminal, child) == 0 && kill(child, SIGCONT) == 0);
        ended_with(child, 5);
        signal(SIGTTOU, SIG_IGN);
        CHECK(tcsetpgrp(terminal, getpgrp()) == 0);
        signal(SIGTTOU, SIG_DFL);
    }
    /* Writes are free, unless the settings say otherwise. */
    ended_with(start(write_one), 5);
    set_stop_of_writers(1);
    child = start(write_one);
    stopped_by(child, SIGTTOU);
    signal(SIGTTOU, SIG_IGN);
    set_stop_of_writers(0);
    signal(SIGTTOU, SIG_DFL);
    CHECK(kill(child, SIGCONT) == 0);
    ended_with(child, 5);
    /* Who ignores or blocks the signal may change, and cannot read. */
    signal(SIGTTOU, SIG_IGN);
    ignoring(SIGTTIN, read_one);
    ignoring(SIGTTOU, set_settings);
    ignoring(SIGTTOU, set_foreground);
    blocking(SIGTTIN, read_one);
    signal(SIGTTOU, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTTOU);
    sigprocmask(SIG_BLOCK, &set, NULL);
    ended_with(start(set_foreground), 5);
    CHECK(tcsetpgrp(terminal, getpgrp()) == 0);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void read_with_handler(void) {
    char byte;
    handle(SIGTTIN, 0);
    _exit(read(terminal, &byte, 1) == -1 && errno == EINTR ? 5 : 6);
}

/* A handler ends the call. */
static void handlers(void) {
    pid_t child = start(read_with_handler);
    CHECK(noted() == SIGTTIN);
    ended_with(child, 5);
}

/* A group that no process could make go on gets an error. */
static void orphans(void) {
    pid_t parent = fork();
    if (parent == 0) {
        pid_t job = fork();
        if (job == 0) {
            setpgid(0, 0);
            /* Until the parent has ended. */
            while (getppid() == getpgid(getppid()) || getppid() > 1)
                usleep(1000);
            char byte;
            int is_refused = read(terminal, &byte, 1) == -1 && errno == EIO;
            FAILS(tcsetpgrp(terminal, getpgrp()), ENOTTY);
            tell(is_refused ? 10 : 11);
            _exit(0);
        }
        _exit(0);
    }
    ended_with(parent, 0);
    CHECK(noted() == 10);
}

static void report_hangup(void) {
    handle(SIGHUP, SA_RESTART);
    was_noted = 0;
    tell(2);
    while (!was_noted)
        usleep(1000);
}

/* The end of the session's leader is told to the foreground, and the terminal is free. */
static void hangup(void) {
    pid_t child = start(report_hangup);
    CHECK(noted() == 2);
    signal(SIGTTOU, SIG_IGN);
    CHECK(tcsetpgrp(terminal, child) == 0);
    _exit(12);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    CHECK(pipe(pipes) == 0);
    int master = -1;
    if (is_cops()) {
        terminal = open("/dev/tty", O_RDWR);
    } else {
        master = posix_openpt(O_RDWR | O_NOCTTY);
        CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    }
    CHECK(terminal >= 0);
    for (int round = 0; round < 3; round++) {
        pid_t leader = fork();
        if (leader == 0) {
            taking();
            foreground();
            background();
            handlers();
            orphans();
            hangup();
        }
        ended_with(leader, 12);
        CHECK(noted() == SIGHUP);
        /* For the next round it is free; on Linux, this one is gone. */
        if (master >= 0)
            break;
    }
    puts("the terminal is in order");
    return 0;
}
