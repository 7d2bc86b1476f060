/*
 * Programs that rely on luck, each with its right form. The first argument names the program, the second its form:
 * wrong or right. A program ends with 0 if all is well.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

static struct ibv_sge slice(struct pair *pair, unsigned at)
{
	return (struct ibv_sge){.addr = (uintptr_t)memory + at, .length = 8, .lkey = pair->mr->lkey};
}

static struct ibv_send_wr request(struct pair *pair, enum ibv_wr_opcode opcode, struct ibv_sge *local, unsigned at)
{
	return (struct ibv_send_wr){.wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = local,
				    .num_sge = 1, .wr.rdma = {.remote_addr = (uintptr_t)memory + at,
							      .rkey = pair->remote_key}};
}

static struct ibv_wc next_completion(struct pair *pair)
{
	struct ibv_wc wc;
	int count;

	do
		count = ibv_poll_cq(pair->cq, 1, &wc);
	while (!count);
	CHECK(count == 1);
	return wc;
}

/* Uses what a READ brings. Wrong: before its completion. */
static void reads_early(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge to = slice(&pair, 64);
	struct ibv_send_wr read = request(&pair, IBV_WR_RDMA_READ, &to, 0), *bad;
	int is_right = 0;

	memcpy(memory, "the data", 8);
	CHECK(!ibv_post_send(pair.ends[0], &read, &bad));
	if (wrong)
		is_right = !memcmp(memory + 64, "the data", 8);
	CHECK(next_completion(&pair).status == IBV_WC_SUCCESS);
	if (!wrong)
		is_right = !memcmp(memory + 64, "the data", 8);
	end_pair(&pair);
	CHECK(is_right);
}

/* Waits for two completions. Wrong: expects that they come together. */
static void polls_once(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_wc wc[2];
	int count = 0;

	for (int i = 0; i < 2; i++) {
		struct ibv_sge from = slice(&pair, 0);
		struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 64), *bad;

		CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
	}
	if (wrong) {
		while (!count)
			count = ibv_poll_cq(pair.cq, 2, wc);
		CHECK(count == 2);
	} else {
		while (count < 2)
			count += ibv_poll_cq(pair.cq, 2 - count, wc);
	}
	end_pair(&pair);
}

/* Sleeps until a completion comes. Wrong: does not look again after it has asked for the event. */
static void sleeps_unlooked(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.context);
	struct ibv_cq *cq = channel ? ibv_create_cq(pair.context, 4, NULL, channel, 0) : NULL, *of_event;
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_sge from = slice(&pair, 0);
	struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 64), *bad;
	struct ibv_qp *qp = cq ? ibv_create_qp(pair.pd, &init) : NULL;
	struct ibv_wc wc;
	void *user;
	int count = 0;

	CHECK(qp);
	connect_to(qp, pair.context, qp->qp_num);
	CHECK(!ibv_post_send(qp, &write, &bad));
	CHECK(!ibv_req_notify_cq(cq, 0));
	if (!wrong)
		count = ibv_poll_cq(cq, 1, &wc);
	if (!count) {
		CHECK(!ibv_get_cq_event(channel, &of_event, &user));
		ibv_ack_cq_events(cq, 1);
	}
	while (!count)
		count = ibv_poll_cq(cq, 1, &wc);
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
	end_pair(&pair);
}

/* Recognizes a request that was refused. Wrong: by an opcode that means nothing then. */
static void trusts_opcode(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge from = slice(&pair, 0);
	struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 64), *bad;
	struct ibv_wc wc;

	write.wr.rdma.rkey ^= 1 << 30;
	CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
	wc = next_completion(&pair);
	CHECK(wc.status != IBV_WC_SUCCESS);
	CHECK(wrong ? wc.opcode == IBV_WC_RDMA_WRITE : wc.wr_id == 1);
	end_pair(&pair);
}

