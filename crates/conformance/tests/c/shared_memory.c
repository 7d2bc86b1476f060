/*
 * What a program allocates aligned to a page under `transom run` is shared memory, of which it notices nothing: not in
 * forked children, not by rights, sizes or limits. Each part runs in a process of its own. Prints one line for each
 * behaviour; the first that is not as it should be ends the program.
 *
 * Argument: a library that frees what it is given, by the C library's own function.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "to_itself.h"

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
/* What a child ends with that is as it should be. */
#define WELL 7
#define NO_COPY 125

extern char **environ;

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static const char *plugin;

static void open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    CHECK(pd && cq);
}

/* Whether a mapping of the file of shared memory is there. */
static bool is_shared(const void *address)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;

    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        CHECK(sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2);
        if (start <= (uintptr_t)address && (uintptr_t)address < end)
            found = strstr(line, "transom-shared");
    }
    fclose(maps);
    return found;
}

/* The compiler knows that what is allocated and freed was never needed. */
static void *any(void *block)
{
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

static unsigned char *allocate(size_t align, size_t size)
{
    void *block;

    CHECK(!posix_memalign(&block, align, size));
    return any(block);
}

/* A block in shared memory, all of one byte. */
static unsigned char *shared_block(size_t size, int byte)
{
    unsigned char *block = allocate(PAGE, size);

    CHECK(is_shared(block));
    return memset(block, byte, size);
}

static bool is_all(const unsigned char *bytes, size_t length, int byte)
{
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != byte)
            return false;
    return true;
}

static int status_of(pid_t child)
{
    int status;

    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static bool is_well(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == WELL;
}

static bool is_ended_by(int status, int signal)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

/* Forks, has the child do something, and waits for it. */
static int fork_to(void (*act)(void *), void *with)
{
    pid_t child = fork();

    if (!child) {
        act(with);
        _exit(WELL);
    }
    return status_of(child);
}

/* The same, and what the child says on standard error. */
static int told_by(void (*act)(void *), void *with, char *said, size_t room)
{
    int ends[2];
    size_t length = 0;
    ssize_t got;

    CHECK(!pipe(ends));
    int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    CHECK(before >= 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[1]);
    pid_t child = fork();
    if (!child) {
        act(with);
        _exit(WELL);
    }
    CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO);
    close(before);
    while ((got = read(ends[0], said + length, room - 1 - length)) > 0)
        length += got;
    said[length] = 0;
    close(ends[0]);
    return status_of(child);
}

/* Whether the program may read, or write, a byte: the kernel does for it what it may do. */
static bool may(bool write_it, unsigned char *at)
{
    static int ends[2];
    unsigned char byte = 0x5a;

    CHECK(ends[1] || !pipe(ends));
    if (!write_it) {
        if (write(ends[1], at, 1) == 1)
            return read(ends[0], &byte, 1) == 1;
        CHECK(errno == EFAULT);
        return false;
    }
    CHECK(write(ends[1], &byte, 1) == 1);
    if (read(ends[0], at, 1) == 1)
        return true;
    CHECK(errno == EFAULT && read(ends[0], &byte, 1) == 1);
    return false;
}

/* Makes the parts of this, one after the other. */
static void part(const char *behaviour, void (*body)(void))
{
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        body();
        _exit(WELL);
    }
    int status = status_of(child);
    if (!is_well(status)) {
        fprintf(stderr, "%s: status %#x\n", behaviour, status);
        exit(1);
    }
    printf("ok - %s\n", behaviour);
}

/* ---- Forks. ---- */

struct block {
    unsigned char *first;
    size_t length;
};

static void see_and_write(void *with)
{
    struct block *block = with;

    CHECK(is_all(block->first, block->length, 0xa1));
    memset(block->first, 0xb2, block->length);
    CHECK(is_all(block->first, block->length, 0xb2));
    free(block->first);
    unsigned char *more = allocate(PAGE, block->length);
    memset(more, 0xc3, block->length);
}

static void a_child_has_its_own(void)
{
    open_device();
    struct block block = { shared_block(5 << 20, 0xa1), 5 << 20 };

    for (int at = 0; at < 20; at++) {
        CHECK(is_well(fork_to(see_and_write, &block)));
        CHECK(is_all(block.first, block.length, 0xa1));
    }
}

static void fork_too(void *with)
{
    struct block *block = with;

    CHECK(is_well(fork_to(see_and_write, block)));
    CHECK(is_all(block->first, block->length, 0xa1));
    /* And with shared memory of its own. */
    open_device();
    struct block own = { shared_block(3 << 20, 0xa1), 3 << 20 };
    CHECK(is_well(fork_to(see_and_write, block)) && is_well(fork_to(see_and_write, &own)));
    CHECK(is_all(block->first, block->length, 0xa1));
    CHECK(is_all(own.first, own.length, 0xa1));
    free(block->first);
    free(own.first);
}

static void a_child_forks_and_has_a_device(void)
{
    open_device();
    struct block block = { shared_block(100000, 0xa1), 100000 };

    CHECK(is_well(fork_to(fork_too, &block)));
    CHECK(is_all(block.first, block.length, 0xa1));
}

/* A child that is made without the C library's handlers, one way or the other. */
static pid_t bare_child(int way)
{
    return way ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();
}

