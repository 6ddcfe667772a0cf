/* Connects to port 80 of this machine, and exchanges a few bytes. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

int main(void) {
    char bytes[16] = {0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(write(fd, "ping", 4) == 4);
    CHECK(read(fd, bytes, sizeof bytes) == 4 && !memcmp(bytes, "pong", 4));
    CHECK(read(fd, bytes, sizeof bytes) == 0);
    return 7;
}
