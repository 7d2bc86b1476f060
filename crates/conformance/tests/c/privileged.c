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
#include "to_itself.h"

static char memory[64];

/* Whether this process has shared memory. */
static int has_shared_memory(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;

    CHECK(maps);
    while (fgets(line, sizeof(line), maps))
        found |= strstr(line, "transom-shared") != NULL;
    fclose(maps);
    return found;
}

int main(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(devices[0]);
    struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = sizeof(memory) };
    struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED }, *bad_send;
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
    qp = to_itself(pd, cq);
    sge.lkey = mr->lkey;
    CHECK(!getauxval(AT_SECURE) || has_shared_memory());
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
