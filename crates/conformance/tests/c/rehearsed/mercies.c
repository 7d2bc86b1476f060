/*
 * Programs that rely on what nobody promised, each with its right form, as in moments.c.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../checked/pair.h"

/* Tells its peer the key of its memory. Wrong: the L_Key. */
static void tells_its_own_key(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge from = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				    .sg_list = &from, .num_sge = 1}, *bad;
	struct ibv_wc wc;
	int count;

	write.wr.rdma.remote_addr = (uintptr_t)memory + 64;
	write.wr.rdma.rkey = wrong ? pair.mr->lkey : pair.mr->rkey;
	CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
	do
		count = ibv_poll_cq(pair.cq, 1, &wc);
	while (!count);
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
	end_pair(&pair);
}

/* Sends and receives. Wrong: names its own memory by the R_Key. */
static void names_it_by_the_peers_key(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const uint32_t key = wrong ? pair.mr->rkey : pair.mr->lkey;
	struct ibv_sge from = {(uintptr_t)memory, 64, key}, to = {(uintptr_t)memory + 64, 64, key};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &from, .num_sge = 1}, *bad;
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad_receive;

	CHECK(!ibv_post_recv(pair.ends[1], &receive, &bad_receive) && !ibv_post_send(pair.ends[0], &send, &bad));
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;
		int count;

		do
			count = ibv_poll_cq(pair.cq, 1, &wc);
		while (!count);
		CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
	}
	end_pair(&pair);
}

/* Binds a type 2 window by a key that it makes, and hands the key to its peer. Wrong: reads it from the window. */
static void reads_the_windows_key(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, 256,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = {.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;

	CHECK(mr && mw);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)memory, 256, IBV_ACCESS_REMOTE_WRITE};
	CHECK(!ibv_post_send(pair.ends[1], &bind, &bad));
	polled(pair.cq, 1);
	pair.remote_key = wrong ? mw->rkey : bind.bind_mw.rkey;
	CHECK(!try_write(&pair, 2, IBV_SEND_SIGNALED));
	for (int count = 0; !count;) {
		struct ibv_wc wc;

		count = ibv_poll_cq(pair.cq, 1, &wc);
		CHECK(!count || (count == 1 && wc.status == IBV_WC_SUCCESS));
	}
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
	end_pair(&pair);
}

static enum ibv_mtu active_mtu(struct ibv_context *context)
{
	struct ibv_port_attr port;

	CHECK(!ibv_query_port(context, 1, &port));
	return port.active_mtu;
}

