/* SO_RCVTIMEO and SO_SNDTIMEO of pairs and of TCP over loopback: what each call does at the end of
   the time, what a signal makes of it, which sockets share or inherit a timeout. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#include "children.h"

#define SHORT 100  /* milliseconds: a wait that is to end */
#define LONG 60000 /* milliseconds: a wait that something else is to end */
#define MUCH (16 << 20)

static char bytes[MUCH];

static long now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static int set(int fd, int name, long seconds, long microseconds) {
    struct timeval value = {seconds, microseconds};
    return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

static void limit(int fd, int name, long milliseconds) {
    CHECK(set(fd, name, milliseconds / 1000, milliseconds % 1000 * 1000) == 0);
}

/* Whether the timeout is this one. */
static int is_set(int fd, int name, long seconds, long microseconds) {
    struct timeval value = {-1, -1};
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 && length == sizeof value);
    return value.tv_sec == seconds && value.tv_usec == microseconds;
}

/* A call that must take at least the short time, and then return this. */
static long began;
#define TAKES(what, expected) \
    do { \
        began = now(); \
        errno = 0; \
        long result = (long)(what); \
        long taken = now() - began; \
        if (result != (expected) || taken < SHORT * 1000) { \
            printf("line %d: %s is %ld, errno %d, after %ld\n", __LINE__, #what, result, errno, \
                   taken); \
            FAULT; \
        } \
    } while (0)
#define TIMES_OUT(what, error) \
    do { \
        TAKES(what, -1); \
        CHECK(errno == (error)); \
    } while (0)

static void make_pair(int ends[2]) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
}

/* What is written to one end of a pair is at the other one at once. */
static int is_pair(int fd) {
    int domain;
    socklen_t length = sizeof domain;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0);
    return domain == AF_UNIX;
}

static int listening(struct sockaddr_in *address, int backlog) {
    socklen_t length = sizeof *address;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(server >= 0 && bind(server, (void *)address, sizeof *address) == 0);
    CHECK(listen(server, backlog) == 0);
    CHECK(getsockname(server, (void *)address, &length) == 0);
    return server;
}

static int connected(struct sockaddr_in *address) {
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(client >= 0 && connect(client, (void *)address, sizeof *address) == 0);
    return client;
}

