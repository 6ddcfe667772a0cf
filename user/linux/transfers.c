/* Reads and writes of many bytes in one call: of files, pipes, pairs and devices; what a signal, a
   closed end or a bad address makes of them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "children.h"

#define MANY (300 * 1000)

static unsigned char bytes[MANY], back[MANY];

static void fill(void) {
    unsigned state = 1;
    for (int i = 0; i < MANY; i++) {
        state = state * 1103515245 + 12345;
        bytes[i] = state >> 16;
    }
}

static void pause_for(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Reads everything in pieces of different lengths, slowly at first. */
static void *drain(void *descriptor) {
    int fd = *(int *)descriptor;
    size_t sizes[] = {1, 4095, 4096, 5000, 70000};
    long total = 0, count;
    for (int i = 0; (count = read(fd, back + total, sizes[i % 5] < MANY - (size_t)total
                                                        ? sizes[i % 5]
                                                        : MANY - (size_t)total)) > 0;
         i++) {
        total += count;
        if (i < 5)
            pause_for(2);
    }
    return (void *)total;
}

/* A write waits until everything is written; the reader gets it in order. */
static void whole_writes(int from, int to) {
    pthread_t reader;
    void *total;
    memset(back, 0, MANY);
    CHECK(pthread_create(&reader, NULL, drain, &from) == 0);
    CHECK(write(to, bytes, MANY) == MANY);
    CHECK(close(to) == 0);
    CHECK(pthread_join(reader, &total) == 0 && (long)total == MANY);
    CHECK(memcmp(bytes, back, MANY) == 0);
    CHECK(close(from) == 0);
}

static void pipes(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    whole_writes(ends[0], ends[1]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    whole_writes(ends[0], ends[1]);

    /* A read takes what is there, and does not wait for more. */
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], bytes, 50000) == 50000);
    CHECK(read(ends[0], back, MANY) == 50000 && memcmp(bytes, back, 50000) == 0);
    /* One that finds exactly whole parts does not wait for another either. */
    CHECK(write(ends[1], bytes, 32768) == 32768);
    CHECK(read(ends[0], back, MANY) == 32768);

    /* Without waiting: as much as there is room for, then nothing. */
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    FAILS(read(ends[0], back, MANY), EAGAIN);
    long room = write(ends[1], bytes, MANY);
    CHECK(room >= 32768 && room < MANY);
    FAILS(write(ends[1], bytes, MANY), EAGAIN);
    CHECK(read(ends[0], back, MANY) == room && memcmp(bytes, back, room) == 0);
    FAILS(read(ends[0], back, MANY), EAGAIN);
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], back, MANY) == 0);
    CHECK(close(ends[0]) == 0);
}

static int ends_of_writer[2];

static void *close_later(void *nothing) {
    (void)nothing;
    pause_for(20);
    CHECK(close(ends_of_writer[0]) == 0);
    return NULL;
}

static volatile int handled;

static void handle(int signal) {
    handled = signal;
}

static void *signal_later(void *thread) {
    pause_for(20);
    CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    return NULL;
}

/* What has been written is the result when the reader leaves, or a signal comes. */
static void cut_short(void) {
    pthread_t other, self = pthread_self();
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(pipe(ends_of_writer) == 0);
    CHECK(pthread_create(&other, NULL, close_later, NULL) == 0);
    long written = write(ends_of_writer[1], bytes, MANY);
    CHECK(written >= 32768 && written < MANY);
    CHECK(pthread_join(other, NULL) == 0);
    FAILS(write(ends_of_writer[1], bytes, MANY), EPIPE);
    CHECK(write(ends_of_writer[1], bytes, 0) == 0);
    CHECK(close(ends_of_writer[1]) == 0);

    CHECK(pipe(ends_of_writer) == 0);
    CHECK(pthread_create(&other, NULL, signal_later, &self) == 0);
    long again = write(ends_of_writer[1], bytes, MANY);
    CHECK(again == written && handled == SIGUSR1);
    CHECK(pthread_join(other, NULL) == 0);

    /* Before anything is written, a signal with SA_RESTART does not end the call, and another
       does. */
    action.sa_flags = 0;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    handled = 0;
    CHECK(pthread_create(&other, NULL, signal_later, &self) == 0);
    FAILS(write(ends_of_writer[1], bytes, MANY), EINTR);
    CHECK(handled == SIGUSR1 && pthread_join(other, NULL) == 0);
    CHECK(read(ends_of_writer[0], back, MANY) == written);
    CHECK(memcmp(bytes, back, written) == 0);
    CHECK(close(ends_of_writer[0]) == 0 && close(ends_of_writer[1]) == 0);
}

