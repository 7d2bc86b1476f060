/*
 * Ids of rdma_cm where a program has two devices: each id gets the device that has its address.
 */
#include "cases.h"
#include "two_cm.h"

/* Rules: DEVS-14 */
static void ids_have_the_device_of_their_address(void)
{
	struct ibv_context **all;
	struct rdma_cm_id *first, *second, *third;
	int count;

	CHECK((all = rdma_get_devices(&count)) && count == 2);
	CHECK(!strcmp(ibv_get_device_name(all[0]->device), names[0]));
	CHECK(!strcmp(ibv_get_device_name(all[1]->device), names[1]));
	first = id_at(0, 0, 0);
	second = id_at(1, 1, 0);
	CHECK(first->verbs == all[0] && second->verbs == all[1]);
	/* What was set before is set at the other device too. */
	third = id_at(1, 1, rdma_get_src_port(second));
	CHECK(!rdma_destroy_id(third) && !rdma_destroy_id(first) && !rdma_destroy_id(second));
	rdma_free_devices(all);
	shown("an id gets the device that has its address");
}

/* Rules: DEVS-14 */
static void they_connect(void)
{
	struct rdma_cm_id *first[2], *second[2], *moves;
	struct rdma_event_channel *other = rdma_create_event_channel();

	connect_at(0, first);
	connect_at(1, second);
	send_a_message(first);
	send_a_message(second);
	CHECK(!rdma_disconnect(second[0]));
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(second[1]));
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(second);
	send_a_message(first);
	end(first);
	shown("ids of both devices share a channel");

	moves = id_at(1, 0, 0);
	CHECK(!rdma_migrate_id(moves, other) && !rdma_listen(moves, 1));
	is_at(moves, 1);
	CHECK(!rdma_destroy_id(moves));
	rdma_destroy_event_channel(other);
	shown("an id of the second moves to another channel");
}

/* Rules: DEVS-14 */
static void an_id_without_an_address_has_no_device(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, far = any, second = address_of(1);
	struct rdma_cm_event *event;
	struct rdma_cm_id *id, *other;
	int is_bound;

	/* There is no way to it here. */
	CHECK(inet_pton(AF_INET, "203.0.113.9", &far.sin_addr) == 1);
	second.sin_port = htons(9);
	for (is_bound = 0; is_bound < 2; is_bound++) {
		any.sin_port = 0;
		CHECK(!rdma_create_id(channel, &id, &id, RDMA_PS_TCP));
		if (is_bound) {
			CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any));
			any.sin_port = rdma_get_src_port(id);
		}
		CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&far, 2000) && errno == ENETUNREACH);
		CHECK(!id->verbs);
		CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&second, 2000));
		event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(event->id == id && id->context == &id && !rdma_ack_cm_event(event));
		is_at(id, 1);
		CHECK(!is_bound || rdma_get_src_port(id) == any.sin_port);
		/* It has its port there, as long as it is there. */
		any.sin_port = rdma_get_src_port(id);
		CHECK(any.sin_port && !rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
		CHECK(rdma_bind_addr(other, (struct sockaddr *)&any) && errno == EADDRNOTAVAIL);
		CHECK(!rdma_destroy_id(id) && !rdma_bind_addr(other, (struct sockaddr *)&any));
		CHECK(!rdma_destroy_id(other));
	}
	shown("an id that found no way goes to another device, with its port");
}

/* Binds an id, and another one to the same port. */
static struct rdma_cm_id *bound_like(struct rdma_cm_id *id, struct sockaddr_in any)
{
	struct rdma_cm_id *other;
	int reuse = 1;

	CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof(reuse)));
	CHECK(!rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof(reuse)));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any));
	any.sin_port = rdma_get_src_port(id);
	CHECK(!rdma_bind_addr(other, (struct sockaddr *)&any));
	return other;
}

/* Rules: DEVS-14 */
static void a_listener_serves_all(void)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_cm_id *listens, *other_id, *ends[2];
	int is_bound, device;
	uint16_t port;

	for (is_bound = 0; is_bound < 2; is_bound++) {
		CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP));
		if (is_bound) {
			/* As with Linux, none may listen while another one has the port. */
			other_id = bound_like(listens, any);
			CHECK(rdma_listen(listens, 4) && errno == EADDRNOTAVAIL);
			CHECK(!rdma_destroy_id(other_id));
		}
		CHECK(!rdma_listen(listens, 4) && !listens->verbs);
		for (device = 0; device < 4; device++) {
			if (device == 2)
				CHECK(!rdma_migrate_id(listens, other) &&
				      !rdma_migrate_id(listens, channel));
			connect_by(listens, device % 2, ends);
			send_a_message(ends);
			end(ends);
		}
		port = rdma_get_src_port(listens);
		CHECK(!rdma_destroy_id(listens));
		for (device = 0; device < 2; device++) {
			resolve(ends, device, port);
			CHECK(!rdma_connect(ends[0], NULL));
			expect(channel, RDMA_CM_EVENT_REJECTED);
			rdma_destroy_qp(ends[0]);
			CHECK(!rdma_destroy_id(ends[0]));
		}
	}
	rdma_destroy_event_channel(other);
	shown("a listener at the wildcard address serves both");
}

/* One of IPv4 and one of IPv6, without an address. Rules: CM-36, DEVS-14 */
static void two_listeners_share_a_port(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
	struct rdma_cm_id *listens, *listens6, *ends[2];
	int only = 1;

	CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listens, (struct sockaddr *)&any) && !rdma_listen(listens, 4));
	any6.sin6_port = rdma_get_src_port(listens);
	CHECK(!rdma_create_id(channel, &listens6, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_option(listens6, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof(only)));
	CHECK(!rdma_bind_addr(listens6, (struct sockaddr *)&any6) && !rdma_listen(listens6, 4));
	connect_by(listens, 1, ends);
	end(ends);
	CHECK(!rdma_destroy_id(listens6));
	connect_by(listens, 1, ends);
	end(ends);
	CHECK(!rdma_destroy_id(listens));
	shown("a listener serves both after another one of its port has ended");
}

/* The first device cannot be opened: its interface is not there. */
/* Rules: DEVS-13, DEVS-14 */
static void the_first_is_missing(void)
{
	struct rdma_cm_id *second[2];

	connect_at(1, second);
	send_a_message(second);
	end(second);
	shown("the second serves alone");
}

/* The second and the third device both have the second address. Rules: DEVS-14 */
static void an_address_of_two_devices(void)
{
	struct rdma_cm_id *bound = id_at(1, 0, 0), *ends[2], *listens;
	struct ibv_context **all = rdma_get_devices(NULL);

	/* Both are open. */
	CHECK(all && all[2]);
	connect_at(1, ends);
	send_a_message(ends);
	end(ends);
	CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP) && !rdma_listen(listens, 4));
	connect_by(listens, 1, ends);
	end(ends);
	CHECK(!rdma_destroy_id(bound) && !rdma_destroy_id(listens));
	rdma_free_devices(all);
	shown("of two devices with one address, ids get the first");
}

static void both_serve(void)
{
	ids_have_the_device_of_their_address();
	they_connect();
	an_id_without_an_address_has_no_device();
	a_listener_serves_all();
	two_listeners_share_a_port();
}

static const struct named_case cases[] = {
	CASE(both_serve),
	CASE(an_address_of_two_devices),
	CASE(the_first_is_missing),
};

int main(int argc, char **argv)
{
	CHECK((channel = rdma_create_event_channel()));
	RUN_CASE(cases, argc, argv);
	rdma_destroy_event_channel(channel);
	return 0;
}
