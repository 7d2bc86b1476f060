/* Bugs of kinds D, E and K: keys, rights and addresses. spec/bugs.md names the programs that had them. The lines that a
   finding names are marked. */
#include <sys/mman.h>

#include "../pair.h"

static char others[4096] __attribute__((aligned(4096)));

enum { LOCAL = IBV_ACCESS_LOCAL_WRITE, WRITE = LOCAL | IBV_ACCESS_REMOTE_WRITE,
       ATOMIC = WRITE | IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_mr *region_of(struct pair *pair, void *at, size_t length, int rights)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->pd, at, length, rights); /* made by region_of */

	CHECK(mr);
	return mr;
}

/* Posts one request of 8 bytes, and waits until it completes with this status. */
static void carry_out(struct pair *pair, struct ibv_send_wr *request, enum ibv_wc_status status)
{
	struct ibv_sge data = {(uintptr_t)memory, 8, pair->mr->lkey};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	request->send_flags |= IBV_SEND_SIGNALED;
	if (!request->sg_list)
		request->sg_list = &data;
	request->num_sge = 1;
	CHECK(!ibv_post_send(pair->ends[0], request, &bad));
	while (!ibv_poll_cq(pair->cq, 1, &wc))
		continue;
	CHECK(wc.status == status);
}

/* Reads the event that a refused access raises at its target. */
static void end_refused(struct pair *pair)
{
	struct ibv_async_event event;

	CHECK(!ibv_get_async_event(pair->context, &event));
	ibv_ack_async_event(&event);
	end_pair(pair);
}

static void write_to(struct pair *pair, uint64_t address, uint32_t key, enum ibv_wc_status status)
{
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {address, key}};

	carry_out(pair, &write, status);
}

static void add_to(struct pair *pair, uint64_t address, uint32_t key, uint64_t operand, enum ibv_wc_status status)
{
	struct ibv_send_wr add = {.wr_id = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .wr.atomic = {address, operand, 0, key}};
	struct ibv_qp_attr rights = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};

	CHECK(!ibv_modify_qp(pair->ends[1], &rights, IBV_QP_ACCESS_FLAGS));
	carry_out(pair, &add, status);
}

