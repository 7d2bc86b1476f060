/*
 * Ids of rdma_cm under `transom run` with two devices, one on eth0 (10.9.0.1) and one on eth1 (10.10.0.1): each id gets
 * the device that has its address.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cm.h"
#include "in_time.h"

static const char *const addresses[] = {"10.9.0.1", "10.10.0.1"};
static const char *const names[] = {"transom0", "transom1", "transom2"};
/* The device that ids of each address get. */
static int device_of[] = {0, 1};

static struct rdma_event_channel *channel;

static struct sockaddr_in address_of(int device)
{
	struct sockaddr_in address = {.sin_family = AF_INET};

	CHECK(inet_pton(AF_INET, addresses[device], &address.sin_addr) == 1);
	return address;
}

/* It has the device of this address. */
static void is_at(const struct rdma_cm_id *id, int address)
{
	CHECK(id->verbs && id->port_num == 1);
	CHECK(!strcmp(ibv_get_device_name(id->verbs->device), names[device_of[address]]));
}

static struct rdma_cm_id *id_at(int device, int reuse, uint16_t port)
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

/* An id that has resolved a port of this device, and has a queue pair. */
static void resolve(struct rdma_cm_id **id, int device, uint16_t port)
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
static void connect_by(struct rdma_cm_id *listens, int device, struct rdma_cm_id **ends)
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

static void connect_at(int device, struct rdma_cm_id **ends)
{
	struct rdma_cm_id *listens = id_at(device, 0, 0);

	CHECK(!rdma_listen(listens, 4));
	connect_by(listens, device, ends);
	CHECK(!rdma_destroy_id(listens));
}

static void send_a_message(struct rdma_cm_id **ends)
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

static void end(struct rdma_cm_id **ends)
{
	int i;

	for (i = 0; i < 2; i++) {
		rdma_destroy_qp(ends[i]);
		CHECK(!rdma_destroy_id(ends[i]));
	}
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
		CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&far, 2000));
		expect(channel, RDMA_CM_EVENT_ADDR_ERROR);
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

/* Rules: DEVS-14 */
static void events_come_as_they_happened(void)
{
	struct sockaddr_in to[] = {address_of(0), address_of(1)};
	static const int order[] = {1, 0, 1, 0, 0, 1};
	enum { COUNT = sizeof(order) / sizeof(*order) };
	struct rdma_cm_event *event;
	struct rdma_cm_id *ids[COUNT];
	int i;

	for (i = 0; i < COUNT; i++)
		ids[i] = id_at(order[i], 0, 0);
	to[0].sin_port = to[1].sin_port = htons(9);
	for (i = 0; i < COUNT; i++)
		CHECK(!rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&to[order[i]], 2000));
	for (i = 0; i < COUNT; i++) {
		event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(event->id == ids[i] && !rdma_ack_cm_event(event));
	}
	for (i = 0; i < COUNT; i++)
		CHECK(!rdma_destroy_id(ids[i]));
	shown("events of both come in the order in which they happened");
}

static int open_descriptors(void)
{
	int number, count = 0;

	for (number = 0; number < 1024; number++)
		count += fcntl(number, F_GETFD) >= 0;
	return count;
}

/* Closes the descriptor of a channel, as only a program does that should not, so that the next one gets its number. */
static int close_descriptor_of(struct rdma_event_channel *of)
{
	int number = of->fd, filler;

	do
		CHECK((filler = dup(1)) >= 0);
	while (filler < number);
	CHECK(!close(number));
	return number;
}

