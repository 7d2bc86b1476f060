/* Two queue pairs of one process, connected to each other, for programs that make mistakes with them. */
#include <infiniband/verbs.h>
#include <string.h>

#include "../check.h"

enum { DEPTH = 16 };

struct pair {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *ends[2];
	uint32_t remote_key;
};

/* A page of its own, so that a child may be made. */
static char memory[4096] __attribute__((aligned(4096)));

/* Connects a queue pair, which waits so long for an answer (4.096 us << timeout), and tries so often again. */
static inline void connect_with(struct ibv_qp *qp, struct ibv_context *context, uint32_t peer, uint8_t timeout,
				uint8_t retries)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
				    .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1}};
	CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = retries, .rnr_retry = 7,
				    .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void connect_to(struct ibv_qp *qp, struct ibv_context *context, uint32_t peer)
{
	connect_with(qp, context, peer, 14, 7);
}

static inline struct pair pair_of(enum ibv_qp_type type)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct pair pair = {0};

	CHECK(devices && devices[0]);
	pair.context = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	CHECK(pair.context);
	pair.pd = ibv_alloc_pd(pair.context);
	pair.cq = ibv_create_cq(pair.context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(pair.pd && pair.cq);
	pair.mr = ibv_reg_mr(pair.pd, memory, sizeof(memory),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(pair.mr);
	pair.remote_key = pair.mr->rkey;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = type,
						.cap = {DEPTH, DEPTH, 1, 1, 0}};

		pair.ends[i] = ibv_create_qp(pair.pd, &init);
		CHECK(pair.ends[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	return pair;
}

static inline void end_queues(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		CHECK(!pair->ends[i] || !ibv_destroy_qp(pair->ends[i])); /* destroyed by end_queues */
	CHECK(!ibv_destroy_cq(pair->cq) && !ibv_dereg_mr(pair->mr));
}

static inline void end_pair(struct pair *pair)
{
	end_queues(pair);
	CHECK(!ibv_dealloc_pd(pair->pd) && !ibv_close_device(pair->context));
}

static inline void send_on(struct ibv_qp *qp, uint64_t id, int flags)
{
	struct ibv_send_wr send = {.wr_id = id, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;

	CHECK(!ibv_post_send(qp, &send, &bad)); /* posted by send_on */
}

/* A request without data. */
static inline void marker_on(struct ibv_qp *qp, uint64_t id)
{
	send_on(qp, id, IBV_SEND_SIGNALED);
}

static inline void receive_on(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_recv_wr receive = {.wr_id = id}, *bad;

	CHECK(!ibv_post_recv(qp, &receive, &bad));
}

static inline int try_write(struct pair *pair, uint64_t id, int flags)
{
	struct ibv_sge data = {(uintptr_t)memory, 8, pair->mr->lkey};
	struct ibv_send_wr write = {.wr_id = id, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags, .sg_list = &data,
				    .num_sge = 1, .wr.rdma = {(uintptr_t)memory + 64, pair->remote_key}}, *bad;

	return ibv_post_send(pair->ends[0], &write, &bad); /* posted by try_write */
}

/* Waits for this many completions. */
static inline void polled(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count > 0) {
		const int got = ibv_poll_cq(cq, 1, &wc);

		CHECK(got >= 0);
		count -= got;
	}
}

/* A mistake, in its wrong form and in its right one. */
struct mistake {
	const char *name;
	void (*make)(int wrong);
};

/* Makes the mistake of the first argument, in the form of the second one. */
static inline int made(const struct mistake *all, size_t count, int arguments, char **words)
{
	CHECK(arguments == 3);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(all[i].name, words[1]))
			continue;
		all[i].make(!strcmp(words[2], "wrong"));
		return 0;
	}
	return 2;
}
