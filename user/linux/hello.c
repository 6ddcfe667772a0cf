/* Standard output and error, arguments, environment, the exit code, and what starts before main. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 1; }
static __thread int in_thread = 40;

int main(int count, char **arguments) {
    printf("hello, %d arguments\n", count - 1);
    for (int i = 1; i < count; i++)
        printf("%s\n", arguments[i]);
    printf("%.3f %d\n", 3.5 * count, constructed + ++in_thread);

    struct utsname name;
    struct timespec before, after;
    if (uname(&name) != 0 || strcmp(name.machine, "riscv64") != 0)
        return 1;
    if (getauxval(AT_PAGESZ) != 4096 || getauxval(AT_ENTRY) == 0 || getauxval(AT_SECURE) != 0)
        return 2;
    if (strstr((const char *)getauxval(AT_EXECFN), "hello") == NULL)
        return 3;
    if (getauxval(AT_SYSINFO_EHDR) != 0)
        return 4;
    if (clock_gettime(CLOCK_MONOTONIC, &before) != 0)
        return 5;
    struct timespec wait = {0, 20000000};
    if (nanosleep(&wait, NULL) != 0)
        return 6;
    clock_gettime(CLOCK_MONOTONIC, &after);
    long long slept = (after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec;
    if (slept < 20000000)
        return 7;
    struct timespec used;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0)
        return 8;
    if (time(NULL) < 1600000000)
        return 9;
    errno = 0;
    if (syscall(4096) != -1 || errno != ENOSYS) /* COPS's own call `park` */
        return 10;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 1)
        return 11;
    /* A long output, of more than one call. */
    for (int i = 0; i < 1000; i++)
        printf("line %d\n", i);
    return 7;
}
