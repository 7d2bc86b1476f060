/*
 * A program for what watches or replaces the memory of a process. It allocates in every way that aligns to a page,
 * sends to itself from there, forks, frees and enlarges, and looks at every byte. In the end it says whether what it
 * allocated was shared memory or private.
 *
 * With "waits" it says that it is ready in the midst of it, and goes on when its input ends. With "calm" no other thread
 * allocates when it forks. With "partial" there is no pvalloc, which some allocators leave to the C library though it
 * cannot be freed then.
 */
#include <infiniband/verbs.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "maps.h"
#include "to_itself.h"

#define BUFFERS 5
#define WORDS (3 * 4096 / 8 + 5)
#define LENGTH (WORDS * sizeof(uint64_t))
#define ROUNDS 4

#ifdef EARLY
#include <dlfcn.h>

/* Before the constructor of any library, the loader has something to say, and frees it at the next lookup. */
static void looks_up(void)
{
    CHECK(!dlsym(RTLD_DEFAULT, "no_such_function") && !dlsym(RTLD_DEFAULT, "nor_this_one"));
    free(malloc(10));
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = looks_up;
#endif

static struct ibv_cq *cq;
static struct ibv_qp *qp;
/* A debugger looks here. */
uint64_t *buffers[BUFFERS];
static struct ibv_mr *regions[BUFFERS];

static uint64_t word(uint64_t tag, uint64_t at)
{
    return (tag * 0x9e3779b97f4a7c15 ^ at) * 0xff51afd7ed558ccd;
}

static void fill(uint64_t *words, size_t count, uint64_t tag)
{
    for (size_t at = 0; at < count; at++)
        words[at] = word(tag, at);
}

static int is_filled(const uint64_t *words, size_t count, uint64_t tag)
{
    for (size_t at = 0; at < count; at++)
        if (words[at] != word(tag, at))
            return 0;
    return 1;
}

static int calm, partial;

static void *allocated(int how, size_t length)
{
    void *memory = NULL;
    if (partial && how == 4)
        how = 3;
    switch (how) {
    case 0:
        CHECK(!posix_memalign(&memory, 4096, length));
        break;
    case 1:
        memory = aligned_alloc(8192, (length + 8191) / 8192 * 8192);
        break;
    case 2:
        memory = memalign(65536, length);
        break;
    case 3:
        memory = valloc(length);
        break;
    default:
        memory = pvalloc(length);
    }
    CHECK(memory && (uintptr_t)memory % 4096 == 0);
    return memory;
}

static void done(enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc = { 0 };
    time_t start = time(NULL);
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        CHECK(time(NULL) - start < 60);
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == opcode);
}

static void post(enum ibv_wr_opcode opcode, int from, int to, size_t length, uint64_t add)
{
    struct ibv_sge sge = { (uintptr_t)buffers[from], length, regions[from]->lkey };
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
    }, *bad = NULL;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)buffers[to];
        wr.wr.atomic.rkey = regions[to]->rkey;
        wr.wr.atomic.compare_add = add;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)buffers[to];
        wr.wr.rdma.rkey = regions[to]->rkey;
    }
    CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* From the first buffer to the second by a WRITE, to the third by a READ, to the fourth by a SEND, and a word of it is
 * counted up by an atomic operation. */
static void exchange(uint64_t tag)
{
    struct ibv_sge sge = { (uintptr_t)buffers[3], LENGTH, regions[3]->lkey };
    struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad = NULL;

    fill(buffers[0], WORDS, tag);
    post(IBV_WR_RDMA_WRITE, 0, 1, LENGTH, 0);
    done(IBV_WC_RDMA_WRITE);
    CHECK(is_filled(buffers[1], WORDS, tag));
    post(IBV_WR_RDMA_READ, 2, 1, LENGTH, 0);
    done(IBV_WC_RDMA_READ);
    CHECK(is_filled(buffers[2], WORDS, tag));
    CHECK(!ibv_post_recv(qp, &receive, &bad));
    post(IBV_WR_SEND, 2, 0, LENGTH, 0);
    struct ibv_wc both[2] = { 0 };
    time_t start = time(NULL);
    for (int found = 0; found < 2;) {
        int more = ibv_poll_cq(cq, 2 - found, both + found);
        CHECK(more >= 0 && time(NULL) - start < 60);
        found += more;
    }
    CHECK(both[0].status == IBV_WC_SUCCESS && both[1].status == IBV_WC_SUCCESS);
    CHECK(is_filled(buffers[3], WORDS, tag));
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 3, 8, 5);
    done(IBV_WC_FETCH_ADD);
    CHECK(buffers[4][0] == word(tag, 0) && buffers[3][0] == word(tag, 0) + 5);
    buffers[3][0] -= 5;
}

static void tell(int file)
{
    CHECK(write(file, "", 1) == 1);
}

static void hear(int file)
{
    char byte;
    CHECK(read(file, &byte, 1) == 1);
}

static pthread_mutex_t allocating = PTHREAD_MUTEX_INITIALIZER;

/* A child has a copy of what its parent had; each keeps its own. */
static void child(int in, int out, uint64_t tag, int depth);

