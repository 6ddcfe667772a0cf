/* Sockets of the tutorial personality: datagrams between two of its own, and a server to which a
   program for Linux connects. */
#include "tutorial.h"

enum { LOCALHOST = 127 << 24 | 1 };

int main(int argc, char **argv) {
    (void)argc, (void)argv;
    char bytes[64] = {0};
    long one = udp(LOCALHOST, 2001, 2002), other = udp(LOCALHOST, 2002, 2001);
    IS(one, 3);
    IS(other, 4);
    IS(udp(LOCALHOST, 2001, 5), -1);
    IS(udp(LOCALHOST, 2003, 0), -1);
    IS(udp(LOCALHOST, 0, 2003), -1);
    IS(write(one, "first", 5), 5);
    IS(write(one, "second", 6), 6);
    IS(read(other, bytes, 3), 3);
    IS(bytes[2], 'r');
    IS(read(other, bytes, 64), 6);
    IS(bytes[5], 'd');
    /* A datagram of someone else is not read. */
    long stranger = udp(LOCALHOST, 2004, 2001);
    IS(write(stranger, "no", 2), 2);
    IS(write(other, "yes", 3), 3);
    IS(read(one, bytes, 64), 3);
    IS(bytes[0], 'y');
    IS(write(one, bytes, 1 << 20), -1);

    IS(accept(one), -1);
    IS(listen(0), -1);
    long server = listen(80);
    IS(server, 6);
    IS(listen(80), -1);
    const char *arguments[] = {"connects", 0};
    long pid = fork();
    int code;
    if (pid == 0) {
        exec("connects", arguments);
        exit(99);
    }
    long client = accept(server);
    IS(client, 7);
    IS(read(client, bytes, 64), 4);
    IS(bytes[3], 'g');
    IS(write(client, "pong", 4), 4);
    IS(close(client), 0);
    IS(waitpid(pid, &code), pid);
    IS(code, 7);
    print("the network is in order\n");
    return 0;
}
