/*
 * Ids of rdma_cm where a program has two devices, and one of them goes, or both: what ids hear of it, and what goes on at
 * the other.
 */
#define _GNU_SOURCE
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "in_time.h"
#include "two_cm.h"

/* Ids that have no address, and so no device. */
struct without_address {
	struct rdma_cm_id *is_new, *has_port, *listens, *listens_here;
};

static void make_without_address(struct without_address *ids)
{
	struct sockaddr_in any = {.sin_family = AF_INET};

	CHECK(!rdma_create_id(channel, &ids->is_new, &ids->is_new, RDMA_PS_TCP));
	CHECK(!rdma_create_id(channel, &ids->has_port, &ids->has_port, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(ids->has_port, (struct sockaddr *)&any));
	CHECK(!rdma_create_id(channel, &ids->listens, NULL, RDMA_PS_TCP));
	CHECK(!rdma_listen(ids->listens, 4));
	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!rdma_create_id(channel, &ids->listens_here, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(ids->listens_here, (struct sockaddr *)&any));
	CHECK(!rdma_listen(ids->listens_here, 4) && !ids->listens_here->verbs);
}

/* They are as they were, now that a device is gone. This address has another. */
static void they_go_on(struct without_address *ids, int address)
{
	struct sockaddr_in own = address_of(address), to = own;
	uint16_t port = rdma_get_src_port(ids->has_port);
	struct rdma_cm_event *event;
	struct rdma_cm_id *ends[2];

	connect_by(ids->listens, address, ends);
	send_a_message(ends);
	end(ends);
	connect_by(ids->listens_here, address, ends);
	end(ends);
	CHECK(!rdma_bind_addr(ids->is_new, (struct sockaddr *)&own));
	is_at(ids->is_new, address);
	to.sin_port = htons(9);
	CHECK(!rdma_resolve_addr(ids->has_port, NULL, (struct sockaddr *)&to, 2000));
	event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == ids->has_port && event->id->context == &ids->has_port);
	CHECK(!rdma_ack_cm_event(event) && rdma_get_src_port(ids->has_port) == port);
	is_at(ids->has_port, address);
}

static void end_without_address(struct without_address *ids, int address)
{
	uint16_t port = rdma_get_src_port(ids->listens);
	struct rdma_cm_id *end;

	CHECK(!rdma_destroy_id(ids->is_new) && !rdma_destroy_id(ids->has_port));
	CHECK(!rdma_destroy_id(ids->listens) && !rdma_destroy_id(ids->listens_here));
	resolve(&end, address, port);
	CHECK(!rdma_connect(end, NULL));
	expect(channel, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_qp(end);
	CHECK(!rdma_destroy_id(end));
}

static void wait_until_gone(struct ibv_context *context)
{
	struct ibv_async_event event;

	all_is_there();
	do {
		CHECK(!ibv_get_async_event(context, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
}

/* The first device goes. Rules: CM-46, DEVS-11, DEVS-14, DEVS-15 */
static void the_first_goes(void)
{
	struct rdma_cm_id *first[2], *second[2], *moves = id_at(1, 0, 0);
	struct without_address stay;
	struct rdma_event_channel *other;
	struct rdma_cm_event *event;
	int i;

	connect_at(0, first);
	connect_at(1, second);
	make_without_address(&stay);
	all_is_there();
	for (i = 0; i < 2; i++) {
		event = next(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
		CHECK(event->id == first[0] || event->id == first[1]);
		CHECK(!rdma_ack_cm_event(event));
	}
	send_a_message(second);
	end(second);
	connect_at(1, second);
	send_a_message(second);
	end(second);
	end(first);
	shown("ids of the second hear nothing of it");

	they_go_on(&stay, 1);
	end_without_address(&stay, 1);
	shown("ids without an address stay");

	CHECK((other = rdma_create_event_channel()) && !rdma_migrate_id(moves, other));
	is_at(moves, 1);
	CHECK(!rdma_listen(moves, 1) && !rdma_migrate_id(moves, channel));
	CHECK(!rdma_destroy_id(moves));
	rdma_destroy_event_channel(other);
	shown("they move between channels all the same");

	/* A forked child may only close the channel of its parent, also where the channel goes on at another device. */
	if (!fork()) {
		CHECK(rdma_create_id(channel, &moves, NULL, RDMA_PS_TCP) && errno == EIO);
		_exit(0);
	}
	CHECK(wait(&i) > 0 && WIFEXITED(i) && !WEXITSTATUS(i));
	CHECK(!rdma_create_id(channel, &moves, NULL, RDMA_PS_TCP) && !rdma_destroy_id(moves));
	shown("a child does nothing on the channel of its parent");
}

/* Rules: CM-46, DEVS-11, DEVS-14 */
static void the_second_goes(void)
{
	struct rdma_cm_id *listens, *ends[2];
	struct ibv_context **all;

	CHECK((all = rdma_get_devices(NULL)));
	CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP) && !rdma_listen(listens, 4));
	connect_by(listens, 1, ends);
	end(ends);
	wait_until_gone(all[1]);
	connect_by(listens, 0, ends);
	send_a_message(ends);
	end(ends);
	CHECK(!rdma_destroy_id(listens));
	rdma_free_devices(all);
	shown("a listener at the wildcard address hears nothing of the second, and serves the first");
}

/* The second and the third device both have the second address, and the second goes. Rules: DEVS-14, DEVS-15 */
static void one_with_a_shared_address_goes(void)
{
	struct ibv_context **all = rdma_get_devices(NULL);
	struct rdma_cm_id *listens, *ends[2];

	CHECK(all && all[2]);
	CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP) && !rdma_listen(listens, 4));
	wait_until_gone(all[1]);
	device_of[1] = 2;
	connect_by(listens, 1, ends);
	send_a_message(ends);
	end(ends);
	CHECK(!rdma_destroy_id(listens));
	rdma_free_devices(all);
	shown("the other one of its address takes the requests");
}

/* The port of the second is down, so that no other device can serve. Rules: CM-46, DEVS-15 */
static void the_only_one_that_serves_goes(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_cm_id *listens, *is_new;
	struct rdma_cm_event *event;
	uint16_t port;

	CHECK(!rdma_create_id(channel, &is_new, NULL, RDMA_PS_TCP));
	CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP) && !rdma_listen(listens, 4));
	port = rdma_get_src_port(listens);
	all_is_there();
	event = next(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
	CHECK(event->id == listens && !rdma_ack_cm_event(event));
	any.sin_port = port;
	CHECK(!rdma_bind_addr(is_new, (struct sockaddr *)&any));
	CHECK(!rdma_destroy_id(listens) && !rdma_destroy_id(is_new));
	shown("a listener that no device serves any more is told");
}

