/* What pthreads offer: values, thread-local variables, conditions, barriers, semaphores, time-outs,
   robust mutexes, detached threads, 500 at once, 3000 one after another. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "times.h"

static __thread long local = 5;
static __thread char large[3000];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static long shared;

static int is_past(clockid_t clock, struct timespec time) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec > time.tv_sec || (now.tv_sec == time.tv_sec && now.tv_nsec >= time.tv_nsec);
}

static void *value(void *argument) {
    long number = (long)argument;
    local += number;
    memset(large, (int)number, sizeof large);
    double quotient = 1.0 / (double)(number + 1);
    sched_yield();
    CHECK(local == 5 + number && large[2999] == (char)number);
    CHECK(quotient * (double)(number + 1) > 0.999);
    CHECK(gettid() != getpid());
    return (void *)(number * number);
}

static void values(void) {
    pthread_t thread[20];
    for (long i = 0; i < 20; i++)
        CHECK(pthread_create(&thread[i], NULL, value, (void *)i) == 0);
    for (long i = 0; i < 20; i++) {
        void *result;
        CHECK(pthread_join(thread[i], &result) == 0 && (long)result == i * i);
    }
    CHECK(local == 5 && large[0] == 0 && gettid() == getpid());
}

/* Two threads that take turns, by a condition variable. */
static void *take_turns(void *argument) {
    long mine = (long)argument;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 2000; i++) {
        while (shared % 2 != mine)
            pthread_cond_wait(&condition, &mutex);
        shared++;
        pthread_cond_broadcast(&condition);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void conditions(void) {
    pthread_t other;
    shared = 0;
    CHECK(pthread_create(&other, NULL, take_turns, (void *)1) == 0);
    take_turns((void *)0);
    CHECK(pthread_join(other, NULL) == 0 && shared == 4000);
}

static pthread_barrier_t barrier;
static void *meet(void *unused) {
    long last = 0;
    for (int i = 0; i < 50; i++) {
        __atomic_fetch_add(&shared, 1, __ATOMIC_SEQ_CST);
        last += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
        CHECK(__atomic_load_n(&shared, __ATOMIC_SEQ_CST) >= (i + 1) * 6);
        pthread_barrier_wait(&barrier);
    }
    return unused == NULL ? (void *)last : NULL;
}

static void barriers(void) {
    pthread_t thread[6];
    long last = 0;
    shared = 0;
    CHECK(pthread_barrier_init(&barrier, NULL, 6) == 0);
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&thread[i], NULL, meet, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        void *result;
        CHECK(pthread_join(thread[i], &result) == 0);
        last += (long)result;
    }
    CHECK(last == 50 && shared == 300);
}

static sem_t semaphore, done;
static void *post(void *unused) {
    CHECK(sem_post(&semaphore) == 0);
    return unused;
}

static void time_outs(void) {
    struct timespec until = in(CLOCK_REALTIME, 30);
    CHECK(sem_init(&semaphore, 0, 0) == 0);
    CHECK(sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT);
    CHECK(is_past(CLOCK_REALTIME, until));
    until = in(CLOCK_REALTIME, 60000);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, post, NULL) == 0);
    CHECK(sem_timedwait(&semaphore, &until) == 0);
    CHECK(pthread_join(thread, NULL) == 0);

    pthread_condattr_t attributes;
    pthread_cond_t timed;
    CHECK(pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&timed, &attributes) == 0);
    until = in(CLOCK_MONOTONIC, 30);
    pthread_mutex_lock(&mutex);
    CHECK(pthread_cond_timedwait(&timed, &mutex, &until) == ETIMEDOUT);
    CHECK(is_past(CLOCK_MONOTONIC, until));
    until = in(CLOCK_REALTIME, 10);
    pthread_mutex_t held;
    CHECK(pthread_mutex_init(&held, NULL) == 0 && pthread_mutex_lock(&held) == 0);
    CHECK(pthread_mutex_timedlock(&held, &until) == ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
}

static void *detached(void *unused) {
    (void)unused;
    CHECK(sem_post(&done) == 0);
    return NULL;
}

static void detach(void) {
    pthread_attr_t attributes;
    CHECK(sem_init(&done, 0, 0) == 0);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &attributes, detached, NULL) == 0);
    }
    for (int i = 0; i < 50; i++)
        CHECK(sem_wait(&done) == 0);
}

static pthread_mutex_t robust;
static void *die_with_mutex(void *unused) {
    CHECK(pthread_mutex_lock(&robust) == 0);
    CHECK(sem_post(&done) == 0);
    usleep(20000);
    return unused;
}

static void robust_mutexes(void) {
    pthread_mutexattr_t attributes;
    pthread_t thread;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(&robust, &attributes) == 0);
    CHECK(sem_init(&done, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, die_with_mutex, NULL) == 0);
    CHECK(sem_wait(&done) == 0);
    CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&robust) == 0 && pthread_mutex_unlock(&robust) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

enum { MANY = 500 };
static void *stay(void *unused) {
    pthread_mutex_lock(&mutex);
    if (++shared == MANY)
        pthread_cond_broadcast(&condition);
    while (shared < MANY)
        pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void many(void) {
    static pthread_t thread[MANY];
    shared = 0;
    for (long i = 0; i < MANY; i++)
        CHECK(pthread_create(&thread[i], NULL, stay, (void *)i) == 0);
    for (long i = 0; i < MANY; i++) {
        void *result;
        CHECK(pthread_join(thread[i], &result) == 0 && (long)result == i);
    }
    for (int i = 0; i < 3000; i++) {
        pthread_t one;
        CHECK(pthread_create(&one, NULL, value, (void *)1) == 0 && pthread_join(one, NULL) == 0);
    }
}

/* More threads than the kernel looks at when it chooses one: each computes until all of them run. */
enum { SPINNING = 60 };
static void *spin(void *unused) {
    static int begun;
    __atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < SPINNING)
        ;
    return unused;
}

static void each_gets_its_turn(void) {
    pthread_t thread[SPINNING];
    for (int i = 0; i < SPINNING; i++)
        CHECK(pthread_create(&thread[i], NULL, spin, NULL) == 0);
    for (int i = 0; i < SPINNING; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
}

int main(void) {
    values();
    conditions();
    barriers();
    time_outs();
    detach();
    robust_mutexes();
    many();
    each_gets_its_turn();
    printf("threads are in order\n");
    return 0;
}
