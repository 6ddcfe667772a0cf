/* UDP sockets over loopback, IPv4 and IPv6: addresses, messages in pieces, lengths, waits, what is
   ready, errors. With an address as argument: an exchange with the TFTP server there. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#include "children.h"
#include "descriptors.h"

#define SHORT 100  /* milliseconds: a wait that is to end */
#define LONG 10000 /* milliseconds: a wait that something else is to end */
#define LARGE 8192 /* the longest datagram of COPS */

typedef struct sockaddr_in four;
typedef struct sockaddr_in6 six;

static char bytes[70000], room[70000];

static long now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static four at(uint32_t host, int port) {
    return (four){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(host)};
}

static int is_same(const four *one, const four *other) {
    return one->sin_family == AF_INET && one->sin_port == other->sin_port &&
           one->sin_addr.s_addr == other->sin_addr.s_addr;
}

static four local_of(int fd) {
    four address;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (void *)&address, &length) == 0 && length == sizeof address);
    return address;
}

static int fresh(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    return fd;
}

/* A socket at any port of the loopback interface. */
static int bound(four *address) {
    int fd = fresh();
    *address = at(INADDR_LOOPBACK, 0);
    CHECK(bind(fd, (void *)address, sizeof *address) == 0);
    *address = local_of(fd);
    CHECK(address->sin_port != 0 && address->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    return fd;
}

static int connect_to(int fd, four address) { return connect(fd, (void *)&address, sizeof address); }

/* Ends what it is connected to. */
static int dissolve(int fd) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    return connect(fd, &none, sizeof none);
}

static long send_to(int fd, const char *text, four address) {
    return sendto(fd, text, strlen(text), 0, (void *)&address, sizeof address);
}

/* The next datagram is this one. */
static void expect(int fd, const char *text) {
    long length = recv(fd, room, sizeof room, 0);
    if (length != (long)strlen(text) || memcmp(room, text, length) != 0)
        printf("%ld bytes: %.*s\n", length, (int)(length > 0 ? length : 0), room);
    CHECK(length == (long)strlen(text) && memcmp(room, text, length) == 0);
}

static void expect_none(int fd) { FAILS(recv(fd, room, sizeof room, MSG_DONTWAIT), EAGAIN); }

