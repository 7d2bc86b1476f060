/* A program that tells who uses its buffers, with the pool of docs/check.md. The first argument names the mistake, the
   second is "wrong" or "right". Lines that a finding names are marked. */
#include <pthread.h>
#include <stdlib.h>

#include "channel.h"
#include "pool_of_the_page.h"

static struct buffer buffers[2];

static struct ibv_mr *pool_of(struct pair *pair)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->pd, buffers, sizeof(buffers),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	CHECK(mr);
	for (int i = 0; i < 2; i++)
		give(&buffers[i]);
	return mr;
}

static void receive_into(struct pair *pair, struct buffer *buffer, struct ibv_mr *mr)
{
	struct ibv_sge data = {(uintptr_t)buffer->data, sizeof(buffer->data), mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &data, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(pair->ends[1], &receive, &bad));
}

/* Gives a buffer back that a receive may still write to. */
static void claimed_in_use(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = pool_of(&pair);
	struct buffer *buffer = take();

	receive_into(&pair, buffer, mr); /* posted */
	if (wrong)
		give(buffer); /* claimed */
	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED);
	polled(pair.cq, 2);
	if (!wrong)
		give(buffer);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Keeps the pointer to a buffer after it has given the buffer back. */
static void posted_after_it_was_given(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = pool_of(&pair);
	struct buffer *buffer = take();

	if (wrong)
		give(buffer);
	receive_into(&pair, buffer, mr);
	send_on(pair.ends[0], 1, IBV_SEND_SIGNALED);
	polled(pair.cq, 2);
	if (!wrong)
		give(buffer);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* The peer writes to a buffer that the program has claimed. */
static void written_by_peer(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = pool_of(&pair);
	struct buffer *own = take();
	struct buffer *other = own == buffers ? buffers + 1 : buffers;
	struct ibv_sge data = {(uintptr_t)memory, 8, pair.mr->lkey};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				    .sg_list = &data, .num_sge = 1,
				    .wr.rdma = {(uintptr_t)(wrong ? other : own)->data, mr->rkey}}, *bad;

	CHECK(!ibv_post_send(pair.ends[0], &write, &bad));
	polled(pair.cq, 1);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Waits with a lock of its own for a queue that it has not armed. */
static void waits(int wrong)
{
	if (wrong)
		end_when_found();

	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct ibv_comp_channel *channel;
	struct pair pair = pair_with(&channel);
	struct ibv_wc wc;

	if (!wrong)
		arm(pair.cq);
	CHECK(ibv_poll_cq(pair.cq, 1, &wc) == 0);
	message(&pair);
	transom_wait(channel);
	CHECK(!pthread_mutex_lock(&lock));
	if (wrong)
		pthread_mutex_lock(&lock);
	transom_wake();
	get_event(channel);
	ibv_ack_cq_events(pair.cq, 1);
	polled(pair.cq, 2);
	end_with(&pair, channel);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"claimed-in-use", claimed_in_use},
		{"posted-after-it-was-given", posted_after_it_was_given},
		{"written-by-peer", written_by_peer},
		{"waits", waits},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
