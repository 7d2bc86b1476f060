/*
 * Programs of rdma_cm that rely on luck, each with its right form, as in moments.c. Both ends of a connection are of one
 * process, and their events come by one channel. The listener is id 0, the active end 1 and the passive end 2.
 */
#include <poll.h>

#include "../cm.h"

static char memory[64];

struct ends {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *active, *passive;
	struct ibv_mr *mr;
};

/* Makes the queue pair of an id, with a receive. */
static void make_queue_pair(struct ends *ends, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = small(IBV_QPT_RC);

	CHECK(!rdma_create_qp(id, NULL, &init));
	if (!ends->mr)
		CHECK((ends->mr = rdma_reg_msgs(id, memory, sizeof(memory))));
	CHECK(!rdma_post_recv(id, NULL, memory, sizeof(memory), ends->mr));
}

/* A listener, and an active end that has asked for its address and heard nothing yet. */
static struct ends resolving(void)
{
	struct ends ends = {.channel = rdma_create_event_channel()};
	struct sockaddr_storage address;

	CHECK(ends.channel);
	ends.listener = listener(ends.channel, AF_INET, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_id(ends.channel, &ends.active, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(ends.active, NULL, (struct sockaddr *)&address, 2000));
	return ends;
}

/* Says what came of an attempt to connect, in the file that is to hear of it. */
static void say(const char *file, const struct rdma_cm_event *event)
{
	FILE *list = fopen(file, "a");

	CHECK(list && fprintf(list, "%s %d\n", rdma_event_str(event->event), event->status) > 0 && !fclose(list));
}

/* Tries to connect, and says the first event that was not hoped for, or ESTABLISHED. */
static void tell(const char *file)
{
	struct ends ends = resolving();
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_event *event;

	for (;;) {
		CHECK(!rdma_get_cm_event(ends.channel, &event));
		switch (event->event) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			CHECK(!rdma_resolve_route(ends.active, 2000));
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			make_queue_pair(&ends, ends.active);
			CHECK(!rdma_connect(ends.active, &param));
			break;
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			ends.passive = event->id;
			make_queue_pair(&ends, ends.passive);
			CHECK(!rdma_accept(ends.passive, &param) || errno == ENOMEM);
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			/* The passive end has its own, or something else. */
			if (event->id == ends.active)
				break;
			/* fall through */
		default:
			say(file, event);
			return;
		}
		CHECK(!rdma_ack_cm_event(event));
	}
}

/* Says what became of a call, in the file that is to hear of it. It is made again if it failed, and does its work. */
static void say_of(const char *file, const char *call, int error)
{
	FILE *list = fopen(file, "a");

	CHECK(list && fprintf(list, "%s %d\n", call, error) > 0 && !fclose(list));
}