/* Both go. Rules: CM-46, DEVS-15 */
static void both_go(void)
{
	struct without_address stay;
	struct rdma_cm_id **ids = (struct rdma_cm_id **)&stay;
	struct rdma_cm_event *event;
	int i, j, heard = 0;

	make_without_address(&stay);
	all_is_there();
	for (i = 0; i < 4; i++) {
		event = next(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
		for (j = 0; j < 4; j++)
			heard |= (event->id == ids[j]) << j;
		CHECK(!rdma_ack_cm_event(event));
	}
	CHECK(heard == 15);
	for (i = 0; i < 4; i++)
		CHECK(!rdma_destroy_id(ids[i]));
	shown("ids without an address hear that no device is left");
}

/* Of two devices with the same addresses, the first goes. Rules: DEVS-11, DEVS-14, DEVS-15 */
static void one_with_the_same_addresses_goes(void)
{
	struct rdma_cm_event *event;
	struct without_address stay;
	struct ibv_context **all;
	struct rdma_cm_id *ends[2], *waits;
	int i;

	CHECK((all = rdma_get_devices(NULL)));
	device_of[0] = device_of[1] = 0;
	make_without_address(&stay);
	connect_by(stay.listens, 1, ends);
	/* A request that nobody fetches goes with the device. */
	resolve(&waits, 1, rdma_get_src_port(stay.listens));
	CHECK(!rdma_connect(waits, NULL));
	wait_until_gone(all[0]);
	for (i = 0; i < 3; i++) {
		event = next(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
		CHECK(event->id == ends[0] || event->id == ends[1] || event->id == waits);
		CHECK(!rdma_ack_cm_event(event));
	}
	end(ends);
	rdma_destroy_qp(waits);
	CHECK(!rdma_destroy_id(waits));
	device_of[0] = device_of[1] = 1;
	they_go_on(&stay, 0);
	end_without_address(&stay, 1);
	rdma_free_devices(all);
	shown("ids without an address go on at the other");
}

/* rdma_write_cm_event, which Debian's librdmacm does not have yet. */
typedef int write_event(struct rdma_cm_id *id, int event, int status, uint64_t argument);

/* An id with a port whose event is taken and not acknowledged. */
struct taken {
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	int is_acknowledged;
};

static void take_an_event(struct taken *taken)
{
	enum { USER_EVENT = 18 };
	write_event *writes = (write_event *)dlsym(RTLD_DEFAULT, "rdma_write_cm_event");
	struct sockaddr_in any = {.sin_family = AF_INET};

	CHECK(!rdma_create_id(channel, &taken->id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(taken->id, (struct sockaddr *)&any));
	CHECK(writes && !writes(taken->id, USER_EVENT, 0, 0));
	taken->event = next(channel, USER_EVENT);
}

static void *destroy(void *of)
{
	struct taken *taken = of;

	CHECK(!rdma_destroy_id(taken->id));
	CHECK(__atomic_load_n(&taken->is_acknowledged, __ATOMIC_ACQUIRE));
	return NULL;
}

/* Its end waits until the event is acknowledged. */
static void its_end_waits(struct taken *taken)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = rdma_get_src_port(taken->id)};
	struct rdma_cm_id *other;
	pthread_t thread;
	int i;

	CHECK(!pthread_create(&thread, NULL, destroy, taken));
	CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP));
	/* The device has ended it. */
	while (rdma_bind_addr(other, (struct sockaddr *)&any))
		CHECK(errno == EADDRNOTAVAIL);
	/* Time for a thread that does not wait. */
	for (i = 0; i < 1000; i++)
		sched_yield();
	__atomic_store_n(&taken->is_acknowledged, 1, __ATOMIC_RELEASE);
	CHECK(!rdma_ack_cm_event(taken->event) && !pthread_join(thread, NULL));
	CHECK(!rdma_destroy_id(other));
}

