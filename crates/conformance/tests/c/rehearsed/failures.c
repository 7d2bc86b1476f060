/*
 * Programs whose requests and receives fail. The first argument names the program, the second its form, wrong or right.
 * After a failure any exit status is right. A signal, or a run without end, is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../checked/pair.h"

enum { FIRST = 1, SECOND = 2, RECEIVE = 3, WITHOUT = -1, ROUNDS = 20 };

static const char *name_of(int status)
{
	switch (status) {
	case WITHOUT: return "none";
	case IBV_WC_SUCCESS: return "SUCCESS";
	case IBV_WC_LOC_LEN_ERR: return "LOC_LEN";
	case IBV_WC_LOC_QP_OP_ERR: return "LOC_QP_OP";
	case IBV_WC_LOC_PROT_ERR: return "LOC_PROT";
	case IBV_WC_WR_FLUSH_ERR: return "FLUSH";
	case IBV_WC_BAD_RESP_ERR: return "BAD_RESP";
	case IBV_WC_MW_BIND_ERR: return "MW_BIND";
	case IBV_WC_REM_INV_REQ_ERR: return "REM_INV_REQ";
	case IBV_WC_REM_ACCESS_ERR: return "REM_ACCESS";
	case IBV_WC_REM_OP_ERR: return "REM_OP";
	case IBV_WC_RETRY_EXC_ERR: return "RETRY_EXC";
	case IBV_WC_RNR_RETRY_EXC_ERR: return "RNR_RETRY_EXC";
	default: return "another";
	}
}

static const char *state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state == IBV_QPS_ERR ? "ERR" : attr.qp_state == IBV_QPS_SQE ? "SQE" : "RTS";
}

/* The events that have come: their names, one after the other. */
static const char *events_of(struct ibv_context *context)
{
	static char names[256];
	struct ibv_async_event event;

	CHECK(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	while (!ibv_get_async_event(context, &event)) {
		strcat(strcat(names, " "), ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	return names[0] ? names : " none";
}

/* Gives up soon from now on, if nobody answers, and if the receiver of a message is too slow. */
static void limit_retries(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .rnr_retry = 6, .timeout = 8, .retry_cnt = 1};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* A UD queue pair that sends to itself. */
static struct ibv_qp *datagrams_of(struct pair *pair, struct ibv_send_wr *send)
{
	struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = IBV_QPT_UD,
					.cap = {2, 2, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
	struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
	struct ibv_qp *qp = ibv_create_qp(pair->pd, &init);

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	CHECK(!ibv_query_gid(pair->context, 1, 0, &path.grh.dgid));
	send->wr.ud.ah = ibv_create_ah(pair->pd, &path);
	send->wr.ud.remote_qpn = qp->qp_num;
	send->wr.ud.remote_qkey = 7;
	CHECK(send->wr.ud.ah);
	return qp;
}

/* A UC queue pair that sends to itself. */
static struct ibv_qp *unreliable_of(struct pair *pair)
{
	struct ibv_qp_init_attr init = {.send_cq = pair->cq, .recv_cq = pair->cq, .qp_type = IBV_QPT_UC,
					.cap = {2, 2, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp *qp = ibv_create_qp(pair->pd, &init);

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1}};
	CHECK(!ibv_query_gid(pair->context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

/* The two ends of an XRC connection, and the shared queue that messages name. */
struct xrc {
	struct ibv_xrcd *domain;
	struct ibv_srq *queue;
	struct ibv_qp *target, *initiator;
};

static struct xrc xrc_of(struct pair *pair, struct ibv_send_wr *send)
{
	struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
					    .oflags = O_CREAT};
	struct ibv_srq_init_attr_ex queue = {.attr = {2, 1, 0}, .srq_type = IBV_SRQT_XRC, .pd = pair->pd, .cq = pair->cq,
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
							  IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD};
	struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	struct ibv_qp_init_attr_ex initiator = {.qp_type = IBV_QPT_XRC_SEND, .send_cq = pair->cq, .cap = {2, 0, 1, 0, 0},
						.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pair->pd};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int path = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct xrc xrc = {.domain = ibv_open_xrcd(pair->context, &domain)};

	CHECK(xrc.domain);
	queue.xrcd = target.xrcd = xrc.domain;
	CHECK((xrc.queue = ibv_create_srq_ex(pair->context, &queue)));
	CHECK((xrc.target = ibv_create_qp_ex(pair->context, &target)));
	CHECK((xrc.initiator = ibv_create_qp_ex(pair->context, &initiator)));
	CHECK(!ibv_modify_qp(xrc.target, &attr, init) && !ibv_modify_qp(xrc.initiator, &attr, init));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 1, .dest_qp_num = xrc.initiator->qp_num,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1}};
	CHECK(!ibv_query_gid(pair->context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(xrc.target, &attr, path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.dest_qp_num = xrc.target->qp_num;
	CHECK(!ibv_modify_qp(xrc.initiator, &attr, path));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 1, .rnr_retry = 6,
				    .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(xrc.target, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN));
	CHECK(!ibv_modify_qp(xrc.initiator, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(!ibv_get_srq_num(xrc.queue, &send->qp_type.xrc.remote_srqn));
	return xrc;
}

/* A region for atomics of the first end. */
static struct ibv_mr *allow_atomics(struct pair *pair)
{
	const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = ibv_reg_mr(pair->pd, memory, sizeof(memory), rights);
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};

	CHECK(mr && !ibv_modify_qp(pair->ends[1], &attr, IBV_QP_ACCESS_FLAGS));
	return mr;
}

/* Posts a request and one behind it, and says what comes of them. */
static void tell(const char *operation, const char *file)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge from = {(uintptr_t)memory, 8, pair.mr->lkey}, to = {(uintptr_t)memory + 64, 64, pair.mr->lkey};
	struct ibv_send_wr second = {.wr_id = SECOND, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				     .sg_list = &from, .num_sge = 1,
				     .wr.rdma = {(uintptr_t)memory + 64, pair.remote_key}};
	struct ibv_recv_wr receive = {.wr_id = RECEIVE, .sg_list = &to, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr first, *bad;
	struct ibv_qp *by = pair.ends[0], *of = pair.ends[1];
	struct ibv_mw *window = NULL;
	struct ibv_mr *counters = NULL;
	struct xrc xrc = {0};
	int statuses[] = {WITHOUT, WITHOUT, WITHOUT, WITHOUT};
	struct ibv_wc wc;
	FILE *list;

	strcpy(memory, "data");
	limit_retries(by);
	if (!strcmp(operation, "send")) {
		second.opcode = IBV_WR_SEND;
	} else if (!strcmp(operation, "datagram")) {
		second.opcode = IBV_WR_SEND;
		by = of = datagrams_of(&pair, &second);
	} else if (!strcmp(operation, "unreliable")) {
		by = of = unreliable_of(&pair);
	} else if (!strcmp(operation, "xrc")) {
		xrc = xrc_of(&pair, &second);
		by = xrc.initiator;
		of = xrc.target;
	} else if (!strcmp(operation, "read")) {
		second.opcode = IBV_WR_RDMA_READ;
		from.addr += 64;
		second.wr.rdma.remote_addr = (uintptr_t)memory;
	} else if (!strcmp(operation, "atomic")) {
		counters = allow_atomics(&pair);
		second.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		second.wr.atomic.remote_addr = (uintptr_t)memory + 64;
		second.wr.atomic.compare_add = 5;
		second.wr.atomic.rkey = counters->rkey;
	}
	first = second;
	first.wr_id = FIRST;
	first.next = &second;
	if (!strcmp(operation, "bind")) {
		window = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
		CHECK(window);
		first.opcode = IBV_WR_BIND_MW;
		first.num_sge = 0;
		first.bind_mw.mw = window;
		first.bind_mw.rkey = ibv_inc_rkey(window->rkey);
		first.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = pair.mr, .addr = (uintptr_t)memory, .length = 8};
	} else if (!strcmp(operation, "invalidate")) {
		window = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
		CHECK(window);
		first.opcode = IBV_WR_LOCAL_INV;
		first.num_sge = 0;
		first.invalidate_rkey = window->rkey;
	}
	CHECK(!ibv_post_recv(xrc.queue ? pair.ends[1] : of, &receive, &bad_receive));
	CHECK(!ibv_post_send(by, &first, &bad));
	while (statuses[FIRST] == WITHOUT || statuses[SECOND] == WITHOUT) {
		if (ibv_poll_cq(pair.cq, 1, &wc) == 1)
			statuses[wc.wr_id] = wc.status;
	}
	while (ibv_poll_cq(pair.cq, 1, &wc) == 1)
		statuses[wc.wr_id] = wc.status;
	list = fopen(file, "a");
	CHECK(list);
	fprintf(list, "%s, %s; receive %s; %s to %s;%s; %s\n", name_of(statuses[FIRST]), name_of(statuses[SECOND]),
		name_of(statuses[RECEIVE]), state_of(by), state_of(of), events_of(pair.context),
		memory[64] ? "written" : "not written");
	CHECK(!fclose(list));
	if (xrc.queue)
		CHECK(!ibv_destroy_qp(by) && !ibv_destroy_qp(of) && !ibv_destroy_srq(xrc.queue) &&
		      !ibv_close_xrcd(xrc.domain));
	else
		CHECK(by != of || !ibv_destroy_qp(by));
	CHECK(strcmp(operation, "datagram") || !ibv_destroy_ah(second.wr.ud.ah));
	CHECK((!window || !ibv_dealloc_mw(window)) && (!counters || !ibv_dereg_mr(counters)));
	end_pair(&pair);
}

/* Registers memory, and says how that fails. */
static void tell_register(const char *file)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
	const char *name = mr ? "none" : errno == ENOMEM ? "ENOMEM" : errno == EAGAIN ? "EAGAIN"
					 : errno == EPERM ? "EPERM" : "another";
	FILE *list = fopen(file, "a");

	CHECK(list && fprintf(list, "%s\n", name) > 0 && !fclose(list));
	CHECK(!mr || !ibv_dereg_mr(mr));
	end_pair(&pair);
}

/*
 * Gives back the buffer of each WRITE. Wrong: after an error gives back all that wait, although each still has a
 * completion to come.
 */
static void frees_twice(int wrong)
{
	enum { COUNT = 4 };
	struct pair pair = pair_of(IBV_QPT_RC);
	char *buffers[COUNT];
	int left = COUNT, failed = 0;

	for (int i = 0; i < COUNT; i++) {
		buffers[i] = malloc(64);
		CHECK(buffers[i] && !try_write(&pair, i, IBV_SEND_SIGNALED));
	}
	while (left) {
		struct ibv_wc wc;

		if (!ibv_poll_cq(pair.cq, 1, &wc))
			continue;
		left--;
		if (wrong && wc.status && !failed) {
			for (int i = wc.wr_id; i < COUNT; i++)
				free(buffers[i]);
		} else {
			free(buffers[wc.wr_id]);
		}
		failed |= wc.status;
	}
	end_pair(&pair);
	exit(!!failed);
}

/* Waits for four WRITEs. Wrong: until all have succeeded. */
static void waits_for_success(int wrong)
{
	enum { COUNT = 4 };
	struct pair pair = pair_of(IBV_QPT_RC);
	int ended = 0, failed = 0;

	for (int i = 0; i < COUNT; i++)
		CHECK(!try_write(&pair, i, IBV_SEND_SIGNALED));
	while (ended < COUNT) {
		struct ibv_wc wc;

		if (!ibv_poll_cq(pair.cq, 1, &wc))
			continue;
		failed |= wc.status;
		ended += !wrong || !wc.status;
	}
	end_pair(&pair);
	exit(!!failed);
}

static void fail(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Copies a message as long as its completion says. Wrong: does not look at the status. */
static void trusts_length(int wrong)
{
	enum { HEADER = 4 };
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge from = {(uintptr_t)memory, 8, pair.mr->lkey}, to = {(uintptr_t)memory + 64, 64, pair.mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = RECEIVE, .sg_list = &to, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {.wr_id = FIRST, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &from, .num_sge = 1}, *bad;
	int failed = 0;

	CHECK(!ibv_post_recv(pair.ends[1], &receive, &bad_receive) && !ibv_post_send(pair.ends[0], &send, &bad));
	for (int left = 2; left;) {
		struct ibv_wc wc;

		if (!ibv_poll_cq(pair.cq, 1, &wc))
			continue;
		left--;
		failed |= wc.status;
		if (wc.wr_id == FIRST && wc.status)
			fail(pair.ends[1]); /* no message comes, or one that is lost */
		if (wc.wr_id != RECEIVE || (!wrong && wc.status))
			continue;
		/* The rest behind the header. */
		memset(memory + 64 + HEADER, 0, (size_t)(wc.byte_len - HEADER));
	}
	end_pair(&pair);
	exit(!!failed);
}

/* Asks for a reply. Wrong: looks for nothing else, so it does not see that the request has failed. */
static void waits_for_reply(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *sent = ibv_create_cq(pair.context, 4, NULL, NULL, 0);
	struct ibv_qp *ends[2];
	struct ibv_wc wc;
	int failed = 0, asked = 1, ended = 0, got = 0;

	CHECK(sent);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {.send_cq = sent, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
						.cap = {4, 4, 1, 1, 0}};

		ends[i] = ibv_create_qp(pair.pd, &init);
		CHECK(ends[i]);
	}
	for (int i = 0; i < 2; i++) {
		connect_to(ends[i], pair.context, ends[!i]->qp_num);
		limit_retries(ends[i]);
		receive_on(ends[i], i);
	}
	marker_on(ends[0], 0);
	/* The other end, of this same process, answers. */
	while (got < 2 && !failed) {
		if (ibv_poll_cq(pair.cq, 1, &wc)) {
			failed |= wc.status;
			if (!got++ && !failed) {
				marker_on(ends[1], 1);
				asked++;
			}
		}
		if (!wrong && ibv_poll_cq(sent, 1, &wc)) {
			failed |= wc.status;
			ended++;
		}
	}
	fail(ends[0]);
	fail(ends[1]);
	polled(sent, asked - ended);
	polled(pair.cq, 2 - got);
	CHECK(!ibv_destroy_qp(ends[0]) && !ibv_destroy_qp(ends[1]) && !ibv_destroy_cq(sent));
	end_pair(&pair);
	exit(!!failed);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Waits for a completion, but not for ever. Returns whether it has come. */
static int comes_in_time(struct pair *pair)
{
	const double end = seconds() + 0.05;
	double now;
	struct ibv_wc wc;

	do {
		now = seconds();
		if (ibv_poll_cq(pair->cq, 1, &wc)) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			return 1;
		}
		usleep(50);
	} while (now < end);
	return 0;
}

/* After a time-out. Waits for the completion all the same, and aborts if memory that is in other use has changed. */
static void is_left_alone(struct pair *pair, unsigned at)
{
	struct ibv_wc wc;

	strcpy(memory + at, "another's");
	while (!ibv_poll_cq(pair->cq, 1, &wc))
		usleep(50);
	if (strcmp(memory + at, "another's"))
		abort();
}

/* READs, and uses the buffer otherwise after a time-out. Wrong: without an end of the READ. */
static void reuses_target(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge to = {(uintptr_t)memory + 64, 16, pair.mr->lkey};
	struct ibv_send_wr read = {.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &to, .num_sge = 1, .wr.rdma = {(uintptr_t)memory, pair.remote_key}}, *bad;
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	int is_late = 0;

	for (int round = 0; round < ROUNDS && !is_late; round++) {
		CHECK(!ibv_post_send(pair.ends[0], &read, &bad));
		is_late = !comes_in_time(&pair);
	}
	if (is_late) {
		if (!wrong)
			CHECK(!ibv_modify_qp(pair.ends[0], &error, IBV_QP_STATE));
		is_left_alone(&pair, 64);
	}
	end_pair(&pair);
	exit(is_late);
}

/* Lets its peer WRITE, and uses the memory otherwise after a time-out. Wrong: without an end of the right. */
static void reuses_granted(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *granted = ibv_reg_mr(pair.pd, memory + 1024, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge from = {(uintptr_t)memory, 16, pair.mr->lkey};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				    .sg_list = &from, .num_sge = 1}, *bad;
	int is_late = 0;

	CHECK(granted);
	write.wr.rdma.remote_addr = (uintptr_t)memory + 1024;
	write.wr.rdma.rkey = granted->rkey;
	for (int round = 0; round < ROUNDS && !is_late; round++) {
		CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
		is_late = !comes_in_time(&pair);
	}
	if (is_late) {
		if (!wrong)
			CHECK(!ibv_dereg_mr(granted));
		is_left_alone(&pair, 1024);
	}
	CHECK((is_late && !wrong) || !ibv_dereg_mr(granted));
	end_pair(&pair);
	exit(is_late);
}

static struct ibv_comp_channel *slept_at;

static void *sleeps(void *nothing)
{
	struct ibv_cq *cq;
	void *context;

	/* Nothing is armed, so no event comes. */
	CHECK(ibv_get_cq_event(slept_at, &cq, &context) == -1 && errno == EIO);
	return nothing;
}

/* Waits for an event when the device is removed, and writes down that it has heard of it, as who polls the descriptor does. */
static void tell_removal(const char *path)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	FILE *list = fopen(path, "w");
	struct pollfd polled;
	struct ibv_cq *cq;
	void *context;
	pthread_t thread;

	CHECK(list && (slept_at = ibv_create_comp_channel(pair.context)));
	CHECK((cq = ibv_create_cq(pair.context, 1, NULL, slept_at, 0)));
	CHECK(!pthread_create(&thread, NULL, sleeps, NULL));
	if (try_write(&pair, 1, IBV_SEND_SIGNALED)) {
		CHECK(!pthread_join(thread, NULL));
		polled = (struct pollfd){.fd = slept_at->fd, .events = POLLIN};
		CHECK(poll(&polled, 1, -1) == 1 && polled.revents);
		CHECK(!fcntl(slept_at->fd, F_SETFL, O_NONBLOCK));
		CHECK(ibv_get_cq_event(slept_at, &cq, &context) == -1 && errno == EIO);
		CHECK(fprintf(list, "heard\n") > 0);
		CHECK(!fclose(list));
	}
	exit(0);
}

void transom_claimed(const void *first, size_t length) __attribute__((weak));

/* Takes a buffer back when the device is removed: by what it tells the check, and from the system. */
static void tell_giving_back(const char *path)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	void *block = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, block, 8192, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge data[] = {{(uintptr_t)block, 64, mr->lkey}, {(uintptr_t)block + 4096, 64, mr->lkey}};
	struct ibv_send_wr second = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &data[1], .num_sge = 1};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &data[0], .num_sge = 1, .next = &second};
	struct ibv_send_wr *bad;
	FILE *list = fopen(path, "w");

	CHECK(list && transom_claimed && block != MAP_FAILED);
	/* Nobody receives them. */
	CHECK(!ibv_post_send(pair.ends[0], &send, &bad));
	if (try_write(&pair, 3, IBV_SEND_SIGNALED)) {
		transom_claimed(block, 4096);
		CHECK(!munmap((char *)block + 4096, 4096));
		CHECK(fprintf(list, "given back\n") > 0);
	}
	CHECK(!fclose(list));
	exit(0);
}

static const struct mistake mistakes[] = {
	{"frees-twice", frees_twice},
	{"waits-for-success", waits_for_success},
	{"trusts-length", trusts_length},
	{"waits-for-reply", waits_for_reply},
	{"reuses-target", reuses_target},
	{"reuses-granted", reuses_granted},
};

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "tell")) {
		if (!strcmp(argv[2], "register"))
			tell_register(argv[3]);
		else if (!strcmp(argv[2], "removal"))
			tell_removal(argv[3]);
		else if (!strcmp(argv[2], "giving-back"))
			tell_giving_back(argv[3]);
		else
			tell(argv[2], argv[3]);
		return 0;
	}
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
