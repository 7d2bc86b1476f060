// Asks libibverbs for symbols that the packaged headers do not declare, and in the versions that
// programs of other distributions ask for. It is linked with our library.
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			return 1; \
		} \
	} while (0)

int pd_34(void *), pd_57(void *), pd_59(void *), pd_64(void *), pd_65(void *);
__asm__(".symver pd_34, ibv_cmd_alloc_pd@IBVERBS_PRIVATE_34");
__asm__(".symver pd_57, ibv_cmd_alloc_pd@IBVERBS_PRIVATE_57");
__asm__(".symver pd_59, ibv_cmd_alloc_pd@IBVERBS_PRIVATE_59");
__asm__(".symver pd_64, ibv_cmd_alloc_pd@IBVERBS_PRIVATE_64");
__asm__(".symver pd_65, ibv_cmd_alloc_pd@IBVERBS_PRIVATE_65");
void verbs_register_driver_34(const void *), verbs_register_driver_65(const void *);
int ibv_cmd_poll_cq(struct ibv_cq *, int, struct ibv_wc *);
int ibv_cmd_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
void *_verbs_init_and_alloc_context(struct ibv_device *, int, size_t, void *, uint32_t);
extern bool flag_59;
__asm__(".symver flag_59, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_59");
void *ibv_reg_mr_ex(struct ibv_pd *, const void *);
int ibv_query_port_speed(struct ibv_context *, uint32_t, uint64_t *);
void *ibv_alloc_buf(struct ibv_pd *, size_t, void **);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *, void *, void *, size_t, int);
void ibv_free_buf(void *);
int ibv_export_buf_dmabuf_fd(void *);
int ibv_cmd_create_comp_cntr(void *);
void *ibv_create_comp_cntr(struct ibv_context *, void *);
int ibv_destroy_comp_cntr(void *), ibv_inc_comp_cntr(void *, uint64_t);
int ibv_read_comp_cntr(void *, uint64_t *);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *, struct ib_uverbs_qp_attr *);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *, struct ib_user_path_rec *);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *, struct ibv_sa_path_rec *);
void old_register(const char *, void *);
__asm__(".symver old_register, ibv_register_driver@IBVERBS_1.1");

static int commands_are_refused(void)
{
	struct ibv_send_wr wr = {}, *bad = NULL;

	CHECK(pd_34(NULL) == EOPNOTSUPP && pd_57(NULL) == EOPNOTSUPP);
	CHECK(pd_59(NULL) == EOPNOTSUPP && pd_64(NULL) == EOPNOTSUPP);
	CHECK(pd_65(NULL) == EOPNOTSUPP && ibv_cmd_create_comp_cntr(NULL) == EOPNOTSUPP);
	CHECK(ibv_cmd_poll_cq(NULL, 1, NULL) == -1 && errno == EOPNOTSUPP);
	CHECK(ibv_cmd_post_send(NULL, &wr, &bad) == EOPNOTSUPP && bad == &wr);
	CHECK(!_verbs_init_and_alloc_context(NULL, -1, 1, NULL, 0));
	verbs_register_driver_34(NULL);
	verbs_register_driver_65(NULL);
	old_register("old", NULL);
	CHECK(!flag_59);
	return 0;
}

static int newer_verbs(void)
{
	struct { size_t length; int access; uint64_t comp_mask, iova; void *addr; int fd;
		 uint64_t offset; void *dmah; } init = {};
	char place[64];
	uint64_t speed = 0, count;
	void *buf, *counter, *memory = place;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr;

	ibv_free_device_list(list);
	CHECK(pd);
	CHECK(!ibv_reg_mr_ex(pd, NULL) && errno == EINVAL);
	CHECK(!ibv_reg_mr_ex(pd, &init) && errno == EINVAL);
	init.addr = memory;
	init.length = sizeof place;
	init.access = IBV_ACCESS_LOCAL_WRITE;
	init.comp_mask = 1 << 1 | 1 << 4;
	CHECK(!ibv_reg_mr_ex(pd, &init) && errno == EOPNOTSUPP);
	init.comp_mask = 1 << 1;
	mr = ibv_reg_mr_ex(pd, &init);
	CHECK(mr && mr->addr == memory && mr->length == sizeof place);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(ibv_query_port_speed(context, 7, &speed) == EINVAL && !speed);
	CHECK(!ibv_query_port_speed(context, 1, &speed) && speed);
	memory = ibv_alloc_buf(pd, 64, &buf);
	CHECK(memory);
	mr = ibv_reg_buf_mr(pd, buf, memory, 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->addr == memory && mr->length == 64);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(ibv_export_buf_dmabuf_fd(buf) == -1 && errno == ENODATA);
	ibv_free_buf(buf);
	counter = ibv_create_comp_cntr(context, (uint32_t[3]){});
	CHECK(counter && !ibv_inc_comp_cntr(counter, 3));
	CHECK(!ibv_read_comp_cntr(counter, &count) && count == 3);
	CHECK(!ibv_destroy_comp_cntr(counter));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}

static int kernel_structs(void)
{
	struct ib_uverbs_qp_attr from;
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT };
	struct ib_user_path_rec path, again = {};
	struct ibv_sa_path_rec record;

	memset(&from, 1, sizeof from);
	from.rq_psn = 77;
	from.max_inline_data = 78;
	from.alt_timeout = 79;
	from.ah_attr.dlid = 80;
	from.alt_ah_attr.grh.flow_label = 81;
	from.ah_attr.port_num = 82;
	ibv_copy_qp_attr_from_kern(&to, &from);
	CHECK(to.qp_state == IBV_QPS_INIT && to.rq_psn == 77 && to.cap.max_inline_data == 78);
	CHECK(to.alt_timeout == 79 && to.ah_attr.dlid == 80 && to.ah_attr.port_num == 82);
	CHECK(to.alt_ah_attr.grh.flow_label == 81 && to.ah_attr.grh.dgid.raw[15] == 1);

	for (size_t i = 0; i < sizeof path; i++)
		((unsigned char *)&path)[i] = i;
	path.mtu = 5;
	ibv_copy_path_rec_from_kern(&record, &path);
	CHECK(record.mtu == 5 && record.pkey == path.pkey && record.rate == path.rate);
	CHECK(record.preference == path.preference && record.dgid.raw[3] == 3);
	CHECK(record.flow_label == path.flow_label && record.sl == path.sl);
	ibv_copy_path_rec_to_kern(&again, &record);
	CHECK(!memcmp(&again, &path, sizeof path));

	ibv_copy_qp_attr_from_kern(NULL, &from);
	ibv_copy_path_rec_to_kern(&again, NULL);
	return 0;
}

int main(void)
{
	if (commands_are_refused() || newer_verbs() || kernel_structs())
		return 1;
	printf("ok\n");
	return 0;
}
