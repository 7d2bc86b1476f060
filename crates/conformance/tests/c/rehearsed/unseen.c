/*
 * Programs that rely on when a processor sees what peers write, each with its right form. The first argument names the
 * program, the second its form: wrong or right. A program ends with 0 if all is well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../checked/pair.h"

enum { ROUNDS = 12, LENGTH = 100, TO = 1024, FLAG = 2048 };

/* Posts a request of the first end. Its data is all of one value. */
static void post(struct pair *pair, enum ibv_wr_opcode opcode, uintptr_t remote, unsigned length, char value)
{
	struct ibv_sge from = {(uintptr_t)memory, length, pair->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &from,
				 .num_sge = 1, .wr.rdma = {(uintptr_t)memory + remote, pair->remote_key}}, *bad;

	memset(memory, value, LENGTH);
	CHECK(!ibv_post_send(pair->ends[0], &wr, &bad));
}

/* Whether so many bytes hold a value. */
static int holds(uintptr_t at, unsigned length, char value)
{
	for (unsigned i = 0; i < length; i++) {
		if (__atomic_load_n(memory + at + i, __ATOMIC_ACQUIRE) != value)
			return 0;
	}
	return 1;
}

/* The target looks at what a WRITE brought. Wrong: when the WRITE is complete at its origin. Right: when a message that
   was posted behind it has come. */
static void completed(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (char round = 1; round <= ROUNDS; round++) {
		int is_there;

		receive_on(pair.ends[1], 2);
		post(&pair, IBV_WR_RDMA_WRITE, TO, LENGTH, round);
		if (!wrong)
			marker_on(pair.ends[0], 3);
		polled(pair.cq, wrong ? 1 : 3);
		is_there = holds(TO, LENGTH, round);
		if (wrong) {
			marker_on(pair.ends[0], 3);
			polled(pair.cq, 2);
		}
		CHECK(is_there);
	}
	end_pair(&pair);
}

/* Memory of relaxed ordering has data and a flag. Wrong: the flag is a WRITE behind the data. Right: a message is. */
static void relaxed_flag(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING);

	CHECK(mr);
	pair.remote_key = mr->rkey;
	for (char round = 1; round <= ROUNDS; round++) {
		int is_there;

		receive_on(pair.ends[1], 2);
		post(&pair, IBV_WR_RDMA_WRITE, TO, LENGTH, round);
		post(&pair, IBV_WR_RDMA_WRITE, FLAG, 1, round);
		if (!wrong) {
			marker_on(pair.ends[0], 3);
			polled(pair.cq, 4);
		}
		while (!holds(FLAG, 1, round))
			continue;
		is_there = holds(TO, LENGTH, round);
		if (wrong) {
			marker_on(pair.ends[0], 3);
			polled(pair.cq, 4);
		}
		CHECK(is_there);
	}
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Data and a flag, in memory that is registered plainly. Wrong: the flag is a WRITE behind the data, which the
   specification does not promise to be seen later. Right: a message is. */
static void plain_flag(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (char round = 1; round <= ROUNDS; round++) {
		int is_there;

		receive_on(pair.ends[1], 2);
		post(&pair, IBV_WR_RDMA_WRITE, TO, LENGTH, round);
		if (wrong) {
			post(&pair, IBV_WR_RDMA_WRITE, FLAG, 1, round);
			while (!holds(FLAG, 1, round))
				continue;
			is_there = holds(TO, LENGTH, round);
			marker_on(pair.ends[0], 3);
			polled(pair.cq, 4);
		} else {
			marker_on(pair.ends[0], 3);
			polled(pair.cq, 3);
			is_there = holds(TO, LENGTH, round);
		}
		CHECK(is_there);
	}
	end_pair(&pair);
}

/* Everything that makes data be there: a READ behind the WRITE, WRITEs of the same bytes, the end of the region, of the
   queue pair. It has no wrong form. */
static void is_there(int wrong)
{
	(void)wrong;
	for (char round = 1; round <= ROUNDS; round++) {
		struct pair pair = pair_of(IBV_QPT_RC);
		struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory + TO, LENGTH,
					       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		const uint32_t all = pair.remote_key;

		CHECK(mr);
		post(&pair, IBV_WR_RDMA_WRITE, TO, LENGTH, round);
		polled(pair.cq, 1);
		post(&pair, IBV_WR_RDMA_READ, TO, LENGTH, 0);
		polled(pair.cq, 1);
		CHECK(holds(0, LENGTH, round) && holds(TO, LENGTH, round));

		pair.remote_key = mr->rkey;
		post(&pair, IBV_WR_RDMA_WRITE, TO, LENGTH, 20);
		polled(pair.cq, 1);
		post(&pair, IBV_WR_RDMA_WRITE, TO, LENGTH, 20 + round);
		polled(pair.cq, 1);
		CHECK(!ibv_dereg_mr(mr));
		CHECK(holds(TO, LENGTH, 20 + round));

		pair.remote_key = all;
		post(&pair, IBV_WR_RDMA_WRITE, TO, LENGTH, 40 + round);
		polled(pair.cq, 1);
		CHECK(!ibv_destroy_qp(pair.ends[1]));
		pair.ends[1] = NULL;
		CHECK(holds(TO, LENGTH, 40 + round));
		memset(memory + TO, 60, LENGTH);
		end_pair(&pair);
		CHECK(holds(TO, LENGTH, 60));
	}
}

/* A pair, and memory that this process shares with others. A WRITE brings a value there, and is complete. */
static struct pair written_to(char *shared, char value)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, shared, LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	const uint32_t all = pair.remote_key;

	CHECK(mr);
	pair.remote_key = mr->rkey;
	post(&pair, IBV_WR_RDMA_WRITE, (uintptr_t)shared - (uintptr_t)memory, LENGTH, value);
	polled(pair.cq, 1);
	pair.remote_key = all;
	return pair;
}

/* Others look at the memory when the process has ended, with all of its objects. It has no wrong form. */
static void outlives(int wrong)
{
	char *shared = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)wrong;
	CHECK(shared != MAP_FAILED);
	for (char round = 1; round <= 4; round++) {
		const pid_t child = fork();
		int status;

		if (!child) {
			written_to(shared, round);
			exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
		CHECK(holds((uintptr_t)shared - (uintptr_t)memory, LENGTH, round));
	}
}

/* Looks at the memory when the device has gone, which must happen at one of eight posts. It has no wrong form. */
static void outlives_device(int wrong)
{
	char *shared = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pair pair;

	(void)wrong;
	CHECK(shared != MAP_FAILED);
	pair = written_to(shared, 1);
	for (int i = 0; i < 8; i++) {
		if (try_write(&pair, 1, IBV_SEND_SIGNALED)) {
			if (!holds((uintptr_t)shared - (uintptr_t)memory, LENGTH, 1))
				break;
			return;
		}
		polled(pair.cq, 1);
	}
	/* After the device has gone, any exit status is right. */
	abort();
}

static const struct mistake mistakes[] = {
	{"completed", completed},
	{"relaxed-flag", relaxed_flag},
	{"plain-flag", plain_flag},
	{"is-there", is_there},
	{"outlives", outlives},
	{"outlives-device", outlives_device},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
