/* Arguments that are nearly right: a value of each kind, and the structure that it points to. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

/* A thread that makes calls. */
struct thread {
    struct garbage garbage;
    int slot;
};

/* Results of earlier calls; the newest replaces the oldest. */
#define MEMORY 16
struct remembered {
    int values[MEMORY];
    unsigned next;
};
static struct remembered descriptors, files, sockets, instances, timers, processes, threads;

static void remember(struct remembered *remembered, int value) {
    remembered->values[remembered->next++ % MEMORY] = value;
}

static int recall(struct thread *thread, const struct remembered *remembered) {
    unsigned known = remembered->next < MEMORY ? remembered->next : MEMORY;
    return known == 0 ? 0 : remembered->values[below(&thread->garbage, known)];
}

/* The program, the supervisor, and the process that started it. */
static int own_number, supervisor_number, first_number;

/* Handlers of signals, in child.h. */
static void on_signal(int signal, siginfo_t *information, void *context);

/* The pages of a place for a structure that an argument points to. */
#define PLACE_BYTES 640

static long *place_of(struct thread *thread, int index) {
    return (long *)(slot_of(thread->slot) + index * PLACE_BYTES);
}

/* The place, or rarely another pointer. */
static long pointer_to(struct thread *thread, const long *place) {
    switch (below(&thread->garbage, 24)) {
    case 0:
        return any_pointer(&thread->garbage);
    case 1:
        return (long)place + below(&thread->garbage, 16);
    default:
        return (long)place;
    }
}

#define COMMON_PATHS 16

static long path(struct thread *thread, long *place) {
    static const char *const paths[] = {
        /* Names that all children use at the same time. */
        "/tmp/a", "/tmp/b", "/tmp/c", "/tmp/d", "/tmp/a/b", "/tmp/a/c", "/tmp/b/a/../a", "/tmp",
        "a", "b", "c", "d", "b/", "../a", ".", "..",
        /* Others. */
        "", "/", "/bin", "/bin/hello", "/fuzz", "../../..//fuzz",
        "/dev/null", "/dev/zero", "/dev/tty", "/dev/console", "/dev/random", "/dev/fs", "/dev/vda",
        "/proc", "/proc/self", "/proc/self/fd", "/proc/self/fd/0", "/proc/self/maps",
        "/proc/self/status", "/proc/self/stat", "/proc/self/exe", "/proc/self/cwd/a",
        "/proc/self/cmdline", "/proc/self/environ", "/proc/1/fd", "/proc/1/maps", "/proc/1/cwd",
        "/proc/meminfo", "/proc/mounts", "/proc/sys/kernel/hostname", "/no/such/path",
        "\xff\xfe/\1"};
    const unsigned all = sizeof paths / sizeof *paths;
    if (one_in(&thread->garbage, 20)) {
        /* A name that is too long, or many short ones. */
        memset(place, one_in(&thread->garbage, 2) ? 'a' : '/', PLACE_BYTES);
        ((char *)place)[200 + below(&thread->garbage, 400)] = 0;
    } else {
        unsigned choices = one_in(&thread->garbage, 3) ? all : COMMON_PATHS;
        strcpy((char *)place, paths[below(&thread->garbage, choices)]);
    }
    return pointer_to(thread, place);
}

/* Arguments of a program that ends soon by itself, or pointers that are wrong. */
static long strings(struct thread *thread, long *place) {
    char *text = (char *)(place + 8);
    strcpy(text, "fuzz");
    strcpy(text + 8, "--nap");
    strcpy(text + 16, one_in(&thread->garbage, 2) ? "0" : "2000");
    long words[] = {(long)text, (long)text + 8, (long)text + 16, 0};
    memcpy(place, words, sizeof words);
    if (one_in(&thread->garbage, 8))
        place[below(&thread->garbage, 4)] = any_pointer(&thread->garbage);
    return pointer_to(thread, place);
}

/* Ports by which children connect to each other. */
#define FIRST_PORT 20000
#define PORTS 4

