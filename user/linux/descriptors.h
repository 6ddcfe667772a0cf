/* What the kernel says of one file descriptor: what is ready, and the options of a socket. */
#include <poll.h>
#include <sys/socket.h>

#include "check.h"

/* The events that poll finds now. */
__attribute__((unused)) static int events_of(int fd, int asked) {
    struct pollfd one = {fd, asked, 0x7777};
    int count = poll(&one, 1, 0);
    CHECK(count == (one.revents != 0));
    return one.revents;
}

/* An option of a socket that is a number. */
__attribute__((unused)) static int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &length) == 0 && length == sizeof value);
    return value;
}
