/*
 * A program of known traffic, for those who are attached to the device's probes. It prints what each probe has to say:
 * a line for each.
 */
#include <inttypes.h>

#include "checked/pair.h"

#define WINDOW 32

static struct pair pair;

static uint64_t at(uint64_t offset)
{
	return (uintptr_t)memory + offset;
}

static void says_registered(struct ibv_mr *mr, int rights)
{
	printf("register %#x %#" PRIx64 " %zu %#x\n", mr->rkey, (uint64_t)(uintptr_t)mr->addr, mr->length, rights);
}

static void says_state(uint32_t qp, enum ibv_qp_state state, uint32_t peer)
{
	printf("connection %#x %d %#x\n", qp, state, peer);
}

static void says_connected(uint32_t qp, uint32_t peer)
{
	says_state(qp, IBV_QPS_RTR, peer);
	says_state(qp, IBV_QPS_RTS, peer);
}

/* Sends a message into a receive, and waits for the ends of both. */
static void send_into_receive(uint64_t id, uint64_t receive)
{
	const uint32_t qp = pair.ends[0]->qp_num, peer = pair.ends[1]->qp_num;
	struct ibv_sge room = {at(128), 32, pair.mr->lkey}, data = {at(0), 8, pair.mr->lkey};
	struct ibv_recv_wr recv = {.wr_id = receive, .sg_list = &room, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(pair.ends[1], &recv, &bad_recv));
	CHECK(!ibv_post_send(pair.ends[0], &send, &bad));
	polled(pair.cq, 2);
	printf("post %#x %" PRIu64 " %d 8 %#x 0 0\n", qp, id, IBV_WC_SEND, peer);
	printf("receive %#x %" PRIu64 " %d %d 8 %#x\n", peer, receive, IBV_WC_RECV, IBV_WC_SUCCESS, qp);
	printf("completion %#x %" PRIu64 " %d %d 8 %#x\n", qp, id, IBV_WC_SEND, IBV_WC_SUCCESS, peer);
}

/* Posts a request and waits for its end. In between, the device does what is said here. */
static void request(int end, struct ibv_send_wr *wr, enum ibv_wc_opcode opcode, uint32_t length, uint32_t key,
		    uint64_t address, const char *between, enum ibv_wc_status status)
{
	const uint32_t qp = pair.ends[end]->qp_num, peer = pair.ends[!end]->qp_num;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	printf("post %#x %" PRIu64 " %d %u %#x %#x %#" PRIx64 "\n%s", qp, wr->wr_id, opcode, length,
	       opcode == IBV_WC_BIND_MW || opcode == IBV_WC_LOCAL_INV ? 0 : peer, key, address, between);
	wr->send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(pair.ends[end], wr, &bad));
	while (!ibv_poll_cq(pair.cq, 1, &wc)) {
	}
	CHECK(wc.wr_id == wr->wr_id && wc.status == status && wc.qp_num == qp);
	printf("completion %#x %" PRIu64 " %d %d %u %#x\n", qp, wr->wr_id, opcode, status, status || opcode == IBV_WC_BIND_MW ? 0 : length,
	       peer);
}

static void write_by(uint64_t id, uint32_t key, const char *between, enum ibv_wc_status status)
{
	struct ibv_sge data = {at(0), 8, pair.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &data, .num_sge = 1,
				 .wr.rdma = {at(64), key}};

	request(0, &wr, IBV_WC_RDMA_WRITE, 8, key, at(64), between, status);
}

int main(void)
{
	const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	struct ibv_send_wr bind = {.wr_id = 12, .opcode = IBV_WR_BIND_MW}, revoke = {.wr_id = 14, .opcode = IBV_WR_LOCAL_INV};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp gone = {0};
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint32_t key, qp, peer;
	char text[200];

	pair = pair_of(IBV_QPT_RC);
	says_registered(pair.mr, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	qp = pair.ends[0]->qp_num;
	peer = pair.ends[1]->qp_num;
	says_state(qp, IBV_QPS_RESET, 0);
	says_state(peer, IBV_QPS_RESET, 0);
	says_state(qp, IBV_QPS_INIT, 0);
	says_connected(qp, peer);
	says_state(peer, IBV_QPS_INIT, 0);
	says_connected(peer, qp);
	CHECK(mr = ibv_reg_mr(pair.pd, memory + 64, 1000, rights));
	says_registered(mr, rights);
	write_by(11, pair.remote_key, "", IBV_WC_SUCCESS);

	send_into_receive(17, 18);

	CHECK(mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2));
	key = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = key;
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, at(64), WINDOW, IBV_ACCESS_REMOTE_WRITE};
	snprintf(text, sizeof(text), "bind %#x %#" PRIx64 " %d %#x %#x\n", key, at(64), WINDOW, IBV_ACCESS_REMOTE_WRITE,
		 pair.ends[1]->qp_num);
	request(1, &bind, IBV_WC_BIND_MW, WINDOW, key, at(64), text, IBV_WC_SUCCESS);
	write_by(13, key, "", IBV_WC_SUCCESS);
	revoke.invalidate_rkey = key;
	snprintf(text, sizeof(text), "revoke %#x\n", key);
	request(1, &revoke, IBV_WC_LOCAL_INV, 0, key, 0, text, IBV_WC_SUCCESS);
	snprintf(text, sizeof(text), "refusal %#x RA-26 %#x %#" PRIx64 " 8 %#x\nconnection %#x %d %#x\n", peer, key, at(64),
		 qp, peer, IBV_QPS_ERR, qp);
	write_by(15, key, text, IBV_WC_REM_ACCESS_ERR);
	says_state(qp, IBV_QPS_ERR, peer);

	/* The window has been closed already. */
	CHECK(!ibv_dealloc_mw(mw));
	printf("revoke %#x\n", mr->rkey);
	CHECK(!ibv_dereg_mr(mr));

	/* Nobody answers. */
	CHECK(!ibv_destroy_qp(pair.ends[1]));
	CHECK(!ibv_modify_qp(pair.ends[0], &reset, IBV_QP_STATE));
	connect_to(pair.ends[0], pair.context, peer);
	says_state(peer, IBV_QPS_RESET, qp);
	says_state(qp, IBV_QPS_RESET, peer);
	says_state(qp, IBV_QPS_INIT, peer);
	says_connected(qp, peer);
	pair.ends[1] = &gone;
	gone.qp_num = peer;
	snprintf(text, sizeof(text), "retransmission %#x timeout 1 %#x\n", qp, peer);
	write_by(16, pair.remote_key, text, IBV_WC_RETRY_EXC_ERR);
	pair.ends[1] = NULL;
	says_state(qp, IBV_QPS_ERR, peer);
	says_state(qp, IBV_QPS_RESET, peer);
	printf("revoke %#x\n", pair.mr->rkey);
	end_pair(&pair);
	return 0;
}