static void a_bare_child_faults(void)
{
    open_device();
    unsigned char *block = shared_block(100, 0xa1);

    for (int way = 0; way < 2; way++) {
        pid_t child = bare_child(way);
        if (!child) {
            *(volatile unsigned char *)block = 1;
            _exit(WELL);
        }
        CHECK(is_ended_by(status_of(child), SIGSEGV));
        CHECK(is_all(block, 100, 0xa1));
    }
}

static void allocate_there(void)
{
    enum { MANY = 100 };
    unsigned char *own[MANY];

    /* Some of it lies where the blocks were. */
    for (int at = 0; at < MANY; at++) {
        own[at] = memset(allocate(PAGE, 200000), at, 200000);
        CHECK(malloc_usable_size(own[at]) >= 200000);
    }
    for (int at = 0; at < MANY; at++) {
        CHECK(is_all(own[at], 200000, at));
        own[at] = realloc(own[at], 400000);
        CHECK(own[at] && is_all(own[at], 200000, at));
        free(own[at]);
    }
}

static void a_bare_child_frees_nothing(void)
{
    const size_t length = 64 << 20;

    open_device();
    unsigned char *large = shared_block(length, 0xa1), *changed = shared_block(4 * PAGE, 0xb2);
    CHECK(!mprotect(changed, PAGE, PROT_NONE));
    for (int way = 0; way < 2; way++) {
        pid_t child = bare_child(way);
        if (!child) {
            free(any(large));
            free(any(changed));
            CHECK(!may(false, large) && !may(false, changed + PAGE));
            allocate_there();
            pid_t another = fork();
            if (!another) {
                free(any(large));
                allocate_there();
                _exit(WELL);
            }
            _exit(is_well(status_of(another)) ? WELL : 1);
        }
        CHECK(is_well(status_of(child)));
        CHECK(is_all(large, length, 0xa1) && is_all(changed + PAGE, 3 * PAGE, 0xb2));
        CHECK(!may(false, changed));
    }
    free(large);
    free(changed);
    memset(shared_block(length, 0xc3), 0xd4, length);
}

static atomic_int victim, enough;

static void *allocate_often(void *unused)
{
    while (!enough)
        free(allocate(PAGE, 4096));
    return unused;
}

static void a_bare_child_waits_for_nobody(void)
{
    pthread_t thread;

    open_device();
    unsigned char *block = shared_block(100, 0xa1);
    CHECK(!pthread_create(&thread, NULL, allocate_often, NULL));
    for (int at = 0; at < 300; at++) {
        pid_t child = bare_child(at % 2);
        if (!child) {
            alarm(20);
            free(block);
            _exit(WELL);
        }
        CHECK(is_well(status_of(child)));
    }
    enough = 1;
    CHECK(!pthread_join(thread, NULL));
}

static pid_t vforked(unsigned char *block)
{
    pid_t child = vfork();

    if (!child) {
        /* It is the parent's memory, as any other is. */
        *(volatile unsigned char *)block = 2;
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return child;
}

static void other_programs_are_started(void)
{
    open_device();
    unsigned char *block = shared_block(5 << 20, 0xa1);
    char *arguments[] = { "true", NULL };
    pid_t child;

    for (int at = 0; at < 20; at++) {
        CHECK(!posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ));
        CHECK(status_of(child) == 0 && is_all(block, 5 << 20, 0xa1));
        CHECK(status_of(vforked(block)) == 0 && block[0] == 2);
        block[0] = 0xa1;
        CHECK(system("exit 3") == 3 << 8);
    }
}

static void *kill_them(void *unused)
{
    while (!enough) {
        pid_t child = atomic_exchange(&victim, 0);
        if (child)
            CHECK(!kill(child, SIGKILL));
    }
    return unused;
}

static void children_are_killed(void)
{
    open_device();
    struct block block = { shared_block(2 << 20, 0xa1), 2 << 20 };
    pthread_t thread;

    CHECK(!pthread_create(&thread, NULL, kill_them, NULL));
    for (int at = 0; at < 100; at++) {
        pid_t child = fork();
        if (!child) {
            see_and_write(&block);
            pause();
        }
        CHECK(child > 0);
        atomic_store(&victim, child);
        CHECK(is_well(fork_to(see_and_write, &block)));
        CHECK(is_ended_by(status_of(child), SIGKILL));
        CHECK(is_all(block.first, block.length, 0xa1));
    }
    enough = 1;
    CHECK(!pthread_join(thread, NULL));
}

static size_t addresses(void)
{
    FILE *statm = fopen("/proc/self/statm", "r");
    size_t pages;

    CHECK(statm && fscanf(statm, "%zu", &pages) == 1);
    fclose(statm);
    return pages * PAGE;
}

static void a_child_without_a_copy_ends(void)
{
    open_device();
    struct block block = { shared_block(64 << 20, 0xa1), 64 << 20 };
    struct rlimit before, few;
    char said[1024];

    CHECK(!getrlimit(RLIMIT_AS, &before));
    few = before;
    few.rlim_cur = addresses() + (1 << 20);
    CHECK(!setrlimit(RLIMIT_AS, &few));
    int status = told_by(see_and_write, &block, said, sizeof said);
    CHECK(!setrlimit(RLIMIT_AS, &before));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == NO_COPY);
    CHECK(strstr(said, "there is no memory for its copy") && strchr(said, '\n') == said + strlen(said) - 1);
    CHECK(is_all(block.first, block.length, 0xa1));
    CHECK(is_well(fork_to(see_and_write, &block)));
}

