/* execve: of a process with several threads, of scripts, and of files in memory. The same program,
   started with arguments, is what is executed. Runs on Linux too. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children.h"
#include "free_pages.h"

static char self[4096];
static char *no_environment[] = {NULL};

/* The program that is executed. */

static void *return_argument(void *argument) {
    return argument;
}

/* It is the only thread, with the number of the process, and can start others. */
static void begins_alone(pid_t expected) {
    CHECK(getpid() == expected && syscall(SYS_gettid) == expected);
    pthread_t threads[40];
    for (long index = 0; index < 40; index++)
        CHECK(pthread_create(&threads[index], NULL, return_argument, (void *)index) == 0);
    for (long index = 0; index < 40; index++) {
        void *result;
        CHECK(pthread_join(threads[index], &result) == 0 && result == (void *)index);
    }
}

/* In pages that nothing has written when a program looks. */
static volatile char untouched[4 * 4096];

static int executed(int count, char **arguments) {
    if (!strcmp(arguments[1], "alone")) {
        begins_alone(atoi(arguments[2]));
        sigset_t blocked;
        sigprocmask(SIG_BLOCK, NULL, &blocked);
        CHECK(sigismember(&blocked, SIGUSR1) && !sigismember(&blocked, SIGUSR2));
        return 42;
    }
    if (!strcmp(arguments[1], "zeros"))
        return untouched[2 * 4096] + 46;
    if (!strcmp(arguments[1], "code"))
        return atoi(arguments[2]);
    if (!strcmp(arguments[1], "-x  y")) {
        /* The interpreter of a script: its argument, the script, and what follows. */
        CHECK(count == 5 && !strcmp(arguments[2], "/tmp/script"));
        CHECK(!strcmp(arguments[3], "one") && !strcmp(arguments[4], "two words"));
        return 43;
    }
    if (!strncmp(arguments[1], "/tmp/", 5))
        return 44 + count;
    if (!strcmp(arguments[1], "slowly")) {
        char byte;
        CHECK(read(0, &byte, 1) == 1);
        begins_alone(getpid());
        return 45;
    }
    return 99;
}

/* Threads that do all kinds of things. */

static int pipe_ends[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint counter, begun;

static void *spin(void *unused) {
    begun++;
    for (;;)
        counter++;
    return unused;
}

static void *spin_slowly(void *unused) {
    setpriority(PRIO_PROCESS, 0, 19);
    return spin(unused);
}

static void *wait_for_pipe(void *unused) {
    char byte;
    begun++;
    return read(pipe_ends[0], &byte, 1) == 1 ? unused : NULL;
}

static void *wait_for_mutex(void *unused) {
    begun++;
    pthread_mutex_lock(&mutex);
    return unused;
}

static void *sleep_long(void *unused) {
    begun++;
    sleep(1000);
    return unused;
}

static void fork_once(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (child > 0)
        waitpid(child, NULL, 0);
}

static void *fork_and_wait(void *unused) {
    begun++;
    for (;;) {
        fork_once();
        usleep(300);
    }
    return unused;
}

static void *map_and_unmap(void *unused) {
    begun++;
    for (;;) {
        char *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages != MAP_FAILED) {
            memset(pages, 1, 1 << 16);
            munmap(pages, 1 << 20);
        }
        usleep(300);
    }
    return unused;
}

static void *start_others(void *unused) {
    begun++;
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, return_argument, NULL) == 0)
            pthread_join(thread, NULL);
        usleep(300);
    }
    return unused;
}

static void start(void *(*what)(void *), int count) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int index = 0; index < count; index++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &small, what, NULL) == 0);
    }
}

static void await_begun(unsigned count) {
    while (begun < count)
        usleep(1000);
}

static void execute_alone(void) {
    char number[12];
    sprintf(number, "%d", getpid());
    char *arguments[] = {self, "alone", number, NULL};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    execve(self, arguments, no_environment);
    _exit(97);
}