static void forks(uint64_t tag, int depth, int has_device)
{
    int up[2], down[2], status = 0;
    CHECK(!pipe(up) && !pipe(down));
    for (int at = 0; at < BUFFERS; at++)
        fill(buffers[at], WORDS, tag + at);
    if (calm && has_device)
        pthread_mutex_lock(&allocating);
    pid_t id = fork();
    CHECK(id >= 0);
    if (id && calm && has_device)
        pthread_mutex_unlock(&allocating);
    if (!id) {
        close(up[0]);
        close(down[1]);
        child(down[0], up[1], tag, depth);
    }
    close(up[1]);
    close(down[0]);
    hear(up[0]);
    for (int at = 0; at < BUFFERS; at++)
        CHECK(is_filled(buffers[at], WORDS, tag + at));
    if (has_device)
        exchange(tag + 100);
    for (int at = 0; at < BUFFERS; at++)
        fill(buffers[at], WORDS, tag + 200 + at);
    tell(down[1]);
    CHECK(waitpid(id, &status, 0) == id);
    CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
    for (int at = 0; at < BUFFERS; at++)
        CHECK(is_filled(buffers[at], WORDS, tag + 200 + at));
    close(up[0]);
    close(down[1]);
}

/* Another length is the same memory as far as both go. */
static void *resized(void *memory, size_t words, uint64_t tag)
{
    static const size_t lengths[] = { WORDS * 40, WORDS, 100, WORDS * 2 };
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        fill(memory, words, tag + at);
        memory = realloc(memory, lengths[at] * 8);
        CHECK(memory);
        CHECK(is_filled(memory, words < lengths[at] ? words : lengths[at], tag + at));
        words = lengths[at];
        fill(memory, words, tag);
        CHECK(malloc_usable_size(memory) >= words * 8);
    }
    return memory;
}

static void child(int in, int out, uint64_t tag, int depth)
{
    for (int at = 0; at < BUFFERS; at++) {
        CHECK(is_filled(buffers[at], WORDS, tag + at));
        CHECK(!is_shared(buffers[at]));
        fill(buffers[at], WORDS, tag + 300 + at);
    }
    tell(out);
    hear(in);
    for (int at = 0; at < BUFFERS; at++)
        CHECK(is_filled(buffers[at], WORDS, tag + 300 + at));
    if (depth)
        forks(tag + 1000, depth - 1, 0);
    buffers[0] = resized(buffers[0], WORDS, tag);
    for (int at = 0; at < BUFFERS; at++) {
        uint64_t *another = allocated(at, LENGTH);
        CHECK(!is_shared(another));
        fill(another, WORDS, tag);
        free(buffers[at]);
        CHECK(is_filled(another, WORDS, tag));
        free(another);
    }
    _exit(0);
}

static atomic_int over;

/* Another thread allocates and frees all the while. */
static void *allocates(void *ignored)
{
    for (uint64_t tag = 1 << 20; !over; tag++) {
        int how = tag % 5;
        if (calm)
            pthread_mutex_lock(&allocating);
        uint64_t *some = allocated(how, LENGTH), *other = malloc(100 + tag % 10000);
        CHECK(other);
        fill(some, WORDS, tag);
        free(other);
        CHECK(is_filled(some, WORDS, tag));
        free(some);
        if (calm)
            pthread_mutex_unlock(&allocating);
    }
    return ignored;
}

int main(int count, char **words)
{
    int waits = 0;
    pthread_t thread;
    for (int at = 1; at < count; at++) {
        waits |= !strcmp(words[at], "waits");
        calm |= !strcmp(words[at], "calm");
        partial |= !strcmp(words[at], "partial");
    }
    uint64_t *early[BUFFERS];
    for (int at = 0; at < BUFFERS; at++) {
        early[at] = allocated(at, LENGTH);
        fill(early[at], WORDS, at);
        CHECK(!is_shared(early[at]));
    }

    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(cq);
    qp = to_itself(pd, cq);
    for (int at = 0; at < BUFFERS; at++) {
        buffers[at] = allocated(at, LENGTH);
        CHECK(is_shared(buffers[at]) == is_shared(buffers[0]));
        regions[at] = ibv_reg_mr(pd, buffers[at], LENGTH,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
        CHECK(regions[at]);
    }
    int shared = is_shared(buffers[0]);
    exchange(1);
    if (waits) {
        puts("ready");
        fflush(stdout);
        CHECK(getchar() == EOF);
        CHECK(is_filled(buffers[0], WORDS, 1));
    }

    CHECK(!pthread_create(&thread, NULL, allocates, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        exchange(round);
        forks(10000 * (round + 1), round % 2, 1);
    }
    exchange(7);
    over = 1;
    CHECK(!pthread_join(thread, NULL));

    CHECK(!madvise(buffers[0], 8192, MADV_DONTNEED));
    for (size_t at = 0; at < WORDS; at++)
        CHECK(buffers[0][at] == (at < 1024 ? 0 : word(7, at)));
    exchange(8);
    for (int at = 0; at < BUFFERS; at++) {
        CHECK(is_shared(buffers[at]) == shared);
        CHECK(!ibv_dereg_mr(regions[at]));
        free(resized(buffers[at], WORDS, at));
    }
    for (int at = 0; at < BUFFERS; at++) {
        CHECK(is_filled(early[at], WORDS, at));
        free(resized(early[at], WORDS, at));
    }
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    puts(shared ? "shared" : "private");
    return 0;
}
