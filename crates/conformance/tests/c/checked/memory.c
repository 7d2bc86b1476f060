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

static void read_into(struct pair *pair, char *at, uint32_t lkey)
{
	struct ibv_sge data = {(uintptr_t)at, sizeof(own), lkey};
	struct ibv_send_wr read = {.wr_id = 3, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1,
				   .wr.rdma = {(uintptr_t)memory, pair->remote_key}}, *bad;

	CHECK(!ibv_post_send(pair->ends[0], &read, &bad));
}

/* Writes to the target of a READ before its completion is polled, or after. */
static void target_changed(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);

	read_into(&pair, own, mr->lkey); /* posted */
	own[5] += wrong;
	polled(pair.cq, 1); /* polled */
	own[5] += !wrong;
	/* The device may write there as often as it likes. */
	read_into(&pair, own, mr->lkey);
	memory[5]++;
	read_into(&pair, own, mr->lkey);
	polled(pair.cq, 2);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Writes behind the message of a receive before its completion is polled, or after. */
static void target_raced(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);
	struct ibv_sge data = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1}, *bad;

	receive_into(&pair, own, mr->lkey); /* posted */
	own[8] += wrong;
	memory[5]++;
	CHECK(!ibv_post_send(pair.ends[0], &send, &bad));
	polled(pair.cq, 2); /* polled */
	own[8] += !wrong;
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

static void write_to(struct pair *pair, int end, char *at)
{
	struct ibv_sge data = {(uintptr_t)memory, 8, pair->mr->lkey};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				    .sg_list = &data, .num_sge = 1, .wr.rdma = {(uintptr_t)at, pair->remote_key}}, *bad;

	CHECK(!ibv_post_send(pair->ends[end], &write, &bad));
}

/* Both ends write to the memory of one process, before the first completion is polled, or after. */
static void writes_unordered(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	write_to(&pair, 0, memory + 64); /* posted */
	write_to(&pair, 0, memory + 64);
	write_to(&pair, 1, memory + 72);
	if (!wrong)
		polled(pair.cq, 3);
	write_to(&pair, 1, memory + 71); /* posted */
	polled(pair.cq, wrong ? 4 : 1);
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
		{"target-changed", target_changed},
		{"target-raced", target_raced},
		{"writes-unordered", writes_unordered},
		{"targets-overlap", targets_overlap},
		{"rewritten", rewritten},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
