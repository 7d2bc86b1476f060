/* Public bugs of what is torn down while completions are still to come. */
#include "corpus.h"

enum { REQUESTS = 4, CONNECTIONS = 6 };

/* Ends a connection, and gives its requests to the next one. Wrong: as soon as a poll finds no more completions. */
static void drains_once(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp *connections[CONNECTIONS];
	uint32_t owners[REQUESTS];

	for (int i = 0; i < CONNECTIONS; i++) {
		struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};
		int left = REQUESTS;

		connections[i] = to_itself(&pair, pair.cq, pair.cq, NULL);
		for (unsigned request = 0; request < REQUESTS; request++) {
			owners[request] = connections[i]->qp_num;
			receive_on(connections[i], request);
		}
		CHECK(!ibv_modify_qp(connections[i], &failed, IBV_QP_STATE));
		while (left) {
			struct ibv_wc wc[REQUESTS];
			const int count = ibv_poll_cq(pair.cq, REQUESTS, wc);

			if (!count && wrong)
				break;
			for (int got = 0; got < count; got++)
				CHECK(owners[wc[got].wr_id] == wc[got].qp_num);
			left -= count;
		}
	}
	for (int i = 0; i < CONNECTIONS; i++)
		CHECK(!ibv_destroy_qp(connections[i]));
	end_pair(&pair);
}

/* Evicts an endpoint on which nothing has completed. Wrong: takes its queue pair down, to which another thread posts. */
static void evicts_busy(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (int i = 0; i < CONNECTIONS; i++) {
		struct ibv_qp *qp = to_itself(&pair, pair.cq, pair.cq, NULL);
		struct ibv_qp_attr down = {.qp_state = IBV_QPS_RESET};
		int is_evicted;

		write_to(&pair, qp, 0, 1024);
		is_evicted = !in_time(pair.cq);
		if (is_evicted && wrong)
			CHECK(!ibv_modify_qp(qp, &down, IBV_QP_STATE));
		else
			await(pair.cq, is_evicted ? 1 : 0);
		write_to(&pair, qp, 0, 1024);
		await(pair.cq, 1);
		CHECK(!ibv_destroy_qp(qp));
	}
	end_pair(&pair);
}

/* Begins a new connection on the completion queue of one that has ended. Wrong: takes the next completion for one of the
   new connection. Right: has polled all of the old one before. */
static void leaves_some(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (int i = 0; i < CONNECTIONS; i++) {
		struct ibv_qp *qp = to_itself(&pair, pair.cq, pair.cq, NULL);
		struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};

		write_to(&pair, qp, 0, 1024);
		await(pair.cq, 1);
		for (unsigned request = 0; request < REQUESTS; request++)
			receive_on(qp, request);
		CHECK(!ibv_modify_qp(qp, &failed, IBV_QP_STATE));
		if (!wrong)
			polled(pair.cq, REQUESTS);
		CHECK(!ibv_destroy_qp(qp));
	}
	end_pair(&pair);
}

static const struct mistake mistakes[] = {
	{"drains-once", drains_once},
	{"evicts-busy", evicts_busy},
	{"leaves-some", leaves_some},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
