/*
 * Two connected programs whose first threads end, while another thread goes on. Then the PID names a thread that has no
 * memory, no files and no directory. The argument says when they end: "first", before the device is opened, "opened",
 * or "connected", when each has written to the other.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { LENGTH = 1 << 16 };

/* What one end tells the other of itself. */
struct end {
    uint32_t qp;
    uint32_t key;
    uint64_t address;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static int socket_to_peer;
static const char *ends_when;
static sem_t may_end;
/* Private memory: a word for atomics, what is sent, what comes by SEND, and what the peer writes. */
static _Alignas(8) uint64_t word;
static char from[LENGTH], received[LENGTH], written[LENGTH];

static void tell(const void *what, size_t length)
{
    CHECK(write(socket_to_peer, what, length) == (ssize_t)length);
}

static void hear(void *what, size_t length)
{
    CHECK(recv(socket_to_peer, what, length, MSG_WAITALL) == (ssize_t)length);
}

/* Until the peer has come as far. */
static void meet(void)
{
    char here = 0;

    tell(&here, 1);
    hear(&here, 1);
}

static void open_device(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);

    CHECK(devices && devices[0] && (context = ibv_open_device(devices[0])));
    ibv_free_device_list(devices);
    CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
}

static struct ibv_mr *registered(void *memory, size_t length)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, length,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);

    CHECK(mr);
    return mr;
}

static void connect_to(uint32_t number)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024,
                                .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                                   IBV_ACCESS_REMOTE_ATOMIC,
                                .max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 12,
                                .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .dest_qp_num = number,
                                .ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 } };

    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* The next completion, which is a success. */
static void completes(void)
{
    struct ibv_wc wc;
    int found;

    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        ;
    CHECK(found == 1);
    if (wc.status != IBV_WC_SUCCESS)
        fprintf(stderr, "%s of opcode %d\n", ibv_wc_status_str(wc.status), wc.opcode);
    CHECK(wc.status == IBV_WC_SUCCESS);
}

static void post(enum ibv_wr_opcode opcode, void *memory, uint32_t length, uint32_t lkey, const struct end *peer,
                 uint64_t offset)
{
    struct ibv_sge sge = { (uintptr_t)memory, length, lkey };
    struct ibv_send_wr wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1 }, *bad;

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = peer->address + offset;
        wr.wr.atomic.rkey = peer->key;
        wr.wr.atomic.compare_add = 5;
    } else {
        wr.wr.rdma.remote_addr = peer->address + offset;
        wr.wr.rdma.rkey = peer->key;
    }
    CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* The kernel shows a thread that has ended, and waits for the others, as a zombie. */
static void first_thread_ends(void)
{
    char name[64], text[512] = "", *state;

    CHECK(!sem_post(&may_end));
    snprintf(name, sizeof name, "/proc/%d/task/%d/stat", getpid(), getpid());
    do {
        FILE *file = fopen(name, "r");

        CHECK(file && fgets(text, sizeof text, file));
        fclose(file);
        CHECK(state = strrchr(text, ')'));
    } while (state[2] != 'Z');
}

/* It is time for it, if the argument says so. */
static void first_thread_may_end(const char *now)
{
    if (!strcmp(ends_when, now))
        first_thread_ends();
}

/* What both ends do: each reaches the other's memory in every way. */
static void exchange(void)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                     .cap = { 8, 8, 1, 1, 0 }, .sq_sig_all = 1 };
    struct ibv_mr *source = registered(from, LENGTH), *place = registered(received, LENGTH);
    struct ibv_mr *target = registered(written, LENGTH), *counter = registered(&word, sizeof word);
    struct ibv_sge sge = { (uintptr_t)received, LENGTH, place->lkey };
    struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;
    struct end peer[2];
    uint64_t old = 0;

    CHECK(qp = ibv_create_qp(pd, &init));
    const struct end own[2] = { { qp->qp_num, target->rkey, (uintptr_t)written },
                                { qp->qp_num, counter->rkey, (uintptr_t)&word } };
    tell(own, sizeof own);
    hear(peer, sizeof peer);
    connect_to(peer[0].qp);
    CHECK(!ibv_post_recv(qp, &receive, &bad));
    memset(from, 'a', LENGTH);
    meet();

    post(IBV_WR_RDMA_WRITE, from, 64, source->lkey, &peer[0], 0);
    completes();
    meet();
    first_thread_may_end("connected");
    meet();
    post(IBV_WR_RDMA_WRITE, from, LENGTH - 64, source->lkey, &peer[0], 64);
    completes();
    meet();
    CHECK(!memcmp(written, from, LENGTH));

    memset(from, 'b', LENGTH);
    post(IBV_WR_RDMA_READ, from, LENGTH, source->lkey, &peer[0], 0);
    completes();
    CHECK(from[0] == 'a' && from[LENGTH - 1] == 'a');

    struct ibv_mr *result = registered(&old, sizeof old);
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, &old, sizeof old, result->lkey, &peer[1], 0);
    completes();
    meet();
    CHECK(old == 0 && word == 5);

    /* Its own completion, and that of its receive. */
    post(IBV_WR_SEND, from, LENGTH, source->lkey, &peer[0], 0);
    completes();
    completes();
    CHECK(!memcmp(received, from, LENGTH));
    meet();
    CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(source) && !ibv_dereg_mr(place) && !ibv_dereg_mr(target));
    CHECK(!ibv_dereg_mr(counter) && !ibv_dereg_mr(result));
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

static void *goes_on(void *child)
{
    int status = 0;

    first_thread_may_end("first");
    open_device();
    first_thread_may_end("opened");
    exchange();
    if (child)
        CHECK(waitpid(*(pid_t *)child, &status, 0) == *(pid_t *)child);
    if (child && !status) {
        puts("ok - memory is reached without the first thread");
        fflush(stdout);
    }
    exit(status != 0);
}

int main(int arguments, char **words)
{
    static pid_t child;
    pthread_t thread;
    int ends[2];

    CHECK(arguments == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    ends_when = words[1];
    CHECK(!sem_init(&may_end, 0, 0));
    child = fork();
    CHECK(child >= 0);
    socket_to_peer = ends[child == 0];
    CHECK(!pthread_create(&thread, NULL, goes_on, child ? &child : NULL));
    CHECK(!sem_wait(&may_end));
    pthread_exit(NULL);
}