/* Sends a few bytes inline. Wrong: without a request for room. */
static void inline_unasked(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {4, 4, 1, 1, wrong ? 0 : 8}};
	struct ibv_sge from = {.addr = (uintptr_t)memory, .length = 8};
	struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 64), *bad;
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

	CHECK(qp);
	connect_to(qp, pair.context, qp->qp_num);
	write.send_flags |= IBV_SEND_INLINE;
	CHECK(!ibv_post_send(qp, &write, &bad));
	CHECK(next_completion(&pair).status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Registers memory. Wrong: expects that this succeeds. */
static void ignores_null(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);

	if (!mr && !wrong) {
		end_pair(&pair);
		exit(1);
	}
	printf("key %#x\n", mr->lkey);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Posts two requests as a list. Wrong: waits for both, although the post may have refused the second. */
static void forgets_the_rest(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge from = slice(&pair, 0);
	struct ibv_send_wr second = request(&pair, IBV_WR_RDMA_WRITE, &from, 64);
	struct ibv_send_wr first = second, *rest = &first;

	first.next = &second;
	while (rest) {
		struct ibv_send_wr *bad = NULL;
		int refused = ibv_post_send(pair.ends[0], rest, &bad);

		rest = refused && !wrong ? bad : NULL;
	}
	for (int i = 0; i < 2; i++)
		CHECK(next_completion(&pair).status == IBV_WC_SUCCESS);
	end_pair(&pair);
}

/* A queue pair that is connected to itself, with a batch for WRITEs. */
static struct ibv_qp *to_itself(struct pair *pair, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}, .pd = pair->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE};
	struct ibv_qp *qp = ibv_create_qp_ex(pair->context, &init);

	CHECK(qp);
	connect_to(qp, pair->context, qp->qp_num);
	return qp;
}

static struct ibv_cq_ex *read_by_fields(struct pair *pair)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(pair->context, &attr);

	CHECK(cq);
	return cq;
}

/* Begins to read completions, when there are any. */
static void begin_batch(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr how = {0};
	int answer;

	do
		answer = ibv_start_poll(cq, &how);
	while (answer == ENOENT);
	CHECK(!answer);
}

/* Reads two completions field by field. Wrong: expects that they come in one batch. */
static void one_batch(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq_ex *cq = read_by_fields(&pair);
	struct ibv_qp *qp = to_itself(&pair, ibv_cq_ex_to_cq(cq), NULL);
	int count = 0;

	for (int i = 0; i < 2; i++) {
		struct ibv_sge from = slice(&pair, 0);
		struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 64), *bad;

		CHECK(!ibv_post_send(qp, &write, &bad));
	}
	if (wrong) {
		begin_batch(cq);
		CHECK(!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	while (!wrong && count < 2) {
		begin_batch(cq);
		do
			count++;
		while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	end_pair(&pair);
}

/* Recognizes a request that was refused. Wrong: reads an opcode that means nothing then. */
static void reads_opcode(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq_ex *cq = read_by_fields(&pair);
	struct ibv_qp *qp = to_itself(&pair, ibv_cq_ex_to_cq(cq), NULL);
	struct ibv_sge from = slice(&pair, 0);
	struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 64), *bad;

	write.wr.rdma.rkey ^= 1 << 30;
	CHECK(!ibv_post_send(qp, &write, &bad));
	begin_batch(cq);
	CHECK(cq->status != IBV_WC_SUCCESS);
	CHECK(wrong ? ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE : cq->wr_id == 1);
	ibv_end_poll(cq);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	end_pair(&pair);
}

/*
 * Takes a message. Wrong: takes the immediate data of each message for the address of its answer, although the peer
 * sends none.
 */
static void reads_immediate(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp *qp = to_itself(&pair, pair.cq, NULL);
	struct ibv_sge from = slice(&pair, 0), to = slice(&pair, 64);
	struct ibv_send_wr send = request(&pair, IBV_WR_SEND, &from, 0), *bad;
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad_receive;
	struct ibv_wc wc;
	int left = 2;

	CHECK(!ibv_post_recv(qp, &receive, &bad_receive) && !ibv_post_send(qp, &send, &bad));
	while (left) {
		if (!ibv_poll_cq(pair.cq, 1, &wc))
			continue;
		left--;
		CHECK(!wc.status);
		if (wc.opcode == IBV_WC_RECV && (wrong || wc.wc_flags & IBV_WC_WITH_IMM))
			CHECK(ntohl(wc.imm_data) < sizeof(memory));
	}
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Builds a batch. Wrong: waits for it, although it may have been refused. */
static void forgets_the_batch(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp *qp = to_itself(&pair, pair.cq, NULL);
	struct ibv_qp_ex *batch = ibv_qp_to_qp_ex(qp);
	int refused;

	do {
		ibv_wr_start(batch);
		batch->wr_id = 1;
		batch->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(batch, pair.remote_key, (uintptr_t)memory + 64);
		ibv_wr_set_sge(batch, pair.mr->lkey, (uintptr_t)memory, 8);
		refused = ibv_wr_complete(batch);
	} while (refused && !wrong);
	CHECK(next_completion(&pair).status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Posts two receives as a list, and sends two messages. Wrong: expects that both receives are there. */
static void receives_of(int wrong, struct pair *pair, struct ibv_srq *srq)
{
	struct ibv_qp *qp = to_itself(pair, pair->cq, srq);
	struct ibv_recv_wr second = {.wr_id = 2}, first = {.wr_id = 2, .next = &second}, *rest = &first;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;

	while (rest) {
		struct ibv_recv_wr *bad = NULL;
		int refused = srq ? ibv_post_srq_recv(srq, rest, &bad) : ibv_post_recv(qp, rest, &bad);

		rest = refused && !wrong ? bad : NULL;
	}
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_post_send(qp, &send, &bad_send));
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_completion(pair);

		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 2);
	}
	CHECK(!ibv_destroy_qp(qp));
}

static void forgets_receives(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	receives_of(wrong, &pair, NULL);
	end_pair(&pair);
}

static void forgets_shared(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &init);

	CHECK(srq);
	receives_of(wrong, &pair, srq);
	CHECK(!ibv_destroy_srq(srq));
	end_pair(&pair);
}

