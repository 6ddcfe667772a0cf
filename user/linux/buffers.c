/* Reads and writes of many buffers in one call: readv, writev, preadv, pwritev, sendmsg, recvmsg. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define MANY (300 * 1000)
#define MOST 1024

static unsigned char bytes[MANY], back[MANY];
static struct iovec parts[MOST + 1];

static void pause_for(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void fill(void) {
    unsigned state = 7;
    for (int i = 0; i < MANY; i++) {
        state = state * 1103515245 + 12345;
        bytes[i] = state >> 16;
    }
}

/* Divides `length` bytes at `memory` among `count` buffers, some of them empty. */
static void divide(unsigned char *memory, size_t length, int count) {
    size_t at = 0, each = length / count * 2;
    for (int i = 0; i < count; i++) {
        size_t next = i == count - 1 ? length - at : i % 3 == 1 ? 0 : each + i % 7;
        if (next > length - at)
            next = length - at;
        parts[i] = (struct iovec){memory + at, next};
        at += next;
    }
    CHECK(at == length);
}

/* Reads everything, in pieces and slowly at first. */
static void *drain(void *descriptor) {
    int fd = *(int *)descriptor;
    long total = 0, count;
    for (int i = 0; (count = read(fd, back + total, MANY - total)) > 0; i++) {
        total += count;
        if (i < 5)
            pause_for(2);
    }
    return (void *)total;
}

/* A write of many buffers waits until everything is written, in order. */
static void whole_writes(int from, int to, int count) {
    pthread_t reader;
    void *total;
    memset(back, 0, MANY);
    divide(bytes, MANY, count);
    CHECK(pthread_create(&reader, NULL, drain, &from) == 0);
    CHECK(writev(to, parts, count) == MANY);
    CHECK(close(to) == 0);
    CHECK(pthread_join(reader, &total) == 0 && (long)total == MANY);
    CHECK(memcmp(bytes, back, MANY) == 0);
    CHECK(close(from) == 0);
}

static void streams(void) {
    int ends[2], counts[] = {1, 2, 9, 40, 333, MOST};
    for (int i = 0; i < 6; i++) {
        CHECK(pipe(ends) == 0);
        whole_writes(ends[0], ends[1], counts[i]);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        whole_writes(ends[0], ends[1], counts[i]);
    }

    /* What fits into a pipe as a whole is one write. */
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(ends[1], bytes, 4096) == 4096) {}
    CHECK(read(ends[0], back, 2000) == 2000);
    divide(bytes, 4000, 30);
    FAILS(writev(ends[1], parts, 30), EAGAIN);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);

    /* A read takes what is there, into as many buffers as that needs. */
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], bytes, 50000) == 50000);
    memset(back, 0, MANY);
    divide(back, MANY, 200);
    CHECK(readv(ends[0], parts, 200) == 50000 && memcmp(bytes, back, 50000) == 0);
    CHECK(back[50000] == 0);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    FAILS(readv(ends[0], parts, 200), EAGAIN);
    CHECK(write(ends[1], bytes, 100) == 100);
    divide(back, 100, 90);
    CHECK(readv(ends[0], parts, 90) == 100 && memcmp(bytes, back, 100) == 0);
    CHECK(close(ends[1]) == 0);
    CHECK(readv(ends[0], parts, 90) == 0);
    CHECK(close(ends[0]) == 0);
}

