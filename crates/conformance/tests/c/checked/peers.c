/* Two peers that write to the memory of this process. Each mistake has a correct twin. The first argument names the
   mistake, the second is "wrong" or "right". Lines that a finding names are marked. */
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { PEERS = 2, WRITES = 4 };

/* What two processes tell each other to connect. */
struct end {
	uint32_t number, key;
	uint64_t address;
};

/* A process with one queue pair for each peer. */
struct owner {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *ends[PEERS];
	int sockets[PEERS];
	pid_t peers[PEERS];
};

/* How a peer gets to know where to write. STOPPED is its own, then the same while the first process is stopped;
   STOPPED_OWN is its own throughout. */
enum place { THE_SAME, ITS_OWN, TAKEN, STOPPED, STOPPED_OWN };

static void tell(int socket, const void *what, size_t size)
{
	CHECK(write(socket, what, size) == (ssize_t)size);
}

static void hear(int socket, void *what, size_t size)
{
	CHECK(read(socket, what, size) == (ssize_t)size);
}

static void tell_go(int socket)
{
	tell(socket, "g", 1);
}

static void hear_go(int socket)
{
	char go;

	hear(socket, &go, 1);
}

static struct ibv_context *opened(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(devices && devices[0] && (context = ibv_open_device(devices[0])));
	ibv_free_device_list(devices);
	return context;
}

static struct ibv_qp *made_on(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	return qp;
}

/* Connects a queue pair to one at the other end of a socket. Returns that end. */
static struct end meet(struct ibv_qp *qp, struct ibv_mr *mr, int socket)
{
	struct ibv_qp_attr rights = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
	struct end end = {qp->qp_num, mr->rkey, (uintptr_t)mr->addr};

	tell(socket, &end, sizeof(end));
	hear(socket, &end, sizeof(end));
	connect_to(qp, qp->context, end.number);
	CHECK(!ibv_modify_qp(qp, &rights, IBV_QP_ACCESS_FLAGS));
	return end;
}

static void carry_out(struct ibv_qp *qp, struct ibv_send_wr *send)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	send->send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(qp, send, &bad));
	while (ibv_poll_cq(qp->send_cq, 1, &wc) == 0)
		continue;
	CHECK(wc.status == IBV_WC_SUCCESS);
}

/* Waits until the first process is stopped. */
static void wait_for_stop(void)
{
	char path[64], line[512], state;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)getppid());
	do {
		FILE *file = fopen(path, "r");

		CHECK(file && fgets(line, sizeof(line), file));
		fclose(file);
		CHECK(sscanf(strrchr(line, ')') + 1, " %c", &state) == 1);
		sched_yield();
	} while (state != 'T');
}

/* The other process: it writes to the memory of the first one, where it is told to. `turns` leads from the first such
   process to the second. */
static void write_there(int nth, int socket, enum place place, int waits, const int *turns)
{
	int stops = place == STOPPED || place == STOPPED_OWN;
	struct ibv_context *context = opened();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp = made_on(pd, cq);
	uint64_t *taken = (uint64_t *)memory;
	struct end end;

	CHECK(mr);
	end = meet(qp, mr, socket);
	if (waits)
		receive_on(qp, 1);
	tell_go(socket);
	hear_go(socket);
	if (waits)
		polled(cq, 1);
	for (int i = 0; i < WRITES; i++) {
		struct ibv_sge data = {(uintptr_t)memory, 8, mr->lkey};
		struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &data, .num_sge = 1};
		struct ibv_send_wr take = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &data, .num_sge = 1};

		if (stops && i == 1) {
			tell_go(socket);
			wait_for_stop();
			if (nth == 1)
				hear_go(turns[0]);
		}
		*taken = place == ITS_OWN || place == STOPPED_OWN || (place == STOPPED && i == 0)
				 ? nth * WRITES + i : i;
		take.wr.atomic.remote_addr = end.address;
		take.wr.atomic.compare_add = 1;
		take.wr.atomic.rkey = end.key;
		if (place == TAKEN)
			carry_out(qp, &take);
		write.wr.rdma.remote_addr = end.address + 8 + 8 * *taken;
		write.wr.rdma.rkey = end.key;
		carry_out(qp, &write);
	}
	if (stops && nth == 0)
		tell_go(turns[1]);
	if (stops && nth == 1)
		CHECK(!kill(getppid(), SIGCONT));
	tell_go(socket);
	hear_go(socket);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	exit(0);
}

