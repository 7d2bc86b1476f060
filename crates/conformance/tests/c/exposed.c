/*
 * Programs of known traffic, for the account of what they open to peers. Each says when it did what: a name, and the
 * nanoseconds of the steady clock before and after.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checked/pair.h"

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct pair pair;
static unsigned long long before;

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

#define DO(name, what)                                                                                                 \
	do {                                                                                                           \
		before = now();                                                                                        \
		what;                                                                                                  \
		printf("%s %llu %llu\n", name, before, now());                                                         \
		fflush(stdout);                                                                                        \
	} while (0)

static void request(int end, enum ibv_wr_opcode opcode, uint64_t at, uint32_t length, uint32_t key)
{
	struct ibv_sge data = {(uintptr_t)memory, length, pair.mr->lkey};
	struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data, .num_sge = 1,
				 .wr.rdma = {at, key}}, *bad;

	CHECK(!ibv_post_send(pair.ends[end], &wr, &bad));
	polled(pair.cq, 1);
}

static uint64_t at(uint64_t offset)
{
	return (uintptr_t)memory + offset;
}

/* The region of the pair is written to three times, and read once. */
static void regions(void)
{
	struct ibv_mr *unused;

	DO("opened", pair = pair_of(IBV_QPT_RC));
	DO("unused", CHECK(unused = ibv_reg_mr(pair.pd, memory, 1000, RIGHTS)));
	DO("local", CHECK(ibv_reg_mr(pair.pd, memory, 1000, IBV_ACCESS_LOCAL_WRITE)));
	DO("first", request(0, IBV_WR_RDMA_WRITE, at(64), 8, pair.remote_key));
	DO("second", request(0, IBV_WR_RDMA_WRITE, at(64), 8, pair.remote_key));
	DO("third", request(1, IBV_WR_RDMA_WRITE, at(1000), 100, pair.remote_key));
	DO("read", request(1, IBV_WR_RDMA_READ, at(68), 16, pair.remote_key));
	DO("unused closed", CHECK(!ibv_dereg_mr(unused)));
	DO("closed", end_queues(&pair));
}

/* Nobody is let in until one end can receive, and after both ends are in error. */
static void doors(void)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct ibv_mr *mr;

	pair = pair_of(IBV_QPT_RC);
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(pair.ends[i]));
		pair.ends[i] = NULL;
	}
	DO("opened", CHECK(mr = ibv_reg_mr(pair.pd, memory + 8, 64, RIGHTS | IBV_ACCESS_REMOTE_ATOMIC)));
	struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	CHECK(pair.ends[0] = ibv_create_qp(pair.pd, &init));
	usleep(20000);
	DO("let in", connect_to(pair.ends[0], pair.context, pair.ends[0]->qp_num));
	usleep(20000);
	DO("shut", CHECK(!ibv_modify_qp(pair.ends[0], &error, IBV_QP_STATE)));
	usleep(20000);
	DO("closed", CHECK(!ibv_dereg_mr(mr)));
	end_pair(&pair);
}

