/* Numbers that follow from a seed, with a preference for values that are likely to do harm. */
#include <stdint.h>

struct garbage {
    uint64_t state;
};

static uint64_t next_of(struct garbage *garbage) {
    garbage->state ^= garbage->state << 13;
    garbage->state ^= garbage->state >> 7;
    garbage->state ^= garbage->state << 17;
    return garbage->state;
}

static struct garbage garbage_of(uint64_t seed) {
    struct garbage garbage = {(seed * 0x9e3779b97f4a7c15) | 1};
    /* The first numbers after a seed with few bits are small. */
    for (int i = 0; i < 8; i++)
        next_of(&garbage);
    return garbage;
}

static uint64_t below(struct garbage *garbage, uint64_t end) { return next_of(garbage) % end; }

/* Whether the one event in `of` happens. */
static int one_in(struct garbage *garbage, uint64_t of) { return below(garbage, of) == 0; }

/* Any value; often a limit, a small number, a single bit or an address of the kernel. */
static long nasty(struct garbage *garbage) {
    static const uint64_t edges[] = {
        0,          1,        -1UL,     1UL << 63,          -1UL >> 1,          UINT32_MAX,
        1UL << 31,  4095,     4096,     0xffffffc080200000, 0xfffffff000000000, 1UL << 38,
        -4096UL,    -8UL,     INT32_MAX};
    switch (below(garbage, 8)) {
    case 0:
    case 1:
        return edges[below(garbage, sizeof edges / sizeof *edges)];
    case 2:
        return below(garbage, 600);
    case 3:
        return 1UL << below(garbage, 64);
    case 4:
        return -(long)below(garbage, 600);
    default:
        return next_of(garbage);
    }
}

static long one_of(struct garbage *garbage, const long *values, int count) {
    return one_in(garbage, 32) ? nasty(garbage) : values[below(garbage, count)];
}

/* Mostly none or one of these bits. */
static long some_of(struct garbage *garbage, const long *bits, int count) {
    long flags = 0;
    while (one_in(garbage, 3))
        flags |= bits[below(garbage, count)];
    return one_in(garbage, 64) ? nasty(garbage) : flags;
}

#define VALUES(...) (const long[]){__VA_ARGS__}, sizeof((const long[]){__VA_ARGS__}) / sizeof(long)
#define ONE_OF(garbage, ...) one_of(garbage, VALUES(__VA_ARGS__))
#define SOME_OF(garbage, ...) some_of(garbage, VALUES(__VA_ARGS__))
