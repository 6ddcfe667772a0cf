/* What parts of the system cost: a line `cost: name=... nanoseconds=... count=...` for each row, or
   for those with the argument in their names. Unmodified on COPS and on Linux (./cops bench costs).
   In a machine that counts instructions as time, a nanosecond is an instruction. Each row checks
   what it did. */
#define _GNU_SOURCE
#include "children.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L

static unsigned long now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (unsigned long)time.tv_sec * 1000000000UL + (unsigned long)time.tv_nsec;
}

/* Only rows with this text in their names. */
static const char *chosen = "";

static void print(const char *name, unsigned long time, unsigned long count) {
    double each = (double)time / (double)count;
    printf("cost: name=%s nanoseconds=%.1f count=%lu\n", name, each, count);
    fflush(stdout);
}

/* Runs `round` to warm up, then `count` times. A round does what is measured `each` times. */
static void row(const char *name, void (*round)(void), unsigned long count, unsigned long each) {
    if (strstr(name, chosen) == NULL)
        return;
    for (unsigned long i = 0; i < count / 10 + 1; i++)
        round();
    unsigned long start = now();
    for (unsigned long i = 0; i < count; i++)
        round();
    unsigned long time = now() - start;
    print(name, time, count * each);
}

static void call(void) {
    CHECK(syscall(SYS_getppid) >= 0);
}

/* Processes */

static void fork_wait(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    ended_with(child, 7);
}

static char *program[] = {"/seven", NULL};

static void fork_exec_wait(void) {
    pid_t child = fork();
    if (child == 0) {
        execv(program[0], program);
        _exit(1);
    }
    ended_with(child, 7);
}

static void spawn_wait(void) {
    pid_t child;
    CHECK(posix_spawn(&child, program[0], NULL, NULL, program, NULL) == 0);
    ended_with(child, 7);
}

/* Threads */

static void *nothing(void *argument) {
    return argument;
}

static void thread_join(void) {
    pthread_t thread;
    void *result;
    int value;
    CHECK(pthread_create(&thread, NULL, nothing, &value) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == &value);
}

#define SWITCHES 2000

static unsigned turn;

