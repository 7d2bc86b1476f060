/*
 * Programs that use the buffers of posted receives, each with its right form. The first argument names the program, the
 * second its form: wrong or right. A program ends with 0 if all is well.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

enum { ROUNDS = 12, LENGTH = 64, TO = 1024 };

static struct ibv_sge slice(const struct pair *pair, unsigned at, unsigned length)
{
	return (struct ibv_sge){(uintptr_t)memory + at, length, pair->mr->lkey};
}

/* Posts a receive with room at a place: to a queue, or to that of the second end. */
static void post(struct pair *pair, struct ibv_srq *srq, unsigned at, unsigned length)
{
	struct ibv_sge to = slice(pair, at, length);
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad;

	CHECK(!(srq ? ibv_post_srq_recv(srq, &receive, &bad) : ibv_post_recv(pair->ends[1], &receive, &bad)));
}

static void message(struct pair *pair, enum ibv_wr_opcode opcode, unsigned length)
{
	struct ibv_sge from = slice(pair, 0, length);
	struct ibv_send_wr send = {.wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &from,
				   .num_sge = 1}, *bad;

	if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		send.wr.rdma.remote_addr = (uintptr_t)memory + 512, send.wr.rdma.rkey = pair->remote_key;
	CHECK(!ibv_post_send(pair->ends[0], &send, &bad));
}

/* Whether so many bytes at a place all have a value. */
static int all_are(unsigned at, unsigned length, char value)
{
	for (unsigned i = at; i < at + length; i++) {
		if (__atomic_load_n(memory + i, __ATOMIC_ACQUIRE) != value)
			return 0;
	}
	return 1;
}

/* Gets messages into one buffer. Wrong: posts the buffer again before it looks at the message. */
static void posts_early_to(struct pair *pair, struct ibv_srq *srq, int wrong)
{
	post(pair, srq, TO, LENGTH);
	for (char round = 1; round <= ROUNDS; round++) {
		int is_right;

		memset(memory, round, LENGTH);
		message(pair, IBV_WR_SEND, LENGTH);
		polled(pair->cq, 2);
		if (wrong)
			post(pair, srq, TO, LENGTH);
		is_right = all_are(TO, LENGTH, round);
		if (!wrong)
			post(pair, srq, TO, LENGTH);
		CHECK(is_right);
	}
}

static void posts_early(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	posts_early_to(&pair, NULL, wrong);
	end_pair(&pair);
}

/* Makes the second end one with a shared receive queue. */
static struct ibv_srq *share(struct pair *pair)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair->pd, &attr);
	struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = IBV_QPT_RC, .srq = srq,
					.cap = {DEPTH, 0, 1, 0, 0}};

	CHECK(srq);
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(pair->ends[i]));
		pair->ends[i] = ibv_create_qp(pair->pd, &init);
		CHECK(pair->ends[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_to(pair->ends[i], pair->context, pair->ends[!i]->qp_num);
	return srq;
}

static void shares_early(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq *srq = share(&pair);

	posts_early_to(&pair, srq, wrong);
	end_queues(&pair);
	CHECK(!ibv_destroy_srq(srq) && !ibv_dealloc_pd(pair.pd) && !ibv_close_device(pair.context));
}

/* Ends a queue pair with a receive in it. Wrong: expects its buffer as it was. Right: fills it anew, and nobody changes
   it. */
static void flushed(int wrong)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct pair pair = pair_of(IBV_QPT_RC);
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

		memset(memory + TO, 7, LENGTH);
		post(&pair, NULL, TO, LENGTH);
		CHECK(!ibv_modify_qp(pair.ends[1], &attr, IBV_QP_STATE));
		polled(pair.cq, 1);
		if (!wrong)
			memset(memory + TO, 7, LENGTH);
		CHECK(all_are(TO, LENGTH, 7));
		end_pair(&pair);
		CHECK(all_are(TO, LENGTH, 7));
	}
}

/* Ends a queue pair with a receive in it, and gets a short message by another one into the same buffer. What the message
   leaves of the buffer stays as it came back. It has no wrong form. */
