/* Accesses that may fault: which signal, where, and why. */
#include <setjmp.h>
#include <signal.h>

#include "check.h"

static sigjmp_buf before_fault;
static volatile void *fault_address;
static volatile int fault_code;

static void on_fault(int signal, siginfo_t *information, void *unused) {
    (void)unused;
    fault_address = information->si_addr;
    fault_code = information->si_code;
    siglongjmp(before_fault, signal);
}

__attribute__((unused)) static void catch_faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, 0) == 0 && sigaction(SIGBUS, &action, 0) == 0);
}

/* The signal of a read; 0 if there is none. */
__attribute__((unused)) static int reading(volatile char *at) {
    int signal = sigsetjmp(before_fault, 1);
    if (signal == 0)
        (void)*at;
    return signal;
}

/* The signal of a write, which leaves a 1; 0 if there is none. */
__attribute__((unused)) static int writing(volatile char *at) {
    int signal = sigsetjmp(before_fault, 1);
    if (signal == 0)
        *at = 1;
    return signal;
}
