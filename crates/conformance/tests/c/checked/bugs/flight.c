/* Bugs of kind G: a program touches memory while the device has it. spec/bugs.md names the programs that had them. The
   lines that a finding names are marked. */
#include "../pair.h"

static void receive_buffer(struct pair *pair)
{
	struct ibv_sge data = {(uintptr_t)memory, 64, pair->mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(pair->ends[1], &receive, &bad));
}

/* Gives up a connection: first deregisters its memory, then destroys its queue pair. */
static void deregistered_in_flight(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	static char buffer[64];
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge data;
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
				   .num_sge = 1}, *bad;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

	if (!wrong)
		receive_buffer(&pair);
	CHECK(mr);
	data = (struct ibv_sge){(uintptr_t)buffer, sizeof(buffer), mr->lkey};
	CHECK(!ibv_post_send(pair.ends[0], &send, &bad)); /* here */
	if (wrong)
		CHECK(!ibv_dereg_mr(mr)); /* here */
	CHECK(!ibv_modify_qp(pair.ends[0], &error, IBV_QP_STATE));
	polled(pair.cq, wrong ? 1 : 2);
	CHECK(wrong || !ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Two READs are under way, of different objects of the peer into one buffer. */
static void reads_into_one_buffer(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (int i = 0; i < 2; i++) {
		struct ibv_sge data = {(uintptr_t)memory + (wrong ? 0 : 64 * i), 64, pair.mr->lkey};
		struct ibv_send_wr read = {.wr_id = i, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
					   .sg_list = &data, .num_sge = 1,
					   .wr.rdma = {(uintptr_t)memory + 1024 + 64 * i, pair.remote_key}}, *bad;

		CHECK(!ibv_post_send(pair.ends[0], &read, &bad)); /* here */
	}
	polled(pair.cq, 2);
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"deregistered-in-flight", deregistered_in_flight},
		{"reads-into-one-buffer", reads_into_one_buffer},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
