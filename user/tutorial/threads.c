/* Threads, mutexes, semaphores and condition variables of the tutorial personality. */
#include "tutorial.h"

enum { THREADS = 8, ROUNDS = 2000, SLOTS = 4, MANY = 400 };

static long mutex, empty, full, condition;
static volatile long counter;
static volatile int turn, slots[SLOTS];

static void ends_with(void *code) { exit((int)(long)code); }

static void adds(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        mutex_lock(mutex);
        long seen = counter;
        if (i % 64 == 0) yield();
        counter = seen + 1;
        mutex_unlock(mutex);
    }
    exit(gettid());
}

static void produces(void *unused) {
    (void)unused;
    for (int i = 1; i <= ROUNDS; i++) {
        semaphore_down(empty);
        slots[i % SLOTS] = i;
        semaphore_up(full);
    }
    exit(0);
}

static void consumes(void *unused) {
    (void)unused;
    for (int i = 1; i <= ROUNDS; i++) {
        semaphore_down(full);
        if (slots[i % SLOTS] != i) exit(-1);
        semaphore_up(empty);
    }
    exit(0);
}

/* Passes the turn on: there is one waiter at most, and no check after the wait, because nothing
   else than a signal wakes it. */
static void alternates(void *own) {
    for (int i = 0; i < ROUNDS; i++) {
        mutex_lock(mutex);
        if (turn != (int)(long)own) condvar_wait(condition, mutex);
        if (turn != (int)(long)own) exit(-1);
        turn = !turn;
        condvar_signal(condition);
        mutex_unlock(mutex);
    }
    exit(0);
}

static void waits_for_ever(void *unused) {
    (void)unused;
    semaphore_down(semaphore_create(0));
}

static void has_a_stack(void *unused) {
    volatile char much[200 * 1024];
    (void)unused;
    for (size_t at = 0; at < sizeof much; at += 4096) much[at] = 1;
    exit(much[4096]);
}

static void two(void (*first)(void *), void *a, void (*second)(void *), void *b) {
    long one = thread_create(first, a), other = thread_create(second, b);
    IS(waittid(one), 0);
    IS(waittid(other), 0);
}

static int in_child(void (*does)(void *), int joins) {
    int code;
    long pid = fork();
    if (pid == 0) {
        long other = thread_create(does, 0);
        if (joins) waittid(other);
        yield();
        exit(gettid() + 5);
    }
    IS(waitpid(pid, &code), pid);
    return code;
}

/* Writes to its stack downwards until it meets the guard. */
static void overflows(void *unused) {
    volatile char local = 1;
    (void)unused;
    for (uintptr_t at = (uintptr_t)&local;; at -= 4096) *(volatile char *)at = 1;
}

int main(int argc, char **argv) {
    (void)argc, (void)argv;
    IS(gettid(), 0);
    IS(waittid(0), -1);
    IS(waittid(1), -1);
    IS(waittid(1L << 40), -1);
    IS(thread_create(ends_with, (void *)-77), 1);
    IS(waittid(1), -77);
    IS(waittid(1), -1);
    IS(thread_create((void (*)(void *))8, 0), -1);

    /* The numbers of objects begin at 0, each kind with its own. */
    IS(mutex = mutex_create(1), 0);
    IS(mutex_create(0), 1);
    IS(empty = semaphore_create(SLOTS), 0);
    IS(full = semaphore_create(0), 1);
    IS(condition = condvar_create(), 0);
    IS(mutex_lock(2), -1);
    IS(mutex_unlock(mutex), -1);
    IS(semaphore_up(9), -1);
    IS(condvar_signal(1), -1);
    IS(condvar_signal(-1), -1);
    IS(condvar_wait(condition, mutex), -1);
    IS(condvar_signal(condition), 0);

    long ids[THREADS];
    for (int i = 0; i < THREADS; i++) ids[i] = thread_create(adds, 0);
    for (int i = 0; i < THREADS; i++) IS(waittid(ids[i]), ids[i]);
    IS(counter, THREADS * ROUNDS);

    two(produces, 0, consumes, 0);
    two(alternates, (void *)0, alternates, (void *)1);

    /* More than a hundred at once, each with a stack of its own, and their numbers again. */
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i <= MANY; i++) IS(thread_create(ends_with, (void *)(long)i), i);
        for (int i = 1; i <= MANY; i++) IS(waittid(i), i);
    }
    IS(waittid(thread_create(has_a_stack, 0)), 1);

    /* The first thread's end is that of the process, whatever the others do. */
    IS(in_child(waits_for_ever, 0), 5);
    IS(in_child(overflows, 1), -11);
    /* A child has none of its parent's objects. */
    long pid = fork();
    int code;
    if (pid == 0) exit(mutex_lock(mutex) == -1 ? mutex_create(1) : 99);
    IS(waitpid(pid, &code), pid);
    IS(code, 0);
    print("the threads are in order\n");
    return 0;
}