static unsigned char *handled;
static int handled_well;

static void before_the_fork(void)
{
    if (handled)
        memset(handled, 0xd4, 10000);
}

static void in_the_child(void)
{
    handled_well = handled && is_all(handled, 10000, 0xd4);
    if (handled)
        memset(handled, 0xe5, 10000);
}

static void in_the_parent(void)
{
    handled_well = handled && is_all(handled, 10000, 0xd4);
}

static void look_at_what_was_handled(void *unused)
{
    (void)unused;
    CHECK(handled_well && is_all(handled, 10000, 0xe5));
}

static void handlers_of_forks_have_the_copy(void)
{
    CHECK(!pthread_atfork(before_the_fork, in_the_parent, in_the_child));
    open_device();
    handled = shared_block(10000, 0xa1);
    CHECK(is_well(fork_to(look_at_what_was_handled, NULL)));
    CHECK(handled_well && is_all(handled, 10000, 0xd4));
}

/* What every process finds there, and behind it the one whose handler was there last. */
static unsigned char *volatile signalled;
static volatile pid_t *last;
static atomic_int bad_signals;

static void handle(int number)
{
    (void)number;
    bad_signals += !is_all(signalled, 4096, 0xa1);
    *last = getpid();
}

static void *signal_all(void *unused)
{
    while (!enough)
        CHECK(!kill(0, SIGUSR1));
    return unused;
}

static void signals_find_the_copy(void)
{
    pthread_t thread;
    sigset_t one;

    open_device();
    /* The group that it leaves ends with the tests. */
    CHECK(!setpgid(0, 0) && !prctl(PR_SET_PDEATHSIG, SIGKILL));
    signalled = shared_block(1 << 20, 0xa1);
    last = (pid_t *)(signalled + 8192);
    CHECK(signal(SIGUSR1, handle) != SIG_ERR);
    CHECK(!sigemptyset(&one) && !sigaddset(&one, SIGUSR1));
    CHECK(!pthread_sigmask(SIG_BLOCK, &one, NULL));
    CHECK(!pthread_create(&thread, NULL, signal_all, NULL));
    CHECK(!pthread_sigmask(SIG_UNBLOCK, &one, NULL));
    for (int at = 0; at < 100; at++) {
        *last = 0;
        while (!*last)
            sched_yield();
        pid_t child = fork();
        if (!child) {
            /* The first signal may be there before this is. */
            while (*last != getpid())
                sched_yield();
            _exit(bad_signals ? 1 : WELL);
        }
        int status;
        while (waitpid(child, &status, 0) != child)
            CHECK(errno == EINTR);
        CHECK(is_well(status) && *last == getpid() && !bad_signals);
    }
    enough = 1;
    CHECK(!pthread_join(thread, NULL) && signal(SIGUSR1, SIG_IGN) != SIG_ERR);
}

static void *fork_on_it(void *unused)
{
    char *arguments[] = { "true", NULL };
    pid_t child;

    CHECK(!posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ));
    CHECK(status_of(child) == 0);
    child = fork();
    if (!child)
        _exit(WELL);
    CHECK(is_ended_by(status_of(child), SIGSEGV));
    return unused;
}

static void a_stack_is_not_copied_in_time(void)
{
    const size_t length = 1 << 20;
    pthread_attr_t attr;
    pthread_t thread;

    open_device();
    struct block block = { shared_block(100000, 0xa1), 100000 };
    unsigned char *stack = shared_block(length, 0);
    CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstack(&attr, stack, length));
    CHECK(!pthread_create(&thread, &attr, fork_on_it, NULL) && !pthread_join(thread, NULL));
    CHECK(is_well(fork_to(see_and_write, &block)));
    CHECK(is_all(block.first, block.length, 0xa1));
}

/* ---- Rights. ---- */

static void see_rights(void *with)
{
    unsigned char *block = with;

    CHECK(may(false, block) && may(true, block));
    CHECK(!may(false, block + PAGE) && !may(true, block + PAGE));
    CHECK(may(false, block + 2 * PAGE) && !may(true, block + 2 * PAGE));
    CHECK(may(false, block + 3 * PAGE) && may(true, block + 3 * PAGE));
    CHECK(is_all(block + 2 * PAGE, PAGE, 0xa1));
    CHECK(!mprotect(block, 8 * PAGE, PROT_READ | PROT_WRITE));
    CHECK(is_all(block + PAGE, 2 * PAGE, 0xa1) && is_all(block + 4 * PAGE, 4 * PAGE, 0xa1));
}

static void see_rights_twice(void *with)
{
    CHECK(is_well(fork_to(see_rights, with)));
    see_rights(with);
}

static void children_have_the_same_rights(void)
{
    open_device();
    unsigned char *block = shared_block(8 * PAGE, 0xa1);

    CHECK(!mprotect(block + PAGE, PAGE, PROT_NONE) && !mprotect(block + 2 * PAGE, PAGE, PROT_READ));
    CHECK(is_well(fork_to(see_rights_twice, block)));
    CHECK(!may(false, block + PAGE) && may(false, block + 2 * PAGE) && !may(true, block + 2 * PAGE));
}