/* The region moves on, and keeps its key. */
static void moved(void)
{
	pair = pair_of(IBV_QPT_RC);
	DO("first", request(0, IBV_WR_RDMA_WRITE, at(10), 5, pair.remote_key));
	DO("moved", CHECK(!ibv_rereg_mr(pair.mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL,
					memory + 2048, 1024, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	struct ibv_sge data = {(uintptr_t)memory + 2048, 7, pair.mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
				 .num_sge = 1, .wr.rdma = {at(2050), pair.mr->rkey}}, *bad;
	CHECK(!ibv_post_send(pair.ends[0], &wr, &bad));
	polled(pair.cq, 1);
	end_pair(&pair);
}

/* A WRITE and a READ of many parts, to another end of a region than they come from. */
static void large(void)
{
	static char bytes[2 << 20];
	enum { LENGTH = 700000, FAR = 1 << 20 };
	struct ibv_sge data = {(uintptr_t)bytes, LENGTH, 0};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
				 .num_sge = 1, .wr.rdma = {(uintptr_t)bytes + FAR, 0}}, *bad;
	struct ibv_mr *mr;

	pair = pair_of(IBV_QPT_RC);
	CHECK(mr = ibv_reg_mr(pair.pd, bytes, sizeof(bytes), RIGHTS));
	data.lkey = mr->lkey;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(pair.ends[0], &wr, &bad));
	polled(pair.cq, 1);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(!ibv_post_send(pair.ends[0], &wr, &bad));
	polled(pair.cq, 1);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Headers newer than those of rdma-core 44 have this call, behind the others. */
struct flushes {
	struct ibv_qp_ex qp;
	void (*flush)(struct ibv_qp_ex *qp, uint32_t key, uint64_t at, size_t length, uint8_t type, uint8_t level);
};

enum { FLUSH_GLOBAL = 1 << 8, WITH_FLUSH = 1 << 11, TO_GLOBAL = 1, OF_RANGE = 0 };

/* A queue pair that is connected to itself, in place of those of the pair. */
static struct ibv_qp_ex *builder(void)
{
	pair = pair_of(IBV_QPT_RC);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	struct ibv_qp_init_attr_ex init = {.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC,
					   .cap = {DEPTH, DEPTH, 1, 1, 0}, .pd = pair.pd,
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | WITH_FLUSH |
							     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
							     IBV_QP_EX_WITH_ATOMIC_WRITE};

	pair.ends[1] = NULL;
	CHECK(pair.ends[0] = ibv_create_qp_ex(pair.context, &init));
	connect_to(pair.ends[0], pair.context, pair.ends[0]->qp_num);
	return ibv_qp_to_qp_ex(pair.ends[0]);
}

/* Builds a request, and waits until it has ended well. */
#define BUILD(builder, call)                                                                                           \
	do {                                                                                                           \
		(builder)->wr_flags = IBV_SEND_SIGNALED;                                                               \
		ibv_wr_start(builder);                                                                                 \
		call;                                                                                                  \
		CHECK(!ibv_wr_complete(builder));                                                                      \
		struct ibv_wc wc;                                                                                      \
		while (!ibv_poll_cq(pair.cq, 1, &wc));                                                                 \
		CHECK(wc.status == IBV_WC_SUCCESS);                                                                    \
	} while (0)

/* Two atomics, an ATOMIC WRITE and a FLUSH. */
static void atomics(void)
{
	struct ibv_qp_ex *it = builder();
	const int all = RIGHTS | IBV_ACCESS_REMOTE_ATOMIC | FLUSH_GLOBAL;
	struct ibv_qp_attr lets_in = {.qp_access_flags = all};
	const uint64_t *changed = (const uint64_t *)memory, answer = at(2048), word = 7;
	struct ibv_mr *mr;

	DO("opened", CHECK(mr = ibv_reg_mr(pair.pd, memory, sizeof(memory), all)));
	DO("let in", CHECK(!ibv_modify_qp(pair.ends[0], &lets_in, IBV_QP_ACCESS_FLAGS)));
	DO("added", BUILD(it, ibv_wr_atomic_fetch_add(it, mr->rkey, at(64), 1);
			  ibv_wr_set_sge(it, mr->lkey, answer, 8)));
	DO("not swapped", BUILD(it, ibv_wr_atomic_cmp_swp(it, mr->rkey, at(256), 5, 6);
				ibv_wr_set_sge(it, mr->lkey, answer, 8)));
	DO("written", BUILD(it, ibv_wr_atomic_write(it, mr->rkey, at(128), &word)));
	DO("flushed", BUILD(it, ((struct flushes *)it)->flush(it, mr->rkey, at(0), 1024, TO_GLOBAL, OF_RANGE)));
	CHECK(changed[8] == 1 && changed[32] == 0 && changed[16] == 7);
	DO("closed", CHECK(!ibv_dereg_mr(mr)));
	end_pair(&pair);
}

/* A WRITE is refused, and ends the connection. */
static void refused(void)
{
	struct ibv_sge data = {(uintptr_t)memory, 8, 0};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
				 .num_sge = 1}, *bad;
	struct ibv_wc wc;

	pair = pair_of(IBV_QPT_RC);
	DO("first", request(0, IBV_WR_RDMA_WRITE, at(10), 5, pair.remote_key));
	data.lkey = pair.mr->lkey;
	wr.wr.rdma.remote_addr = at(sizeof(memory) - 7);
	wr.wr.rdma.rkey = pair.remote_key;
	DO("refused", CHECK(!ibv_post_send(pair.ends[0], &wr, &bad));
	   while (!ibv_poll_cq(pair.cq, 1, &wc)); CHECK(wc.status == IBV_WC_REM_ACCESS_ERR));
	usleep(20000);
	end_pair(&pair);
}

static struct ibv_mr *carrier(uint64_t offset, uint64_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory + offset, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);

	CHECK(mr);
	return mr;
}

static void bind2(struct ibv_mw *mw, uint32_t key, struct ibv_mr *mr, uint64_t offset, uint64_t length, int rights)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, at(offset), length, rights};
	CHECK(!ibv_post_send(pair.ends[1], &wr, &bad));
	polled(pair.cq, 1);
}

