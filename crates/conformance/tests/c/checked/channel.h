/* Two queue pairs with a completion channel, and mistakes that never end by themselves. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

/* Whether the check has found something, or notes it. */
static inline int is_found(void)
{
	char path[4096], text[4096];
	DIR *directory = opendir(getenv("TRANSOM_CHECK"));
	struct dirent *entry;
	int found = 0;

	CHECK(directory);
	while (!found && (entry = readdir(directory))) {
		FILE *file;
		size_t length;

		snprintf(path, sizeof(path), "%s/%s", getenv("TRANSOM_CHECK"), entry->d_name);
		file = fopen(path, "r");
		length = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
		text[length] = 0;
		if (file)
			fclose(file);
		found = strstr(text, "\nfinding ") && strstr(text, "\nend\n");
	}
	closedir(directory);
	return found;
}

/* Goes on in a child, and ends it when the check finds something. */
static inline void end_when_found(void)
{
	const pid_t child = fork();

	CHECK(child >= 0);
	/* If there is nothing to find, it waits for ever. */
	if (!child && getenv("BRIEFLY"))
		alarm(1);
	while (child) {
		if (is_found()) {
			CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
			exit(0);
		}
		if (waitpid(child, NULL, WNOHANG) == child)
			exit(0);
		usleep(10000);
	}
}

/* As pair_of, with a channel for the completion queue. */
static inline struct pair pair_with(struct ibv_comp_channel **channel)
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

static inline void arm(struct ibv_cq *cq)
{
	CHECK(!ibv_req_notify_cq(cq, 0));
}

static inline void get_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &cq, &context));
}

static inline void end_with(struct pair *pair, struct ibv_comp_channel *channel)
{
	end_queues(pair);
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_pd(pair->pd) && !ibv_close_device(pair->context));
}

/* A message goes from one end to the other. */
static inline void message(struct pair *pair)
{
	receive_on(pair->ends[1], 2);
	send_on(pair->ends[0], 1, IBV_SEND_SIGNALED);
}
