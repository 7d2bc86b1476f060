/* Public bugs of programs that lose count of what is in their queues. */
#include <sys/mman.h>
#include <unistd.h>

#include "corpus.h"

/* Sends from a few buffers. Wrong: drops a message for which none is free, as if it were sent. */
static void drops_silently(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *received = ibv_create_cq(pair.context, DEPTH, NULL, NULL, 0);
	struct ibv_qp *qp;
	int sent = 0, free_buffers = 2;

	CHECK(received);
	qp = to_itself(&pair, pair.cq, received, NULL);
	for (int i = 0; i < ROUNDS; i++)
		receive_on(qp, i);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;

		if (ibv_poll_cq(pair.cq, 1, &wc) > 0)
			free_buffers++;
		if (!free_buffers && wrong)
			continue;
		if (!free_buffers) {
			await(pair.cq, 1);
			free_buffers++;
		}
		free_buffers--;
		marker_on(qp, i);
		sent++;
	}
	await(pair.cq, 2 - free_buffers);
	await(received, sent);
	CHECK(sent == ROUNDS);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(received));
	end_pair(&pair);
}

static int is_refused(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad;

	return (srq ? ibv_post_srq_recv(srq, &receive, &bad) : ibv_post_recv(qp, &receive, &bad)) != 0;
}

/* Takes the completions of messages and of what it sends, and posts each receive again. Wrong: leaves the rest of a
   batch when a post is refused. */
static void leaves_the_batch(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp *qp = to_itself(&pair, pair.cq, pair.cq, NULL);
	int to_post = 4;

	for (int round = 0; round < ROUNDS; round++) {
		int left = 2, to_come = 2;

		while (to_post)
			to_post -= !is_refused(qp, NULL);
		marker_on(qp, 2);
		while (left) {
			struct ibv_wc wc[4];
			const int count = ibv_poll_cq(pair.cq, 4, wc);

			/* It would wait for ever. */
			if (!to_come)
				abort();
			CHECK(count >= 0);
			to_come -= count;
			for (int i = 0; i < count; i++) {
				CHECK(wc[i].status == IBV_WC_SUCCESS);
				left--;
				if (wc[i].wr_id != 1)
					continue;
				to_post += is_refused(qp, NULL);
				if (wrong && to_post)
					break;
			}
		}
	}
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Gives a receive back to a shared queue after each message. Wrong: ends if that is refused. */
static void asserts_room(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &init);
	struct ibv_qp *qp;
	int to_post = 4;

	CHECK(srq);
	qp = to_itself(&pair, pair.cq, pair.cq, srq);
	for (int round = 0; round < ROUNDS; round++) {
		while (to_post) {
			if (!is_refused(NULL, srq))
				to_post--;
			else if (wrong)
				abort();
		}
		marker_on(qp, 2);
		await(pair.cq, 2);
		to_post++;
	}
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
	end_pair(&pair);
}

/* Posts two requests as a list, and gives the list up if that is refused. Wrong: takes it that none of it was posted. */
static void forgets_the_first(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct ibv_sge data = {(uintptr_t)memory, 8, pair.mr->lkey};
		struct ibv_send_wr second = {.wr_id = 2 * round + 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &data,
					     .send_flags = IBV_SEND_SIGNALED, .num_sge = 1,
					     .wr.rdma = {(uintptr_t)memory + 1024, pair.remote_key}};
		struct ibv_send_wr first = second, *bad = NULL;
		const int refused = (first.wr_id = 2 * round, first.next = &second,
				     ibv_post_send(pair.ends[0], &first, &bad));
		const uint64_t posted = !refused ? 2 : bad == &second && !wrong ? 1 : 0;

		for (uint64_t i = 0; i < posted; i++) {
			struct ibv_wc wc;

			while (!ibv_poll_cq(pair.cq, 1, &wc))
				continue;
			CHECK(wc.status == IBV_WC_SUCCESS);
			/* Nobody knows this request. */
			if (wc.wr_id != 2 * round + i)
				abort();
		}
	}
	end_pair(&pair);
}

/* Receives of a shared queue: their requests, a message of 8 bytes in each, and those that wait to be posted. */
enum { SHARED = 4 };
static struct ibv_recv_wr receives[SHARED];
static struct ibv_sge places[SHARED];
static struct ibv_recv_wr *first_waiting, **end_of_waiting = &first_waiting;

/* Adds a receive, with what follows it, to those that wait. */
static void wait_to_post(struct ibv_recv_wr *receive)
{
	*end_of_waiting = receive;
	while (receive->next)
		receive = receive->next;
	end_of_waiting = &receive->next;
}

static void post_waiting(struct ibv_srq *srq)
{
	struct ibv_recv_wr *bad;

	CHECK(!ibv_post_srq_recv(srq, first_waiting, &bad));
	end_of_waiting = &first_waiting;
}

