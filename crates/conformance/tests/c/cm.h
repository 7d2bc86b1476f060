/* What programs of <rdma/rdma_cma.h> have in common here: ids of 127.0.0.1 and ::1, and their events. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

#include "check.h"

static inline void shown(const char *what)
{
	printf("ok - %s\n", what);
}

/* A queue pair of two sends and two receives, whose completion queues the library makes. */
static inline struct ibv_qp_init_attr small(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {.qp_type = type, .sq_sig_all = 1};

	attr.cap.max_send_wr = attr.cap.max_recv_wr = 2;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	return attr;
}

/* The next event of a channel, which is of this kind; it is not acknowledged. An address may change at any time. */
static inline struct rdma_cm_event *next(struct rdma_event_channel *channel, int kind)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event));
	while (event->event == RDMA_CM_EVENT_ADDR_CHANGE && kind != RDMA_CM_EVENT_ADDR_CHANGE) {
		CHECK(!rdma_ack_cm_event(event));
		CHECK(!rdma_get_cm_event(channel, &event));
	}
	if ((int)event->event != kind) {
		fprintf(stderr, "%s instead of %s, status %d\n", rdma_event_str(event->event),
			rdma_event_str(kind), event->status);
		exit(1);
	}
	return event;
}

static inline void expect(struct rdma_event_channel *channel, int kind)
{
	CHECK(!rdma_ack_cm_event(next(channel, kind)));
}

static inline void loopback(int family, struct sockaddr_storage *address)
{
	memset(address, 0, sizeof(*address));
	address->ss_family = family;
	if (family == AF_INET)
		((struct sockaddr_in *)address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)address)->sin6_addr = in6addr_loopback;
}

static inline struct rdma_cm_id *listener(struct rdma_event_channel *channel, int family,
				   enum rdma_port_space ps, struct sockaddr_storage *address)
{
	struct rdma_cm_id *id;

	loopback(family, address);
	CHECK(!rdma_create_id(channel, &id, (void *)7, ps));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)address));
	CHECK(rdma_get_src_port(id) && !id->verbs && !id->pd && !id->port_num);
	CHECK(!rdma_listen(id, 4));
	memcpy(address, rdma_get_local_addr(id), sizeof(*address));
	return id;
}

/* An id whose route to the address is resolved. */
static inline struct rdma_cm_id *resolved(struct rdma_event_channel *channel, enum rdma_port_space ps,
				   struct sockaddr_storage *address)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, ps));
	CHECK(!id->verbs && id->channel == channel);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)address, 2000));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->port_num == 1 && rdma_get_src_port(id));
	CHECK(rdma_get_dst_port(id) == ((struct sockaddr_in *)address)->sin_port);
	CHECK(!rdma_resolve_route(id, 2000));
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(id->route.num_paths == 1 && id->route.path_rec->mtu);
	return id;
}