static void memory_without_rights_is_emptied(void)
{
    open_device();
    unsigned char *block = shared_block(8 * PAGE, 0xa1);
    struct ibv_mr *mr = ibv_reg_mr(pd, block, 8 * PAGE, RIGHTS);

    CHECK(mr && !mprotect(block + PAGE, PAGE, PROT_NONE) && !mprotect(block + 2 * PAGE, PAGE, PROT_READ));
    CHECK(!madvise(block + PAGE, 3 * PAGE, MADV_DONTNEED));
    CHECK(!mprotect(block, 8 * PAGE, PROT_READ | PROT_WRITE));
    CHECK(is_all(block, PAGE, 0xa1) && is_all(block + PAGE, 3 * PAGE, 0));
    CHECK(is_all(block + 4 * PAGE, 4 * PAGE, 0xa1) && !ibv_dereg_mr(mr));
    CHECK(madvise(block + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
}

static void see_what_is_mapped(void *with)
{
    unsigned char *block = with;

    CHECK(is_all(block, 2 * PAGE, 0xa1) && is_all(block + 4 * PAGE, 2 * PAGE, 0xa1));
    CHECK(!may(false, block + 2 * PAGE) && !may(false, block + 3 * PAGE));
    CHECK(is_all(block + 6 * PAGE, PAGE, 0xf6) && is_all(block + 7 * PAGE, PAGE, 0xa1));
    memset(block + 6 * PAGE, 1, PAGE);
}

static void parts_are_unmapped(void)
{
    open_device();
    unsigned char *block = shared_block(8 * PAGE, 0xa1);

    CHECK(!munmap(block + 2 * PAGE, 2 * PAGE));
    CHECK(mmap(block + 6 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0) == block + 6 * PAGE);
    memset(block + 6 * PAGE, 0xf6, PAGE);
    CHECK(is_well(fork_to(see_what_is_mapped, block)));
    see_what_is_mapped(block);
    /* What is mapped there is emptied as what it is. */
    CHECK(!madvise(block + 6 * PAGE, 2 * PAGE, MADV_DONTNEED));
    CHECK(is_all(block + 6 * PAGE, 2 * PAGE, 0));
}

static void see_all_parts(void *with)
{
    struct block *block = with;

    for (size_t at = 0; at < block->length; at += 2 * PAGE) {
        CHECK(!may(true, block->first + at) && is_all(block->first + at, PAGE, 0xa1));
        CHECK(is_all(block->first + at + PAGE, PAGE, 0xa1));
    }
}

static void many_parts_have_rights(void)
{
    open_device();
    struct block block = { shared_block(10000 * PAGE, 0xa1), 10000 * PAGE };

    for (size_t at = 0; at < block.length; at += 2 * PAGE)
        CHECK(!mprotect(block.first + at, PAGE, PROT_READ));
    CHECK(is_well(fork_to(see_all_parts, &block)));
}

static void *change_rights(void *with)
{
    unsigned char *block = with;

    while (!enough) {
        for (size_t page = 2; page < 60; page += 2)
            CHECK(!mprotect(block + page * PAGE, PAGE, PROT_READ));
        CHECK(!mprotect(block, 64 * PAGE, PROT_READ | PROT_WRITE));
    }
    return NULL;
}

static void see_without_writing(void *with)
{
    CHECK(is_all(with, 64 * PAGE, 0xa1));
}

static void rights_change_during_forks(void)
{
    open_device();
    unsigned char *block = shared_block(64 * PAGE, 0xa1);
    pthread_t thread;

    CHECK(!pthread_create(&thread, NULL, change_rights, block));
    for (int at = 0; at < 300; at++)
        CHECK(is_well(fork_to(see_without_writing, block)));
    enough = 1;
    CHECK(!pthread_join(thread, NULL));
}

static void *fork_often(void *with)
{
    sigset_t mask, before;

    CHECK(!sigemptyset(&mask) && !sigaddset(&mask, SIGUSR2) && !pthread_sigmask(SIG_SETMASK, &mask, NULL));
    for (int at = 0; at < 150; at++) {
        CHECK(is_well(fork_to(see_without_writing, with)));
        CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &before));
        CHECK(sigismember(&before, SIGUSR2) && !sigismember(&before, SIGTERM));
    }
    return NULL;
}

static void threads_fork_at_once(void)
{
    open_device();
    unsigned char *block = shared_block(64 * PAGE, 0xa1);
    pthread_t threads[4];

    for (int at = 0; at < 4; at++)
        CHECK(!pthread_create(&threads[at], NULL, fork_often, block));
    for (int at = 0; at < 4; at++)
        CHECK(!pthread_join(threads[at], NULL));
}

static unsigned char *volatile changing;
static atomic_int changes;

static void change_there(int number)
{
    (void)number;
    int before = errno;
    CHECK(!mprotect(changing, PAGE, PROT_READ) && !mprotect(changing, PAGE, PROT_READ | PROT_WRITE));
    changes++;
    errno = before;
}

static void *interrupt(void *with)
{
    pthread_t *thread = with;

    while (!enough)
        CHECK(!pthread_kill(*thread, SIGUSR1));
    return NULL;
}

