/* What the programs of public bugs have in common (spec/rehearsed-bugs.md). The first argument names a program, the
   second its form: wrong or right. A program ends with 0 if all is well. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

enum { ROUNDS = 12 };

/* How many polls find nothing until a program here gives up waiting. On most devices the completion is there before. */
enum { PATIENCE = 100 };

static inline void put(unsigned at, uint64_t value)
{
	*(volatile uint64_t *)(memory + at) = value;
}

static inline uint64_t seen(unsigned at)
{
	return *(volatile uint64_t *)(memory + at);
}

/* A request for 8 bytes. The id of a WRITE is the place that it writes to, that of a READ the one that it reads. */
static inline void one_sided(struct pair *pair, struct ibv_qp *qp, enum ibv_wr_opcode opcode, unsigned local,
			     unsigned remote)
{
	struct ibv_sge data = {(uintptr_t)memory + local, 8, pair->mr->lkey};
	struct ibv_send_wr request = {.wr_id = remote, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
				      .sg_list = &data, .num_sge = 1,
				      .wr.rdma = {(uintptr_t)memory + remote, pair->remote_key}}, *bad;

	CHECK(!ibv_post_send(qp, &request, &bad));
}

static inline void write_to(struct pair *pair, struct ibv_qp *qp, unsigned from, unsigned to)
{
	one_sided(pair, qp, IBV_WR_RDMA_WRITE, from, to);
}

/* Waits for this many completions. If one says that its request failed, the program ends. */
static inline void await(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count > 0) {
		const int got = ibv_poll_cq(cq, 1, &wc);

		CHECK(got >= 0 && (!got || wc.status == IBV_WC_SUCCESS));
		count -= got;
	}
}

/* Lets a WRITE be seen that has completed: a READ behind it has seen it (man ibv_reg_mr promises no more). */
static inline void see(struct pair *pair, struct ibv_qp *qp, unsigned at)
{
	one_sided(pair, qp, IBV_WR_RDMA_READ, 2048, at);
	await(pair->cq, 1);
}

/* Who waits for what a queue pair brings elsewhere looks here meanwhile. If it has failed, the program ends. */
static inline void look_at(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
}

/* Whether a completion comes before the program's patience ends. */
static inline int in_time(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < PATIENCE; i++) {
		const int got = ibv_poll_cq(cq, 1, &wc);

		CHECK(got >= 0 && (!got || wc.status == IBV_WC_SUCCESS));
		if (got)
			return 1;
	}
	return 0;
}

/* A queue pair that is connected to itself. */
static inline struct ibv_qp *to_itself(struct pair *pair, struct ibv_cq *sent, struct ibv_cq *received,
				       struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {.send_cq = sent, .recv_cq = received, .srq = srq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pair->pd, &init);

	CHECK(qp);
	connect_to(qp, pair->context, qp->qp_num);
	return qp;
}
