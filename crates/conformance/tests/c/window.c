/*
 * Memory windows as a C program uses them, through <infiniband/verbs.h> alone: the target grants and
 * revokes, the origin, another process, tries what it can. Prints one line for each behaviour; the
 * first that is not as it should be ends the program.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define LENGTH 4096
#define PSN 1234
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* What the target asks of the origin, and how it went. */
enum { RECONNECT, QUIT, USE };
struct ask {
    int what;
    enum ibv_wr_opcode opcode;
    uint64_t addr;
    uint32_t key;
    uint32_t length;
};
struct answer {
    enum ibv_wc_status status;
    uint64_t word;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static union ibv_gid gid;
static uint32_t peer;
static int channel;
static uint64_t memory[LENGTH / 8] __attribute__((aligned(4096)));

static void tell(const void *what, size_t length)
{
    CHECK(write(channel, what, length) == (ssize_t)length);
}

static void hear(void *what, size_t length)
{
    CHECK(recv(channel, what, length, MSG_WAITALL) == (ssize_t)length);
}

static void ok(const char *behaviour)
{
    printf("ok - %s\n", behaviour);
    fflush(stdout);
}

/* Moves the queue pair from RESET to RTS. */
static void connect_qp(void)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE,
    };
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .rq_psn = PSN,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
    };
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .sq_psn = PSN,
        .timeout = 14,
        .retry_cnt = 3,
        .rnr_retry = 7,
        .max_rd_atomic = 4,
    };
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void reset_qp(void)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

static enum ibv_qp_state qp_state(void)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return attr.qp_state;
}

/* Opens the device and connects with the other process. */
static void set_up(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count >= 1);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    CHECK(pd && cq);
    mr = ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    CHECK(mr);
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
        .qp_type = IBV_QPT_RC,
    };
    qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    CHECK(!ibv_query_gid(context, 1, 0, &gid));
    tell(&qp->qp_num, sizeof qp->qp_num);
    hear(&peer, sizeof peer);
    connect_qp();
    char ready = 0;
    tell(&ready, 1);
    hear(&ready, 1);
}

static void tear_down(void)
{
    CHECK(!ibv_destroy_qp(qp));
    CHECK(!ibv_dereg_mr(mr));
    CHECK(!ibv_destroy_cq(cq));
    CHECK(!ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
}

/* The next completion. After 20 s none is expected any more. */
static struct ibv_wc completion(void)
{
    struct ibv_wc wc;
    time_t start = time(NULL);
    for (;;) {
        int found = ibv_poll_cq(cq, 1, &wc);
        CHECK(found >= 0);
        if (found)
            return wc;
        CHECK(time(NULL) - start < 20);
    }
}

static void post(struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    CHECK(!ibv_post_send(qp, wr, &bad));
}

/* The origin: does what it is asked, and says how it went. */
static int origin(void)
{
    set_up();
    for (;;) {
        struct ask ask;
        struct answer answer = { .status = IBV_WC_SUCCESS };
        hear(&ask, sizeof ask);
        if (ask.what == QUIT)
            break;
        if (ask.what == RECONNECT) {
            reset_qp();
            connect_qp();
        } else {
            struct ibv_sge sge = {
                .addr = (uintptr_t)memory, .length = ask.length, .lkey = mr->lkey,
            };
            struct ibv_send_wr wr = {
                .sg_list = &sge, .num_sge = 1, .opcode = ask.opcode, .send_flags = IBV_SEND_SIGNALED,
            };
            if (ask.opcode == IBV_WR_SEND_WITH_INV) {
                wr.invalidate_rkey = ask.key;
            } else if (ask.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
                wr.wr.atomic.remote_addr = ask.addr;
                wr.wr.atomic.compare_add = 1;
                wr.wr.atomic.rkey = ask.key;
            } else {
                wr.wr.rdma.remote_addr = ask.addr;
                wr.wr.rdma.rkey = ask.key;
            }
            post(&wr);
            answer.status = completion().status;
            answer.word = memory[0];
        }
        tell(&answer, sizeof answer);
    }
    tear_down();
    return 0;
}

static struct answer ask_for(struct ask ask)
{
    struct answer answer;
    tell(&ask, sizeof ask);
    hear(&answer, sizeof answer);
    return answer;
}

/* The origin uses a key; what it finds in the first word of its memory afterwards. */
static uint64_t used(enum ibv_wr_opcode opcode, void *at, uint32_t length, uint32_t key)
{
    struct answer answer = ask_for((struct ask){ USE, opcode, (uintptr_t)at, key, length });
    CHECK(answer.status == IBV_WC_SUCCESS);
    return answer.word;
}

/* The origin is refused, nothing is changed, and the target is told; both connect again. */
static void refused(enum ibv_wr_opcode opcode, uint64_t at, uint32_t length, uint32_t key)
{
    static uint64_t before[LENGTH / 8];
    memcpy(before, memory, LENGTH);
    struct answer answer = ask_for((struct ask){ USE, opcode, at, key, length });
    CHECK(answer.status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!memcmp(before, memory, LENGTH));
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == qp);
    ibv_ack_async_event(&event);
    CHECK(qp_state() == IBV_QPS_ERR);
    reset_qp();
    connect_qp();
    CHECK(ask_for((struct ask){ .what = RECONNECT }).status == IBV_WC_SUCCESS);
}

