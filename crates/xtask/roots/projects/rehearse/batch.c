/* A test that passes. With WRONG in the environment it relies on luck: it expects that one poll returns the
 * completions of both requests. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>

/* Whether the queue pair now sends to itself. */
static int leads_to_itself(struct ibv_qp *qp, struct ibv_context *context)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        return 0;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
                                .ah_attr = {.is_global = 1, .port_num = 1}};
    if (ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) ||
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        return 0;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    return !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Sends a message to itself. Whether that succeeds. */
static int sends(struct ibv_qp *qp, struct ibv_cq *cq)
{
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
    struct ibv_wc wc[2];
    int count = 0, failed = 0;
    if (ibv_post_recv(qp, &receive, &bad_receive) || ibv_post_send(qp, &send, &bad_send))
        return 0;
    while (count < 2 && !failed) {
        const int more = ibv_poll_cq(cq, 2 - count, wc);
        if (getenv("WRONG") && more == 1)
            exit(1);
        failed = more < 0;
        for (int i = 0; i < more; i++)
            failed |= wc[i].status != IBV_WC_SUCCESS;
        count += more;
    }
    return !failed;
}

int main(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    struct ibv_cq *cq = pd ? ibv_create_cq(context, 4, NULL, NULL, 0) : NULL;
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = cq ? ibv_create_qp(pd, &init) : NULL;
    const int done = qp && leads_to_itself(qp, context) && sends(qp, cq);
    /* What was not made cannot be ended. */
    if (qp)
        ibv_destroy_qp(qp);
    if (cq)
        ibv_destroy_cq(cq);
    if (pd)
        ibv_dealloc_pd(pd);
    if (context)
        ibv_close_device(context);
    ibv_free_device_list(devices);
    return !done;
}