static void creation(void) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP), on = 1;
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
    CHECK(option_of(fd, SOL_SOCKET, SO_TYPE) == SOCK_DGRAM);
    CHECK(option_of(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET);
    CHECK(option_of(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_UDP);
    CHECK(option_of(fd, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(option_of(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0);
    CHECK(option_of(fd, SOL_SOCKET, SO_BROADCAST) == 0);
    CHECK(option_of(fd, SOL_SOCKET, SO_RCVBUF) > 0 && option_of(fd, SOL_SOCKET, SO_SNDBUF) > 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0);
    FAILS(setsockopt(fd, IPPROTO_TCP, 1, &on, sizeof on), ENOPROTOOPT);
    FAILS(recv(fd, room, 1, 0), EAGAIN);
    FAILS(recv(fd, room, 1, MSG_ERRQUEUE), EAGAIN);
    CHECK(events_of(fd, POLLIN | POLLOUT) == POLLOUT);
    FAILS(write(fd, "x", 1), EDESTADDRREQ);
    FAILS(send(fd, "x", 1, 0), EDESTADDRREQ);
    FAILS(listen(fd, 1), EOPNOTSUPP);
    FAILS(accept(fd, NULL, NULL), EOPNOTSUPP);
    FAILS(lseek(fd, 0, SEEK_SET), ESPIPE);
    FAILS(pread(fd, room, 1, 0), ESPIPE);
    CHECK(close(fd) == 0);
    FAILS(socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), EPROTONOSUPPORT);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
}

static void addresses(void) {
    four address, peer;
    socklen_t length = sizeof address;
    int fd = fresh(), other;
    address = local_of(fd);
    CHECK(address.sin_port == 0 && address.sin_addr.s_addr == 0);
    FAILS(getpeername(fd, (void *)&address, &length), ENOTCONN);
    address = at(0xc0000201, 0); /* 192.0.2.1 */
    FAILS(bind(fd, (void *)&address, sizeof address), EADDRNOTAVAIL);
    FAILS(bind(fd, (void *)&address, 15), EINVAL);
    FAILS(bind(fd, (void *)&address, 129), EINVAL);
    FAILS(bind(fd, (void *)8, sizeof address), EFAULT);
    six wrong = {.sin6_family = AF_INET6};
    FAILS(bind(fd, (void *)&wrong, sizeof wrong), EAFNOSUPPORT);
    other = bound(&peer);
    FAILS(bind(fd, (void *)&peer, sizeof peer), EADDRINUSE);
    address = at(INADDR_ANY, ntohs(peer.sin_port));
    FAILS(bind(fd, (void *)&address, sizeof address), EADDRINUSE);
    /* A longer structure will do. */
    struct sockaddr_storage storage = {0};
    memcpy(&storage, &peer, sizeof peer);
    CHECK(close(other) == 0 && bind(fd, (void *)&storage, sizeof storage) == 0);
    FAILS(bind(fd, (void *)&peer, sizeof peer), EINVAL);
    address = local_of(fd);
    CHECK(is_same(&address, &peer) && close(fd) == 0);
    /* The port is free at once, and TCP has other ports. */
    fd = fresh(), other = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (void *)&peer, sizeof peer) == 0 && bind(other, (void *)&peer, sizeof peer) == 0);
    CHECK(close(fd) == 0 && close(other) == 0);
    /* A send chooses a port. */
    int to = bound(&peer);
    fd = fresh();
    CHECK(send_to(fd, "first", peer) == 5);
    address = local_of(fd);
    CHECK(address.sin_port != 0 && address.sin_addr.s_addr == 0);
    expect(to, "first");
    CHECK(close(fd) == 0 && close(to) == 0);
}

static void exchange(void) {
    four first, second, from;
    socklen_t length;
    int one = bound(&first), other = bound(&second);
    CHECK(send_to(one, "hello", second) == 5 && send_to(one, "", second) == 0);
    CHECK(send_to(one, "a long datagram", second) == 15 && send_to(one, "the last", second) == 8);
    memset(&from, 0, sizeof from);
    length = sizeof from;
    /* It stays; the address is complete. */
    CHECK(recvfrom(other, room, 3, MSG_PEEK, (void *)&from, &length) == 3);
    CHECK(length == sizeof from && is_same(&from, &first) && memcmp(room, "hel", 3) == 0);
    CHECK(recv(other, room, 3, MSG_PEEK | MSG_TRUNC) == 5);
    int waiting = 0;
    CHECK(ioctl(other, FIONREAD, &waiting) == 0 && waiting == 5);
    expect(other, "hello");
    /* A datagram without bytes. */
    CHECK(events_of(other, POLLIN) == POLLIN);
    CHECK(ioctl(other, FIONREAD, &waiting) == 0 && waiting == 0);
    length = sizeof from;
    memset(&from, 0, sizeof from);
    CHECK(recvfrom(other, room, 9, 0, (void *)&from, &length) == 0 && is_same(&from, &first));
    /* What does not fit is gone. */
    room[6] = '!';
    CHECK(recv(other, room, 6, 0) == 6 && memcmp(room, "a long!", 7) == 0);
    /* The space for the address is short, its length is not. */
    memset(&from, 0xff, sizeof from);
    length = 4;
    CHECK(recvfrom(other, room, 100, MSG_WAITALL, (void *)&from, &length) == 8);
    CHECK(length == sizeof from && from.sin_port == first.sin_port);
    CHECK(from.sin_addr.s_addr == UINT32_MAX);
    expect_none(other);
    CHECK(events_of(other, POLLIN | POLLOUT) == POLLOUT);
    /* A read of nothing takes nothing; a receive of nothing takes a datagram. */
    CHECK(send_to(one, "kept", second) == 4);
    CHECK(read(other, room, 0) == 0 && events_of(other, POLLIN) == POLLIN);
    CHECK(recv(other, room, 0, 0) == 0 && events_of(other, POLLIN) == 0);
    /* To itself. */
    CHECK(send_to(one, "mine", first) == 4);
    expect(one, "mine");
    CHECK(close(one) == 0 && close(other) == 0);
}

static void lengths(void) {
    four first, second;
    int one = bound(&first), other = bound(&second);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = i * 7 + i / 256;
    const int sizes[] = {1, 511, 512, 513, 4095, 4096, 4097, 8000, LARGE - 1, LARGE};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int shift = 0; shift < 3; shift++) {
            char *from = bytes + shift * 1365, *to = room + shift * 1000;
            CHECK(sendto(one, from, sizes[i], 0, (void *)&second, sizeof second) == sizes[i]);
            memset(room, 0, sizeof room);
            CHECK(recv(other, to, sizeof room - 2000, 0) == sizes[i]);
            CHECK(memcmp(from, to, sizes[i]) == 0 && to[sizes[i]] == 0);
        }
    FAILS(sendto(one, bytes, 65508, 0, (void *)&second, sizeof second), EMSGSIZE);
    FAILS(sendto(one, bytes, 65536, 0, (void *)&second, sizeof second), EMSGSIZE);
    if (is_cops())
        FAILS(sendto(one, bytes, LARGE + 1, 0, (void *)&second, sizeof second), EMSGSIZE);
    CHECK(connect_to(one, second) == 0);
    FAILS(write(one, bytes, 65508), EMSGSIZE);
    expect_none(other);
    CHECK(close(one) == 0 && close(other) == 0);
}

