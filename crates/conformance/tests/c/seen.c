/*
 * Two programs of known traffic, for those who watch: `seen owner` opens a region and a window in it to `seen guest`,
 * which writes 100 times 64 bytes and reads 50 times 32 bytes. Each says so, and goes on with each line it reads:
 * the guest is refused once, then writes 4096 bytes again and again until the next line. `seen visitor` only connects,
 * and ends with its input.
 */
#include <poll.h>

#include "cm.h"

enum { SIZE = 1 << 16, AT = SIZE / 2, WINDOW = 4096, WRITES = 100, READS = 50 };

struct grant {
	uint64_t at;
	uint32_t region, window;
};

static char *memory;
static struct rdma_cm_id *id;

static void said(const char *what)
{
	puts(what);
	fflush(stdout);
}

static void wait_for_a_line(void)
{
	char line[16];

	CHECK(fgets(line, sizeof(line), stdin) != NULL);
}

static struct ibv_wc completed(void)
{
	struct ibv_wc wc;
	int found;

	while (!(found = ibv_poll_cq(id->send_cq, 1, &wc)))
		;
	CHECK(found == 1);
	return wc;
}

static struct ibv_mr *registered(int access)
{
	struct ibv_mr *mr;

	CHECK(!posix_memalign((void **)&memory, 4096, SIZE));
	memset(memory, 0, SIZE);
	CHECK(mr = ibv_reg_mr(id->pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | access));
	return mr;
}

static struct rdma_cm_id *endpoint(int is_owner)
{
	struct rdma_addrinfo *found, hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = is_owner ? RAI_PASSIVE : 0};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_cm_id *made;

	CHECK(!rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found));
	CHECK(!rdma_create_ep(&made, found, NULL, &attr));
	return made;
}

static void owner(void)
{
	struct rdma_cm_id *listens = endpoint(1);
	struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	CHECK(!rdma_listen(listens, 1));
	said("listens");
	CHECK(!rdma_get_request(listens, &id));
	mr = registered(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(mw = ibv_alloc_mw(id->pd, IBV_MW_TYPE_2));
	struct grant grant = {(uintptr_t)memory, mr->rkey, ibv_inc_rkey(mw->rkey)};
	struct rdma_conn_param parameters = {.private_data = &grant, .private_data_len = sizeof(grant),
					     .responder_resources = 1, .initiator_depth = 1};
	CHECK(!rdma_accept(id, &parameters));
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = grant.window;
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)memory + AT, WINDOW, IBV_ACCESS_REMOTE_WRITE};
	CHECK(!ibv_post_send(id->qp, &bind, &bad) && completed().status == IBV_WC_SUCCESS);
	said("bound");
	wait_for_a_line();
}

static enum ibv_wc_status request(struct ibv_mr *mr, enum ibv_wr_opcode opcode, uint64_t at, uint32_t length,
				  uint32_t key)
{
	struct ibv_sge data = {(uintptr_t)memory, length, mr->lkey};
	struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &data, .num_sge = 1,
				 .wr.rdma = {at, key}}, *bad;

	CHECK(!ibv_post_send(id->qp, &wr, &bad));
	return completed().status;
}

static void guest(void)
{
	struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct pollfd input = {.fd = 0, .events = POLLIN};
	struct grant grant;
	struct ibv_mr *mr;

	id = endpoint(0);
	CHECK(!rdma_connect(id, &parameters));
	memcpy(&grant, id->event->param.conn.private_data, sizeof(grant));
	mr = registered(0);
	wait_for_a_line();
	for (int i = 0; i < WRITES; i++)
		CHECK(request(mr, IBV_WR_RDMA_WRITE, grant.at, 64, grant.region) == IBV_WC_SUCCESS);
	for (int i = 0; i < READS; i++)
		CHECK(request(mr, IBV_WR_RDMA_READ, grant.at, 32, grant.region) == IBV_WC_SUCCESS);
	said("done");
	wait_for_a_line();
	while (poll(&input, 1, 1) == 0)
		CHECK(request(mr, IBV_WR_RDMA_WRITE, grant.at + AT, WINDOW, grant.window) == IBV_WC_SUCCESS);
	wait_for_a_line();
	CHECK(request(mr, IBV_WR_RDMA_WRITE, grant.at + AT + 16, WINDOW, grant.window) == IBV_WC_REM_ACCESS_ERR);
	said("refused");
	wait_for_a_line();
}

static void visitor(void)
{
	struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};

	id = endpoint(0);
	CHECK(!rdma_connect(id, &parameters));
	while (getchar() != EOF)
		;
}

int main(int count, char **words)
{
	CHECK(count == 2);
	if (!strcmp(words[1], "owner"))
		owner();
	else if (!strcmp(words[1], "visitor"))
		visitor();
	else
		guest();
	return 0;
}
