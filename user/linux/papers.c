/* Two experiments of Wang's paper with threads: `ring` and `pipe`, as /bin/measure papers has them
   (user/apps/src/bin/measure). Unmodified on COPS and on Linux (./cops bench ring, ./cops bench
   pipe).

       papers EXPERIMENT MODE MODEL TASKS BYTES TURNS    one process, which prints a line
       papers check                                      small ones of each kind
       papers                                            as process 1: those of the file /plan

   Model `thread` sleeps and is woken; `thread-yield` and `thread-retry` yield until it is their
   turn, as in the paper. Of the plan, model `task` is tokio's: /tasks (peers/src/bin/tasks.rs). Each
   process checks its answer. In a machine that counts instructions as time, a nanosecond is an
   instruction. */
#define _GNU_SOURCE
#include "children.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (16 * 1024)
#define MAX_BYTES 65536

static unsigned long tasks, bytes, rounds;
static int is_steady, is_yielding;

static unsigned long now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (unsigned long)time.tv_sec * 1000000000UL + (unsigned long)time.tv_nsec;
}

/* When the process began, its tasks had been created, and the last round ended. */
static unsigned long begin, created, end;
static unsigned long arrived;

static void arrive(void) {
    __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
}

static void all_created(void) {
    while (is_steady && __atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < tasks)
        sched_yield();
    created = now();
}

static pthread_t *threads;

