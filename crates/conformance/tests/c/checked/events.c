/* What programs do wrong with events. Each mistake has a correct twin. The first argument names the mistake, the second is
   "wrong" or "right". Lines that a finding names are marked. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

/* The rest goes on in a child, which is ended when something is found. */
static void end_when_found(void)
{
	const pid_t child = fork();

	CHECK(child >= 0);
	while (child) {
		char path[4096], text[4096];
		DIR *directory = opendir(getenv("TRANSOM_CHECK"));
		struct dirent *entry;

		CHECK(directory);
		while ((entry = readdir(directory))) {
			FILE *file;
			size_t length;

			snprintf(path, sizeof(path), "%s/%s", getenv("TRANSOM_CHECK"), entry->d_name);
			file = fopen(path, "r");
			length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
			text[length] = 0;
			if (file)
				fclose(file);
			if (strstr(text, "\nfinding ") && strstr(text, "\nend\n")) {
				CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
				exit(0);
			}
		}
		closedir(directory);
		usleep(10000);
	}
}

/* As of pair_of, with a channel for the completion queue. */
static struct pair pair_with(struct ibv_comp_channel **channel)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *cq = pair.cq;

	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	CHECK(!ibv_destroy_cq(cq));
	*channel = ibv_create_comp_channel(pair.context);
	CHECK(*channel);
	pair.cq = ibv_create_cq(pair.context, 4 * DEPTH, NULL, *channel, 0);
	CHECK(pair.cq);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
						.cap = {DEPTH, DEPTH, 1, 1, 0}};

		pair.ends[i] = ibv_create_qp(pair.pd, &init);
		CHECK(pair.ends[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	return pair;
}

static void arm(struct ibv_cq *cq)
{
	CHECK(!ibv_req_notify_cq(cq, 0));
}

static void get_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &cq, &context));
}

static void end_with(struct pair *pair, struct ibv_comp_channel *channel)
{
	end_queues(pair);
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_pd(pair->pd) && !ibv_close_device(pair->context));
}

/* A message goes from one end to the other. */
static void message(struct pair *pair)
{
	receive_on(pair->ends[1], 2);
	send_on(pair->ends[0], 1, IBV_SEND_SIGNALED);
}

/* The receive is completed before the queue is asked for an event: an adapter raises none. */
static void sleeps_on_completions(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct ibv_wc wc;

	if (!wrong)
		arm(pair.cq);
	message(&pair);
	if (wrong)
		arm(pair.cq); /* armed */
	get_event(channel); /* sleeps */
	ibv_ack_cq_events(pair.cq, 1);
	while (ibv_poll_cq(pair.cq, 1, &wc) > 0)
		continue;
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

static void *acknowledges_late(void *cq)
{
	usleep(1300000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void waits_for_ack(int wrong)
{
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	pthread_t thread;

	arm(pair.cq);
	message(&pair);
	get_event(channel); /* got */
	polled(pair.cq, 2);
	if (wrong)
		CHECK(!pthread_create(&thread, NULL, acknowledges_late, pair.cq));
	else
		ibv_ack_cq_events(pair.cq, 1);
	end_with(&pair, channel); /* waits */
	CHECK(!wrong || !pthread_join(thread, NULL));
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

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"sleeps-on-completions", sleeps_on_completions},
		{"never-armed", never_armed},
		{"own-ack", own_ack},
		{"waits-for-ack", waits_for_ack},
		{"never-acked", never_acked},
		{"acked-too-much", acked_too_much},
		{"error-unread", error_unread},
		{"async-unread", async_unread},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