static void rights_change_in_handlers_of_signals(void)
{
    pthread_t thread, self = pthread_self();

    open_device();
    /* One that waits for itself does so for ever. */
    alarm(60);
    changing = shared_block(PAGE, 0xa1);
    CHECK(signal(SIGUSR1, change_there) != SIG_ERR);
    CHECK(!pthread_create(&thread, NULL, interrupt, &self));
    while (changes < 5000)
        free(allocate(PAGE, 4096));
    enough = 1;
    CHECK(!pthread_join(thread, NULL));
}

static void *fork_often_enough(void *with)
{
    for (int at = 0; at < 100 && !enough; at++)
        CHECK(is_well(fork_to(see_without_writing, with)));
    enough = 1;
    return NULL;
}

/* The copy takes a while. An allocation in that time finds no shared memory, and so gets other. */
static void allocations_do_not_wait_for_forks(void)
{
    const size_t length = 256 << 20;
    bool is_other = false;
    pthread_t thread;

    open_device();
    unsigned char *large = shared_block(length, 0xa1);
    CHECK(!pthread_create(&thread, NULL, fork_often_enough, large));
    while (!is_other && !enough) {
        unsigned char *block = memset(allocate(PAGE, 4096), 0xb2, 4096);
        is_other = (size_t)(block - large) > (size_t)3 << 30;
        free(block);
    }
    CHECK(is_other);
    enough = 1;
    CHECK(!pthread_join(thread, NULL));
    CHECK(is_shared(shared_block(100, 0xc3)) && is_all(large, length, 0xa1));
}

/* ---- Sizes. ---- */

static void see_sizes(void *with)
{
    struct block *block = with;

    CHECK(malloc_usable_size(block->first) >= block->length);
    memset(block->first, 0xb2, malloc_usable_size(block->first));
    unsigned char *larger = realloc(block->first, 3 * block->length);
    CHECK(larger && is_all(larger, block->length, 0xb2));
    free(larger);
}

static void all_of_a_usable_size_can_be_used(void)
{
    open_device();
    unsigned char *blocks[64];
    size_t sizes[64];

    for (int at = 0; at < 64; at++) {
        blocks[at] = allocate(PAGE << at % 4, at * at * 37);
        CHECK(is_shared(blocks[at]) && (uintptr_t)blocks[at] % (PAGE << at % 4) == 0);
        sizes[at] = malloc_usable_size(blocks[at]);
        CHECK(sizes[at] >= (size_t)at * at * 37 && sizes[at] > 0);
        memset(blocks[at], at, sizes[at]);
    }
    for (int at = 0; at < 64; at++) {
        struct block block = { blocks[at], at * at * 37 + 1 };
        CHECK(is_all(blocks[at], sizes[at], at));
        if (at % 16 == 5)
            CHECK(is_well(fork_to(see_sizes, &block)));
        CHECK(is_all(blocks[at], sizes[at], at));
    }
}

static void realloc_keeps_bytes(void)
{
    open_device();
    unsigned char *block = shared_block(100, 0xa1);

    static const size_t sizes[] = { 5000, 4096, 100000, 99999, 49000, 3 << 20, 10, 1 << 20 };
    size_t length = 100;
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        block = realloc(block, sizes[at]);
        CHECK(block && malloc_usable_size(block) >= sizes[at]);
        length = length < sizes[at] ? length : sizes[at];
        CHECK(is_all(block, length, 0xa1));
        length = sizes[at];
        memset(block, 0xa1, length);
    }
    /* More than there is: it stays as it was. */
    volatile size_t too_many = PTRDIFF_MAX;
    CHECK(!realloc(any(block), too_many) && errno == ENOMEM);
    CHECK(!reallocarray(any(block), too_many, 3) && errno == ENOMEM);
    CHECK(is_all(block, length, 0xa1));
    CHECK(!realloc(block, 0));
    /* And no other's is taken for it. */
    unsigned char *plain = malloc(100000);
    memset(plain, 0xb2, 100000);
    plain = realloc(plain, 500000);
    CHECK(plain && !is_shared(plain) && is_all(plain, 100000, 0xb2));
    free(plain);
}

static void many_blocks_are_there_at_once(void)
{
    enum { MANY = 20000 };
    static uint64_t *blocks[MANY];

    open_device();
    for (int round = 0; round < 3; round++) {
        for (size_t at = 0; at < MANY; at++) {
            if (blocks[at])
                continue;
            blocks[at] = (uint64_t *)allocate(PAGE, 4096);
            CHECK(round || at % 1000 || is_shared(blocks[at]));
            for (size_t word = 0; word < 512; word += 511)
                blocks[at][word] = at;
        }
        for (size_t at = 0; at < MANY; at++) {
            CHECK(blocks[at][0] == at && blocks[at][511] == at);
            if (at % 3 == (size_t)round) {
                free(blocks[at]);
                blocks[at] = NULL;
            }
        }
    }
    pid_t child = fork();
    if (!child) {
        for (size_t at = 0; at < MANY; at++)
            CHECK(!blocks[at] || (blocks[at][0] == at && blocks[at][511] == at));
        for (size_t at = 0; at < MANY; at++)
            free(blocks[at]);
        _exit(WELL);
    }
    CHECK(is_well(status_of(child)));
    for (size_t at = 0; at < MANY; at++) {
        CHECK(!blocks[at] || (blocks[at][0] == at && blocks[at][511] == at));
        free(blocks[at]);
    }
}

