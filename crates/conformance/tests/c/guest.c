/*
 * The device for languages that call C: Go, Python, and with JAVA defined Java. One connection, to itself, and
 * memory that is allocated aligned to a page. Only one thread may call it.
 */
#include <stdlib.h>
#include <time.h>

#include "maps.h"
#include "to_itself.h"

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

/* Opens the device. */
void guest_open(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    CHECK(pd);
    cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(cq);
    qp = to_itself(pd, cq);
}

void *guest_take(size_t length)
{
    void *memory = NULL;
    CHECK(!posix_memalign(&memory, 4096, length));
    return memory;
}

void guest_give(void *memory)
{
    free(memory);
}

int guest_is_shared(void *memory)
{
    return is_shared(memory);
}

/* Writes some memory to other memory by the device. */
void guest_write(void *from, void *to, size_t length)
{
    struct ibv_mr *source = ibv_reg_mr(pd, from, length, 0);
    struct ibv_mr *target =
        ibv_reg_mr(pd, to, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(source && target);
    struct ibv_sge sge = { (uintptr_t)from, length, source->lkey };
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { (uintptr_t)to, target->rkey },
    }, *bad = NULL;
    CHECK(!ibv_post_send(qp, &wr, &bad));
    struct ibv_wc wc = { 0 };
    time_t start = time(NULL);
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        CHECK(time(NULL) - start < 60);
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(!ibv_dereg_mr(source) && !ibv_dereg_mr(target));
}

#ifdef JAVA
#include <jni.h>

JNIEXPORT void JNICALL Java_Guest_open(JNIEnv *java, jclass class)
{
    (void)java, (void)class;
    guest_open();
}

JNIEXPORT jobject JNICALL Java_Guest_take(JNIEnv *java, jclass class, jlong length)
{
    (void)class;
    return (*java)->NewDirectByteBuffer(java, guest_take(length), length);
}

JNIEXPORT void JNICALL Java_Guest_give(JNIEnv *java, jclass class, jobject memory)
{
    (void)class;
    guest_give((*java)->GetDirectBufferAddress(java, memory));
}

JNIEXPORT jboolean JNICALL Java_Guest_isShared(JNIEnv *java, jclass class, jobject memory)
{
    (void)class;
    return guest_is_shared((*java)->GetDirectBufferAddress(java, memory));
}

JNIEXPORT void JNICALL Java_Guest_write(JNIEnv *java, jclass class, jobject from, jobject to, jlong length)
{
    (void)class;
    guest_write((*java)->GetDirectBufferAddress(java, from), (*java)->GetDirectBufferAddress(java, to), length);
}
#endif