/* A process that is killed in the middle of a long call ends. */
static void killed(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    size_t much = 64 << 20;
    unsigned char *pages = mmap(NULL, much, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            int null = open("/dev/null", O_WRONLY);
            for (;;)
                if (write(i % 2 ? ends[1] : null, pages, much) < 0)
                    _exit(1);
        }
        pause_for(i);
        CHECK(kill(child, SIGKILL) == 0);
        ended_by(child, SIGKILL);
    }
    CHECK(munmap(pages, much) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void files(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, bytes, MANY) == MANY);
    CHECK(lseek(fd, 0, SEEK_CUR) == MANY);
    memset(back, 0, MANY);
    CHECK(pread(fd, back, MANY, 0) == MANY && memcmp(bytes, back, MANY) == 0);
    CHECK(pread(fd, back, MANY, MANY - 20000) == 20000);
    CHECK(memcmp(bytes + MANY - 20000, back, 20000) == 0);
    CHECK(pread(fd, back, MANY, MANY) == 0);
    CHECK(pwrite(fd, bytes, 100000, 1) == 100000);
    CHECK(lseek(fd, 1, SEEK_SET) == 1);
    CHECK(read(fd, back, 100000) == 100000 && memcmp(bytes, back, 100000) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 100001);
    FAILS(pread(fd, back, MANY, -1), EINVAL);

    /* What comes before a bad address is read and written. */
    unsigned char *pages = mmap(NULL, 32 * 4096, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 16 * 4096, 16 * 4096) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    long count = read(fd, pages + 1000, 30 * 4096);
    CHECK(count > 0 && count <= 16 * 4096 - 1000);
    CHECK(lseek(fd, 0, SEEK_CUR) == count);
    count = write(fd, pages, 30 * 4096);
    CHECK(count > 0 && count <= 16 * 4096);
    FAILS(write(fd, pages + 16 * 4096, 30 * 4096), EFAULT);
    CHECK(munmap(pages, 16 * 4096) == 0);
    CHECK(close(fd) == 0 && unlink(path) == 0);
    FAILS(write(fd, bytes, MANY), EBADF);

    fd = open(path, O_RDONLY | O_CREAT, 0600);
    FAILS(write(fd, bytes, MANY), EBADF);
    CHECK(read(fd, back, MANY) == 0);
    CHECK(close(fd) == 0 && unlink(path) == 0);
}

static void devices(void) {
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    memset(back, 1, MANY);
    CHECK(read(zero, back, MANY) == MANY);
    for (int i = 0; i < MANY; i++)
        CHECK(back[i] == 0);
    CHECK(write(null, bytes, MANY) == MANY);
    CHECK(read(null, back, MANY) == -1 && errno == EBADF);
    CHECK(close(zero) == 0 && close(null) == 0);
    int random = open("/dev/urandom", O_RDONLY), different = 0;
    CHECK(random >= 0 && read(random, back, 1000) == 1000 && read(random, back, MANY) == MANY);
    for (int i = 1; i < MANY; i++)
        different += back[i] != back[i - 1];
    CHECK(different > MANY / 2 && close(random) == 0);
    null = open("/dev/null", O_RDONLY);
    CHECK(read(null, back, MANY) == 0 && close(null) == 0);
}

static void *send_slowly(void *descriptor) {
    int fd = *(int *)descriptor;
    for (int i = 0; i < 10; i++) {
        pause_for(2);
        CHECK(send(fd, bytes + i * 3000, 3000, MSG_NOSIGNAL) == 3000);
    }
    return NULL;
}

static void messages(void) {
    pthread_t other;
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    FAILS(recv(ends[0], back, MANY, MSG_DONTWAIT), EAGAIN);
    CHECK(pthread_create(&other, NULL, send_slowly, &ends[1]) == 0);
    CHECK(recv(ends[0], back, 30000, MSG_WAITALL) == 30000);
    CHECK(memcmp(bytes, back, 30000) == 0 && pthread_join(other, NULL) == 0);
    long room = send(ends[1], bytes, MANY, MSG_DONTWAIT);
    CHECK(room >= 16384 && room < MANY);
    FAILS(send(ends[1], bytes, MANY, MSG_DONTWAIT), EAGAIN);
    CHECK(send(ends[0], bytes, 0, MSG_NOSIGNAL) == 0 && write(ends[0], bytes, 0) == 0);
    CHECK(close(ends[1]) == 0);
    /* Unlike a pipe. */
    FAILS(send(ends[0], bytes, 0, MSG_NOSIGNAL), EPIPE);
    FAILS(write(ends[0], bytes, 0), EPIPE);
    /* The end of the stream ends it too. */
    CHECK(recv(ends[0], back, MANY, MSG_WAITALL) == room && memcmp(bytes, back, room) == 0);
    CHECK(recv(ends[0], back, MANY, MSG_WAITALL) == 0);
    CHECK(close(ends[0]) == 0);
}

int main(void) {
    fill();
    pipes();
    cut_short();
    killed();
    files("/tmp/transfers");
    devices();
    messages();
    printf("transfers are in order\n");
    return 0;
}
