/* Processes, files and pipes of the tutorial personality: each call, and what it refuses. */
#include "tutorial.h"

static int child(long (*how)(void)) {
    int code = 12345;
    long pid = fork();
    if (pid == 0) exit(how());
    IS(waitpid(pid, &code), pid);
    return code;
}

static volatile uintptr_t nowhere = 8, code = 0x10000;

static long returns(void) { return 0x12345678; }
static long is_negative(void) { return -300; }
static long reads_nothing(void) { return *(volatile long *)nowhere; }
static long writes_code(void) { *(volatile int *)code = 0; return 0; }
static long is_illegal(void) { __asm__ volatile(".word 0"); return 0; }
static long is_privileged(void) { __asm__ volatile("csrr t0, sstatus" ::: "t0"); return 0; }
static long aborts(void) { kill(getpid(), 1 << 6); return 0; }

static long has_no_end(void) {
    volatile char more[4096];
    more[0] = 1;
    return (nowhere ? has_no_end() : 0) + more[0];
}

static void processes(char *own_name) {
    int code = 7;
    IS(waitpid_now(-1, &code), -1);
    IS(child(returns), 0x12345678);
    IS(child(is_negative), -300);
    IS(child(reads_nothing), -11);
    IS(child(writes_code), -11);
    IS(child(has_no_end), -11);
    IS(child(is_illegal), -4);
    IS(child(is_privileged), -4);
    IS(child(aborts), -6);

    /* A child that waits until it is killed. */
    size_t ends[2];
    IS(pipe(ends), 0);
    long pid = fork();
    if (pid == 0) {
        char byte;
        read(ends[0], &byte, 1);
        exit(0);
    }
    IS(waitpid_now(pid, &code), -2);
    IS(waitpid_now(-1, &code), -2);
    IS(waitpid_now(pid + 1, &code), -1);
    IS(waitpid_now(pid, (int *)8), -1);
    IS(kill(pid, 1 << 3), -1);
    IS(kill(pid, 1 << 31), -1);
    IS(kill(1 << 20, 1 << 2), -1);
    IS(kill(pid, 0), 0);
    IS(kill(pid, 1 << 2), 0);
    IS(waitpid(pid, &code), pid);
    IS(code, -2);
    IS(close(ends[0]) | close(ends[1]), 0);

    /* The program itself with other arguments, and programs that are not there. */
    const char *none[] = {0}, *arguments[] = {"calls", "one", "", 0};
    IS(exec("nothing", none), -1);
    IS(exec((char *)8, none), -1);
    IS(exec(own_name, (void *)8), -1);
    pid = fork();
    if (pid == 0) {
        exec(own_name, arguments);
        exit(99);
    }
    IS(waitpid(pid, &code), pid);
    IS(code, 3);
}

static void files(void) {
    char bytes[16] = {0};
    IS(open("file", 0), -1);
    IS(open("file", WRONLY), -1);
    IS(open("file", 0x1000), -1);
    IS(open("", 0), -1);
    IS(open((char *)8, 0), -1);
    long fd = open("file", CREATE | WRONLY);
    IS(fd, 3);
    IS(write(fd, "hello", 5), 5);
    IS(read(fd, bytes, 1), -1);
    IS(write(fd, (char *)8, 1), -1);
    IS(dup(fd), 4);
    IS(write(4, " you", 4), 4);
    IS(close(fd), 0);
    IS(close(fd), -1);
    IS(dup(fd), -1);
    IS(close(4), 0);
    IS(open("file", 0), 3);
    IS(read(3, bytes, 16), 9);
    IS(is_same(bytes, "hello you"), 1);
    IS(read(3, bytes, 16), 0);
    IS(write(3, "x", 1), -1);
    IS(close(3), 0);
    IS(open("file", RDWR), 3);
    IS(write(3, "J", 1), 1);
    IS(read(3, bytes, 4), 4);
    IS(bytes[0], 'e');
    IS(close(3), 0);
    /* What exists is emptied. */
    IS(open("file", CREATE | RDWR), 3);
    IS(read(3, bytes, 16), 0);
    IS(write(3, "abc", 3), 3);
    IS(close(3), 0);
    IS(open("file", TRUNC | RDWR), 3);
    IS(read(3, bytes, 16), 0);
    IS(close(3), 0);
    IS(close(1000000), -1);
    IS(read(77, bytes, 1), -1);
}

static void pipes(void) {
    size_t ends[2] = {0};
    char bytes[16] = {0};
    int code;
    IS(pipe((size_t *)8), -1);
    IS(pipe(ends), 0);
    IS(ends[0], 3);
    IS(ends[1], 4);
    long pid = fork();
    if (pid == 0) {
        close(ends[1]);
        long sum = 0;
        while (read(ends[0], bytes, 1) == 1) sum += bytes[0];
        exit(sum);
    }
    IS(close(ends[0]), 0);
    for (int i = 0; i < 1000; i++) IS(write(ends[1], "\1", 1), 1);
    IS(close(ends[1]), 0);
    IS(waitpid(pid, &code), pid);
    IS(code, 1000);
}

static void time(void) {
    long begin = get_time();
    sleep_ms(30);
    long past = get_time() - begin;
    IS(past >= 30, 1);
    IS(yield(), 0);
    IS(call(5555, 0, 0, 0), -1);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        IS(is_same(argv[0], "calls") & is_same(argv[1], "one") & is_same(argv[2], ""), 1);
        return argc;
    }
    processes("calls");
    files();
    pipes();
    time();
    print("the calls are in order\n");
    return 0;
}
