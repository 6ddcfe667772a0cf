/* What a process has made works for the child that it leaves it to, as a daemon does, when the
 * process itself has ended and been waited for. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "children.h"

static const char path[] = "/tmp/left";
static int faults, made, ends[2], other_ends[2];
static char *mapped;

static void make_pipe(void) { CHECK(pipe(ends) == 0); }
static void use_pipe(void) {
    char byte;
    CHECK(write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1);
}

static void make_pair(void) { CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
static void use_pair(void) {
    char byte;
    for (int end = 0; end < 2; end++)
        CHECK(write(ends[end], "x", 1) == 1 && read(ends[1 - end], &byte, 1) == 1);
}

static void make_epoll(void) { CHECK((made = epoll_create1(0)) >= 0); }
static void use_epoll(void) {
    struct epoll_event event = {EPOLLOUT, {0}};
    CHECK(epoll_ctl(made, EPOLL_CTL_ADD, other_ends[1], &event) == 0);
    CHECK(epoll_wait(made, &event, 1, 0) == 1);
}

static void make_file(void) { CHECK((made = open(path, O_WRONLY)) >= 0); }
static void use_file(void) { CHECK(write(made, "x", 1) == 1); }

/* The mapping stays after its file is closed. */
static void make_mapping(void) {
    int file = open(path, O_RDWR);
    mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(mapped != MAP_FAILED && close(file) == 0);
}
static void use_mapping(void) {
    mapped[7] = 1;
    CHECK(mapped[7] == 1);
}

static void make_listener(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    made = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(made, (struct sockaddr *)&address, sizeof address) == 0 && listen(made, 5) == 0);
}
static void use_listener(void) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    struct pollfd arrival = {made, POLLIN, 0};
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(getsockname(made, (struct sockaddr *)&address, &length) == 0);
    CHECK(connect(client, (struct sockaddr *)&address, length) == 0 || errno == EINPROGRESS);
    CHECK(poll(&arrival, 1, 5000) == 1 && accept(made, NULL, NULL) >= 0);
}

/* A child makes something, starts one itself that uses it, and ends. */
static void leave(const char *what, void (*make)(void), void (*use)(void)) {
    int start[2], done[2];
    char byte = 0;
    CHECK(pipe(start) == 0 && pipe(done) == 0);
    fflush(stdout);
    pid_t maker = fork();
    CHECK(maker >= 0);
    if (maker == 0) {
        make();
        pid_t heir = fork();
        CHECK(heir >= 0);
        if (heir > 0)
            _exit(0);
        CHECK(read(start[0], &byte, 1) == 1);
        use();
        CHECK(write(done[1], "x", 1) == 1);
        _exit(0);
    }
    ended_with(maker, 0);
    /* What is left of the maker's memory is freed after it has been waited for. */
    usleep(100000);
    CHECK(close(done[1]) == 0 && write(start[1], "x", 1) == 1);
    if (read(done[0], &byte, 1) != 1) {
        printf("%s: not usable without its maker\n", what);
        faults++;
    }
    CHECK(close(start[0]) == 0 && close(start[1]) == 0 && close(done[0]) == 0);
}

int main(void) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && pipe(other_ends) == 0);
    leave("a pipe", make_pipe, use_pipe);
    leave("a pair", make_pair, use_pair);
    leave("an epoll instance", make_epoll, use_epoll);
    leave("a file", make_file, use_file);
    CHECK(ftruncate(file, 0) == 0 && ftruncate(file, 4096) == 0);
    leave("a mapping", make_mapping, use_mapping);
    leave("a listener", make_listener, use_listener);
    CHECK(unlink(path) == 0);
    if (faults == 0)
        printf("nothing ends with its maker\n");
    return faults;
}
