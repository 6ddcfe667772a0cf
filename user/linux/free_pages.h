/* How much memory is left. */
#pragma once

#include <sys/sysinfo.h>

#include "check.h"

/* The free memory of the machine in pages. */
static long free_pages(void) {
    struct sysinfo about;
    CHECK(sysinfo(&about) == 0);
    return about.freeram * about.mem_unit / 4096;
}