/* A write by the device to `to`, and a look. */
static void write_there(struct ibv_qp *qp, struct ibv_mr *from, struct ibv_mr *to, size_t offset)
{
    struct ibv_sge sge = { (uintptr_t)from->addr, from->length, from->lkey };
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
        .wr.rdma = { (uintptr_t)to->addr + offset, to->rkey },
    }, *bad;
    struct ibv_wc wc;

    CHECK(!ibv_post_send(qp, &wr, &bad));
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        sched_yield();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(!memcmp((char *)to->addr + offset, from->addr, from->length));
}

/* What peers of this program may do is given to the queue pair that is connected to itself. */
static struct ibv_qp *granting(void)
{
    struct ibv_qp *qp = to_itself(pd, cq);
    struct ibv_qp_attr attr = { .qp_access_flags = RIGHTS };

    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS));
    return qp;
}

static void beyond_its_end_all_is_private(void)
{
    enum { MANY = 18 };
    const size_t length = 64 << 20;
    unsigned char *blocks[MANY];
    int shared = 0;

    open_device();
    struct ibv_qp *qp = granting();
    unsigned char *source = shared_block(4096, 0xd4);
    struct ibv_mr *from = ibv_reg_mr(pd, source, 4096, IBV_ACCESS_LOCAL_WRITE);
    CHECK(from);
    for (int at = 0; at < MANY; at++) {
        blocks[at] = allocate(PAGE, length);
        shared += is_shared(blocks[at]);
        memset(blocks[at], at, PAGE);
        memset(blocks[at] + length - PAGE, at, PAGE);
    }
    CHECK(shared > 0 && shared < MANY && !is_shared(blocks[MANY - 1]));
    for (int at = 0; at < MANY; at++) {
        struct ibv_mr *mr = ibv_reg_mr(pd, blocks[at], length, RIGHTS);
        CHECK(mr);
        write_there(qp, from, mr, length / 2);
        CHECK(!ibv_dereg_mr(mr));
    }
    for (int at = 0; at < MANY; at++) {
        CHECK(is_all(blocks[at], PAGE, at) && is_all(blocks[at] + length - PAGE, PAGE, at));
        free(blocks[at]);
    }
    CHECK(is_shared(allocate(PAGE, length)));
}

/* ---- Frees. ---- */

static void freed_blocks_stay_with_their_regions(void)
{
    enum { MANY = 16, MORE = 200 };
    const size_t length = 64 << 10;
    unsigned char *blocks[MANY], *more[MORE];
    struct ibv_mr *mrs[MANY];

    open_device();
    struct ibv_qp *qp = granting();
    unsigned char *source = shared_block(length, 0xd4);
    struct ibv_mr *from = ibv_reg_mr(pd, source, length, IBV_ACCESS_LOCAL_WRITE);
    CHECK(from);
    for (int at = 0; at < MANY; at++) {
        blocks[at] = shared_block(length, 0xa1);
        mrs[at] = ibv_reg_mr(pd, blocks[at], length, RIGHTS);
        CHECK(mrs[at]);
    }
    for (int at = 0; at < MANY; at++)
        free(blocks[at]);
    for (int at = 0; at < MORE; at++) {
        size_t size = (size_t)1000 << at % 8;
        unsigned char *zeros = calloc(1, size);
        CHECK(zeros && is_all(zeros, size, 0));
        free(zeros);
        more[at] = shared_block(size, 0xb2);
        for (int other = 0; other < MANY; other++)
            CHECK(more[at] + size <= blocks[other] || blocks[other] + length <= more[at]);
    }
    for (int at = 0; at < MANY; at++) {
        CHECK(is_all(blocks[at], length, 0xa1));
        write_there(qp, from, mrs[at], 0);
    }
    for (int at = 0; at < MORE; at++)
        CHECK(is_all(more[at], (size_t)1000 << at % 8, 0xb2));
    for (int at = 0; at < MANY; at++)
        CHECK(!ibv_dereg_mr(mrs[at]));
    /* Now they are given out again. */
    bool is_one_of_them = false;
    for (int at = 0; at < MANY; at++) {
        unsigned char *again = shared_block(length, 0xc3);
        for (int other = 0; other < MANY; other++)
            is_one_of_them |= again == blocks[other];
    }
    CHECK(is_one_of_them);
}

static void free_elsewhere(void *with)
{
    void *library = dlopen(plugin, RTLD_NOW | RTLD_DEEPBIND);

    CHECK(library);
    void (*release)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "release");
    CHECK(release);
    release(with);
}

static void another_free_refuses(void)
{
    char said[1024];

    /* With a copy it is as in this process: nothing of the C library's stands before it. */
    open_device();
    unsigned char *block = shared_block(100000, 0xa1);
    CHECK(is_ended_by(told_by(free_elsewhere, block, said, sizeof said), SIGABRT));
    CHECK(!strcmp(said, "free(): invalid pointer\n"));
    /* Before a device is open there is nothing to be taken for another's. */
    CHECK(is_all(block, 100000, 0xa1));
}

static void open_and_free_elsewhere(void *unused)
{
    (void)unused;
    open_device();
    free_elsewhere(shared_block(100000, 0xa1));
}

static void another_free_refuses_where_it_is_shared(void)
{
    char said[1024];

    CHECK(is_ended_by(told_by(open_and_free_elsewhere, NULL, said, sizeof said), SIGABRT));
    CHECK(!strcmp(said, "free(): invalid pointer\n"));
}