/* Asks for a shared receive queue of four. Wrong: posts one more than asked for and granted. */
static void one_more(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &init);
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
	const unsigned count = wrong ? 5 : init.attr.max_wr;

	CHECK(srq && init.attr.max_wr >= 4);
	for (unsigned i = 0; i < count; i++)
		CHECK(!ibv_post_srq_recv(srq, &receive, &bad));
	CHECK(!ibv_destroy_srq(srq));
	end_pair(&pair);
}

/* Asks for completion queues of four. Wrong: takes for granted that they get more, as from most adapters. */
static void counts_entries(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_cq *cq = ibv_create_cq(pair.context, wrong ? 4 : 5, NULL, NULL, 0);

	CHECK(cq && cq->cqe >= 5);
	CHECK(!ibv_resize_cq(cq, 4) && cq->cqe >= 4);
	CHECK(!ibv_destroy_cq(cq));
	end_pair(&pair);
}

/* Looks for its peer's number. Wrong: asks for the state only. */
static void asks_too_little(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const int mask = IBV_QP_STATE | (wrong ? 0 : IBV_QP_DEST_QPN);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(pair.ends[0], &attr, mask, &init));
	CHECK(attr.qp_state == IBV_QPS_RTS && init.cap.max_send_wr >= DEPTH);
	CHECK(attr.dest_qp_num == pair.ends[1]->qp_num);
	end_pair(&pair);
}

