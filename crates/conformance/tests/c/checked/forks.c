/* Mistakes with forks. Each mistake has a correct twin. The first argument names the mistake, the second is "wrong" or
   "right". Lines that a finding names are marked. */
#include <fcntl.h>
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

/* Calls verbs of the extended interface and of channels. */
static void parents_queues(int wrong)
{
	CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
	struct ibv_cq_init_attr_ex queue_init = {.cqe = 4, .channel = channel};
	struct ibv_cq_ex *queue = ibv_create_cq_ex(pair.context, &queue_init);
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_qp_init_attr_ex init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC, .pd = pair.pd,
					   .cap = {DEPTH, DEPTH, 1, 1, 0},
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .send_ops_flags = IBV_QP_EX_WITH_SEND};
	struct ibv_qp *built = ibv_create_qp_ex(pair.context, &init);
	pid_t child;

	CHECK(channel && queue && built && !ibv_resize_cq(pair.cq, 8 * DEPTH));
	CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	CHECK((child = fork()) >= 0);
	if (!child) {
		struct ibv_cq *cq;
		void *context;

		if (wrong) {
			ibv_wr_start(ibv_qp_to_qp_ex(built));
			ibv_wr_complete(ibv_qp_to_qp_ex(built));
			if (!ibv_start_poll(queue, &poll))
				ibv_end_poll(queue);
			ibv_get_cq_event(channel, &cq, &context);
			ibv_ack_cq_events(ibv_cq_ex_to_cq(queue), 0);
			ibv_destroy_comp_channel(channel);
		}
		_exit(0);
	}
	end_child(child);
	CHECK(!ibv_destroy_qp(built) && !ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) && !ibv_destroy_comp_channel(channel));
	end_pair(&pair);
}

/* Registers so many bytes of a page, and makes a child. */
static void share_page(size_t length)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char *page = aligned_alloc(4096, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, page, length, IBV_ACCESS_LOCAL_WRITE); /* registered */
	const pid_t child = fork(); /* forked */

	CHECK(child >= 0 && mr);
	if (!child)
		_exit(0);
	end_child(child);
	CHECK(!ibv_dereg_mr(mr));
	free(page);
	end_pair(&pair);
}

static void fork_shares_page(int wrong)
{
	if (!wrong)
		CHECK(!ibv_fork_init());
	share_page(wrong ? 100 : 4096); /* forks */
}

/* The page is not in the child on kernels before 5.12. */
static void page_is_missing(int wrong)
{
	CHECK(!ibv_fork_init());
	share_page(wrong ? 100 : 4096);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"parents-objects", parents_objects},
		{"parents-device", parents_device},
		{"parents-queues", parents_queues},
		{"fork-shares-page", fork_shares_page},
		{"page-is-missing", page_is_missing},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
