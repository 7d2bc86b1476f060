/* Mistakes with memory that a device has. Each mistake has a correct twin. The first argument names the mistake, the
   second is "wrong" or "right". Lines that a finding names are marked. */
#include "pair.h"

static char own[64];

static struct ibv_mr *own_region(struct pair *pair)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->pd, own, sizeof(own), IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	return mr;
}

static void receive_into(struct pair *pair, char *at, uint32_t lkey)
{
	struct ibv_sge data = {(uintptr_t)at, sizeof(own), lkey};
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(pair->ends[1], &receive, &bad)); /* posted by receive_into */
}

static void send_from(struct pair *pair, char *at, uint32_t lkey)
{
	struct ibv_sge data = {(uintptr_t)at, sizeof(own), lkey};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_send(pair->ends[0], &send, &bad));
}

static void ended_in_flight(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);

	if (!wrong)
		receive_into(&pair, memory, pair.mr->lkey);
	send_from(&pair, own, mr->lkey); /* posted */
	if (!wrong)
		polled(pair.cq, 2);
	CHECK(!ibv_dereg_mr(mr)); /* ended */
	end_pair(&pair);
}

static void ended_unpolled(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);

	receive_into(&pair, own, mr->lkey); /* posted */
	if (wrong)
		CHECK(!ibv_dereg_mr(mr)); /* ended */
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	pair.ends[0] = pair.ends[1] = NULL;
	if (!wrong)
		CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Sends from this memory, and writes to it before or after the poll of the completion. */
static void change(struct pair *pair, char *at, uint32_t lkey, int wrong)
{
	receive_into(pair, memory + 1024, pair->mr->lkey);
	send_from(pair, at, lkey);
	at[5] += wrong;
	polled(pair->cq, 2);
	at[5] += !wrong;
}

static void source_changed(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);

	change(&pair, own, mr->lkey, wrong); /* changed */
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

static void source_raced(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	change(&pair, memory, pair.mr->lkey, wrong); /* changed */
	end_pair(&pair);
}

static void targets_overlap(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	receive_into(&pair, memory, pair.mr->lkey); /* posted */
	/* A program that does not need the data posts one buffer many times. */
	receive_into(&pair, memory, pair.mr->lkey);
	receive_into(&pair, memory + sizeof(own) - wrong, pair.mr->lkey); /* posted */
	end_pair(&pair);
}

/* The device writes to a source before the program has polled its completion: with a READ that follows, or with a
   message that arrives in it. Neither is a change by the program. */
static void rewritten(int by_message)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);
	struct ibv_sge data = {(uintptr_t)own, sizeof(own), mr->lkey};
	struct ibv_send_wr read = {.wr_id = 3, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1,
				   .wr.rdma = {(uintptr_t)memory + 64, pair.remote_key}};
	struct ibv_send_wr write = read, *bad;

	memset(memory, 7, sizeof(memory));
	write.opcode = IBV_WR_RDMA_WRITE;
	write.wr.rdma.remote_addr += 1024;
	write.next = by_message ? NULL : &read;
	if (by_message)
		receive_into(&pair, own, mr->lkey);
	CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
	if (by_message)
		send_from(&pair, memory + 64, pair.mr->lkey);
	polled(pair.cq, by_message ? 3 : 2);
	CHECK(own[5] == 7);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"ended-in-flight", ended_in_flight},
		{"ended-unpolled", ended_unpolled},
		{"source-changed", source_changed},
		{"source-raced", source_raced},
		{"targets-overlap", targets_overlap},
		{"rewritten", rewritten},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
