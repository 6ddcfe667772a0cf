/* Eight threads, each of which adds 1 a hundred thousand times under one mutex. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 8, TIMES = 100000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *add(void *unused) {
    (void)unused;
    for (int i = 0; i < TIMES; i++) {
        pthread_mutex_lock(&mutex);
        sum++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(void) {
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, add, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        if (pthread_join(thread[i], NULL) != 0)
            return 2;
    printf("%ld\n", sum);
    return sum == (long)THREADS * TIMES ? 7 : 3;
}
