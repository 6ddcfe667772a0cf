/* Futexes and clone with arguments that mean harm: errors, counts, and threads up to the limit. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static long futex(void *at, int operation, uint32_t value, const void *time, void *other, uint32_t third) {
    return syscall(SYS_futex, at, operation, value, time, other, third);
}

static uint32_t word, second;
static int woken, woken_of_second_kind;

static void *wait_here(void *bits) {
    uint32_t mask = (uint32_t)(long)bits;
    while (futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, mask) != 0)
        CHECK(errno == EINTR);
    if (mask == 2)
        __atomic_fetch_add(&woken_of_second_kind, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Waits until so many threads have been woken. */
static void expect(int count) {
    while (__atomic_load_n(&woken, __ATOMIC_SEQ_CST) != count)
        usleep(1000);
    usleep(5000);
    CHECK(__atomic_load_n(&woken, __ATOMIC_SEQ_CST) == count);
}

static void errors(void) {
    struct timespec soon = {0, 1000000}, negative = {-1, 0}, much = {0, 1000000000};
    void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN);
    FAILS(futex(&word, FUTEX_WAIT, 0, &soon, NULL, 0), ETIMEDOUT);
    FAILS(futex(&word, FUTEX_WAIT, 0, &negative, NULL, 0), EINVAL);
    FAILS(futex(&word, FUTEX_WAIT, 0, &much, NULL, 0), EINVAL);
    FAILS(futex(&word, FUTEX_WAIT, 0, (void *)8, NULL, 0), EFAULT);
    FAILS(futex(&word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 0, &soon, NULL, 0), ENOSYS);
    FAILS(futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0), EINVAL);
    FAILS(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0), EINVAL);
    FAILS(futex(&word, FUTEX_WAIT_BITSET, 0, &soon, NULL, -1), ETIMEDOUT); /* long past */
    FAILS(futex((char *)&word + 1, FUTEX_WAIT, 0, NULL, NULL, 0), EINVAL);
    FAILS(futex((char *)&word + 2, FUTEX_WAKE, 1, NULL, NULL, 0), EINVAL);
    FAILS(futex(NULL, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex(page, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex((void *)-4096L, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex((void *)-4L, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
    FAILS(futex((void *)(1L << 38), FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &second, 5), EAGAIN);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE, -1, (void *)1, &second, 0), EINVAL);
    FAILS(futex(&word, FUTEX_REQUEUE, 1, (void *)(uintptr_t)UINT_MAX, &second, 0), EINVAL);
    FAILS(futex(&word, FUTEX_REQUEUE, 1, (void *)1, (char *)&second + 2, 0), EINVAL);
    FAILS(futex(&word, 77, 1, NULL, NULL, 0), ENOSYS);
    CHECK(futex(&word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) == 0);
    FAILS(syscall(SYS_set_robust_list, &word, 23), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), 1 << 29, 0), ESRCH);
    FAILS(syscall(SYS_tgkill, getpid() + 1, gettid(), 0), ESRCH);
    FAILS(syscall(SYS_tgkill, getpid(), gettid(), 65), EINVAL);
    CHECK(syscall(SYS_tgkill, getpid(), gettid(), 0) == 0);
}

