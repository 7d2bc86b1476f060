/*
 * What a device has and refuses, for rehearsals in which it stands for another adapter.
 *
 * adapters needs-much: takes what Transom's own device gives.
 * adapters adapts: asks the device first, and takes what it has.
 * adapters has NAME=VALUE...: the attributes and answers are these. A verb that works answers 0.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../checked/pair.h"

static struct ibv_context *open_first(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	CHECK(context);
	return context;
}

/* Makes a queue pair with this much room, and ends it. The errno, or 0. */
static int try_pair(struct ibv_context *context, enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = cap};
	struct ibv_qp *qp;
	int error;

	CHECK(pd && cq);
	qp = ibv_create_qp(pd, &init);
	error = qp ? 0 : errno;
	CHECK(!qp || (init.cap.max_send_wr >= cap.max_send_wr && !ibv_destroy_qp(qp)));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	return error;
}

static int needs_much(void)
{
	struct ibv_context *context = open_first();
	const int error = try_pair(context, IBV_QPT_RC, (struct ibv_qp_cap){8192, 16, 20, 1, 600});

	CHECK(!ibv_close_device(context));
	errno = error;
	CHECK(!error);
	return 0;
}

static uint32_t less(uint32_t wanted, int most)
{
	return wanted < (uint32_t)most ? wanted : (uint32_t)most;
}

static int adapts(void)
{
	struct ibv_context *context = open_first();
	struct ibv_device_attr attr;
	struct ibv_qp_cap cap = {.max_recv_wr = 16, .max_recv_sge = 1};
	struct pair pair;

	CHECK(!ibv_query_device(context, &attr));
	cap.max_send_wr = less(8192, attr.max_qp_wr);
	cap.max_send_sge = less(20, attr.max_sge);
	CHECK(!try_pair(context, IBV_QPT_RC, cap));
	CHECK(!ibv_close_device(context));
	pair = pair_of(IBV_QPT_RC);
	CHECK(!try_write(&pair, 1, IBV_SEND_SIGNALED));
	polled(pair.cq, 1);
	end_pair(&pair);
	return 0;
}

static int error_of(const void *made)
{
	return made ? 0 : errno;
}

static int try_window(struct ibv_context *context, enum ibv_mw_type type)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);
	const int error = error_of(mw);

	CHECK((!mw || !ibv_dealloc_mw(mw)) && !ibv_dealloc_pd(pd));
	return error;
}

static int try_shared(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq_init_attr init = {.attr = {4, 1, 0}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	const int error = error_of(srq);

	CHECK((!srq || !ibv_destroy_srq(srq)) && !ibv_dealloc_pd(pd));
	return error;
}

static int try_rights(struct ibv_context *context, int access)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), access);
	const int error = error_of(mr);

	CHECK((!mr || !ibv_dereg_mr(mr)) && !ibv_dealloc_pd(pd));
	return error;
}

static int try_resize(struct ibv_context *context)
{
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	const int error = ibv_resize_cq(cq, 16);

	CHECK(!ibv_destroy_cq(cq));
	return error;
}

static int try_extended_queue(struct ibv_context *context, uint64_t fields)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 8, .wc_flags = fields};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
	const int error = error_of(cq);

	CHECK(!cq || !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	return error;
}

static int try_domain(struct ibv_context *context)
{
	struct ibv_td_init_attr init = {0};
	struct ibv_td *td = ibv_alloc_td(context, &init);
	const int error = error_of(td);

	CHECK(!td || !ibv_dealloc_td(td));
	return error;
}

/* Posts an atomic to a connected peer. */
static int try_atomic(void)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge result = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr add = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &result, .num_sge = 1,
				  .wr.atomic = {(uintptr_t)memory + 64, 1, 0, pair.remote_key}}, *bad;
	const int error = ibv_post_send(pair.ends[0], &add, &bad);

	CHECK(!error || bad == &add);
	polled(pair.cq, !error);
	end_pair(&pair);
	return error;
}

