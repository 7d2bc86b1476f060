/* Public bugs of how the ends of a connection tell each other that they are ready, as in corpus.h. */
#include <pthread.h>
#include <semaphore.h>

#include "corpus.h"

/* 16.8 ms, and one more try. */
enum { TIMEOUT = 12, TRIES = 1 };

static sem_t is_ready;

struct end {
	struct ibv_context *context;
	struct ibv_qp *qp;
	uint32_t peer;
};

/* The other end has the number of this one, and makes its queue pair ready. */
static void *be_ready(void *value)
{
	struct end *end = value;

	connect_to(end->qp, end->context, end->peer);
	CHECK(!sem_post(&is_ready));
	return NULL;
}

/* Sends the first message of a connection. Wrong: as soon as its own queue pair is ready. Right: when the peer has said
   that it is. */
static void posts_at_once(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	CHECK(!sem_init(&is_ready, 0, 0));
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
						.cap = {DEPTH, DEPTH, 1, 1, 0}};
		struct ibv_qp *here = ibv_create_qp(pair.pd, &init), *there = ibv_create_qp(pair.pd, &init);
		struct end end = {pair.context, there, here ? here->qp_num : 0};
		pthread_t peer;

		CHECK(here && there);
		connect_with(here, pair.context, there->qp_num, TIMEOUT, TRIES);
		CHECK(!pthread_create(&peer, NULL, be_ready, &end));
		if (!wrong)
			CHECK(!sem_wait(&is_ready));
		write_to(&pair, here, 0, 1024);
		await(pair.cq, 1);
		CHECK(!pthread_join(peer, NULL));
		if (wrong)
			CHECK(!sem_wait(&is_ready));
		CHECK(!ibv_destroy_qp(here) && !ibv_destroy_qp(there));
	}
	end_pair(&pair);
}

static const struct mistake mistakes[] = {
	{"posts-at-once", posts_at_once},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
