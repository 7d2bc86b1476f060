/* Programs that give memory back while a region has it. Each mistake has a correct twin. The first argument names the
   mistake, the second is "wrong" or "right". Lines that a finding names are marked. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

enum { LENGTH = 8192, LARGE = 4 << 20 };

static char *mapped(int flags, int file)
{
	char *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, flags, file, 0);

	CHECK(at != MAP_FAILED);
	return memset(at, 7, LENGTH);
}

static struct ibv_mr *registered(struct pair *pair, char *at, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->pd, at, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	CHECK(mr);
	return mr;
}

static void send_from(struct pair *pair, char *at, struct ibv_mr *mr)
{
	struct ibv_sge data = {(uintptr_t)at, 64, mr->lkey};
	struct ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_send(pair->ends[0], &send, &bad));
}

static void receive_into(struct pair *pair, char *at, struct ibv_mr *mr)
{
	struct ibv_sge data = {(uintptr_t)at, 64, mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(pair->ends[1], &receive, &bad));
}

/* Sends from this memory, and waits until the request has ended, with success or not. */
static void sent(struct pair *pair, char *at, struct ibv_mr *mr)
{
	struct ibv_wc wc;

	receive_into(pair, memory, pair->mr);
	send_from(pair, at, mr);
	do
		while (ibv_poll_cq(pair->cq, 1, &wc) == 0)
			continue;
	while (wc.wr_id != 1);
}

static void end(struct pair *pair)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(pair->cq, 1, &wc) > 0)
		continue;
	end_pair(pair);
}

static void unmap(char *at)
{
	CHECK(!munmap(at, LENGTH));
}

static void memory_gone(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char *at = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct ibv_mr *mr = registered(&pair, at, LENGTH);

	if (wrong)
		unmap(at); /* unmapped */
	sent(&pair, at, mr); /* posted */
	CHECK(!ibv_dereg_mr(mr));
	if (!wrong)
		unmap(at);
	end(&pair);
}

static void emptied(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char *at = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct ibv_mr *mr = registered(&pair, at, LENGTH);

	if (!wrong)
		sent(&pair, at, mr);
	if (!wrong)
		CHECK(!ibv_dereg_mr(mr));
	CHECK(!madvise(at, LENGTH, MADV_DONTNEED));
	if (wrong) {
		sent(&pair, at, mr);
		CHECK(!ibv_dereg_mr(mr));
	}
	unmap(at);
	end(&pair);
}

/* A function of its own, so that the compiler does not see the mistake. */
__attribute__((noinline)) static void give(void *block)
{
	free(block);
}

/* The C library unmaps large blocks when they are freed. Blocks of whole pages are shared memory here. */
static void freed_then_used(int wrong, char *at, size_t length)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr;

	if (!at)
		CHECK(!posix_memalign((void **)&at, 4096, length));
	memset(at, 7, length);
	mr = registered(&pair, at, length);
	if (wrong)
		give(at);
	sent(&pair, at, mr);
	CHECK(!ibv_dereg_mr(mr));
	if (!wrong)
		free(at);
	end(&pair);
}

static void freed_large(int wrong)
{
	freed_then_used(wrong, malloc(LARGE), LARGE);
}

static void freed_pages(int wrong)
{
	freed_then_used(wrong, NULL, LENGTH);
}

/* Nobody receives the message, so it is under way. */
static void freed_in_flight(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char *at = calloc(1, 1000), *other = malloc(1000);
	struct ibv_mr *mr = registered(&pair, at, 1000);

	if (!wrong)
		receive_into(&pair, memory, pair.mr);
	send_from(&pair, at, mr);
	if (wrong) {
		free(at);
		receive_into(&pair, memory, pair.mr);
	}
	polled(pair.cq, 2);
	CHECK(!ibv_dereg_mr(mr));
	if (!wrong)
		free(at);
	free(other);
	end(&pair);
}

static void given_back(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char *at = malloc(1000);
	struct ibv_mr *mr = registered(&pair, at, 1000);

	if (wrong)
		free(at); /* freed */
	CHECK(!ibv_dereg_mr(mr));
	if (!wrong)
		free(at);
	end(&pair);
}

/* A peer writes to a region whose memory is no longer mapped. */
static void written_by_peer(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char *at = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct ibv_mr *mr = registered(&pair, at, LENGTH);
	struct ibv_sge data = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				    .sg_list = &data, .num_sge = 1, .wr.rdma = {(uintptr_t)at, mr->rkey}}, *bad;

	if (wrong)
		unmap(at);
	CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
	polled(pair.cq, 1);
	CHECK(!ibv_dereg_mr(mr));
	if (!wrong)
		unmap(at);
	end(&pair);
}

/* A message comes for a receive whose memory is no longer mapped. */
static void received(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	char *at = malloc(LARGE);
	struct ibv_mr *mr = registered(&pair, at, LARGE);
	struct ibv_wc wc;

	receive_into(&pair, at, mr);
	if (wrong)
		give(at);
	send_from(&pair, memory, pair.mr);
	for (int ended = 0; ended < 2; ended++)
		while (ibv_poll_cq(pair.cq, 1, &wc) == 0)
			continue;
	CHECK(!ibv_dereg_mr(mr));
	if (!wrong)
		free(at);
	end(&pair);
}

/* The pages of a file still exist after one mapping has ended. A new region has the new pages. */
static void harmless(int by_file)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const int file = memfd_create("pages", 0);
	char *at, *other;
	struct ibv_mr *mr;

	CHECK(file >= 0 && !ftruncate(file, LENGTH));
	at = by_file ? mapped(MAP_SHARED, file) : mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	mr = registered(&pair, at, LENGTH);
	other = by_file ? mapped(MAP_SHARED, file) : at;
	if (by_file) {
		CHECK(!madvise(at, LENGTH, MADV_DONTNEED));
		sent(&pair, at, mr);
	} else {
		CHECK(!ibv_dereg_mr(mr));
		unmap(at);
		CHECK(mmap(at, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		mr = registered(&pair, at, LENGTH);
		sent(&pair, at, mr);
	}
	CHECK(!ibv_dereg_mr(mr));
	unmap(at);
	if (other != at)
		unmap(other);
	close(file);
	end(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"memory-gone", memory_gone},
		{"emptied", emptied},
		{"freed-large", freed_large},
		{"freed-pages", freed_pages},
		{"freed-in-flight", freed_in_flight},
		{"given-back", given_back},
		{"written-by-peer", written_by_peer},
		{"received", received},
		{"harmless", harmless},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
