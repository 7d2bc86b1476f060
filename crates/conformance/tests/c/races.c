/* Conflicts on memory that queue pairs touch: each case has two accesses that race, or that something orders. All of
   them run one after the other, compiled with ThreadSanitizer; a line names each before it begins.
   spec/races.md says what is to be found. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

#define RIGHTS                                                                                     \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                  \
     IBV_ACCESS_REMOTE_ATOMIC)
#define WORDS 8

/* Two origins, each with a queue pair of its own to the target, whose words both reach. */
struct origin {
    struct ibv_cq *cq, *target_cq;
    struct ibv_qp *qp, *target;
};
static struct origin a, b;

/* What a case uses: fresh words, so that no case sees what another has done to them. */
struct words {
    uint64_t target[WORDS], local[WORDS], other[WORDS];
};
static struct words all[128] __attribute__((aligned(64)));
static struct words *now = all;
static struct ibv_mr *mr;
static struct ibv_context *context;
static struct ibv_pd *pd;

static struct ibv_qp *make(struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);

    CHECK(qp);
    return qp;
}

static void join(struct ibv_qp *qp, struct ibv_qp *to)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS,
    };

    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp_num,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
        .ah_attr = { .port_num = 1, .is_global = 1 },
    };
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.max_rd_atomic = 4;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void connect_origin(struct origin *origin)
{
    origin->cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    origin->target_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(origin->cq && origin->target_cq);
    origin->qp = make(origin->cq);
    origin->target = make(origin->target_cq);
    join(origin->qp, origin->target);
    join(origin->target, origin->qp);
}

static void begin(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    CHECK(pd);
    mr = ibv_reg_mr(pd, all, sizeof all, RIGHTS);
    CHECK(mr);
    connect_origin(&a);
    connect_origin(&b);
}

/* One request, between words of this case. Two buffers make a list. */
static void post(struct origin *by, enum ibv_wr_opcode opcode, uint64_t *local, uint64_t *target,
                 int buffers)
{
    struct ibv_sge list[2] = {
        { (uintptr_t)local, 8, mr->lkey },
        { (uintptr_t)(local + 2), 8, mr->lkey },
    };
    struct ibv_send_wr wr = {
        .sg_list = list, .num_sge = buffers, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
    }, *bad;

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = (uintptr_t)target;
        wr.wr.atomic.rkey = mr->rkey;
        wr.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.swap = 7;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)target;
        wr.wr.rdma.rkey = mr->rkey;
    }
    CHECK(!ibv_post_send(by->qp, &wr, &bad));
}

static void take(struct ibv_cq *cq, int count)
{
    struct ibv_wc wc;

    while (count) {
        int found = ibv_poll_cq(cq, 1, &wc);

        CHECK(found >= 0);
        if (!found)
            sched_yield();
        else
            CHECK(wc.status == IBV_WC_SUCCESS);
        count -= found;
    }
}

#define WRITE IBV_WR_RDMA_WRITE
#define WRITE_IMM IBV_WR_RDMA_WRITE_WITH_IMM
#define READ IBV_WR_RDMA_READ
#define ADD IBV_WR_ATOMIC_FETCH_AND_ADD
#define SWAP IBV_WR_ATOMIC_CMP_AND_SWP

/* A request and its completion, by either origin with local words of its own. */
#define DO(name, by, opcode, from, buffers)                                                        \
    static void name(void)                                                                         \
    {                                                                                              \
        post(&by, opcode, now->from, now->target, buffers);                                        \
        take(by.cq, 1);                                                                            \
    }
DO(a_writes, a, WRITE, local, 1)
DO(b_writes, b, WRITE, other, 1)
DO(a_reads, a, READ, local, 1)
DO(b_reads, b, READ, other, 1)
DO(a_adds, a, ADD, local, 1)
DO(b_adds, b, ADD, other, 1)
DO(a_swaps, a, SWAP, local, 1)
DO(b_swaps, b, SWAP, other, 1)
DO(a_writes_list, a, WRITE, local, 2)
DO(a_reads_list, a, READ, local, 2)

static void a_adds_beside(void)
{
    post(&a, ADD, now->local, now->target + 1, 1);
    take(a.cq, 1);
}