static void free_twice(void *unused)
{
    (void)unused;
    open_device();
    void *block = shared_block(100, 0xa1), *again = any(block);
    free(block);
    free(again);
}

static void free_registered_twice(void *unused)
{
    (void)unused;
    open_device();
    void *block = shared_block(100, 0xa1), *again = any(block);
    CHECK(ibv_reg_mr(pd, block, 100, RIGHTS));
    free(block);
    free(again);
}

static void free_a_part(void *unused)
{
    (void)unused;
    open_device();
    free(any(shared_block(4 * PAGE, 0xa1) + PAGE));
}

static void frees_of_nothing_end_the_process(void)
{
    void (*acts[])(void *) = { free_twice, free_registered_twice, free_a_part };
    char said[1024];

    for (int at = 0; at < 3; at++) {
        CHECK(is_ended_by(told_by(acts[at], NULL, said, sizeof said), SIGABRT));
        CHECK(strstr(said, "is not the beginning of memory that was allocated"));
        CHECK(strchr(said, '\n') == said + strlen(said) - 1);
    }
}

/* ---- Descriptors. ---- */

/* Calls something for each descriptor of the file; how many there are. */
static int descriptors_of_the_file(bool (*holds)(int))
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    CHECK(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char target[64] = "";
        if (readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1) < 0)
            continue;
        if (strstr(target, "transom-shared")) {
            count++;
            CHECK(holds(atoi(entry->d_name)));
        }
    }
    closedir(directory);
    return count;
}

static bool is_high(int fd)
{
    return fd >= 500 && fcntl(fd, F_GETFD) == FD_CLOEXEC;
}

static void see_no_descriptor(void *unused)
{
    (void)unused;
    CHECK(descriptors_of_the_file(is_high) == 0);
}

static void the_file_has_a_high_descriptor(void)
{
    open_device();
    CHECK(descriptors_of_the_file(is_high) == 1);
    CHECK(system("! ls -l /proc/self/fd | grep -q transom-shared") == 0);
    CHECK(is_well(fork_to(see_no_descriptor, NULL)));
}

static void without_standard_descriptors(void)
{
    int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);

    CHECK(before >= 0);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    open_device();
    /* What the program is given has the lowest numbers, as all that it opens; nothing that it does not know of. */
    int is_free = 1;
    for (int fd = 0; fd < 3; fd++)
        is_free &= fd == context->async_fd || (fcntl(fd, F_GETFD) < 0 && errno == EBADF);
    /* What says that something is wrong goes where it would go. */
    int third = dup2(before, STDERR_FILENO);
    CHECK(third == STDERR_FILENO);
    CHECK(is_free);
    CHECK(descriptors_of_the_file(is_high) == 1);
    struct block block = { shared_block(100000, 0xa1), 100000 };
    struct ibv_mr *mr = ibv_reg_mr(pd, block.first, block.length, RIGHTS);
    CHECK(mr && is_well(fork_to(see_and_write, &block)));
    CHECK(is_all(block.first, block.length, 0xa1) && !ibv_dereg_mr(mr));
}

static void without_any_descriptor_left(void)
{
    open_device();
    struct block block = { shared_block(100000, 0xa1), 100000 };
    struct rlimit limit;
    int fd, last = -1;

    CHECK(!mprotect(block.first + 3 * PAGE, PAGE, PROT_READ));
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 600;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    while ((fd = dup(STDERR_FILENO)) >= 0)
        last = fd;
    CHECK(errno == EMFILE && last > 0);
    CHECK(!mprotect(block.first + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    for (int at = 0; at < 3; at++) {
        CHECK(is_well(fork_to(see_and_write, &block)));
        CHECK(is_all(block.first, block.length, 0xa1));
    }
}

/* A file of the program's own, which has the numbers of the descriptors that it has closed. */
static int own_file;
static int taken_numbers[8], taken;

static void see_the_file(void *with)
{
    CHECK(taken > 0);
    for (int at = 0; at < taken; at++)
        CHECK(lseek(taken_numbers[at], 0, SEEK_CUR) == 12345);
    see_and_write(with);
}

/* Gives the file the numbers of the file of shared memory, and of the lists of mappings. */
static void take_numbers(void)
{
    DIR *directory = opendir("/proc/self/fd");

    CHECK(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char target[64] = "";
        if (readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1) < 0)
            continue;
        if (strstr(target, "transom-shared") || strstr(target, "/maps")) {
            CHECK(taken < 8);
            taken_numbers[taken++] = atoi(entry->d_name);
        }
    }
    closedir(directory);
    for (int at = 0; at < taken; at++)
        CHECK(dup2(own_file, taken_numbers[at]) == taken_numbers[at]);
}

static void a_file_of_the_program_has_the_number(void)
{
    const size_t length = 64 << 20, whole = 96 << 20;

    open_device();
    struct block large = { shared_block(length, 0xa1), length };
    unsigned char *emptied = shared_block(8 * PAGE, 0xb2), *changed = shared_block(4 * PAGE, 0xc3);
    own_file = memfd_create("own", MFD_CLOEXEC);
    CHECK(own_file >= 0 && !ftruncate(own_file, whole) && lseek(own_file, 12345, SEEK_SET) == 12345);
    unsigned char *content = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, own_file, 0);
    CHECK(content != MAP_FAILED);
    memset(content, 0x77, whole);
    take_numbers();

    CHECK(!mprotect(changed, PAGE, PROT_NONE));
    free(changed);
    CHECK(shared_block(4 * PAGE, 0xd4) == changed);
    CHECK(!madvise(emptied, 8 * PAGE, MADV_DONTNEED) && is_all(emptied, 8 * PAGE, 0));
    for (int at = 0; at < 3; at++)
        CHECK(is_well(fork_to(see_the_file, &large)));
    CHECK(is_all(large.first, length, 0xa1));
    free(large.first);
    CHECK(is_all(content, whole, 0x77) && lseek(own_file, 0, SEEK_CUR) == 12345);
    /* There is shared memory as before. */
    struct ibv_mr *mr = ibv_reg_mr(pd, emptied, 8 * PAGE, RIGHTS);
    CHECK(mr && !ibv_dereg_mr(mr));
    large.first = shared_block(length, 0xa1);
    CHECK(is_well(fork_to(see_the_file, &large)));
    CHECK(is_all(content, whole, 0x77) && lseek(own_file, 0, SEEK_CUR) == 12345);
}