static void expect(enum ibv_wc_status status, enum ibv_wc_opcode opcode, uint64_t wr_id)
{
    struct ibv_wc wc = completion();
    CHECK(wc.status == status && wc.wr_id == wr_id && wc.qp_num == qp->qp_num);
    CHECK(status != IBV_WC_SUCCESS || wc.opcode == opcode);
}

static void bind1(struct ibv_mw *mw, void *addr, uint64_t length, unsigned int access)
{
    struct ibv_mw_bind bind = {
        .wr_id = 7,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {
            .mr = length ? mr : NULL,
            .addr = (uintptr_t)addr,
            .length = length,
            .mw_access_flags = access,
        },
    };
    CHECK(!ibv_bind_mw(qp, mw, &bind));
    expect(IBV_WC_SUCCESS, IBV_WC_BIND_MW, 7);
}

/* Posts the bind of a type 2 window with the next key; the key. */
static uint32_t post_bind2(struct ibv_mw *mw, uint64_t addr, uint64_t length, unsigned int access)
{
    struct ibv_send_wr wr = {
        .wr_id = 8,
        .opcode = IBV_WR_BIND_MW,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_mw = {
            .mw = mw,
            .rkey = ibv_inc_rkey(mw->rkey),
            .bind_info = { mr, addr, length, access },
        },
    };
    post(&wr);
    return wr.bind_mw.rkey;
}

static uint32_t bind2(struct ibv_mw *mw, void *addr, uint64_t length, unsigned int access)
{
    uint32_t key = post_bind2(mw, (uintptr_t)addr, length, access);
    expect(IBV_WC_SUCCESS, IBV_WC_BIND_MW, 8);
    /* Binding by a work request leaves it to the program to note the key. */
    mw->rkey = key;
    return key;
}

static void post_invalidate(uint32_t key)
{
    struct ibv_send_wr wr = {
        .wr_id = 9,
        .opcode = IBV_WR_LOCAL_INV,
        .send_flags = IBV_SEND_SIGNALED,
        .invalidate_rkey = key,
    };
    post(&wr);
}

/* Rules: MWA-01, T1-24, T1-40, T1-45, T1-46, T1-50, T1-54, T1-59 */
static void type_1(void)
{
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mw && mw->context == context && mw->pd == pd && mw->type == IBV_MW_TYPE_1);
    ok("a window of type 1 is allocated");

    memory[8] = 88;
    bind1(mw, &memory[8], 64, REMOTE);
    uint32_t first = mw->rkey;
    CHECK(used(IBV_WR_RDMA_READ, &memory[8], 64, first) == 88);
    ok("a bound window can be read");
    used(IBV_WR_RDMA_WRITE, &memory[15], 8, first);
    CHECK(memory[15] == 88 && memory[16] == 0);
    ok("a bound window can be written to, up to its last byte");
    CHECK(used(IBV_WR_ATOMIC_FETCH_AND_ADD, &memory[8], 8, first) == 88 && memory[8] == 89);
    ok("a bound window can be counted in");
    refused(IBV_WR_RDMA_WRITE, (uintptr_t)&memory[15] + 1, 8, first);
    ok("a byte beyond the window is refused");
    refused(IBV_WR_RDMA_READ, (uintptr_t)&memory[8], 8, mr->rkey);
    ok("the region's own key does not have the window's rights");

    bind1(mw, &memory[100], 8, IBV_ACCESS_REMOTE_READ);
    CHECK(mw->rkey != first);
    used(IBV_WR_RDMA_READ, &memory[100], 8, mw->rkey);
    refused(IBV_WR_RDMA_READ, (uintptr_t)&memory[8], 8, first);
    ok("binding again moves the window and ends its old key");
    refused(IBV_WR_RDMA_WRITE, (uintptr_t)&memory[100], 8, mw->rkey);
    ok("a window for reading cannot be written to");

    uint32_t last = mw->rkey;
    bind1(mw, NULL, 0, 0);
    refused(IBV_WR_RDMA_READ, (uintptr_t)&memory[100], 8, last);
    ok("binding nothing unbinds");
    CHECK(!ibv_dealloc_mw(mw));
    ok("the window is freed");
}

