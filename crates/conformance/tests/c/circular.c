/* Posts lists that lead back to themselves. The queues fill up, and the program goes on. */
#include "checked/pair.h"

int main(void)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pair.pd, &init);
	struct ibv_recv_wr first = {.wr_id = 1}, second = {.wr_id = 2, .next = &first}, *refused;
	struct ibv_send_wr send = {.wr_id = 3, .opcode = IBV_WR_SEND, .next = &send}, *bad;

	CHECK(srq);
	first.next = &second;
	CHECK(ibv_post_recv(pair.ends[0], &first, &refused) == ENOMEM);
	CHECK(ibv_post_srq_recv(srq, &first, &refused) == ENOMEM);
	CHECK(ibv_post_send(pair.ends[0], &send, &bad) == ENOMEM);
	puts("ended");
	return 0;
}