static void flushed_again(int wrong)
{
	(void)wrong;
	for (int round = 0; round < ROUNDS; round++) {
		struct pair first = pair_of(IBV_QPT_RC), second = pair_of(IBV_QPT_RC);
		struct ibv_qp_attr attr = {.qp_state = round % 2 ? IBV_QPS_ERR : IBV_QPS_RESET};
		char before[LENGTH];

		memset(memory + TO, 7, LENGTH);
		post(&first, NULL, TO, LENGTH);
		CHECK(!ibv_modify_qp(first.ends[1], &attr, IBV_QP_STATE));
		if (round % 2)
			polled(first.cq, 1);
		memcpy(before, memory + TO, LENGTH);
		post(&second, NULL, TO, LENGTH);
		message(&second, IBV_WR_SEND, 8);
		polled(second.cq, 2);
		CHECK(!memcmp(memory + TO + 8, before + 8, LENGTH - 8));
		end_pair(&first);
		end_pair(&second);
		CHECK(!memcmp(memory + TO + 8, before + 8, LENGTH - 8));
	}
}

/* Gets messages that are shorter than their receives, or use none of their bytes. All bytes around them stay. It has no
   wrong form. */
static void leaves_the_rest(int wrong)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND};
	struct pair pair = pair_of(IBV_QPT_RC);
	char value = 1;

	(void)wrong;
	for (unsigned length = 0; length <= LENGTH; length += 8) {
		for (unsigned i = 0; i < 3; i++, value++) {
			const unsigned lands = i == 1 ? 0 : length, second = i == 2 ? LENGTH / 2 : 0;

			memset(memory + TO - 64, 99, 3 * LENGTH);
			memset(memory, value, LENGTH);
			post(&pair, NULL, TO, LENGTH);
			/* The third time another receive has some of the same bytes. */
			if (second)
				post(&pair, NULL, TO + second, LENGTH);
			CHECK(all_are(TO - 64, 64, 99) && all_are(TO + second + LENGTH, 64 - second, 99));
			message(&pair, opcodes[i], length);
			polled(pair.cq, 2);
			CHECK(all_are(TO, lands, value) && all_are(TO - 64, 64, 99));
			if (!second)
				CHECK(all_are(TO + lands, 2 * LENGTH - lands, 99));
			if (second) {
				memset(memory + TO, 98, 2 * LENGTH);
				message(&pair, IBV_WR_SEND, length);
				polled(pair.cq, 2);
				CHECK(all_are(TO, second, 98) && all_are(TO + second, length, value));
				CHECK(all_are(TO + second + length, LENGTH - length, 98));
			}
		}
	}
	end_pair(&pair);
}

/* Ends the region of a posted receive, uses the memory for another one, and gets a message there. Nobody else changes it.
   It has no wrong form. */
static void uses_again(int wrong)
{
	(void)wrong;
	for (int round = 0; round < ROUNDS; round++) {
		struct pair pair = pair_of(IBV_QPT_RC);
		struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory + TO, LENGTH, IBV_ACCESS_LOCAL_WRITE);
		struct ibv_sge to = {(uintptr_t)memory + TO, LENGTH, mr ? mr->lkey : 0};
		struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad;

		CHECK(mr && !ibv_post_recv(pair.ends[0], &receive, &bad));
		CHECK(!ibv_dereg_mr(mr));
		memset(memory + TO, 7, LENGTH);
		memset(memory, 8, LENGTH);
		post(&pair, NULL, TO, LENGTH);
		message(&pair, IBV_WR_SEND, 8);
		polled(pair.cq, 2);
		CHECK(all_are(TO, 8, 8) && all_are(TO + 8, LENGTH - 8, 7));
		end_pair(&pair);
		CHECK(all_are(TO, 8, 8) && all_are(TO + 8, LENGTH - 8, 7));
	}
}

static const struct mistake mistakes[] = {
	{"posts-early", posts_early},
	{"shares-early", shares_early},
	{"flushed", flushed},
	{"flushed-again", flushed_again},
	{"leaves-the-rest", leaves_the_rest},
	{"uses-again", uses_again},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
