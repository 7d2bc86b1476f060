/* Public bugs of programs that take one sign for another. */
#include <pthread.h>

#include "corpus.h"

/* An end with a completion queue for what it sends and one for what it receives, and room for one request. */
struct end {
	struct ibv_cq *sent, *received;
	struct ibv_qp *qp;
};

static struct end end_of(struct pair *pair)
{
	struct end end = {ibv_create_cq(pair->context, 4, NULL, NULL, 0), ibv_create_cq(pair->context, 4, NULL, NULL, 0),
			  NULL};
	struct ibv_qp_init_attr init = {.send_cq = end.sent, .recv_cq = end.received, .qp_type = IBV_QPT_RC,
					.cap = {1, 4, 1, 1, 0}};

	CHECK(end.sent && end.received);
	end.qp = ibv_create_qp(pair->pd, &init);
	CHECK(end.qp);
	return end;
}

static void destroy(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_cq(end->sent) && !ibv_destroy_cq(end->received));
}

/* Waits for a message, which comes from this end. */
static void await_message(struct end *from, struct end *to)
{
	struct ibv_wc wc;
	int got;

	do {
		got = ibv_poll_cq(to->received, 1, &wc);
		look_at(from->qp);
	} while (!got);
	CHECK(got == 1 && wc.status == IBV_WC_SUCCESS);
}

/* Asks again when the reply has come. Wrong: takes the reply for a sign that the request's place is free, and looks for
   its completion only once. */
static void counts_replies(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct end client = end_of(&pair), server = end_of(&pair);
	struct ibv_wc wc;

	connect_to(client.qp, pair.context, server.qp->qp_num);
	connect_to(server.qp, pair.context, client.qp->qp_num);
	for (int round = 0; round < ROUNDS; round++) {
		receive_on(client.qp, 1);
		receive_on(server.qp, 1);
		marker_on(client.qp, 2);
		await_message(&client, &server);
		marker_on(server.qp, 2);
		await(server.sent, 1);
		await_message(&server, &client);
		if (wrong)
			CHECK(ibv_poll_cq(client.sent, 1, &wc) >= 0);
		else
			await(client.sent, 1);
	}
	destroy(&client);
	destroy(&server);
	end_pair(&pair);
}

/* Brings data, and then a flag that says so. Wrong: by two queue pairs. */
static void flag_by_another(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC), other = pair_of(IBV_QPT_RC);

	for (unsigned round = 1; round <= ROUNDS; round++) {
		put(0, round);
		write_to(&pair, pair.ends[0], 0, 1024);
		if (wrong)
			write_to(&other, other.ends[0], 0, 2048);
		else
			write_to(&pair, pair.ends[0], 0, 2048);
		while (seen(2048) != round) {
			look_at(pair.ends[0]);
			look_at(other.ends[0]);
		}
		CHECK(seen(1024) == round);
		await(pair.cq, wrong ? 1 : 2);
		await(other.cq, wrong ? 1 : 0);
	}
	end_pair(&pair);
	end_pair(&other);
}

/* Has requests under way on two queue pairs of one completion queue. Wrong: takes the first completion for that of the
   first post. */
static void first_for_first(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_wc wc[2];
		int count = 0;

		for (unsigned i = 0; i < 2; i++)
			write_to(&pair, pair.ends[i], 0, 1024 + 64 * i);
		while (count < 2) {
			const int got = ibv_poll_cq(pair.cq, 2 - count, wc + count);

			CHECK(got >= 0);
			count += got;
		}
		for (unsigned i = 0; i < 2; i++) {
			const struct ibv_wc *its = wc + i;

			if (!wrong && its->wr_id != 1024 + 64 * i)
				its = wc + !i;
			CHECK(its->status == IBV_WC_SUCCESS && its->wr_id == 1024 + 64 * i);
		}
	}
	end_pair(&pair);
}

/* Tells its user that data has arrived. Wrong: before the completion of the WRITE. */
static void told_too_early(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (unsigned round = 1; round <= ROUNDS; round++) {
		put(0, round);
		write_to(&pair, pair.ends[0], 0, 1024);
		if (wrong)
			CHECK(seen(1024) == round);
		await(pair.cq, 1);
		see(&pair, pair.ends[0], 1024);
		CHECK(seen(1024) == round);
	}
	end_pair(&pair);
}

