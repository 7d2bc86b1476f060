/*
 * Who waits when the device goes: a thread for each call of rdma_cm and rsocket(7) that waits, over 127.0.0.1, both
 * ends in one process. None may wait for ever.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <time.h>
#include <unistd.h>

#include "cm.h"
#include "in_time.h"

/* Seconds that any of them may take, the time until the device goes among them. */
#define PATIENCE 60

/* A synchronous id. */
static struct rdma_cm_id *synchronous(void)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	return id;
}

/* A synchronous id whose route to the address is resolved, with a queue pair. */
static struct rdma_cm_id *on_its_way(struct sockaddr_storage *address)
{
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_cm_id *id = synchronous();

	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)address, 2000));
	CHECK(!rdma_resolve_route(id, 2000) && !rdma_create_qp(id, NULL, &attr));
	return id;
}

/* A call on something failed with this error. */
#define FAILS(call, error) CHECK((call) < 0 && errno == (error))

/* Of rdma_cm. Rules: CM-46, CM-51 */

static void *fetches_an_event(void *channel)
{
	expect(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
	return NULL;
}

static void *gets_a_request(void *listen)
{
	struct rdma_cm_id *id;
	int i;

	/* Who asks again hears of it again: no event comes any more. */
	for (i = 0; i < 2; i++)
		FAILS(rdma_get_request(listen, &id), ENODEV);
	return NULL;
}

static void *connects(void *id)
{
	/* ENODEV if it waited, ENXIO if it came too late for that. */
	CHECK(rdma_connect(id, NULL) < 0);
	return NULL;
}

static void *accepts(void *id)
{
	CHECK(rdma_accept(id, NULL) < 0);
	return NULL;
}

static void *gets_a_receive(void *id)
{
	struct ibv_wc wc;

	CHECK(rdma_get_recv_comp(id, &wc) < 0);
	return NULL;
}

static void *gets_a_send(void *id)
{
	struct ibv_wc wc;

	CHECK(rdma_get_send_comp(id, &wc) < 0);
	return NULL;
}

/* Of rsocket(7). Rules: CM-46 */

static int number(void *socket)
{
	return (int)(intptr_t)socket;
}

static void *takes_a_socket(void *socket)
{
	int i;

	for (i = 0; i < 2; i++)
		FAILS(raccept(number(socket), NULL, NULL), ENODEV);
	return NULL;
}

static void *makes_a_connection(void *address)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK(rconnect(socket, address, sizeof(struct sockaddr_in)) < 0);
	return NULL;
}

static void *receives(void *socket)
{
	char byte;

	CHECK(rrecv(number(socket), &byte, 1, 0) < 0);
	return NULL;
}

static void *sends(void *socket)
{
	static char bytes[1 << 20];

	while (rsend(number(socket), bytes, sizeof(bytes), 0) > 0)
		;
	return NULL;
}

static void *polls(void *socket)
{
	struct pollfd polled = {.fd = number(socket), .events = POLLIN};
	int i;

	for (i = 0; i < 2; i++)
		CHECK(rpoll(&polled, 1, -1) == 1 && polled.revents & (POLLERR | POLLHUP));
	return NULL;
}

/* A thread that waits. */
struct waiting {
	const char *what;
	void *(*waits)(void *);
	void *on;
};

static void *socket_of(int socket)
{
	CHECK(socket >= 0);
	return (void *)(intptr_t)socket;
}

/* A socket of this kind that is bound, and where. */
static int bound(int type, struct sockaddr_storage *address)
{
	socklen_t length = sizeof(*address);
	int socket = rsocket(AF_INET, type, 0);

	CHECK(socket >= 0);
	loopback(AF_INET, address);
	CHECK(!rbind(socket, (void *)address, sizeof(struct sockaddr_in)));
	CHECK(!rgetsockname(socket, (void *)address, &length));
	return socket;
}

/* Both ends of a stream. */
static void stream(int listener, struct sockaddr_storage *address, int ends[2])
{
	ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(!rconnect(ends[0], (void *)address, sizeof(struct sockaddr_in)));
	CHECK((ends[1] = raccept(listener, NULL, NULL)) >= 0);
}

