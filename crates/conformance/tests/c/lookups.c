/*
 * Names that are looked up for an id (rdma_resolve_addrinfo), which may end or move meanwhile. The program stands in
 * for the C library's lookup: it waits where it is told to, and answers with a name so long that one sees whether the
 * answer is still in memory.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <sched.h>
#include <semaphore.h>
#include <unistd.h>

#include "cm.h"

/* Of librdmacm since 1.4, which the packaged headers may not have. */
#define ADDRINFO_RESOLVED 16

#define NAME (16 << 20)

static int (*resolve_addrinfo)(struct rdma_cm_id *, const char *, const char *,
			       const struct rdma_addrinfo *);
static int (*query_addrinfo)(struct rdma_cm_id *, struct rdma_addrinfo **);

static struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};

static sem_t inside, onwards;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *wanted,
		struct addrinfo **found)
{
	int (*theirs)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
		dlsym(RTLD_NEXT, "getaddrinfo");
	char *name = malloc(NAME);

	if (!strcmp(node, "held.example")) {
		CHECK(!sem_post(&inside) && !sem_wait(&onwards));
		node = "127.0.0.1";
	}
	CHECK(name && !theirs(node, service, wanted, found) && !(*found)->ai_canonname);
	memset(name, 'n', NAME - 1);
	name[NAME - 1] = 0;
	(*found)->ai_canonname = name;
	return 0;
}

/* How many answers are in memory. */
static size_t answers(size_t before)
{
	return (mallinfo2().hblkhd - before + NAME / 2) / NAME;
}

/* Waits until no thread looks anything up. */
static void wait_for_lookups(void)
{
	struct dirent *entry;
	int looking;

	do {
		DIR *tasks = opendir("/proc/self/task");

		looking = 0;
		CHECK(tasks);
		while ((entry = readdir(tasks))) {
			char path[300], name[32] = "";
			FILE *comm;

			snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
			comm = fopen(path, "r");
			if (!comm)
				continue;
			if (fgets(name, sizeof(name), comm) && !strcmp(name, "transom-lookup\n"))
				looking = 1;
			fclose(comm);
		}
		closedir(tasks);
		sched_yield();
	} while (looking);
}

/* Rules: CM-58 */
static void not_asked_for(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;
	size_t before;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	before = mallinfo2().hblkhd;
	CHECK(!resolve_addrinfo(id, "127.0.0.1", "7471", &hints));
	expect(channel, ADDRINFO_RESOLVED);
	CHECK(answers(before) == 1);
	CHECK(resolve_addrinfo(id, "127.0.0.1", "7471", &hints) && errno == EBUSY);
	CHECK(!query_addrinfo(id, &found) && answers(before) == 1);
	rdma_freeaddrinfo(found);
	CHECK(!answers(before));
	CHECK(!resolve_addrinfo(id, "127.0.0.1", "7471", &hints));
	expect(channel, ADDRINFO_RESOLVED);
	CHECK(answers(before) == 1 && !rdma_destroy_id(id));
	wait_for_lookups();
	CHECK(!answers(before));
	rdma_destroy_event_channel(channel);
	shown("what is not asked for goes with its id");
}

static void id_ends(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	size_t before;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	before = mallinfo2().hblkhd;
	CHECK(!resolve_addrinfo(id, "held.example", "7471", &hints) && !sem_wait(&inside));
	CHECK(resolve_addrinfo(id, "127.0.0.1", "7471", &hints) && errno == EBUSY);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	/* Another may have the memory, the number and the descriptor: it hears nothing. */
	channel = rdma_create_event_channel();
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) && !sem_post(&onwards));
	wait_for_lookups();
	CHECK(!answers(before));
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	CHECK(rdma_get_cm_event(channel, &event) && errno == EAGAIN);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	shown("an id that ends while its name is looked up");
}

static void id_moves(void)
{
	struct rdma_event_channel *first = rdma_create_event_channel();
	struct rdma_event_channel *second = rdma_create_event_channel();
	struct rdma_addrinfo *found;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(first, &id, NULL, RDMA_PS_TCP));
	CHECK(!resolve_addrinfo(id, "held.example", "7471", &hints) && !sem_wait(&inside));
	CHECK(!rdma_migrate_id(id, second));
	rdma_destroy_event_channel(first);
	CHECK(!sem_post(&onwards));
	event = next(second, ADDRINFO_RESOLVED);
	CHECK(event->id == id && !rdma_ack_cm_event(event));
	CHECK(!query_addrinfo(id, &found) && found->ai_dst_len == sizeof(struct sockaddr_in));
	rdma_freeaddrinfo(found);
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(second);
	shown("an id that moves while its name is looked up");
}

int main(void)
{
	/* Every answer is a mapping of its own, and counted. */
	CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20));
	CHECK(!sem_init(&inside, 0, 0) && !sem_init(&onwards, 0, 0));
	resolve_addrinfo = dlsym(RTLD_DEFAULT, "rdma_resolve_addrinfo");
	query_addrinfo = dlsym(RTLD_DEFAULT, "rdma_query_addrinfo");
	CHECK(resolve_addrinfo && query_addrinfo);
	not_asked_for();
	id_ends();
	id_moves();
	return 0;
}
