/* Bugs of kinds A and I: objects that end too early, or never. spec/bugs.md names the programs that had them. The lines
   that a finding names are marked. */
#include "../channel.h"

static struct ibv_qp *queue_pair_of(struct pair *pair, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .srq = srq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH / 4, DEPTH / 4, 1, 1, 0}};

	return ibv_create_qp(pair->pd, &init);
}

static struct ibv_srq *shared_by(struct pair *pair)
{
	struct ibv_srq_init_attr init = {.attr = {DEPTH, 1, 0}};
	struct ibv_srq *srq = ibv_create_srq(pair->pd, &init);

	CHECK(srq);
	return srq;
}

static void channel_before_queue(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);

	if (wrong)
		CHECK(ibv_destroy_comp_channel(channel) == EBUSY); /* here */
	end_queues(&pair);
	CHECK(wrong || !ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_pd(pair.pd) && !ibv_close_device(pair.context));
}

static void domain_before_queue_pair(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	CHECK(!ibv_dereg_mr(pair.mr));
	if (wrong)
		CHECK(ibv_dealloc_pd(pair.pd) == EBUSY); /* here */
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	CHECK(wrong || !ibv_dealloc_pd(pair.pd));
	CHECK(!ibv_destroy_cq(pair.cq) && !ibv_close_device(pair.context));
}

static void queue_before_queue_pair(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	if (wrong)
		CHECK(ibv_destroy_cq(pair.cq) == EBUSY); /* here */
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	CHECK(wrong || !ibv_destroy_cq(pair.cq));
	CHECK(!ibv_dereg_mr(pair.mr) && !ibv_dealloc_pd(pair.pd) && !ibv_close_device(pair.context));
}

/* Destroys a queue pair only when an event reports the end of its last receive. Not every adapter raises the event. */
static void waits_for_last_receive(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq *srq = shared_by(&pair);
	const int is_last_reached = !wrong;

	CHECK(!ibv_destroy_qp(pair.ends[0]));
	pair.ends[0] = queue_pair_of(&pair, srq); /* here */
	CHECK(pair.ends[0] && !ibv_destroy_qp(pair.ends[1]));
	pair.ends[1] = NULL;
	if (!is_last_reached)
		return;
	CHECK(!ibv_destroy_qp(pair.ends[0]) && !ibv_destroy_srq(srq));
	pair.ends[0] = NULL;
	end_pair(&pair);
}

/* Destroys a queue pair without the state ERR first. So nobody learns the fate of its requests and shared receives. */
static void destroyed_with_work(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq *srq = shared_by(&pair);
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_recv_wr receive = {.wr_id = 9}, *bad;

	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(pair.ends[i]));
		pair.ends[i] = queue_pair_of(&pair, srq);
		CHECK(pair.ends[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	for (int i = 0; i < 3 && !wrong; i++)
		CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
	for (int i = 0; i < 3; i++)
		send_on(pair.ends[0], i, IBV_SEND_SIGNALED); /* here */
	if (!wrong) {
		CHECK(!ibv_modify_qp(pair.ends[0], &error, IBV_QP_STATE));
		polled(pair.cq, 6);
	}
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(pair.ends[i])); /* here */
		pair.ends[i] = NULL;
	}
	CHECK(!ibv_destroy_srq(srq));
	end_pair(&pair);
}

/* Each attempt to connect makes a queue pair. An attempt that fails forgets it. */
static void lost_on_failure(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	CHECK(!ibv_destroy_qp(pair.ends[0]));
	pair.ends[0] = NULL;
	for (int i = 0; i < 3; i++) {
		struct ibv_qp *qp = queue_pair_of(&pair, NULL); /* here */
		const int is_connected = 0;

		CHECK(qp);
		if (!is_connected && !wrong)
			CHECK(!ibv_destroy_qp(qp));
	}
	if (!wrong) {
		end_pair(&pair);
		return;
	}
	CHECK(!ibv_destroy_qp(pair.ends[1]) && !ibv_dereg_mr(pair.mr) && !ibv_close_device(pair.context));
}

/* Takes a connection out of the table, so its queue pair is not destroyed with the table later. */
static void removed_from_table(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp *table[2] = {pair.ends[0], pair.ends[1]};

	if (wrong)
		table[0] = NULL;
	for (int i = 0; i < 2; i++)
		CHECK(!table[i] || !ibv_destroy_qp(table[i]));
	CHECK(ibv_destroy_cq(pair.cq) == (wrong ? EBUSY : 0)); /* here */
	CHECK(!ibv_dereg_mr(pair.mr) && ibv_dealloc_pd(pair.pd) == (wrong ? EBUSY : 0));
	CHECK(!ibv_close_device(pair.context));
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"channel-before-queue", channel_before_queue},
		{"domain-before-queue-pair", domain_before_queue_pair},
		{"queue-before-queue-pair", queue_before_queue_pair},
		{"waits-for-last-receive", waits_for_last_receive},
		{"destroyed-with-work", destroyed_with_work},
		{"lost-on-failure", lost_on_failure},
		{"removed-from-table", removed_from_table},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