/* Rules: DEVS-14 */
static void descriptors_are_not_lost(void)
{
	struct sockaddr_in second = address_of(1);
	struct rdma_event_channel *closed, *later;
	struct rdma_cm_id *id, *at_first;
	struct rlimit limit, less;
	struct pollfd readable;
	int before = open_descriptors(), number;

	/* One is left, and a channel of two devices needs two. */
	CHECK((number = dup(1)) >= 0 && !close(number) && !getrlimit(RLIMIT_NOFILE, &limit));
	less = (struct rlimit){number + 1, limit.rlim_max};
	CHECK(!setrlimit(RLIMIT_NOFILE, &less));
	CHECK(!rdma_create_event_channel() && errno == EMFILE);
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	CHECK(open_descriptors() == before);

	CHECK((closed = rdma_create_event_channel()));
	CHECK(!rdma_create_id(closed, &id, NULL, RDMA_PS_TCP));
	close_descriptor_of(closed);
	before = open_descriptors();
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&second));
	/* Of the channel none is left either. */
	CHECK(open_descriptors() == before - 1);
	shown("what fails keeps no descriptor");

	CHECK((closed = rdma_create_event_channel()));
	number = close_descriptor_of(closed);
	CHECK((later = rdma_create_event_channel()));
	CHECK(fcntl(number, F_GETFD) >= 0);
	rdma_destroy_event_channel(closed);
	CHECK(fcntl(number, F_GETFD) >= 0);
	/* A child that closes its channel leaves that of its parent as it is. */
	if (!fork()) {
		rdma_destroy_event_channel(later);
		_exit(0);
	}
	CHECK(wait(&number) > 0 && WIFEXITED(number) && !WEXITSTATUS(number));
	CHECK(!rdma_create_id(later, &at_first, NULL, RDMA_PS_TCP));
	second = address_of(0);
	second.sin_port = htons(9);
	CHECK(!rdma_resolve_addr(at_first, NULL, (struct sockaddr *)&second, 2000));
	readable = (struct pollfd){.fd = later->fd, .events = POLLIN};
	CHECK(poll(&readable, 1, 10000) == 1);
	expect(later, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_destroy_id(at_first));
	rdma_destroy_event_channel(later);

	CHECK((closed = rdma_create_event_channel()));
	number = close_descriptor_of(closed);
	CHECK(dup(1) == number);
	rdma_destroy_event_channel(closed);
	CHECK(!close(number));
	CHECK((closed = rdma_create_event_channel()));
	close_descriptor_of(closed);
	rdma_destroy_event_channel(closed);
	shown("a descriptor that something else has is not closed");
}

/* Rules: DEVS-14 */
static void a_listener_moves_whole_or_not_at_all(void)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *listens, *ends[2];
	struct rlimit limit, none;
	int device;

	CHECK(!rdma_create_id(channel, &listens, NULL, RDMA_PS_TCP) && !rdma_listen(listens, 4));
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	none = (struct rlimit){0, limit.rlim_max};
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	/* The other channel needs a descriptor at the second device. */
	CHECK(rdma_migrate_id(listens, other) && errno == EMFILE);
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	for (device = 0; device < 2; device++) {
		connect_by(listens, device, ends);
		end(ends);
	}
	CHECK(!rdma_destroy_id(listens));
	rdma_destroy_event_channel(other);
	shown("a listener for which there is no descriptor stays where it is");
}

enum { ROUNDS = 2000 };

static pthread_barrier_t round_begins, round_ends;
static struct rdma_event_channel *both;
static int came_in_vain;

static void *take_events(void *unused)
{
	struct rdma_cm_event *event;

	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&round_begins);
		if (rdma_get_cm_event(both, &event))
			__atomic_fetch_add(&came_in_vain, 1, __ATOMIC_RELAXED);
		else
			CHECK(!rdma_ack_cm_event(event));
		pthread_barrier_wait(&round_ends);
	}
	return NULL;
}

/* rdma_write_cm_event, which Debian's librdmacm does not have yet. */
typedef int write_event(struct rdma_cm_id *id, int event, int status, uint64_t argument);

