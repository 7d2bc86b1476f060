/*
 * Programs whose messages may be lost, each with its right form. The first argument names the program, the second its
 * form: wrong or right. A program ends with 0 if all is well.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

enum { ROUNDS = 8, TO = 1024, PATIENCE = 10000 };

static struct ibv_qp *unreliable(struct pair *pair, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = type,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pair->pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	const int is_uc = type == IBV_QPT_UC;

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						(is_uc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY)));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1}};
	CHECK(!ibv_query_gid(pair->context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | (is_uc ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
									IBV_QP_RQ_PSN : 0)));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

/* Posts a request and waits for its completion, which is a success in any case. Notes receives on the way. */
static void carried_out(struct pair *pair, struct ibv_qp *qp, struct ibv_send_wr *wr, int *received)
{
	struct ibv_send_wr *bad;
	int is_done = 0;

	CHECK(!ibv_post_send(qp, wr, &bad));
	while (!is_done) {
		struct ibv_wc wc;

		if (ibv_poll_cq(pair->cq, 1, &wc) != 1)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id == 1)
			is_done = 1;
		else
			++*received;
	}
}

/* Brings data to memory by UC. Wrong: takes the completion for a sign that it is there. */
static void written_once(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp *qp = unreliable(&pair, IBV_QPT_UC);
	struct ibv_sge from = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				    .sg_list = &from, .num_sge = 1,
				    .wr.rdma = {(uintptr_t)memory + TO, pair.remote_key}};
	volatile char *there = memory + TO;
	int received = 0;

	for (char round = 1; round <= ROUNDS; round++) {
		memory[0] = round;
		do
			carried_out(&pair, qp, &write, &received);
		while (!wrong && *there != round);
		CHECK(*there == round);
	}
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Sends messages and waits for each. Wrong: sends each only once, and gives up. */
static void sent_once(int wrong, enum ibv_qp_type type)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp *qp = unreliable(&pair, type);
	struct ibv_sge from = {(uintptr_t)memory, 8, pair.mr->lkey}, to = {(uintptr_t)memory + TO, 48, pair.mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad;
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &from, .num_sge = 1, .wr.ud = {NULL, qp->qp_num, 7}};
	struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};

	CHECK(!ibv_query_gid(pair.context, 1, 0, &path.grh.dgid));
	send.wr.ud.ah = ibv_create_ah(pair.pd, &path);
	CHECK(send.wr.ud.ah);
	for (int round = 0; round < ROUNDS; round++) {
		int received = 0;

		CHECK(!ibv_post_recv(qp, &receive, &bad));
		carried_out(&pair, qp, &send, &received);
		for (int tries = 0; !received; tries++) {
			struct ibv_wc wc;

			if (ibv_poll_cq(pair.cq, 1, &wc) == 1) {
				CHECK(wc.status == IBV_WC_SUCCESS);
				received++;
			} else if (!wrong && tries == PATIENCE) {
				carried_out(&pair, qp, &send, &received);
				tries = 0;
			}
			CHECK(received || !wrong || tries < PATIENCE);
		}
	}
	CHECK(!ibv_destroy_ah(send.wr.ud.ah) && !ibv_destroy_qp(qp));
	end_pair(&pair);
}

static void datagram_once(int wrong)
{
	sent_once(wrong, IBV_QPT_UD);
}

static void message_once(int wrong)
{
	sent_once(wrong, IBV_QPT_UC);
}

static const struct mistake mistakes[] = {
	{"written-once", written_once},
	{"message-once", message_once},
	{"datagram-once", datagram_once},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
