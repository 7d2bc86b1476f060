/*
 * What the programs have in common that use rdma_cm under `transom run` with two devices, one on eth0 (10.9.0.1) and one
 * on eth1 (10.10.0.1), or with a third one on eth2 (10.11.0.1): ids that get the device which has their address, and
 * connections at one device.
 */
#include "cm.h"

static const char *const addresses[] = {"10.9.0.1", "10.10.0.1", "10.11.0.1"};
static const char *const names[] = {"transom0", "transom1", "transom2"};
/* The device that ids of each address get. */
static int device_of[] = {0, 1, 2};

static struct rdma_event_channel *channel;

static inline struct sockaddr_in address_of(int device)
{
	struct sockaddr_in address = {.sin_family = AF_INET};

	CHECK(inet_pton(AF_INET, addresses[device], &address.sin_addr) == 1);
	return address;
}

/* It has the device of this address. */
static inline void is_at(const struct rdma_cm_id *id, int address)
{
	CHECK(id->verbs && id->port_num == 1);
	CHECK(!strcmp(ibv_get_device_name(id->verbs->device), names[device_of[address]]));
}

static inline struct rdma_cm_id *id_at(int device, int reuse, uint16_t port)
{
	struct sockaddr_in address = address_of(device);
	struct rdma_cm_id *id;

	address.sin_port = port;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof(reuse)));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&address));
	is_at(id, device);
	return id;
}

/* An id that has resolved a port of this device, and has a queue pair. */
static inline void resolve(struct rdma_cm_id **id, int device, uint16_t port)
{
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct sockaddr_in to = address_of(device);
	struct rdma_cm_event *event;

	to.sin_port = port;
	CHECK(!rdma_create_id(channel, id, id, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(*id, NULL, (struct sockaddr *)&to, 2000));
	event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == *id && event->id->context == id && !rdma_ack_cm_event(event));
	is_at(*id, device);
	CHECK(!rdma_resolve_route(*id, 2000));
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_create_qp(*id, NULL, &attr));
}

/* Both ends of a connection at this device, by a listener. */
static inline void connect_by(struct rdma_cm_id *listens, int device, struct rdma_cm_id **ends)
{
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_cm_event *event;

	resolve(&ends[0], device, rdma_get_src_port(listens));
	CHECK(!rdma_connect(ends[0], NULL));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ends[1] = event->id;
	CHECK(event->listen_id == listens && !rdma_ack_cm_event(event));
	is_at(ends[1], device);
	CHECK(!rdma_create_qp(ends[1], NULL, &attr) && !rdma_accept(ends[1], NULL));
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
}

static inline void connect_at(int device, struct rdma_cm_id **ends)
{
	struct rdma_cm_id *listens = id_at(device, 0, 0);

	CHECK(!rdma_listen(listens, 4));
	connect_by(listens, device, ends);
	CHECK(!rdma_destroy_id(listens));
}

static inline void send_a_message(struct rdma_cm_id **ends)
{
	static char bytes[64];
	struct ibv_mr *mr[2];
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++)
		CHECK((mr[i] = rdma_reg_msgs(ends[i], bytes, sizeof(bytes))));
	memset(bytes, 0, 32);
	memset(bytes + 32, 7, 32);
	CHECK(!rdma_post_recv(ends[1], NULL, bytes, 32, mr[1]));
	CHECK(!rdma_post_send(ends[0], NULL, bytes + 32, 32, mr[0], 0));
	CHECK(rdma_get_recv_comp(ends[1], &wc) == 1 && wc.status == IBV_WC_SUCCESS && bytes[31] == 7);
	CHECK(rdma_get_send_comp(ends[0], &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	for (i = 0; i < 2; i++)
		CHECK(!rdma_dereg_mr(mr[i]));
}

static inline void end(struct rdma_cm_id **ends)
{
	int i;

	for (i = 0; i < 2; i++) {
		rdma_destroy_qp(ends[i]);
		CHECK(!rdma_destroy_id(ends[i]));
	}
}
