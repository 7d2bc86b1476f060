/* Bugs of kind B: queues that are full, or empty. spec/bugs.md names the programs that had them. The lines that a
   finding names are marked. */
#include "../pair.h"

/* Polls completions too seldom for the depth of the queue, and gives up a request that is refused. */
static void more_than_the_queue_holds(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	int under_way = 0;

	for (int i = 0; i <= DEPTH; i++) {
		if (!wrong && under_way == DEPTH / 2) {
			polled(pair.cq, under_way);
			under_way = 0;
		}
		if (!try_write(&pair, i, IBV_SEND_SIGNALED)) /* here */
			under_way++;
	}
	polled(pair.cq, under_way);
	end_pair(&pair);
}

/* A layer posts as its user says, and the user asks for no completions. */
static void as_the_user_says(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (int i = 0; i < 3 * DEPTH; i++) {
		const int is_signaled = !wrong && i % 4 == 3;

		if (try_write(&pair, i, is_signaled ? IBV_SEND_SIGNALED : 0)) /* here */
			break;
		if (is_signaled)
			polled(pair.cq, 1);
	}
	end_pair(&pair);
}

static void receive_buffer(struct pair *pair, uint64_t id)
{
	struct ibv_sge data = {(uintptr_t)memory + 64 * id, 64, pair->mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = id, .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(pair->ends[1], &receive, &bad)); /* posted by receive_buffer */
}

/* Posts each completed receive again, even a flushed one. */
static void posted_again_in_error(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_wc wc;

	receive_buffer(&pair, 1);
	receive_buffer(&pair, 2);
	/* A SEND is too long for the receive, which ends in an error. */
	struct ibv_sge data = {(uintptr_t)memory + 1024, 65, pair.mr->lkey};
	struct ibv_send_wr send = {.wr_id = 9, .opcode = IBV_WR_SEND, .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_send(pair.ends[0], &send, &bad));
	for (int count = 0; count < 3;) {
		if (!ibv_poll_cq(pair.cq, 1, &wc))
			continue;
		CHECK(wc.status != IBV_WC_SUCCESS);
		count++;
		if (wrong && wc.wr_id == 2)
			receive_buffer(&pair, wc.wr_id); /* here */
	}
	polled(pair.cq, wrong);
	end_pair(&pair);
}

/* Posts more requests than the peer has receives. Each message without a receive waits for the longest time. */
static void deeper_than_the_receives(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_attr longest = {.min_rnr_timer = 0};

	CHECK(!ibv_modify_qp(pair.ends[1], &longest, IBV_QP_MIN_RNR_TIMER));
	receive_on(pair.ends[1], 1);
	if (!wrong)
		receive_on(pair.ends[1], 2);
	for (int i = 0; i < 2; i++)
		send_on(pair.ends[0], 10 + i, IBV_SEND_SIGNALED);
	polled(pair.cq, 2);
	if (wrong)
		receive_on(pair.ends[1], 2); /* here */
	polled(pair.cq, 2);
	end_pair(&pair);
}

/* Connects a queue pair again, whose receives were lost with the state RESET. */
static void reset_without_receives(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	receive_on(pair.ends[1], 1);
	CHECK(!ibv_modify_qp(pair.ends[0], &reset, IBV_QP_STATE));
	CHECK(!ibv_modify_qp(pair.ends[1], &reset, IBV_QP_STATE)); /* here */
	for (int i = 0; i < 2; i++)
		connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	if (!wrong)
		receive_on(pair.ends[1], 1);
	send_on(pair.ends[0], 2, IBV_SEND_SIGNALED);
	if (wrong)
		ibv_poll_cq(pair.cq, 0, NULL);
	else
		polled(pair.cq, 2);
	end_pair(&pair);
}

/* Posts two receives for each slot, but the queue has room for one. */
static void twice_the_receives(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, 5, 1, 1, 0}};

	CHECK(!ibv_destroy_qp(pair.ends[1]));
	pair.ends[1] = ibv_create_qp(pair.pd, &init);
	CHECK(pair.ends[1]);
	connect_to(pair.ends[1], pair.context, pair.ends[0]->qp_num);
	for (int slot = 0; slot < 4; slot++) {
		struct ibv_recv_wr receive = {.wr_id = slot}, *bad;

		for (int i = 0; i <= wrong; i++)
			ibv_post_recv(pair.ends[1], &receive, &bad); /* here */
	}
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"more-than-the-queue-holds", more_than_the_queue_holds},
		{"as-the-user-says", as_the_user_says},
		{"posted-again-in-error", posted_again_in_error},
		{"deeper-than-the-receives", deeper_than_the_receives},
		{"reset-without-receives", reset_without_receives},
		{"twice-the-receives", twice_the_receives},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