/* More than fits: the queue keeps the first ones, and the sender does not wait. */
static void bounded(void) {
    four first, second;
    int one = bound(&first), other = bound(&second), received = 0, next;
    for (int i = 0; i < 2000; i++)
        CHECK(sendto(one, &i, sizeof i, 0, (void *)&second, sizeof second) == sizeof i);
    for (; recv(other, &next, sizeof next, MSG_DONTWAIT) == sizeof next; received++)
        CHECK(next == received);
    CHECK(errno == EAGAIN && received >= 16 && received < 2000);
    CHECK(send_to(one, "after", second) == 5);
    expect(other, "after");
    CHECK(close(one) == 0 && close(other) == 0);
}

static void connections(void) {
    four first, second, third, address;
    socklen_t length = sizeof address;
    int one = bound(&first), other = bound(&second), stranger = bound(&third);
    /* On Linux, a port that the system has chosen is lost when it is connected to none again. */
    CHECK(close(one) == 0);
    one = fresh();
    CHECK(bind(one, (void *)&first, sizeof first) == 0);
    CHECK(send_to(stranger, "early", first) == 5);
    CHECK(connect_to(one, second) == 0);
    CHECK(getpeername(one, (void *)&address, &length) == 0 && is_same(&address, &second));
    /* What was there before stays; then only the peer is heard. */
    CHECK(send_to(stranger, "late", first) == 4 && send_to(other, "peer", first) == 4);
    expect(one, "early");
    expect(one, "peer");
    expect_none(one);
    CHECK(events_of(one, POLLIN) == 0);
    CHECK(write(one, "write", 5) == 5 && send(one, "send", 4, MSG_CONFIRM) == 4);
    CHECK(write(one, "", 0) == 0);
    expect(other, "write");
    expect(other, "send");
    expect(other, "");
    CHECK(read(other, room, 0) == 0);
    /* An address all the same. */
    CHECK(send_to(one, "elsewhere", third) == 9);
    expect(stranger, "elsewhere");
    /* Another peer, any port, none. */
    CHECK(connect_to(one, third) == 0 && write(one, "now you", 7) == 7);
    expect(stranger, "now you");
    CHECK(send_to(other, "late", first) == 4 && send_to(stranger, "peer", first) == 4);
    expect(one, "peer");
    CHECK(connect_to(one, at(INADDR_LOOPBACK, 0)) == 0);
    FAILS(getpeername(one, (void *)&address, &length), ENOTCONN);
    CHECK(send_to(other, "any port", first) == 8);
    expect(one, "any port");
    CHECK(connect_to(one, second) == 0 && dissolve(one) == 0 && dissolve(one) == 0);
    FAILS(getpeername(one, (void *)&address, &length), ENOTCONN);
    FAILS(write(one, "x", 1), EDESTADDRREQ);
    CHECK(send_to(stranger, "anybody", first) == 7);
    expect(one, "anybody");
    address = local_of(one);
    CHECK(is_same(&address, &first));
    CHECK(close(one) == 0);
    /* The address that is used is known as soon as the peer is. */
    one = fresh();
    CHECK(connect_to(one, at(INADDR_ANY, ntohs(second.sin_port))) == 0);
    address = local_of(one);
    CHECK(address.sin_port != 0 && address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(getpeername(one, (void *)&address, &length) == 0 && is_same(&address, &second));
    CHECK(write(one, "x", 1) == 1);
    expect(other, "x");
    FAILS(connect_to(one, at(INADDR_BROADCAST, 9)), EACCES);
    FAILS(send_to(one, "x", at(INADDR_BROADCAST, 9)), EACCES);
    int on = 1;
    CHECK(setsockopt(one, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
    CHECK(option_of(one, SOL_SOCKET, SO_BROADCAST) == 1);
    CHECK(send_to(one, "x", at(INADDR_BROADCAST, 9)) == 1 || errno != EACCES);
    CHECK(close(one) == 0 && close(other) == 0 && close(stranger) == 0);
}

static void errors(void) {
    four first, second;
    socklen_t length = sizeof first;
    int one = bound(&first), other = bound(&second), ends[2];
    FAILS(sendto(one, "x", 1, 0, (void *)&second, 15), EINVAL);
    FAILS(sendto(one, "x", 1, 0, (void *)&second, 129), EINVAL);
    FAILS(sendto(one, "x", 1, 0, (void *)8, sizeof second), EFAULT);
    FAILS(sendto(one, (void *)8, 1, 0, (void *)&second, sizeof second), EFAULT);
    FAILS(send_to(one, "x", at(INADDR_LOOPBACK, 0)), EINVAL);
    FAILS(send(one, "x", 1, MSG_OOB), EOPNOTSUPP);
    six wrong = {.sin6_family = AF_INET6, .sin6_port = 9};
    FAILS(sendto(one, "x", 1, 0, (void *)&wrong, sizeof wrong), EAFNOSUPPORT);
    FAILS(connect(one, (void *)&wrong, sizeof wrong), EAFNOSUPPORT);
    FAILS(connect(one, (void *)&second, 15), EINVAL);
    /* A datagram for which there is no place is gone. */
    CHECK(send_to(one, "lost", second) == 4 && send_to(one, "also", second) == 4);
    CHECK(send_to(one, "kept", second) == 4);
    if (is_cops()) {
        /* Its bytes have to have a place before it is taken. */
        FAILS(recv(other, (void *)8, 4, 0), EFAULT);
        expect(other, "lost");
    } else {
        FAILS(recv(other, (void *)8, 4, 0), EFAULT);
    }
    FAILS(recvfrom(other, room, 4, 0, (void *)8, &length), EFAULT);
    expect(other, "kept");
    FAILS(recvmsg(other, (void *)8, 0), EFAULT);
    FAILS(sendmsg(one, (void *)8, 0), EFAULT);
    CHECK(pipe(ends) == 0);
    FAILS(sendto(ends[1], "x", 1, 0, (void *)&second, sizeof second), ENOTSOCK);
    FAILS(recvfrom(ends[0], room, 1, 0, NULL, NULL), ENOTSOCK);
    FAILS(sendmmsg(ends[0], NULL, 1, 0), ENOTSOCK);
    FAILS(recvfrom(99, room, 1, 0, NULL, NULL), EBADF);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(one) == 0 && close(other) == 0);
}

/* So many pieces of this length, with empty ones in between. */
static struct iovec *pieces_of(char *from, int count, int length, struct iovec *pieces) {
    for (int i = 0; i < count; i++) {
        pieces[2 * i] = (struct iovec){from + i * length, length};
        pieces[2 * i + 1] = (struct iovec){NULL, 0};
    }
    return pieces;
}

static void messages(void) {
    static struct iovec out[1024], in[1024];
    four first, second, from;
    int one = bound(&first), other = bound(&second);
    struct msghdr send = {.msg_name = &second, .msg_namelen = sizeof second, .msg_iov = out};
    struct msghdr receive = {.msg_name = &from, .msg_iov = in};
    const int counts[] = {0, 1, 2, 5, 6, 7, 12, 32, 33, 100, 512};
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
        for (unsigned j = 0; j < sizeof counts / sizeof *counts; j++) {
            /* The places have 1200 bytes more, or fewer, or just as many. */
            int sent = counts[i], places = counts[j], total = sent * 13;
            int wide = places == 0 ? 0 : (total + places - 1) / places + (int)(i + j) % 3 - 1;
            if (wide < 0)
                wide = 0;
            send.msg_iovlen = 2 * sent, receive.msg_iovlen = 2 * places;
            pieces_of(bytes, sent, 13, out), pieces_of(room, places, wide, in);
            memset(room, 0x55, 20000), memset(&from, 0, sizeof from);
            receive.msg_namelen = sizeof from, receive.msg_flags = -1, receive.msg_controllen = 0;
            int fits = total < places * wide ? total : places * wide;
            CHECK(sendmsg(one, &send, 0) == total);
            CHECK(recvmsg(other, &receive, MSG_PEEK | MSG_TRUNC) == total);
            receive.msg_namelen = sizeof from;
            CHECK(recvmsg(other, &receive, 0) == fits);
            CHECK(receive.msg_flags == (fits < total ? MSG_TRUNC : 0));
            CHECK(receive.msg_namelen == sizeof from && is_same(&from, &first));
            CHECK(memcmp(bytes, room, fits) == 0 && room[fits] == 0x55);
            expect_none(other);
        }
    /* The longest in many pieces, and one that is too long. */
    send.msg_iovlen = 1024, receive.msg_iovlen = 1024;
    pieces_of(bytes, 512, 16, out), pieces_of(room, 512, 16, in);
    CHECK(sendmsg(one, &send, 0) == LARGE && recvmsg(other, &receive, 0) == LARGE);
    CHECK(memcmp(bytes, room, LARGE) == 0);
    out[1].iov_base = bytes, out[1].iov_len = 65535;
    FAILS(sendmsg(one, &send, 0), EMSGSIZE);
    send.msg_iovlen = 1025;
    FAILS(sendmsg(one, &send, 0), EMSGSIZE);
    FAILS(syscall(SYS_recvmsg, other, &(struct msghdr){.msg_iov = in, .msg_iovlen = 1025}, 0),
          EMSGSIZE);
    /* Without an address. */
    send.msg_name = NULL, send.msg_iovlen = 2;
    out[1].iov_len = 0;
    FAILS(sendmsg(one, &send, 0), EDESTADDRREQ);
    CHECK(connect_to(one, second) == 0 && sendmsg(one, &send, 0) == 16);
    receive.msg_name = NULL, receive.msg_namelen = 7;
    CHECK(recvmsg(other, &receive, 0) == 16 && receive.msg_namelen == 7);
    /* One datagram for each call. */
    struct iovec three[3] = {{"one", 3}, {" and", 4}, {" two", 4}};
    struct iovec into[3] = {{room, 2}, {room + 100, 3}, {room + 200, 90}};
    CHECK(writev(one, three, 3) == 11 && writev(one, three, 1) == 3);
    CHECK(readv(other, into, 3) == 11);
    CHECK(memcmp(room, "on", 2) == 0 && memcmp(room + 100, "e a", 3) == 0);
    CHECK(memcmp(room + 200, "nd two", 6) == 0);
    CHECK(readv(other, into, 1) == 2);
    expect_none(other);
    /* A bad entry: nothing is sent. */
    three[1].iov_base = (void *)8;
    FAILS(writev(one, three, 3), EFAULT);
    expect_none(other);
    CHECK(close(one) == 0 && close(other) == 0);
}

static void several(void) {
    four first, second, from[8];
    int one = bound(&first), other = bound(&second);
    struct mmsghdr out[8] = {0}, in[8] = {0};
    struct iovec pieces[8], places[8];
    struct timespec time = {0, SHORT * 1000000};
    for (int i = 0; i < 8; i++) {
        pieces[i] = (struct iovec){"0123456789", i};
        places[i] = (struct iovec){room + 100 * i, 5};
        out[i].msg_hdr = (struct msghdr){&second, sizeof second, &pieces[i], 1, NULL, 0, 0};
        in[i].msg_hdr = (struct msghdr){&from[i], sizeof from[i], &places[i], 1, NULL, 0, 0};
        out[i].msg_len = in[i].msg_len = 99;
    }
    CHECK(sendmmsg(one, out, 8, 0) == 8 && sendmmsg(one, out, 0, 0) == 0);
    CHECK(recvmmsg(other, in, 8, 0, NULL) == 8);
    for (int i = 0; i < 8; i++) {
        CHECK((int)out[i].msg_len == i && (int)in[i].msg_len == (i < 5 ? i : 5));
        CHECK(in[i].msg_hdr.msg_flags == (i > 5 ? MSG_TRUNC : 0));
        CHECK(is_same(&from[i], &first) && memcmp(room + 100 * i, "0123456789", in[i].msg_len) == 0);
    }
    /* As many as there are. */
    FAILS(recvmmsg(other, in, 8, MSG_DONTWAIT, NULL), EAGAIN);
    CHECK(sendmmsg(one, out, 3, 0) == 3 && recvmmsg(other, in, 8, MSG_DONTWAIT, NULL) == 3);
    CHECK(sendmmsg(one, out, 3, 0) == 3 && recvmmsg(other, in, 8, MSG_WAITFORONE, NULL) == 3);
    CHECK(sendmmsg(one, out, 3, 0) == 3 && recvmmsg(other, in, 2, 0, &time) == 2);
    CHECK(recvmmsg(other, in, 2, MSG_DONTWAIT, &time) == 1);
    struct timeval limit = {0, SHORT * 1000};
    CHECK(setsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(sendmmsg(one, out, 3, 0) == 3);
    long began = now();
    CHECK(recvmmsg(other, in, 8, 0, NULL) == 3 && now() - began >= SHORT * 1000);
    /* Up to the first error. */
    out[2].msg_hdr.msg_namelen = 3;
    CHECK(sendmmsg(one, out, 8, 0) == 2);
    FAILS(sendmmsg(one, out + 2, 6, 0), EINVAL);
    CHECK(recvmmsg(other, in, 8, MSG_DONTWAIT, NULL) == 2);
    CHECK(close(one) == 0 && close(other) == 0);
}

/* Waits. */
static void *send_later(void *argument) {
    int *pair = argument;
    usleep(50000);
    CHECK(write(pair[0], "late", 4) == 4);
    return NULL;
}

static volatile int handled;
static void on_signal(int signal) { handled += signal == SIGUSR1; }

struct sender {
    pthread_t target, thread;
    volatile int is_enough;
};

static void *send_signals(void *argument) {
    struct sender *sender = argument;
    while (!sender->is_enough) {
        usleep(5000);
        CHECK(pthread_kill(sender->target, SIGUSR1) == 0);
    }
    return NULL;
}

/* Sends a datagram, and signals from then on: they come while its bytes are stored, too. */
struct disturber {
    struct sender sender;
    int socket, round;
    volatile int is_ready;
};

static void *send_and_disturb(void *argument) {
    struct disturber *all = argument;
    long began = now();
    while (!all->is_ready)
        sched_yield();
    CHECK(write(all->socket, bytes, LARGE) == LARGE);
    for (volatile int i = 0; i < all->round * 50; i++)
        continue;
    while (!all->sender.is_enough) {
        CHECK(pthread_kill(all->sender.target, SIGUSR1) == 0);
        if (now() - began > LONG * 1000) {
            CHECK(!"a signal ends it");
            CHECK(write(all->socket, bytes, 1) == 1);
            break;
        }
        if (handled)
            usleep(1000);
    }
    return NULL;
}

/* A signal that comes while a datagram is stored ends the call after that one. */
static void disturbed(void) {
    static struct iovec in[1024];
    four first, second;
    struct iovec small = {room, 100};
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < 60; round++) {
        /* Linux reports what has ended a call as an error of the next one of the socket. */
        int one = bound(&first), other = bound(&second), got;
        CHECK(connect_to(one, second) == 0);
        struct mmsghdr messages[2] = {0};
        struct disturber all = {.sender.target = pthread_self(), .socket = one, .round = round};
        messages[0].msg_hdr = (struct msghdr){.msg_iov = in, .msg_iovlen = 1024};
        messages[1].msg_hdr = (struct msghdr){.msg_iov = &small, .msg_iovlen = 1};
        pieces_of(room, 512, 16, in), memset(room, 0, LARGE);
        handled = 0;
        CHECK(pthread_create(&all.sender.thread, NULL, send_and_disturb, &all) == 0);
        all.is_ready = 1;
        do
            got = recvmmsg(other, messages, 2, 0, NULL);
        while (got == -1 && errno == EINTR);
        CHECK(got == 1);
        all.sender.is_enough = 1;
        CHECK(pthread_join(all.sender.thread, NULL) == 0);
        CHECK(messages[0].msg_len == LARGE && memcmp(bytes, room, LARGE) == 0);
        CHECK(close(one) == 0 && close(other) == 0);
    }
}

static void waits(void) {
    four first, second;
    pthread_t thread;
    struct sender sender = {.target = pthread_self()};
    int pair[2] = {bound(&first), bound(&second)};
    struct iovec pieces[3] = {{room, 1}, {room + 1, 1}, {room + 2, 98}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    CHECK(connect_to(pair[0], second) == 0);
    for (int way = 0; way < 4; way++) {
        memset(room, 0, 100);
        CHECK(pthread_create(&thread, NULL, send_later, pair) == 0);
        long length = way == 0   ? read(pair[1], room, 100)
                      : way == 1 ? recv(pair[1], room, 100, 0)
                      : way == 2 ? readv(pair[1], pieces, 3)
                                 : recvmsg(pair[1], &message, 0);
        CHECK(length == 4 && memcmp(room, "late", 4) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    /* Timeouts. */
    struct timeval limit = {0, SHORT * 1000};
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    for (int way = 0; way < 4; way++) {
        long began = now();
        FAILS(way == 0   ? read(pair[1], room, 100)
              : way == 1 ? recv(pair[1], room, 100, MSG_PEEK)
              : way == 2 ? readv(pair[1], pieces, 3)
                         : recvmsg(pair[1], &message, 0),
              EAGAIN);
        CHECK(now() - began >= SHORT * 1000);
    }
    /* Signals. */
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    limit = (struct timeval){LONG / 1000, 0};
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(pthread_create(&sender.thread, NULL, send_signals, &sender) == 0);
    FAILS(recv(pair[1], room, 100, 0), EINTR);
    FAILS(recvmsg(pair[1], &message, 0), EINTR);
    limit = (struct timeval){0, 0};
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    FAILS(recv(pair[1], room, 100, 0), EINTR);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    handled = 0;
    while (handled == 0)
        usleep(1000);
    CHECK(pthread_create(&thread, NULL, send_later, pair) == 0);
    CHECK(recv(pair[1], room, 100, 0) == 4 && pthread_join(thread, NULL) == 0);
    sender.is_enough = 1;
    CHECK(pthread_join(sender.thread, NULL) == 0);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

/* A receive that has begun before the socket has a port. */
static void *receive_one(void *argument) {
    char byte;
    return (void *)recv(*(int *)argument, &byte, 1, 0);
}

static void bound_later(void) {
    four address = at(INADDR_LOOPBACK, 0);
    pthread_t thread;
    void *result;
    int fd = fresh(), other = fresh();
    struct epoll_event event = {.events = EPOLLIN};
    int instance = epoll_create1(0);
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(instance, &event, 1, 0) == 0);
    CHECK(pthread_create(&thread, NULL, receive_one, &fd) == 0);
    usleep(20000);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    CHECK(send_to(other, "x", local_of(fd)) == 1);
    CHECK(pthread_join(thread, &result) == 0 && result == (void *)1);
    CHECK(send_to(other, "y", local_of(fd)) == 1);
    CHECK(epoll_wait(instance, &event, 1, LONG) == 1 && event.events == EPOLLIN);
    expect(fd, "y");
    CHECK(epoll_wait(instance, &event, 1, 0) == 0);
    CHECK(close(fd) == 0 && close(other) == 0 && close(instance) == 0);
}

/* Many threads receive from one socket: each datagram reaches one of them. */
enum { THREADS = 20, EACH = 100 };
static int common;
static void *receive_many(void *argument) {
    (void)argument;
    long sum = 0;
    int value;
    while (recv(common, &value, sizeof value, 0) == sizeof value)
        sum += value;
    return (void *)sum;
}

static void many(void) {
    four first, second;
    pthread_t threads[THREADS];
    long sum = 0, expected = 0;
    void *result;
    int sender = bound(&second), waiting;
    common = bound(&first);
    CHECK(connect_to(sender, first) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, receive_many, NULL) == 0);
    for (int i = 1; i <= THREADS * EACH; i++) {
        CHECK(write(sender, &i, sizeof i) == sizeof i);
        expected += i;
        /* None is to be dropped. */
        while (i % 8 == 0 && events_of(common, POLLIN) != 0)
            usleep(1000);
    }
    while (ioctl(common, FIONREAD, &waiting) == 0 && waiting != 0)
        usleep(1000);
    /* A datagram without bytes ends a thread. */
    for (int i = 0; i < THREADS; i++) {
        CHECK(write(sender, "", 0) == 0);
        usleep(1000);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], &result) == 0);
        sum += (long)result;
    }
    CHECK(sum == expected && close(sender) == 0 && close(common) == 0);
}

static void ready(void) {
    four first, second;
    int one = bound(&first), other = bound(&second), instance = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = other};
    struct pollfd two[2] = {{one, POLLIN, 0}, {other, POLLIN, 0}};
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, other, &event) == 0);
    CHECK(connect_to(one, second) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(epoll_wait(instance, &event, 1, 0) == 0 && poll(two, 2, 0) == 0);
        /* Without bytes it is an event too. */
        CHECK(write(one, "abc", i) == i);
        CHECK(poll(two, 2, LONG) == 1 && two[1].revents == POLLIN && two[0].revents == 0);
        CHECK(epoll_wait(instance, &event, 1, LONG) == 1 && event.data.fd == other);
        CHECK(event.events == EPOLLIN && epoll_wait(instance, &event, 1, 0) == 0);
        CHECK(recv(other, room, 9, 0) == i);
    }
    int pair[2] = {one, other};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_later, pair) == 0);
    CHECK(poll(two, 2, LONG) == 1 && two[1].revents == POLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    expect(other, "late");
    CHECK(close(instance) == 0 && close(one) == 0 && close(other) == 0);
}

