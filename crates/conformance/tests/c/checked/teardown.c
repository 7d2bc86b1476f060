/* Mistakes with objects and queues. Each mistake has a correct twin. The first argument names the mistake, the second
   is "wrong" or "right". Lines that a finding names are marked. */
#include <fcntl.h>
#include <pthread.h>

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
		receive_on(pair.ends[1], 2); /* late */
	polled(pair.cq, 2);
	end_pair(&pair);
}

/* The same, and the process just exits. */
static void ran_dry_at_exit(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_wc wc;

	if (!wrong)
		receive_on(pair.ends[1], 2);
	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED);
	CHECK(ibv_poll_cq(pair.cq, 0, &wc) == 0);
	if (wrong)
		receive_on(pair.ends[1], 2); /* late */
	polled(pair.cq, 2);
	exit(0);
}

/* Connects the pair anew, with a completion queue of its own for what the second end receives. */
static struct ibv_cq *receives_apart(struct pair *pair)
{
	struct ibv_cq *cq = ibv_create_cq(pair->context, DEPTH, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};

	CHECK(cq && !ibv_destroy_qp(pair->ends[0]) && !ibv_destroy_qp(pair->ends[1]));
	CHECK((pair->ends[0] = ibv_create_qp(pair->pd, &init)));
	init.recv_cq = cq;
	CHECK((pair->ends[1] = ibv_create_qp(pair->pd, &init)));
	for (int i = 0; i < 2; i++)
		connect_to(pair->ends[i], pair->context, pair->ends[!i]->qp_num);
	return cq;
}

static void end_apart(struct pair *pair, struct ibv_cq *cq)
{
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair->ends[i]));
	pair->ends[0] = pair->ends[1] = NULL;
	CHECK(!ibv_destroy_cq(cq));
	end_pair(pair);
}

/* A message comes, and a right program polls it. Returns the queue of the receives. */
static struct ibv_cq *message_comes(struct pair *pair, int wrong)
{
	struct ibv_cq *cq = receives_apart(pair);

	receive_on(pair->ends[1], 2);
	send_on(pair->ends[0], 1, IBV_SEND_SIGNALED);
	polled(pair->cq, 1);
	if (!wrong)
		polled(cq, 1);
	return cq;
}

static void message_unpolled(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *cq = message_comes(&pair, wrong);

	end_apart(&pair, cq); /* destroyed */
}

/* The same, and the process just exits. */
static void message_unpolled_at_exit(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	message_comes(&pair, wrong);
	exit(0);
}

static void connect_xrc(struct ibv_qp *qp, struct ibv_context *context, uint32_t peer, int receives)
{
	const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
				    .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1}};
	CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						(receives ? responder : 0)));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				    .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | (receives ? 0 : requester)));
}

/* A domain of XRC, with a shared receive queue and the queue that this completes into. */
struct shared {
	struct ibv_xrcd *domain;
	struct ibv_cq *cq;
	struct ibv_srq *queue;
};

/* A message comes into a shared receive queue of XRC, and a right program polls it. */
static struct shared shared_message_comes(struct pair *pair, int wrong)
{
	struct ibv_xrcd_init_attr alone = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
					   .oflags = O_CREAT};
	struct ibv_srq_init_attr_ex init = {.attr = {2, 1, 0}, .srq_type = IBV_SRQT_XRC, .pd = pair->pd,
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
							 IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD};
	struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp_init_attr_ex initiator = {.qp_type = IBV_QPT_XRC_SEND, .send_cq = pair->cq, .pd = pair->pd,
						.cap = {4, 0, 1, 0, 0}, .comp_mask = IBV_QP_INIT_ATTR_PD};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	struct ibv_recv_wr receive = {.wr_id = 2}, *bad;
	struct shared shared = {.domain = ibv_open_xrcd(pair->context, &alone),
				.cq = ibv_create_cq(pair->context, 2, NULL, NULL, 0)};

	CHECK(shared.domain && shared.cq);
	init.xrcd = target.xrcd = shared.domain;
	init.cq = shared.cq;
	CHECK((shared.queue = ibv_create_srq_ex(pair->context, &init)));
	CHECK(!ibv_post_srq_recv(shared.queue, &receive, &bad));
	CHECK(!ibv_get_srq_num(shared.queue, &send.qp_type.xrc.remote_srqn));
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair->ends[i]));
	CHECK((pair->ends[0] = ibv_create_qp_ex(pair->context, &initiator)));
	CHECK((pair->ends[1] = ibv_create_qp_ex(pair->context, &target)));
	for (int i = 0; i < 2; i++)
		connect_xrc(pair->ends[i], pair->context, pair->ends[!i]->qp_num, i);
	CHECK(!ibv_post_send(pair->ends[0], &send, &bad_send));
	polled(pair->cq, 1);
	if (!wrong)
		polled(shared.cq, 1);
	return shared;
}

static void shared_message_unpolled(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct shared shared = shared_message_comes(&pair, wrong);

	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	pair.ends[0] = pair.ends[1] = NULL;
	CHECK(!ibv_destroy_srq(shared.queue)); /* destroyed */
	CHECK(!ibv_destroy_cq(shared.cq) && !ibv_close_xrcd(shared.domain));
	end_pair(&pair);
}

static void shared_message_unpolled_at_exit(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	shared_message_comes(&pair, wrong);
	exit(0);
}