/* Makes a second queue pair. Wrong: takes for granted that no number comes again at once. */
static void second_pair(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge from = slice(&pair, 0);
	struct ibv_send_wr write = request(&pair, IBV_WR_RDMA_WRITE, &from, 64), *bad;
	struct ibv_qp *qp = to_itself(&pair, pair.cq, NULL);
	const uint32_t first = qp->qp_num;

	CHECK(!ibv_destroy_qp(qp));
	qp = to_itself(&pair, pair.cq, NULL);
	CHECK(!wrong || qp->qp_num != first);
	CHECK(!ibv_post_send(qp, &write, &bad));
	CHECK(next_completion(&pair).status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Registers memory a second time, elsewhere. Wrong: takes for granted that no key comes again at once. */
static void second_key(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge to = {.addr = (uintptr_t)memory + 128, .length = 8};
	struct ibv_send_wr read = request(&pair, IBV_WR_RDMA_READ, &to, 0), *bad;
	uint32_t first;

	CHECK(mr);
	first = mr->lkey;
	CHECK(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr(pair.pd, memory + 128, 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && (!wrong || mr->lkey != first));
	to.lkey = mr->lkey;
	memcpy(memory, "the data", 8);
	CHECK(!ibv_post_send(pair.ends[0], &read, &bad));
	CHECK(next_completion(&pair).status == IBV_WC_SUCCESS && !memcmp(memory + 128, "the data", 8));
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* The index of the first GID that stands for an IPv4 address. */
static int index_of_ipv4(struct ibv_context *context)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	union ibv_gid gid;

	for (int index = 0; !ibv_query_gid(context, 1, index, &gid); index++) {
		if (!memcmp(gid.raw, mapped, sizeof(mapped)))
			return index;
	}
	CHECK(!"a GID of IPv4");
	return 0;
}

/* Receives a datagram by IPv4. Wrong: tells by the first byte that it is not IPv6. */
static void looks_in_front(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_UD,
					.cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
	struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
	struct ibv_sge from = slice(&pair, 0), to = {.addr = (uintptr_t)memory + 64, .length = 48, .lkey = from.lkey};
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1}, *bad;
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	path.grh.sgid_index = index_of_ipv4(pair.context);
	CHECK(!ibv_query_gid(pair.context, 1, path.grh.sgid_index, &path.grh.dgid));
	send.wr.ud.ah = ibv_create_ah(pair.pd, &path);
	send.wr.ud.remote_qpn = qp->qp_num;
	send.wr.ud.remote_qkey = 7;
	CHECK(send.wr.ud.ah);
	CHECK(!ibv_post_recv(qp, &receive, &bad_receive) && !ibv_post_send(qp, &send, &bad));
	CHECK(next_completion(&pair).status == IBV_WC_SUCCESS);
	CHECK(memory[64 + (wrong ? 0 : 20)] == (wrong ? 0 : 0x45));
	CHECK(!ibv_destroy_ah(send.wr.ud.ah) && !ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* READs, is refused, and goes on with what it had. Wrong: expects that the target still has it. */
static void keeps_old(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge to = slice(&pair, 64);
	struct ibv_send_wr read = request(&pair, IBV_WR_RDMA_READ, &to, 0), *bad;

	memcpy(memory + 64, "the data", 8);
	memcpy(memory + 128, "the data", 8);
	read.wr.rdma.rkey ^= 1 << 30;
	CHECK(!ibv_post_send(pair.ends[0], &read, &bad));
	CHECK(next_completion(&pair).status != IBV_WC_SUCCESS);
	CHECK(!memcmp(memory + (wrong ? 64 : 128), "the data", 8));
	end_pair(&pair);
}

static const struct {
	const char *name;
	void (*run)(int wrong);
} programs[] = {
	{"reads-early", reads_early},	      {"polls-once", polls_once},
	{"sleeps-unlooked", sleeps_unlooked}, {"trusts-opcode", trusts_opcode},
	{"inline-unasked", inline_unasked},   {"ignores-null", ignores_null},
	{"forgets-the-rest", forgets_the_rest}, {"one-batch", one_batch},
	{"reads-opcode", reads_opcode},	      {"forgets-the-batch", forgets_the_batch},
	{"forgets-receives", forgets_receives}, {"forgets-shared", forgets_shared},
	{"one-more", one_more},		      {"counts-entries", counts_entries},
	{"asks-too-little", asks_too_little},   {"second-pair", second_pair},
	{"second-key", second_key},	      {"looks-in-front", looks_in_front},
	{"keeps-old", keeps_old},	      {"reads-immediate", reads_immediate},
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	for (unsigned i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (!strcmp(argv[1], programs[i].name)) {
			programs[i].run(!strcmp(argv[2], "wrong"));
			return 0;
		}
	}
	return 2;
}