int main(void)
{
	struct rdma_event_channel *channel, *alone;
	struct sockaddr_storage silent, sockets, any;
	struct rdma_cm_id *id, *unbound, *asks, *listen, *passive, *accepting;
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_conn_param param = {.retry_count = 7};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct rdma_cm_event *event;
	struct ibv_qp *qp;
	int socket, ends[2], full[2];

	be_in_time();
	CHECK((channel = rdma_create_event_channel()) && (alone = rdma_create_event_channel()));
	CHECK(!rdma_create_id(alone, &unbound, NULL, RDMA_PS_TCP));

	/* Its requests are not answered. */
	listener(channel, AF_INET, RDMA_PS_TCP, &silent);
	asks = on_its_way(&silent);

	/* A synchronous listener. */
	listen = synchronous();
	loopback(AF_INET, &any);
	CHECK(!rdma_bind_addr(listen, (void *)&any) && !rdma_listen(listen, 4));
	memcpy(&any, rdma_get_local_addr(listen), sizeof(any));

	/* The peer of the one that accepts has a queue pair of its own, and never says that it is there. */
	id = resolved(channel, RDMA_PS_TCP, &any);
	attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	CHECK(attr.send_cq && (qp = ibv_create_qp(id->pd, &attr)));
	CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS));
	param.qp_num = qp->qp_num;
	CHECK(!rdma_connect(id, &param) && !rdma_get_request(listen, &accepting));
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(accepting, NULL, &attr));

	/* Both ends of a connection. */
	listener(channel, AF_INET, RDMA_PS_TCP, &any);
	id = resolved(channel, RDMA_PS_TCP, &any);
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(id, NULL, &attr) && !rdma_connect(id, NULL));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(passive, NULL, &attr) && !rdma_accept(passive, NULL));
	CHECK(!rdma_ack_cm_event(event));
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);

	socket = bound(SOCK_STREAM, &sockets);
	CHECK(!rlisten(socket, 8));
	stream(socket, &sockets, ends);
	stream(socket, &sockets, full);

	struct waiting all[] = {
		{"rdma_get_cm_event", fetches_an_event, alone},
		{"rdma_get_request", gets_a_request, listen},
		{"rdma_connect", connects, asks},
		{"rdma_accept", accepts, accepting},
		{"rdma_get_recv_comp", gets_a_receive, passive},
		{"rdma_get_send_comp", gets_a_send, id},
		{"raccept", takes_a_socket, socket_of(socket)},
		{"rpoll of a listener", polls, socket_of(socket)},
		{"rconnect", makes_a_connection, &silent},
		{"rrecv of a stream", receives, socket_of(ends[0])},
		{"rpoll of a stream", polls, socket_of(ends[1])},
		{"rsend of a stream that is full", sends, socket_of(full[0])},
		{"rrecv of datagrams", receives, socket_of(bound(SOCK_DGRAM, &any))},
		{"rpoll of datagrams", polls, socket_of(bound(SOCK_DGRAM, &any))},
	};
	enum { COUNT = sizeof(all) / sizeof(*all) };
	pthread_t threads[COUNT];
	struct timespec until;
	int i, hang = 0;

	all_is_there();
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	for (i = 0; i < COUNT; i++)
		CHECK(!pthread_create(&threads[i], NULL, all[i].waits, all[i].on));
	for (i = 0; i < COUNT; i++) {
		if (pthread_timedjoin_np(threads[i], NULL, &until)) {
			fprintf(stderr, "%s waits for ever\n", all[i].what);
			hang = 1;
		} else {
			shown(all[i].what);
		}
	}
	/* Not by exit, which waits for what sockets have sent. */
	fflush(stdout);
	if (hang)
		_exit(1);

	/* Who begins now is told that there is no device. */
	FAILS(rdma_bind_addr(unbound, (void *)&silent), ENXIO);
	CHECK(!rdma_create_id(alone, &id, NULL, RDMA_PS_TCP));
	FAILS(rdma_bind_addr(id, (void *)&silent), ENODEV);
	FAILS(rdma_listen(id, 1), ENODEV);
	FAILS(rdma_resolve_addr(id, NULL, (void *)&silent, 2000), ENODEV);
	CHECK(!rdma_destroy_id(id));
	shown("an id that is made afterwards has no device");
	CHECK(!rclose(socket) && !rclose(ends[0]) && !rclose(ends[1]));
	CHECK(!rclose(full[0]) && !rclose(full[1]));
	shown("sockets are closed");
	return 0;
}
