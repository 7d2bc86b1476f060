/*
 * What programs do at the wrong moment, or thousands of times: channels that go while a thread waits, ids that
 * go with a queue pair, private data that is too long. Without a word it makes so many connections.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cm.h"
#include "descriptors.h"

/* Both ends of a connection that stands. */
static void connected(struct rdma_event_channel *channel, struct sockaddr_storage *address,
		      struct rdma_cm_id *ends[2])
{
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct rdma_cm_event *event;

	ends[0] = resolved(channel, RDMA_PS_TCP, address);
	CHECK(!rdma_create_qp(ends[0], NULL, &attr));
	CHECK(!rdma_connect(ends[0], NULL));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ends[1] = event->id;
	CHECK(!rdma_ack_cm_event(event));
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(ends[1], NULL, &attr));
	CHECK(!rdma_accept(ends[1], NULL));
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
}

static atomic_int waiter, signals;

static void count(int signal)
{
	(void)signal;
	signals++;
}

static void *wait_for_ever(void *channel)
{
	struct rdma_cm_event *event;

	waiter = syscall(SYS_gettid);
	rdma_get_cm_event(channel, &event);
	abort();
}

/* The system call that a thread of this process sleeps in, or -1. */
static long sleeps_in(int thread)
{
	char path[64], line[256] = "";
	long number = -1;
	FILE *call;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
	call = fopen(path, "r");
	CHECK(call && fgets(line, sizeof(line), call));
	fclose(call);
	sscanf(line, "%ld", &number);
	return number;
}

/* Whether it waits for a file to be readable. */
static int waits(int thread)
{
	long number = sleeps_in(thread);

#ifdef SYS_poll
	if (number == SYS_poll)
		return 1;
#endif
	return number == SYS_ppoll || number == SYS_read;
}

/* The thread waits on, as it does where the kernel has the file; nobody else is disturbed. A signal does not change
   that: what comes to the second channel is not for this thread. */
