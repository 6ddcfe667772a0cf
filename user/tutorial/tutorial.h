/* Programs for rCore-Tutorial-v3, with nothing but its system calls (SPEC, appendix A). They are
   linked to begin at 0x10000, as that tutorial's programs are. */
#include <stddef.h>
#include <stdint.h>

static inline long call(long number, long first, long second, long third) {
    register long a0 __asm__("a0") = first;
    register long a1 __asm__("a1") = second;
    register long a2 __asm__("a2") = third;
    register long a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
    return a0;
}

#define CALL(number, a, b, c) call(number, (long)(a), (long)(b), (long)(c))

static inline long dup(long fd) { return CALL(24, fd, 0, 0); }
static inline long udp(uint32_t to, uint16_t from_port, uint16_t to_port) {
    return CALL(29, to, from_port, to_port);
}
static inline long listen(uint16_t port) { return CALL(30, port, 0, 0); }
static inline long accept(long fd) { return CALL(31, fd, 0, 0); }
static inline long open(const char *path, int flags) { return CALL(56, path, flags, 0); }
static inline long close(long fd) { return CALL(57, fd, 0, 0); }
static inline long pipe(size_t *fds) { return CALL(59, fds, 0, 0); }
static inline long read(long fd, void *to, size_t length) { return CALL(63, fd, to, length); }
static inline long write(long fd, const void *from, size_t n) { return CALL(64, fd, from, n); }
static inline void sleep_ms(size_t ms) { CALL(101, ms, 0, 0); }
static inline long yield(void) { return CALL(124, 0, 0, 0); }
static inline long kill(long pid, int signals) { return CALL(129, pid, signals, 0); }
static inline long get_time(void) { return CALL(169, 0, 0, 0); }
static inline long getpid(void) { return CALL(172, 0, 0, 0); }
static inline long fork(void) { return CALL(220, 0, 0, 0); }
static inline long exec(const char *path, const char *const *args) {
    return CALL(221, path, args, 0);
}
static inline long waitpid_now(long pid, int *code) { return CALL(260, pid, code, 0); }
static inline long thread_create(void (*entry)(void *), void *argument) {
    return CALL(1000, entry, argument, 0);
}
static inline long gettid(void) { return CALL(1001, 0, 0, 0); }
static inline long waittid_now(long tid) { return CALL(1002, tid, 0, 0); }
static inline long mutex_create(int blocking) { return CALL(1010, blocking, 0, 0); }
static inline long mutex_lock(long id) { return CALL(1011, id, 0, 0); }
static inline long mutex_unlock(long id) { return CALL(1012, id, 0, 0); }
static inline long semaphore_create(size_t count) { return CALL(1020, count, 0, 0); }
static inline long semaphore_up(long id) { return CALL(1021, id, 0, 0); }
static inline long semaphore_down(long id) { return CALL(1022, id, 0, 0); }
static inline long condvar_create(void) { return CALL(1030, 0, 0, 0); }
static inline long condvar_signal(long id) { return CALL(1031, id, 0, 0); }
static inline long condvar_wait(long id, long mutex) { return CALL(1032, id, mutex, 0); }

enum { WRONLY = 1, RDWR = 2, CREATE = 0x200, TRUNC = 0x400 };

static inline void exit(int code) {
    CALL(93, code, 0, 0);
    for (;;) {}
}

static inline long waitpid(long pid, int *code) {
    long result;
    while ((result = waitpid_now(pid, code)) == -2) yield();
    return result;
}

static inline long waittid(long tid) {
    long result;
    while ((result = waittid_now(tid)) == -2) yield();
    return result;
}

static inline size_t length_of(const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}

static inline int is_same(const char *one, const char *other) {
    size_t at = 0;
    while (one[at] && one[at] == other[at]) at++;
    return one[at] == other[at];
}

static inline void print(const char *text) { write(1, text, length_of(text)); }

static inline void print_number(long number) {
    char text[24];
    int at = 23, is_negative = number < 0;
    unsigned long rest = is_negative ? -(unsigned long)number : (unsigned long)number;
    text[at] = 0;
    do text[--at] = '0' + rest % 10; while (rest /= 10);
    if (is_negative) text[--at] = '-';
    print(text + at);
}

/* What is wrong is printed with its line, and the program ends. */
#define IS(what, expected) \
    do { \
        long value = (long)(what); \
        if (value != (long)(expected)) { \
            print("line "), print_number(__LINE__), print(": " #what " is "); \
            print_number(value), print("\n"); \
            exit(1); \
        } \
    } while (0)

int main(int argc, char **argv);

/* The linker puts this first. */
__attribute__((section(".text.entry"), used)) void _start(int argc, char **argv) {
    exit(main(argc, argv));
}
