/* Public bugs of memory that is used again while a request may still read or write it. */
#include "corpus.h"

enum { ANOTHER = 1000 };

/* Waits for an access to memory, but not for long. Wrong: gives the memory to another user then. */
static void accessed_late(int wrong, enum ibv_wr_opcode opcode, unsigned local, unsigned remote, unsigned shared)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const unsigned to = opcode == IBV_WR_RDMA_READ ? local : remote, from = to == local ? remote : local;

	for (unsigned round = 1; round <= ROUNDS; round++) {
		int is_given = 0;

		put(from, round);
		one_sided(&pair, pair.ends[1], opcode, local, remote);
		if (!in_time(pair.cq)) {
			is_given = wrong;
			if (wrong)
				put(shared, ANOTHER);
			await(pair.cq, 1);
		}
		if (opcode == IBV_WR_RDMA_WRITE)
			see(&pair, pair.ends[1], remote);
		/* Nobody else's data has come, and the other user still has its own. */
		CHECK(seen(to) == (is_given && shared == to ? ANOTHER : round));
	}
	end_pair(&pair);
}

/* Has the peer fetch a request. Wrong: when the answer is late, the next request has the same buffer. */
static void refills_on_timeout(int wrong)
{
	accessed_late(wrong, IBV_WR_RDMA_READ, 1024, 0, 0);
}

/* Has the peer bring an answer. Wrong: when it is late, the buffer is somebody else's. */
static void frees_on_timeout(int wrong)
{
	accessed_late(wrong, IBV_WR_RDMA_WRITE, 1024, 0, 0);
}

/* Fetches data. Wrong: when they are late, the buffer for them is somebody else's. */
static void recycles_on_timeout(int wrong)
{
	accessed_late(wrong, IBV_WR_RDMA_READ, 0, 1024, 0);
}

/* Sends notices. Wrong: all from one buffer, without waiting until the last one has been read. */
static void one_buffer(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *received = ibv_create_cq(pair.context, DEPTH, NULL, NULL, 0);
	struct ibv_qp *qp;

	CHECK(received);
	qp = to_itself(&pair, pair.cq, received, NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_sge slot = {(uintptr_t)memory + 1024 + 64 * i, 8, pair.mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = i, .sg_list = &slot, .num_sge = 1}, *bad;

		CHECK(!ibv_post_recv(qp, &receive, &bad));
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_sge notice = {(uintptr_t)memory, 8, pair.mr->lkey};
		struct ibv_send_wr send = {.wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
					   .sg_list = &notice, .num_sge = 1}, *bad;

		put(0, i);
		CHECK(!ibv_post_send(qp, &send, &bad));
		await(pair.cq, wrong ? 0 : 1);
	}
	await(pair.cq, wrong ? ROUNDS : 0);
	await(received, ROUNDS);
	for (unsigned i = 0; i < ROUNDS; i++)
		CHECK(seen(1024 + 64 * i) == i);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(received));
	end_pair(&pair);
}

enum { SLOTS = 4 };

/* Puts messages into a ring. Two queue pairs in turn carry them on, and then their slots are free. Wrong: counts the
   free slots, and does not look which ones they are. */
static void counts_slots(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *carried = ibv_create_cq(pair.context, DEPTH, NULL, NULL, 0);
	struct ibv_qp *carriers[2];
	int is_carried[ROUNDS] = {0};
	unsigned put_in = 0, done = 0;

	CHECK(carried);
	for (int i = 0; i < 2; i++)
		carriers[i] = to_itself(&pair, carried, carried, NULL);
	while (done < ROUNDS) {
		struct ibv_wc wc;

		if (ibv_poll_cq(carried, 1, &wc) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			is_carried[(wc.wr_id - 1024) / 64] = 1;
			done++;
		}
		if (put_in == ROUNDS || put_in >= done + SLOTS)
			continue;
		if (!wrong && put_in >= SLOTS && !is_carried[put_in - SLOTS])
			continue;
		put(put_in % SLOTS * 64, put_in);
		write_to(&pair, carriers[put_in % 2], put_in % SLOTS * 64, 1024 + 64 * put_in);
		put_in++;
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		/* As `see` does, on the queue pair that wrote it. */
		one_sided(&pair, carriers[i % 2], IBV_WR_RDMA_READ, 2048, 1024 + 64 * i);
		await(carried, 1);
		CHECK(seen(1024 + 64 * i) == i);
	}
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(carriers[i]));
	CHECK(!ibv_destroy_cq(carried));
	end_pair(&pair);
}

static const struct mistake mistakes[] = {
	{"refills-on-timeout", refills_on_timeout},
	{"frees-on-timeout", frees_on_timeout},
	{"recycles-on-timeout", recycles_on_timeout},
	{"one-buffer", one_buffer},
	{"counts-slots", counts_slots},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