/* Connects. Wrong: takes the largest MTU there is. */
static void takes_the_largest_mtu(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {4, 4, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .dest_qp_num = qp->qp_num, .min_rnr_timer = 1,
				    .path_mtu = wrong ? IBV_MTU_4096 : active_mtu(pair.context),
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1}};
	CHECK(!ibv_query_gid(pair.context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	CHECK(!ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Sends a datagram. Wrong: of 2048 bytes, without a look at the port. */
static void sends_long_datagrams(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_UD,
					.cap = {1, 1, 1, 1, 0}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
	struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
	struct ibv_sge from = {(uintptr_t)memory, wrong ? 2048 : 128 << active_mtu(pair.context), pair.mr->lkey};
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &from, .num_sge = 1,
				   .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_qp *qp = ibv_create_qp(pair.pd, &init);
	struct ibv_wc wc;
	int count;

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	CHECK(!ibv_query_gid(pair.context, 1, 0, &path.grh.dgid));
	send.wr.ud.ah = ibv_create_ah(pair.pd, &path);
	send.wr.ud.remote_qpn = qp->qp_num;
	send.wr.ud.remote_qkey = 7;
	CHECK(send.wr.ud.ah && !ibv_post_send(qp, &send, &bad));
	do
		count = ibv_poll_cq(pair.cq, 1, &wc);
	while (!count);
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_ah(send.wr.ud.ah) && !ibv_destroy_qp(qp));
	end_pair(&pair);
}

/* Connects two queue pairs. Wrong: tells only the number of the first, and counts. */
static void counts_queue_pairs(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC), other = pair_of(IBV_QPT_RC);

	CHECK(!wrong || other.ends[1]->qp_num == other.ends[0]->qp_num + 1);
	CHECK(!try_write(&other, 1, IBV_SEND_SIGNALED));
	polled(other.cq, 1);
	end_pair(&other);
	end_pair(&pair);
}

/* Registers what a list has, which may be nothing. Wrong: also if it is nothing. */
static void registers_nothing(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (size_t length = 0; length <= 64; length += 64) {
		struct ibv_mr *mr;

		if (!length && !wrong)
			continue;
		mr = ibv_reg_mr(pair.pd, memory, length, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && !ibv_dereg_mr(mr));
	}
	end_pair(&pair);
}

/* A thread that writes to its own memory until it is told to end. */
struct writer {
	struct pair pair;
	struct ibv_mr *mr;
	pthread_mutex_t turn;
	atomic_int wrote, over;
	int wrong;
};

static void *write_again(void *argument)
{
	struct writer *writer = argument;

	while (!writer->over) {
		struct ibv_sge from = {(uintptr_t)memory, 8, writer->pair.mr->lkey};
		struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
					    .sg_list = &from, .num_sge = 1}, *bad;
		struct ibv_wc wc;
		int count;

		if (!writer->wrong)
			pthread_mutex_lock(&writer->turn);
		write.wr.rdma.remote_addr = (uintptr_t)memory + 64;
		write.wr.rdma.rkey = writer->mr->rkey;
		CHECK(!ibv_post_send(writer->pair.ends[0], &write, &bad));
		do
			count = ibv_poll_cq(writer->pair.cq, 1, &wc);
		while (!count);
		CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
		writer->wrote++;
		if (!writer->wrong)
			pthread_mutex_unlock(&writer->turn);
	}
	return NULL;
}

/* Gives its peer one right more, and takes it back, while that writes. Wrong: not between two of its requests. */
static void changes_rights_in_use(int wrong)
{
	static struct writer writer = {.turn = PTHREAD_MUTEX_INITIALIZER};
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	pthread_t thread;

	writer.wrong = wrong;
	writer.pair = pair_of(IBV_QPT_RC);
	writer.mr = ibv_reg_mr(writer.pair.pd, memory, 256, access);
	CHECK(writer.mr && !pthread_create(&thread, NULL, write_again, &writer));
	for (int round = 0; round < 8; round++) {
		const int more = round % 2 ? 0 : IBV_ACCESS_REMOTE_READ, wrote = writer.wrote;

		while (writer.wrote == wrote)
			sched_yield();
		pthread_mutex_lock(&writer.turn);
		CHECK(!ibv_rereg_mr(writer.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access | more));
		pthread_mutex_unlock(&writer.turn);
	}
	writer.over = 1;
	CHECK(!pthread_join(thread, NULL) && !ibv_dereg_mr(writer.mr));
	end_pair(&writer.pair);
}

/* Opens the device and closes it. It has no wrong form. */
static void only_opens(int wrong)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;

	(void)wrong;
	CHECK(devices && devices[0] && (context = ibv_open_device(devices[0])));
	ibv_free_device_list(devices);
	CHECK(!ibv_close_device(context));
}

static const struct mistake mistakes[] = {
	{"only-opens", only_opens},
	{"tells-its-own-key", tells_its_own_key},
	{"names-it-by-the-peers-key", names_it_by_the_peers_key},
	{"reads-the-windows-key", reads_the_windows_key},
	{"takes-the-largest-mtu", takes_the_largest_mtu},
	{"sends-long-datagrams", sends_long_datagrams},
	{"counts-queue-pairs", counts_queue_pairs},
	{"registers-nothing", registers_nothing},
	{"changes-rights-in-use", changes_rights_in_use},
};

int main(int argc, char **argv)
{
	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), argc, argv);
}
