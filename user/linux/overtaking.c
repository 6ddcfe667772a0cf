/* Threads that poll a counter are notified in the order of their levels, also if thousands are: on
   one hart, while a thread computes, less urgent ones do not delay the more urgent ones. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* More than an event notifies at once, and than two portions of a service do. */
enum { IDLE = 40, URGENT = 20 };

static int idle_counter, urgent_counter, idle_woken, urgent_woken, computes = 1;

static void be_urgent(int priority) {
    struct sched_param parameter = {priority};
    CHECK(sched_setscheduler(0, SCHED_FIFO, &parameter) == 0);
}

static void be_idle(void) {
    CHECK(setpriority(PRIO_PROCESS, gettid(), 19) == 0);
}

static void add_one(int fd) {
    uint64_t value = 1;
    CHECK(write(fd, &value, 8) == 8);
}

/* Whether there is something in the counter within this time. */
static int wait_for(int fd, int milliseconds) {
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, milliseconds);
}

static void *wait_idle(void *unused) {
    be_idle();
    CHECK(wait_for(idle_counter, -1) == 1);
    __atomic_fetch_add(&idle_woken, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void *wait_urgent(void *unused) {
    be_urgent(50);
    CHECK(wait_for(urgent_counter, -1) == 1);
    __atomic_fetch_add(&urgent_woken, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static void *compute(void *unused) {
    while (__atomic_load_n(&computes, __ATOMIC_SEQ_CST))
        continue;
    return unused;
}

static void *add_soon(void *unused) {
    be_urgent(40);
    usleep(20000);
    add_one(idle_counter);
    return unused;
}

int main(void) {
    pthread_t idle[IDLE], urgent[URGENT], computing, adding;
    uint64_t value;
    idle_counter = eventfd(0, 0);
    urgent_counter = eventfd(0, 0);
    for (int i = 0; i < IDLE; i++)
        CHECK(pthread_create(&idle[i], NULL, wait_idle, NULL) == 0);
    for (int i = 0; i < URGENT; i++)
        CHECK(pthread_create(&urgent[i], NULL, wait_urgent, NULL) == 0);
    usleep(200000);
    CHECK(pthread_create(&computing, NULL, compute, NULL) == 0);
    be_urgent(60);

    /* The idle ones have their event first. */
    add_one(idle_counter);
    add_one(urgent_counter);
    for (int i = 0; __atomic_load_n(&urgent_woken, __ATOMIC_SEQ_CST) < URGENT; i++) {
        CHECK(i < 100);
        usleep(10000);
    }
    CHECK(idle_woken == 0);

    /* Most of the idle ones have yet to be notified. This thread watches later than they do. */
    CHECK(read(idle_counter, &value, 8) == 8);
    CHECK(pthread_create(&adding, NULL, add_soon, NULL) == 0);
    /* A call looks again when its time is over. */
    time_t begin = time(NULL);
    CHECK(wait_for(idle_counter, 10000) == 1 && time(NULL) - begin < 5);
    CHECK(idle_woken == 0);

    computes = 0;
    CHECK(pthread_join(computing, NULL) == 0 && pthread_join(adding, NULL) == 0);
    for (int i = 0; i < URGENT; i++)
        CHECK(pthread_join(urgent[i], NULL) == 0);
    for (int i = 0; i < IDLE; i++)
        CHECK(pthread_join(idle[i], NULL) == 0);
    CHECK(idle_woken == IDLE);
    puts("the urgent ones are first");
    return 0;
}