/* Gives memory back and maps it anew while a cache has it registered. The peer writes to the new memory. */
static void unmapped_while_registered(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
	struct ibv_mr *mr;

	CHECK(at != MAP_FAILED);
	mr = region_of(&pair, at, 4096, WRITE);
	if (wrong) {
		CHECK(!munmap(at, 4096)); /* here */
		CHECK(mmap(at, 4096, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == at);
	}
	write_to(&pair, (uintptr_t)at, mr->rkey, IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(mr) && !munmap(at, 4096));
	end_pair(&pair);
}

/* Ignores the rights that callers ask for: every region has all of them. */
static void rights_for_everyone(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	const int rights = wrong ? WRITE | IBV_ACCESS_REMOTE_READ : LOCAL;
	struct ibv_mr *mr = ibv_reg_mr(pair.pd, others, 64, rights); /* here */
	struct ibv_sge data = {(uintptr_t)others, 8, 0};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &data,
				    .wr.rdma = {(uintptr_t)memory, pair.remote_key}};

	CHECK(mr);
	data.lkey = mr->lkey;
	carry_out(&pair, &write, IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* A peer keeps the key of a region that has been registered anew since. */
static void key_of_the_past(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = region_of(&pair, others, 64, WRITE);
	uint32_t kept = mr->rkey;

	CHECK(!ibv_dereg_mr(mr));
	mr = region_of(&pair, others, 64, WRITE);
	if (!wrong)
		kept = mr->rkey;
	write_to(&pair, (uintptr_t)others, kept, wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS); /* here */
	CHECK(!ibv_dereg_mr(mr));
	if (wrong)
		end_refused(&pair);
	else
		end_pair(&pair);
}

/* A cache finds a region by its addresses, and ignores the rights of its registration. */
static void cached_with_less(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = region_of(&pair, others, 64, wrong ? WRITE : ATOMIC);

	add_to(&pair, (uintptr_t)others, mr->rkey, 1, wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS); /* here */
	CHECK(!ibv_dereg_mr(mr));
	if (wrong)
		end_refused(&pair);
	else
		end_pair(&pair);
}

/* A buffer is registered in two pieces, and one request covers both. */
static void across_two_regions(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *one = region_of(&pair, others, 64, WRITE), *two = region_of(&pair, others + 64, 64, WRITE);
	const uintptr_t at = (uintptr_t)others + 64 - (wrong ? 4 : 8);

	write_to(&pair, at, one->rkey, wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS); /* here */
	CHECK(!ibv_dereg_mr(one) && !ibv_dereg_mr(two));
	if (wrong)
		end_refused(&pair);
	else
		end_pair(&pair);
}

/* Registers the buffer of each message, and never deregisters it. */
static void never_deregistered(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	for (int i = 0; i < 3; i++) {
		struct ibv_mr *mr = region_of(&pair, others + 64 * i, 64, LOCAL); /* here */

		CHECK(wrong || !ibv_dereg_mr(mr));
	}
	if (!wrong)
		end_pair(&pair);
}

/* Empties the list of regions before the loop that deregisters them. */
static void list_emptied_first(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *list[2];
	int length = 0;

	while (length < 2) {
		list[length] = region_of(&pair, others + 64 * length, 64, LOCAL); /* here */
		length++;
	}
	if (wrong)
		length = 0;
	while (length)
		CHECK(!ibv_dereg_mr(list[--length]));
	end_queues(&pair);
	CHECK(ibv_dealloc_pd(pair.pd) == (wrong ? EBUSY : 0));
	CHECK(!ibv_close_device(pair.context)); /* here */
}

/* Sends short messages inline, but made the queue pair without room for inline data. */
static void inline_without_asking(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);

	CHECK(!try_write(&pair, 1, IBV_SEND_SIGNALED | (wrong ? IBV_SEND_INLINE : 0))); /* here */
	polled(pair.cq, 1);
	end_pair(&pair);
}

/* An atomic of 8 bytes, at an address that is aligned to 4 bytes. */
static void atomic_between_words(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = region_of(&pair, others, 64, ATOMIC);
	const uintptr_t at = (uintptr_t)others + (wrong ? 4 : 8);

	add_to(&pair, at, mr->rkey, 1, wrong ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS); /* here */
	CHECK(!ibv_dereg_mr(mr));
	if (wrong)
		end_refused(&pair);
	else
		end_pair(&pair);
}

/* The operand of an atomic should be the number, and is the address of the number. */
static void address_for_a_number(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = region_of(&pair, others, 64, ATOMIC);
	uint64_t number = 1;

	add_to(&pair, (uintptr_t)others, mr->rkey, wrong ? (uintptr_t)&number : number, IBV_WC_SUCCESS); /* here */
	CHECK(!ibv_dereg_mr(mr));
	end_pair(&pair);
}

/* Sends the address of a buffer to the peer with a function for 32 bits. */
static void half_of_an_address(int wrong)
{
	struct pair pair = pair_of(IBV_QPT_RC);
	struct ibv_mr *mr = region_of(&pair, others, 64, WRITE);
	const uint64_t whole = (uintptr_t)others, told = wrong ? (uint32_t)whole : whole;

	write_to(&pair, told, mr->rkey, wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS); /* here */
	CHECK(!ibv_dereg_mr(mr));
	if (wrong)
		end_refused(&pair);
	else
		end_pair(&pair);
}

int main(int count, char **arguments)
{
	static const struct mistake mistakes[] = {
		{"unmapped-while-registered", unmapped_while_registered},
		{"rights-for-everyone", rights_for_everyone},
		{"key-of-the-past", key_of_the_past},
		{"cached-with-less", cached_with_less},
		{"across-two-regions", across_two_regions},
		{"never-deregistered", never_deregistered},
		{"list-emptied-first", list_emptied_first},
		{"inline-without-asking", inline_without_asking},
		{"atomic-between-words", atomic_between_words},
		{"address-for-a-number", address_for_a_number},
		{"half-of-an-address", half_of_an_address},
	};

	return made(mistakes, sizeof(mistakes) / sizeof(mistakes[0]), count, arguments);
}
