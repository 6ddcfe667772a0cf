/* The memory of the processes, and pointers into it and elsewhere.

   base                                                                    64 pages
   | slots, one a thread | writable 16 | shared 4 | read-only 4 | writable 4 | hole 2 | writable |

   The supervisor makes it, so each child has a copy of the private pages, and the same shared ones.
   No call may change the supervisor's own copy, nor the read-only pages, which are those of a file
   that is open for reading only. */
#include <sys/mman.h>

#define PAGE_BYTES 4096L
#define ARENA_PAGES 64
#define SHARED_PAGE 32
#define READ_ONLY_PAGE 36
#define HOLE_PAGE 44
#define HOLE_PAGES 2
/* What the supervisor's own pages contain. */
#define PATTERN 0x5a
/* Threads of a process. The last slot is that of signal handlers. */
#define THREADS 16
/* Words of a futex: so many in shared pages, and in private ones. */
#define WORDS 8

/* Of the linker: where the code begins and ends. */
extern const char __executable_start[], etext[];

static char *base;

static char *slot_of(int thread) { return base + thread % THREADS * PAGE_BYTES; }

static char *page_at(int page) { return base + page * PAGE_BYTES; }

/* Any address; most are valid for some access. */
static long any_pointer(struct garbage *garbage) {
    static const int edges[] = {0, SHARED_PAGE, READ_ONLY_PAGE, READ_ONLY_PAGE + 4, HOLE_PAGE,
                                HOLE_PAGE + HOLE_PAGES, ARENA_PAGES};
    static const uint64_t forbidden[] = {0, 8, 4095, 0x3700000000, (1UL << 38) - 8, 1UL << 38,
                                         1UL << 63, 0xffffffc080200000, -8UL, 0x3f00000000};
    long inside = (long)base + THREADS * PAGE_BYTES;
    inside += 8 * below(garbage, (ARENA_PAGES - THREADS) * PAGE_BYTES / 8);
    uint64_t way = below(garbage, 64);
    if (way < 42)
        return inside;
    if (way < 47)
        return inside + below(garbage, 8);
    if (way < 54)
        return (long)page_at(edges[below(garbage, 7)]) + (long)below(garbage, 65) - 32;
    if (way < 58)
        return (long)page_at(READ_ONLY_PAGE) + below(garbage, 4 * PAGE_BYTES);
    if (way < 62)
        return forbidden[below(garbage, 10)];
    /* The code of the program, but not its variables, which the checks rely on. */
    if (way < 63)
        return (long)__executable_start + below(garbage, etext - __executable_start);
    return nasty(garbage);
}

/* Pages that calls have mapped. */
static long maps[8];
static unsigned next_map;

/* The first address of a page, mostly in the upper half of the arena. */
static long any_page(struct garbage *garbage) {
    switch (below(garbage, 16)) {
    case 0:
        return any_pointer(garbage);
    case 1:
        return any_pointer(garbage) & -PAGE_BYTES;
    case 2 ... 5:
        return 0;
    case 6 ... 8:
        return maps[below(garbage, 8)];
    default:
        return (long)page_at(SHARED_PAGE + below(garbage, ARENA_PAGES - SHARED_PAGE));
    }
}

static long any_length(struct garbage *garbage) {
    switch (below(garbage, 16)) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2 ... 6:
        return below(garbage, 64);
    case 7 ... 11:
        return below(garbage, 5 * PAGE_BYTES);
    case 12:
        return below(garbage, 1 << 20);
    case 13:
        return below(garbage, 16) * PAGE_BYTES;
    default:
        return nasty(garbage);
    }
}

/* A word that threads wait for. */
static long any_word(struct garbage *garbage) {
    switch (below(garbage, 12)) {
    case 0:
        return any_pointer(garbage);
    case 1 ... 5:
        return (long)page_at(THREADS) + 4 * below(garbage, WORDS);
    default:
        return (long)page_at(SHARED_PAGE) + 4 * below(garbage, WORDS);
    }
}
