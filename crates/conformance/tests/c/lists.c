/*
 * Posts lists whose requests belong to others as soon as they are posted: what each of them does is to write over its own
 * link to the next one.
 */
#include "checked/pair.h"

enum { MOST = 256 };

static struct ibv_send_wr sends[MOST];
static struct ibv_recv_wr receives[MOST];

/* Where no list leads. */
static const uintptr_t nowhere = 0x1234;

static int is_linked(const void *next)
{
	return (uintptr_t)next != nowhere;
}

static void post_sends(struct pair *pair, struct ibv_mr *links, int count)
{
	struct ibv_sge data = {(uintptr_t)memory, sizeof(nowhere), pair->mr->lkey};
	struct ibv_send_wr *bad = NULL;
	int taken;

	for (int i = 0; i < count; i++)
		sends[i] = (struct ibv_send_wr){.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
						.sg_list = &data, .num_sge = 1, .next = i + 1 < count ? &sends[i + 1] : NULL,
						.wr.rdma = {(uintptr_t)&sends[i].next, links->rkey}};
	CHECK(ibv_post_send(pair->ends[0], sends, &bad) == ENOMEM);
	taken = bad - sends;
	CHECK(bad && taken < count);
	polled(pair->cq, taken);
	for (int i = 0; i < count; i++)
		CHECK(is_linked(sends[i].next) == (i >= taken));
}

static void post_receives(struct pair *pair, struct ibv_mr *links, int count)
{
	struct ibv_sge own = {(uintptr_t)&receives[0].next, sizeof(nowhere), links->lkey};
	struct ibv_sge data = {(uintptr_t)memory, sizeof(nowhere), pair->mr->lkey};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data, .num_sge = 1};
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad = NULL;
	int taken;

	for (int i = 0; i < count; i++)
		receives[i] = (struct ibv_recv_wr){.wr_id = i, .next = i + 1 < count ? &receives[i + 1] : NULL};
	receives[0].sg_list = &own;
	receives[0].num_sge = 1;
	/* It waits for a receive. */
	CHECK(!ibv_post_send(pair->ends[1], &send, &bad_send));
	CHECK(ibv_post_recv(pair->ends[0], receives, &bad) == ENOMEM);
	taken = bad - receives;
	CHECK(bad && taken < count);
	if (!taken)
		CHECK(!ibv_post_recv(pair->ends[0], receives, &bad) || bad != receives);
	polled(pair->cq, 2);
	CHECK(!is_linked(receives[0].next));
}

int main(void)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_mr *links[2];

	CHECK(!ibv_query_qp(pair.ends[0], &attr, IBV_QP_CAP, &init));
	CHECK(init.cap.max_send_wr < MOST && init.cap.max_recv_wr < MOST);
	CHECK(!ibv_resize_cq(pair.cq, 2 * MOST));
	links[0] = ibv_reg_mr(pair.pd, sends, sizeof(sends), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	links[1] = ibv_reg_mr(pair.pd, receives, sizeof(receives), IBV_ACCESS_LOCAL_WRITE);
	CHECK(links[0] && links[1]);
	memcpy(memory, &nowhere, sizeof(nowhere));
	/* A key is used by a message the first time, under a check. */
	CHECK(!try_write(&pair, 0, IBV_SEND_SIGNALED));
	polled(pair.cq, 1);
	for (int i = 0; i < 2; i++)
		post_sends(&pair, links[0], init.cap.max_send_wr + 1);
	post_receives(&pair, links[1], init.cap.max_recv_wr + 1);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	CHECK(!ibv_destroy_cq(pair.cq) && !ibv_dereg_mr(pair.mr));
	CHECK(!ibv_dereg_mr(links[0]) && !ibv_dereg_mr(links[1]));
	CHECK(!ibv_dealloc_pd(pair.pd) && !ibv_close_device(pair.context));
	return 0;
}
