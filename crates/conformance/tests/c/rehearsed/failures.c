/*
 * Programs whose requests and receives fail. The first argument names the program, the second its form, wrong or right.
 * After a failure any exit status is right. A signal, or a run without end, is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

enum { FIRST = 1, SECOND = 2, RECEIVE = 3, WITHOUT = -1 };

static const char *name_of(int status)
{
	switch (status) {
	case WITHOUT: return "none";
	case IBV_WC_SUCCESS: return "SUCCESS";
	case IBV_WC_LOC_LEN_ERR: return "LOC_LEN";
	case IBV_WC_LOC_QP_OP_ERR: return "LOC_QP_OP";
	case IBV_WC_LOC_PROT_ERR: return "LOC_PROT";
	case IBV_WC_WR_FLUSH_ERR: return "FLUSH";
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

/* The receiver of a message may be too slow for the sender from now on. */
static void limit_retries(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .rnr_retry = 6};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RNR_RETRY));
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
	int statuses[] = {WITHOUT, WITHOUT, WITHOUT, WITHOUT};
	struct ibv_wc wc;
	FILE *list;

	strcpy(memory, "data");
	if (!strcmp(operation, "send")) {
		limit_retries(by);
		second.opcode = IBV_WR_SEND;
	} else if (!strcmp(operation, "datagram")) {
		second.opcode = IBV_WR_SEND;
		by = of = datagrams_of(&pair, &second);
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
	}
	CHECK(!ibv_post_recv(of, &receive, &bad_receive));
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
	CHECK(by != of || (!ibv_destroy_qp(by) && !ibv_destroy_ah(second.wr.ud.ah)));
	CHECK(!window || !ibv_dealloc_mw(window));
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
		if (wc.wr_id != RECEIVE || (!wrong && wc.status))
			continue;
		/* The rest behind the header. */
		memset(memory + 64 + HEADER, 0, (size_t)(wc.byte_len - HEADER));
	}
	end_pair(&pair);
	exit(!!failed);
}

static const struct mistake mistakes[] = {
	{"frees-twice", frees_twice},
	{"waits-for-success", waits_for_success},
	{"trusts-length", trusts_length},
};

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "tell")) {
		tell(argv[2], argv[3]);
		return 0;
	}
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
