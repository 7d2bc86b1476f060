/* Mistakes with keys, and with the rights that they give to peers. Each mistake has a correct twin. The first argument
   names the mistake, the second is "wrong" or "right". Lines that a finding names are marked. */
#include "pair.h"

static char own[64];

/* A region for windows, and a window. */
struct window {
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static struct window window_of_type(struct pair *pair, enum ibv_mw_type type)
{
	const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	struct window window = {ibv_reg_mr(pair->pd, own, sizeof(own), rights), ibv_alloc_mw(pair->pd, type)};

	CHECK(window.mr && window.mw);
	return window;
}

static struct window window_of(struct pair *pair)
{
	return window_of_type(pair, IBV_MW_TYPE_1);
}

/* The other end binds a window of type 2. */
static void bind_by_post(struct pair *pair, struct window *window)
{
	struct ibv_send_wr bind = {.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
				   .bind_mw = {window->mw, ibv_inc_rkey(window->mw->rkey),
					       {window->mr, (uintptr_t)own, sizeof(own),
						IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}}}, *bad;

	CHECK(!ibv_post_send(pair->ends[1], &bind, &bad));
}

/* The other end binds a window to `length` bytes. */
static void bind(struct pair *pair, struct window *window, uint64_t length)
{
	struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {window->mr, (uintptr_t)own, length,
						 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}};

	CHECK(!ibv_bind_mw(pair->ends[1], window->mw, &bind));
}

/* The first end uses a key for the memory of the window. Returns the status. */
static int used(struct pair *pair, uint32_t key, enum ibv_wr_opcode opcode)
{
	struct ibv_sge data = {(uintptr_t)memory, 8, pair->mr->lkey};
	struct ibv_send_wr use = {.wr_id = 2, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data,
				  .num_sge = 1, .wr.rdma = {(uintptr_t)own, key}}, *bad;
	struct ibv_wc wc = {0};

	CHECK(!ibv_post_send(pair->ends[0], &use, &bad));
	do
		CHECK(ibv_poll_cq(pair->cq, 1, &wc) >= 0);
	while (wc.wr_id != 2);
	return wc.status;
}

static void end_window(struct pair *pair, struct window *window)
{
	CHECK(!ibv_dealloc_mw(window->mw) && !ibv_dereg_mr(window->mr));
	end_pair(pair);
}

static void key_before_bind(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct window window = window_of(&pair);

	bind(&pair, &window, sizeof(own)); /* bound */
	if (!wrong)
		polled(pair.cq, 1);
	/* Skips the completion of the bind, so nobody polls it here. */
	CHECK(used(&pair, window.mw->rkey, IBV_WR_RDMA_WRITE) == IBV_WC_SUCCESS);
	CHECK(used(&pair, window.mw->rkey, IBV_WR_RDMA_READ) == IBV_WC_SUCCESS);
	end_window(&pair, &window);
}

static void key_early(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct window window = window_of_type(&pair, IBV_MW_TYPE_2);

	bind_by_post(&pair, &window); /* bound */
	if (!wrong)
		polled(pair.cq, 1);
	CHECK(used(&pair, window.mw->rkey, IBV_WR_RDMA_READ) == IBV_WC_SUCCESS);
	CHECK(used(&pair, window.mw->rkey, IBV_WR_RDMA_WRITE) == IBV_WC_SUCCESS);
	end_window(&pair, &window);
}

/* A message after the bind may tell the key. One before it cannot. */
static void told_behind_of(enum ibv_mw_type type, int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct window window = window_of_type(&pair, type);
	struct ibv_cq *cq = ibv_create_cq(pair.context, 2 * DEPTH, NULL, NULL, 0), *both = pair.cq;
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};

	/* The end that binds has another completion queue, so nobody polls the bind. */
	CHECK(!ibv_destroy_qp(pair.ends[0]) && !ibv_destroy_qp(pair.ends[1]));
	CHECK(cq && (pair.ends[1] = ibv_create_qp(pair.pd, &init)));
	init.send_cq = init.recv_cq = both;
	CHECK((pair.ends[0] = ibv_create_qp(pair.pd, &init)));
	for (int i = 0; i < 2; i++)
		connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	receive_on(pair.ends[0], 3);
	if (wrong)
		send_on(pair.ends[1], 4, 0);
	if (type == IBV_MW_TYPE_1)
		bind(&pair, &window, sizeof(own));
	else
		bind_by_post(&pair, &window);
	if (!wrong)
		send_on(pair.ends[1], 4, 0);
	polled(both, 1);
	CHECK(used(&pair, window.mw->rkey, IBV_WR_RDMA_WRITE) == IBV_WC_SUCCESS);
	polled(cq, 1);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	pair.ends[0] = pair.ends[1] = NULL;
	CHECK(!ibv_destroy_cq(cq));
	end_window(&pair, &window);
}

static void told_behind(int wrong)
{
	told_behind_of(IBV_MW_TYPE_1, wrong);
}

static void told_behind_type_2(int wrong)
{
	told_behind_of(IBV_MW_TYPE_2, wrong);
}

