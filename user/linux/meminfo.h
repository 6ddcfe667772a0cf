/* How much memory is left. */
#pragma once

#include <stdio.h>

#include "check.h"

/* The free memory of the machine in KiB. */
static long free_memory(void) {
    char line[200];
    long kibibytes = -1;
    FILE *file = fopen("/proc/meminfo", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemFree: %ld kB", &kibibytes) == 1)
            break;
    fclose(file);
    return kibibytes;
}