/* What the target's own threads do. */
static volatile uint64_t seen;
static __attribute__((noinline)) void load(uint64_t *word) { seen = *(volatile uint64_t *)word; }
static __attribute__((noinline)) void store(uint64_t *word) { *(volatile uint64_t *)word = 9; }
static void target_loads(void) { load(now->target); }
static void target_stores(void) { store(now->target); }
static void target_loads_atomically(void) { seen = __atomic_load_n(now->target, __ATOMIC_RELAXED); }
static void local_loads(void) { load(now->local); }

/* One thread waits for another by a word that ThreadSanitizer does not see. */
static volatile int turn;
__attribute__((no_sanitize("thread"), noinline)) static void wait_for_turn(int mine)
{
    while (turn != mine)
        sched_yield();
}
__attribute__((no_sanitize("thread"), noinline)) static void next_turn(void) { turn = turn + 1; }

static void (*steps[3])(void);
static void *step(void *which)
{
    wait_for_turn((int)(intptr_t)which);
    steps[(intptr_t)which]();
    next_turn();
    return NULL;
}

/* Each in a thread of its own, one after the other. Nothing that the program does orders them. */
static void apart(void (*first)(void), void (*second)(void), void (*third)(void))
{
    pthread_t threads[3];
    int count = third ? 3 : 2;

    turn = 0;
    steps[0] = first;
    steps[1] = second;
    steps[2] = third;
    for (intptr_t i = 0; i < count; i++)
        CHECK(!pthread_create(&threads[i], NULL, step, (void *)i));
    for (int i = 0; i < count; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

/* The same, where the second begins after the first has ended, and may know it. */
static void in_order(void (*first)(void), void (*second)(void))
{
    pthread_t thread;

    steps[0] = first;
    steps[1] = second;
    for (intptr_t i = 0; i < 2; i++) {
        turn = i;
        CHECK(!pthread_create(&thread, NULL, step, (void *)i));
        CHECK(!pthread_join(thread, NULL));
    }
}

/* --- what an origin does to the local words while its own request is under way --- */
#define LOCAL(name, opcode, buffers, then)                                                         \
    static void name(void)                                                                         \
    {                                                                                              \
        post(&a, opcode, now->local, now->target, buffers);                                        \
        then;                                                                                      \
        take(a.cq, 1);                                                                             \
    }
LOCAL(write_then_load, WRITE, 1, load(now->local))
LOCAL(write_then_store, WRITE, 1, store(now->local))
LOCAL(read_then_load, READ, 1, load(now->local))
LOCAL(read_then_store, READ, 1, store(now->local))
LOCAL(add_then_load, ADD, 1, load(now->local))
LOCAL(add_then_store, ADD, 1, store(now->local))
LOCAL(swap_then_load, SWAP, 1, load(now->local))
LOCAL(swap_then_store, SWAP, 1, store(now->local))
LOCAL(write_list_then_load, WRITE, 2, load(now->local + 2))
LOCAL(write_list_then_store, WRITE, 2, store(now->local + 2))
LOCAL(read_list_then_load, READ, 2, load(now->local + 2))
LOCAL(read_list_then_store, READ, 2, store(now->local + 2))
/* The compiler does not know how much, and has to call the function. */
static volatile size_t size = sizeof all->local;
LOCAL(read_then_memcpy, READ, 1, memcpy(now->other, now->local, size))
LOCAL(write_then_memcpy, WRITE, 1, memcpy(now->other, now->local, size))

/* Names and functions that hide which words are meant. */
static uint64_t *alias(uint64_t *word) { return word; }
static uint64_t *(*volatile hidden)(uint64_t *) = alias;
static __attribute__((noinline)) void deep(uint64_t *word, int depth, void (*act)(uint64_t *))
{
    if (depth)
        deep(word, depth - 1, act);
    else
        act(word);
}
LOCAL(read_then_deep_load, READ, 1, deep(hidden(now->local), 20, load))
LOCAL(write_then_deep_load, WRITE, 1, deep(hidden(now->local), 20, load))
static void target_stores_deep(void) { deep(hidden(now->target), 20, store); }
static void target_loads_deep(void) { deep(hidden(now->target), 20, load); }

static void read_polled_load(void)
{
    a_reads();
    load(now->local);
}

static void write_polled_store(void)
{
    a_writes();
    store(now->local);
}

static void other_polled(void)
{
    post(&a, READ, now->local, now->target, 1);
    b_writes();
    load(now->local);
    take(a.cq, 1);
}

/* Two requests of one thread whose local words are the same. */
#define BOTH(name, first, opcode1, local1, second, opcode2, local2, target2)                       \
    static void name(void)                                                                         \
    {                                                                                              \
        post(&first, opcode1, now->local1, now->target, 1);                                        \
        post(&second, opcode2, now->local2, now->target2, 1);                                      \
        take(first.cq, 1);                                                                         \
        take(second.cq, 1);                                                                        \
    }
BOTH(write_and_write_from_one_buffer, a, WRITE, local, b, WRITE, local, target + 2)
BOTH(read_and_write_of_one_buffer, a, READ, local, b, WRITE, local, target + 2)
BOTH(read_and_read_into_one_buffer, a, READ, local, b, READ, local, target + 2)
/* And two whose words at the target are the same. */
BOTH(write_then_read_of_one_pair, a, WRITE, local, a, READ, other, target)
BOTH(write_then_write_of_one_pair, a, WRITE, local, a, WRITE, other, target)
BOTH(add_then_add_of_one_pair, a, ADD, local, a, ADD, other, target)
BOTH(read_then_write_of_one_pair, a, READ, local, a, WRITE, other, target)
BOTH(write_then_read_of_two_pairs, a, WRITE, local, b, READ, other, target)
BOTH(write_then_write_of_two_pairs, a, WRITE, local, b, WRITE, other, target)

static void write_polled_then_write(void)
{
    a_writes();
    b_writes();
}

static void write_polled_then_read(void)
{
    a_writes();
    b_reads();
}

static void read_polled_then_write_of_one_pair(void)
{
    a_reads();
    post(&a, WRITE, now->other, now->target, 1);
    take(a.cq, 1);
}

/* --- what tells the target that an origin has done --- */
static void receive(struct origin *from)
{
    struct ibv_recv_wr wr = { 0 }, *bad;

    CHECK(!ibv_post_recv(from->target, &wr, &bad));
}

static void tell(struct origin *by)
{
    struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

    CHECK(!ibv_post_send(by->qp, &wr, &bad));
}

static void a_writes_and_tells(void)
{
    a_writes();
    tell(&a);
    take(a.cq, 1);
}

static void a_tells_behind_its_write(void)
{
    post(&a, WRITE, now->local, now->target, 1);
    tell(&a);
    take(a.cq, 2);
}

static void a_writes_and_b_tells(void)
{
    post(&a, WRITE, now->local, now->target, 1);
    tell(&b);
    take(b.cq, 1);
    take(a.cq, 1);
}

static void a_tells_then_writes(void)
{
    tell(&a);
    take(a.cq, 1);
    a_writes();
}

static void a_writes_with_notice(void)
{
    post(&a, WRITE_IMM, now->local, now->target, 1);
    take(a.cq, 1);
}

static void b_tells(void)
{
    tell(&b);
    take(b.cq, 1);
}

#define HEAR(name, from, before, then)                                                             \
    static void name(void)                                                                         \
    {                                                                                              \
        before;                                                                                    \
        take(from.target_cq, 1);                                                                   \
        then;                                                                                      \
    }
HEAR(hears_a_then_loads, a, (void)0, load(now->target))
HEAR(loads_then_hears_a, a, load(now->target), (void)0)
HEAR(hears_a_then_stores, a, (void)0, store(now->target))
HEAR(stores_then_hears_a, a, store(now->target), (void)0)
HEAR(hears_b_then_loads, b, (void)0, load(now->target))
HEAR(hears_a, a, (void)0, (void)0)
HEAR(hears_a_then_b_writes, a, (void)0, b_writes())

/* --- threads that meet --- */
static pthread_barrier_t meeting;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *second_thread(void *then)
{
    pthread_barrier_wait(&meeting);
    ((void (*)(void))then)();
    return NULL;
}

/* The second thread goes on after both have met. What the first does around that is a parameter. */
static void meet(void (*before)(void), void (*second)(void), void (*behind)(void))
{
    pthread_t thread;

    CHECK(!pthread_barrier_init(&meeting, NULL, 2));
    CHECK(!pthread_create(&thread, NULL, second_thread, (void *)second));
    before();
    pthread_barrier_wait(&meeting);
    behind();
    CHECK(!pthread_join(thread, NULL));
    CHECK(!pthread_barrier_destroy(&meeting));
}

static void nothing(void) {}
static void a_posts_write(void) { post(&a, WRITE, now->local, now->target, 1); }
static void a_posts_read(void) { post(&a, READ, now->local, now->target, 1); }
static void a_is_polled(void) { take(a.cq, 1); }

#define LOCKED(name, what)                                                                         \
    static void name(void)                                                                         \
    {                                                                                              \
        pthread_mutex_lock(&mutex);                                                                \
        what();                                                                                    \
        pthread_mutex_unlock(&mutex);                                                              \
    }
LOCKED(a_writes_locked, a_writes)
LOCKED(b_reads_locked, b_reads)
LOCKED(b_writes_locked, b_writes)
LOCKED(target_loads_locked, target_loads)
LOCKED(a_posts_write_locked, a_posts_write)

/* A case: by itself, or of steps that are apart, in order, or meet. A told one has a receive posted before. */
enum how { ALONE, APART, IN_ORDER, MEET, TOLD_A, TOLD_B };
static const struct {
    const char *name;
    enum how how;
    void (*first)(void), (*second)(void), (*third)(void);
} cases[] = {
#define CASE(how, name, ...) { #name, how, __VA_ARGS__ }
#define SELF(name) { #name, ALONE, name, NULL, NULL }
    /* local words */
    SELF(write_then_load), SELF(write_then_store), SELF(read_then_load), SELF(read_then_store),
    SELF(add_then_load), SELF(add_then_store), SELF(swap_then_load), SELF(swap_then_store),
    SELF(write_list_then_load), SELF(write_list_then_store), SELF(read_list_then_load),
    SELF(read_list_then_store), SELF(read_then_memcpy), SELF(write_then_memcpy),
    SELF(read_then_deep_load), SELF(write_then_deep_load), SELF(read_polled_load),
    SELF(write_polled_store), SELF(other_polled), SELF(write_and_write_from_one_buffer),
    SELF(read_and_write_of_one_buffer), SELF(read_and_read_into_one_buffer),
    CASE(APART, read_in_a_thread_load_in_another, a_reads, local_loads, NULL),
    CASE(IN_ORDER, read_in_a_thread_load_after_it, a_reads, local_loads, NULL),
    CASE(MEET, read_polled_then_met, a_reads, local_loads, nothing),
    CASE(MEET, read_met_then_polled, a_posts_read, local_loads, a_is_polled),
    /* words of the target */
    CASE(APART, read_load, a_reads, target_loads, NULL),
    CASE(APART, read_read, a_reads, b_reads, NULL),
    CASE(APART, read_store, a_reads, target_stores, NULL),
    CASE(APART, store_read, target_stores, a_reads, NULL),
    CASE(APART, read_write, a_reads, b_writes, NULL),
    CASE(APART, read_add, a_reads, b_adds, NULL),
    CASE(APART, write_load, a_writes, target_loads, NULL),
    CASE(APART, load_write, target_loads, a_writes, NULL),
    CASE(APART, write_store, a_writes, target_stores, NULL),
    CASE(APART, write_write, a_writes, b_writes, NULL),
    CASE(APART, write_add, a_writes, b_adds, NULL),
    CASE(APART, add_write, a_adds, b_writes, NULL),
    CASE(APART, add_load, a_adds, target_loads, NULL),
    CASE(APART, add_atomic_load, a_adds, target_loads_atomically, NULL),
    CASE(APART, add_store, a_adds, target_stores, NULL),
    CASE(APART, add_add, a_adds, b_adds, NULL),
    CASE(APART, add_beside_add, a_adds_beside, b_adds, NULL),
    CASE(APART, swap_store, a_swaps, target_stores, NULL),
    CASE(APART, swap_swap, a_swaps, b_swaps, NULL),
    CASE(APART, swap_add, a_swaps, b_adds, NULL),
    CASE(APART, write_list_load, a_writes_list, target_loads, NULL),
    CASE(APART, write_list_write, a_writes_list, b_writes, NULL),
    CASE(APART, read_list_load, a_reads_list, target_loads, NULL),
    CASE(APART, read_list_write, a_reads_list, b_writes, NULL),
    CASE(APART, read_store_deep, a_reads, target_stores_deep, NULL),
    CASE(APART, read_load_deep, a_reads, target_loads_deep, NULL),
    SELF(write_then_read_of_one_pair), SELF(write_then_write_of_one_pair),
    SELF(add_then_add_of_one_pair), SELF(read_then_write_of_one_pair),
    SELF(write_then_read_of_two_pairs), SELF(write_then_write_of_two_pairs),
    SELF(write_polled_then_write), SELF(write_polled_then_read),
    SELF(read_polled_then_write_of_one_pair),
    /* what orders them */
    CASE(IN_ORDER, write_load_in_order, a_writes, target_loads, NULL),
    CASE(IN_ORDER, write_write_in_order, a_writes, b_writes, NULL),
    CASE(IN_ORDER, write_read_in_order, a_writes, b_reads, NULL),
    CASE(IN_ORDER, read_store_in_order, a_reads, target_stores, NULL),
    CASE(MEET, write_polled_then_met, a_writes, target_loads, nothing),
    CASE(MEET, write_met_then_polled, a_posts_write, target_loads, a_is_polled),
    CASE(MEET, read_polled_then_met_store, a_reads, target_stores, nothing),
    CASE(MEET, read_met_then_polled_store, a_posts_read, target_stores, a_is_polled),
    CASE(MEET, met_then_write, nothing, target_loads, a_writes),
    CASE(APART, write_load_locked, a_writes_locked, target_loads_locked, NULL),
    CASE(APART, write_write_locked, a_writes_locked, b_writes_locked, NULL),
    CASE(APART, write_read_locked, a_writes_locked, b_reads_locked, NULL),
    CASE(APART, write_locked_write_not, a_writes_locked, b_writes, NULL),
    CASE(APART, write_locked_load_not, a_writes_locked, target_loads, NULL),
    CASE(APART, write_locked_polled_later, a_posts_write_locked, target_loads_locked, a_is_polled),
    CASE(TOLD_A, told_then_load, a_writes_and_tells, hears_a_then_loads, NULL),
    CASE(TOLD_A, load_before_told, a_writes_and_tells, loads_then_hears_a, NULL),
    CASE(TOLD_A, told_behind_the_write, a_tells_behind_its_write, hears_a_then_loads, NULL),
    CASE(TOLD_A, told_before_the_write, a_tells_then_writes, hears_a_then_loads, NULL),
    CASE(TOLD_A, told_then_store, a_writes_and_tells, hears_a_then_stores, NULL),
    CASE(TOLD_A, store_before_told, a_writes_and_tells, stores_then_hears_a, NULL),
    CASE(TOLD_A, told_then_another_writes, a_writes_and_tells, hears_a_then_b_writes, NULL),
    CASE(TOLD_A, notice_then_load, a_writes_with_notice, hears_a_then_loads, NULL),
    CASE(TOLD_A, load_before_notice, a_writes_with_notice, loads_then_hears_a, NULL),
    CASE(TOLD_A, notice_then_store, a_writes_with_notice, hears_a_then_stores, NULL),
    CASE(TOLD_A, store_before_notice, a_writes_with_notice, stores_then_hears_a, NULL),
    CASE(TOLD_A, told_in_a_thread_load_in_another, a_writes_and_tells, hears_a, target_loads),
    CASE(TOLD_B, told_by_another_pair, a_writes_and_b_tells, hears_b_then_loads, NULL),
    CASE(TOLD_B, told_by_another_thread, a_writes, b_tells, hears_b_then_loads),
};

int main(void)
{
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, now++) {
        CHECK(now < all + sizeof all / sizeof *all);
        if (cases[i].how == TOLD_A)
            receive(&a);
        if (cases[i].how == TOLD_B)
            receive(&b);
        fprintf(stderr, "case %s\n", cases[i].name);
        switch (cases[i].how) {
        case ALONE:
            cases[i].first();
            break;
        case IN_ORDER:
            in_order(cases[i].first, cases[i].second);
            break;
        case MEET:
            meet(cases[i].first, cases[i].second, cases[i].third);
            break;
        default:
            apart(cases[i].first, cases[i].second, cases[i].third);
        }
    }
    fputs("case end\n", stderr);
    return 0;
}