/* Brings a message. Wrong: takes its last byte for a sign that all of it is there. */
static void last_byte(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const volatile char *last = memory + 1024 + 7;

	for (char round = 1; round <= ROUNDS; round++) {
		const uint64_t message = 0x0101010101010101ull * round;
		int is_whole;

		put(0, message);
		write_to(&pair, pair.ends[0], 0, 1024);
		while (wrong && *last != round)
			look_at(pair.ends[0]);
		await(pair.cq, wrong ? 0 : 1);
		if (!wrong)
			see(&pair, pair.ends[0], 1024);
		is_whole = seen(1024) == message;
		await(pair.cq, wrong ? 1 : 0);
		CHECK(is_whole);
	}
	end_pair(&pair);
}

/* Points to a node that it has written, by another queue pair. Wrong: takes the completion of the node's WRITE for a sign
   that who follows the pointer finds it. Right: reads it back first. */
static void points_to(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC), other = pair_of(IBV_QPT_RC);

	for (unsigned round = 1; round <= ROUNDS; round++) {
		int is_there;

		put(0, round);
		write_to(&pair, pair.ends[0], 0, 1024);
		await(pair.cq, 1);
		if (!wrong)
			see(&pair, pair.ends[0], 1024);
		write_to(&other, other.ends[0], 0, 3072);
		while (seen(3072) != round)
			look_at(other.ends[0]);
		is_there = seen(1024) == round;
		await(other.cq, 1);
		CHECK(is_there);
	}
	end_pair(&pair);
	end_pair(&other);
}

/* A word to which two threads add, and what the second one has added. */
static uint64_t *sum, added;
static int is_over;

/* A queue pair to itself with a completion queue of its own, for one of them. */
struct adder {
	struct pair *pair;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct adder adder_of(struct pair *pair, struct ibv_mr *mr)
{
	struct adder adder = {pair, mr, ibv_create_cq(pair->context, DEPTH, NULL, NULL, 0), NULL};
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC};

	CHECK(adder.cq);
	adder.qp = to_itself(pair, adder.cq, adder.cq, NULL);
	CHECK(!ibv_modify_qp(adder.qp, &attr, IBV_QP_ACCESS_FLAGS));
	return adder;
}

static void add(struct adder *adder, unsigned old)
{
	struct ibv_sge data = {(uintptr_t)memory + old, 8, adder->pair->mr->lkey};
	struct ibv_send_wr request = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
				      .sg_list = &data, .num_sge = 1,
				      .wr.atomic = {.remote_addr = (uintptr_t)sum, .compare_add = 1,
						    .rkey = adder->mr->rkey}}, *bad;

	CHECK(!ibv_post_send(adder->qp, &request, &bad));
	await(adder->cq, 1);
}

static void *add_by_processor(void *unused)
{
	while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
		__atomic_fetch_add(sum, 1, __ATOMIC_SEQ_CST);
		added++;
		for (volatile int spin = 0; spin < 2000; spin++)
			continue;
	}
	return unused;
}

static void *add_by_adapter(void *adder)
{
	for (; !__atomic_load_n(&is_over, __ATOMIC_SEQ_CST); added++)
		add(adder, 8);
	return NULL;
}

/* Two threads add to a word, one of them by the adapter. Wrong: the other one by an instruction. */
static void mixes_atomics(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct adder adders[2];
	struct ibv_mr *mr;
	pthread_t thread;

	CHECK(!posix_memalign((void **)&sum, 4096, 4096));
	*sum = 0;
	mr = ibv_reg_mr(pair.pd, sum, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(mr);
	for (int i = 0; i < 2; i++)
		adders[i] = adder_of(&pair, mr);
	CHECK(!pthread_create(&thread, NULL, wrong ? add_by_processor : add_by_adapter, &adders[1]));
	for (int i = 0; i < ROUNDS; i++)
		add(&adders[0], 0);
	__atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_join(thread, NULL));
	CHECK(__atomic_load_n(sum, __ATOMIC_SEQ_CST) == ROUNDS + added);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(adders[i].qp) && !ibv_destroy_cq(adders[i].cq));
	CHECK(!ibv_dereg_mr(mr));
	free(sum);
	end_pair(&pair);
}

static const struct mistake mistakes[] = {
	{"counts-replies", counts_replies},
	{"flag-by-another", flag_by_another},
	{"first-for-first", first_for_first},
	{"told-too-early", told_too_early},
	{"last-byte", last_byte},
	{"points-to", points_to},
	{"mixes-atomics", mixes_atomics},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
