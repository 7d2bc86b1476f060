/* Public bugs of programs that take for granted what their first adapter gives. */
#include <sys/mman.h>

#include "corpus.h"

/* Makes a queue pair for inline data. Wrong: for as much as the default says, and for nothing else. */
static void inline_by_default(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {4, 4, 1, 1, 220}};
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

	while (!qp && !wrong && init.cap.max_inline_data) {
		init.cap = (struct ibv_qp_cap){4, 4, 1, 1, init.cap.max_inline_data / 2};
		qp = ibv_create_qp(pair.pd, &init);
	}
	CHECK(qp && !ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* The most inline data that queue pairs of a type have, by trying. */
static uint32_t most_inline(struct pair *pair, enum ibv_qp_type type)
{
	for (uint32_t bytes = 1024; bytes; bytes -= 4) {
		struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = type,
						.cap = {4, 4, 1, 1, bytes}};
		struct ibv_qp *qp = ibv_create_qp(pair->pd, &init);

		if (qp) {
			CHECK(!ibv_destroy_qp(qp));
			return bytes;
		}
	}
	return 0;
}

/* Makes a queue pair with as much inline data as there can be. Wrong: tries that with another type. */
static void inline_of_another(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {4, 4, 1, 1, most_inline(&pair, wrong ? IBV_QPT_UD : IBV_QPT_RC)}};
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

	CHECK(qp && !ibv_destroy_qp(qp));
	end_pair(&pair);
}

static struct ibv_device_attr attributes(struct pair *pair)
{
	struct ibv_device_attr attr;

	CHECK(!ibv_query_device(pair->context, &attr));
	return attr;
}

static int less(int wanted, int most)
{
	return wanted < most ? wanted : most;
}

/* Makes a completion queue for all peers. Wrong: as long as their number says, whatever the device has. */
static void one_for_all(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const int wanted = 256 * 1024;
	struct ibv_cq *cq = ibv_create_cq(pair.context, wrong ? wanted : less(wanted, attributes(&pair).max_cqe), NULL,
					  NULL, 0);

	CHECK(cq && !ibv_destroy_cq(cq));
	end_pair(&pair);
}

/* Has as many READs under way as the peer can answer. Wrong: without asking how many its own device can begin. */
static void reads_of_the_peer(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	const int of_the_peer = 64;

	CHECK(!ibv_modify_qp(pair.ends[0], &attr, IBV_QP_STATE));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
	CHECK(!ibv_modify_qp(pair.ends[0], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							  IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = pair.ends[1]->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1}};
	CHECK(!ibv_query_gid(pair.context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(pair.ends[0], &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
							  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
							  IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	attr.max_rd_atomic = wrong ? of_the_peer : less(of_the_peer, attributes(&pair).max_qp_init_rd_atom);
	CHECK(!ibv_modify_qp(pair.ends[0], &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	end_pair(&pair);
}

/* Makes room for one more connection in its completion queue. Wrong: only by a new size. */
static void grows_a_queue(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *cq = ibv_create_cq(pair.context, 4, NULL, NULL, 0), *another = NULL;
	struct ibv_qp *qp;

	CHECK(cq);
	if (ibv_resize_cq(cq, 4 * DEPTH)) {
		CHECK(!wrong);
		another = ibv_create_cq(pair.context, 4 * DEPTH, NULL, NULL, 0);
		CHECK(another);
	}
	qp = to_itself(&pair, another ? another : cq, another ? another : cq, NULL);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && (!another || !ibv_destroy_cq(another)));
	end_pair(&pair);
}

/* Registers a large pool, and has a peer write to its end. Wrong: registers what a region of the device can have, and
   gives its key for all of the pool. */
static void one_region(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const size_t length = (size_t)3 << 39, most = attributes(&pair).max_mr_size;
	const size_t first = length < most ? length : most, from = wrong ? 0 : (length - 1) / first * first;
	const size_t part = length - from < first ? length - from : first;
	char *pool = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_sge data = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
				    .num_sge = 1}, *bad;
	struct ibv_mr *mr;

	CHECK(pool != MAP_FAILED);
	mr = ibv_reg_mr(pair.pd, pool + from, part, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	write.wr.rdma.remote_addr = (uintptr_t)pool + length - 8;
	write.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
	await(pair.cq, 1);
	CHECK(!ibv_dereg_mr(mr) && !munmap(pool, length));
	end_pair(&pair);
}

static const struct mistake mistakes[] = {
	{"inline-by-default", inline_by_default},
	{"inline-of-another", inline_of_another},
	{"one-for-all", one_for_all},
	{"reads-of-the-peer", reads_of_the_peer},
	{"grows-a-queue", grows_a_queue},
	{"one-region", one_region},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
