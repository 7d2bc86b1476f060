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
