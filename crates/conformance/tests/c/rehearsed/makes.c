/*
 * Calls each verb that makes an object, gives it another size, registers memory or modifies a queue pair. For each it
 * writes a line into the file of its argument: its name, the errno of its failure or 0, and the microseconds that it took.
 * A verb that has failed is called again, and does its work then.
 */
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "../checked/pair.h"

static FILE *list;

static double now(void)
{
	struct timespec time;

	CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

#define MADE(verb, call)                                                                           \
	do {                                                                                       \
		const double since = now();                                                        \
		int error = 0;                                                                     \
		double took;                                                                       \
                                                                                                   \
		errno = 0;                                                                         \
		if (!(call))                                                                       \
			error = errno;                                                             \
		took = now() - since;                                                              \
		CHECK(fprintf(list, "%s %d %.0f\n", verb, error, took) > 0);                       \
		CHECK(!error || (call));                                                           \
	} while (0)

/* A multicast group of this host. */
static const union ibv_gid group = {.raw = {0xff, 0x01, [15] = 7}};

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex extended = {.cqe = 4};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq_attr larger = {.max_wr = 40};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD, .cap = {1, 1, 1, 1, 0}}, is;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_ah_attr address = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
	struct ibv_alloc_dm_attr device_memory = {.length = 64};
	struct ibv_td_init_attr no_attr = {0};
	struct ibv_parent_domain_init_attr parent = {0};
	struct ibv_xrcd_init_attr domain = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					    .fd = -1, .oflags = O_CREAT};
	struct ibv_context *context, *imported;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr, *null, *of_device;
	struct ibv_mw *windows[2];
	struct ibv_pd *pd, *child;
	struct ibv_cq_ex *cq_ex;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_dm *dm;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	int file;

	CHECK(argc == 2 && (list = fopen(argv[1], "w")) && devices && devices[0]);
	MADE("ibv_open_device", (context = ibv_open_device(devices[0])));
	ibv_free_device_list(devices);
	CHECK((file = dup(context->cmd_fd)) >= 0);
	MADE("ibv_import_device", (imported = ibv_import_device(file)));
	MADE("ibv_alloc_pd", (pd = ibv_alloc_pd(context)));
	MADE("ibv_create_comp_channel", (channel = ibv_create_comp_channel(context)));
	MADE("ibv_create_cq", (cq = ibv_create_cq(context, 4, NULL, channel, 0)));
	MADE("ibv_create_cq_ex", (cq_ex = ibv_create_cq_ex(context, &extended)));
	MADE("ibv_resize_cq", !ibv_resize_cq(cq, 40));
	CHECK(cq->cqe >= 40);
	MADE("ibv_create_srq", (srq = ibv_create_srq(pd, &shared)));
	MADE("ibv_modify_srq", !ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR));
	MADE("ibv_reg_mr", (mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	MADE("ibv_rereg_mr", !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 64, 0));
	CHECK(mr->length == 64);
	MADE("ibv_alloc_null_mr", (null = ibv_alloc_null_mr(pd)));
	MADE("ibv_alloc_dm", (dm = ibv_alloc_dm(context, &device_memory)));
	MADE("ibv_reg_dm_mr", (of_device = ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED)));
	MADE("ibv_alloc_mw", (windows[0] = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	MADE("ibv_alloc_mw", (windows[1] = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	CHECK(!ibv_query_gid(context, 1, 0, &address.grh.dgid));
	MADE("ibv_create_ah", (ah = ibv_create_ah(pd, &address)));
	MADE("ibv_alloc_td", (parent.td = ibv_alloc_td(context, &no_attr)));
	parent.pd = pd;
	MADE("ibv_alloc_parent_domain", (child = ibv_alloc_parent_domain(context, &parent)));
	MADE("ibv_open_xrcd", (xrcd = ibv_open_xrcd(context, &domain)));
	init.send_cq = init.recv_cq = cq;
	MADE("ibv_create_qp", (qp = ibv_create_qp(pd, &init)));
	MADE("ibv_attach_mcast", !ibv_attach_mcast(qp, &group, 0));
	MADE("ibv_modify_qp",
	     !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &is) && attr.qp_state == IBV_QPS_INIT);
	CHECK(!ibv_detach_mcast(qp, &group, 0) && !ibv_destroy_qp(qp) && !ibv_close_xrcd(xrcd));
	CHECK(!ibv_dealloc_pd(child) && !ibv_dealloc_td(parent.td) && !ibv_destroy_ah(ah));
	CHECK(!ibv_dealloc_mw(windows[0]) && !ibv_dealloc_mw(windows[1]));
	CHECK(!ibv_dereg_mr(of_device) && !ibv_free_dm(dm) && !ibv_dereg_mr(null) && !ibv_dereg_mr(mr));
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)) && !ibv_destroy_cq(cq));
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(imported) && !ibv_close_device(context) && !fclose(list));
	return 0;
}