static void files(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    divide(bytes, MANY, 500);
    CHECK(writev(fd, parts, 500) == MANY && lseek(fd, 0, SEEK_CUR) == MANY);
    memset(back, 0, MANY);
    divide(back, MANY, 700);
    CHECK(preadv(fd, parts, 700, 0) == MANY && memcmp(bytes, back, MANY) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == MANY);
    memset(back, 0, MANY);
    CHECK(lseek(fd, 1000, SEEK_SET) == 1000);
    divide(back, MANY, 11);
    CHECK(readv(fd, parts, 11) == MANY - 1000);
    CHECK(memcmp(bytes + 1000, back, MANY - 1000) == 0 && readv(fd, parts, 11) == 0);
    divide(bytes, 100000, 64);
    CHECK(pwritev(fd, parts, 64, MANY - 100000) == 100000);
    CHECK(pread(fd, back, 100000, MANY - 100000) == 100000);
    CHECK(memcmp(bytes, back, 100000) == 0);

    /* All of them empty, and none. */
    for (int i = 0; i < MOST; i++)
        parts[i] = (struct iovec){back, 0};
    CHECK(writev(fd, parts, MOST) == 0 && readv(fd, parts, MOST) == 0);
    CHECK(preadv(fd, parts, 0, 0) == 0);
    /* The last of many. */
    parts[MOST - 1].iov_len = 10;
    CHECK(preadv(fd, parts, MOST, 5) == 10 && memcmp(bytes + 5, back, 10) == 0);

    volatile int less_than_none = -1;
    struct iovec *volatile nowhere = (struct iovec *)8;
    FAILS(readv(fd, parts, MOST + 1), EINVAL);
    FAILS(writev(fd, parts, less_than_none), EINVAL);
    FAILS(preadv(fd, parts, 1, -1), EINVAL);
    FAILS(readv(fd, nowhere, 2), EFAULT);
    parts[0] = (struct iovec){back, 1000};
    parts[1] = (struct iovec){back, (size_t)-1};
    FAILS(readv(fd, parts, 2), EINVAL);

    /* What comes before a bad address is moved. */
    unsigned char *pages = mmap(NULL, 32 * 4096, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 16 * 4096, 16 * 4096) == 0);
    parts[0] = (struct iovec){back, 40000};
    parts[1] = (struct iovec){pages, 30 * 4096};
    long count = preadv(fd, parts, 2, 0);
    CHECK(count >= 40000 && count <= 40000 + 16 * 4096 && memcmp(bytes, back, 40000) == 0);
    parts[0] = (struct iovec){pages + 16 * 4096, 30 * 4096};
    FAILS(preadv(fd, parts, 1, 0), EFAULT);
    CHECK(munmap(pages, 16 * 4096) == 0 && close(fd) == 0 && unlink(path) == 0);
    FAILS(readv(fd, parts, 2), EBADF);
}

static void *send_slowly(void *descriptor) {
    int fd = *(int *)descriptor;
    struct msghdr message = {.msg_iov = (struct iovec[2]){{NULL, 1000}, {NULL, 2000}},
                             .msg_iovlen = 2};
    for (int i = 0; i < 10; i++) {
        pause_for(2);
        message.msg_iov[0].iov_base = bytes + i * 3000;
        message.msg_iov[1].iov_base = bytes + i * 3000 + 1000;
        CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == 3000);
    }
    return NULL;
}

static volatile int handled;

static void handle(int signal) {
    handled = signal;
}

