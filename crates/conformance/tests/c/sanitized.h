/* What programs have in common whose threads ThreadSanitizer watches: accesses that its reports name, and a wait that
   orders nothing. */
#include "cases.h"
#include "check.h"

static __attribute__((noinline)) void change(volatile char *at) { (*at)++; }
static __attribute__((noinline)) int look(const volatile char *at) { return *at; }

/* A thread has come so far. Whoever hears of it so is not ordered behind it. */
static int is_so_far;

static void say_so(void)
{
    __atomic_store_n(&is_so_far, 1, __ATOMIC_RELAXED);
}

static void wait_until_said(void)
{
    while (!__atomic_load_n(&is_so_far, __ATOMIC_RELAXED))
        ;
}
