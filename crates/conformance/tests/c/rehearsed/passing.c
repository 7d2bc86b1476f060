/*
 * Programs that rely on what is done first where nothing promises it, each with its right form. The first argument names
 * the program, the second its form: wrong or right. A program ends with 0 if all is well.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

enum { ROUNDS = 12, LENGTH = 64, OLD = 1024, OTHER = 2048, TO = 3072 };

/* Posts a request of one end for some bytes. The last two words are for atomics. */
static void post(struct pair *pair, int end, enum ibv_wr_opcode opcode, int flags, unsigned local, uint64_t remote,
		 unsigned length, uint64_t operand, uint64_t swap)
{
	struct ibv_sge data = {(uintptr_t)memory + local, length, pair->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED | flags,
				 .sg_list = &data, .num_sge = 1}, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + remote;
		wr.wr.atomic.rkey = pair->remote_key;
		wr.wr.atomic.compare_add = operand;
		wr.wr.atomic.swap = swap;
	} else if (opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + remote;
		wr.wr.rdma.rkey = pair->remote_key;
	}
	CHECK(!ibv_post_send(pair->ends[end], &wr, &bad));
}

static uint64_t word(unsigned at)
{
	return __atomic_load_n((uint64_t *)(memory + at), __ATOMIC_SEQ_CST);
}

/* Gets what the peer has, and puts something new in its place. Wrong: without a fence. */
static void replaces(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (char round = 1; round <= ROUNDS; round++) {
		memset(memory, round, LENGTH);
		memset(memory + TO, round - 1, LENGTH);
		post(&pair, 0, IBV_WR_RDMA_READ, 0, OLD, TO, LENGTH, 0, 0);
		post(&pair, 0, IBV_WR_RDMA_WRITE, wrong ? 0 : IBV_SEND_FENCE, 0, TO, LENGTH, 0, 0);
		polled(pair.cq, 2);
		CHECK(memory[OLD] == round - 1);
		CHECK(memory[OLD + LENGTH - 1] == round - 1);
	}
	end_pair(&pair);
}

static struct pair own_pair(int atomics)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						      (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0)};

	for (int i = 0; i < 2; i++)
		CHECK(!ibv_modify_qp(pair.ends[i], &attr, IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_dereg_mr(pair.mr));
	pair.mr = ibv_reg_mr(pair.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | attr.qp_access_flags);
	CHECK(pair.mr);
	pair.remote_key = pair.mr->rkey;
	return pair;
}

/* Takes a ticket and writes the next number. Wrong: without a fence, so that the WRITE may come first. */
static void takes_tickets(int wrong)
{
	struct pair pair = own_pair(1);

	for (uint64_t round = 0; round < ROUNDS; round++) {
		*(uint64_t *)memory = 10 * round + 10;
		*(uint64_t *)(memory + TO) = 10 * round;
		post(&pair, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, OLD, TO, 8, 1, 0);
		post(&pair, 0, IBV_WR_RDMA_WRITE, wrong ? 0 : IBV_SEND_FENCE, 0, TO, 8, 0, 0);
		polled(pair.cq, 2);
		CHECK(word(OLD) == 10 * round && word(TO) == 10 * round + 10);
	}
	end_pair(&pair);
}

/* READs and atomics do not pass each other, and nothing lands twice or is left out. It has no wrong form. */
static void in_order(int wrong)
{
	struct pair pair = own_pair(1);

	(void)wrong;
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		*(uint64_t *)(memory + TO) = *(uint64_t *)(memory + OTHER) = 0;
		*(uint64_t *)memory = round;
		post(&pair, 0, IBV_WR_RDMA_READ, 0, OLD, TO + 8, 8, 0, 0);
		post(&pair, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, OLD + 8, TO, 8, 1, 0);
		post(&pair, 0, IBV_WR_RDMA_WRITE, 0, 0, OTHER, 8, 0, 0);
		post(&pair, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_FENCE, OLD + 16, OTHER, 8, 100, 0);
		post(&pair, 0, IBV_WR_RDMA_READ, IBV_SEND_FENCE, OLD + 24, OTHER, 8, 0, 0);
		post(&pair, 0, IBV_WR_RDMA_READ, 0, OLD + 32, TO, 8, 0, 0);
		polled(pair.cq, 6);
		CHECK(word(TO) == 1 && word(OTHER) == round + 100);
		CHECK(word(OLD + 8) == 0 && word(OLD + 16) == round);
		CHECK(word(OLD + 24) == round + 100 && word(OLD + 32) == 1);
	}
	end_pair(&pair);
}

