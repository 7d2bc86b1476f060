/* Mistakes with memory that a device has. Each mistake has a correct twin. The first argument names the mistake, the
   second is "wrong" or "right". Lines that a finding names are marked. */
#include <infiniband/tm_types.h>

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

/* A region ends while a request names it, which was posted before it got other rights. */
static void reregistered(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);

	if (!wrong)
		receive_into(&pair, memory, pair.mr->lkey);
	send_from(&pair, own, mr->lkey); /* posted */
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	if (!wrong)
		polled(pair.cq, 2);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* A region stays where it was, because a window is bound to it. */
static void kept(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, own, sizeof(own), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *window = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.wr_id = 5, .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {mr, (uintptr_t)own, sizeof(own), IBV_ACCESS_REMOTE_READ}};

	CHECK(!wrong && mr && window && !ibv_bind_mw(pair.ends[0], window, &bind));
	polled(pair.cq, 1);
	send_from(&pair, own, mr->lkey);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 64, 0));
	receive_into(&pair, memory, pair.mr->lkey);
	polled(pair.cq, 2);
	CHECK(!ibv_dealloc_mw(window) && !ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* A message of so many bytes, with the header of tag matching. */
static void send_with_header(struct pair *pair, struct ibv_qp *qp, uint8_t operation, uint32_t length)
{
	struct ibv_tmh header = {.opcode = operation};
	struct ibv_sge data = {(uintptr_t)memory, length, pair->mr->lkey};
	struct ibv_send_wr send = {.wr_id = 4, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1}, *bad;

	memset(memory, 7, length);
	memcpy(memory, &header, sizeof(header));
	CHECK(!ibv_post_send(qp, &send, &bad));
}

/* A tagged message comes into a buffer that is being sent. Neither is a change by the program. In the other form an
   ordinary receive has the number of a list operation, and the program changes its buffer behind the message. */
static void tagged(int of_ordinary)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = own_region(&pair);
	struct ibv_cq *cq = ibv_create_cq(pair.context, 16, NULL, NULL, 0);
	struct ibv_srq_init_attr_ex srq_init = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM, .pd = pair.pd, .cq = cq, .tm_cap = {.max_num_tags = 4, .max_ops = 4}};
	struct ibv_srq *srq = ibv_create_srq_ex(pair.context, &srq_init);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp *far = ibv_create_qp(pair.pd, &init), *near;
	struct ibv_sge data = {(uintptr_t)own, sizeof(own), mr->lkey};
	struct ibv_sge other = {(uintptr_t)memory + 1024, sizeof(own), pair.mr->lkey};
	struct ibv_ops_wr add = {.wr_id = 1, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED,
				 .tm.add = {.recv_wr_id = 9, .sg_list = of_ordinary ? &other : &data, .num_sge = 1}}, *bad_add;
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = of_ordinary ? &data : &other, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1}, *bad;

	init.srq = srq;
	CHECK(!ibv_resize_cq(pair.cq, 8 * DEPTH));
	CHECK(cq && srq && far && (near = ibv_create_qp(pair.pd, &init)));
	connect_to(far, pair.context, near->qp_num);
	connect_to(near, pair.context, far->qp_num);
	if (of_ordinary)
		CHECK(!ibv_post_srq_recv(srq, &receive, &bad_receive));
	else
		CHECK(!ibv_post_recv(far, &receive, &bad_receive));
	CHECK(!ibv_post_srq_ops(srq, &add, &bad_add));
	polled(cq, 1);
	if (of_ordinary) {
		own[sizeof(own) - 1]++;
		send_with_header(&pair, far, IBV_TMH_NO_TAG, sizeof(struct ibv_tmh));
		polled(cq, 1);
		polled(pair.cq, 1);
		add.opcode = IBV_WR_TAG_DEL;
		CHECK(!ibv_post_srq_ops(srq, &add, &bad_add));
		polled(cq, 1);
	} else {
		CHECK(!ibv_post_send(near, &send, &bad));
		send_with_header(&pair, far, IBV_TMH_EAGER, sizeof(struct ibv_tmh) + sizeof(own));
		polled(cq, 1);
		polled(pair.cq, 3);
		CHECK(own[5] == 7);
	}
	CHECK(!ibv_destroy_qp(near) && !ibv_destroy_qp(far) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
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
		{"tagged", tagged},
		{"reregistered", reregistered},
		{"kept", kept},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