static void sleep_until_turn(unsigned mine) {
    unsigned seen;
    while ((seen = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) % 2 != mine)
        syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void give_turn(void) {
    __atomic_add_fetch(&turn, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *second(void *argument) {
    for (int i = 0; i < SWITCHES / 2; i++) {
        sleep_until_turn(1);
        give_turn();
    }
    return argument;
}

static void futex_switches(void) {
    pthread_t thread;
    unsigned before = turn;
    CHECK(pthread_create(&thread, NULL, second, NULL) == 0);
    for (int i = 0; i < SWITCHES / 2; i++) {
        give_turn();
        sleep_until_turn(0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(turn == before + SWITCHES);
}

/* Mutexes. A second thread is alive, without which the C library omits atomic operations. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long counter;

static void uncontended(void) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
    counter++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

#define LOCKS 1000

/* The thread that has the mutex lets the other run, which then finds it locked. */
static void *lock_and_yield(void *argument) {
    for (int i = 0; i < LOCKS / 2; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        counter++;
        sched_yield();
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    return argument;
}

static void contended(void) {
    pthread_t thread;
    unsigned long before = counter;
    CHECK(pthread_create(&thread, NULL, lock_and_yield, NULL) == 0);
    lock_and_yield(NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(counter == before + LOCKS);
}

static int never[2];

static void *blocked(void *argument) {
    char byte;
    (void)!read(never[0], &byte, 1);
    return argument;
}

/* Pipes */

static int there[2], back[2];

static void round_trip(void) {
    char byte = 1;
    CHECK(write(there[1], &byte, 1) == 1);
    CHECK(read(back[0], &byte, 1) == 1 && byte == 2);
}

static void pipe_round_trips(void) {
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(there[1]);
        while (read(there[0], &byte, 1) == 1) {
            byte++;
            CHECK(write(back[1], &byte, 1) == 1);
        }
        _exit(7);
    }
    row("pipe_round_trip", round_trip, 2000, 1);
    close(there[1]);
    ended_with(child, 7);
}

#define CHUNK (64 * 1024)
static char chunk[CHUNK];

static void write_chunk(void) {
    for (long done = 0, part; done < CHUNK; done += part) {
        part = write(there[1], chunk + done, CHUNK - done);
        CHECK(part > 0);
    }
}

static void pipe_throughput(void) {
    CHECK(pipe(there) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(there[1]);
        while (read(there[0], chunk, CHUNK) > 0) {
        }
        _exit(7);
    }
    row("pipe_kibibyte", write_chunk, 200, CHUNK / 1024);
    close(there[1]);
    ended_with(child, 7);
}

/* Memory */

#define PAGES 512L

static char *map(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory != MAP_FAILED);
    /* Linux could otherwise answer many faults with one large page; EINVAL where it has none. */
    madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
    return memory;
}

static void touch(char *memory, char value) {
    for (long i = 0; i < PAGES; i++)
        memory[i * PAGE] = value;
}

static void map_unmap(void) {
    CHECK(munmap(map(), PAGES * PAGE) == 0);
}

/* Times of rounds are added up here, for what a round must prepare without being measured. */
static void faults(const char *name, int copies) {
    enum { ROUNDS = 20 };
    if (strstr(name, chosen) == NULL)
        return;
    unsigned long time = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char *memory = map();
        pid_t child = 0;
        int ends[2];
        if (copies) {
            touch(memory, 1);
            CHECK(pipe(ends) == 0);
            child = fork();
            if (child == 0) {
                char byte;
                close(ends[1]);
                (void)!read(ends[0], &byte, 1);
                /* The parent's writes are not seen here. */
                _exit(memory[0] == 1 && memory[(PAGES - 1) * PAGE] == 1 ? 7 : 1);
            }
            CHECK(child > 0);
        }
        unsigned long start = now();
        touch(memory, 2);
        time += now() - start;
        if (copies) {
            close(ends[0]);
            close(ends[1]);
            ended_with(child, 7);
        }
        CHECK(memory[0] == 2 && munmap(memory, PAGES * PAGE) == 0);
    }
    print(name, time, ROUNDS * PAGES);
}

/* Signals */

static volatile unsigned long handled;

static void handle(int number) {
    (void)number;
    handled++;
}

static void signal_self(void) {
    unsigned long before = handled;
    CHECK(raise(SIGUSR1) == 0 && handled == before + 1);
}

int main(int count, char **arguments) {
    /* After its start, Linux is busy for a while. */
    if (getpid() == 1 && !is_cops())
        sleep(3);
    if (count > 1)
        chosen = arguments[1];
    row("call", call, 10000, 1);
    row("fork_wait", fork_wait, 100, 1);
    row("fork_exec_wait", fork_exec_wait, 50, 1);
    row("spawn_wait", spawn_wait, 50, 1);
    pipe_round_trips();
    pipe_throughput();
    row("map_unmap", map_unmap, 500, 1);
    faults("page_fault", 0);
    faults("copy_on_write_fault", 1);
    CHECK(signal(SIGUSR1, handle) != SIG_ERR);
    row("signal_handled", signal_self, 1000, 1);
    row("thread_create_join", thread_join, 200, 1);
    row("futex_switch", futex_switches, 3, SWITCHES);

    pthread_t thread;
    CHECK(pipe(never) == 0 && pthread_create(&thread, NULL, blocked, NULL) == 0);
    row("mutex_uncontended", uncontended, 100000, 1);
    row("mutex_contended", contended, 3, LOCKS);
    CHECK(close(never[1]) == 0 && pthread_join(thread, NULL) == 0);

    puts("all rows");
    fflush(stdout);
    if (getpid() == 1 && !is_cops())
        reboot(RB_POWER_OFF);
    return 0;
}
