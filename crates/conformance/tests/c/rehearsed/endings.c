/*
 * Programs that end the work of a queue pair, each with its right form. The first argument names the program, the second
 * its form, wrong or right. A program ends with 0 if all is well.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

enum { COUNT = 4, SENDS = 100, RECEIVES = 200, MESSAGES = 2000, MANY = 8 };

static void fail(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Ends the work of a queue pair, sends and receives. Wrong: takes it for ended when a poll finds nothing more. */
static void drains_once(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	int ended[2] = {0};

	for (int i = 0; i < COUNT; i++)
		receive_on(pair.ends[0], RECEIVES + i);
	fail(pair.ends[0]);
	for (int i = 0; i < COUNT; i++)
		CHECK(!try_write(&pair, SENDS + i, 0));
	for (int found = 1; wrong ? found : ended[0] + ended[1] < 2 * COUNT;) {
		struct ibv_wc wc;

		found = ibv_poll_cq(pair.cq, 1, &wc);
		if (found) {
			const int is_receive = wc.wr_id >= RECEIVES;

			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
			/* Each queue keeps its order. */
			CHECK(wc.wr_id == (is_receive ? RECEIVES : SENDS) + (uint64_t)ended[is_receive]++);
		}
	}
	CHECK(ended[0] == COUNT && ended[1] == COUNT);
	end_pair(&pair);
}

/*
 * Ends the work of one connection, and begins that of another with the same numbers. Wrong: polls until it finds nothing,
 * so what is flushed late is taken for work of the other.
 */
static void reuses_numbers(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, 1, 1, 1, 0}};
	struct ibv_qp *other;
	struct ibv_wc wc;
	int ended = 0;

	for (int i = 0; i < COUNT; i++)
		receive_on(pair.ends[0], i);
	fail(pair.ends[0]);
	for (int found = 1; wrong ? found : ended < COUNT; ended += found)
		found = ibv_poll_cq(pair.cq, 1, &wc);
	/* The other connection, and its messages. */
	other = ibv_create_qp(pair.pd, &init);
	CHECK(other);
	connect_to(other, pair.context, other->qp_num);
	for (int i = 0; i < MESSAGES; i++) {
		receive_on(other, 0);
		marker_on(other, 0);
		for (int left = 2; left; left--) {
			while (!ibv_poll_cq(pair.cq, 1, &wc))
				continue;
			CHECK(wc.wr_id == 0 && wc.status == IBV_WC_SUCCESS);
		}
	}
	CHECK(!ibv_destroy_qp(other));
	end_pair(&pair);
}

/* Takes the next event of a queue pair, and acknowledges it. */
static void hear(struct ibv_context *context, enum ibv_event_type type, const struct ibv_qp *qp)
{
	struct ibv_async_event event;

	CHECK(!ibv_get_async_event(context, &event));
	CHECK(event.event_type == type && event.element.qp == qp);
	ibv_ack_async_event(&event);
}

/* Ends a queue pair of a shared receive queue. Wrong: expects to hear at once that it takes no receive any more. */
static void expects_last(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &shared);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .srq = srq, .qp_type = IBV_QPT_RC,
					.cap = {1, 0, 1, 0, 0}};
	struct ibv_qp *qp;

	CHECK(srq);
	qp = ibv_create_qp(pair.pd, &init);
	CHECK(qp);
	connect_to(qp, pair.context, qp->qp_num);
	if (wrong)
		CHECK(!fcntl(pair.context->async_fd, F_SETFL, O_NONBLOCK));
	fail(qp);
	hear(pair.context, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
	end_pair(&pair);
}

/* How many completions one way to poll finds until it has emptied the queue, as IBA and verbs.h say. */
static int emptied(struct ibv_cq_ex *cq, int way)
{
	struct ibv_poll_cq_attr none = {0};
	struct ibv_wc wc[2 * MANY];
	int got, all = 0;

	if (way == 2) {
		/* Of a batch that has ended, nothing is left. */
		if (ibv_start_poll(cq, &none))
			return 0;
		do
			all++;
		while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
		return all;
	}
	do {
		got = ibv_poll_cq(ibv_cq_ex_to_cq(cq), 2 * MANY, wc);
		CHECK(got >= 0);
		all += got;
	} while (way == 0 ? got > 0 : got == 2 * MANY);
	return all;
}

/*
 * Ends queue pairs of a shared receive queue as IBA 10.3.1 says: to ERR, wait for the last receive, poll until the queue
 * is empty, destroy. Their peer has been told of all messages, so they are there. It has no wrong form.
 */