/* What the first end of a pair answers to a SEND with so much data, or to another request. */
static int try_post(enum ibv_wr_opcode opcode, int flags, int is_long, int sges)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_sge data[2] = {{(uintptr_t)memory, 8, pair.mr->lkey}, {(uintptr_t)memory, 8, pair.mr->lkey}};
	struct ibv_send_wr wr = {.opcode = opcode, .send_flags = flags | IBV_SEND_SIGNALED, .sg_list = data,
				 .num_sge = sges, .invalidate_rkey = pair.mr->rkey}, *bad = NULL;
	int error;

	CHECK(!ibv_query_qp(pair.ends[0], &attr, IBV_QP_CAP, &init));
	if (is_long)
		data[0].length = init.cap.max_inline_data + 1;
	error = ibv_post_send(pair.ends[0], &wr, &bad);
	CHECK(error && bad == &wr);
	end_pair(&pair);
	return error;
}

static int try_receive(void)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_sge data[2] = {{(uintptr_t)memory, 8, pair.mr->lkey}, {(uintptr_t)memory, 8, pair.mr->lkey}};
	struct ibv_recv_wr wr = {.sg_list = data, .num_sge = 2}, *bad = NULL;
	const int error = ibv_post_recv(pair.ends[0], &wr, &bad);

	CHECK(error && bad == &wr);
	end_pair(&pair);
	return error;
}

/* How much inline data a queue pair gets that asks for so much. */
static int granted(struct ibv_context *context, enum ibv_qp_type type, uint32_t inline_data, uint32_t sges)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type,
					.cap = {4, 4, sges, 1, inline_data}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
	return (int)init.cap.max_inline_data;
}

/* What ibv_wr_complete answers to a datagram that is built so. */
static int try_built(struct ibv_context *context, unsigned flags, int is_long, int sges)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {4, 4, 1, 1, 0},
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .pd = pd, .send_ops_flags = IBV_QP_EX_WITH_SEND};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
	struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	struct ibv_sge data[2];
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;
	int error;

	CHECK(pd && cq && mr && qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	CHECK(!ibv_query_gid(context, 1, 0, &path.grh.dgid));
	CHECK((ah = ibv_create_ah(pd, &path)));
	data[0] = data[1] = (struct ibv_sge){(uintptr_t)memory, 8, mr->lkey};
	ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_flags = flags;
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, qp->qp_num, 7);
	if (is_long)
		ibv_wr_set_inline_data(ex, memory, init.cap.max_inline_data + 1);
	else
		ibv_wr_set_sge_list(ex, sges, data);
	error = ibv_wr_complete(ex);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd));
	return error;
}

/* The type of an entry of the GID table, or the errno. */
static int type_of(struct ibv_context *context, uint32_t index)
{
	struct ibv_gid_entry entry;
	const int error = ibv_query_gid_ex(context, 1, index, &entry, 0);

	return error ? error : (int)entry.gid_type;
}

/* Whether two entries are of one address. */
static int is_same(struct ibv_context *context, int one, int other)
{
	union ibv_gid first, second;

	CHECK(!ibv_query_gid(context, 1, one, &first) && !ibv_query_gid(context, 1, other, &second));
	return !memcmp(&first, &second, sizeof(first));
}

/* How many entries the table has. */
static int entries(struct ibv_context *context)
{
	struct ibv_port_attr port;

	CHECK(!ibv_query_port(context, 1, &port));
	return port.gid_tbl_len;
}

