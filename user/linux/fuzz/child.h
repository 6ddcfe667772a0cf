/* The processes that make calls: threads, signals, copies of themselves.

   Nothing here uses the C library after the first call: a call may have changed its memory. What
   the supervisor reads is in `results`, of which no argument has the address. */
#include <errno.h>
#include <stddef.h>

#define CHILDREN 4
/* Errors are numbers below this one. A greater one is none that a program may see. */
#define ERRORS 134
#define STACK_BYTES 32768

/* A child of the supervisor, and the processes that come from it. */
struct family {
    /* Calls that they have still to make. */
    long left;
};

/* What all children tell the supervisor. */
struct results {
    struct family families[CHILDREN];
    /* By the place in `signatures`; the last one is of all other numbers. */
    long calls[SIGNATURES + 1];
    /* By the number of the error; 0 is success. */
    long errors[ERRORS];
    /* A call with a result that is neither a value nor an error. */
    long wrong_number, wrong_result;
    long processes, threads, handlers;
};
static struct results *results;
static struct family *family;

static long call(long number, const long arguments[6]) {
    register long a0 asm("a0") = arguments[0];
    register long a1 asm("a1") = arguments[1];
    register long a2 asm("a2") = arguments[2];
    register long a3 asm("a3") = arguments[3];
    register long a4 asm("a4") = arguments[4];
    register long a5 asm("a5") = arguments[5];
    register long a7 asm("a7") = number;
    asm volatile("ecall"
                 : "+r"(a0)
                 : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5), "r"(a7)
                 : "memory");
    return a0;
}
#define SYSTEM(number, ...) call(number, (const long[6]){__VA_ARGS__})

#include "arguments.h"

/* As `call`. What has a stack of its own begins with `begin(argument)`. */
long clone_to(const long arguments[6], void (*begin)(struct thread *), struct thread *argument);
asm(".text\n"
    "clone_to:\n"
    "    mv t1, a1\n"
    "    mv t2, a2\n"
    "    mv t3, a0\n"
    "    ld a0, 0(t3)\n"
    "    ld a1, 8(t3)\n"
    "    ld a2, 16(t3)\n"
    "    ld a3, 24(t3)\n"
    "    ld a4, 32(t3)\n"
    "    ld a5, 40(t3)\n"
    "    li a7, 220\n"
    "    ecall\n"
    "    bnez a0, 1f\n"
    "    beqz a1, 1f\n"
    "    mv a0, t2\n"
    "    jalr t1\n"
    "1:  ret\n");

static struct thread all_threads[THREADS];
static char stacks[THREADS][STACK_BYTES] __attribute__((aligned(16)));
static unsigned next_thread;

static void count(long *place) { __atomic_fetch_add(place, 1, __ATOMIC_RELAXED); }

/* A thread with another slot; the last one is that of handlers. */
static struct thread *new_thread(struct garbage *garbage) {
    unsigned slot = 1 + __atomic_fetch_add(&next_thread, 1, __ATOMIC_RELAXED) % (THREADS - 2);
    all_threads[slot].slot = slot;
    all_threads[slot].garbage = garbage_of(next_of(garbage));
    return &all_threads[slot];
}

/* The alarm ends waits, so that most threads make more calls. */
static void begin_alarm(void) {
    const long times[4] = {0, 2000, 0, 2000};
    SYSTEM(103, 0, (long)times, 0);
}

/* The caller is the first thread of a new copy. */
static void become_copy(struct thread *thread) {
    own_number = SYSTEM(172, 0);
    thread->garbage = garbage_of(next_of(&thread->garbage));
    count(&results->processes);
    begin_alarm();
}

static void make_calls(struct thread *thread) __attribute__((noreturn));

static void begin_thread(struct thread *thread) {
    if (SYSTEM(172, 0) != own_number)
        become_copy(thread);
    else
        count(&results->threads);
    remember(&threads, SYSTEM(178, 0));
    make_calls(thread);
}

/* `clone`, with a stack that fits the flags. A copy without a stack of its own returns, too. */
static long start(struct thread *thread, long arguments[6]) {
    struct garbage *garbage = &thread->garbage;
    struct thread *begun = new_thread(garbage);
    if ((arguments[0] & CLONE_THREAD) != 0 || one_in(garbage, 4))
        arguments[1] = (long)(stacks[begun->slot] + STACK_BYTES);
    if (one_in(garbage, 24))
        arguments[1] = any_pointer(garbage) & -16;
    long result = clone_to(arguments, begin_thread, begun);
    if (result == 0)
        become_copy(thread);
    else if (result > 0)
        remember((arguments[0] & CLONE_THREAD) != 0 ? &threads : &processes, result);
    return result;
}