static void messages(void) {
    pthread_t other;
    int ends[2];
    char name[64], control[64];
    struct iovec own[3] = {{back, 10}, {back + 10, 0}, {back + 10, MANY - 10}};
    struct msghdr message = {.msg_iov = own, .msg_iovlen = 3};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    FAILS(recvmsg(ends[0], &message, MSG_DONTWAIT), EAGAIN);
    CHECK(write(ends[1], bytes, 100) == 100);
    message.msg_name = name, message.msg_namelen = sizeof name;
    message.msg_control = control, message.msg_controllen = sizeof control;
    message.msg_flags = -1;
    CHECK(recvmsg(ends[0], &message, MSG_PEEK) >= 10 && memcmp(bytes, back, 10) == 0);
    CHECK(recv(ends[0], back, 1000, MSG_PEEK) == 100 && memcmp(bytes, back, 100) == 0);
    CHECK(recv(ends[0], back + 1000, 7, MSG_PEEK) == 7);
    memset(back, 0, 100);
    CHECK(recvmsg(ends[0], &message, 0) == 100 && memcmp(bytes, back, 100) == 0);
    CHECK(message.msg_namelen == 0 && message.msg_controllen == 0 && message.msg_flags == 0);

    own[2].iov_len = 29990;
    CHECK(pthread_create(&other, NULL, send_slowly, &ends[1]) == 0);
    memset(back, 0, 30000);
    CHECK(recvmsg(ends[0], &message, MSG_WAITALL) == 30000);
    CHECK(memcmp(bytes, back, 30000) == 0 && pthread_join(other, NULL) == 0);

    /* Everything is sent, or what there is room for. */
    own[0] = (struct iovec){bytes, 5};
    own[2] = (struct iovec){bytes + 5, MANY - 5};
    message = (struct msghdr){.msg_iov = own, .msg_iovlen = 3};
    long room = sendmsg(ends[1], &message, MSG_DONTWAIT);
    CHECK(room >= 16384 && room < MANY);
    FAILS(sendmsg(ends[1], &message, MSG_DONTWAIT), EAGAIN);
    CHECK(recv(ends[0], back, room, MSG_WAITALL) == room && memcmp(bytes, back, room) == 0);
    CHECK(pthread_create(&other, NULL, drain, &ends[0]) == 0);
    CHECK(sendmsg(ends[1], &message, 0) == MANY && shutdown(ends[1], SHUT_WR) == 0);
    void *total;
    CHECK(pthread_join(other, &total) == 0 && (long)total == MANY);
    CHECK(memcmp(bytes, back, MANY) == 0);

    message.msg_iovlen = MOST + 1;
    message.msg_iov = parts;
    FAILS(sendmsg(ends[0], &message, 0), EMSGSIZE);
    FAILS(recvmsg(ends[0], &message, 0), EMSGSIZE);
    FAILS(sendmsg(ends[0], (struct msghdr *)8, 0), EFAULT);
    FAILS(recvmsg(0, &message, 0), ENOTSOCK);
    FAILS(recvmsg(-1, &message, 0), EBADF);

    /* A closed end is an error, and a signal unless the call says otherwise. */
    struct sigaction action = {.sa_handler = handle};
    CHECK(sigaction(SIGPIPE, &action, NULL) == 0 && close(ends[0]) == 0);
    CHECK(close(ends[1]) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(close(ends[0]) == 0);
    message = (struct msghdr){.msg_iov = own, .msg_iovlen = 3};
    FAILS(sendmsg(ends[1], &message, MSG_NOSIGNAL), EPIPE);
    CHECK(handled == 0);
    FAILS(sendmsg(ends[1], &message, 0), EPIPE);
    CHECK(handled == SIGPIPE && close(ends[1]) == 0);
}

static void *change(void *nothing) {
    unsigned state = 3;
    for (int i = 0; i < 20000; i++) {
        state = state * 1103515245 + 12345;
        int which = 100 + state / 65536 % 400;
        parts[which].iov_len = i % 3 ? state % 100000 : (size_t)-1;
        parts[which].iov_base = i % 2 ? (void *)8 : bytes;
    }
    return nothing;
}

/* The array of a write that waits is changed: other bytes of the program are written, or fewer. */
static void changed(void) {
    for (int i = 0; i < 20; i++) {
        pthread_t reader;
        void *total;
        int ends[2];
        CHECK(pipe(ends) == 0);
        divide(bytes, MANY, 500);
        CHECK(pthread_create(&reader, NULL, drain, &ends[0]) == 0);
        pthread_t changer;
        CHECK(pthread_create(&changer, NULL, change, NULL) == 0);
        long count = writev(ends[1], parts, 500);
        /* It may be changed before the call looks at it. */
        CHECK(count <= MANY && (count > 0 || errno == EINVAL || errno == EFAULT));
        if (count < 0)
            count = 0;
        CHECK(close(ends[1]) == 0 && pthread_join(changer, NULL) == 0);
        CHECK(pthread_join(reader, &total) == 0 && (long)total == count && close(ends[0]) == 0);
    }
}

int main(void) {
    fill();
    streams();
    files("/tmp/buffers");
    messages();
    if (is_cops())
        changed();
    printf("buffers are in order\n");
    return 0;
}
