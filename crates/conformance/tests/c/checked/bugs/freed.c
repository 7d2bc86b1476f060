/* Bugs of kind A in memory of the program itself: AddressSanitizer reports them. spec/bugs.md names the programs that
   had them. The lines that it names are marked. */
#include <pthread.h>

#include "../pair.h"

#include "../../cm.h"

/* A connection, or something that belongs to one. */
struct endpoint {
	int is_closed, uses;
};

static struct endpoint *endpoint(void)
{
	struct endpoint *new = calloc(1, sizeof(*new));

	CHECK(new);
	return new;
}

/* Hides the mistake from the compiler, which would warn of it. */
static __attribute__((noipa)) void give_back(struct endpoint *it)
{
	free(it);
}

/* The peer refuses two requests, and the program polls the completion of the first. */
static struct pair failed(struct endpoint *requests)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	pair.remote_key ^= 0x100;
	for (int i = 0; i < 2; i++)
		CHECK(!try_write(&pair, (uintptr_t)requests, IBV_SEND_SIGNALED));
	return pair;
}

/* A failed connection frees its requests. The handler of the completion goes on with one of them. */
static void requests_freed_by_an_error(int wrong)
{
	struct endpoint *requests = endpoint();
	struct pair pair = failed(requests);
	struct ibv_wc wc;

	while (!ibv_poll_cq(pair.cq, 1, &wc))
		continue;
	CHECK(wc.status != IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)requests);
	if (wrong)
		give_back(requests);
	requests->uses++; /* here */
	if (!wrong)
		give_back(requests);
	polled(pair.cq, 1);
	end_pair(&pair);
}

/* The first completion frees a request, and another completion comes for it. */
static void freed_before_the_second_completion(int wrong)
{
	struct endpoint *requests = endpoint();
	struct pair pair = failed(requests);

	for (int i = 0; i < 2; i++) {
		struct endpoint *of;
		struct ibv_wc wc;

		while (!ibv_poll_cq(pair.cq, 1, &wc))
			continue;
		of = (struct endpoint *)(uintptr_t)wc.wr_id;
		of->uses++; /* here */
		if (wrong || of->uses == 2)
			give_back(of);
	}
	end_pair(&pair);
}

/* A connection is twice in the list of connections with work. */
static void twice_in_the_list(int wrong)
{
	struct endpoint *one = endpoint(), *list[2] = {one, wrong ? one : endpoint()};

	for (int i = 0; i < 2; i++) {
		list[i]->is_closed = 1; /* here */
		give_back(list[i]);
	}
}

static int handle(struct endpoint *it)
{
	give_back(it);
	return 0;
}

/* A handler frees its connection and reports that. The loop around it ignores the report. */
static void freed_in_its_handler(int wrong)
{
	struct endpoint *it = endpoint();

	do {
		if (!handle(it) && !wrong)
			return;
	} while (!it->is_closed); /* here */
}

static void *serve(void *it)
{
	give_back(it);
	return NULL;
}

/* The thread that serves an endpoint frees it, while another thread has it in its list. */
static void woken_after_its_end(int wrong)
{
	struct endpoint *it = endpoint(), *list[1] = {it};
	pthread_t thread;

	if (!wrong)
		list[0] = NULL;
	CHECK(!pthread_create(&thread, NULL, serve, it) && !pthread_join(thread, NULL));
	if (list[0])
		list[0]->uses++; /* here */
}

/* Frees an endpoint when it is disconnected, while its id has another event. */
static void event_after_the_end(int wrong)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct endpoint *it = endpoint(), *of;
	struct sockaddr_storage address;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(channel);
	loopback(AF_INET, &address);
	CHECK(!rdma_create_id(channel, &id, it, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	if (wrong)
		give_back(it);
	event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	of = event->id->context;
	of->uses++; /* here */
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id));
	if (!wrong)
		give_back(it);
	rdma_destroy_event_channel(channel);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"requests-freed-by-an-error", requests_freed_by_an_error},
		{"freed-before-the-second-completion", freed_before_the_second_completion},
		{"twice-in-the-list", twice_in_the_list},
		{"freed-in-its-handler", freed_in_its_handler},
		{"woken-after-its-end", woken_after_its_end},
		{"event-after-the-end", event_after_the_end},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