/* A socket address of this machine. */
static long address(struct thread *thread, long *place) {
    struct garbage *garbage = &thread->garbage;
    in_port_t port = one_in(garbage, 4) ? 0 : htons(FIRST_PORT + below(garbage, PORTS));
    memset(place, 0, sizeof(struct sockaddr_in6));
    if (one_in(garbage, 4)) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)place;
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
        six->sin6_addr.s6_addr[15] = 1;
    } else {
        struct sockaddr_in *four = (struct sockaddr_in *)place;
        *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
        four->sin_addr.s_addr = one_in(garbage, 4) ? 0 : htonl(INADDR_LOOPBACK);
    }
    if (one_in(garbage, 24))
        *(uint16_t *)place = one_in(garbage, 2) ? AF_UNSPEC : nasty(garbage);
    /* Another pointer could refer to an address outside of this machine. */
    return one_in(garbage, 16) ? (one_in(garbage, 2) ? 0 : -8) : (long)place;
}

static int any_process(struct thread *thread) {
    struct garbage *garbage = &thread->garbage;
    switch (below(garbage, 16)) {
    case 0:
        return nasty(garbage);
    case 1:
        return -1;
    case 2:
        return 0;
    case 3 ... 6:
        return own_number;
    case 7:
        return first_number;
    case 8:
        return supervisor_number;
    case 9:
        return -own_number;
    case 10:
        return -supervisor_number;
    default:
        return recall(thread, &processes);
    }
}

static int any_thread(struct thread *thread) {
    switch (below(&thread->garbage, 8)) {
    case 0:
        return any_process(thread);
    case 1:
        return own_number;
    case 2 ... 3:
        return 0;
    default:
        return recall(thread, &threads);
    }
}

/* Any signal that usually has a handler. */
static long caught_signal(struct garbage *garbage) {
    return ONE_OF(garbage, 0, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD, SIGCONT, SIGURG, SIGWINCH,
                  SIGPIPE, SIGIO, 33, 34, 34, 35, 48, 64);
}

static long any_signal(struct garbage *garbage) {
    /* SIGKILL and the stops are rare: nothing continues after them. */
    if (one_in(garbage, 24))
        return 1 + below(garbage, 66);
    return one_in(garbage, 2) ? 0 : caught_signal(garbage);
}

static long set(struct garbage *garbage) {
    switch (below(garbage, 6)) {
    case 0:
        return 0;
    case 1:
        return nasty(garbage);
    case 2:
        /* All but the alarm, which ends waits. */
        return ~(1L << (SIGALRM - 1));
    default:
        return 1L << below(garbage, 64) & ~(1L << (SIGALRM - 1));
    }
}

/* Seconds and a fraction of them: short, in the past, much, or none. */
static void time_at(struct garbage *garbage, long *place, long units) {
    long seconds = 0, rest = below(garbage, units / 500);
    switch (below(garbage, 12)) {
    case 0:
        seconds = nasty(garbage), rest = nasty(garbage);
        break;
    case 1:
        seconds = 3600;
        break;
    case 2:
        rest = 0;
        break;
    case 3:
        rest = one_in(garbage, 2) ? units : units - 1;
        break;
    }
    place[0] = seconds, place[1] = rest;
}

/* The owner of a word with priority inheritance: a thread, and the flags of Linux. */
static long word_value(struct thread *thread) {
    struct garbage *garbage = &thread->garbage;
    switch (below(garbage, 8)) {
    case 0:
        return nasty(garbage);
    case 1:
        return any_thread(thread) | (below(garbage, 4) << 30);
    default:
        return below(garbage, 2);
    }
}

/* A list of mutexes that ends with the thread: its head, and entries that may be a circle. */
static long robust_list(struct thread *thread, long *place) {
    struct garbage *garbage = &thread->garbage;
    long entries[] = {(long)place, (long)(place + 4), (long)(place + 8), any_word(garbage)};
    for (int entry = 0; entry < 12; entry += 4)
        place[entry] = entries[below(garbage, 4)];
    place[1] = one_in(garbage, 4) ? nasty(garbage) : 8 * (long)below(garbage, 16);
    place[2] = one_in(garbage, 2) ? 0 : entries[below(garbage, 4)];
    return pointer_to(thread, place);
}