/* Two ends of a connection, with small buffers where that can be chosen. */
static void make_connection(int ends[2]) {
    struct sockaddr_in address;
    int server = listening(&address, 10), size = 65536;
    CHECK(setsockopt(server, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    ends[0] = connected(&address);
    ends[1] = accept(server, NULL, NULL);
    CHECK(ends[1] >= 0 && close(server) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
}

static void close_both(int ends[2]) { CHECK(close(ends[0]) == 0 && close(ends[1]) == 0); }

static void options(int fd) {
    const int names[] = {SO_RCVTIMEO, SO_SNDTIMEO};
    for (int i = 0; i < 2; i++) {
        int name = names[i], other = names[1 - i];
        struct timeval value = {9, 9};
        socklen_t length = 8;
        CHECK(is_set(fd, name, 0, 0));
        CHECK(set(fd, name, 3, 500000) == 0 && is_set(fd, name, 3, 500000));
        CHECK(is_set(fd, other, 0, 0));
        FAILS(set(fd, name, 1, 1000000), EDOM);
        FAILS(set(fd, name, 1, -1), EDOM);
        FAILS(set(fd, name, -1, -1), EDOM);
        FAILS(setsockopt(fd, SOL_SOCKET, name, &value, 8), EINVAL);
        FAILS(setsockopt(fd, SOL_SOCKET, name, &value, 15), EINVAL);
        FAILS(setsockopt(fd, SOL_SOCKET, name, (void *)8, sizeof value), EFAULT);
        FAILS(getsockopt(fd, SOL_SOCKET, name, (void *)8, &length), EFAULT);
        CHECK(is_set(fd, name, 3, 500000));
        /* As much as there is room for. */
        CHECK(getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 && length == 8);
        CHECK(value.tv_sec == 3 && value.tv_usec == 9);
        length = 64;
        char room[64];
        CHECK(getsockopt(fd, SOL_SOCKET, name, room, &length) == 0 && length == sizeof value);
        /* More than can be counted is no limit; less than nothing is reported as none. */
        CHECK(set(fd, name, INT64_MAX, 999999) == 0 && is_set(fd, name, 0, 0));
        CHECK(set(fd, name, 3, 0) == 0 && is_set(fd, name, 3, 0));
        CHECK(set(fd, name, -1, 0) == 0 && is_set(fd, name, 0, 0));
        CHECK(set(fd, name, 3, 0) == 0);
        CHECK(set(fd, name, 0, 0) == 0 && is_set(fd, name, 0, 0));
    }
}

static void no_socket(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    FAILS(set(ends[0], SO_RCVTIMEO, 1, 0), ENOTSOCK);
    FAILS(set(99, SO_RCVTIMEO, 1, 0), EBADF);
    close_both(ends);
}

/* Every call that receives, on an empty socket. */
static void receives(int ends[2]) {
    char byte, room[100];
    struct iovec parts[2] = {{room, 50}, {room + 50, 50}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    int fd = ends[1];
    limit(fd, SO_RCVTIMEO, SHORT);
    TIMES_OUT(read(fd, &byte, 1), EAGAIN);
    TIMES_OUT(readv(fd, parts, 2), EAGAIN);
    TIMES_OUT(recv(fd, room, sizeof room, 0), EAGAIN);
    TIMES_OUT(recv(fd, room, sizeof room, MSG_PEEK), EAGAIN);
    TIMES_OUT(recv(fd, room, sizeof room, MSG_WAITALL), EAGAIN);
    TIMES_OUT(recvmsg(fd, &message, 0), EAGAIN);
    TIMES_OUT(read(fd, bytes, MUCH), EAGAIN);
    /* Some of it: that is the result. */
    CHECK(write(ends[0], "0123456789", 10) == 10);
    TAKES(recv(fd, room, sizeof room, MSG_WAITALL), 10);
    CHECK(memcmp(room, "0123456789", 10) == 0);
    CHECK(write(ends[0], "abcdefghij", 10) == 10);
    TAKES(recvmsg(fd, &message, MSG_WAITALL), 10);
    CHECK(memcmp(room, "abcdefghij", 10) == 0);
    /* What is there is received at once, also if the time is over. */
    CHECK(set(fd, SO_RCVTIMEO, -1, 0) == 0);
    FAILS(read(fd, &byte, 1), EAGAIN);
    FAILS(recv(fd, room, sizeof room, MSG_WAITALL), EAGAIN);
    if (is_pair(fd)) {
        CHECK(write(ends[0], bytes, 40000) == 40000);
        CHECK(read(fd, bytes, 60000) == 40000);
    }
    /* The other direction and the other end have no limit. */
    CHECK(is_set(fd, SO_SNDTIMEO, 0, 0) && is_set(ends[0], SO_RCVTIMEO, 0, 0));
    limit(fd, SO_RCVTIMEO, 0);
}

/* Reads so many bytes, and there are no more. */
static void drain(int fd, long left) {
    while (left > 0) {
        long count = read(fd, bytes, left < MUCH ? left : MUCH);
        CHECK(count > 0);
        left -= count;
    }
    FAILS(recv(fd, bytes, 1, MSG_DONTWAIT), EAGAIN);
}

/* Writes more than fits by this way; returns how much was written. */
enum way { WRITE, WRITEV, SEND, SENDMSG };
static long write_much(int fd, enum way way) {
    struct iovec parts[2] = {{bytes, MUCH / 2}, {bytes + MUCH / 2, MUCH / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    switch (way) {
    case WRITE: return write(fd, bytes, MUCH);
    case WRITEV: return writev(fd, parts, 2);
    case SEND: return send(fd, bytes, MUCH, 0);
    default: return sendmsg(fd, &message, 0);
    }
}

static void sends(int ends[2]) {
    int fd = ends[0];
    limit(fd, SO_SNDTIMEO, SHORT);
    for (enum way way = WRITE; way <= SENDMSG; way++) {
        began = now();
        long sent = write_much(fd, way);
        CHECK(sent > 0 && sent < MUCH && now() - began >= SHORT * 1000);
        /* TCP may have moved some of it on, so that there is room again. */
        for (;;) {
            began = now();
            long more = write_much(fd, way);
            CHECK(now() - began >= SHORT * 1000);
            if (more < 0)
                break;
            sent += more;
        }
        CHECK(errno == EAGAIN);
        drain(ends[1], sent);
    }
    /* The time is over: as much as there is room for. */
    CHECK(set(fd, SO_SNDTIMEO, -1, 0) == 0);
    CHECK(write(fd, "x", 1) == 1);
    drain(ends[1], 1);
    limit(fd, SO_SNDTIMEO, 0);
}

/* A call that does not wait takes no time, and one for which something happens ends then. */
static void *later(void *argument) {
    usleep(50000);
    CHECK(write(*(int *)argument, "late", 4) == 4);
    return NULL;
}

static void in_time(int ends[2]) {
    pthread_t thread;
    char room[10];
    limit(ends[1], SO_RCVTIMEO, LONG);
    began = now();
    FAILS(recv(ends[1], room, 10, MSG_DONTWAIT), EAGAIN);
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    FAILS(read(ends[1], room, 10), EAGAIN);
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    CHECK(pthread_create(&thread, NULL, later, ends) == 0);
    CHECK(read(ends[1], room, 10) == 4 && memcmp(room, "late", 4) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(write(ends[0], "last", 4) == 4 && shutdown(ends[0], SHUT_WR) == 0);
    CHECK(recv(ends[1], room, 10, MSG_WAITALL) == 4 && read(ends[1], room, 10) == 0);
    CHECK(now() - began < LONG * 1000L);
}

/* A timeout belongs to the socket. */
static void shared(void) {
    int ends[2], copy;
    char byte;
    make_pair(ends);
    copy = dup(ends[0]);
    limit(copy, SO_RCVTIMEO, SHORT);
    CHECK(is_set(ends[0], SO_RCVTIMEO, 0, SHORT * 1000));
    CHECK(is_set(ends[1], SO_RCVTIMEO, 0, 0));
    TIMES_OUT(read(ends[0], &byte, 1), EAGAIN);
    pid_t child = fork();
    if (child == 0) {
        TIMES_OUT(read(ends[0], &byte, 1), EAGAIN);
        limit(ends[0], SO_SNDTIMEO, 2500);
        _exit(0);
    }
    ended_with(child, 0);
    CHECK(is_set(copy, SO_SNDTIMEO, 2, 500000) && close(copy) == 0);
    close_both(ends);
}

static void accepts(void) {
    struct sockaddr_in address;
    char byte;
    int server = listening(&address, 10);
    limit(server, SO_RCVTIMEO, SHORT);
    TIMES_OUT(accept(server, NULL, NULL), EAGAIN);
    TIMES_OUT(accept4(server, NULL, NULL, SOCK_CLOEXEC), EAGAIN);
    limit(server, SO_SNDTIMEO, 2500);
    int client = connected(&address), peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    /* A connection inherits the timeouts, and has its own from then on. */
    CHECK(is_set(peer, SO_RCVTIMEO, 0, SHORT * 1000) && is_set(peer, SO_SNDTIMEO, 2, 500000));
    CHECK(is_set(client, SO_RCVTIMEO, 0, 0) && is_set(client, SO_SNDTIMEO, 0, 0));
    limit(server, SO_RCVTIMEO, LONG);
    TIMES_OUT(read(peer, &byte, 1), EAGAIN);
    CHECK(close(client) == 0 && close(peer) == 0 && close(server) == 0);
}

/* The server has accepted none, and its backlog is full. */
static void connects(void) {
    struct sockaddr_in address;
    int server = listening(&address, 0), clients[8], count = 0, result = 0;
    while (result == 0 && count < 8) {
        int client = clients[count++] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(client >= 0);
        limit(client, SO_SNDTIMEO, SHORT);
        began = now();
        result = connect(client, (void *)&address, sizeof address);
    }
    CHECK(result == -1 && errno == EINPROGRESS && now() - began >= SHORT * 1000);
    TIMES_OUT(connect(clients[count - 1], (void *)&address, sizeof address), EALREADY);
    CHECK(fcntl(clients[count - 1], F_SETFL, O_NONBLOCK) == 0);
    FAILS(connect(clients[count - 1], (void *)&address, sizeof address), EALREADY);
    struct pollfd one = {clients[count - 1], POLLOUT, 0};
    CHECK(poll(&one, 1, 0) == 0);
    /* It is still being established. */
    CHECK(accept(server, NULL, NULL) >= 0);
    CHECK(poll(&one, 1, LONG) == 1 && one.revents == POLLOUT);
    CHECK(connect(clients[count - 1], (void *)&address, sizeof address) == 0);
    FAILS(connect(clients[count - 1], (void *)&address, sizeof address), EISCONN);
    while (count > 0)
        CHECK(close(clients[--count]) == 0);
    CHECK(close(server) == 0);
}

/* Sends a signal to the first thread again and again: one arrives while it waits. */
struct sender {
    pthread_t target, thread;
    int signal, times;
    int to; /* what the last one is followed by: a byte to this socket; -1: nothing */
    volatile int is_enough;
};

static volatile int handled;
static void on_signal(int signal) { handled += signal == SIGUSR1; }

static void *send_signals(void *argument) {
    struct sender *sender = argument;
    for (int i = 0; i < sender->times && !sender->is_enough; i++) {
        usleep(5000);
        CHECK(pthread_kill(sender->target, sender->signal) == 0);
    }
    if (sender->to >= 0)
        CHECK(write(sender->to, "!", 1) == 1);
    return NULL;
}

static void start(struct sender *sender, int signal, int times, int to) {
    *sender = (struct sender){.target = pthread_self(), .signal = signal, .times = times, .to = to};
    CHECK(pthread_create(&sender->thread, NULL, send_signals, sender) == 0);
}

static void stop(struct sender *sender) {
    sender->is_enough = 1;
    CHECK(pthread_join(sender->thread, NULL) == 0);
}

/* A call that signals must interrupt, and that returns this. */
#define INTERRUPTED(what, expected) \
    do { \
        struct sender sender; \
        start(&sender, SIGUSR1, 10000, -1); \
        errno = 0; \
        long result = (long)(what); \
        int error = errno; \
        stop(&sender); \
        if (result != (expected) || (result < 0 && error != EINTR)) { \
            printf("line %d: %s is %ld, errno %d\n", __LINE__, #what, result, error); \
            FAULT; \
        } \
    } while (0)

/* A write that signals interrupt has written something, until there is no more room. */
static long write_until_it_fails(int fd) {
    long result;
    while ((result = write(fd, bytes, MUCH)) > 0)
        CHECK(result < MUCH);
    return result;
}

static void signals(void (*make)(int[2])) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sockaddr_in address;
    struct sender sender;
    char room[100];
    int ends[2], server = listening(&address, 10);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    make(ends);
    /* Without a timeout, the call is made again. */
    handled = 0;
    start(&sender, SIGUSR1, 20, ends[0]);
    CHECK(read(ends[1], room, 1) == 1 && handled > 0);
    stop(&sender);
    /* With one it is not, whatever the handler says. */
    limit(ends[1], SO_RCVTIMEO, LONG);
    limit(server, SO_RCVTIMEO, LONG);
    INTERRUPTED(read(ends[1], room, 1), -1);
    INTERRUPTED(recv(ends[1], room, 100, 0), -1);
    INTERRUPTED(recv(ends[1], room, 100, MSG_WAITALL), -1);
    INTERRUPTED(accept(server, NULL, NULL), -1);
    CHECK(write(ends[0], "0123456789", 10) == 10);
    INTERRUPTED(recv(ends[1], room, 100, MSG_WAITALL), 10);
    /* Only the direction with a timeout counts. */
    limit(ends[1], SO_RCVTIMEO, 0);
    limit(ends[1], SO_SNDTIMEO, LONG);
    handled = 0;
    start(&sender, SIGUSR1, 20, ends[0]);
    CHECK(read(ends[1], room, 1) == 1 && handled > 0);
    stop(&sender);
    /* A signal without an effect interrupts nothing. */
    limit(ends[1], SO_RCVTIMEO, LONG);
    start(&sender, SIGURG, 20, ends[0]);
    CHECK(read(ends[1], room, 1) == 1);
    stop(&sender);
    CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    start(&sender, SIGUSR2, 20, ends[0]);
    CHECK(read(ends[1], room, 1) == 1);
    stop(&sender);
    limit(ends[0], SO_SNDTIMEO, LONG);
    INTERRUPTED(write_until_it_fails(ends[0]), -1);
    INTERRUPTED(write_until_it_fails(ends[0]), -1);
    close_both(ends);
    CHECK(close(server) == 0);
}

/* Many threads wait for one socket; each byte reaches one of them, or stays. */
enum { THREADS = 100 };
static int common[2];
static void *read_one(void *argument) {
    (void)argument;
    char byte;
    long began_here = now(), count = read(common[1], &byte, 1);
    if (count == 1)
        return (void *)1;
    CHECK(count == -1 && errno == EAGAIN);
    /* Linux counts a tick too much when a thread is woken for a byte that another one gets. */
    CHECK(now() - began_here >= SHORT * 1000 || !is_cops());
    return NULL;
}

static void many(void) {
    pthread_t threads[THREADS];
    long received = 0, left;
    void *result;
    make_pair(common);
    limit(common[1], SO_RCVTIMEO, SHORT);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, read_one, NULL) == 0);
    /* Some of them at about the time at which the threads stop waiting. */
    for (int i = 0; i < THREADS / 2; i++) {
        usleep(3000);
        CHECK(write(common[0], "x", 1) == 1);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], &result) == 0);
        received += (long)result;
    }
    left = recv(common[1], bytes, THREADS, MSG_DONTWAIT);
    CHECK(received + (left > 0 ? left : 0) == THREADS / 2);
    close_both(common);
}

static void each(void (*make)(int[2])) {
    int ends[2];
    make(ends);
    options(ends[0]);
    receives(ends);
    sends(ends);
    in_time(ends);
    close_both(ends);
    signals(make);
}

int main(void) {
    no_socket();
    shared();
    each(make_pair);
    each(make_connection);
    accepts();
    connects();
    many();
    puts("timeouts are in order");
}