static void channel_goes_while_waited_on(void)
{
	struct rdma_event_channel *first = rdma_create_event_channel(), *second;
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	struct sockaddr_storage address;
	int before = signals, yields;
	struct rdma_cm_id *id;
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, wait_for_ever, first));
	CHECK(!pthread_detach(thread));
	/* Not before it is inside: nothing could be right then. */
	while (!waiter || !waits(waiter))
		sched_yield();
	rdma_destroy_event_channel(first);
	/* It may have the same descriptor and the same address. */
	second = rdma_create_event_channel();
	CHECK(!sigaction(SIGUSR1, &action, NULL) && !pthread_kill(thread, SIGUSR1));
	while (signals == before || sleeps_in(waiter) < 0)
		sched_yield();
	loopback(AF_INET, &address);
	CHECK(!rdma_create_id(second, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	/* Time for a thread that would take it. */
	for (yields = 0; yields < 1000; yields++)
		sched_yield();
	expect(second, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(second);
	shown("a channel that goes while a thread waits");
}

/* Rules: CM-28, CM-52 */
static void id_goes_with_a_queue_pair(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address;
	struct rdma_cm_id *listen, *ends[2];
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp;

	listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	connected(channel, &address, ends);
	qp = ends[0]->qp;
	CHECK(!rdma_destroy_id(ends[0]));
	/* The peer hears of it, and the queue pair is the program's to destroy. */
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
	CHECK(!ibv_destroy_qp(qp));
	rdma_destroy_ep(ends[1]);
	CHECK(!rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("an id that goes with its queue pair there");
}

/* Rules: CM-27, CM-34. The sender of a request waits no longer, and the listening side is about to answer it. No event
   says so, for the program has not accepted it yet. */
static void request_is_given_up(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct sockaddr_storage address;
	struct rdma_cm_id *listen, *active, *passive;
	struct rdma_cm_event *event;

	listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	active = resolved(channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(active, NULL, &attr) && !rdma_connect(active, NULL));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	CHECK(!rdma_ack_cm_event(event));
	rdma_destroy_ep(active);
	/* The message may be under way. */
	for (attr = small(IBV_QPT_RC); !rdma_create_qp(passive, NULL, &attr); attr = small(IBV_QPT_RC))
		rdma_destroy_qp(passive);
	CHECK(errno == EINVAL && !passive->qp);
	CHECK(rdma_accept(passive, NULL) == -1 && errno == EINVAL);
	CHECK(!rdma_destroy_id(passive) && !rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("a request that is given up before its answer");
}

/* Rules: CM-07 */
static void too_much_private_data(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	static const char bytes[256];
	struct rdma_conn_param param = {.private_data = bytes, .private_data_len = 57};
	struct ibv_qp_init_attr attr = small(IBV_QPT_RC);
	struct sockaddr_storage address;
	struct rdma_cm_id *listen, *active;
	struct rdma_cm_event *event;

	listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	active = resolved(channel, RDMA_PS_TCP, &address);
	CHECK(!rdma_create_qp(active, NULL, &attr));
	CHECK(rdma_connect(active, &param) == -1 && errno == EINVAL);
	param.private_data_len = 56;
	CHECK(!rdma_connect(active, &param));
	event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	attr = small(IBV_QPT_RC);
	CHECK(!rdma_create_qp(event->id, NULL, &attr));
	param.private_data_len = 197;
	CHECK(rdma_accept(event->id, &param) == -1 && errno == EINVAL);
	CHECK(rdma_reject(event->id, bytes, 149) == -1 && errno == EINVAL);
	CHECK(!rdma_reject(event->id, bytes, 148));
	expect(channel, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_qp(event->id);
	active->context = event->id;
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(active->context));
	rdma_destroy_ep(active);
	CHECK(!rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("private data that is too long");
}

static atomic_int enough;

static void *fetch_all(void *channel)
{
	struct rdma_cm_event *event;

	while (!enough) {
		CHECK(!rdma_get_cm_event(channel, &event));
		CHECK(!rdma_ack_cm_event(event));
	}
	return NULL;
}

/* Rules: CM-52. The one that goes takes its event along, or the thread has it: neither waits for the other. */
static void ids_go_while_a_thread_fetches(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address;
	struct rdma_cm_id *id;
	pthread_t thread;
	int round;

	loopback(AF_INET, &address);
	CHECK(!pthread_create(&thread, NULL, fetch_all, channel));
	for (round = 0; round < 5000; round++) {
		CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
		CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
		CHECK(!rdma_destroy_id(id));
	}
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	enough = 1;
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	CHECK(!pthread_join(thread, NULL));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	shown("ids that go while a thread fetches events");
}

struct fetcher {
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	int answer, error;
	atomic_int ended;
};

static void *fetch_one(void *argument)
{
	struct fetcher *fetcher = argument;

	fetcher->answer = rdma_get_cm_event(fetcher->channel, &fetcher->event);
	fetcher->error = errno;
	fetcher->ended = 1;
	return NULL;
}

/* Rules: CM-51. A wait for an event ends by a signal as the kernel's file has it. */
static void signals_while_a_thread_fetches(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	struct fetcher fetcher = {.channel = channel};
	struct sockaddr_storage address;
	struct rdma_cm_id *id;
	pthread_t thread;

	loopback(AF_INET, &address);
	CHECK(!sigaction(SIGUSR1, &action, NULL));
	CHECK(!pthread_create(&thread, NULL, fetch_one, &fetcher));
	while (signals < 100 && !fetcher.ended)
		CHECK(!pthread_kill(thread, SIGUSR1));
	CHECK(!fetcher.ended && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	CHECK(!pthread_join(thread, NULL) && !fetcher.answer);
	CHECK(!rdma_ack_cm_event(fetcher.event) && !rdma_destroy_id(id));
	/* Not with a handler that is to interrupt. */
	action.sa_flags = 0;
	CHECK(!sigaction(SIGUSR1, &action, NULL));
	fetcher.ended = 0;
	CHECK(!pthread_create(&thread, NULL, fetch_one, &fetcher));
	while (!fetcher.ended)
		pthread_kill(thread, SIGUSR1);
	CHECK(!pthread_join(thread, NULL) && fetcher.answer == -1 && fetcher.error == EINTR);
	action.sa_handler = SIG_DFL;
	CHECK(!sigaction(SIGUSR1, &action, NULL));
	rdma_destroy_event_channel(channel);
	shown("signals while a thread fetches");
}

/* Kilobytes of memory that are this process's alone. */
static long memory(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kilobytes = -1;

	CHECK(status);
	while (fgets(line, sizeof(line), status))
		sscanf(line, "RssAnon: %ld kB", &kilobytes);
	CHECK(!fclose(status) && kilobytes > 0);
	return kilobytes;
}

/* Connections with queue pairs of the library's, one after the other. */
static void many(int count)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address;
	struct rdma_cm_id *listen, *ends[2];
	int round, opened = 0;
	long before = 0;

	listen = listener(channel, AF_INET, RDMA_PS_TCP, &address);
	for (round = 0; round < count; round++) {
		/* The first of them take what all of them use. */
		if (round == count / 2) {
			before = memory();
			opened = descriptors(0);
		}
		connected(channel, &address, ends);
		CHECK(!rdma_disconnect(ends[0]));
		expect(channel, RDMA_CM_EVENT_DISCONNECTED);
		CHECK(!rdma_disconnect(ends[1]));
		expect(channel, RDMA_CM_EVENT_DISCONNECTED);
		rdma_destroy_ep(ends[0]);
		rdma_destroy_ep(ends[1]);
	}
	/* The device's thread may have one of its own open for a moment, now or then. */
	for (int look = 0; look < 1000 && descriptors(0) > opened; look++)
		usleep(1000);
	CHECK(descriptors(0) <= opened || descriptors(1) <= opened);
	/* Less than what a tenth of them would take. */
	if (memory() - before > 512 + count / 10) {
		fprintf(stderr, "%ld kB more after %d of %d\n", memory() - before, count / 2, count);
		exit(1);
	}
	CHECK(!rdma_destroy_id(listen));
	rdma_destroy_event_channel(channel);
	shown("many connections leave nothing behind");
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		many(atoi(argv[1]));
		return 0;
	}
	id_goes_with_a_queue_pair();
	request_is_given_up();
	too_much_private_data();
	ids_go_while_a_thread_fetches();
	signals_while_a_thread_fetches();
	channel_goes_while_waited_on();
	return 0;
}
