/*
 * Programs that rely on when and in what order bytes land, each with its right form. The first argument names the
 * program, the second its form: wrong or right. A program ends with 0 if all is well.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../checked/pair.h"

enum { ROUNDS = 12, LENGTH = 100, TO = 1024 };

static struct ibv_send_wr request(struct pair *pair, enum ibv_wr_opcode opcode, struct ibv_sge *local, unsigned remote)
{
	return (struct ibv_send_wr){.wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = local,
				    .num_sge = 1, .wr.rdma = {(uintptr_t)memory + remote, pair->remote_key}};
}

static struct ibv_sge slice(struct pair *pair, unsigned at, unsigned length)
{
	return (struct ibv_sge){(uintptr_t)memory + at, length, pair->mr->lkey};
}

/* Waits for a byte. It sleeps between its looks: a thread that wakes has a processor at once, and one that spins beside
   other programs may lose its own for longer than a message lands. */
static void await(unsigned at, char value)
{
	while (__atomic_load_n(memory + at, __ATOMIC_ACQUIRE) != value)
		usleep(1);
}

/* Whether all of a message is there. */
static int is_whole(char value)
{
	for (unsigned i = 0; i < LENGTH; i++) {
		if (__atomic_load_n(memory + TO + i, __ATOMIC_ACQUIRE) != value)
			return 0;
	}
	return 1;
}

/* Gets a message by WRITE or READ. Wrong: takes the last byte for a sign that all is there. */
static void last_byte_of(int wrong, enum ibv_wr_opcode opcode)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const int reads = opcode == IBV_WR_RDMA_READ;
	struct ibv_sge local = slice(&pair, reads ? TO : 0, LENGTH);
	struct ibv_send_wr wr = request(&pair, opcode, &local, reads ? 0 : TO), *bad;

	for (char round = 1; round <= ROUNDS; round++) {
		int is_right;

		memset(memory, round, LENGTH);
		CHECK(!ibv_post_send(pair.ends[0], &wr, &bad));
		if (wrong)
			await(TO + LENGTH - 1, round);
		else
			polled(pair.cq, 1);
		is_right = is_whole(round);
		if (wrong)
			polled(pair.cq, 1);
		CHECK(is_right);
	}
	end_pair(&pair);
}

static void last_byte_written(int wrong)
{
	last_byte_of(wrong, IBV_WR_RDMA_WRITE);
}

static void last_byte_read(int wrong)
{
	last_byte_of(wrong, IBV_WR_RDMA_READ);
}

/* Gets a message by WRITE. Wrong: looks at its last byte. Right: has a flag of one byte written behind it. */
static void flag_behind(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge data = slice(&pair, 0, LENGTH), flag = slice(&pair, 0, 1);
	struct ibv_send_wr second = request(&pair, IBV_WR_RDMA_WRITE, &flag, TO + LENGTH), *bad;
	struct ibv_send_wr first = request(&pair, IBV_WR_RDMA_WRITE, &data, TO);

	first.next = &second;
	for (char round = 1; round <= ROUNDS; round++) {
		memset(memory, round, LENGTH);
		CHECK(!ibv_post_send(pair.ends[0], &first, &bad));
		await(TO + LENGTH - wrong, round);
		CHECK(is_whole(round));
		polled(pair.cq, 2);
	}
	end_pair(&pair);
}

/* Clears a flag for the next message. Wrong: as soon as it is seen. */
static void clears_early(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge flag = slice(&pair, 0, 8);
	struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &flag, TO), *bad;

	for (char round = 1; round <= ROUNDS; round++) {
		memory[0] = round;
		CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
		if (!wrong)
			polled(pair.cq, 1);
		await(TO, round);
		__atomic_store_n(memory + TO, 0, __ATOMIC_RELEASE);
		if (wrong)
			polled(pair.cq, 1);
		CHECK(!__atomic_load_n(memory + TO, __ATOMIC_ACQUIRE));
	}
	end_pair(&pair);
}

static struct pair sending;

