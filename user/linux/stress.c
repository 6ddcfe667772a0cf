/* Processes that fork, execute, map, write, start threads, send signals and end at random, for as
   many seconds as the first argument says, with the seed of the second. Nothing of them is left:
   neither processes nor files nor memory.

   The time is divided into phases. The kernel keeps what its tables have grown to, so a phase with
   more processes at once than any before may end with less free memory. What leaks makes it less in
   each phase.

   The program starts itself again: `stress leaf NUMBER` ends with that number. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "children.h"
#include "free_pages.h"

#define WORKERS 6
#define PHASES 8
#define FOLDER "/tmp/stress"
#define PAGE 4096

static char *self;
static unsigned long state;

static unsigned chance(unsigned below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 20) % below;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* What another process may take at the same moment: memory, processes. */
static int is_scarce(void) {
    return errno == ENOMEM || errno == EAGAIN || errno == ENOSPC || errno == EMFILE;
}

static void map_and_touch(void) {
    size_t pages = 1 + chance(200), length = pages * PAGE;
    int is_shared = chance(3) == 0;
    unsigned char *area = mmap(NULL, length, PROT_READ | PROT_WRITE,
                               (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) {
        CHECK(is_scarce());
        return;
    }
    for (size_t page = 0; page < pages; page += 1 + chance(4))
        area[page * PAGE] = page;
    if (chance(2)) {
        size_t at = chance(pages), count = 1 + chance(pages - at);
        CHECK(mprotect(area + at * PAGE, count * PAGE, PROT_READ) == 0 || is_scarce());
    }
    if (chance(2)) {
        /* A hole; the rest stays readable. */
        size_t at = chance(pages), count = 1 + chance(pages - at);
        CHECK(munmap(area + at * PAGE, count * PAGE) == 0 || is_scarce());
    }
    if (chance(4))
        CHECK(munmap(area, length) == 0 || is_scarce());
}

static void write_files(void) {
    char name[100], other[100];
    static unsigned char bytes[40000], back[40000];
    sprintf(name, FOLDER "/%d-%u", (int)getpid(), chance(4));
    sprintf(other, FOLDER "/%u", chance(8));
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        CHECK(is_scarce());
        return;
    }
    unsigned length = 1 + chance(sizeof bytes), value = chance(256);
    memset(bytes, value, length);
    ssize_t count = write(fd, bytes, length);
    CHECK(count > 0 || is_scarce());
    if (count > 0) {
        CHECK(pread(fd, back, sizeof back, 0) == count);
        CHECK(memcmp(bytes, back, count) == 0);
        unsigned char *mapped = mmap(NULL, count, PROT_READ, MAP_PRIVATE, fd, 0);
        if (mapped != MAP_FAILED) {
            CHECK(mapped[0] == value && mapped[count - 1] == value);
            CHECK(munmap(mapped, count) == 0 || is_scarce());
        }
    }
    CHECK(close(fd) == 0);
    if (chance(3) == 0)
        CHECK(rename(name, other) == 0 || is_scarce());
    else
        CHECK(unlink(name) == 0);
}

static void *work_in_thread(void *argument) {
    volatile char deep[30000];
    deep[chance(sizeof deep)] = 1;
    sched_yield();
    return argument;
}

static void start_threads(void) {
    pthread_t threads[6];
    unsigned count = 1 + chance(6), numbers[6];
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work_in_thread, &numbers[i]) != 0)
            count = i;
    for (unsigned i = 0; i < count; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0 && result == &numbers[i]);
    }
}

static void write_to_child(void) {
    int ends[2];
    static unsigned char bytes[100000];
    if (pipe(ends) != 0) {
        CHECK(is_scarce());
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        static unsigned char back[1000];
        /* It may end before everything is written. */
        for (unsigned i = chance(150); i > 0 && read(ends[0], back, sizeof back) > 0; i--)
            continue;
        _exit(3);
    }
    close(ends[0]);
    CHECK(child > 0 || is_scarce());
    CHECK(write(ends[1], bytes, 1 + chance(sizeof bytes)) > 0 || errno == EPIPE || is_scarce());
    close(ends[1]);
    if (child > 0)
        ended_with(child, 3);
}

