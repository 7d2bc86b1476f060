/*
 * A client asks a server to take data from its buffer, gives up, and uses the buffer for another request. The server's
 * READ comes late. With a region for all requests it takes the data of the other request, and nobody notices. With a
 * window for each request it is refused. The first argument says which: regions or windows.
 */
#include <infiniband/verbs.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { SLOT = 64, TIMEOUT = 100 };

/* A request: where the server finds its data. */
struct request {
    uint64_t address;
    uint32_t key;
};

/* Each end of the connection. The socket is for what is said beside RDMA. */
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static int socket_to_peer;
static char pool[4096];

static void tell(const void *what, size_t length)
{
    CHECK(write(socket_to_peer, what, length) == (ssize_t)length);
}

static void hear(void *what, size_t length)
{
    CHECK(recv(socket_to_peer, what, length, MSG_WAITALL) == (ssize_t)length);
}

static void connect_to_peer(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    CHECK(devices && devices[0] && (context = ibv_open_device(devices[0])));
    ibv_free_device_list(devices);
    CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                     .cap = { 8, 8, 1, 1, 0 }, .sq_sig_all = 1 };
    CHECK(qp = ibv_create_qp(pd, &init));

    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024,
                                .qp_access_flags = IBV_ACCESS_REMOTE_READ,
                                .max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 12,
                                .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                                .ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 } };
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    tell(&qp->qp_num, sizeof qp->qp_num);
    hear(&attr.dest_qp_num, sizeof attr.dest_qp_num);
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    char ready = 0;
    tell(&ready, 1);
    hear(&ready, 1);
}

static enum ibv_wc_status post(struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    CHECK(!ibv_post_send(qp, wr, &bad));
    while (!ibv_poll_cq(cq, 1, &wc))
        ;
    return wc.status;
}

/* Waits so many milliseconds for the server's answer, or without end if it is -1. Zero if none comes. */
static int is_answered(int milliseconds)
{
    struct pollfd answer = { .fd = socket_to_peer, .events = POLLIN };

    return poll(&answer, 1, milliseconds);
}

static void ask(const struct request *request)
{
    tell(request, sizeof *request);
}

/* Lets the server, which was held up, go on. */
static void wake(void)
{
    const char late = 0;

    tell(&late, 1);
}

/* One region with rights for peers, for the whole life of the pool. */
static void client_with_regions(void)
{
    struct ibv_mr *mr;

    CHECK(mr = ibv_reg_mr(pd, pool, sizeof pool, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
    const struct request request = { (uintptr_t)pool, mr->rkey };

    strcpy(pool, "the data of request 1");
    ask(&request);
    CHECK(!is_answered(TIMEOUT));
    /* The request has timed out: its slot is used for the next one. */
    strcpy(pool, "the data of request 2");
    wake();
    CHECK(is_answered(-1));
    CHECK(!ibv_dereg_mr(mr));
}

/* A window for each request. The region itself has no rights for peers. */
static void client_with_windows(void)
{
    struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW }, end = { .opcode = IBV_WR_LOCAL_INV };
    struct ibv_mr *mr;
    struct ibv_mw *mw;

    CHECK(mr = ibv_reg_mr(pd, pool, sizeof pool, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
    CHECK(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
    bind.bind_mw.mw = mw;
    bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    bind.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)pool, SLOT, IBV_ACCESS_REMOTE_READ };
    CHECK(post(&bind) == IBV_WC_SUCCESS);
    const struct request request = { (uintptr_t)pool, bind.bind_mw.rkey };

    strcpy(pool, "the data of request 1");
    ask(&request);
    CHECK(!is_answered(TIMEOUT));
    /* The request has timed out. Its key is taken back before its slot is used for the next one. */
    end.invalidate_rkey = request.key;
    CHECK(post(&end) == IBV_WC_SUCCESS);
    strcpy(pool, "the data of request 2");
    wake();
    CHECK(is_answered(-1));
    CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
}

/* Serves one request, late. */
static void server(void)
{
    struct request request;
    struct ibv_mr *mr;
    char late;

    CHECK(mr = ibv_reg_mr(pd, pool, sizeof pool, IBV_ACCESS_LOCAL_WRITE));
    hear(&request, sizeof request);
    hear(&late, 1);
    struct ibv_sge to = { (uintptr_t)pool, SLOT, mr->lkey };
    struct ibv_send_wr read = { .opcode = IBV_WR_RDMA_READ, .sg_list = &to, .num_sge = 1,
                                .wr.rdma = { request.address, request.key } };
    const enum ibv_wc_status status = post(&read);
    if (status == IBV_WC_SUCCESS)
        printf("request 1 was served with %s\n", pool);
    else
        printf("request 1 was not served: %s\n", ibv_wc_status_str(status));
    fflush(stdout);
    tell(&late, 1);
    CHECK(!ibv_dereg_mr(mr));
}

static void disconnect(void)
{
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

int main(int arguments, char **words)
{
    int ends[2], status;

    CHECK(arguments == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    const pid_t child = fork();
    socket_to_peer = ends[child == 0];
    connect_to_peer();
    if (child == 0)
        server();
    else if (!strcmp(words[1], "windows"))
        client_with_windows();
    else
        client_with_regions();
    disconnect();
    if (child == 0)
        return 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}
