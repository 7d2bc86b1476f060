/* Bugs of kind J: forks. spec/bugs.md names the programs that had them. The lines that a finding names are marked. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../pair.h"

/* Ends the child, or waits for its end in the parent. It may end in any way. */
static void end_child(pid_t child)
{
	CHECK(child >= 0);
	if (!child)
		_exit(0);
	CHECK(waitpid(child, NULL, 0) == child);
}

static void use_own_device(void)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	end_pair(&pair);
}

/* A child makes an endpoint with the device that its parent opened. */
static void made_in_a_child(int wrong)
{
	CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	const pid_t child = fork();

	if (!child && wrong)
		ibv_create_cq(pair.context, DEPTH, NULL, NULL, 0); /* here */
	if (!child && !wrong)
		use_own_device();
	end_child(child);
	end_pair(&pair);
}

/* A child destroys its parent's objects, because it has the same destructors. */
static void ended_in_a_child(int wrong)
{
	CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	const pid_t child = fork();

	if (!child && wrong)
		ibv_destroy_qp(pair.ends[0]); /* here */
	if (!child && !wrong)
		use_own_device();
	end_child(child);
	end_pair(&pair);
}

/* A daemon opens its device before it goes to the background. */
static void opened_by_the_parent(int wrong)
{
	CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	const pid_t child = fork();

	if (!child && wrong)
		try_write(&pair, 1, IBV_SEND_SIGNALED); /* here */
	if (!child && !wrong)
		use_own_device();
	end_child(child);
	end_pair(&pair);
}

/* Forks while a page has a buffer of the device and other data. The process that writes there next gets a copy, and
   the device keeps the page. */
static void page_shared_with_a_buffer(int wrong)
{
	if (!wrong)
		CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	const size_t page = 4096;
	char *data = aligned_alloc(page, 2 * page);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, data, wrong ? 50 : page, IBV_ACCESS_LOCAL_WRITE);
	const pid_t child = fork(); /* here */

	CHECK(mr);
	end_child(child);
	data[wrong ? 60 : page] = 1;
	CHECK(!ibv_dereg_mr(mr));
	free(data);
	end_pair(&pair);
}

/* On kernels before 5.12, after ibv_fork_init, a child has no page in which a region begins or ends. */
static void page_missing_in_a_child(int wrong)
{
	CHECK(!ibv_fork_init());

	struct pair pair = pair_of(IBV_QPT_RC);
	const size_t page = 4096, size = wrong ? page / 2 : page;
	char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, at, size, IBV_ACCESS_LOCAL_WRITE); /* here */
	const pid_t child = fork(); /* here */

	CHECK(at != MAP_FAILED && mr);
	if (!child)
		at[size] = 1;
	end_child(child);
	CHECK(!ibv_dereg_mr(mr) && !munmap(at, 2 * page));
	end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"made-in-a-child", made_in_a_child},
		{"ended-in-a-child", ended_in_a_child},
		{"opened-by-the-parent", opened_by_the_parent},
		{"page-shared-with-a-buffer", page_shared_with_a_buffer},
		{"page-missing-in-a-child", page_missing_in_a_child},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