/* Sends a message to itself. The answer is the receive that it took, or the one that failed. */
static int message_taken(struct pair *pair, struct ibv_qp *qp, uint64_t number, int *failed)
{
	struct ibv_sge data = {(uintptr_t)memory, 8, pair->mr->lkey};
	struct ibv_send_wr send = {.wr_id = SHARED, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1}, *bad;
	int taken = -1;

	put(0, number);
	CHECK(!ibv_post_send(qp, &send, &bad));
	for (int left = 2, patience = PATIENCE; left;) {
		struct ibv_wc wc;
		const int count = ibv_poll_cq(pair->cq, 1, &wc);

		CHECK(count >= 0);
		/* One that has failed may not have got anywhere. Then the program ends. */
		CHECK(!*failed || patience--);
		if (!count)
			continue;
		left--;
		*failed |= wc.status != IBV_WC_SUCCESS;
		if (wc.wr_id < SHARED)
			taken = wc.wr_id;
	}
	CHECK(taken >= 0);
	return taken;
}

/* Posts receives of a shared queue in lists, and one that has failed again too. Wrong: leaves the rest of its old list
   at it, so that receives are posted that are there already, and two messages get into one buffer. */
static void keeps_the_list(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &init);
	struct ibv_qp *qp;
	int failures = 0;

	CHECK(srq);
	qp = to_itself(&pair, pair.cq, pair.cq, srq);
	for (int i = 0; i < SHARED; i++) {
		places[i] = (struct ibv_sge){(uintptr_t)memory + 1024 + 8 * i, 8, pair.mr->lkey};
		receives[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &places[i], .num_sge = 1};
		wait_to_post(&receives[i]);
	}
	post_waiting(srq);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		int taken[SHARED], count = 0, failed = 0;

		while (count < SHARED && !failed)
			taken[count] = message_taken(&pair, qp, SHARED * round + count, &failed), count++;
		for (int i = 0; i < count; i++) {
			const int is_bad = failed && i == count - 1;

			/* Another message lies there. */
			if (!is_bad && seen(1024 + 8 * taken[i]) != SHARED * round + i)
				abort();
			if (!is_bad || !wrong)
				receives[taken[i]].next = NULL;
			wait_to_post(&receives[taken[i]]);
		}
		post_waiting(srq);
		failures += failed;
		/* It goes on once. */
		CHECK(failures < 2);
		if (failed) {
			CHECK(!ibv_destroy_qp(qp));
			qp = to_itself(&pair, pair.cq, pair.cq, srq);
		}
	}
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
	end_pair(&pair);
}

/* The length of a record, and how many a slot holds. */
enum { RECORD = 64, MOST = 4 };

/* Room for one record. It ends where its page does, and nothing is behind that page. */
static char *room_for_one(void)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(pages != MAP_FAILED && !mprotect(pages + page, page, PROT_NONE));
	return pages + page - RECORD;
}

/* Takes the messages that have come, each from its own slot. Returns how many records they had. Wrong: copies as much
   as has come, for there is room for a record. */
static int records_taken(struct ibv_cq *received, char *room, int wrong)
{
	struct ibv_wc wc;
	int records = 0;

	while (ibv_poll_cq(received, 1, &wc) > 0) {
		const char *slot = memory + wc.wr_id;

		CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len % RECORD == 0);
		if (wrong)
			memcpy(room, slot, wc.byte_len);
		for (unsigned at = 0; at < wc.byte_len && !wrong; at += RECORD)
			memcpy(room, slot + at, RECORD);
		records += wc.byte_len / RECORD;
	}
	return records;
}

/* Sends records in one message. */
static void send_records(struct pair *pair, struct ibv_qp *qp, int records)
{
	struct ibv_sge data = {(uintptr_t)memory, records * RECORD, pair->mr->lkey};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
				   .num_sge = 1}, *bad;

	CHECK(!ibv_post_send(qp, &send, &bad));
}

/* Takes records of one length, each in a message. A peer sends those together that it makes while its last message is
   under way. Wrong: as records_taken. */
static void takes_all(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *received = ibv_create_cq(pair.context, DEPTH, NULL, NULL, 0);
	int waiting = 0, is_under_way = 0, taken = 0;
	char *room = room_for_one();
	struct ibv_qp *qp;

	CHECK(received);
	qp = to_itself(&pair, pair.cq, received, NULL);
	for (unsigned at = 1024; at < 1024 + ROUNDS * MOST * RECORD; at += MOST * RECORD) {
		struct ibv_sge slot = {(uintptr_t)memory + at, MOST * RECORD, pair.mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = at, .sg_list = &slot, .num_sge = 1}, *bad;

		CHECK(!ibv_post_recv(qp, &receive, &bad));
	}
	for (int made = 1; made <= ROUNDS; made++) {
		waiting++;
		if (is_under_way && in_time(pair.cq))
			is_under_way = 0;
		if (is_under_way && made < ROUNDS && waiting < MOST)
			continue;
		if (is_under_way)
			await(pair.cq, 1);
		send_records(&pair, qp, waiting);
		is_under_way = 1;
		waiting = 0;
		taken += records_taken(received, room, wrong);
	}
	await(pair.cq, 1);
	while (taken < ROUNDS)
		taken += records_taken(received, room, wrong);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(received));
	end_pair(&pair);
}

static const struct mistake mistakes[] = {
	{"drops-silently", drops_silently},
	{"leaves-the-batch", leaves_the_batch},
	{"asserts-room", asserts_room},
	{"forgets-the-first", forgets_the_first},
	{"keeps-the-list", keeps_the_list},
	{"takes-all", takes_all},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