static void *execute_alone_here(void *first) {
    if (first)
        pthread_join(*(pthread_t *)first, NULL);
    execute_alone();
    return NULL;
}

static int status_of(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void expect_code(pid_t child, int code) {
    int status = status_of(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        printf("status %x instead of exit code %d\n", status, code);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

enum { FROM_FIRST, FROM_ANOTHER, FIRST_HAS_ENDED, WAYS };

/* In a child: starts threads, and executes the program from one of them. */
static pid_t execute_beside(void (*beside)(void), int way) {
    fflush(stdout);
    pid_t child = fork();
    if (child)
        return child;
    CHECK(pipe2(pipe_ends, O_CLOEXEC) == 0);
    pthread_mutex_lock(&mutex);
    beside();
    static pthread_t first, other;
    first = pthread_self();
    if (way == FROM_FIRST)
        execute_alone();
    CHECK(pthread_create(&other, NULL, execute_alone_here, way == FROM_ANOTHER ? NULL : &first) == 0);
    if (way == FROM_ANOTHER)
        for (;;)
            sleep(1000);
    pthread_exit(NULL);
}

static void sleepers(void) {
    start(wait_for_pipe, 8);
    start(wait_for_mutex, 8);
    start(sleep_long, 8);
    await_begun(24);
}

static void spinners(void) {
    start(spin, 6);
    await_begun(6);
}

/* Threads that would never get a hart as long as this one is ready. */
static void unimportant(void) {
    start(spin_slowly, 6);
    await_begun(6);
    setpriority(PRIO_PROCESS, 0, -20);
}

static void busy(void) {
    start(fork_and_wait, 1);
    start(map_and_unmap, 1);
    start(start_others, 1);
    start(spin, 1);
    await_begun(4);
}

static void *fork_again(void *unused) {
    begun++;
    for (;;)
        fork_once();
    return unused;
}

/* Threads of which one is about to copy the memory at nearly any moment. */
static void forkers(void) {
    start(fork_again, 4);
    await_begun(4);
}

static void several_threads(void) {
    for (int way = 0; way < WAYS; way++) {
        expect_code(execute_beside(sleepers, way), 42);
        expect_code(execute_beside(spinners, way), 42);
        expect_code(execute_beside(unimportant, way), 42);
        expect_code(execute_beside(busy, way), 42);
        for (int round = 0; round < 8; round++)
            expect_code(execute_beside(forkers, way), 42);
    }
}

static void crowd(void) {
    start(sleep_long, 500);
    await_begun(500);
}

static void *execute_code(void *code) {
    char number[12];
    sprintf(number, "%ld", (long)code);
    char *arguments[] = {self, "code", number, NULL};
    while (!begun)
        sched_yield();
    execve(self, arguments, no_environment);
    _exit(97);
}

/* Several threads at once: one of them wins, and there is one new program. */
static void all_at_once(void) {
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            for (long code = 1; code <= 8; code++)
                CHECK(pthread_create(&thread, NULL, execute_code, (void *)(code + 10)) == 0);
            begun = 1;
            for (;;)
                sleep(1000);
        }
        int status = status_of(child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) > 10 && WEXITSTATUS(status) <= 18);
    }
}

/* Ended by a fault of another thread, by its exit or by a signal, before or after the exec. */
static void *fault(void *unused) {
    begun++;
    raise(SIGSEGV);
    return unused;
}

static void *leave(void *unused) {
    begun++;
    _exit(42);
    return unused;
}

static void faults(void) {
    start(fault, 1);
}

static void leaves(void) {
    start(leave, 1);
}

static void ends_meanwhile(void) {
    for (int round = 0; round < 6; round++) {
        int status = status_of(execute_beside(faults, round % WAYS));
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) == 42);
        expect_code(execute_beside(leaves, round % WAYS), 42);
        pid_t child = execute_beside(busy, round % WAYS);
        usleep(2000 + 1500 * round);
        kill(child, SIGKILL);
        status = status_of(child);
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 42);
    }
}