static void all_descriptors_are_closed(void)
{
    open_device();
    struct block block = { shared_block(5 << 20, 0xa1), 5 << 20 };
    unsigned char *emptied = shared_block(8 * PAGE, 0xb2);

    CHECK(!close_range(STDERR_FILENO + 1, ~0U, 0));
    for (int at = 0; at < 3; at++) {
        CHECK(is_well(fork_to(see_and_write, &block)));
        CHECK(is_all(block.first, block.length, 0xa1));
    }
    CHECK(!madvise(emptied, 8 * PAGE, MADV_DONTNEED) && is_all(emptied, 8 * PAGE, 0));
    CHECK(is_all(block.first, block.length, 0xa1));
}

/* The next user of memory finds it as it was, although the one before has protected some of it. */
static void what_was_protected_is_as_it_was_for_the_next(void)
{
    open_device();
    for (int way = 0; way < 2; way++) {
        unsigned char *block = shared_block(4 * PAGE, 0xa1);

        CHECK(!(way ? mprotect(block, 4 * PAGE, PROT_READ) : mprotect(block + PAGE, PAGE, PROT_NONE)));
        free(block);
        unsigned char *again = shared_block(4 * PAGE, 0xb2);
        CHECK(again == block && is_all(again, 4 * PAGE, 0xb2));
        free(again);
    }
}

int main(int count, char **arguments)
{
    const struct rlimit no_core = { 0, 0 };

    CHECK(count == 2 && !setrlimit(RLIMIT_CORE, &no_core));
    plugin = arguments[1];
    part("a child has everything as it was, and its own", a_child_has_its_own);
    part("a child forks, and has shared memory of its own", a_child_forks_and_has_a_device);
    part("a child made without the C library faults", a_bare_child_faults);
    part("a child made without the C library frees nothing of its parent's", a_bare_child_frees_nothing);
    part("a child made without the C library waits for no thread of its parent's", a_bare_child_waits_for_nobody);
    part("other programs are started as ever", other_programs_are_started);
    part("children are killed while their parent forks", children_are_killed);
    part("a child ends for which there is no memory, and its parent goes on", a_child_without_a_copy_ends);
    part("handlers of forks have the copy", handlers_of_forks_have_the_copy);
    part("handlers of signals have the copy", signals_find_the_copy);
    part("a child of a thread with a shared stack ends, and its parent goes on",
         a_stack_is_not_copied_in_time);
    part("a child has the same rights", children_have_the_same_rights);
    part("memory without rights is emptied too", memory_without_rights_is_emptied);
    part("what is unmapped is so in a child, too", parts_are_unmapped);
    part("thousands of parts have rights of their own", many_parts_have_rights);
    part("rights change while a thread forks", rights_change_during_forks);
    part("rights change in handlers of signals", rights_change_in_handlers_of_signals);
    part("allocations do not wait for a thread that forks", allocations_do_not_wait_for_forks);
    part("threads fork at once, and each has its signals and a whole copy", threads_fork_at_once);
    part("all of a usable size can be used", all_of_a_usable_size_can_be_used);
    part("realloc keeps bytes", realloc_keeps_bytes);
    part("20,000 blocks are there at once", many_blocks_are_there_at_once);
    part("what does not fit is private", beyond_its_end_all_is_private);
    part("what is freed stays as it is for its regions", freed_blocks_stay_with_their_regions);
    part("the C library's own free refuses a child's copy", another_free_refuses);
    part("the C library's own free refuses a block", another_free_refuses_where_it_is_shared);
    part("what was protected is as it was for the next", what_was_protected_is_as_it_was_for_the_next);
    part("what is freed twice ends the process", frees_of_nothing_end_the_process);
    part("the file has a high descriptor, which no other program has", the_file_has_a_high_descriptor);
    part("standard descriptors may be closed", without_standard_descriptors);
    part("forks take no descriptor", without_any_descriptor_left);
    part("a file of the program has the number of a closed descriptor", a_file_of_the_program_has_the_number);
    part("all descriptors are closed", all_descriptors_are_closed);
    return 0;
}
