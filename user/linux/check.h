/* Checks of the test programs: what is wrong is printed with its line. A program ends at the first
   fault, unless it defines FAULT as something else before it includes this. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#ifndef FAULT
#define FAULT exit(1)
#endif

#define CHECK(what) \
    do { \
        if (!(what)) { \
            printf("line %d: %s, errno %d\n", __LINE__, #what, errno); \
            FAULT; \
        } \
    } while (0)

/* A call that must fail with this error. */
#define FAILS(what, error) \
    do { \
        errno = 0; \
        long result = (long)(what); \
        if (result != -1 || errno != (error)) { \
            printf("line %d: %s is %ld, errno %d\n", __LINE__, #what, result, errno); \
            FAULT; \
        } \
    } while (0)

/* Whether this is COPS, for what user-mode QEMU does differently, or Linux does by choice. */
static inline int is_cops(void) {
    struct utsname name;
    return uname(&name) == 0 && strcmp(name.nodename, "cops") == 0;
}
