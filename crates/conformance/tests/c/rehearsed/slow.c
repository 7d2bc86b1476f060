/* Says how many microseconds each verb takes that makes an object, registers memory or modifies a queue pair, a line each
   with its name. All of them have done their work then. */
#include <time.h>

#include "../checked/pair.h"

static FILE *list;

static double now(void)
{
	struct timespec time;

	CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void say(const char *verb, double since)
{
	CHECK(fprintf(list, "%s %.0f\n", verb, now() - since) > 0);
}

#define TIMED(verb, call)                                                                          \
    do {                                                                                           \
        const double since = now();                                                                \
        CHECK(call);                                                                               \
        say(verb, since);                                                                          \
    } while (0)

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}}, is;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_context *context;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	CHECK(argc == 2 && (list = fopen(argv[1], "w")) && devices && devices[0]);
	context = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	CHECK(context);
	TIMED("ibv_alloc_pd", (pd = ibv_alloc_pd(context)));
	TIMED("ibv_create_cq", (init.send_cq = init.recv_cq = ibv_create_cq(context, 4, NULL, NULL, 0)));
	TIMED("ibv_create_srq", (srq = ibv_create_srq(pd, &shared)));
	TIMED("ibv_reg_mr", (mr = ibv_reg_mr(pd, memory, sizeof(memory), 0)));
	TIMED("ibv_create_qp", (qp = ibv_create_qp(pd, &init)));
	TIMED("ibv_modify_qp",
	      !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &is) && attr.qp_state == IBV_QPS_INIT);
	CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_srq(srq));
	CHECK(!ibv_destroy_cq(init.send_cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	CHECK(!fclose(list));
	return 0;
}