static int64_t found(struct ibv_context *context, const char *name)
{
	const struct ibv_qp_cap small = {4, 4, 1, 1, 0};
	struct ibv_device_attr_ex all;

	CHECK(!ibv_query_device_ex(context, NULL, &all));
#define IS(text, value)                                                                                                \
	if (!strcmp(name, text))                                                                                       \
	return (int64_t)(value)
	IS("vendor_id", all.orig_attr.vendor_id);
	IS("flags", all.orig_attr.device_cap_flags);
	IS("page_sizes", all.orig_attr.page_size_cap);
	IS("max_mr_size", all.orig_attr.max_mr_size);
	IS("max_qp_wr", all.orig_attr.max_qp_wr);
	IS("max_sge", all.orig_attr.max_sge);
	IS("max_sge_rd", all.orig_attr.max_sge_rd);
	IS("max_cqe", all.orig_attr.max_cqe);
	IS("max_mw", all.orig_attr.max_mw);
	IS("max_srq", all.orig_attr.max_srq);
	IS("reads", all.orig_attr.max_qp_rd_atom);
	IS("atomic_cap", all.orig_attr.atomic_cap);
	IS("odp", all.odp_caps.general_caps);
	IS("dm", all.max_dm_size);
	IS("rc", try_pair(context, IBV_QPT_RC, small));
	IS("uc", try_pair(context, IBV_QPT_UC, small));
	IS("ud", try_pair(context, IBV_QPT_UD, small));
	IS("deep", try_pair(context, IBV_QPT_RC, (struct ibv_qp_cap){all.orig_attr.max_qp_wr, 4, 1, 1, 0}));
	IS("deeper", try_pair(context, IBV_QPT_RC, (struct ibv_qp_cap){all.orig_attr.max_qp_wr + 1, 4, 1, 1, 0}));
	IS("inline_101", try_pair(context, IBV_QPT_RC, (struct ibv_qp_cap){4, 4, 1, 1, 101}));
	IS("inline_102", try_pair(context, IBV_QPT_RC, (struct ibv_qp_cap){4, 4, 1, 1, 102}));
	IS("window_1", try_window(context, IBV_MW_TYPE_1));
	IS("window_2", try_window(context, IBV_MW_TYPE_2));
	IS("shared", try_shared(context));
	IS("on_demand", try_rights(context, IBV_ACCESS_ON_DEMAND));
	IS("zero_based", try_rights(context, IBV_ACCESS_ZERO_BASED));
	IS("resize", try_resize(context));
	IS("extended_cq", try_extended_queue(context, IBV_WC_STANDARD_FLAGS));
	IS("timestamps", try_extended_queue(context, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
	IS("domains", try_domain(context));
	IS("atomic", try_atomic());
	IS("node_type", context->device->node_type);
	IS("transport", context->device->transport_type);
	IS("gids", entries(context));
	IS("type_0", type_of(context, 0));
	IS("type_1", type_of(context, 1));
	IS("one_gid", is_same(context, 0, 1));
	IS("granted_0", granted(context, IBV_QPT_RC, 0, 1));
	IS("granted_0_of_2", granted(context, IBV_QPT_RC, 0, 2));
	IS("granted_20", granted(context, IBV_QPT_RC, 20, 1));
	IS("granted_64", granted(context, IBV_QPT_RC, 64, 1));
	IS("granted_ud", granted(context, IBV_QPT_UD, 0, 1));
	IS("long_inline", try_post(IBV_WR_SEND, IBV_SEND_INLINE, 1, 1));
	IS("many_sges", try_post(IBV_WR_SEND, 0, 0, 2));
	IS("invalidate", try_post(IBV_WR_LOCAL_INV, 0, 0, 0));
	IS("many_receive_sges", try_receive());
	IS("built", try_built(context, IBV_SEND_SIGNALED, 0, 1));
	IS("built_long_inline", try_built(context, IBV_SEND_SIGNALED, 1, 1));
	IS("built_many_sges", try_built(context, IBV_SEND_SIGNALED, 0, 2));
	IS("built_unsignaled", try_built(context, 0, 0, 1));
	IS("built_solicited", try_built(context, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, 0, 1));
	fprintf(stderr, "nobody knows %s\n", name);
	exit(2);
}

static int has(int count, char **words)
{
	struct ibv_context *context = open_first();
	int wrong = 0;

	for (int i = 0; i < count; i++) {
		char *value = strchr(words[i], '=');
		int64_t expected, real;

		CHECK(value);
		*value++ = 0;
		if (!strcmp(words[i], "fw_ver")) {
			struct ibv_device_attr attr;

			CHECK(!ibv_query_device(context, &attr));
			CHECK(!strcmp(attr.fw_ver, value));
			continue;
		}
		expected = (int64_t)strtoull(value, NULL, 0);
		real = found(context, words[i]);
		if (real == expected)
			continue;
		fprintf(stderr, "%s is %" PRId64 " (%#" PRIx64 "), not %s\n", words[i], real, (uint64_t)real, value);
		wrong = 1;
	}
	CHECK(!ibv_close_device(context));
	return wrong;
}

int main(int count, char **words)
{
	CHECK(count > 1);
	if (!strcmp(words[1], "needs-much"))
		return needs_much();
	if (!strcmp(words[1], "adapts"))
		return adapts();
	CHECK(!strcmp(words[1], "has"));
	return has(count - 2, words + 2);
}