/* Rules: T1-01, T1-02, T1-03, T1-14 */
static void type_1_refusals(void)
{
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *other = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_pd *stranger = ibv_alloc_pd(context);
    struct ibv_mr *theirs = ibv_reg_mr(stranger, memory, LENGTH, IBV_ACCESS_MW_BIND);
    CHECK(mw && other && stranger && theirs);
    struct ibv_mw_bind bind = {
        .bind_info = { mr, (uintptr_t)memory, 8, IBV_ACCESS_REMOTE_READ },
    };
    CHECK(ibv_bind_mw(qp, other, &bind) == EINVAL);
    ok("ibv_bind_mw is for windows of type 1");
    bind.bind_info.mr = NULL;
    CHECK(ibv_bind_mw(qp, mw, &bind) == EINVAL);
    ok("a range needs a region");
    bind.bind_info.mr = theirs;
    CHECK(ibv_bind_mw(qp, mw, &bind) == EPERM);
    ok("the region of another domain is refused");
    bind.bind_info.mr = mr;
    bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
    CHECK(ibv_bind_mw(qp, mw, &bind) == EINVAL);
    ok("a window has remote rights only");
    CHECK(qp_state() == IBV_QPS_RTS);
    CHECK(!ibv_dereg_mr(theirs) && !ibv_dealloc_pd(stranger));
    CHECK(!ibv_dealloc_mw(mw) && !ibv_dealloc_mw(other));
}

/* Rules: MWA-02, T2-10, T2-13, T2-16, INV-01, INV-04, INV-15, INV-18, DR-04, RA-41, RA-43, RA-44, RA-45 */
static void type_2(void)
{
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(mw && mw->type == IBV_MW_TYPE_2);
    memory[8] = 17;
    uint32_t key = bind2(mw, &memory[8], 64, REMOTE);
    CHECK(used(IBV_WR_RDMA_READ, &memory[8], 64, key) == 17);
    used(IBV_WR_RDMA_WRITE, &memory[9], 8, key);
    CHECK(memory[9] == 17);
    ok("a window of type 2 is bound by a work request and used");
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    ok("a region with a bound window stays");

    post_invalidate(key);
    expect(IBV_WC_SUCCESS, IBV_WC_LOCAL_INV, 9);
    refused(IBV_WR_RDMA_READ, (uintptr_t)&memory[8], 8, key);
    ok("an invalidated window grants nothing");

    uint32_t again = bind2(mw, &memory[8], 64, IBV_ACCESS_REMOTE_WRITE);
    CHECK(again != key);
    refused(IBV_WR_RDMA_READ, (uintptr_t)&memory[8], 8, key);
    ok("the old key stays dead when the window is bound again");
    refused(IBV_WR_RDMA_READ, (uintptr_t)&memory[8], 8, again);
    ok("a window for writing cannot be read");
    post_invalidate(again);
    expect(IBV_WC_SUCCESS, IBV_WC_LOCAL_INV, 9);

    post_invalidate(again);
    expect(IBV_WC_MW_BIND_ERR, IBV_WC_LOCAL_INV, 9);
    CHECK(qp_state() == IBV_QPS_ERR);
    reset_qp();
    connect_qp();
    CHECK(ask_for((struct ask){ .what = RECONNECT }).status == IBV_WC_SUCCESS);
    ok("invalidating what is free is an error");

    post_bind2(mw, (uintptr_t)memory - 1, 8, IBV_ACCESS_REMOTE_READ);
    expect(IBV_WC_MW_BIND_ERR, IBV_WC_BIND_MW, 8);
    CHECK(qp_state() == IBV_QPS_ERR);
    reset_qp();
    connect_qp();
    CHECK(ask_for((struct ask){ .what = RECONNECT }).status == IBV_WC_SUCCESS);
    ok("binding a range outside the region is an error");
    CHECK(!ibv_dealloc_mw(mw));
}

/* Rules: INV-30, INV-31, INV-32, INV-33 */
static void send_with_invalidate(void)
{
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(mw);
    for (uint32_t length = 0; length <= 16; length += 16) {
        uint32_t key = bind2(mw, memory, 64, REMOTE);
        struct ibv_sge sge = { (uintptr_t)&memory[64], 64, mr->lkey };
        struct ibv_recv_wr wr = { .wr_id = 10, .sg_list = &sge, .num_sge = 1 }, *bad;
        CHECK(!ibv_post_recv(qp, &wr, &bad));
        used(IBV_WR_SEND_WITH_INV, NULL, length, key);
        struct ibv_wc wc = completion();
        CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 10);
        CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == key);
        CHECK(wc.byte_len == length);
        refused(IBV_WR_RDMA_READ, (uintptr_t)memory, 8, key);
        ok(length ? "a SEND with data ends the window it names" : "an empty SEND does as well");
    }
    CHECK(!ibv_dealloc_mw(mw));
}

/* The target: grants, revokes, and looks what comes of it. */
static int target(pid_t child)
{
    set_up();
    type_1();
    type_1_refusals();
    type_2();
    send_with_invalidate();
    struct ask quit = { .what = QUIT };
    tell(&quit, sizeof quit);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    tear_down();
    ok("both processes give back all they had");
    return 0;
}

int main(void)
{
    int pair[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t child = fork();
    CHECK(child >= 0);
    channel = pair[child == 0];
    close(pair[child != 0]);
    return child ? target(child) : origin();
}
