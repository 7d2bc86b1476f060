/*
 * A program of two devices under `transom run --devices 2`: what the list, the queries and the files tell of them, what
 * belongs to which, and that queue pairs of one reach those of the other.
 */
#include <dirent.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>

#include "in_time.h"

/* Of <infiniband/driver.h>. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

enum { LENGTH = 64 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	int gid_index;
	char bytes[LENGTH];
};

static void shown(const char *what)
{
	printf("ok - %s\n", what);
}

static struct ibv_qp_init_attr init(struct ibv_cq *send, struct ibv_cq *receive, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = send,
		.recv_cq = receive,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};

	return attr;
}

/* The first GID that is an IPv4 address: a link-local one reaches its own interface only. */
static void choose_gid(struct end *end)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	do
		CHECK(!ibv_query_gid(end->context, 1, end->gid_index, &end->gid));
	while (memcmp(end->gid.raw, mapped, sizeof(mapped)) && ++end->gid_index);
}

static void open_end(struct end *end, struct ibv_device *device)
{
	struct ibv_qp_init_attr attr;

	CHECK((end->context = ibv_open_device(device)) && (end->pd = ibv_alloc_pd(end->context)));
	CHECK((end->cq = ibv_create_cq(end->context, 8, NULL, NULL, 0)));
	CHECK((end->mr = ibv_reg_mr(end->pd, end->bytes, LENGTH,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	attr = init(end->cq, end->cq, NULL);
	CHECK((end->qp = ibv_create_qp(end->pd, &attr)));
	end->gid_index = 0;
	choose_gid(end);
}

static void connect_to(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	CHECK(!ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer->qp->qp_num;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = peer->gid;
	attr.ah_attr.grh.sgid_index = end->gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	attr.min_rnr_timer = 1;
	CHECK(!ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	CHECK(!ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* A WRITE with keys of one's own choice. Returns its status. */
static enum ibv_wc_status write_to(struct end *end, uint32_t lkey, void *to, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)end->bytes, LENGTH, lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)to, rkey},
	}, *bad;
	struct ibv_wc wc;
	int count;

	CHECK(!ibv_post_send(end->qp, &wr, &bad));
	while (!(count = ibv_poll_cq(end->cq, 1, &wc)))
		;
	CHECK(count == 1);
	return wc.status;
}

static void close_end(struct end *end)
{
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_dereg_mr(end->mr) && !ibv_destroy_cq(end->cq));
	CHECK(!ibv_dealloc_pd(end->pd) && !ibv_close_device(end->context));
}

/* Anew, for a queue pair that has failed. */
static void connect_again(struct end *one, struct end *other)
{
	struct end *both[] = {one, other};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	int i;

	for (i = 0; i < 2; i++)
		CHECK(!ibv_modify_qp(both[i]->qp, &attr, IBV_QP_STATE));
	connect_to(one, other);
	connect_to(other, one);
}

static struct ibv_device **listed(struct ibv_device **two)
{
	struct ibv_device **list;
	int count;

	CHECK((list = ibv_get_device_list(&count)) && count == 2 && list[0] && list[1] && !list[2]);
	memcpy(two, list, 2 * sizeof(*two));
	return list;
}

/* Rules: DEVS-01, DEVS-02, DEVS-03 */
static void they_are_told_apart(struct end *ends)
{
	struct ibv_device_attr attr[2];
	struct ibv_port_attr port;
	char path[256], text[64];
	struct dirent *entry;
	int i, entries = 0;
	DIR *class;

	for (i = 0; i < 2; i++) {
		struct ibv_device *device = ends[i].context->device;

		snprintf(text, sizeof(text), "transom%d", i);
		CHECK(!strcmp(ibv_get_device_name(device), text));
		snprintf(path, sizeof(path), "/sys/class/infiniband/transom%d", i);
		CHECK(!strcmp(device->ibdev_path, path));
		snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%d", i);
		CHECK(!strcmp(device->dev_path, path));
		CHECK(ibv_read_sysfs_file(path, "ibdev", text, sizeof(text)) > 0);
		CHECK(!strcmp(text, ibv_get_device_name(device)));
		CHECK(ibv_read_sysfs_file(device->ibdev_path, "node_desc", text, sizeof(text)) > 0);
		CHECK(!strcmp(text, ibv_get_device_name(device)));
		CHECK(!ibv_query_device(ends[i].context, &attr[i]));
		CHECK(attr[i].node_guid == ibv_get_device_guid(device));
		CHECK(!ibv_query_port(ends[i].context, 1, &port) && port.state == IBV_PORT_ACTIVE);
	}
	CHECK(attr[0].node_guid != attr[1].node_guid);
	CHECK(attr[0].sys_image_guid == attr[1].sys_image_guid);
	CHECK((class = opendir("/sys/class/infiniband")));
	while ((entry = readdir(class)))
		entries += !strncmp(entry->d_name, "transom", 7);
	CHECK(entries == 2);
	closedir(class);
	shown("each has a name, a GUID and files of its own");
}

/* Rules: DEVS-04 */
static void their_objects_do_not_mix(struct end *ends)
{
	struct end *one = &ends[0], *other = &ends[1];
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_comp_channel *channel;
	struct ibv_qp_init_attr attr;
	struct ibv_srq *srq;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = {
		.bind_info = {one->mr, (uintptr_t)one->bytes, LENGTH, IBV_ACCESS_REMOTE_WRITE},
	};

#define REFUSED(send, receive, srq)                                                                \
	do {                                                                                       \
		attr = init(send, receive, srq);                                                   \
		errno = 0;                                                                         \
		CHECK(!ibv_create_qp(one->pd, &attr) && errno == EINVAL);                          \
	} while (0)
	CHECK((srq = ibv_create_srq(other->pd, &shared)));
	REFUSED(other->cq, one->cq, NULL);
	REFUSED(one->cq, other->cq, NULL);
	REFUSED(one->cq, one->cq, srq);
	CHECK(!ibv_destroy_srq(srq));
	CHECK((channel = ibv_create_comp_channel(other->context)));
	errno = 0;
	CHECK(!ibv_create_cq(one->context, 1, NULL, channel, 0) && errno == EBADF);
	CHECK(!ibv_destroy_comp_channel(channel));
	errno = 0;
	CHECK(ibv_rereg_mr(one->mr, IBV_REREG_MR_CHANGE_PD, other->pd, NULL, 0, 0) &&
	      errno == EINVAL);
	CHECK((mw = ibv_alloc_mw(other->pd, IBV_MW_TYPE_1)));
	CHECK(ibv_bind_mw(one->qp, mw, &bind));
	CHECK(!ibv_dealloc_mw(mw));
	shown("objects of both in one are refused");
}

/* Rules: DEVS-05, DEVS-06 */
static void one_reaches_the_other(struct end *ends)
{
	struct end *one = &ends[0], *other = &ends[1];
	static char own[LENGTH];
	struct ibv_mr *same;

	connect_to(one, other);
	connect_to(other, one);
	memset(one->bytes, 7, LENGTH);
	CHECK(write_to(one, one->mr->lkey, other->bytes, other->mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!memcmp(one->bytes, other->bytes, LENGTH));
	shown("a queue pair of one reaches one of the other");

	/* The key is of memory of the same process, but of the other device. */
	CHECK((same = ibv_reg_mr(one->pd, own, LENGTH,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	if (same->rkey != other->mr->rkey) {
		CHECK(write_to(one, one->mr->lkey, own, same->rkey) == IBV_WC_REM_ACCESS_ERR);
		CHECK(own[0] == 0);
		connect_again(one, other);
	}
	if (same->lkey != other->mr->lkey) {
		CHECK(write_to(one, other->mr->lkey, other->bytes, other->mr->rkey) ==
		      IBV_WC_LOC_PROT_ERR);
		connect_again(one, other);
	}
	CHECK(write_to(one, one->mr->lkey, other->bytes, other->mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!ibv_dereg_mr(same));
	shown("a key of one opens nothing to the other");
}

/* Rules: DEVS-07 */
static void port_is_down(struct end *ends)
{
	struct end *up = &ends[0], *down = &ends[1];
	struct ibv_port_attr port;

	CHECK(!ibv_query_port(up->context, 1, &port) && port.state == IBV_PORT_ACTIVE);
	CHECK(!ibv_query_port(down->context, 1, &port) && port.state == IBV_PORT_DOWN);
	connect_to(up, down);
	connect_to(down, up);
	memset(up->bytes, 7, LENGTH);
	CHECK(write_to(up, up->mr->lkey, down->bytes, down->mr->rkey) == IBV_WC_RETRY_EXC_ERR);
	CHECK(down->bytes[0] == 0);
	CHECK(write_to(down, down->mr->lkey, up->bytes, up->mr->rkey) == IBV_WC_RETRY_EXC_ERR);
	CHECK(up->bytes[0] == 7);
	shown("nothing passes a port that is down");
}

/* A queue pair that is connected to itself. */
static void connect_to_itself(struct end *end)
{
	connect_to(end, end);
	CHECK(write_to(end, end->mr->lkey, end->bytes, end->mr->rkey) == IBV_WC_SUCCESS);
}

/* The call answers that the device has gone. */
#define GONE(call)                                                                                 \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK((call) && errno == EIO);                                                     \
	} while (0)

/* All is there, and the device goes. */
static void wait_until_gone(struct end *end)
{
	struct ibv_async_event event;

	all_is_there();
	do {
		CHECK(!ibv_get_async_event(end->context, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
}

/* Objects to which one posts otherwise than by ibv_post_send and ibv_post_recv. */
struct posts {
	struct ibv_srq *shared, *tagged;
	struct ibv_qp_ex *extended;
	struct ibv_mw *mw;
};

static void make_posts(struct posts *posts, struct end *end)
{
	struct ibv_srq_init_attr_ex tagged = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = end->pd,
		.cq = end->cq,
		.tm_cap = {.max_num_tags = 4, .max_ops = 4},
	};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr_ex extended = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {.max_send_wr = 1, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp;

	CHECK((posts->shared = ibv_create_srq(end->pd, &shared)));
	CHECK((posts->tagged = ibv_create_srq_ex(end->context, &tagged)));
	CHECK((qp = ibv_create_qp_ex(end->context, &extended)));
	CHECK((posts->extended = ibv_qp_to_qp_ex(qp)));
	CHECK((posts->mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_1)));
}

/* The device has gone. */
static void other_posts_are_refused(struct posts *posts, struct end *end)
{
	struct ibv_mw_bind bind = {
		.bind_info = {end->mr, (uintptr_t)end->bytes, LENGTH, IBV_ACCESS_REMOTE_WRITE},
	};
	struct ibv_ops_wr add = {.opcode = IBV_WR_TAG_ADD}, *bad_operation = NULL;
	struct ibv_recv_wr receive = {0}, *bad_receive = NULL;

	GONE(ibv_post_srq_recv(posts->shared, &receive, &bad_receive));
	CHECK(bad_receive == &receive);
	GONE(ibv_post_srq_ops(posts->tagged, &add, &bad_operation));
	CHECK(bad_operation == &add);
	GONE(ibv_bind_mw(end->qp, posts->mw, &bind));
	ibv_wr_start(posts->extended);
	ibv_wr_send(posts->extended);
	CHECK(ibv_wr_complete(posts->extended) == EIO);
	CHECK(!ibv_destroy_srq(posts->shared) && !ibv_destroy_srq(posts->tagged));
	CHECK(!ibv_destroy_qp(&posts->extended->qp_base) && !ibv_dealloc_mw(posts->mw));
}

/* One goes, and the other goes on. */
/* Rules: DEVS-11, DEVS-12 */
static void one_goes(struct end *gone, struct end *left, struct ibv_device *device)
{
	struct end anew = {0};
	struct pollfd events = {.fd = left->context->async_fd, .events = POLLIN};
	struct ibv_qp_init_attr attr = init(gone->cq, gone->cq, NULL);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad_send;
	struct ibv_recv_wr receive = {0}, *bad_receive;
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_device_attr limits;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct posts posts;
	struct ibv_wc wc;

	connect_to_itself(left);
	connect_to_itself(gone);
	make_posts(&posts, gone);
	wait_until_gone(gone);
	GONE(!ibv_alloc_pd(gone->context));
	GONE(!ibv_create_qp(gone->pd, &attr));
	GONE(!ibv_reg_mr(gone->pd, gone->bytes, LENGTH, 0));
	GONE(ibv_query_port(gone->context, 1, &port));
	GONE(ibv_query_device(gone->context, &limits));
	CHECK(ibv_query_gid_table(gone->context, &gid, 1, 0) == -EIO);
	GONE(ibv_modify_qp(gone->qp, &reset, IBV_QP_STATE));
	GONE(ibv_post_send(gone->qp, &wr, &bad_send));
	GONE(ibv_post_recv(gone->qp, &receive, &bad_receive));
	GONE(ibv_poll_cq(gone->cq, 1, &wc) < 0);
	other_posts_are_refused(&posts, gone);
	GONE(!ibv_open_device(device));
	shown("calls of the one that has gone answer EIO");

	CHECK(poll(&events, 1, 0) == 0);
	CHECK(write_to(left, left->mr->lkey, left->bytes, left->mr->rkey) == IBV_WC_SUCCESS);
	CHECK(!ibv_query_port(left->context, 1, &port) && port.state == IBV_PORT_ACTIVE);
	open_end(&anew, left->context->device);
	connect_to_itself(&anew);
	close_end(&anew);
	shown("the other goes on, and is told nothing");

	close_end(gone);
	open_end(gone, device);
	connect_to_itself(gone);
	shown("once it is closed, it can be opened again");
}

/* One goes before the other is opened. */
/* Rules: DEVS-11 */
static void one_takes_over(struct end *gone, struct end *left, struct ibv_device **two)
{
	open_end(gone, two[0]);
	connect_to_itself(gone);
	wait_until_gone(gone);
	open_end(left, two[1]);
	connect_to_itself(left);
	GONE(!ibv_alloc_pd(gone->context));
	shown("the other is opened when the first has gone");
}

/* The completions of both are not polled. Of the one that has gone, they cannot be. */
/* Rules: CHK-02, DEVS-11 */
static void both_are_unpolled(struct end *gone, struct end *left)
{
	struct end *both[] = {gone, left};
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	int i;

	connect_to_itself(gone);
	connect_to_itself(left);
	for (i = 0; i < 2; i++)
		CHECK(!ibv_post_send(both[i]->qp, &wr, &bad));
	wait_until_gone(gone);
	printf("ok - of %#x they could be\n", left->qp->qp_num);
}

/* One goes, and nobody closes it. */
/* Rules: DEVS-08 */
static void one_is_left_open(struct end *gone)
{
	connect_to_itself(gone);
	wait_until_gone(gone);
	shown("it stays open");
	exit(0);
}

/* The interface of the second is down. */
/* Rules: DEVS-13 */
static void one_has_no_address(struct ibv_device **two)
{
	const enum ibv_port_state states[] = {IBV_PORT_ACTIVE, IBV_PORT_DOWN};
	struct ibv_gid_entry entries[8];
	struct ibv_context *context;
	struct ibv_port_attr port;
	int i;

	for (i = 0; i < 2; i++) {
		CHECK((context = ibv_open_device(two[i])) && !ibv_query_port(context, 1, &port));
		CHECK(port.state == states[i]);
		CHECK((ibv_query_gid_table(context, entries, 8, 0) > 0) == !i);
		CHECK(!ibv_close_device(context));
	}
	shown("one is down");
	exit(0);
}

/* A command that looks at this process. */
static void it_is_looked_at(void)
{
	const char *command = getenv("LOOKS");

	fflush(stdout);
	CHECK(command && !system(command));
}

/* Rules: DEVS-08 */
static void some_traffic(struct end *ends)
{
	struct end *one = &ends[0], *other = &ends[1];
	int i;

	connect_to(one, other);
	connect_to(other, one);
	for (i = 0; i < 5; i++)
		CHECK(write_to(one, one->mr->lkey, other->bytes, other->mr->rkey) == IBV_WC_SUCCESS);
	for (i = 0; i < 2; i++)
		CHECK(write_to(other, other->mr->lkey, one->bytes, one->mr->rkey) == IBV_WC_SUCCESS);
	shown("seven WRITEs");
}

int main(int argc, char **argv)
{
	struct ibv_device *two[2], **list = listed(two);
	const char *part = argc > 1 ? argv[1] : "";
	/* The one that goes, for the parts that are told it. */
	int gone = argc > 2 && !strcmp(argv[2], "1");
	static struct end ends[2];
	int i;

	if (argc > 2)
		be_in_time();
	if (!strcmp(part, "interface"))
		one_has_no_address(two);
	if (!strcmp(part, "takes-over")) {
		one_takes_over(&ends[0], &ends[1], two);
	} else {
		for (i = 0; i < 2; i++)
			open_end(&ends[i], two[i]);
	}
	if (!strcmp(part, "")) {
		they_are_told_apart(ends);
		their_objects_do_not_mix(ends);
		one_reaches_the_other(ends);
	} else if (!strcmp(part, "port-down")) {
		port_is_down(ends);
	} else if (!strcmp(part, "goes")) {
		one_goes(&ends[gone], &ends[!gone], two[gone]);
	} else if (!strcmp(part, "unpolled")) {
		both_are_unpolled(&ends[gone], &ends[!gone]);
	} else if (!strcmp(part, "left-open")) {
		one_is_left_open(&ends[gone]);
	} else if (!strcmp(part, "looked-at")) {
		it_is_looked_at();
	} else if (!strcmp(part, "traffic")) {
		some_traffic(ends);
	}
	ibv_free_device_list(list);
	close_end(&ends[0]);
	close_end(&ends[1]);
	return 0;
}
