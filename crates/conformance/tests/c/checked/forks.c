/* Mistakes with forks. Each mistake has a correct twin. The first argument names the mistake, the second is "wrong" or
   "right". Lines that a finding names are marked. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static void end_child(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void parents_objects(int wrong)
{
	CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC); /* made */
	const pid_t child = fork(); /* forked */

	CHECK(child >= 0);
	if (!child) {
		struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND}, *bad;

		if (wrong) {
			ibv_post_send(pair.ends[0], &send, &bad); /* used */
		} else {
			struct pair own = pair_of(IBV_QPT_RC);

			receive_on(own.ends[1], 2);
			send_on(own.ends[0], 1, IBV_SEND_SIGNALED);
			polled(own.cq, 2);
			end_pair(&own);
		}
		_exit(0);
	}
	end_child(child);
	end_pair(&pair);
}

/* Calls verbs that make, destroy and arm. */
static void parents_device(int wrong)
{
	CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	const pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		if (wrong) {
			ibv_alloc_pd(pair.context);
			ibv_destroy_qp(pair.ends[0]);
			ibv_req_notify_cq(pair.cq, 0);
		}
		_exit(0);
	}
	end_child(child);
	end_pair(&pair);
}

static void fork_shares_page(int wrong)
{
	if (!wrong)
		CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	char *part = malloc(100);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, part, 100, IBV_ACCESS_LOCAL_WRITE);
	const pid_t child = fork(); /* forked */

	CHECK(child >= 0 && mr);
	if (!child)
		_exit(0);
	end_child(child);
	CHECK(!ibv_dereg_mr(mr));
	free(part);
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"parents-objects", parents_objects},
		{"parents-device", parents_device},
		{"fork-shares-page", fork_shares_page},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