static void execute(void) {
    char number[10];
    int code = chance(100);
    sprintf(number, "%d", code);
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = {self, "leaf", number, NULL};
        execv(self, arguments);
        _exit(is_scarce() ? 100 : 101);
    }
    CHECK(child > 0 || is_scarce());
    if (child > 0) {
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        /* A program that finds no memory while it is loaded is killed. */
        CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == code || WEXITSTATUS(status) == 100);
    }
}

/* A child that does the same, not as deep, and may be killed in the middle. */
static void work(unsigned depth, unsigned steps);

static void fork_worker(unsigned depth) {
    pid_t child = fork();
    if (child == 0) {
        state += getpid() * 7919UL;
        work(depth - 1, 1 + chance(20));
        _exit(0);
    }
    CHECK(child > 0 || is_scarce());
    if (child <= 0)
        return;
    int is_killed = chance(3) == 0;
    if (is_killed) {
        struct timespec time = {0, chance(3000000)};
        nanosleep(&time, NULL);
        CHECK(kill(child, chance(2) ? SIGKILL : SIGTERM) == 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) ? is_killed : WEXITSTATUS(status) == 0);
}

static void work(unsigned depth, unsigned steps) {
    while (steps-- > 0) {
        switch (chance(depth > 0 ? 7 : 5)) {
        case 0:
        case 1:
            map_and_touch();
            break;
        case 2:
            write_files();
            break;
        case 3:
            start_threads();
            break;
        case 4:
            write_to_child();
            break;
        case 5:
            execute();
            break;
        default:
            fork_worker(depth);
        }
    }
}

static int numbered(const char *path) {
    DIR *folder = opendir(path);
    struct dirent *entry;
    int count = 0;
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL)
        count += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    closedir(folder);
    return count;
}

static void remove_files(void) {
    char path[400];
    DIR *folder = opendir(FOLDER);
    struct dirent *entry;
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, FOLDER "/%s", entry->d_name);
        if (entry->d_name[0] != '.')
            CHECK(unlink(path) == 0);
    }
    closedir(folder);
    CHECK(rmdir(FOLDER) == 0);
}

static long rounds(double end, unsigned long seed) {
    pid_t workers[WORKERS];
    long count = 0;
    CHECK(mkdir(FOLDER, 0700) == 0);
    do {
        for (int i = 0; i < WORKERS; i++, count++) {
            workers[i] = fork();
            CHECK(workers[i] >= 0);
            if (workers[i] == 0) {
                state = (seed + count) * 2654435761UL + 1;
                work(2, 30);
                _exit(0);
            }
        }
        for (int i = 0; i < WORKERS; i++)
            ended_with(workers[i], 0);
    } while (now() < end);
    remove_files();
    return count;
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "leaf") == 0)
        return atoi(arguments[2]);
    self = arguments[0];
    signal(SIGPIPE, SIG_IGN);
    double seconds = count > 1 ? atof(arguments[1]) : 10;
    unsigned long seed = count > 2 ? strtoul(arguments[2], NULL, 10) : 1;
    /* The first phase also brings what this process itself needs. */
    int processes = numbered("/proc"), lower = 0;
    long workers = 0, before = 0;
    for (int phase = 0; phase < PHASES; phase++) {
        workers += rounds(now() + seconds / PHASES, seed + workers);
        long after = free_pages();
        /* What has ended is freed in portions. */
        for (int i = 0; i < 100 && (after < before || numbered("/proc") > processes); i++) {
            struct timespec time = {0, 20000000};
            nanosleep(&time, NULL);
            after = free_pages();
        }
        printf("%ld workers, %ld pages free\n", workers, after);
        lower += after < before;
        before = after;
        if (is_cops())
            CHECK(numbered("/proc") == processes);
    }
    if (is_cops())
        CHECK(lower < (PHASES - 1) / 2);
    printf("nothing is left\n");
    return 0;
}