/* Stopped twice: before the program is loaded, so that all threads are held, and when it is being
   replaced, while many of them still are. */
enum { HELD = 300 };
static atomic_uint told;
static void *spin_when_told(void *unused) {
    begun++;
    while (!told)
        syscall(SYS_futex, &told, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    for (;;)
        counter++;
    return unused;
}

static void executes_beside_many(void) {
    start(spin_when_told, HELD);
    await_begun(HELD);
    told = 1;
    syscall(SYS_futex, &told, FUTEX_WAKE_PRIVATE, HELD, NULL, NULL, 0);
    CHECK(kill(getpid(), SIGSTOP) == 0);
    execute_code((void *)42);
}

static void stopped_meanwhile(void) {
    for (int round = 0; round < 60; round++) {
        begun = 0;
        pid_t child = fork_child(executes_beside_many);
        stopped_by(child, SIGSTOP);
        usleep(2000);
        CHECK(kill(child, SIGCONT) == 0);
        usleep(round * 300);
        CHECK(kill(child, SIGSTOP) == 0);
        usleep(2000);
        CHECK(kill(child, SIGCONT) == 0);
        int status = -1, looks = 0;
        while (waitpid(child, &status, WNOHANG) == 0 && ++looks < 20000)
            usleep(1000);
        if (status != 42 << 8)
            printf("round %d: status %x\n", round, status);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    }
}

static void put(const char *path, const void *bytes, size_t count, mode_t mode) {
    unlink(path);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(file >= 0 && write(file, bytes, count) == (ssize_t)count);
    CHECK(fchmod(file, mode) == 0 && close(file) == 0);
}

static void put_text(const char *path, const char *text) {
    put(path, text, strlen(text), 0755);
}

/* Whatever is wrong, all threads go on. */
static void errors(void) {
    begun = 0;
    start(spin, 1);
    await_begun(1);
    char *arguments[] = {self, "code", "1", NULL};
#define REFUSED(path, error) FAILS(execve(path, arguments, no_environment), error)
    REFUSED("/tmp/none", ENOENT);
    REFUSED("", ENOENT);
    REFUSED("/tmp", EACCES);
    REFUSED("/dev/null", EACCES);
    put("/tmp/file", "\x7f""ELF", 4, 0755);
    REFUSED("/tmp/file", ENOEXEC);
    REFUSED("/tmp/file/x", ENOTDIR);
    put("/tmp/file", "", 0, 0755);
    REFUSED("/tmp/file", ENOEXEC);
    put("/tmp/file", "#!/bin/sh\n", 10, 0644);
    REFUSED("/tmp/file", EACCES);
    put_text("/tmp/file", "#!\n");
    REFUSED("/tmp/file", ENOEXEC);
    put_text("/tmp/file", "#!/tmp/none\n");
    REFUSED("/tmp/file", ENOENT);
    put_text("/tmp/file", "#!/tmp\n");
    REFUSED("/tmp/file", EACCES);
    put_text("/tmp/file", "#!/tmp/file\n");
    REFUSED("/tmp/file", ELOOP);
    CHECK(symlink("/tmp/loop", "/tmp/loop") == 0);
    REFUSED("/tmp/loop", ELOOP);
    CHECK(unlink("/tmp/loop") == 0);
    unsigned before = counter;
    while (counter == before)
        sched_yield();
}

static pid_t execute(const char *path, char *const arguments[]) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execve(path, arguments, no_environment);
        _exit(errno == ELOOP ? 96 : 97);
    }
    return child;
}

