/*
 * Programs that wait for ever, each for another reason: what a beginner's programs do. They end by a signal.
 *
 *   unsignaled  polls for a WRITE that is not signaled
 *   no-receive  its peer has posted no receive, and rnr_retry is 7
 *   other-queue polls the queue that has no completion
 *   no-channel  sleeps at a channel that no completion queue has
 *   not-ready   its peer is in INIT, and timeout is 0
 *   moves       does not wait: each of its WRITEs completes
 *   ignores     its WRITE is refused, by a key that was changed, and it does not look. It succeeds
 *   headless    its receive has no room for the header before a datagram, which is dropped. It succeeds
 */
#include <infiniband/verbs.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static const char *why;

static int is(const char *it)
{
    return strcmp(why, it) == 0;
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer, union ibv_gid gid)
{
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
    };
    struct ibv_qp_attr sends = {
        .qp_state = IBV_QPS_RTS, .timeout = is("not-ready") ? 0 : 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
    };

    CHECK(!ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    CHECK(!ibv_modify_qp(qp, &sends, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Sends a datagram to itself. */
static int send_datagram(struct ibv_pd *pd, struct ibv_qp_init_attr init, struct ibv_mr *mr)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
    struct ibv_sge part = {.addr = (uintptr_t)mr->addr, .length = 64, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &part, .num_sge = 1}, *bad_receive;

    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && !ibv_query_gid(pd->context, 1, 0, &path.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE) && !ibv_post_recv(qp, &receive, &bad_receive));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));

    struct ibv_send_wr send = {
        .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &part, .num_sge = 1,
        .wr.ud = {.ah = ibv_create_ah(pd, &path), .remote_qpn = qp->qp_num, .remote_qkey = 1},
    }, *bad;
    struct ibv_wc done;

    CHECK(send.wr.ud.ah && !ibv_post_send(qp, &send, &bad));
    while (ibv_poll_cq(init.send_cq, 1, &done) == 0)
        continue;
    return done.status;
}

int main(int count, char **words)
{
    static char memory[4096];

    why = count > 1 ? words[1] : "";
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *sends = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_cq *receives = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(pd && channel && sends && receives && mr);
    struct ibv_qp_init_attr init = {
        .send_cq = sends, .recv_cq = receives, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
    };
    if (is("headless"))
        return send_datagram(pd, init, mr);
    struct ibv_qp *qp = ibv_create_qp(pd, &init), *peer = ibv_create_qp(pd, &init);
    CHECK(qp && peer);
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, 0, &gid));
    struct ibv_qp_attr begins = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    CHECK(!ibv_modify_qp(qp, &begins, mask) && !ibv_modify_qp(peer, &begins, mask));
    connect_to(qp, peer, gid);
    if (!is("not-ready"))
        connect_to(peer, qp, gid);

    struct ibv_sge part = {.addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr work = {
        .wr_id = 7, .sg_list = &part, .num_sge = 1,
        .opcode = is("no-receive") ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
        .send_flags = is("unsignaled") ? 0 : IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)memory + 2048, .rkey = is("ignores") ? mr->rkey ^ 1 : mr->rkey},
    }, *bad;
    struct ibv_wc done;
    struct ibv_cq *of;
    void *its;

    CHECK(!ibv_post_send(qp, &work, &bad));
    printf("%d waits\n", (int)getpid());
    fflush(stdout);
    if (is("no-channel")) {
        CHECK(!ibv_req_notify_cq(sends, 0));
        ibv_get_cq_event(channel, &of, &its);
    }
    while (is("ignores"))
        if (ibv_poll_cq(sends, 1, &done) > 0)
            return 0;
    for (;;) {
        if (ibv_poll_cq(is("other-queue") ? receives : sends, 1, &done) > 0)
            CHECK(!ibv_post_send(qp, &work, &bad));
    }
}