static int place_of_number(long number) {
    for (int index = 0; index < SIGNATURES; index++)
        if (signatures[index].number == number)
            return index;
    return SIGNATURES;
}

/* The sum of all weights; a child computes it before its first call. */
static int weights;

static int weighed(struct garbage *garbage) {
    int left = below(garbage, weights), index = 0;
    while (left >= signatures[index].weight)
        left -= signatures[index++].weight;
    return index;
}

/* Keeps a new file for later calls, too for those that want one of this kind. */
static void keep_file(int file, struct remembered *kind) {
    remember(&descriptors, file);
    if (kind != NULL)
        remember(kind, file);
}

/* Keeps results that later calls can use. */
static void keep(struct thread *thread, long number, long result, const long arguments[6]) {
    int place = number == 199 ? 3 : 0;
    switch (number) {
    case 59:
    case 199:
        /* Where both numbers are, unless the pointer was another one. */
        if (arguments[place] == (long)place_of(thread, place)) {
            const int *ends = (const int *)arguments[place];
            keep_file(ends[0], number == 199 ? &sockets : NULL);
            keep_file(ends[1], number == 199 ? &sockets : NULL);
        }
        break;
    case 25:
        if (arguments[1] != F_DUPFD && arguments[1] != F_DUPFD_CLOEXEC)
            break;
        /* fall through */
    case 19:
    case 23:
    case 24:
        keep_file(result, NULL);
        break;
    case 56:
        keep_file(result, &files);
        break;
    case 20:
        keep_file(result, &instances);
        break;
    case 85:
        keep_file(result, &timers);
        break;
    case 198:
    case 202:
    case 242:
        keep_file(result, &sockets);
        break;
    case 222:
        maps[next_map++ % 8] = result;
        break;
    }
}

static void make_call(struct thread *thread) {
    struct garbage *garbage = &thread->garbage;
    const struct signature *signature = &signatures[weighed(garbage)];
    long number = signature->number, arguments[6];
    int kinds_count = signature->kinds_count;
    switch (below(garbage, 128)) {
    case 0:
        number = one_in(garbage, 2) ? nasty(garbage) : number + (long)below(garbage, 5) - 2;
        break;
    case 1:
        number = unknown_numbers[below(garbage, COUNT_OF(unknown_numbers))];
        break;
    case 2 ... 7:
        /* Any call with any arguments. */
        number = signatures[below(garbage, SIGNATURES)].number;
        kinds_count = 0;
        break;
    }
    int index = place_of_number(number);
    /* Calls that end the caller are made no more often than their weight says. */
    int is_rare = index < SIGNATURES && signatures[index].weight <= RARE;
    if (is_rare && (number != signature->number || !one_in(garbage, 2)))
        return;
    for (int argument_index = 0; argument_index < 6; argument_index++) {
        /* Three in a hundred arguments are of another kind than the signature says. */
        int is_known = argument_index < kinds_count && !one_in(garbage, 32);
        enum kind kind = is_known ? signature->kinds[argument_index] : any_kind(garbage);
        arguments[argument_index] = argument(thread, kind, argument_index);
    }
    if (one_in(garbage, 4))
        *(int *)(page_at(SHARED_PAGE) + 4 * below(garbage, WORDS)) = word_value(thread);
    count(&results->calls[index]);
    long result = number == 220 ? start(thread, arguments) : call(number, arguments);
    if (result >= 0) {
        count(&results->errors[0]);
        keep(thread, number, result, arguments);
    } else if (result > -ERRORS) {
        count(&results->errors[-result]);
    } else {
        results->wrong_number = number;
        results->wrong_result = result;
    }
}

static void make_calls(struct thread *thread) {
    while (__atomic_fetch_sub(&family->left, 1, __ATOMIC_RELAXED) > 0)
        make_call(thread);
    for (;;)
        SYSTEM(94, 0);
}

/* Changes what it returns to, and makes calls on the stack of the handler. */
static void on_signal(int signal, siginfo_t *information, void *context) {
    struct thread *thread = &all_threads[THREADS - 1];
    struct garbage *garbage = &thread->garbage;
    (void)signal;
    count(&results->handlers);
    ucontext_t *interrupted = context;
    switch (below(garbage, 16)) {
    case 0:
        *(long *)&interrupted->uc_sigmask = set(garbage);
        break;
    case 1:
        interrupted->uc_mcontext.__fpregs.__d.__f[below(garbage, 32)] = next_of(garbage);
        interrupted->uc_mcontext.__fpregs.__d.__fcsr = nasty(garbage);
        break;
    case 2:
        ((long *)information)[below(garbage, sizeof *information / 8)] = nasty(garbage);
        break;
    case 3:
        /* Of the registers only the program counter: with the others, a thread would do what it
           never does, and change the results. */
        if (one_in(garbage, 8))
            interrupted->uc_mcontext.__gregs[REG_PC] = any_pointer(garbage);
        else
            ((long *)interrupted)[below(garbage, offsetof(ucontext_t, uc_mcontext) / 8)] =
                nasty(garbage);
        break;
    case 4 ... 7:
        make_call(thread);
        break;
    }
}

