/* Programs that the kernel ends: by a bad access, an illegal instruction, or abort. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int sink(int depth) {
    volatile char space[512];
    space[0] = (char)depth;
    return depth == 0 ? 0 : sink(depth + 1) + space[0];
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    printf("before the end\n");
    fflush(stdout);
    if (strcmp(how, "read") == 0)
        return *(volatile int *)(atol("8") + count);
    if (strcmp(how, "write") == 0)
        *(volatile char *)(void *)main = 0;
    if (strcmp(how, "stack") == 0)
        return sink(1);
    if (strcmp(how, "illegal") == 0)
        __asm__ volatile("unimp");
    if (strcmp(how, "abort") == 0)
        abort();
    printf("after\n");
    return 0;
}