static void scripts(void) {
    char text[5000];
    char *arguments[] = {"anything", "one", "two words", NULL};
    sprintf(text, "#! %s -x  y \t\nwhatever", self);
    put_text("/tmp/script", text);
    expect_code(execute("/tmp/script", arguments), 43);
    /* Also by a relative path, and through a link. */
    CHECK(chdir("/") == 0);
    CHECK(symlink("tmp/script", "/tmp/link") == -1 || 1);
    unlink("/tmp/link");
    CHECK(symlink("script", "/tmp/link") == 0);
    sprintf(text, "#!%s", self);
    put_text("/tmp/script", text);
    /* The program, "/tmp/link", and two arguments: `anything` is dropped. */
    expect_code(execute("/tmp/link", arguments), 44 + 4);
    CHECK(chdir("/tmp") == 0);
    expect_code(execute("/tmp/script", arguments), 44 + 4);
    CHECK(chdir("/") == 0 && unlink("/tmp/link") == 0);
    /* Scripts that interpret scripts: five, but not six. */
    char path[32], *none[] = {"anything", NULL};
    for (int depth = 1; depth <= 6; depth++) {
        sprintf(path, "/tmp/script%d", depth);
        put_text(path, text);
        sprintf(text, "#!%s\n", path);
        /* Each adds its name. */
        expect_code(execute(path, none), depth <= 5 ? 44 + 1 + depth : 96);
    }
    for (int depth = 1; depth <= 6; depth++) {
        sprintf(path, "/tmp/script%d", depth);
        CHECK(unlink(path) == 0);
    }
    CHECK(unlink("/tmp/script") == 0);
}

/* A program has an argument, also if it was given none. */
static void no_arguments(void) {
    char *none[] = {NULL}, *environment[] = {"NO_ARGUMENTS=", NULL};
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        if (child == 0) {
            syscall(SYS_execve, self, way == 0 ? NULL : none, environment);
            _exit(97);
        }
        expect_code(child, 39);
    }
}

/* Headers that lie about their number and place, and segments that are not in the file: refused, or
   the end of the program. */
static void bad_headers(void) {
    char *arguments[] = {self, "code", "1", NULL}, head[4096];
    int file = open(self, O_RDONLY | O_CLOEXEC);
    CHECK(read(file, head, sizeof head) == sizeof head && close(file) == 0);
    for (int at = 16; at < 300; at += 2) {
        char bad[4096];
        memcpy(bad, head, sizeof bad);
        bad[at] ^= 0xff;
        bad[at + 1] ^= at;
        put("/tmp/file", bad, at % 8 ? sizeof bad : 100, 0755);
        status_of(execute("/tmp/file", arguments));
    }
}

static void copy_self(const char *to) {
    int from = open(self, O_RDONLY | O_CLOEXEC);
    unlink(to);
    int into = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    char part[4096];
    ssize_t count;
    while ((count = read(from, part, sizeof part)) > 0)
        CHECK(write(into, part, count) == count);
    CHECK(count == 0 && close(from) == 0 && close(into) == 0);
}

static void files_in_memory(void) {
    char *arguments[] = {"copy", "slowly", NULL}, *code[] = {"copy", "code", "5", NULL};
    copy_self("/tmp/copy");
    expect_code(execute("/tmp/copy", code), 5);
    CHECK(chmod("/tmp/copy", 0600) == 0);
    FAILS(execve("/tmp/copy", code, no_environment), EACCES);
    FAILS(access("/tmp/copy", X_OK), EACCES);
    CHECK(chmod("/tmp/copy", 0100) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], 0);
        execve("/tmp/copy", arguments, no_environment);
        _exit(97);
    }
    char comm[32], name[8] = "";
    snprintf(comm, sizeof comm, "/proc/%d/comm", child);
    for (int looks = 0; strcmp(name, "copy\n") != 0; looks++) {
        int file = open(comm, O_RDONLY);
        CHECK(looks < 10000 && file >= 0);
        memset(name, 0, sizeof name);
        CHECK(read(file, name, sizeof name - 1) > 0 && close(file) == 0);
        usleep(1000);
    }
    until_asleep(child);
    /* A program that runs is not changed: Linux refuses the write. */
    int file = open("/tmp/copy", O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        char zeros[4096] = {0};
        for (int page = 0; page < 100; page++)
            CHECK(write(file, zeros, sizeof zeros) == sizeof zeros);
        CHECK(ftruncate(file, 10) == 0 && close(file) == 0);
    } else {
        CHECK(errno == ETXTBSY);
    }
    CHECK(unlink("/tmp/copy") == 0 && write(ends[1], "x", 1) == 1);
    expect_code(child, 45);
    close(ends[0]);
    close(ends[1]);
}

