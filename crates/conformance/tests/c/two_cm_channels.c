/*
 * Event channels of rdma_cm where a program has two devices: a channel has the events of both, and the descriptors that
 * it needs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "two_cm.h"

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

/* Those of the program. The device has its own from 500 on, and more of them while other programs come and go. */
static int open_descriptors(void)
{
	int number, count = 0;

	for (number = 0; number < 500; number++)
		count += fcntl(number, F_GETFD) >= 0;
	return count;
}

/* The same, without one of the device's that has a low number for a moment: the least of many counts. */
static int settled_descriptors(void)
{
	int round, count, least = open_descriptors();

	for (round = 0; round < 200; round++)
		if ((count = open_descriptors()) < least)
			least = count;
	return least;
}

/* Waits until there are so many. */
static void descriptors_become(int count)
{
	time_t until = time(NULL) + 10;

	while (settled_descriptors() != count)
		CHECK(time(NULL) < until);
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
	int before = settled_descriptors(), number;

	/* One is left, and a channel of two devices needs two. */
	CHECK((number = dup(1)) >= 0 && !close(number) && !getrlimit(RLIMIT_NOFILE, &limit));
	less = (struct rlimit){number + 1, limit.rlim_max};
	CHECK(!setrlimit(RLIMIT_NOFILE, &less));
	CHECK(!rdma_create_event_channel() && errno == EMFILE);
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	descriptors_become(before);

	CHECK((closed = rdma_create_event_channel()));
	CHECK(!rdma_create_id(closed, &id, NULL, RDMA_PS_TCP));
	close_descriptor_of(closed);
	before = settled_descriptors();
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&second));
	/* Of the channel none is left either. */
	descriptors_become(before - 1);
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

static struct rdma_cm_id *datagrams_at(struct rdma_event_channel *of, int device)
{
	struct sockaddr_in address = address_of(device);
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(of, &id, NULL, RDMA_PS_UDP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&address));
	is_at(id, device);
	return id;
}

/* Three devices, which two channels meet in another order. Rules: CM-52, DEVS-14 */
static void groups_move_with_their_id(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef4d0007)};
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct sockaddr *group = (struct sockaddr *)&at;
	struct rdma_cm_id *ids[] = {
		datagrams_at(channel, 1), datagrams_at(channel, 2),
		datagrams_at(other, 2), datagrams_at(other, 1),
	};
	struct rdma_cm_id *moves = ids[1], *stays = ids[3];
	struct rdma_cm_event *event;
	int i;

	CHECK(!rdma_join_multicast(moves, group, NULL));
	expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(!rdma_join_multicast(stays, group, NULL));
	expect(other, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(!rdma_migrate_id(moves, other));
	/* Each leaves its own group. */
	CHECK(!rdma_leave_multicast(moves, group) && !rdma_leave_multicast(stays, group));
	/* An event that waits follows too, and goes with the group. */
	CHECK(!rdma_join_multicast(moves, group, NULL) && !rdma_migrate_id(moves, channel));
	CHECK(!rdma_leave_multicast(moves, group));
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	CHECK(rdma_get_cm_event(channel, &event) && errno == EAGAIN);
	for (i = 0; i < 4; i++)
		CHECK(!rdma_destroy_id(ids[i]));
	rdma_destroy_event_channel(other);
	shown("a group moves with its id to another channel");
}

static void two_devices(void)
{
	events_come_as_they_happened();
	descriptors_are_not_lost();
	a_listener_moves_whole_or_not_at_all();
	two_threads_take_two_events();
}

static const struct named_case cases[] = {
	CASE(two_devices),
	CASE(groups_move_with_their_id),
};

int main(int argc, char **argv)
{
	CHECK((channel = rdma_create_event_channel()));
	RUN_CASE(cases, argc, argv);
	rdma_destroy_event_channel(channel);
	return 0;
}