static void create(unsigned long number, void *(*act)(void *)) {
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
    CHECK(pthread_create(&threads[number], &attributes, act, (void *)number) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

static void join_all(void) {
    for (unsigned long number = 1; number <= tasks; number++)
        CHECK(pthread_join(threads[number], NULL) == 0);
}

/* Ring: task i waits until the counter is i, and adds 1; the main task is number 0. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long counter;
static sem_t *turns;

static int advance(unsigned long turn) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
    int is_due = counter == turn;
    counter += is_due;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return is_due;
}

static void ring_turns(unsigned long number) {
    unsigned long period = tasks + 1;
    for (unsigned long round = 0; round < rounds; round++) {
        unsigned long turn = round * period + number;
        while (!advance(turn)) {
            if (is_yielding)
                sched_yield();
            else
                CHECK(sem_wait(&turns[number]) == 0);
        }
        if (turn + 1 == rounds * period)
            end = now();
        else if (!is_yielding)
            CHECK(sem_post(&turns[(number + 1) % period]) == 0);
    }
}

static void *ring_task(void *argument) {
    arrive();
    ring_turns((unsigned long)argument);
    return NULL;
}

static void ring(void) {
    turns = calloc(tasks + 1, sizeof *turns);
    CHECK(turns != NULL);
    for (unsigned long number = 0; number <= tasks; number++)
        CHECK(sem_init(&turns[number], 0, 0) == 0);
    for (unsigned long number = 1; number <= tasks; number++)
        create(number, ring_task);
    all_created();
    ring_turns(0);
    join_all();
    CHECK(counter == (tasks + 1) * rounds);
}

/* Pipe: task i reads a message from pipe i and writes it to pipe i + 1. */

static int (*pipes)[2];

/* A whole message: to the end of the file, or of the length that all have. */
static unsigned long receive(int reader, unsigned char *buffer) {
    unsigned long count = 0;
    while (!is_steady || count < bytes) {
        ssize_t part = read(reader, buffer + count, bytes + 1 - count);
        if (part == 0)
            break;
        if (part > 0)
            count += (unsigned long)part;
        else if (errno == EAGAIN)
            sched_yield();
        else
            CHECK(part > 0);
    }
    return count;
}

static void send_all(int writer, const unsigned char *buffer, unsigned long count) {
    for (unsigned long done = 0; done < count;) {
        ssize_t part = write(writer, buffer + done, count - done);
        CHECK(part > 0);
        done += (unsigned long)part;
    }
}

static void *pipe_task(void *argument) {
    unsigned long number = (unsigned long)argument;
    unsigned char *buffer = malloc(bytes + 1);
    CHECK(buffer != NULL);
    arrive();
    for (unsigned long round = 0; round < rounds; round++)
        send_all(pipes[number + 1][1], buffer, receive(pipes[number][0], buffer));
    CHECK(close(pipes[number + 1][1]) == 0 && close(pipes[number][0]) == 0);
    free(buffer);
    return NULL;
}

static void pipe_chain(void) {
    unsigned char *buffer = malloc(bytes + 1), *sent = malloc(bytes);
    pipes = calloc(tasks + 2, sizeof *pipes);
    CHECK(buffer != NULL && sent != NULL && pipes != NULL && bytes > 0);
    for (unsigned long index = 0; index < bytes; index++)
        sent[index] = (unsigned char)(index % 251);
    for (unsigned long number = 1; number <= tasks + 1; number++) {
        CHECK(pipe(pipes[number]) == 0);
        if (is_yielding && number <= tasks)
            CHECK(fcntl(pipes[number][0], F_SETFL, O_NONBLOCK) == 0);
    }
    for (unsigned long number = 1; number <= tasks; number++)
        create(number, pipe_task);
    all_created();
    for (unsigned long round = 0; round < rounds; round++) {
        sent[0] = (unsigned char)round;
        send_all(pipes[1][1], sent, bytes);
        if (!is_steady)
            CHECK(close(pipes[1][1]) == 0);
        CHECK(receive(pipes[tasks + 1][0], buffer) == bytes);
        CHECK(memcmp(buffer, sent, bytes) == 0);
    }
    end = now();
    if (is_steady)
        CHECK(close(pipes[1][1]) == 0);
    join_all();
}

/* The process of a line. */
static int process(char **words) {
    begin = now();
    const char *experiment = words[0], *mode = words[1], *model = words[2];
    is_steady = strcmp(mode, "steady") == 0;
    is_yielding = strcmp(model, "thread") != 0;
    tasks = strtoul(words[3], NULL, 10);
    bytes = strtoul(words[4], NULL, 10);
    unsigned long wanted = strtoul(words[5], NULL, 10);
    CHECK(tasks > 0 && tasks < 100000 && bytes <= MAX_BYTES);
    rounds = !is_steady ? 1 : wanted / tasks > 10 ? wanted / tasks : 10;
    threads = calloc(tasks + 1, sizeof *threads);
    CHECK(threads != NULL);
    if (strcmp(experiment, "ring") == 0)
        ring();
    else
        pipe_chain();
    unsigned long time = is_steady ? end - created : now() - begin;
    printf("%s: mode=%s model=%s n=%lu bytes=%lu rounds=%lu instructions=%lu nanoseconds=%lu "
           "create_instructions=%lu\n",
           experiment, mode, model, tasks, bytes, rounds, time, time, created - begin);
    return 0;
}

/* Starts the process of a line, and prints what it took from outside. */
static void start(char *line, int is_quiet) {
    char *words[8] = {"papers"};
    int count = 1;
    for (char *word = strtok(line, " \n"); word != NULL && count < 7; word = strtok(NULL, " \n"))
        words[count++] = word;
    CHECK(count == 7);
    fflush(stdout);
    unsigned long before = now();
    pid_t child = fork();
    if (child == 0) {
        int is_tokio = strcmp(words[3], "task") == 0;
        execv(is_tokio ? "/tasks" : is_quiet ? "/papers" : "/init", words);
        _exit(1);
    }
    ended_with(child, 0);
    unsigned long time = now() - before;
    if (!is_quiet)
        printf("process: instructions=%lu nanoseconds=%lu\n", time, time);
}

/* A thousand threads and more, with as many pipes. */
static void raise_limits(void) {
    struct rlimit limit = {65536, 65536};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    mkdir("/proc", 0755);
    CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
    int file = open("/proc/sys/kernel/threads-max", O_WRONLY);
    CHECK(file >= 0 && write(file, "30000", 5) == 5 && close(file) == 0);
}

int main(int count, char **arguments) {
    char small[][48] = {
        "ring literal thread 30 0 1",   "ring literal thread-yield 30 0 1",
        "ring steady thread 3 0 100",   "pipe literal thread 30 300 1",
        "pipe literal thread-retry 30 1 1", "pipe steady thread 2 5000 100",
    };
    if (count == 7)
        return process(arguments + 1);
    if (count > 1) {
        for (unsigned long i = 0; i < sizeof small / sizeof small[0]; i++)
            start(small[i], 1);
        puts("papers are in order");
        return 0;
    }
    /* After its start, Linux is busy for a while. */
    sleep(3);
    raise_limits();
    FILE *plan = fopen("/plan", "r");
    char line[256];
    CHECK(plan != NULL);
    while (fgets(line, sizeof line, plan) != NULL)
        start(line, 0);
    puts("all rows");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
