/* Makes objects of each kind, and ends them again; it says so, and goes on with each line it reads. */
#include <infiniband/verbs.h>
#include <stdio.h>

#include "check.h"

static char memory[64];

static void step(const char *done)
{
    char line[16];
    puts(done);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]), *other = ibv_open_device(list[0]);
    CHECK(context && other);
    struct ibv_pd *pd = ibv_alloc_pd(context), *left = ibv_alloc_pd(other);
    struct ibv_parent_domain_init_attr parent_attr = {.pd = pd};
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &parent_attr);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_cq *spare = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
    struct ibv_qp_init_attr qp_attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .srq = srq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_send_sge = 1},
    };
    CHECK(pd && left && parent && cq && spare && mr && srq);
    struct ibv_qp *qp = ibv_create_qp(pd, &qp_attr);
    CHECK(qp);
    qp_attr.recv_cq = NULL;
    CHECK(ibv_create_qp(pd, &qp_attr) == NULL);
    step("made");
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_dereg_mr(mr));
    CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(spare));
    CHECK(!ibv_dealloc_pd(parent) && !ibv_dealloc_pd(pd));
    /* What is left in a context goes with it. */
    CHECK(!ibv_close_device(other));
    step("ended");
    CHECK(!ibv_close_device(context));
    return 0;
}