/* Rules: DEVS-14 */
static void two_threads_take_two_events(void)
{
	enum { USER_EVENT = 18 };
	write_event *writes = (write_event *)dlsym(RTLD_DEFAULT, "rdma_write_cm_event");
	struct sockaddr_in to[] = {address_of(0), address_of(1)};
	struct rdma_cm_id *ids[2];
	struct rdma_cm_event *event;
	pthread_t threads[2];
	int i, device;

	CHECK(writes && (both = rdma_create_event_channel()));
	CHECK(!fcntl(both->fd, F_SETFL, fcntl(both->fd, F_GETFL) | O_NONBLOCK));
	for (device = 0; device < 2; device++) {
		CHECK(!rdma_create_id(both, &ids[device], NULL, RDMA_PS_TCP));
		CHECK(!rdma_bind_addr(ids[device], (struct sockaddr *)&to[device]));
	}
	CHECK(!pthread_barrier_init(&round_begins, NULL, 3) && !pthread_barrier_init(&round_ends, NULL, 3));
	for (i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, take_events, NULL));
	for (i = 0; i < ROUNDS; i++) {
		for (device = 0; device < 2; device++)
			CHECK(!writes(ids[device], USER_EVENT, 0, 0));
		pthread_barrier_wait(&round_begins);
		pthread_barrier_wait(&round_ends);
		while (!rdma_get_cm_event(both, &event))
			CHECK(!rdma_ack_cm_event(event));
		CHECK(errno == EAGAIN);
	}
	for (i = 0; i < 2; i++)
		CHECK(!pthread_join(threads[i], NULL) && !rdma_destroy_id(ids[i]));
	rdma_destroy_event_channel(both);
	CHECK(!came_in_vain);
	shown("of two threads and two events, each gets one");
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

/* An id with a port whose event is taken and not acknowledged. */
struct taken {
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	int is_acknowledged;
};

static void take_an_event(struct taken *taken)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, far = any;

	/* There is no way to it here. */
	CHECK(inet_pton(AF_INET, "203.0.113.9", &far.sin_addr) == 1);
	CHECK(!rdma_create_id(channel, &taken->id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(taken->id, (struct sockaddr *)&any));
	CHECK(!rdma_resolve_addr(taken->id, NULL, (struct sockaddr *)&far, 2000));
	taken->event = next(channel, RDMA_CM_EVENT_ADDR_ERROR);
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
	CHECK(!ibv_close_device(context));
	listeners[0] = stay.listens;
	listeners[1] = stay.listens_here;
	CHECK(!rdma_create_id(channel, &listeners[2], NULL, RDMA_PS_TCP));
	CHECK(!rdma_listen(listeners[2], 4));
	/* It goes again, as long after this. */
	there = 0;
	clock_gettime(CLOCK_MONOTONIC, &begun);
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

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";

	if (strstr(part, "go"))
		be_in_time();
	CHECK((channel = rdma_create_event_channel()));
	if (!strcmp(part, "goes")) {
		the_first_goes();
	} else if (!strcmp(part, "second-goes")) {
		the_second_goes();
	} else if (!strcmp(part, "shared")) {
		an_address_of_two_devices();
	} else if (!strcmp(part, "shared-goes")) {
		one_with_a_shared_address_goes();
	} else if (!strcmp(part, "alone-goes")) {
		the_only_one_that_serves_goes();
	} else if (!strcmp(part, "all-go")) {
		both_go();
	} else if (!strcmp(part, "same-goes")) {
		one_with_the_same_addresses_goes();
	} else if (!strcmp(part, "goes-and-comes")) {
		the_first_comes_back();
	} else if (!strcmp(part, "second-goes-and-comes")) {
		the_second_comes_back();
	} else if (!strcmp(part, "missing")) {
		the_first_is_missing();
	} else {
		ids_have_the_device_of_their_address();
		they_connect();
		an_id_without_an_address_has_no_device();
		a_listener_serves_all();
		two_listeners_share_a_port();
		events_come_as_they_happened();
		descriptors_are_not_lost();
		a_listener_moves_whole_or_not_at_all();
		two_threads_take_two_events();
	}
	rdma_destroy_event_channel(channel);
	return 0;
}