static void shared_message_unpolled_at_close(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	shared_message_comes(&pair, wrong);
	CHECK(!ibv_close_device(pair.context)); /* closed */
}

static void completions_full(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *cq = receives_apart(&pair);

	for (int i = 0; i < DEPTH; i++) {
		receive_on(pair.ends[1], 2);
		send_on(pair.ends[0], 1, IBV_SEND_SIGNALED);
		polled(pair.cq, 1);
		if (!wrong)
			polled(cq, 1);
	}
	if (wrong)
		polled(cq, DEPTH);
	end_apart(&pair, cq);
}

/* A shared receive queue that is not full. */
static void shared_queue(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &init);
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad;

	CHECK(srq && !wrong);
	for (int i = 0; i < 3; i++)
		CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
	CHECK(!ibv_destroy_srq(srq));
	end_pair(&pair);
}

static void beyond_asked(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	CHECK(!try_write(&pair, 1, IBV_SEND_SIGNALED | (wrong ? IBV_SEND_INLINE : 0))); /* posted */
	polled(pair.cq, 1);
	end_pair(&pair);
}

/* The same by the calls of the extended interface, and by those that find their objects by themselves. */
static void used_in_other_ways(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
	struct ibv_cq_init_attr_ex queue_init = {.cqe = 4};
	struct ibv_cq_ex *queue = ibv_create_cq_ex(pair.context, &queue_init);
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_qp_init_attr_ex init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC, .pd = pair.pd,
					   .cap = {DEPTH, DEPTH, 1, 1, 0},
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .send_ops_flags = IBV_QP_EX_WITH_SEND};
	struct ibv_qp *built = ibv_create_qp_ex(pair.context, &init);
	struct ibv_mw *windows[] = {ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1), ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2)};
	struct ibv_mw_bind bind = {.wr_id = 1, .bind_info = {pair.mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ}};
	struct ibv_send_wr second = {.wr_id = 2, .opcode = IBV_WR_BIND_MW,
				     .bind_mw = {windows[1], ibv_inc_rkey(windows[1]->rkey), bind.bind_info}}, *bad;
	struct ibv_qp_ex *extended;
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_resize_cq(pair.cq, 8 * DEPTH));
	CHECK(channel && queue && built && windows[0] && windows[1] && (extended = ibv_qp_to_qp_ex(built)));
	CHECK(ibv_start_poll(queue, &poll) == ENOENT);
	CHECK(!ibv_destroy_qp(built) && !ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) && !ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_mw(windows[0]) && !ibv_dealloc_mw(windows[1]));
	if (wrong) {
		ibv_wr_start(extended); /* used */
		ibv_wr_send(extended);
		CHECK(ibv_wr_complete(extended)); /* used */
		CHECK(ibv_start_poll(queue, &poll) == EINVAL); /* used */
		CHECK(ibv_next_poll(queue) == EINVAL); /* used */
		ibv_ack_cq_events(ibv_cq_ex_to_cq(queue), 0); /* used */
		CHECK(ibv_get_cq_event(channel, &cq, &context) == -1); /* used */
		CHECK(ibv_destroy_comp_channel(channel)); /* used */
		CHECK(!ibv_create_cq(pair.context, 1, NULL, channel, 0)); /* used */
		ibv_bind_mw(pair.ends[0], windows[0], &bind); /* used */
		ibv_post_send(pair.ends[1], &second, &bad); /* used */
	}
	end_pair(&pair);
}

/* A datagram is sent to what a destroyed address handle names. */
static void sent_to_destroyed(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_UD,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .wr.ud = {.remote_qkey = 1}}, *bad;

	CHECK(!ibv_resize_cq(pair.cq, 8 * DEPTH));
	CHECK(qp && !ibv_query_gid(pair.context, 1, 0, &to.grh.dgid) && (send.wr.ud.ah = ibv_create_ah(pair.pd, &to)));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	send.wr.ud.remote_qpn = qp->qp_num;
	if (!wrong) {
		CHECK(!ibv_post_send(qp, &send, &bad));
		polled(pair.cq, 1);
	}
	CHECK(!ibv_destroy_ah(send.wr.ud.ah));
	if (wrong)
		CHECK(ibv_post_send(qp, &send, &bad) == EINVAL); /* used */
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

static void *opens(void *barrier)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(devices && devices[0]);
	pthread_barrier_wait(barrier);
	CHECK((context = ibv_open_device(devices[0])) && !ibv_close_device(context));
	ibv_free_device_list(devices);
	return NULL;
}

/* Several threads open the first device of the process. */
static void opens_at_once(int wrong)
{
	enum { THREADS = 8 };
	pthread_t threads[THREADS];
	pthread_barrier_t barrier;

	CHECK(!wrong && !pthread_barrier_init(&barrier, NULL, THREADS));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, opens, &barrier));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
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
		{"ran-dry-at-exit", ran_dry_at_exit},
		{"message-unpolled", message_unpolled},
		{"message-unpolled-at-exit", message_unpolled_at_exit},
		{"shared-message-unpolled", shared_message_unpolled},
		{"shared-message-unpolled-at-exit", shared_message_unpolled_at_exit},
		{"shared-message-unpolled-at-close", shared_message_unpolled_at_close},
		{"completions-full", completions_full},
		{"shared-queue", shared_queue},
		{"beyond-asked", beyond_asked},
		{"used-in-other-ways", used_in_other_ways},
		{"sent-to-destroyed", sent_to_destroyed},
		{"opens-at-once", opens_at_once},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