#define TRIED(call)                                                                                                    \
	do {                                                                                                           \
		const int error = (call) ? 0 : errno;                                                                  \
		if (error) {                                                                                           \
			CHECK(call);                                                                                   \
			say_of(file, #call, error);                                                                    \
		}                                                                                                      \
	} while (0)

/* Makes a channel, a listener, and a member of a group, and says what failed of it. */
static void tell_more(const char *file)
{
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.77.1.4")};
	struct sockaddr *of_group = (struct sockaddr *)&group, *to;
	struct rdma_event_channel *channel;
	struct sockaddr_storage address;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id, *member;

	loopback(AF_INET, &address);
	to = (struct sockaddr *)&address;
	TRIED(channel = rdma_create_event_channel());
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	TRIED(!rdma_bind_addr(id, to));
	TRIED(!rdma_listen(id, 1));
	CHECK(!rdma_create_id(channel, &member, NULL, RDMA_PS_UDP));
	CHECK(!rdma_resolve_addr(member, NULL, to, 2000));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	TRIED(!rdma_join_multicast(member, of_group, NULL));
	CHECK(!rdma_get_cm_event(channel, &event));
	if (event->event != RDMA_CM_EVENT_MULTICAST_JOIN)
		say(file, event);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(!rdma_leave_multicast(member, of_group));
	CHECK(!rdma_destroy_id(member) && !rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* Looks for the device that leads to an address. Wrong: takes it that there is one. */
static void expects_device(int wrong)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int is_found;

	loopback(AF_INET, &address);
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	CHECK(!rdma_get_cm_event(channel, &event));
	is_found = event->event == RDMA_CM_EVENT_ADDR_RESOLVED;
	CHECK(!rdma_ack_cm_event(event));
	if (is_found || wrong)
		printf("by %s\n", ibv_get_device_name(id->verbs->device));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* Two ends that are connected. The event that tells the passive end so has not been taken. */
static struct ends connected(void)
{
	struct ends ends = {.channel = rdma_create_event_channel()};
	struct rdma_conn_param param = {.retry_count = 7};
	struct sockaddr_storage address;
	struct rdma_cm_event *event;

	CHECK(ends.channel);
	ends.listener = listener(ends.channel, AF_INET, RDMA_PS_TCP, &address);
	ends.active = resolved(ends.channel, RDMA_PS_TCP, &address);
	make_queue_pair(&ends, ends.active);
	CHECK(!rdma_connect(ends.active, &param));
	event = next(ends.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ends.passive = event->id;
	CHECK(!rdma_ack_cm_event(event));
	make_queue_pair(&ends, ends.passive);
	CHECK(!rdma_accept(ends.passive, &param));
	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
	return ends;
}

/* Whether an event comes within so many milliseconds. */
static int comes(struct ends *ends, int within)
{
	struct pollfd readable = {.fd = ends->channel->fd, .events = POLLIN};

	return poll(&readable, 1, within) == 1;
}

static int is_waiting(struct ends *ends)
{
	return comes(ends, 0);
}

static void await_receive(struct rdma_cm_id *id, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int count;

	do
		count = ibv_poll_cq(id->recv_cq, 1, &wc);
	while (!count);
	CHECK(count == 1 && wc.status == status);
}

/* Takes the first message of a peer. Wrong: takes it that ESTABLISHED has come by then. */
static void expects_established(int wrong)
{
	struct ends ends = connected();

	CHECK(!rdma_post_send(ends.active, NULL, memory, 8, ends.mr, 0));
	await_receive(ends.passive, IBV_WC_SUCCESS);
	if (wrong)
		CHECK(is_waiting(&ends));
	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
}

/* Ends a connection. Wrong: takes it that the peer knows as soon as the receives are flushed. */
static void expects_disconnected(int wrong)
{
	struct ends ends = connected();

	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(ends.active));
	await_receive(ends.active, IBV_WC_WR_FLUSH_ERR);
	if (wrong)
		CHECK(is_waiting(&ends));
	expect(ends.channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(ends.passive));
	expect(ends.channel, RDMA_CM_EVENT_DISCONNECTED);
}

/* Ends a connection, and takes what is left of its receives. Wrong: takes it that DISCONNECTED comes behind them. */
static void takes_the_rest(int wrong)
{
	struct ends ends = connected();
	struct ibv_wc wc;

	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(ends.active));
	expect(ends.channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(ends.passive));
	expect(ends.channel, RDMA_CM_EVENT_DISCONNECTED);
	if (wrong)
		CHECK(ibv_poll_cq(ends.active->recv_cq, 1, &wc) == 1);
	else
		await_receive(ends.active, IBV_WC_WR_FLUSH_ERR);
}

/* Waits for the end of a time wait. Wrong: takes it that this lasts no longer than here. */
static void waits_shortly(int wrong)
{
	struct ends ends = connected();

	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(ends.active));
	expect(ends.channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(ends.passive));
	expect(ends.channel, RDMA_CM_EVENT_DISCONNECTED);
	for (int end = 0; end < 2; end++) {
		CHECK(!wrong || comes(&ends, 700));
		expect(ends.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	}
}

/* Has a connection, and hears for a while of its end only. Wrong: takes each event for that. */
static void hears_of_the_end(int wrong)
{
	struct ends ends = connected();
	struct rdma_cm_event *event;

	expect(ends.channel, RDMA_CM_EVENT_ESTABLISHED);
	while (comes(&ends, 30)) {
		CHECK(!rdma_get_cm_event(ends.channel, &event));
		CHECK(!wrong && event->event == RDMA_CM_EVENT_ADDR_CHANGE);
		CHECK(!rdma_ack_cm_event(event));
	}
	CHECK(!rdma_post_send(ends.active, NULL, memory, 8, ends.mr, 0));
	await_receive(ends.passive, IBV_WC_SUCCESS);
}

/* Connects to a listener of its own. Wrong: before it listens. */
static void connects_early(int wrong)
{
	struct ends ends = {.channel = rdma_create_event_channel()};
	struct rdma_conn_param param = {.retry_count = 7};
	struct sockaddr_storage address;

	CHECK(ends.channel);
	loopback(AF_INET, &address);
	CHECK(!rdma_create_id(ends.channel, &ends.listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(ends.listener, (struct sockaddr *)&address));
	memcpy(&address, rdma_get_local_addr(ends.listener), sizeof(address));
	ends.active = resolved(ends.channel, RDMA_PS_TCP, &address);
	make_queue_pair(&ends, ends.active);
	if (!wrong)
		CHECK(!rdma_listen(ends.listener, 1));
	CHECK(!rdma_connect(ends.active, &param));
	if (wrong)
		CHECK(!rdma_listen(ends.listener, 1));
	expect(ends.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
}

/* Resolves an address and a route. Wrong: does not wait for the one before it asks for the other. */
static void resolves_at_once(int wrong)
{
	struct ends ends = resolving();
	struct rdma_conn_param param = {.retry_count = 7};

	if (!wrong)
		expect(ends.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(ends.active, 2000));
	if (wrong)
		expect(ends.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	expect(ends.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_queue_pair(&ends, ends.active);
	CHECK(!rdma_connect(ends.active, &param));
	expect(ends.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
}

/* Connects. Wrong: does not wait for the route. */
static void connects_at_once(int wrong)
{
	struct ends ends = resolving();
	struct rdma_conn_param param = {.retry_count = 7};

	expect(ends.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	make_queue_pair(&ends, ends.active);
	CHECK(!rdma_resolve_route(ends.active, 2000));
	/* One is resolved already, or asked for. */
	CHECK(rdma_resolve_route(ends.active, 2000) && errno == EINVAL);
	if (!wrong)
		expect(ends.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_connect(ends.active, &param));
	if (wrong)
		expect(ends.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	expect(ends.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
}

static const struct {
	const char *name;
	void (*run)(int wrong);
} programs[] = {
	{"resolves-at-once", resolves_at_once},
	{"connects-at-once", connects_at_once},
	{"expects-device", expects_device},
	{"expects-established", expects_established},
	{"expects-disconnected", expects_disconnected},
	{"takes-the-rest", takes_the_rest},
	{"waits-shortly", waits_shortly},
	{"hears-of-the-end", hears_of_the_end},
	{"connects-early", connects_early},
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	if (!strcmp(argv[1], "tell")) {
		tell(argv[2]);
		return 0;
	}
	if (!strcmp(argv[1], "tell-more")) {
		tell_more(argv[2]);
		return 0;
	}
	for (unsigned i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (!strcmp(argv[1], programs[i].name)) {
			programs[i].run(!strcmp(argv[2], "wrong"));
			return 0;
		}
	}
	return 2;
}