static long action(struct thread *thread, long *place) {
    struct garbage *garbage = &thread->garbage;
    long handlers[] = {(long)on_signal, (long)on_signal, (long)on_signal, (long)SIG_IGN};
    place[0] = one_in(garbage, 24) ? (one_in(garbage, 2) ? (long)SIG_DFL : any_pointer(garbage))
                                   : handlers[below(garbage, 4)];
    place[1] = SA_SIGINFO | SOME_OF(garbage, SA_RESTART, SA_ONSTACK, SA_NODEFER, SA_NOCLDSTOP,
                                    SA_NOCLDWAIT, SA_RESETHAND);
    place[2] = set(garbage);
    return pointer_to(thread, place);
}

/* Headers of messages, with the number of bytes that were moved behind each. The address is, as
   that of other calls, one of this machine. */
static long messages(struct thread *thread, long *place, int count) {
    struct garbage *garbage = &thread->garbage;
    long *entries = place + 40, *name = place + 64;
    for (int entry = 0; entry < 4; entry++) {
        entries[2 * entry] = any_pointer(garbage);
        entries[2 * entry + 1] = one_in(garbage, 2) ? any_length(garbage)
                                                    : (long)below(garbage, 300);
    }
    long name_pointer = address(thread, name);
    for (int index = 0; index < count; index++) {
        int name_bytes = *(uint16_t *)name == AF_INET6 ? 28 : 16;
        long words[8] = {one_in(garbage, 3) ? 0 : name_pointer,
                         one_in(garbage, 8) ? nasty(garbage) : name_bytes,
                         (long)entries,
                         one_in(garbage, 16) ? nasty(garbage) : (long)below(garbage, 5),
                         one_in(garbage, 16) ? any_pointer(garbage) : 0,
                         one_in(garbage, 16) ? nasty(garbage) : 0};
        memcpy(place + 8 * index, words, sizeof words);
    }
    return pointer_to(thread, place);
}

static enum kind any_kind(struct garbage *garbage) {
    static const enum kind kinds[] = {ANY,  ZERO, SMALL, FD,   POINTER, LENGTH,
                                      PAGE, TIME, PATH,  WORD, PID,     ADDRESS};
    return kinds[below(garbage, sizeof kinds / sizeof *kinds)];
}