static void shut(void) {
    four first, second;
    int one = bound(&first), other = bound(&second);
    struct pollfd polled = {one, POLLIN | POLLRDHUP, 0};
    FAILS(shutdown(fresh(), SHUT_RD), ENOTCONN);
    CHECK(connect_to(one, second) == 0 && send_to(other, "before", first) == 6);
    FAILS(shutdown(one, 3), EINVAL);
    CHECK(shutdown(one, SHUT_RD) == 0);
    CHECK(poll(&polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLRDHUP));
    expect(one, "before");
    socklen_t length = sizeof first;
    CHECK(recvfrom(one, room, 9, 0, (void *)&first, &length) == 0 && length == 0);
    CHECK(write(one, "still", 5) == 5);
    expect(other, "still");
    /* No signal, which would end the program. */
    struct sigaction action;
    CHECK(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK(shutdown(one, SHUT_WR) == 0);
    FAILS(write(one, "x", 1), EPIPE);
    FAILS(send(one, "x", 1, 0), EPIPE);
    struct iovec piece = {"x", 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}};
    FAILS(sendmsg(one, &message.msg_hdr, 0), EPIPE);
    FAILS(sendmmsg(one, &message, 1, 0), EPIPE);
    CHECK(poll(&polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLRDHUP | POLLHUP));
    CHECK(close(one) == 0 && close(other) == 0);
}

