/* Ends of processes with several threads: the argument says how. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *how;

static void *other(void *unused) {
    if (strcmp(how, "main-first") == 0) {
        usleep(50000);
        printf("the other thread\n");
        fflush(stdout);
        syscall(SYS_exit, 9);
    }
    if (strcmp(how, "fault") == 0) {
        usleep(20000);
        return *(void *volatile *)(atol("8"));
    }
    for (;;)
        __asm__ volatile("");
    return unused;
}

static void *asleep(void *mutex) {
    pthread_mutex_lock(mutex);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
    how = count > 1 ? arguments[1] : "";
    pthread_mutex_lock(&held);
    for (int i = 0; i < 300; i++)
        if (strcmp(how, "main-first") != 0 && pthread_create(&thread, NULL, asleep, &held) != 0)
            return 1;
    for (int i = 0; i < (strcmp(how, "main-first") == 0 ? 1 : 5); i++)
        if (pthread_create(&thread, NULL, other, NULL) != 0)
            return 1;
    if (strcmp(how, "main-first") == 0)
        syscall(SYS_exit, 5); /* This thread alone. */
    if (strcmp(how, "fault") == 0)
        pthread_join(thread, NULL);
    usleep(20000);
    printf("the first thread\n");
    return 6;
}