/* Ids that listened before a device was opened again serve it. Rules: DEVS-12 */
static void they_serve_again(struct rdma_cm_id **listeners, int count)
{
	struct rdma_cm_id *ends[2];
	int i;

	for (i = 0; i < 2 * count; i++) {
		connect_by(listeners[i / 2], i % 2, ends);
		send_a_message(ends);
		end(ends);
	}
}

/* The second goes, and is opened again. Rules: DEVS-12, DEVS-15 */
static void the_second_comes_back(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct rdma_cm_id *listens;

	CHECK(devices && (context = ibv_open_device(devices[1])));
	CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP) && !rdma_listen(listens, 4));
	wait_until_gone(context);
	CHECK(!ibv_close_device(context));
	/* It goes again, as long after this. */
	there = 0;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	CHECK((context = ibv_open_device(devices[1])));
	they_serve_again(&listens, 1);
	there = 1;
	CHECK(!rdma_destroy_id(listens) && !ibv_close_device(context));
	ibv_free_device_list(devices);
	shown("a listener serves the second too when it is opened again");
}

/* The first goes, and is opened again. Rules: DEVS-12, DEVS-15, DEVS-16 */
static void the_first_comes_back(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct sockaddr_in own = address_of(0);
	struct rdma_cm_id *listeners[3];
	struct without_address stay;
	struct ibv_context *context;
	struct taken taken = {0};

	CHECK(devices && other && (context = ibv_open_device(devices[0])));
	make_without_address(&stay);
	take_an_event(&taken);
	wait_until_gone(context);
	CHECK(!ibv_open_device(devices[0]) && errno == EIO);
	/* It goes again, as long after it is opened. */
	there = 0;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	CHECK(!ibv_close_device(context));
	listeners[0] = stay.listens;
	listeners[1] = stay.listens_here;
	CHECK(!rdma_create_id(channel, &listeners[2], NULL, RDMA_PS_TCP));
	CHECK(!rdma_listen(listeners[2], 4));
	CHECK((context = ibv_open_device(devices[0])));
	its_end_waits(&taken);
	they_serve_again(listeners, 3);
	CHECK(!rdma_destroy_id(listeners[2]));
	they_go_on(&stay, 1);
	end_without_address(&stay, 1);
	CHECK(!rdma_create_id(channel, &stay.is_new, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(stay.is_new, (struct sockaddr *)&own));
	is_at(stay.is_new, 0);
	CHECK(!rdma_destroy_id(stay.is_new) && !ibv_close_device(context));
	all_is_there();
	rdma_destroy_event_channel(other);
	ibv_free_device_list(devices);
	shown("channels go on when a device is opened again");
}

static const struct named_case cases[] = {
	CASE(the_first_goes),
	CASE(the_second_goes),
	CASE(one_with_a_shared_address_goes),
	CASE(the_only_one_that_serves_goes),
	CASE(both_go),
	CASE(one_with_the_same_addresses_goes),
	CASE(the_first_comes_back),
	CASE(the_second_comes_back),
};

int main(int argc, char **argv)
{
	be_in_time();
	CHECK((channel = rdma_create_event_channel()));
	RUN_CASE(cases, argc, argv);
	rdma_destroy_event_channel(channel);
	return 0;
}
