/* What a project's test may be: a queue pair writes into the memory of another. It takes the device whose
 * name it is given, and no other. With WRONG in the environment it uses a key that is not the region's. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                             \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

static struct ibv_context *open_device(const char *name)
{
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    REQUIRE(devices);
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(devices[i]), name))
            return ibv_open_device(devices[i]);
    fprintf(stderr, "there is no device %s\n", name);
    exit(1);
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    return ibv_create_qp(pd, &attributes);
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer, const union ibv_gid *gid)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    REQUIRE(!ibv_modify_qp(qp, &attributes,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qp_num,
        .ah_attr = {.is_global = 1, .grh = {.dgid = *gid, .hop_limit = 1}, .port_num = 1},
    };
    REQUIRE(!ibv_modify_qp(qp, &attributes,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7};
    REQUIRE(!ibv_modify_qp(qp, &attributes,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    struct ibv_context *context = open_device(argv[1]);
    REQUIRE(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    REQUIRE(pd && cq);
    char memory[128] = "a message";
    struct ibv_mr *mr =
        ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp *one = create(pd, cq), *other = create(pd, cq);
    REQUIRE(mr && one && other);
    union ibv_gid gid;
    REQUIRE(!ibv_query_gid(context, 1, 0, &gid));
    connect_to(one, other, &gid);
    connect_to(other, one, &gid);

    struct ibv_sge first_half = {.addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr write = {
        .sg_list = &first_half,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)memory + 64, .rkey = mr->rkey ^ !!getenv("WRONG")},
    }, *bad;
    REQUIRE(!ibv_post_send(one, &write, &bad));
    struct ibv_wc completion;
    int count;
    while (!(count = ibv_poll_cq(cq, 1, &completion)))
        ;
    REQUIRE(count == 1);
    if (completion.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "WRITE: %s\n", ibv_wc_status_str(completion.status));
        return 1;
    }
    REQUIRE(!strcmp(memory + 64, "a message"));

    REQUIRE(!ibv_destroy_qp(one) && !ibv_destroy_qp(other));
    REQUIRE(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
    REQUIRE(!ibv_close_device(context));
    puts("ok");
    return 0;
}