/* Sends a message, and the next one from the same buffer. Wrong: changes the buffer before the completion, and expects
   that the peer has the old message or the new one. */
static void sends_again(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (char round = 1; round <= ROUNDS; round++) {
		struct ibv_sge to = {(uintptr_t)memory + TO, LENGTH, pair.mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad;

		CHECK(!ibv_post_recv(pair.ends[1], &receive, &bad));
		memset(memory, round, LENGTH);
		post(&pair, 0, IBV_WR_SEND, 0, 0, 0, LENGTH, 0, 0);
		if (!wrong)
			polled(pair.cq, 2);
		memset(memory, round + 50, LENGTH);
		if (wrong)
			polled(pair.cq, 2);
		for (int i = 1; i < LENGTH; i++)
			CHECK(memory[TO + i] == memory[TO]);
		CHECK(wrong || memory[TO] == round);
	}
	end_pair(&pair);
}

enum { ADDITIONS = 200 };

static struct pair adding;
/* In memory that Transom shares: there one instruction adds, but in a rehearsal. */
static uint64_t *sum;
/* The first thread is done; how often the second one has added. */
static int is_over;
static uint64_t added;

/* Adds by an instruction of the processor, or by the adapter. */
static void *add(void *wrong)
{
	while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
		added++;
		if (wrong) {
			__atomic_fetch_add(sum, 1, __ATOMIC_SEQ_CST);
			for (volatile int spin = 0; spin < 2000; spin++)
				continue;
		} else {
			struct ibv_wc wc;
			int count = 0;

			post(&adding, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, OTHER, (char *)sum - memory, 8, 1, 0);
			while (!count)
				count = ibv_poll_cq(adding.ends[1]->send_cq, 1, &wc);
			CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
		}
	}
	return NULL;
}

/* Two threads add to one word, the first by the adapter. Wrong: the second by an instruction of the processor. */
static void adds(int wrong)
{
	pthread_t thread;
	struct ibv_cq *cq;
	struct ibv_mr *mr;

	adding = own_pair(1);
	CHECK(!posix_memalign((void **)&sum, 4096, 4096));
	*sum = 0;
	mr = ibv_reg_mr(adding.pd, sum, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(mr);
	adding.remote_key = mr->rkey;
	/* The second end has a queue of its own, so that each thread has its completions. */
	CHECK(!ibv_destroy_qp(adding.ends[0]) && !ibv_destroy_qp(adding.ends[1]));
	cq = ibv_create_cq(adding.context, DEPTH, NULL, NULL, 0);
	CHECK(cq);
	for (int i = 0; i < 2; i++) {
		struct ibv_cq *own = i ? cq : adding.cq;
		struct ibv_qp_init_attr init = {.send_cq = own, .recv_cq = own, .qp_type = IBV_QPT_RC,
						.cap = {DEPTH, DEPTH, 1, 1, 0}};

		adding.ends[i] = ibv_create_qp(adding.pd, &init);
		CHECK(adding.ends[i]);
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC};

		connect_to(adding.ends[i], adding.context, adding.ends[!i]->qp_num);
		CHECK(!ibv_modify_qp(adding.ends[i], &attr, IBV_QP_ACCESS_FLAGS));
	}
	CHECK(!pthread_create(&thread, NULL, add, wrong ? &thread : NULL));
	for (int i = 0; i < ADDITIONS; i++) {
		post(&adding, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, OLD, (char *)sum - memory, 8, 1, 0);
		polled(adding.cq, 1);
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_join(thread, NULL));
	CHECK(__atomic_load_n(sum, __ATOMIC_SEQ_CST) == ADDITIONS + added);
	CHECK(!ibv_dereg_mr(mr));
	free(sum);
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(adding.ends[i]));
		adding.ends[i] = NULL;
	}
	CHECK(!ibv_destroy_cq(cq));
	end_pair(&adding);
}

static const struct mistake mistakes[] = {
	{"replaces", replaces},
	{"takes-tickets", takes_tickets},
	{"in-order", in_order},
	{"sends-again", sends_again},
	{"adds", adds},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
