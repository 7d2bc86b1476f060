/*
 * Programs that a rehearsal has to judge. The first argument names the program. Where nothing is provoked, each ends with
 * 0.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../checked/pair.h"

static struct ibv_context *opened(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);

	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

/* Dies where a call fails. */
static void dies_if_refused(void)
{
	struct ibv_cq *cq = ibv_create_cq(opened(), 4, NULL, NULL, 0);

	printf("%d\n", *(volatile int *)&cq->cqe);
}

/* Is ended by its parent, in the middle of its work. */
static void is_ended(void)
{
	const pid_t child = fork();
	int status;

	if (!child) {
		ibv_create_cq(opened(), 4, NULL, NULL, 0);
		kill(getpid(), SIGSTOP);
	}
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
}

/* Ends without a word, and so does a child that was to die. */
static void ends_at_once(void)
{
	const pid_t child = fork();
	int status;

	ibv_create_cq(opened(), 4, NULL, NULL, 0);
	if (!child)
		abort();
	CHECK(waitpid(child, &status, 0) == child);
	_exit(0);
}

enum then { ENDS, DIES, GOES_ON };

/* Makes a mistake if a queue is exactly as large as it asks for. It ends well then, dies, or goes on for ever. */
static void makes_a_mistake(enum then then)
{
	struct ibv_cq *cq = ibv_create_cq(opened(), 4, NULL, NULL, 0);
	struct ibv_wc wc;

	CHECK(cq);
	if (cq->cqe != 4)
		return;
	CHECK(!ibv_destroy_cq(cq));
	ibv_poll_cq(cq, 1, &wc);
	if (then == DIES)
		raise(SIGSEGV);
	while (then == GOES_ON)
		pause();
}

/* Gives up its root directory, and then ends in good order if a call is refused. */
static void gives_up_its_root(const char *directory)
{
	struct ibv_context *context;

	CHECK(!geteuid() || !unshare(CLONE_NEWUSER));
	context = opened();
	CHECK(!chroot(directory) && !chdir("/"));
	if (!ibv_create_cq(context, 4, NULL, NULL, 0))
		exit(1);
}

static int works(int is_wrong)
{
	struct ibv_cq *cq = ibv_create_cq(opened(), 4, NULL, NULL, 0);

	return is_wrong && cq->cqe == 4;
}

/* Looks at a device, and has two workers that open it for themselves. The second relies on a large queue. */
static void has_workers(void)
{
	pid_t workers[2];
	int status, has_failed = 0;

	CHECK(!ibv_close_device(opened()));
	for (int i = 0; i < 2; i++) {
		workers[i] = fork();
		if (!workers[i])
			exit(works(i));
		CHECK(waitpid(workers[i], &status, 0) == workers[i]);
		has_failed |= status;
	}
	CHECK(!has_failed);
}

/* Relies on a large queue if it has so many devices, and the first has this name. */
static void needs_devices(int wanted, const char *name)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_cq *cq = ibv_create_cq(opened(), 4, NULL, NULL, 0);

	CHECK(cq);
	if (count == wanted && !strcmp(ibv_get_device_name(list[0]), name))
		CHECK(cq->cqe > 4);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "dies-if-refused"))
		dies_if_refused();
	else if (!strcmp(name, "is-ended"))
		is_ended();
	else if (!strcmp(name, "ends-at-once"))
		ends_at_once();
	else if (!strcmp(name, "makes-a-mistake-and-dies"))
		makes_a_mistake(DIES);
	else if (!strcmp(name, "makes-a-mistake-and-goes-on"))
		makes_a_mistake(GOES_ON);
	else if (!strcmp(name, "makes-a-mistake"))
		makes_a_mistake(ENDS);
	else if (!strcmp(name, "gives-up-its-root") && argc == 3)
		gives_up_its_root(argv[2]);
	else if (!strcmp(name, "has-workers"))
		has_workers();
	else if (!strcmp(name, "needs-devices") && argc == 4)
		needs_devices(atoi(argv[2]), argv[3]);
	else
		return 2;
	return 0;
}
