/*
 * Public bugs of programs that run on several hosts. The second host is the network namespace whose path is in the
 * environment.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "corpus.h"

enum { PEERS = 2, SECONDS = 4 };

/* What two ends tell each other. */
struct end {
	uint32_t number;
	union ibv_gid gid;
};

static struct pair opened(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct pair pair = {0};

	CHECK(devices && devices[0]);
	pair.context = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	CHECK(pair.context);
	pair.pd = ibv_alloc_pd(pair.context);
	pair.cq = ibv_create_cq(pair.context, DEPTH, NULL, NULL, 0);
	CHECK(pair.pd && pair.cq);
	pair.mr = ibv_reg_mr(pair.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pair.mr);
	return pair;
}

static struct ibv_qp *queue_pair(struct pair *pair, struct end *end, int *index)
{
	struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pair->pd, &init);

	CHECK(qp);
	end->number = qp->qp_num;
	/* The first address by IPv4 that others reach. */
	for (*index = 0;; ++*index) {
		CHECK(!ibv_query_gid(pair->context, 1, *index, &end->gid));
		if (end->gid.raw[10] == 0xff && end->gid.raw[12] != 127)
			return qp;
	}
}

static void meet(struct ibv_qp *qp, const struct end *peer, int index)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->number,
				    .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				    .ah_attr = {.is_global = 1, .port_num = 1,
						.grh = {.dgid = peer->gid, .sgid_index = index, .hop_limit = 1}}};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				    .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Waits for a completion, but not for ever: its peer may be gone. No peer has ended by now but one that has failed. */
static void await_for_seconds(struct ibv_cq *cq)
{
	const time_t end = time(NULL) + SECONDS;
	struct ibv_wc wc;
	int count;

	while (!(count = ibv_poll_cq(cq, 1, &wc)))
		CHECK(time(NULL) < end && waitpid(-1, NULL, WNOHANG) <= 0);
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
}

static void say(int to, const void *bytes, size_t length)
{
	CHECK(write(to, bytes, length) == (ssize_t)length);
}

static void hear(int from, void *bytes, size_t length)
{
	CHECK(read(from, bytes, length) == (ssize_t)length);
}

/* One of the peers, which gets its name in a message. */
static void peer(uint64_t name, int from, int to)
{
	struct end own, server;
	struct pair pair;
	struct ibv_qp *qp;
	int index;

	if (name == 1) {
		const int host = open(getenv("OTHER_HOST"), O_RDONLY | O_CLOEXEC);

		CHECK(host >= 0 && !setns(host, CLONE_NEWNET));
	}
	pair = opened();
	qp = queue_pair(&pair, &own, &index);
	say(to, &own, sizeof(own));
	hear(from, &server, sizeof(server));
	meet(qp, &server, index);
	{
		struct ibv_sge place = {(uintptr_t)memory, 8, pair.mr->lkey};
		struct ibv_recv_wr receive = {.sg_list = &place, .num_sge = 1}, *bad;

		CHECK(!ibv_post_recv(qp, &receive, &bad));
	}
	say(to, "", 1);
	await_for_seconds(pair.cq);
	CHECK(seen(0) == name);
	/* The server may still wait for the answer. */
	hear(from, &server, 1);
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Sends each peer its name. Wrong: knows the peers by the numbers of their queue pairs, which two hosts may both have. */
static void by_number(int wrong)
{
	int to[PEERS], from[PEERS], index;
	struct ibv_qp *qps[PEERS];
	struct end peers[PEERS], own;
	pid_t children[PEERS];
	struct pair pair;
	int status;

	for (int i = 0; i < PEERS; i++) {
		int down[2], up[2];

		CHECK(!pipe2(down, O_CLOEXEC) && !pipe2(up, O_CLOEXEC));
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (!children[i]) {
			close(down[1]);
			close(up[0]);
			peer(i, down[0], up[1]);
			exit(0);
		}
		close(down[0]);
		close(up[1]);
		to[i] = down[1];
		from[i] = up[0];
		/* So each is the first of its host. */
		hear(from[i], &peers[i], sizeof(peers[i]));
	}
	pair = opened();
	for (int i = 0; i < PEERS; i++) {
		char is_ready;

		qps[i] = queue_pair(&pair, &own, &index);
		meet(qps[i], &peers[i], index);
		say(to[i], &own, sizeof(own));
		hear(from[i], &is_ready, 1);
	}
	for (uint64_t i = 0; i < PEERS; i++) {
		struct ibv_sge data = {(uintptr_t)memory, 8, pair.mr->lkey};
		struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
					   .num_sge = 1}, *bad;
		int by = i;

		/* The last connection with this number. */
		for (int other = i + 1; wrong && other < PEERS; other++)
			if (peers[other].number == peers[i].number)
				by = other;
		put(0, i);
		CHECK(!ibv_post_send(qps[by], &send, &bad));
		await_for_seconds(pair.cq);
	}
	for (int i = 0; i < PEERS; i++) {
		say(to[i], "", 1);
		CHECK(waitpid(children[i], &status, 0) == children[i] && !status);
		CHECK(!ibv_destroy_qp(qps[i]));
	}
	end_queues(&pair);
	CHECK(!ibv_dealloc_pd(pair.pd) && !ibv_close_device(pair.context));
}

static const struct mistake mistakes[] = {
	{"by-number", by_number},
};

int main(int argc, char **argv)
{
	/* Who has ended hears nothing more. */
	signal(SIGPIPE, SIG_IGN);
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