/* A thread that waits learns of the end. */
static void *shut_later(void *argument) {
    usleep(50000);
    CHECK(shutdown(*(int *)argument, SHUT_RD) == 0);
    return NULL;
}

static void shut_while_waiting(void) {
    four first, second;
    pthread_t thread;
    int one = bound(&first), other = bound(&second);
    CHECK(connect_to(one, second) == 0);
    CHECK(pthread_create(&thread, NULL, shut_later, &one) == 0);
    CHECK(recv(one, room, 9, 0) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(close(one) == 0 && close(other) == 0);
}

static void version_six(void) {
    six address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, from;
    socklen_t length = sizeof from;
    int one = socket(AF_INET6, SOCK_DGRAM, 0), other = socket(AF_INET6, SOCK_DGRAM, 0), v4 = fresh();
    CHECK(one >= 0 && other >= 0 && option_of(one, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
    int on = 1;
    CHECK(setsockopt(one, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on) == 0);
    four wrong = at(INADDR_LOOPBACK, 0);
    FAILS(bind(one, (void *)&wrong, sizeof wrong), is_cops() ? EAFNOSUPPORT : EINVAL);
    CHECK(bind(one, (void *)&address, sizeof address) == 0);
    CHECK(getsockname(one, (void *)&address, &length) == 0 && length == sizeof address);
    CHECK(sendto(other, "six", 3, 0, (void *)&address, sizeof address) == 3);
    CHECK(recvfrom(one, room, 9, 0, (void *)&from, &length) == 3 && length == sizeof from);
    CHECK(from.sin6_family == AF_INET6 && from.sin6_port != 0);
    CHECK(memcmp(&from.sin6_addr, &in6addr_loopback, 16) == 0);
    CHECK(connect(one, (void *)&from, sizeof from) == 0 && write(one, "back", 4) == 4);
    expect(other, "back");
    CHECK(close(one) == 0);
    /* With any address, it serves IPv4 too, in addresses of its own family. */
    CHECK(getsockname(other, (void *)&address, &length) == 0 && address.sin6_port != 0);
    CHECK(send_to(v4, "four", at(INADDR_LOOPBACK, ntohs(address.sin6_port))) == 4);
    length = sizeof from;
    CHECK(recvfrom(other, room, 9, 0, (void *)&from, &length) == 4 && length == sizeof from);
    CHECK(from.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
    CHECK(from.sin6_port == local_of(v4).sin_port);
    CHECK(sendto(other, "mapped", 6, 0, (void *)&from, sizeof from) == 6);
    expect(v4, "mapped");
    four plain = at(INADDR_LOOPBACK, ntohs(from.sin6_port));
    CHECK(sendto(other, "plain", 5, 0, (void *)&plain, sizeof plain) == 5);
    expect(v4, "plain");
    CHECK(connect(other, (void *)&from, sizeof from) == 0 && write(other, "peer", 4) == 4);
    CHECK(getsockname(other, (void *)&address, &length) == 0);
    CHECK(IN6_IS_ADDR_V4MAPPED(&address.sin6_addr));
    expect(v4, "peer");
    CHECK(close(other) == 0 && close(v4) == 0);
}

/* Duplicates and copies of the process share a socket; the port is free when the last has gone. */
static void shared(void) {
    four first, second;
    int one = bound(&first), other = bound(&second), copy = dup(one);
    pid_t child = fork();
    if (child == 0) {
        expect(one, "to the child");
        CHECK(send_to(one, "from the child", second) == 14);
        _exit(0);
    }
    CHECK(send_to(other, "to the child", first) == 12);
    ended_with(child, 0);
    expect(other, "from the child");
    CHECK(close(one) == 0 && send_to(other, "still", first) == 5);
    expect(copy, "still");
    CHECK(close(copy) == 0);
    one = fresh();
    CHECK(bind(one, (void *)&first, sizeof first) == 0 && close(one) == 0 && close(other) == 0);
}

/* More sockets than there is memory for, or descriptors. */
static void exhaustion(void) {
    static int sockets[5000];
    int count = 0;
    four address = at(INADDR_LOOPBACK, 0);
    while (count < 5000 && (sockets[count] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0) {
        if (bind(sockets[count++], (void *)&address, sizeof address) != 0)
            break;
    }
    CHECK(count == 5000 || errno == EMFILE || errno == ENOMEM || errno == EADDRNOTAVAIL);
    CHECK(count > 100);
    while (count > 0)
        CHECK(close(sockets[--count]) == 0);
    exchange();
}

/* An exchange over Ethernet: the server refuses to read a file, or sends it. */
static void ask(const char *server) {
    static const char request[] = "\0\1no such file\0octet";
    four address = at(0, 69), from = at(0, 0);
    socklen_t length = sizeof from;
    int fd = fresh(), tries = 0;
    struct timeval limit = {1, 0};
    CHECK(inet_pton(AF_INET, server, &address.sin_addr) == 1);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    /* The machine may not have an address yet. */
    while (sendto(fd, request, sizeof request, 0, (void *)&address, sizeof address) < 0) {
        CHECK(errno == ENETUNREACH && tries++ < 100);
        usleep(100000);
    }
    /* The first datagram may wait for the address of the neighbour. */
    long received = recvfrom(fd, room, sizeof room, 0, (void *)&from, &length);
    CHECK(received >= 4 && room[0] == 0 && (room[1] == 5 || room[1] == 3));
    CHECK(from.sin_addr.s_addr == address.sin_addr.s_addr);
    /* Longer than a frame. */
    FAILS(sendto(fd, bytes, 1473, 0, (void *)&address, sizeof address), EMSGSIZE);
    CHECK(sendto(fd, bytes, 1472, 0, (void *)&address, sizeof address) == 1472);
    CHECK(connect_to(fd, address) == 0 && local_of(fd).sin_addr.s_addr != 0);
    CHECK(send(fd, request, sizeof request, 0) == sizeof request && close(fd) == 0);
}

int main(int count, char **arguments) {
    if (count > 1) {
        ask(arguments[1]);
        puts("the server has answered");
        return 0;
    }
    creation();
    addresses();
    exchange();
    lengths();
    bounded();
    connections();
    errors();
    messages();
    several();
    disturbed();
    waits();
    bound_later();
    many();
    ready();
    shut();
    shut_while_waiting();
    version_six();
    shared();
    exhaustion();
    puts("datagrams are in order");
}
