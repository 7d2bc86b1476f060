/* Has objects that are known, tells their numbers as a line of JSON, carries out as many READs as its argument says,
   tells so, and ends with the next line that it reads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "to_itself.h"

static char memory[8192] __attribute__((aligned(4096)));

static struct ibv_wc completed(struct ibv_qp *qp)
{
    struct ibv_wc wc;
    int polled;

    while (!(polled = ibv_poll_cq(qp->send_cq, 1, &wc)))
        ;
    CHECK(polled == 1 && wc.status == IBV_WC_SUCCESS);
    return wc;
}

/* A window on the last 64 bytes. Returns its key. */
static uint32_t bind_last(struct ibv_qp *qp, struct ibv_mr *mr, struct ibv_mw *mw)
{
    struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;

    bind.bind_mw.mw = mw;
    bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
        mr, (uintptr_t)memory + sizeof memory - 64, 64, IBV_ACCESS_REMOTE_READ
    };
    CHECK(!ibv_post_send(qp, &bind, &bad));
    completed(qp);
    return bind.bind_mw.rkey;
}

static void read_once(struct ibv_qp *qp, struct ibv_mr *mr)
{
    struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 100, .lkey = mr->lkey };
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { .remote_addr = (uintptr_t)memory + 4096, .rkey = mr->rkey },
    }, *bad;

    CHECK(!ibv_post_send(qp, &wr, &bad));
    completed(qp);
}

int main(int argc, char **argv)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    char line[16];

    CHECK(argc == 2 && list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_pd *pd = ibv_alloc_pd(context), *empty = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_cq *spare = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                       IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2), *bound = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    CHECK(context && pd && empty && cq && spare && mr && mw && bound && srq);
    struct ibv_qp *qp = to_itself(pd, cq);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_UD,
        .cap = { .max_send_wr = 4, .max_send_sge = 1 },
    };
    struct ibv_qp *datagrams = ibv_create_qp(pd, &init);
    CHECK(datagrams);
    printf("{\"qp\":%u,\"ud\":%u,\"pd\":%u,\"empty\":%u,\"cqe\":%d,\"lkey\":%u,\"rkey\":%u,"
           "\"iova\":%" PRIuPTR ",\"window\":%u}\n",
           qp->qp_num, datagrams->qp_num, pd->handle, empty->handle, cq->cqe, mr->lkey, mr->rkey,
           (uintptr_t)memory, bind_last(qp, mr, bound));
    fflush(stdout);
    for (int left = atoi(argv[1]); left > 0; left--)
        read_once(qp, mr);
    puts("done");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        line[0] = 0;
    CHECK(!ibv_destroy_qp(datagrams) && !ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
    CHECK(!ibv_dealloc_mw(mw) && !ibv_dealloc_mw(bound) && !ibv_dereg_mr(mr));
    CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(spare));
    CHECK(!ibv_dealloc_pd(empty) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    return 0;
}