/* The bind waits for a message before it, and is carried out when the peer receives that. */
static void bound_late(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct window window = window_of(&pair);
	struct ibv_cq *cq = ibv_create_cq(pair.context, 2 * DEPTH, NULL, NULL, 0), *both = pair.cq;
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_wc wc;

	/* The end that binds has another completion queue, so nobody polls the bind. */
	CHECK(!ibv_destroy_qp(pair.ends[0]) && !ibv_destroy_qp(pair.ends[1]));
	CHECK(cq && (pair.ends[1] = ibv_create_qp(pair.pd, &init)));
	init.send_cq = init.recv_cq = both;
	CHECK((pair.ends[0] = ibv_create_qp(pair.pd, &init)));
	for (int i = 0; i < 2; i++)
		connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	send_on(pair.ends[1], 4, 0);
	bind(&pair, &window, sizeof(own));
	receive_on(pair.ends[0], 3);
	polled(both, 1);
	if (!wrong)
		polled(cq, 1);
	/* It stays as it is once a window is bound to it. */
	while (!ibv_rereg_mr(window.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND))
		CHECK(ibv_poll_cq(both, 1, &wc) == 0);
	CHECK(used(&pair, window.mw->rkey, IBV_WR_RDMA_WRITE) == IBV_WC_SUCCESS);
	if (wrong)
		polled(cq, 1);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(pair.ends[i]));
	pair.ends[0] = pair.ends[1] = NULL;
	CHECK(!ibv_destroy_cq(cq));
	end_window(&pair, &window);
}

static void failed_bind_used(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct window window = window_of(&pair);
	struct ibv_async_event event;
	struct ibv_wc wc;
	int status;

	bind(&pair, &window, sizeof(own) + wrong); /* bound */
	while (ibv_poll_cq(pair.cq, 1, &wc) == 0)
		continue;
	CHECK(wc.status == (wrong ? IBV_WC_MW_BIND_ERR : IBV_WC_SUCCESS));
	if (wrong) {
		/* A queue pair whose bind has failed is in error. */
		CHECK(!ibv_destroy_qp(pair.ends[1]) && !ibv_destroy_qp(pair.ends[0]));
		for (int i = 0; i < 2; i++) {
			struct ibv_qp_init_attr init = {.send_cq = pair.cq, .recv_cq = pair.cq,
							.qp_type = IBV_QPT_RC, .cap = {DEPTH, DEPTH, 1, 1, 0}};

			CHECK((pair.ends[i] = ibv_create_qp(pair.pd, &init)));
		}
		for (int i = 0; i < 2; i++)
			connect_to(pair.ends[i], pair.context, pair.ends[!i]->qp_num);
	}
	status = used(&pair, window.mw->rkey, IBV_WR_RDMA_WRITE);
	CHECK(status == (wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
	if (wrong) {
		CHECK(!ibv_get_async_event(pair.context, &event));
		ibv_ack_async_event(&event);
	}
	end_window(&pair, &window);
}

static void open_at_end(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, own, sizeof(own), IBV_ACCESS_REMOTE_READ); /* opened */

	CHECK(mr);
	if (wrong) {
		CHECK(!ibv_dereg_mr(pair.mr));
		exit(0);
	}
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

static void rights_unused(int wrong)
{
	const int write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, read = IBV_ACCESS_REMOTE_READ;
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, own, sizeof(own), read | write); /* granted */

	CHECK(mr && used(&pair, mr->rkey, IBV_WR_RDMA_READ) == IBV_WC_SUCCESS);
	if (!wrong)
		CHECK(used(&pair, mr->rkey, IBV_WR_RDMA_WRITE) == IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(mr));
	/* Both forms write to the memory of the pair. */
	CHECK(!try_write(&pair, 5, IBV_SEND_SIGNALED));
	polled(pair.cq, 1);
	end_pair(&pair);
}

static void request_refused(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_async_event event;

	if (wrong)
		pair.remote_key ^= 0x100;
	CHECK(!try_write(&pair, 1, IBV_SEND_SIGNALED)); /* posted */
	polled(pair.cq, 1);
	if (wrong) {
		CHECK(!ibv_get_async_event(pair.context, &event));
		ibv_ack_async_event(&event);
	}
	end_pair(&pair);
}

/* Adds the address of a number, and not the number. */
static void address_added(int wrong)
{
	static uint64_t word;
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, &word, sizeof(word), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	struct ibv_qp_attr rights = {.qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC};
	uint64_t number = 1;
	const uint64_t operand = wrong ? (uintptr_t)&number : number;
	struct ibv_sge old = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr add = {.wr_id = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &old, .num_sge = 1}, *bad;

	CHECK(mr && !ibv_modify_qp(pair.ends[1], &rights, IBV_QP_ACCESS_FLAGS));
	add.wr.atomic.remote_addr = (uintptr_t)&word;
	add.wr.atomic.rkey = mr->rkey;
	add.wr.atomic.compare_add = operand;
	CHECK(!ibv_post_send(pair.ends[0], &add, &bad)); /* posted */
	polled(pair.cq, 1);
	CHECK(word == operand && !ibv_dereg_mr(mr));
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"key-before-bind", key_before_bind},
		{"key-early", key_early},
		{"told-behind", told_behind},
		{"told-behind-type-2", told_behind_type_2},
		{"bound-late", bound_late},
		{"failed-bind-used", failed_bind_used},
		{"open-at-end", open_at_end},
		{"rights-unused", rights_unused},
		{"request-refused", request_refused},
		{"address-added", address_added},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