/* Makes the peers. Only then does this process open its device. */
static void make_peers(struct owner *owner, enum place place, int waits)
{
	int turns[2];

	CHECK(!pipe(turns));
	for (int i = 0; i < PEERS; i++) {
		int sockets[2];

		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
		CHECK((owner->peers[i] = fork()) >= 0);
		if (!owner->peers[i])
			write_there(i, sockets[1], place, waits, turns);
		owner->sockets[i] = sockets[0];
	}
	owner->context = opened();
	owner->pd = ibv_alloc_pd(owner->context);
	owner->cq = ibv_create_cq(owner->context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(owner->pd && owner->cq);
}

static void end_peers(struct owner *owner)
{
	for (int i = 0; i < PEERS; i++) {
		int status;

		tell_go(owner->sockets[i]);
		CHECK(waitpid(owner->peers[i], &status, 0) == owner->peers[i] && status == 0);
		CHECK(!ibv_destroy_qp(owner->ends[i]));
	}
	CHECK(!ibv_destroy_cq(owner->cq) && !ibv_dereg_mr(owner->mr) && !ibv_dealloc_pd(owner->pd));
	CHECK(!ibv_close_device(owner->context));
}

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* Opens the memory to the peers, and connects them. */
static void open_to_peers(struct owner *owner)
{
	CHECK((owner->mr = ibv_reg_mr(owner->pd, memory, sizeof(memory), RIGHTS)));
	for (int i = 0; i < PEERS; i++) {
		owner->ends[i] = made_on(owner->pd, owner->cq);
		meet(owner->ends[i], owner->mr, owner->sockets[i]);
		hear_go(owner->sockets[i]);
	}
}

/* Lets all peers go on at once, and waits until each says something. */
static void let_peers_write(struct owner *owner)
{
	for (int i = 0; i < PEERS; i++)
		tell_go(owner->sockets[i]);
	for (int i = 0; i < PEERS; i++)
		hear_go(owner->sockets[i]);
}

/* Two peers write as they like: to the same bytes, or to their own. */
static void written_by_two(int wrong)
{
	struct owner owner;

	make_peers(&owner, wrong ? THE_SAME : ITS_OWN, 0);
	CHECK((owner.mr = ibv_reg_mr(owner.pd, memory, sizeof(memory), RIGHTS))); /* opened */
	for (int i = 0; i < PEERS; i++) {
		owner.ends[i] = made_on(owner.pd, owner.cq); /* opened */
		meet(owner.ends[i], owner.mr, owner.sockets[i]);
		hear_go(owner.sockets[i]);
	}
	let_peers_write(&owner);
	end_peers(&owner);
}

/* The peers write to the same bytes in turns. The owner tells each by a message that it is its turn, or by nothing that
   the check sees. */
static void written_in_turns(int wrong)
{
	struct owner owner;

	make_peers(&owner, THE_SAME, !wrong);
	open_to_peers(&owner);
	for (int i = 0; i < PEERS; i++) {
		if (!wrong) {
			send_on(owner.ends[i], 1, IBV_SEND_SIGNALED);
			polled(owner.cq, 1);
		}
		tell_go(owner.sockets[i]);
		hear_go(owner.sockets[i]);
	}
	end_peers(&owner);
}

/* The peers write to a ring, and take their places there by a fetch-and-add, or each for itself. It has room for all. */
static void written_to_a_ring(int wrong)
{
	struct owner owner;

	make_peers(&owner, wrong ? THE_SAME : TAKEN, 0);
	open_to_peers(&owner);
	let_peers_write(&owner);
	end_peers(&owner);
}

/* The peers write while the owner is stopped: to the same bytes, or to their own. */
static void written_while_stopped(int wrong)
{
	struct owner owner;

	make_peers(&owner, wrong ? STOPPED : STOPPED_OWN, 0);
	open_to_peers(&owner);
	let_peers_write(&owner);
	CHECK(!raise(SIGSTOP));
	for (int i = 0; i < PEERS; i++)
		hear_go(owner.sockets[i]);
	end_peers(&owner);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"written-by-two", written_by_two},
		{"written-in-turns", written_in_turns},
		{"written-to-a-ring", written_to_a_ring},
		{"written-while-stopped", written_while_stopped},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