/* A window of each type is bound, used, bound again, used and unbound. */
static void windows(void)
{
	pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = carrier(0, 4096);
	struct ibv_mw *one = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {mr, at(512), 512, IBV_ACCESS_REMOTE_WRITE}};
	struct ibv_send_wr end = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED}, *bad;

	CHECK(one && two);
	DO("one", CHECK(!ibv_bind_mw(pair.ends[0], one, &bind)); polled(pair.cq, 1));
	DO("one used", request(0, IBV_WR_RDMA_WRITE, at(512), 512, one->rkey));
	bind.bind_info.length = 256;
	DO("one again", CHECK(!ibv_bind_mw(pair.ends[0], one, &bind)); polled(pair.cq, 1));
	bind.bind_info.length = 0;
	DO("one ended", CHECK(!ibv_bind_mw(pair.ends[0], one, &bind)); polled(pair.cq, 1));

	const uint32_t first = ibv_inc_rkey(two->rkey), second = ibv_inc_rkey(first);
	DO("two", bind2(two, first, mr, 1024, 64, IBV_ACCESS_REMOTE_READ));
	DO("two used", request(0, IBV_WR_RDMA_READ, at(1030), 30, first));
	end.invalidate_rkey = first;
	DO("two ended", CHECK(!ibv_post_send(pair.ends[1], &end, &bad)); polled(pair.cq, 1));
	DO("two again", bind2(two, second, mr, 1024, 32, IBV_ACCESS_REMOTE_READ));
	receive_on(pair.ends[1], 9);
	end = (struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED,
				   .invalidate_rkey = second};
	DO("two taken", CHECK(!ibv_post_send(pair.ends[0], &end, &bad)); polled(pair.cq, 2));

	DO("three", bind2(two, ibv_inc_rkey(second), mr, 2048, 16, IBV_ACCESS_REMOTE_READ));
	DO("three ended", CHECK(!ibv_dealloc_mw(two)));
	CHECK(!ibv_dealloc_mw(one) && !ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* So many windows, one after the other, that they share cells. */
static void many(void)
{
	pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = carrier(0, 4096);
	struct ibv_mw *mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
	uint32_t key = mw->rkey;

	for (int i = 0; i < 5000; i++) {
		struct ibv_send_wr end = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED}, *bad;

		key = ibv_inc_rkey(key);
		bind2(mw, key, mr, 1024, 64, IBV_ACCESS_REMOTE_READ);
		request(0, IBV_WR_RDMA_READ, at(1024), 32, key);
		end.invalidate_rkey = key;
		CHECK(!ibv_post_send(pair.ends[1], &end, &bad));
		polled(pair.cq, 1);
	}
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* More regions at once than there is room for. */
static void crowd(void)
{
	pair = pair_of(IBV_QPT_RC);
	for (int i = 0; i < 3000; i++)
		CHECK(ibv_reg_mr(pair.pd, memory, 1, RIGHTS));
	request(0, IBV_WR_RDMA_WRITE, at(64), 8, pair.remote_key);
}

/* Twelve calls, each with less than the one before. */
static void sites(void)
{
	pair = pair_of(IBV_QPT_RC);
	CHECK(ibv_reg_mr(pair.pd, memory, 3600, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 3300, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 3000, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 2700, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 2400, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 2100, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 1800, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 1500, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 1200, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 900, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 600, RIGHTS));
	CHECK(ibv_reg_mr(pair.pd, memory, 300, RIGHTS));
	usleep(20000);
}

/* A program is killed while its memory is open. */
static void killed(void)
{
	regions();
	pair.mr = NULL;
	DO("opened", CHECK(ibv_reg_mr(pair.pd, memory, 2000, RIGHTS)));
	pair.mr = carrier(0, 4096);
	struct ibv_qp_init_attr init = {.send_cq = ibv_create_cq(pair.context, 8, NULL, NULL, 0), .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	init.recv_cq = init.send_cq;
	CHECK(pair.ends[0] = ibv_create_qp(pair.pd, &init));
	connect_to(pair.ends[0], pair.context, pair.ends[0]->qp_num);
	usleep(20000);
	DO("killed", kill(getpid(), SIGKILL));
}

/* A program ends at once while its memory is open. If a pipe is named, a child lives on until somebody writes there. */
static void leaves(void)
{
	pair = pair_of(IBV_QPT_RC);
	if (getenv("STAYS") && fork() == 0) {
		open(getenv("STAYS"), O_RDONLY);
		_exit(0);
	}
	_exit(0);
}

/* A program becomes another one while its memory is open. */
static void becomes(void)
{
	pair = pair_of(IBV_QPT_RC);
	execl("/proc/self/exe", "exposed", "regions", NULL);
}

/* A child opens a device of its own, and so does the parent: each has its own account. */
static void forks(void)
{
	regions();
	const pid_t child = fork();
	int status;

	if (child == 0) {
		pair = pair_of(IBV_QPT_RC);
		DO("child", request(0, IBV_WR_RDMA_WRITE, at(0), 4096, pair.remote_key));
		end_pair(&pair);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int arguments, char **words)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"regions", regions}, {"doors", doors},   {"moved", moved}, {"refused", refused}, {"large", large},
		   {"windows", windows}, {"atomics", atomics},
		   {"many", many},	 {"crowd", crowd},   {"sites", sites},     {"killed", killed}, {"forks", forks},
		   {"leaves", leaves},	 {"becomes", becomes}};

	CHECK(arguments == 2);
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(all[i].name, words[1]))
			return all[i].run(), 0;
	return 2;
}