/* A segment that may be written may be read, whatever its flags say. */
static void segment_to_be_written_only(void) {
    char *zeros[] = {"copy", "zeros", NULL};
    copy_self("/tmp/copy");
    int file = open("/tmp/copy", O_RDWR | O_CLOEXEC), changed = 0;
    Elf64_Ehdr head;
    Elf64_Phdr segment;
    CHECK(pread(file, &head, sizeof head, 0) == sizeof head);
    for (int i = 0; i < head.e_phnum; i++) {
        off_t at = head.e_phoff + i * sizeof segment;
        CHECK(pread(file, &segment, sizeof segment, at) == sizeof segment);
        if (segment.p_type == PT_LOAD && segment.p_flags == (PF_R | PF_W)) {
            segment.p_flags = PF_W;
            CHECK(pwrite(file, &segment, sizeof segment, at) == sizeof segment);
            changed++;
        }
    }
    CHECK(changed > 0 && close(file) == 0);
    expect_code(execute("/tmp/copy", zeros), 46);
    CHECK(unlink("/tmp/copy") == 0);
}

/* A program that another process writes all the time: it runs, or is refused, or dies. */
static void files_that_change(void) {
    copy_self("/tmp/changing");
    pid_t writer = fork();
    if (writer == 0)
        for (unsigned round = 0;; round++) {
            int file = open("/tmp/changing", O_RDWR);
            if (file < 0)
                continue;
            char bytes[64];
            memset(bytes, round, sizeof bytes);
            lseek(file, round * 977 % 8192, SEEK_SET);
            if (write(file, bytes, sizeof bytes) < 0 || (round % 50 == 0 && ftruncate(file, 5000)))
                _exit(1);
            close(file);
        }
    char *code[] = {"copy", "code", "5", NULL};
    for (int round = 0; round < 30; round++)
        status_of(execute("/tmp/changing", code));
    kill(writer, SIGKILL);
    status_of(writer);
    CHECK(unlink("/tmp/changing") == 0);
}

static void nothing_is_lost(void) {
    expect_code(execute_beside(crowd, FROM_ANOTHER), 42);
    expect_code(execute_beside(busy, FIRST_HAS_ENDED), 42);
    long before = free_pages();
    for (int round = 0; round < 4; round++) {
        expect_code(execute_beside(round % 2 ? crowd : busy, round % WAYS), 42);
        scripts();
    }
    long lost = before - free_pages();
    if (lost > 64)
        printf("%ld pages are lost\n", lost);
    CHECK(lost <= 64 || access("/etc/init", F_OK) != 0);
}

int main(int count, char **arguments) {
    if (count > 1)
        return executed(count, arguments);
    if (getenv("NO_ARGUMENTS"))
        return count == 1 && arguments[0] && !*arguments[0] && !arguments[1] ? 39 : 38;
    setvbuf(stdout, NULL, _IONBF, 0);
    CHECK(realpath(arguments[0], self));
    scripts();
    files_in_memory();
    segment_to_be_written_only();
    several_threads();
    all_at_once();
    ends_meanwhile();
    stopped_meanwhile();
    files_that_change();
    nothing_is_lost();
    bad_headers();
    no_arguments();
    errors();
    puts("execve is in order");
    return 0;
}
