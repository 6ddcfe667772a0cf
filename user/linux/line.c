/* Hostile: a line of processes, each of which waits for a lock with priority inheritance of the one
   before, and a crowd that waits for the last one at all levels. All of it is killed. Also passes on
   Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "children.h"
#include "inheriting.h"

enum { LINKS = 12, CROWD = 100 };

/* What the processes share. */
static struct line {
    sem_t ready;
    volatile uint32_t words[LINKS];
    volatile int refused;
} *line;
static int place;

static void stand_in_line(void) {
    CHECK(lock(&line->words[place], NULL) == 0);
    sem_post(&line->ready);
    if (place > 0) {
        /* From some length on it is refused. */
        CHECK(lock(&line->words[place - 1], NULL) == -1 && errno == EDEADLK);
        line->refused++;
    }
    for (;;)
        pause();
}

static void *press(void *level) {
    setpriority(PRIO_PROCESS, (id_t)gettid(), (int)(long)level);
    sem_post(&line->ready);
    lock(&line->words[LINKS - 1], NULL);
    return NULL;
}

static void crowd(void) {
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 65536) == 0);
    for (long i = 0; i < CROWD; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &attributes, press, (void *)(19 - i % 39)) == 0);
    }
    for (;;)
        pause();
}

int main(void) {
    pid_t links[LINKS];
    line = mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(line != MAP_FAILED && sem_init(&line->ready, 1, 0) == 0);
    for (place = 0; place < LINKS; place++) {
        links[place] = fork_child(stand_in_line);
        sem_wait(&line->ready);
        if (place > 0)
            until(&line->words[place - 1], FUTEX_WAITERS);
    }
    /* One of them has been refused, or is about to be: what follows may take long on a busy host. */
    while (is_cops() && line->refused == 0)
        usleep(1000);
    CHECK(line->refused <= 3);
    pid_t child = fork_child(crowd);
    for (int i = 0; i < CROWD; i++)
        sem_wait(&line->ready);
    until(&line->words[LINKS - 1], FUTEX_WAITERS);
    kill_child(child);
    for (int i = LINKS - 1; i >= 0; i--)
        kill_child(links[i]);
    puts("the line has gone");
    return 0;
}
