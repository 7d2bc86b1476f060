/*
 * A message to itself by a program that may have rights which its user does not have: what the
 * environment says of the device counts for the others only. Prints whether it has such rights.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "check.h"

static char memory[64];

/* A queue pair connected to itself, which completes into this queue. */
static struct ibv_qp *connected(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);

    CHECK(qp);
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                        IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    CHECK(!ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                        IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                        IBV_QP_MAX_QP_RD_ATOMIC));
    return qp;
}

int main(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(devices[0]);
    struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = sizeof(memory) };
    struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
    struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;
    struct ibv_wc wc;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    int completed = 0;

    CHECK(context && (pd = ibv_alloc_pd(context)));
    CHECK((cq = ibv_create_cq(context, 2, NULL, NULL, 0)));
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
    qp = connected(pd, cq);
    sge.lkey = mr->lkey;
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
    CHECK(!ibv_post_send(qp, &send, &bad_send));
    while (completed < 2) {
        int found = ibv_poll_cq(cq, 1, &wc);

        CHECK(found >= 0 && (!found || wc.status == IBV_WC_SUCCESS));
        completed += found;
    }
    CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts(getauxval(AT_SECURE) ? "with rights of its own" : "with its user's rights");
    return 0;
}
