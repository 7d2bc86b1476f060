/*
 * Extended verbs as a C program uses them, through the inlines of <infiniband/verbs.h>: what the
 * device tells of itself, an extended completion queue, and the verbs that this device does not
 * have. Prints one line for each behaviour; the first that is not as it should be ends the program.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* A verb that answers a pointer says by errno why there is none. */
#define UNSUPPORTED(what)                                                                          \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((what) == NULL);                                                                     \
        CHECK(errno == EOPNOTSUPP);                                                                \
    } while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;

static void the_device_tells_of_itself(void)
{
    struct ibv_device_attr plain;
    struct ibv_device_attr_ex full;
    struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

    CHECK(!ibv_query_device(context, &plain));
    memset(&full, 0xa5, sizeof(full));
    CHECK(!ibv_query_device_ex(context, NULL, &full));
    CHECK(full.orig_attr.max_srq == plain.max_srq && plain.max_srq > 0 && plain.max_ah > 0);
    CHECK(full.odp_caps.general_caps & IBV_ODP_SUPPORT);
    CHECK(full.completion_timestamp_mask && full.hca_core_clock == 1000000);
    CHECK((full.device_cap_flags_ex & 0xffffffff) == plain.device_cap_flags);
    CHECK(full.cq_mod_caps.max_cq_count && full.cq_mod_caps.max_cq_period);
    CHECK(full.phys_port_cnt_ex == plain.phys_port_cnt);
    CHECK(!ibv_query_rt_values_ex(context, &values));
    CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && values.raw_clock.tv_nsec > 0);
    puts("ok - the device tells of itself");
}

/* A queue pair connected to itself, which completes into this queue. */
static struct ibv_qp *connected(struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
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
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
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

static void a_batch_is_read_field_by_field(void)
{
    struct ibv_cq_init_attr_ex attr = {
        .cqe = 16,
        .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    };
    struct ibv_modify_cq_attr moderation = {
        .attr_mask = IBV_CQ_ATTR_MODERATE,
        .moderate = { .cq_count = 8, .cq_period = 100 },
    };
    struct ibv_poll_cq_attr how = { 0 };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
    struct ibv_qp *qp;
    struct ibv_recv_wr receive = { .wr_id = 2 }, *bad_receive;
    struct ibv_send_wr send = { .wr_id = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 77 };
    struct ibv_send_wr *bad_send;
    uint64_t last = 0;
    int seen = 0, answer;

    CHECK(cq);
    CHECK(!ibv_modify_cq(ibv_cq_ex_to_cq(cq), &moderation));
    CHECK(ibv_start_poll(cq, &how) == ENOENT);
    qp = connected(ibv_cq_ex_to_cq(cq));
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive));
    CHECK(!ibv_post_send(qp, &send, &bad_send));
    while (seen < 2) {
        answer = ibv_start_poll(cq, &how);
        if (answer == ENOENT)
            continue;
        for (; !answer; answer = ibv_next_poll(cq)) {
            CHECK(cq->status == IBV_WC_SUCCESS);
            CHECK(ibv_wc_read_qp_num(cq) == qp->qp_num && ibv_wc_read_vendor_err(cq) == 0);
            CHECK(ibv_wc_read_completion_ts(cq) > last);
            last = ibv_wc_read_completion_ts(cq);
            if (cq->wr_id == 2) {
                CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == 0);
                CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
                CHECK(ibv_wc_read_imm_data(cq) == 77);
            } else {
                CHECK(cq->wr_id == 1 && ibv_wc_read_opcode(cq) == IBV_WC_SEND);
            }
            CHECK(ibv_wc_read_sl(cq) == 0 && ibv_wc_read_dlid_path_bits(cq) == 0);
            CHECK(ibv_wc_read_slid(cq) == 0 && ibv_wc_read_src_qp(cq) == 0);
            seen++;
        }
        CHECK(answer == ENOENT);
        ibv_end_poll(cq);
    }
    CHECK(!ibv_destroy_qp(qp));
    CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
    puts("ok - a batch is read field by field");
}

static void what_is_not_there_is_unsupported(void)
{
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_qp *qp = connected(cq);
    struct ibv_counters counters = { .context = context };
    struct ibv_counters_init_attr counters_attr = { 0 };
    struct ibv_counter_attach_attr attach = { 0 };
    struct ibv_flow flow = { .context = context };
    struct ibv_flow_attr flow_attr = { .size = sizeof(flow_attr), .port = 1 };
    struct ibv_flow_action action = { .context = context };
    struct ibv_flow_action_esp_attr esp = { 0 };
    struct ibv_wq wq = { .context = context };
    struct ibv_wq_init_attr wq_init = { .pd = pd, .cq = cq, .max_wr = 1, .max_sge = 1 };
    struct ibv_wq_attr wq_attr = { 0 };
    struct ibv_rwq_ind_table table = { .context = context };
    struct ibv_rwq_ind_table_init_attr table_init = { 0 };
    struct ibv_qp_rate_limit_attr rate = { 0 };
    uint64_t value;

    UNSUPPORTED(ibv_create_counters(context, &counters_attr));
    CHECK(ibv_attach_counters_point_flow(&counters, &attach, &flow) == EOPNOTSUPP);
    CHECK(ibv_read_counters(&counters, &value, 1, 0) == EOPNOTSUPP);
    CHECK(ibv_destroy_counters(&counters) == EOPNOTSUPP);
    puts("ok - there are no counters");
    UNSUPPORTED(ibv_create_flow(qp, &flow_attr));
    CHECK(ibv_destroy_flow(&flow) == EOPNOTSUPP);
    UNSUPPORTED(ibv_create_flow_action_esp(context, &esp));
    CHECK(ibv_modify_flow_action_esp(&action, &esp) == EOPNOTSUPP);
    CHECK(ibv_destroy_flow_action(&action) == EOPNOTSUPP);
    puts("ok - there is no flow steering");
    UNSUPPORTED(ibv_create_wq(context, &wq_init));
    CHECK(ibv_modify_wq(&wq, &wq_attr) == EOPNOTSUPP);
    CHECK(ibv_destroy_wq(&wq) == EOPNOTSUPP);
    UNSUPPORTED(ibv_create_rwq_ind_table(context, &table_init));
    CHECK(ibv_destroy_rwq_ind_table(&table) == EOPNOTSUPP);
    puts("ok - there are no receive work queues to spread over");
    rate.rate_limit = 1000;
    CHECK(ibv_modify_qp_rate_limit(qp, &rate) == EOPNOTSUPP);
    puts("ok - no rate is kept");
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    CHECK(pd);
    the_device_tells_of_itself();
    a_batch_is_read_field_by_field();
    what_is_not_there_is_unsupported();
    CHECK(!ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
    return 0;
}
