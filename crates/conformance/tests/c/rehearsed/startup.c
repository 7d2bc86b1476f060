/*
 * Public bugs of how connections begin and end (spec/rehearsed-bugs.md), as in corpus.h. Both ends of a connection are
 * of one process, and their events come by one channel.
 */
#include <poll.h>
#include <unistd.h>

#include "../cm.h"

static char memory[64];

struct ends {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *active, *passive;
	struct ibv_mr *mr;
};

/* Takes the next event, which is of this kind. Hints do not count. Others end the program. */
static void take(struct ends *ends, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;
	int is_it = 0;

	while (!is_it) {
		CHECK(!rdma_get_cm_event(ends->channel, &event));
		is_it = event->event == kind;
		CHECK(is_it || event->event == RDMA_CM_EVENT_ADDR_CHANGE);
		CHECK(!rdma_ack_cm_event(event));
	}
}

static int is_waiting(struct ends *ends)
{
	struct pollfd readable = {.fd = ends->channel->fd, .events = POLLIN};

	return poll(&readable, 1, 0) == 1;
}

static void make_queue_pair(struct ends *ends, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = small(IBV_QPT_RC);

	CHECK(!rdma_create_qp(id, NULL, &init));
	if (!ends->mr)
		CHECK((ends->mr = rdma_reg_msgs(id, memory, sizeof(memory))));
}

static void receive_on(struct ends *ends, struct rdma_cm_id *id)
{
	CHECK(!rdma_post_recv(id, NULL, memory, sizeof(memory), ends->mr));
}

/* Two ends that are connected, as the active one knows. The peer tries its sends so many times again if no receive is
   there. */
static struct ends connected(int retries)
{
	struct ends ends = {.channel = rdma_create_event_channel()};
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = retries};
	struct sockaddr_storage address;
	struct rdma_cm_event *event;

	CHECK(ends.channel);
	ends.listener = listener(ends.channel, AF_INET, RDMA_PS_TCP, &address);
	ends.active = resolved(ends.channel, RDMA_PS_TCP, &address);
	make_queue_pair(&ends, ends.active);
	receive_on(&ends, ends.active);
	CHECK(!rdma_connect(ends.active, &param));
	event = next(ends.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ends.passive = event->id;
	CHECK(!rdma_ack_cm_event(event));
	make_queue_pair(&ends, ends.passive);
	if (retries == 7)
		receive_on(&ends, ends.passive);
	CHECK(!rdma_accept(ends.passive, &param));
	take(&ends, RDMA_CM_EVENT_ESTABLISHED);
	return ends;
}

/* Waits for the end of a receive. If the peer's queue pair has failed, the program ends. */
static void await_receive(struct rdma_cm_id *id, struct rdma_cm_id *peer, enum ibv_wc_status status)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	int count;

	do {
		count = ibv_poll_cq(id->recv_cq, 1, &wc);
		CHECK(!ibv_query_qp(peer->qp, &attr, IBV_QP_STATE, &init));
		CHECK(attr.qp_state == IBV_QPS_RTS || status != IBV_WC_SUCCESS);
	} while (!count);
	CHECK(count == 1 && wc.status == status);
}

/* Takes the first message of a peer. Wrong: takes it that the connection is known to be there by then. */
static void first_message(int wrong)
{
	struct ends ends = connected(7);

	CHECK(!rdma_post_send(ends.active, NULL, memory, 8, ends.mr, 0));
	await_receive(ends.passive, ends.active, IBV_WC_SUCCESS);
	if (wrong)
		CHECK(is_waiting(&ends));
	take(&ends, RDMA_CM_EVENT_ESTABLISHED);
}

/* Ends a connection when its receives are flushed. Wrong: takes it that the event has come by then. */
static void ended_by_flush(int wrong)
{
	struct ends ends = connected(7);

	take(&ends, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(ends.active));
	await_receive(ends.active, ends.passive, IBV_WC_WR_FLUSH_ERR);
	if (wrong)
		CHECK(is_waiting(&ends));
	take(&ends, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(ends.passive));
	take(&ends, RDMA_CM_EVENT_DISCONNECTED);
}

/* 15 ms, by which a peer waits for a receive. */
enum { SHORT_WAIT = 21 };

/* Posts the receive for the first message. Wrong: when the connection is known to be there. */
static void posts_late(int wrong)
{
	struct ends ends = connected(wrong ? 1 : 7);
	struct ibv_qp_attr attr = {.min_rnr_timer = SHORT_WAIT};
	struct ibv_wc wc;
	int count;

	CHECK(!ibv_modify_qp(ends.passive->qp, &attr, IBV_QP_MIN_RNR_TIMER));
	CHECK(!rdma_post_send(ends.active, NULL, memory, 8, ends.mr, 0));
	take(&ends, RDMA_CM_EVENT_ESTABLISHED);
	if (wrong)
		receive_on(&ends, ends.passive);
	do
		count = ibv_poll_cq(ends.active->send_cq, 1, &wc);
	while (!count);
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
}

enum { LISTENERS = 12 };

/* Listens for a while, if that is possible now. Wrong: leaves the channel behind for which no id could be made. */
static void listen_shortly(int wrong)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address;
	struct rdma_cm_id *id;

	CHECK(channel);
	loopback(AF_INET, &address);
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		if (errno != ENOMEM)
			abort();
		if (wrong)
			return;
	} else {
		CHECK(!rdma_bind_addr(id, (struct sockaddr *)&address) && !rdma_listen(id, 1));
		CHECK(!rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(channel);
}

/* The lowest descriptor that is free. */
static int next_descriptor(void)
{
	const int next = dup(STDERR_FILENO);

	CHECK(next >= 0 && !close(next));
	return next;
}

/* Listens again and again, as a server that is up for months. It goes on if it cannot listen now, and watches over its
   descriptors. */
static void leaves_channels(int wrong)
{
	const int before = next_descriptor();

	for (int i = 0; i < LISTENERS; i++)
		listen_shortly(wrong);
	/* The device's thread may have one of its own open for a moment. */
	for (int look = 0; look < 1000 && next_descriptor() > before; look++)
		poll(NULL, 0, 1);
	if (next_descriptor() > before)
		abort();
}

static const struct {
	const char *name;
	void (*run)(int wrong);
} programs[] = {
	{"first-message", first_message},
	{"ended-by-flush", ended_by_flush},
	{"posts-late", posts_late},
	{"leaves-channels", leaves_channels},
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