/* A value of this kind. `index` separates the structures of several arguments of one call. */
static long argument(struct thread *thread, enum kind kind, int index) {
    struct garbage *garbage = &thread->garbage;
    long *place = place_of(thread, index);
    switch (kind) {
    case ANY:
        return nasty(garbage);
    case ZERO:
        return one_in(garbage, 24) ? nasty(garbage) : 0;
    case SMALL:
        return ONE_OF(garbage, 0, 1, 1, 2, 3, 4, 5, 8, 16, 64);

    case FD:
        switch (below(garbage, 16)) {
        case 0:
            return nasty(garbage);
        case 1:
            return below(garbage, 64);
        default:
            return recall(thread, &descriptors);
        }
    case FILE_OR_FOLDER:
        return one_in(garbage, 12) ? argument(thread, FD, index) : recall(thread, &files);
    case SOCKET:
        return one_in(garbage, 12) ? argument(thread, FD, index) : recall(thread, &sockets);
    case INSTANCE:
        return one_in(garbage, 12) ? argument(thread, FD, index) : recall(thread, &instances);
    case TIMER:
        return one_in(garbage, 12) ? argument(thread, FD, index) : recall(thread, &timers);
    case FOLDER:
        return one_in(garbage, 6) ? argument(thread, FILE_OR_FOLDER, index) : AT_FDCWD;
    case OPEN_FLAGS:
        return ONE_OF(garbage, O_RDONLY, O_WRONLY, O_RDWR, O_RDWR) |
               SOME_OF(garbage, O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NONBLOCK,
                       O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, O_PATH, O_NOCTTY);
    case AT_FLAGS:
        return SOME_OF(garbage, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW,
                       AT_NO_AUTOMOUNT, AT_EMPTY_PATH);
    case MODE:
        return ONE_OF(garbage, 0, 0600, 0700, 0777, 0444);
    case COMMAND:
        return ONE_OF(garbage, F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC,
                      F_GETLK, F_SETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLK,
                      F_OFD_SETLKW);
    case COMMAND_ARGUMENT:
        if (one_in(garbage, 4))
            return ONE_OF(garbage, 0, 1, 3, 40, O_NONBLOCK, O_APPEND);
        /* A `struct flock`: kind and origin, start, length, owner. */
        place[0] = below(garbage, 4) | below(garbage, 4) << 16;
        place[1] = one_in(garbage, 8) ? nasty(garbage) : (long)below(garbage, 100);
        place[2] = one_in(garbage, 8) ? nasty(garbage) : (long)below(garbage, 100);
        place[3] = one_in(garbage, 8) ? nasty(garbage) : 0;
        return pointer_to(thread, place);
    case REQUEST:
        return ONE_OF(garbage, TCGETS, TCSETS, TCSETSW, TCSETSF, TIOCSCTTY, TIOCGPGRP, TIOCSPGRP,
                      TIOCGWINSZ, FIONREAD, FIONBIO, TIOCNOTTY, TIOCGSID, FIOCLEX, FIONCLEX);
    case REQUEST_ARGUMENT:
        for (int word = 0; word < 8; word++)
            place[word] = one_in(garbage, 4) ? nasty(garbage) : (long)below(garbage, 3);
        return one_in(garbage, 4) ? any_pointer(garbage) : (long)place;
    case BUFFERS:
        for (int entry = 0; entry < 32; entry++) {
            place[2 * entry] = any_pointer(garbage);
            place[2 * entry + 1] = one_in(garbage, 4) ? any_length(garbage)
                                                      : (long)below(garbage, 300);
        }
        return pointer_to(thread, place);
    case OFFSET:
        return one_in(garbage, 6) ? nasty(garbage) : (long)below(garbage, 4) * PAGE_BYTES;
    case WHENCE:
        return below(garbage, 6);
    case PATH:
        return path(thread, place);
    case PROGRAM:
        if (one_in(garbage, 3))
            return path(thread, place);
        strcpy((char *)place, one_in(garbage, 3) ? "/bin/fuzz" : "/fuzz");
        return pointer_to(thread, place);
    case STRINGS:
        return strings(thread, place);
    case LOCK:
        return ONE_OF(garbage, 1, 2, 5, 6, 5, 6, 8);
    case EVENT_FLAGS:
        return SOME_OF(garbage, EFD_SEMAPHORE, EFD_CLOEXEC, EFD_NONBLOCK);
    case FILE_FLAGS:
        return SOME_OF(garbage, O_CLOEXEC, O_NONBLOCK, O_NONBLOCK);
    case PIPE:
        /* Mostly where the caller looks for the numbers. */
        place[0] = -1;
        return one_in(garbage, 10) ? any_pointer(garbage) : (long)place;

    case POLLED:
        for (int entry = 0; entry < 64; entry++) {
            struct pollfd *polled = (struct pollfd *)place + entry;
            polled->fd = argument(thread, FD, index);
            polled->events = below(garbage, 64);
        }
        return pointer_to(thread, place);
    case SETS:
        place[0] = below(garbage, 1 << 20) & next_of(garbage);
        return one_in(garbage, 3) ? 0 : pointer_to(thread, place);
    case MASK_PAIR:
        place[0] = (long)(place + 2), place[1] = one_in(garbage, 8) ? nasty(garbage) : 8;
        place[2] = set(garbage);
        return one_in(garbage, 2) ? 0 : pointer_to(thread, place);
    case EPOLL_OPERATION:
        return ONE_OF(garbage, EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL);
    case EPOLL_EVENT:
        place[0] = below(garbage, 0x4000) |
                   SOME_OF(garbage, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE, EPOLLWAKEUP);
        place[1] = next_of(garbage);
        return pointer_to(thread, place);
    case MILLISECONDS:
        return ONE_OF(garbage, 0, 0, 1, 2, -1, 1000);

    case POINTER:
        return any_pointer(garbage);
    case LENGTH:
        return any_length(garbage);
    case PAGE:
        return any_page(garbage);
    case PAGES_LENGTH:
        return one_in(garbage, 12) ? any_length(garbage) : (long)below(garbage, 8) * PAGE_BYTES;
    case RIGHTS:
        return ONE_OF(garbage, PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE,
                      PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC,
                      PROT_READ | PROT_WRITE | PROT_EXEC);
    case MAP_FLAGS:
        return ONE_OF(garbage, MAP_PRIVATE, MAP_SHARED, MAP_PRIVATE | MAP_ANONYMOUS,
                      MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS) |
               SOME_OF(garbage, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_STACK,
                       MAP_GROWSDOWN, MAP_POPULATE, MAP_LOCKED);
    case REMAP_FLAGS:
        return ONE_OF(garbage, 0, MREMAP_MAYMOVE, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED);
    case SYNC_FLAGS:
        return ONE_OF(garbage, 0, MS_ASYNC, MS_SYNC, MS_INVALIDATE, MS_SYNC | MS_ASYNC);
    case ADVICE:
        return ONE_OF(garbage, MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED,
                      MADV_DONTNEED, MADV_FREE, 25, 26);
    case HEAP_END: {
        static long heap_end;
        if (heap_end == 0)
            heap_end = call(214, (const long[6]){0});
        if (one_in(garbage, 6))
            return nasty(garbage);
        return heap_end + (long)below(garbage, 1 << 18) - PAGE_BYTES;
    }

    case CLOCK:
        return ONE_OF(garbage, 0, 1, 1, 2, 3, 4, 5, 6, 7, 11);
    case TIME:
        time_at(garbage, place, 1000000000);
        return one_in(garbage, 24) ? 0 : pointer_to(thread, place);
    case TIME_FLAGS:
        return ONE_OF(garbage, 0, 0, TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET | TIMER_ABSTIME);
    case TIMES:
        time_at(garbage, place, 1000000000);
        time_at(garbage, place + 2, 1000000000);
        if (one_in(garbage, 8))
            place[1] = one_in(garbage, 2) ? UTIME_NOW : UTIME_OMIT;
        return pointer_to(thread, place);
    case ALARM:
        time_at(garbage, place, 1000000);
        time_at(garbage, place + 2, 1000000);
        return pointer_to(thread, place);

    case PID:
        return any_process(thread);
    case OWN:
        return one_in(garbage, 6) ? any_process(thread) : own_number;
    case THREAD:
        return any_thread(thread);
    case WAIT_OPTIONS:
        return ONE_OF(garbage, 0, WNOHANG, WNOHANG, WNOHANG | WUNTRACED, WCONTINUED | WNOHANG,
                      __WALL | WNOHANG);
    case WAITED:
        return ONE_OF(garbage, P_ALL, P_ALL, P_PID, P_PGID, 3);
    case WAITID_OPTIONS:
        return ONE_OF(garbage, WEXITED, WNOHANG | WEXITED, WNOHANG | WEXITED | WSTOPPED,
                      WNOHANG | WNOWAIT | WEXITED, WNOHANG | WCONTINUED, WNOHANG);
    case CLONE_FLAGS:
        return ONE_OF(garbage, SIGCHLD, SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD, CLONE_VM,
                      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD,
                      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD,
                      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                          CLONE_SYSVSEM) |
               SOME_OF(garbage, CLONE_PARENT_SETTID, CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID);
    case CLONE_STACK:
        /* Chosen with the flags. */
        return 0;
    case CODE:
        return below(garbage, 256);
    case ROBUST_LIST:
        return robust_list(thread, place);
    case ROBUST_BYTES:
        return ONE_OF(garbage, 24, 24, 24, 23);
    case WORD:
        return any_word(garbage);
    case WORD_OPERATION:
        return ONE_OF(garbage, 0, 0, 0, 1, 1, 1, 3, 4, 4, 6, 7, 8, 9, 9, 10, 13, 11, 12, 5) |
               SOME_OF(garbage, 128, 128, 256);
    case WORD_VALUE:
        return word_value(thread);
    case TIME_OR_COUNT:
        switch (below(garbage, 8)) {
        case 0:
            return 0;
        case 1 ... 2:
            return below(garbage, 8);
        default:
            return argument(thread, TIME, index);
        }

    case SIGNAL:
        return any_signal(garbage);
    case ACTION_SIGNAL:
        return below(garbage, 66);
    case CAUGHT_SIGNAL:
        return one_in(garbage, 64) ? any_signal(garbage) : caught_signal(garbage);
    case HOW:
        return ONE_OF(garbage, SIG_BLOCK, SIG_UNBLOCK, SIG_UNBLOCK, SIG_SETMASK, 3);
    case SET:
        place[0] = set(garbage);
        return one_in(garbage, 6) ? 0 : pointer_to(thread, place);
    case SET_BYTES:
        return one_in(garbage, 24) ? nasty(garbage) : 8;
    case ACTION:
        return one_in(garbage, 6) ? 0 : action(thread, place);
    case INFORMATION:
        /* Signal and error, code, sender, value. */
        place[0] = any_signal(garbage);
        place[1] = ONE_OF(garbage, -1, -1, -2, -6, 0, 128) & UINT32_MAX;
        place[2] = next_of(garbage), place[3] = nasty(garbage);
        return pointer_to(thread, place);
    case STACK:
        place[0] = (long)page_at(THREADS + 2);
        place[1] = ONE_OF(garbage, 0, 0, 0, SS_DISABLE, SS_ONSTACK);
        place[2] = ONE_OF(garbage, 4 * PAGE_BYTES, 4 * PAGE_BYTES, 4 * PAGE_BYTES, 2048, 100);
        return one_in(garbage, 6) ? 0 : pointer_to(thread, place);

    case FAMILY:
        return ONE_OF(garbage, AF_INET, AF_INET, AF_INET, AF_INET6, AF_UNIX);
    case PAIR_FAMILY:
        return ONE_OF(garbage, AF_UNIX, AF_UNIX, AF_UNIX, AF_INET);
    case SOCKET_TYPE:
        return ONE_OF(garbage, SOCK_STREAM, SOCK_STREAM, SOCK_STREAM, SOCK_DGRAM, SOCK_DGRAM) |
               SOME_OF(garbage, SOCK_NONBLOCK, SOCK_NONBLOCK, SOCK_CLOEXEC);
    case ADDRESS:
        return address(thread, place);
    case ADDRESS_BYTES:
        /* Mostly that of the address, which is the argument before. */
        if (!one_in(garbage, 6))
            return *(uint16_t *)place_of(thread, index - (index > 0)) == AF_INET6 ? 28 : 16;
        return ONE_OF(garbage, 0, 2, 4, 15, 16, 28, 29, 128);
    case BYTES_POINTER:
        place[0] = ONE_OF(garbage, 0, 4, 16, 28, 128, 7);
        return one_in(garbage, 12) ? 0 : pointer_to(thread, place);
    case MESSAGE:
        return messages(thread, place, 1);
    case MESSAGES:
        return messages(thread, place, 4);
    case MESSAGE_FLAGS:
        return SOME_OF(garbage, MSG_PEEK, MSG_DONTWAIT, MSG_DONTWAIT, MSG_WAITALL, MSG_NOSIGNAL,
                       MSG_MORE, MSG_DONTROUTE, MSG_CMSG_CLOEXEC, MSG_TRUNC, MSG_WAITFORONE);
    case LEVEL:
        return ONE_OF(garbage, SOL_SOCKET, SOL_SOCKET, IPPROTO_TCP, IPPROTO_IPV6);
    case OPTION:
        return ONE_OF(garbage, SO_REUSEADDR, SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE,
                      SO_LINGER, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN, SO_BROADCAST, TCP_NODELAY,
                      TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, 26);
    case SHUT:
        return below(garbage, 4);

    case RESOURCE:
        return below(garbage, 18);
    case LIMIT:
        place[0] = one_in(garbage, 2) ? nasty(garbage) : (long)below(garbage, 1 << 26);
        place[1] = one_in(garbage, 2) ? nasty(garbage) : place[0] + (long)below(garbage, 1 << 26);
        return pointer_to(thread, place);
    case POLICY:
        return ONE_OF(garbage, SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE,
                      SCHED_FIFO | SCHED_RESET_ON_FORK, 4);
    case PARAMETER:
        place[0] = ONE_OF(garbage, 0, 0, 1, 50, 99, 100);
        return pointer_to(thread, place);
    case NICE:
        return ONE_OF(garbage, -100, -20, -1, 0, 5, 19, 100);
    case USER:
        return ONE_OF(garbage, 0, 0, -1, 1000);
    case USAGE:
        return ONE_OF(garbage, 0, -1, 1, 2);
    case CONTROL:
        return ONE_OF(garbage, 15, 15, 16, 16, 1, 38);
    }
    return 0;
}
