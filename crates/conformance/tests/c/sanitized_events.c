/* What ThreadSanitizer sees of threads that hand memory over by events of verbs: each case but those named right_* has
   one mistake in what the threads do. Compiled with it. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <string.h>

#include "sanitized.h"

static struct ibv_context *context;

static struct ibv_cq *gets_completion(void *channel)
{
    struct ibv_cq *queue;
    void *secret;

    CHECK(!ibv_get_cq_event(channel, &queue, &secret) && queue->cq_context == secret);
    CHECK(look(secret) == 1);
    change(secret);
    return queue;
}

static void *acknowledges_completion(void *channel)
{
    struct ibv_cq *queue = gets_completion(channel);

    say_so();
    ibv_ack_cq_events(queue, 1);
    return NULL;
}

static void *leaves_completion(void *channel)
{
    gets_completion(channel);
    say_so();
    return NULL;
}

static void *acknowledges_last_request(void *unused)
{
    struct ibv_async_event last;

    CHECK(!ibv_get_async_event(context, &last));
    CHECK(last.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
    CHECK(look(last.element.qp->qp_context) == 1);
    change(last.element.qp->qp_context);
    say_so();
    ibv_ack_async_event(&last);
    return unused;
}

/* A queue pair that fails has no further requests, and flushes what is posted. One of the objects has the secret, and
   its end waits for the thread. */
static void with_event_of_a_verb(void *(*with)(void *), int asynchronous, int too_early)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_comp_channel *channel;
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = {.max_send_wr = 1, .max_send_sge = 1},
    };
    struct ibv_srq_init_attr shared_queue = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_send_wr request = {.opcode = IBV_WR_SEND}, *bad;
    struct ibv_pd *pd;
    struct ibv_qp *qp;
    char *secret;
    pthread_t thread;

    CHECK(list && list[0] && (context = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    CHECK((pd = ibv_alloc_pd(context)) && (channel = ibv_create_comp_channel(context)));
    CHECK(!pthread_create(&thread, NULL, with, channel));
    secret = calloc(1, 8);
    change(secret);
    init.send_cq = init.recv_cq = ibv_create_cq(context, 4, secret, channel, 0);
    init.qp_context = secret;
    init.srq = ibv_create_srq(pd, &shared_queue);
    CHECK(init.send_cq && init.srq && (qp = ibv_create_qp(pd, &init)));
    if (!asynchronous)
        CHECK(!ibv_req_notify_cq(init.send_cq, 0));
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_ERR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    CHECK(!ibv_post_send(qp, &request, &bad));
    wait_until_said();
    if (too_early)
        ibv_ack_cq_events(init.send_cq, 1);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(init.send_cq));
    change(secret);
    CHECK(!pthread_join(thread, NULL));
    free(secret);
}

static void right_completion_event(void) { with_event_of_a_verb(acknowledges_completion, 0, 0); }
static void right_asynchronous_event(void) { with_event_of_a_verb(acknowledges_last_request, 1, 0); }
static void acknowledged_by_one_that_does_not_have_it(void) { with_event_of_a_verb(leaves_completion, 0, 1); }

static const struct named_case cases[] = {
    CASE(right_completion_event),
    CASE(right_asynchronous_event),
    CASE(acknowledged_by_one_that_does_not_have_it),
};

int main(int argc, char **argv)
{
    RUN_CASE(cases, argc, argv);
    puts("end");
    return 0;
}