static void drains_shared(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = MANY, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &shared);
	struct ibv_cq_init_attr_ex queue = {.cqe = 2 * MANY};
	struct ibv_cq_ex *received = ibv_create_cq_ex(pair.context, &queue);

	(void)wrong;
	CHECK(srq && received);
	for (int round = 0; round < 3; round++) {
		struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = ibv_cq_ex_to_cq(received), .srq = srq,
						.qp_type = IBV_QPT_RC, .cap = {MANY, 0, 1, 0, 0}};
		struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);
		struct ibv_recv_wr receive = {.wr_id = RECEIVES}, *bad;

		CHECK(qp);
		connect_to(qp, pair.context, qp->qp_num);
		for (int i = 0; i < MANY; i++)
			CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
		for (int i = 0; i < MANY; i++)
			marker_on(qp, SENDS + i);
		polled(pair.cq, MANY);
		fail(qp);
		hear(pair.context, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
		CHECK(emptied(received, round) == MANY);
		CHECK(!ibv_destroy_qp(qp));
	}
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(ibv_cq_ex_to_cq(received)));
	end_pair(&pair);
}

/* Waits until a send queue is drained, by the event or by queries, and polls until the queue is empty: then nothing more comes. It has no wrong form. */
static void drains_sent(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_attr stop = {.qp_state = IBV_QPS_SQD}, go = {.qp_state = IBV_QPS_RTS}, is;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;

	(void)wrong;
	for (int round = 0; round < MANY; round++) {
		int all = 0, got;

		for (int i = 0; i < COUNT; i++)
			CHECK(!try_write(&pair, SENDS + i, IBV_SEND_SIGNALED));
		stop.en_sqd_async_notify = round % 2;
		CHECK(!ibv_modify_qp(pair.ends[0], &stop, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
		if (round % 2) {
			hear(pair.context, IBV_EVENT_SQ_DRAINED, pair.ends[0]);
		} else {
			do
				CHECK(!ibv_query_qp(pair.ends[0], &is, IBV_QP_STATE, &init));
			while (is.sq_draining);
		}
		while ((got = ibv_poll_cq(pair.cq, 1, &wc)))
			all += got;
		for (int i = 0; i < 100; i++)
			CHECK(!ibv_poll_cq(pair.cq, 1, &wc));
		CHECK(!ibv_modify_qp(pair.ends[0], &go, IBV_QP_STATE));
		polled(pair.cq, COUNT - all);
	}
	end_pair(&pair);
}

/* Destroys a queue pair, and what its receives were for, while it is flushed: nothing comes after that. */
static void destroys_early(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_wc wc;

	(void)wrong;
	for (int i = 0; i < COUNT; i++)
		receive_on(pair.ends[0], i);
	fail(pair.ends[0]);
	CHECK(!ibv_destroy_qp(pair.ends[0]));
	pair.ends[0] = NULL;
	for (int i = 0; i < 1000; i++)
		CHECK(!ibv_poll_cq(pair.cq, 1, &wc));
	end_pair(&pair);
}

/* Destroys a queue pair whose receives were flushed. It expects to find them, and that a new queue pair cannot be taken
   for the old one. It has no wrong form. */
static void finds_the_rest(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, 1, 1, 1, 0}};
	const uint32_t number = pair.ends[0]->qp_num;
	struct ibv_wc wc;

	(void)wrong;
	for (int i = 0; i < COUNT; i++)
		receive_on(pair.ends[0], i);
	fail(pair.ends[0]);
	CHECK(!ibv_destroy_qp(pair.ends[0]));
	pair.ends[0] = ibv_create_qp(pair.pd, &init);
	CHECK(pair.ends[0] && pair.ends[0]->qp_num != number);
	for (uint64_t i = 0; i < COUNT; i++)
		CHECK(ibv_poll_cq(pair.cq, 1, &wc) == 1 && wc.wr_id == i && wc.qp_num == number &&
		      wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_poll_cq(pair.cq, 1, &wc));
	/* None of them has taken room from the new one. */
	connect_to(pair.ends[0], pair.context, pair.ends[0]->qp_num);
	for (int i = 0; i < 2; i++) {
		receive_on(pair.ends[0], i);
		marker_on(pair.ends[0], i);
		polled(pair.cq, 2);
	}
	end_pair(&pair);
}

static const struct mistake mistakes[] = {
	{"drains-once", drains_once},
	{"reuses-numbers", reuses_numbers},
	{"expects-last", expects_last},
	{"drains-shared", drains_shared},
	{"drains-sent", drains_sent},
	{"destroys-early", destroys_early},
	{"finds-the-rest", finds_the_rest},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