static void *send_message(void *value)
{
	struct ibv_sge from = slice(&sending, 0, LENGTH);
	struct ibv_send_wr send = request(&sending, IBV_WR_SEND, &from, 0), *bad;

	(void)value;
	CHECK(!ibv_post_send(sending.ends[0], &send, &bad));
	return NULL;
}

/* Receives a message that another thread sends. Wrong: takes the last byte for a sign that all is there. */
static void last_byte_received(int wrong)
{
	struct ibv_sge to;
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad;
	pthread_t thread;

	sending = pair_of(IBV_QPT_RC);
	to = slice(&sending, TO, LENGTH);
	for (char round = 1; round <= ROUNDS; round++) {
		int is_right;

		CHECK(!ibv_post_recv(sending.ends[1], &receive, &bad));
		memset(memory, round, LENGTH);
		CHECK(!pthread_create(&thread, NULL, send_message, NULL));
		if (wrong)
			await(TO + LENGTH - 1, round);
		else
			polled(sending.cq, 2);
		is_right = is_whole(round);
		if (wrong)
			polled(sending.cq, 2);
		CHECK(!pthread_join(thread, NULL));
		CHECK(is_right);
	}
	end_pair(&sending);
}

/* Whether so many bytes lie there, and nothing else around them has changed. */
static int is_alone(unsigned length, char value)
{
	for (unsigned i = 0; i < 3 * TO; i++) {
		if (memory[TO + i] != (i >= TO && i < TO + length ? value : 0))
			return 0;
	}
	return 1;
}

/* Gets messages of many lengths by WRITE, READ and SEND, and looks at all that is around them. It has no wrong form. */
static void stays_within(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char value = 1;

	(void)wrong;
	for (unsigned length = 1; length < 1000; length += length < 10 ? 1 : 97) {
		struct ibv_sge from = slice(&pair, 0, length), to = slice(&pair, 2 * TO, length);
		struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 2 * TO);
		struct ibv_send_wr read = request(&pair, IBV_WR_RDMA_READ, &to, 0);
		struct ibv_send_wr send = request(&pair, IBV_WR_SEND, &from, 0);
		struct ibv_send_wr *all[] = {&write, &read, &send}, *bad;
		struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad_receive;

		for (unsigned i = 0; i < 3; i++, value++) {
			memset(memory, value, length);
			memset(memory + TO, 0, 3 * TO);
			if (i == 2)
				CHECK(!ibv_post_recv(pair.ends[1], &receive, &bad_receive));
			CHECK(!ibv_post_send(pair.ends[0], all[i], &bad));
			polled(pair.cq, i == 2 ? 2 : 1);
			CHECK(is_alone(length, value));
		}
	}
	end_pair(&pair);
}

/* Ends a region while a WRITE to it may be under way, and uses its memory again. Wrong: expects that the WRITE is
   through. */
static void uses_again(int wrong)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct pair pair = pair_of(IBV_QPT_RC);
		struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory + TO, LENGTH,
					       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		struct ibv_sge from = slice(&pair, 0, LENGTH);
		struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, TO), *bad;
		struct ibv_wc wc;
		int count = 0;

		CHECK(mr);
		write.wr.rdma.rkey = mr->rkey;
		memset(memory, 1, LENGTH);
		CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
		CHECK(!ibv_dereg_mr(mr));
		memset(memory + TO, 2, LENGTH);
		while (!count)
			count = ibv_poll_cq(pair.cq, 1, &wc);
		CHECK(count == 1 && (wc.status == IBV_WC_SUCCESS || (!wrong && wc.status == IBV_WC_REM_ACCESS_ERR)));
		CHECK(is_whole(2));
		end_pair(&pair);
	}
}

static const struct mistake mistakes[] = {
	{"last-byte-written", last_byte_written},
	{"last-byte-read", last_byte_read},
	{"flag-behind", flag_behind},
	{"clears-early", clears_early},
	{"last-byte-received", last_byte_received},
	{"stays-within", stays_within},
	{"uses-again", uses_again},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
