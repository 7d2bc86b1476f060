/* Mistakes with objects and queues. Each mistake has a correct twin. The first argument names the mistake, the second
   is "wrong" or "right". Lines that a finding names are marked. */
#include "pair.h"

static void work_lost(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	/* Nobody receives it in the wrong form, so it stays under way. */
	if (!wrong)
		receive_on(pair.ends[1], 2);
	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED); /* posted */
	if (!wrong)
		polled(pair.cq, 2);
	end_pair(&pair); /* destroyed */
}

static void completions_unpolled(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	receive_on(pair.ends[1], 2);
	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED); /* posted */
	polled(pair.cq, wrong ? 1 : 2);
	end_pair(&pair);
}

static void used_after_destroy(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
	struct ibv_qp *gone = pair.ends[1];

	if (!wrong)
		CHECK(!ibv_post_recv(gone, &receive, &bad));
	CHECK(!ibv_destroy_qp(gone)); /* destroyed */
	if (wrong)
		CHECK(ibv_post_recv(gone, &receive, &bad)); /* used */
	pair.ends[1] = NULL;
	end_pair(&pair);
}

static void nothing_signaled(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	int posted = 0, answer = 0;

	while (posted < 100 && !answer) {
		const int flags = wrong || posted % 2 ? 0 : IBV_SEND_SIGNALED;

		answer = try_write(&pair, posted++, flags); /* posted */
		if (flags & IBV_SEND_SIGNALED)
			polled(pair.cq, 1);
	}
	CHECK(wrong ? answer == ENOMEM : !answer);
	end_pair(&pair);
}

static void posted_after_error(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_async_event event;
	struct ibv_wc wc;

	pair.remote_key ^= 0x100;
	CHECK(!try_write(&pair, 1, IBV_SEND_SIGNALED));
	while (ibv_poll_cq(pair.cq, 1, &wc) == 0)
		continue;
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && ibv_poll_cq(pair.cq, 1, &wc) == 0);
	if (wrong)
		CHECK(!try_write(&pair, 2, IBV_SEND_SIGNALED)); /* posted */
	else
		marker_on(pair.ends[0], 2);
	polled(pair.cq, 1);
	CHECK(!ibv_get_async_event(pair.context, &event));
	ibv_ack_async_event(&event);
	end_pair(&pair);
}

static void busy_ignored(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	if (wrong) {
		CHECK(ibv_dealloc_pd(pair.pd) == EBUSY); /* refused */
		end_queues(&pair);
		CHECK(!ibv_close_device(pair.context)); /* closed */
		return;
	}
	CHECK(ibv_dealloc_pd(pair.pd) == EBUSY);
	end_pair(&pair);
}

static void left_at_close(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	if (!wrong) {
		end_pair(&pair);
		return;
	}
	CHECK(!ibv_close_device(pair.context)); /* closed */
}

static void left_at_exit(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	if (!wrong)
		end_pair(&pair);
}

static void queue_full(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (int i = 0; i < DEPTH; i++) {
		CHECK(!try_write(&pair, i, IBV_SEND_SIGNALED));
		if (!wrong)
			polled(pair.cq, 1);
	}
	if (wrong)
		polled(pair.cq, DEPTH);
	end_pair(&pair);
}

static void refused_and_dropped(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_recv_wr list[2 * DEPTH] = {0}, *bad = NULL;
	const int count = wrong ? 2 * DEPTH : DEPTH;

	for (int i = 0; i < count; i++)
		list[i] = (struct ibv_recv_wr){.wr_id = i, .next = i + 1 < count ? &list[i + 1] : NULL};
	CHECK(ibv_post_recv(pair.ends[1], list, &bad) == (wrong ? ENOMEM : 0)); /* refused */
	end_pair(&pair);
}

static void queue_could_overrun(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *cq = ibv_create_cq(pair.context, wrong ? DEPTH : 2 * DEPTH, NULL, NULL, 0); /* made */
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

	CHECK(cq && qp && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	end_pair(&pair);
}

static void ran_dry(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_wc wc;

	if (!wrong)
		receive_on(pair.ends[1], 2);
	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED);
	CHECK(ibv_poll_cq(pair.cq, 0, &wc) == 0);
	if (wrong)
		receive_on(pair.ends[1], 2);
	polled(pair.cq, 2);
	end_pair(&pair);
}

static void beyond_asked(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	CHECK(!try_write(&pair, 1, IBV_SEND_SIGNALED | (wrong ? IBV_SEND_INLINE : 0))); /* posted */
	polled(pair.cq, 1);
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"work-lost", work_lost},
		{"completions-unpolled", completions_unpolled},
		{"used-after-destroy", used_after_destroy},
		{"nothing-signaled", nothing_signaled},
		{"posted-after-error", posted_after_error},
		{"busy-ignored", busy_ignored},
		{"left-at-close", left_at_close},
		{"left-at-exit", left_at_exit},
		{"queue-full", queue_full},
		{"refused-and-dropped", refused_and_dropped},
		{"queue-could-overrun", queue_could_overrun},
		{"ran-dry", ran_dry},
		{"beyond-asked", beyond_asked},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
