/* Sockets as programs with event loops use them: pairs, TCP over loopback, flags, options, poll and
 * epoll on them; names of threads. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "descriptors.h"
#include "times.h"

/* Waits for one of these events. */
static int next_events(int fd, int asked) {
    struct pollfd one = {fd, asked, 0};
    CHECK(poll(&one, 1, 10000) == 1);
    return one.revents;
}

static volatile int pipes_broken;
static void on_broken_pipe(int signal) { pipes_broken += signal == SIGPIPE; }

static void pairs(void) {
    int ends[2];
    char bytes[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    CHECK(fcntl(ends[0], F_GETFD) == FD_CLOEXEC && fcntl(ends[1], F_GETFL) == (O_RDWR | O_NONBLOCK));
    CHECK(events_of(ends[0], POLLIN | POLLOUT) == POLLOUT);
    CHECK(write(ends[0], "to one", 6) == 6 && send(ends[1], "to the other", 12, MSG_NOSIGNAL) == 12);
    CHECK(events_of(ends[1], POLLIN | POLLOUT) == (POLLIN | POLLOUT));
    CHECK(recv(ends[1], bytes, 64, 0) == 6 && memcmp(bytes, "to one", 6) == 0);
    CHECK(read(ends[0], bytes, 64) == 12 && memcmp(bytes, "to the other", 12) == 0);
    FAILS(recv(ends[0], bytes, 64, 0), EAGAIN);
    CHECK(option_of(ends[0], SOL_SOCKET, SO_ERROR) == 0);
    CHECK(option_of(ends[0], SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
    CHECK(option_of(ends[0], SOL_SOCKET, SO_DOMAIN) == AF_UNIX);
    /* One direction, then both. */
    CHECK(write(ends[0], "last", 4) == 4 && shutdown(ends[0], SHUT_WR) == 0);
    CHECK(events_of(ends[1], POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
    CHECK(read(ends[1], bytes, 64) == 4 && read(ends[1], bytes, 64) == 0);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(write(ends[1], "back", 4) == 4 && read(ends[0], bytes, 64) == 4);
    CHECK(close(ends[0]) == 0);
    CHECK(events_of(ends[1], POLLIN) == (POLLIN | POLLHUP));
    CHECK(pipes_broken == 0);
    FAILS(send(ends[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(pipes_broken == 0);
    FAILS(send(ends[1], "x", 1, 0), EPIPE);
    CHECK(pipes_broken == 1 && close(ends[1]) == 0);
    FAILS(socketpair(AF_INET, SOCK_STREAM, 0, ends), is_cops() ? EAFNOSUPPORT : EOPNOTSUPP);
    FAILS(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, 8L), EFAULT);
}

static int server_socket(struct sockaddr_in *address) {
    socklen_t length = sizeof *address;
    int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    CHECK(server >= 0 && setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(events_of(server, POLLIN | POLLOUT) == (POLLOUT | POLLHUP));
    CHECK(bind(server, (void *)address, sizeof *address) == 0 && listen(server, 100) == 0);
    CHECK(getsockname(server, (void *)address, &length) == 0 && address->sin_port != 0);
    CHECK(option_of(server, SOL_SOCKET, SO_ACCEPTCONN) == 1);
    CHECK(events_of(server, POLLIN | POLLOUT) == 0);
    return server;
}

static void connections(void) {
    struct sockaddr_in address;
    char bytes[4096];
    int server = server_socket(&address), on = 1;
    FAILS(accept(server, NULL, NULL), EAGAIN);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int begun = connect(client, (void *)&address, sizeof address);
    CHECK(begun == 0 || errno == EINPROGRESS);
    CHECK(next_events(client, POLLOUT) == POLLOUT && option_of(client, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(next_events(server, POLLIN) == POLLIN);
    int peer = accept4(server, NULL, NULL, SOCK_NONBLOCK);
    CHECK(peer >= 0 && events_of(peer, POLLIN | POLLOUT) == POLLOUT);
    CHECK(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(option_of(client, IPPROTO_TCP, TCP_NODELAY) == 1);
    CHECK(option_of(client, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
    CHECK(setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    FAILS(recv(peer, bytes, 10, 0), EAGAIN);
    FAILS(recv(peer, bytes, 10, MSG_DONTWAIT), EAGAIN);
    CHECK(send(client, "request", 7, MSG_NOSIGNAL) == 7);
    CHECK(next_events(peer, POLLIN) == POLLIN);
    CHECK(recv(peer, bytes, 10, MSG_PEEK) == 7 && recv(peer, bytes, 10, 0) == 7);
    CHECK(memcmp(bytes, "request", 7) == 0);
    /* As much as fits, then room again. */
    memset(bytes, 'z', sizeof bytes);
    long sent = 0, received = 0, count;
    while ((count = send(client, bytes, sizeof bytes, 0)) > 0)
        sent += count;
    CHECK(errno == EAGAIN && (events_of(client, POLLOUT) & POLLOUT) == 0);
    while (received < sent) {
        CHECK(next_events(peer, POLLIN) == POLLIN);
        while ((count = recv(peer, bytes, sizeof bytes, 0)) > 0)
            received += count;
        CHECK(count == -1 && errno == EAGAIN);
    }
    CHECK(received == sent && next_events(client, POLLOUT) == POLLOUT);
    /* The end of one direction, then of both. */
    CHECK(shutdown(client, SHUT_WR) == 0);
    CHECK(next_events(peer, POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
    CHECK(recv(peer, bytes, 10, 0) == 0 && send(peer, "answer", 6, 0) == 6 && close(peer) == 0);
    CHECK(next_events(client, POLLIN) & POLLIN);
    CHECK(recv(client, bytes, 10, 0) == 6);
    CHECK(next_events(client, POLLHUP) & POLLHUP);
    CHECK(recv(client, bytes, 10, 0) == 0 && close(client) == 0 && close(server) == 0);
    /* Nothing listens. */
    client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    begun = connect(client, (void *)&address, sizeof address);
    if (begun == -1 && errno == EINPROGRESS) {
        CHECK(next_events(client, POLLOUT) & POLLOUT);
        CHECK(option_of(client, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
        CHECK(option_of(client, SOL_SOCKET, SO_ERROR) == 0);
        FAILS(connect(client, (void *)&address, sizeof address), ECONNABORTED);
    } else {
        CHECK(begun == -1 && errno == ECONNREFUSED);
    }
    CHECK(close(client) == 0);
}

/* A socket that connects again: after a refusal, while it is established, and afterwards. */
static void connect_again(void) {
    struct sockaddr_in address, own, other;
    socklen_t length = sizeof other;
    int on = 1;
    CHECK(close(server_socket(&address)) == 0 && close(server_socket(&own)) == 0);
    /* A call that waits reports the refusal itself. The port of the socket stays. */
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(client, (void *)&own, sizeof own) == 0);
    FAILS(connect(client, (void *)&address, sizeof address), ECONNREFUSED);
    CHECK(option_of(client, SOL_SOCKET, SO_ERROR) == 0);
    FAILS(connect(client, (void *)&address, sizeof address), ECONNREFUSED);
    /* One that does not wait is refused later, which the next call reports. */
    int quick = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(quick, (void *)&address, sizeof address) == -1 && errno == EINPROGRESS) {
        CHECK(next_events(quick, POLLOUT) & POLLOUT);
        FAILS(connect(quick, (void *)&address, sizeof address), ECONNREFUSED);
    }
    CHECK(option_of(quick, SOL_SOCKET, SO_ERROR) == 0);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(server, (void *)&address, sizeof address) == 0 && listen(server, 10) == 0);
    CHECK(connect(client, (void *)&address, sizeof address) == 0);
    FAILS(connect(client, (void *)&address, sizeof address), EISCONN);
    CHECK(getsockname(client, (void *)&other, &length) == 0 && other.sin_port == own.sin_port);
    if (connect(quick, (void *)&address, sizeof address) == -1) {
        CHECK(errno == EINPROGRESS && next_events(quick, POLLOUT) == POLLOUT);
        CHECK(connect(quick, (void *)&address, sizeof address) == 0);
    }
    FAILS(connect(quick, (void *)&address, sizeof address), EISCONN);
    for (int i = 0; i < 2; i++) {
        int peer = accept(server, NULL, NULL);
        FAILS(connect(peer, (void *)&address, sizeof address), EISCONN);
        CHECK(peer >= 0 && close(peer) == 0);
    }
    CHECK(close(client) == 0 && close(quick) == 0 && close(server) == 0);
}

static void *waits_to_accept(void *server) {
    FAILS(accept((int)(intptr_t)server, NULL, NULL), EINVAL);
    return NULL;
}

/* A thread that stops a server ends the calls that wait for connections. */
static void listener_is_shut_down(void) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int server = server_socket(&address);
    CHECK(fcntl(server, F_SETFL, 0) == 0);
    pthread_t waiting;
    CHECK(pthread_create(&waiting, NULL, waits_to_accept, (void *)(intptr_t)server) == 0);
    usleep(20000);
    CHECK(shutdown(server, SHUT_WR) == 0);
    CHECK(option_of(server, SOL_SOCKET, SO_ACCEPTCONN) == 1);
    CHECK(shutdown(server, SHUT_RDWR) == 0);
    CHECK(pthread_join(waiting, NULL) == 0);
    CHECK(option_of(server, SOL_SOCKET, SO_ACCEPTCONN) == 0);
    CHECK(events_of(server, POLLIN | POLLOUT) & POLLHUP);
    FAILS(shutdown(server, SHUT_RDWR), ENOTCONN);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, (void *)&address, sizeof address), ECONNREFUSED);
    CHECK(listen(server, 10) == 0 && getsockname(server, (void *)&address, &length) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(client, (void *)&address, sizeof address) == 0);
    CHECK(close(client) == 0 && close(server) == 0);
}

/* Two ends of a connection over loopback, which need not wait. */
static void make_connection(int ends[2]) {
    struct sockaddr_in address;
    int server = server_socket(&address);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(ends[0], (void *)&address, sizeof address) == 0);
    CHECK(next_events(server, POLLIN) == POLLIN);
    ends[1] = accept(server, NULL, NULL);
    CHECK(ends[1] >= 0 && close(server) == 0);
}

/* A socket that listens can be asked again, which changes only how many connections may wait. */
static void listen_again(void) {
    struct sockaddr_in address;
    int server = server_socket(&address), clients[6];
    CHECK(listen(server, 1) == 0);
    for (int i = 0; i < 6; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        int begun = connect(clients[i], (void *)&address, sizeof address);
        CHECK(begun == 0 || errno == EINPROGRESS);
    }
    CHECK(next_events(clients[0], POLLOUT) == POLLOUT && events_of(clients[5], POLLOUT) == 0);
    FAILS(listen(clients[0], 10), EINVAL);
    CHECK(listen(server, 10) == 0 && option_of(server, SOL_SOCKET, SO_ACCEPTCONN) == 1);
    /* The clients repeat what was dropped. */
    for (int i = 0; i < 6; i++)
        CHECK(next_events(clients[i], POLLOUT) == POLLOUT);
    for (int i = 0; i < 6; i++) {
        CHECK(next_events(server, POLLIN) == POLLIN);
        int peer = accept(server, NULL, NULL);
        CHECK(peer >= 0 && close(peer) == 0 && close(clients[i]) == 0);
    }
    CHECK(close(server) == 0);
}

/* A peer has a name while there is a connection, which is how event loops find out. */
static void names_of_peers(void) {
    struct sockaddr_in address, seen;
    socklen_t length = sizeof seen;
    int server = server_socket(&address), clients[4], ends[2];
    CHECK(listen(server, 1) == 0);
    FAILS(getpeername(server, (void *)&seen, &length), ENOTCONN);
    for (int i = 0; i < 4; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        FAILS(getpeername(clients[i], (void *)&seen, &length), ENOTCONN);
        int begun = connect(clients[i], (void *)&address, sizeof address);
        CHECK(begun == 0 || errno == EINPROGRESS);
    }
    CHECK(next_events(clients[0], POLLOUT) == POLLOUT);
    CHECK(getpeername(clients[0], (void *)&seen, &length) == 0 && seen.sin_port == address.sin_port);
    /* The queue is full: this one waits. */
    CHECK(events_of(clients[3], POLLOUT) == 0);
    FAILS(getpeername(clients[3], (void *)&seen, &length), ENOTCONN);
    for (int i = 0; i < 4; i++)
        CHECK(close(clients[i]) == 0);
    CHECK(close(server) == 0);
    int refused = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(refused, (void *)&address, sizeof address), ECONNREFUSED);
    FAILS(getpeername(refused, (void *)&seen, &length), ENOTCONN);
    CHECK(close(refused) == 0);
    /* One direction that is closed is a connection; a reset ends it. */
    make_connection(ends);
    CHECK(shutdown(ends[1], SHUT_WR) == 0 && next_events(ends[0], POLLRDHUP) == POLLRDHUP);
    CHECK(getpeername(ends[0], (void *)&seen, &length) == 0);
    CHECK(getpeername(ends[1], (void *)&seen, &length) == 0);
    CHECK(send(ends[0], "unread", 6, 0) == 6 && next_events(ends[1], POLLIN) == POLLIN);
    CHECK(close(ends[1]) == 0 && next_events(ends[0], POLLHUP) & POLLHUP);
    FAILS(getpeername(ends[0], (void *)&seen, &length), ENOTCONN);
    CHECK(close(ends[0]) == 0);
    /* So does the end of the second direction, for either side. */
    make_connection(ends);
    CHECK(shutdown(ends[1], SHUT_WR) == 0 && next_events(ends[0], POLLRDHUP) == POLLRDHUP);
    CHECK(shutdown(ends[0], SHUT_WR) == 0 && next_events(ends[1], POLLHUP) == POLLHUP);
    for (int i = 0; i < 2; i++) {
        FAILS(getpeername(ends[i], (void *)&seen, &length), ENOTCONN);
        CHECK(close(ends[i]) == 0);
    }
}

/* What has ended a connection is reported once, after the bytes in front of it; then it is closed. */
static void errors_of_connections(void) {
    const int over = POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
    for (int i = 0; i < 12; i++) {
        int ends[2], way = i / 3;
        char bytes[16];
        struct iovec pieces[2] = {{bytes, 6}, {bytes + 6, 10}};
        make_connection(ends);
        CHECK(send(ends[1], "answer", 6, 0) == 6 && next_events(ends[0], POLLIN) == POLLIN);
        CHECK(send(ends[0], "unread", 6, 0) == 6 && next_events(ends[1], POLLIN) == POLLIN);
        CHECK(close(ends[1]) == 0 && next_events(ends[0], POLLHUP) == (POLLHUP | POLLERR));
        if (i % 3 == 0)
            CHECK(recv(ends[0], bytes, 16, 0) == 6);
        if (i % 3 == 1)
            CHECK(readv(ends[0], pieces, 2) == 6);
        if (i % 3 == 2)
            CHECK(recv(ends[0], bytes, 16, MSG_WAITALL) == 6);
        CHECK(events_of(ends[0], over) == (over | POLLERR));
        if (way == 0)
            FAILS(recv(ends[0], bytes, 16, 0), ECONNRESET);
        if (way == 1)
            FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), ECONNRESET);
        if (way == 2)
            FAILS(recv(ends[0], bytes, 16, MSG_PEEK), ECONNRESET);
        if (way == 3)
            CHECK(option_of(ends[0], SOL_SOCKET, SO_ERROR) == ECONNRESET);
        CHECK(events_of(ends[0], over) == over);
        CHECK(option_of(ends[0], SOL_SOCKET, SO_ERROR) == 0);
        CHECK(recv(ends[0], bytes, 16, 0) == 0 && recv(ends[0], bytes, 16, MSG_PEEK) == 0);
        FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
        FAILS(shutdown(ends[0], SHUT_RDWR), ENOTCONN);
        CHECK(close(ends[0]) == 0);
    }
}

/* A client connects from the same port again, where the server has closed first. The SYN need not be
 * repeated, which would take every second connection a second. */
static void the_same_addresses_again(void) {
    struct sockaddr_in address, own;
    int server = server_socket(&address), on = 1;
    CHECK(close(server_socket(&own)) == 0);
    int slow = 0;
    for (int i = 0; i < 16; i++) {
        int client = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(setsockopt(client, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        CHECK(bind(client, (void *)&own, sizeof own) == 0);
        struct timespec soon = in(CLOCK_MONOTONIC, 500), now;
        CHECK(connect(client, (void *)&address, sizeof address) == 0);
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        slow += now.tv_sec > soon.tv_sec
                || (now.tv_sec == soon.tv_sec && now.tv_nsec >= soon.tv_nsec);
        CHECK(next_events(server, POLLIN) == POLLIN);
        int peer = accept(server, NULL, NULL);
        CHECK(peer >= 0 && close(peer) == 0 && next_events(client, POLLRDHUP) == POLLRDHUP);
        CHECK(close(client) == 0);
    }
    /* A loaded host may stop the machine for as long, now and then. */
    CHECK(slow <= 2);
    CHECK(close(server) == 0);
}

/* The end is reported while there are bytes in front of it, also by edge: there is no event when
 * they are read. */
static void the_end_behind_bytes(void) {
    int ends[2], instance = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    char bytes[16];
    make_connection(ends);
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, ends[1], &event) == 0);
    CHECK(epoll_wait(instance, &event, 1, 10000) == 1 && event.events == EPOLLOUT);
    CHECK(send(ends[0], "last", 4, 0) == 4 && shutdown(ends[0], SHUT_WR) == 0);
    CHECK(next_events(ends[1], POLLRDHUP) == POLLRDHUP);
    CHECK(epoll_wait(instance, &event, 1, 10000) == 1);
    CHECK(event.events == (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
    CHECK(events_of(ends[1], POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
    CHECK(recv(ends[1], bytes, 2, 0) == 2);
    CHECK(events_of(ends[1], POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
    CHECK(recv(ends[1], bytes, 16, 0) == 2 && recv(ends[1], bytes, 16, 0) == 0);
    CHECK(events_of(ends[1], POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
    /* So is a direction that this side has shut down. */
    CHECK(send(ends[1], "answer", 6, 0) == 6 && next_events(ends[0], POLLIN) == POLLIN);
    CHECK(shutdown(ends[0], SHUT_RD) == 0);
    CHECK(events_of(ends[0], POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP | POLLHUP));
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(instance) == 0);
}

/* A peek sees the whole record, wherever in the receive buffer it begins. */
static void peeks(void) {
    int ends[2];
    char record[7] = "header", seen[16];
    make_connection(ends);
    for (int i = 0; i < 2000; i++) {
        record[6] = i;
        CHECK(send(ends[0], record, 7, 0) == 7 && next_events(ends[1], POLLIN) == POLLIN);
        CHECK(recv(ends[1], seen, 5, MSG_PEEK) == 5 && memcmp(seen, record, 5) == 0);
        CHECK(recv(ends[1], seen, 16, MSG_PEEK) == 7 && memcmp(seen, record, 7) == 0);
        CHECK(recv(ends[1], seen, 16, 0) == 7 && memcmp(seen, record, 7) == 0);
    }
    CHECK(close(ends[0]) == 0 && recv(ends[1], seen, 16, MSG_PEEK) == 0 && close(ends[1]) == 0);
}

/* Options that are set before there is a connection apply to it; a listener's are inherited. */
static void set_option(int fd, int level, int name, int value) {
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
    CHECK(option_of(fd, level, name) == value);
}

static void options(void) {
    struct sockaddr_in address;
    int server = server_socket(&address), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(option_of(client, SOL_SOCKET, SO_KEEPALIVE) == 0);
    CHECK(option_of(client, IPPROTO_TCP, TCP_NODELAY) == is_cops());
    CHECK(option_of(client, IPPROTO_TCP, TCP_KEEPIDLE) == 7200);
    CHECK(option_of(client, IPPROTO_TCP, TCP_KEEPINTVL) == 75);
    CHECK(option_of(client, IPPROTO_TCP, TCP_KEEPCNT) == 9);
    for (int name = TCP_KEEPIDLE; name <= TCP_KEEPCNT; name++) {
        int beyond = name == TCP_KEEPCNT ? 128 : 32768, values[] = {0, -1, beyond};
        for (int i = 0; i < 3; i++)
            CHECK(setsockopt(client, IPPROTO_TCP, name, &values[i], sizeof(int)) == -1 &&
                  errno == EINVAL);
        set_option(client, IPPROTO_TCP, name, beyond - 1);
    }
    set_option(client, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(client, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(client, IPPROTO_TCP, TCP_NODELAY, 0);
    set_option(server, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(server, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(server, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    for (int i = 1; i >= 0; i--) {
        CHECK(connect(client, (void *)&address, sizeof address) == 0);
        CHECK(next_events(server, POLLIN) == POLLIN);
        int peer = accept(server, NULL, NULL);
        CHECK(option_of(client, SOL_SOCKET, SO_KEEPALIVE) == i);
        CHECK(option_of(client, IPPROTO_TCP, TCP_NODELAY) == (i ? 0 : is_cops()));
        CHECK(option_of(peer, SOL_SOCKET, SO_KEEPALIVE) == i);
        CHECK(option_of(peer, IPPROTO_TCP, TCP_NODELAY) == i);
        CHECK(option_of(peer, IPPROTO_TCP, TCP_KEEPIDLE) == 60);
        set_option(peer, IPPROTO_TCP, TCP_KEEPIDLE, 61);
        set_option(peer, IPPROTO_TCP, TCP_KEEPCNT, 3);
        CHECK(option_of(server, IPPROTO_TCP, TCP_KEEPIDLE) == 60);
        /* Each has its own from then on. */
        set_option(peer, SOL_SOCKET, SO_KEEPALIVE, !i);
        CHECK(option_of(server, SOL_SOCKET, SO_KEEPALIVE) == i);
        CHECK(close(client) == 0 && close(peer) == 0);
        set_option(server, SOL_SOCKET, SO_KEEPALIVE, 0);
        set_option(server, IPPROTO_TCP, TCP_NODELAY, 0);
        client = socket(AF_INET, SOCK_STREAM, 0);
    }
    CHECK(close(client) == 0 && close(server) == 0);
}

/* A socket for IPv6 shows IPv4 addresses as mapped ones. */
static int is_mapped(const struct sockaddr_in6 *address, int length, in_port_t port) {
    const struct in6_addr mapped = {{{[10] = 255, [11] = 255, [12] = 127, [15] = 1}}};
    return length == sizeof *address && address->sin6_family == AF_INET6 &&
           memcmp(&address->sin6_addr, &mapped, sizeof mapped) == 0 && address->sin6_port == port;
}

static void families(void) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, seen;
    struct sockaddr_in address = {.sin_family = AF_INET}, own;
    socklen_t length = sizeof any, own_length = sizeof own;
    int server = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(bind(server, (void *)&any, sizeof any) == 0 && listen(server, 10) == 0);
    CHECK(getsockname(server, (void *)&any, &length) == 0 && length == sizeof any);
    /* A client for IPv4, then one for IPv6 that connects to a mapped address. */
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = any.sin6_port;
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (void *)&address, sizeof address) == 0);
    CHECK(getsockname(client, (void *)&own, &own_length) == 0 && own_length == sizeof own);
    length = sizeof seen;
    int peer = accept(server, (void *)&seen, &length);
    CHECK(peer >= 0 && is_mapped(&seen, length, own.sin_port));
    CHECK(option_of(peer, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
    CHECK(option_of(client, SOL_SOCKET, SO_DOMAIN) == AF_INET);
    length = sizeof seen;
    CHECK(getpeername(peer, (void *)&seen, &length) == 0 && is_mapped(&seen, length, own.sin_port));
    length = sizeof seen;
    CHECK(getsockname(peer, (void *)&seen, &length) == 0);
    CHECK(is_mapped(&seen, length, any.sin6_port));
    CHECK(close(client) == 0 && close(peer) == 0);
    client = socket(AF_INET6, SOCK_STREAM, 0);
    any.sin6_addr = seen.sin6_addr;
    CHECK(connect(client, (void *)&any, sizeof any) == 0);
    length = sizeof seen;
    CHECK(getpeername(client, (void *)&seen, &length) == 0);
    CHECK(is_mapped(&seen, length, any.sin6_port));
    length = sizeof seen;
    CHECK(getsockname(client, (void *)&seen, &length) == 0);
    CHECK(is_mapped(&seen, length, seen.sin6_port));
    CHECK(close(client) == 0 && close(server) == 0);
}

/* A server with an event loop by edge, beside clients in threads. */
enum { CLIENTS = 20, ROUNDS = 50 };
static struct sockaddr_in place;
static void *talk(void *argument) {
    char question[100], answer[100];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (void *)&place, sizeof place) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        memset(question, 'a' + (i + (int)(long)argument) % 26, sizeof question);
        CHECK(send(fd, question, sizeof question, 0) == sizeof question);
        for (size_t got = 0; got < sizeof answer;) {
            long count = recv(fd, answer + got, sizeof answer - got, 0);
            CHECK(count > 0);
            got += count;
        }
        CHECK(memcmp(question, answer, sizeof answer) == 0);
    }
    CHECK(close(fd) == 0);
    return NULL;
}

static void event_loop(void) {
    pthread_t client[CLIENTS];
    struct epoll_event events[8], event = {.events = EPOLLIN | EPOLLET};
    char bytes[4096];
    int server = server_socket(&place), instance = epoll_create1(0), ended = 0;
    event.data.fd = server;
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, server, &event) == 0);
    for (long i = 0; i < CLIENTS; i++)
        CHECK(pthread_create(&client[i], NULL, talk, (void *)i) == 0);
    while (ended < CLIENTS) {
        int count = epoll_wait(instance, events, 8, 10000), fd;
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            /* A call reports a file once, whatever happens to it meanwhile. */
            for (int other = 0; other < i; other++)
                CHECK(events[other].data.fd != events[i].data.fd);
            if (events[i].data.fd == server) {
                while ((fd = accept4(server, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                    event.data.fd = fd;
                    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
                }
                CHECK(errno == EAGAIN);
                continue;
            }
            long got;
            fd = events[i].data.fd;
            while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
                CHECK(send(fd, bytes, got, MSG_NOSIGNAL) == got);
            if (got == 0) {
                CHECK(close(fd) == 0);
                ended++;
            } else {
                CHECK(errno == EAGAIN);
            }
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        CHECK(pthread_join(client[i], NULL) == 0);
    CHECK(close(instance) == 0 && close(server) == 0);
}

static void errors(void) {
    int ends[2], value = 1, socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = 4;
    char byte = 0;
    CHECK(pipe(ends) == 0 && socket_fd >= 0);
    FAILS(send(ends[1], "x", 1, 0), ENOTSOCK);
    FAILS(recv(ends[0], &byte, 1, 0), ENOTSOCK);
    FAILS(recv(99, &byte, 1, 0), EBADF);
    FAILS(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &value, &length), ENOTSOCK);
    FAILS(getsockopt(socket_fd, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
    FAILS(getsockopt(socket_fd, SOL_SOCKET, SO_ERROR, (void *)8, &length), EFAULT);
    FAILS(getsockopt(socket_fd, SOL_SOCKET, SO_ERROR, &value, (void *)8), EFAULT);
    FAILS(setsockopt(socket_fd, SOL_SOCKET, 9999, &value, 4), ENOPROTOOPT);
    FAILS(setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &value, 3), EINVAL);
    FAILS(setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, (void *)8, 4), EFAULT);
    FAILS(recv(socket_fd, &byte, 1, 0), ENOTCONN);
    FAILS(send(socket_fd, (void *)8, 1, MSG_NOSIGNAL), EFAULT);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(socket_fd) == 0);
}

static void names(void) {
    char name[16] = "";
    /* With user-mode QEMU it is the name of QEMU. */
    CHECK(prctl(PR_GET_NAME, name) == 0 && (!is_cops() || strcmp(name, "sockets") == 0));
    CHECK(pthread_setname_np(pthread_self(), "first") == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "first") == 0);
    CHECK(prctl(PR_SET_NAME, "a name of more than fifteen bytes") == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "a name of more ") == 0);
    FAILS(prctl(PR_SET_NAME, 8), EFAULT);
    FAILS(prctl(12345, 0), EINVAL);
}

int main(void) {
    struct sigaction action = {.sa_handler = on_broken_pipe};
    CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
    pairs();
    errors();
    connections();
    connect_again();
    listener_is_shut_down();
    listen_again();
    names_of_peers();
    errors_of_connections();
    the_same_addresses_again();
    the_end_behind_bytes();
    peeks();
    options();
    families();
    event_loop();
    names();
    puts("sockets are in order");
}