/* Most signals have a handler. */
static void choose_handlers(struct garbage *garbage) {
    for (int signal = 1; signal <= 64; signal++) {
        int is_fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGILL ||
                       signal == SIGTRAP || signal == SIGFPE || signal == SIGABRT;
        long action[3] = {(long)on_signal, SA_SIGINFO, 0};
        if (signal != SIGALRM) {
            action[1] |= SOME_OF(garbage, SA_RESTART, SA_RESTART, SA_NODEFER, SA_ONSTACK);
            action[2] = one_in(garbage, 4) ? set(garbage) : 0;
            if (one_in(garbage, 8))
                action[0] = (long)(one_in(garbage, 6) ? SIG_DFL : SIG_IGN);
        }
        if (!is_fault)
            SYSTEM(134, signal, (long)action, 0, 8);
    }
}

/* A child begins with files of each kind, twice: calls on the first ones wait, and on the others
   they do not. */
static void open_files(struct garbage *garbage) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int ends[2];
    SYSTEM(49, (long)"/tmp");
    SYSTEM(34, AT_FDCWD, (long)"a", 0700);
    keep_file(63, &files);
    for (int more = 0; more <= O_NONBLOCK; more += O_NONBLOCK) {
        if (SYSTEM(59, (long)ends, more) == 0)
            keep_file(ends[0], NULL), keep_file(ends[1], NULL);
        if (SYSTEM(199, AF_UNIX, SOCK_STREAM | more, 0, (long)ends) == 0)
            keep_file(ends[0], &sockets), keep_file(ends[1], &sockets);
        int listening = SYSTEM(198, AF_INET, SOCK_STREAM | more);
        address.sin_port = htons(FIRST_PORT + below(garbage, PORTS));
        SYSTEM(200, listening, (long)&address, sizeof address);
        SYSTEM(201, listening, 4);
        keep_file(listening, &sockets);
        keep_file(SYSTEM(198, AF_INET, SOCK_STREAM | more), &sockets);
        /* Two that are connected to each other's ports, and one without a port. */
        for (int way = 0; way < 3; way++) {
            int datagrams = SYSTEM(198, AF_INET, SOCK_DGRAM | more);
            address.sin_port = htons(FIRST_PORT + way);
            if (way < 2)
                SYSTEM(200, datagrams, (long)&address, sizeof address);
            address.sin_port = htons(FIRST_PORT + 1 - way);
            if (way < 2)
                SYSTEM(203, datagrams, (long)&address, sizeof address);
            keep_file(datagrams, &sockets);
        }
        keep_file(SYSTEM(19, 0, more), NULL);
        keep_file(SYSTEM(20, 0), &instances);
        keep_file(SYSTEM(85, 1, more), &timers);
        keep_file(SYSTEM(56, AT_FDCWD, (long)"b", O_RDWR | O_CREAT | more, 0600), &files);
        keep_file(SYSTEM(56, AT_FDCWD, (long)"a", O_RDONLY), &files);
    }
}

/* A child of the supervisor. */
static void be_child(int number, uint64_t seed) {
    struct thread *thread = &all_threads[0];
    struct garbage *garbage = &thread->garbage;
    thread->garbage = garbage_of(seed + number * 7919);
    all_threads[THREADS - 1].slot = THREADS - 1;
    all_threads[THREADS - 1].garbage = garbage_of(next_of(garbage));
    family = &results->families[number];
    own_number = SYSTEM(172, 0);
    for (int index = 0; index < SIGNATURES; index++)
        weights += signatures[index].weight;
    count(&results->processes);
    /* In the session of the supervisor, it could put processes into the supervisor's group, which
       gets SIGHUP if they are stopped and orphaned. */
    SYSTEM(157, 0);
    /* What the supervisor reads ends with the supervisor. The console is rare: it gets anything. */
    int nothing = SYSTEM(56, AT_FDCWD, (long)"/dev/null", O_RDWR);
    int console = one_in(garbage, 8);
    for (int stream = 0; stream < 3; stream++)
        if (stream == 1 || !console)
            SYSTEM(24, nothing, stream, 0);
    choose_handlers(garbage);
    open_files(garbage);
    begin_alarm();
    for (int more = below(garbage, 4); more > 0; more--) {
        long arguments[6] = {CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD};
        start(thread, arguments);
    }
    make_calls(thread);
}
