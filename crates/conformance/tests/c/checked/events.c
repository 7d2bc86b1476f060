/* Mistakes with events. Each mistake has a correct twin. The first argument names the mistake, the second is "wrong" or
   "right". Lines that a finding names are marked. */
#include <pthread.h>

#include "channel.h"

/* The receive is completed before the queue is asked for an event: an adapter need not raise one. Each round is a new
   chance to be found: nothing is said of a thread that is kept from its processor between the two calls. */
static void sleeps_on_completions(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct ibv_wc wc;

	for (int i = 0; i < 20; i++) {
		if (!wrong)
			arm(pair.cq);
		message(&pair);
		if (wrong)
			arm(pair.cq); /* armed */
		get_event(channel); /* sleeps */
		ibv_ack_cq_events(pair.cq, 1);
		while (ibv_poll_cq(pair.cq, 1, &wc) > 0)
			continue;
	}
	end_with(&pair, channel);
}

static void never_armed(int wrong)
{
	if (wrong)
		end_when_found();

	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);

	if (!wrong)
		arm(pair.cq);
	message(&pair);
	get_event(channel); /* sleeps */
	ibv_ack_cq_events(pair.cq, 1);
	polled(pair.cq, 2);
	end_with(&pair, channel);
}

static void own_ack(int wrong)
{
	if (wrong)
		end_when_found();

	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);

	arm(pair.cq);
	message(&pair);
	get_event(channel); /* got */
	polled(pair.cq, 2);
	if (!wrong)
		ibv_ack_cq_events(pair.cq, 1);
	end_queues(&pair); /* waits */
	CHECK(!wrong && !ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_pd(pair.pd) && !ibv_close_device(pair.context));
}

static void *sleeps_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* Another thread is there, and does not know of the event. */
static void own_ack_beside_a_thread(int wrong)
{
	if (wrong)
		end_when_found();

	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, sleeps_for_ever, NULL));
	arm(pair.cq);
	message(&pair);
	get_event(channel); /* own */
	polled(pair.cq, 2);
	if (!wrong)
		ibv_ack_cq_events(pair.cq, 1);
	end_with(&pair, channel); /* own */
}

static void *ends_queues(void *pair)
{
	end_queues(pair);
	return NULL;
}

/* Another thread ends the queue while this one has the event. */
static void waits_for_ack(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	pthread_t thread;

	arm(pair.cq);
	message(&pair);
	get_event(channel); /* got */
	polled(pair.cq, 2);
	if (!wrong)
		ibv_ack_cq_events(pair.cq, 1);
	CHECK(!pthread_create(&thread, NULL, ends_queues, &pair));
	if (wrong) {
		usleep(1300000);
		ibv_ack_cq_events(pair.cq, 1);
	}
	CHECK(!pthread_join(thread, NULL));
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pair.pd) && !ibv_close_device(pair.context));
}

static void never_acked(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);

	arm(pair.cq);
	message(&pair);
	get_event(channel); /* got */
	polled(pair.cq, 2);
	if (wrong)
		exit(0);
	ibv_ack_cq_events(pair.cq, 1);
	end_with(&pair, channel);
}

static void acked_too_much(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);

	arm(pair.cq);
	message(&pair);
	get_event(channel);
	polled(pair.cq, 2);
	ibv_ack_cq_events(pair.cq, wrong ? 2 : 1); /* acknowledged */
	end_with(&pair, channel);
}

static void fail(struct pair *pair)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair->remote_key ^= 0x100;
	CHECK(!try_write(pair, 1, IBV_SEND_SIGNALED));
	do
		CHECK(!ibv_query_qp(pair->ends[0], &attr, IBV_QP_STATE, &init));
	while (attr.qp_state != IBV_QPS_ERR);
}

static void error_unread(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_async_event event;

	fail(&pair); /* posted */
	if (!wrong)
		polled(pair.cq, 1);
	CHECK(!ibv_get_async_event(pair.context, &event));
	ibv_ack_async_event(&event);
	end_pair(&pair); /* destroyed */
}

/* The program closes the device, and destroys nothing. */
static void error_unread_at_close(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_async_event event;

	fail(&pair); /* unread */
	if (!wrong)
		polled(pair.cq, 1);
	CHECK(!ibv_get_async_event(pair.context, &event));
	ibv_ack_async_event(&event);
	CHECK(!ibv_close_device(pair.context)); /* unread */
}

static void async_unread(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_async_event event;

	fail(&pair);
	polled(pair.cq, 1);
	if (!wrong) {
		CHECK(!ibv_get_async_event(pair.context, &event));
		ibv_ack_async_event(&event);
	}
	end_pair(&pair); /* destroyed */
}

static void leaves(int number)
{
	CHECK(number == SIGTERM);
	exit(0);
}

/* The process ends in the handler of a signal. */
static void error_unread_at_exit(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_async_event event;

	fail(&pair); /* posted */
	if (!wrong)
		polled(pair.cq, 1);
	CHECK(!ibv_get_async_event(pair.context, &event));
	ibv_ack_async_event(&event);
	CHECK(signal(SIGTERM, leaves) != SIG_ERR && !raise(SIGTERM));
}

/* The process just exits. */
static void async_unread_at_exit(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_async_event event;

	fail(&pair);
	polled(pair.cq, 1);
	if (!wrong) {
		CHECK(!ibv_get_async_event(pair.context, &event));
		ibv_ack_async_event(&event);
	}
	exit(0);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"sleeps-on-completions", sleeps_on_completions},
		{"never-armed", never_armed},
		{"own-ack", own_ack},
		{"own-ack-beside-a-thread", own_ack_beside_a_thread},
		{"waits-for-ack", waits_for_ack},
		{"never-acked", never_acked},
		{"acked-too-much", acked_too_much},
		{"error-unread", error_unread},
		{"error-unread-at-close", error_unread_at_close},
		{"async-unread", async_unread},
		{"error-unread-at-exit", error_unread_at_exit},
		{"async-unread-at-exit", async_unread_at_exit},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