enum { WAITERS = 40 };
static void wakes(void) {
    pthread_t thread[WAITERS];
    /* Each waits before the next one begins: a move to the same address counts them. It goes in
     * portions, so one that comes meanwhile gets a place among those that are moved. */
    for (long i = 0; i < WAITERS; i++) {
        CHECK(pthread_create(&thread[i], NULL, wait_here, (void *)(i % 4 == 0 ? 2L : 1L)) == 0);
        while (futex(&word, FUTEX_REQUEUE, 0, (void *)(uintptr_t)INT_MAX, &word, 0) != i + 1)
            usleep(1000);
    }
    expect(0);
    CHECK(futex(&word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, 4) == 0);
    CHECK(futex(&word, FUTEX_WAKE, 3, NULL, NULL, 0) == 3);
    expect(3);
    /* Of every fourth one, those that wait still. */
    int done = 3, rest = WAITERS / 4 - __atomic_load_n(&woken_of_second_kind, __ATOMIC_SEQ_CST);
    CHECK(futex(&word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, 2) == rest);
    expect(done += rest);
    CHECK(woken_of_second_kind == WAITERS / 4);
    CHECK(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)5, &second, 0) == 6);
    expect(done += 1);
    CHECK(futex(&second, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) == 5);
    expect(done += 5);
    rest = WAITERS - done;
    CHECK(futex(&word, FUTEX_REQUEUE, 0, (void *)(uintptr_t)INT_MAX, &word, 0) == rest);
    CHECK(futex(&word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) == rest);
    expect(WAITERS);
    for (int i = 0; i < WAITERS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
}

static int run(void *argument) { return argument != NULL; }

static void clones(void) {
    static char stack[16384];
    char *top = stack + sizeof stack;
    const int all = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    FAILS(clone(run, top, CLONE_THREAD, NULL), EINVAL);
    FAILS(clone(run, top, all & ~CLONE_VM, NULL), EINVAL);
    FAILS(clone(run, top, all & ~CLONE_SIGHAND, NULL), EINVAL);
    FAILS(clone(run, top, all & ~CLONE_FILES, NULL), EINVAL);
    FAILS(clone(run, top, all | CLONE_NEWNS, NULL), EINVAL);
    FAILS(clone(run, top, all | SIGCHLD, NULL), EINVAL);
    FAILS(syscall(SYS_clone, -1L, top, 0, 0, 0), EINVAL);
    FAILS(syscall(435, &word, 64L), ENOSYS); /* clone3 */
    /* Ids at bad addresses, a word to clear at a bad address, a list of mutexes that is a circle. */
    for (int i = 0; i < 20; i++) {
        static uint32_t running;
        running = 1;
        int flags = all | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        long tid = clone(run, top, flags, NULL, (void *)8, NULL, i % 2 == 0 ? (void *)16 : &running);
        CHECK(tid > 0);
        if (i % 2 == 0)
            usleep(5000); /* Nothing tells when it has ended. */
        while (i % 2 != 0 && __atomic_load_n(&running, __ATOMIC_SEQ_CST) != 0)
            usleep(1000);
    }
}

static void *in_circle(void *unused) {
    static uintptr_t head[3], entry[2];
    head[0] = (uintptr_t)&entry[0];
    entry[0] = (uintptr_t)&entry[0];
    head[1] = 8;
    head[2] = (uintptr_t)unused;
    CHECK(syscall(SYS_set_robust_list, head, 24L) == 0);
    return NULL;
}

static void *at_bad_address(void *address) {
    CHECK(syscall(SYS_set_robust_list, address, 24L) == 0);
    return NULL;
}

static void lists(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_circle, (void *)3) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, at_bad_address, (void *)13) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, at_bad_address, (void *)-1L) == 0 && pthread_join(thread, NULL) == 0);
}

/* As many threads as there can be, twice: what the first ones used is free again. */
static uint32_t gate;
static void *wait_at_gate(void *unused) {
    while (__atomic_load_n(&gate, __ATOMIC_SEQ_CST) == 0)
        futex(&gate, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return unused;
}

enum { MOST = 5000 };
static int fill(void) {
    static pthread_t thread[MOST];
    pthread_attr_t attributes;
    int count = 0, error = 0;
    gate = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    while (count < MOST && (error = pthread_create(&thread[count], &attributes, wait_at_gate, NULL)) == 0)
        count++;
    CHECK(count < MOST && error == EAGAIN);
    gate = 1;
    futex(&gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    return count;
}

int main(void) {
    errors();
    wakes();
    clones();
    lists();
    int first = fill(), again = fill();
    CHECK(first >= 2000 && again >= first - 20);
    printf("no harm was done\n");
    return 0;
}
