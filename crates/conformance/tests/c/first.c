// first.c: one end opens its memory, and the other end writes a line into it.
//   ./first            opens it, waits for the line, and prints it
//   ./first ADDRESS    writes the line to the end that waits at this address
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 18515, GID_INDEX = 0, PATIENCE = 5 };

// What each end must know of the other one.
struct end {
    union ibv_gid gid; // the address of its port
    uint32_t qpn;      // the number of its queue pair
    uint32_t psn;      // the number of the first packet that it sends
    uint32_t key;      // the key to its memory
    uint64_t address;  // where that memory is
};

static void must(int works, const char *what)
{
    if (!works) {
        perror(what);
        exit(1);
    }
}

// A TCP connection to the other end. RDMA begins when both ends know each other.
static int meet(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int first = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (address) {
        must(inet_pton(AF_INET, address, &at.sin_addr) == 1, address);
        must(!connect(first, (struct sockaddr *)&at, sizeof at), "connect");
        return first;
    }
    setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    must(!bind(first, (struct sockaddr *)&at, sizeof at) && !listen(first, 1), "listen");
    int peer = accept(first, NULL, NULL);
    must(peer >= 0, "accept");
    close(first);
    return peer;
}

// Sends `mine`, and receives the same number of bytes. Ends with different processors need a common format.
static void exchange(int peer, const void *mine, void *theirs, size_t size)
{
    must(send(peer, mine, size, MSG_NOSIGNAL) == (ssize_t)size, "send");
    errno = ECONNRESET; // if the other end has closed the connection
    must(recv(peer, theirs, size, MSG_WAITALL) == (ssize_t)size, "recv");
}

// Waits for one completion, and looks at its status. It does not wait for ever.
static void complete(struct ibv_cq *cq, const char *what)
{
    struct ibv_wc done;
    time_t end = time(NULL) + PATIENCE;
    int found = 0;
    while (!found && time(NULL) <= end)
        found = ibv_poll_cq(cq, 1, &done);
    if (found == 1 && done.status == IBV_WC_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", what, found == 1 ? ibv_wc_status_str(done.status) : "no completion");
    exit(1);
}

int main(int argc, char **argv)
{
    const char *to = argc > 1 ? argv[1] : NULL;
    int peer = meet(to);

    // 1. The device, a protection domain, and a queue for completions.
    struct ibv_device **devices = ibv_get_device_list(NULL);
    must(devices && devices[0], "no device");
    struct ibv_context *context = ibv_open_device(devices[0]);
    must(!!context, "ibv_open_device");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    must(!!pd, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(context, 2, NULL, NULL, 0);
    must(!!cq, "ibv_create_cq");

    // 2. Memory. Only the end that waits lets its peer write.
    static char line[64];
    int rights = to ? 0 : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, line, sizeof line, rights);
    must(!!mr, "ibv_reg_mr");

    // 3. A queue pair: one queue for requests, one for receives.
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    must(!!qp, "ibv_create_qp");

    // 4. RESET to INIT: the port, and what a peer may do.
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = to ? 0 : IBV_ACCESS_REMOTE_WRITE,
    };
    errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    must(!errno, "to INIT");

    // 5. A receive, before the peer can send. A WRITE with immediate data takes one, and leaves no data in it.
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    if (!to) {
        must(!(errno = ibv_post_recv(qp, &receive, &bad_receive)), "ibv_post_recv");
    }

    // 6. Each end tells the other one what it must know.
    struct end theirs, mine = {
        .qpn = qp->qp_num,
        .psn = getpid() & 0xffffff,
        .key = mr->rkey,
        .address = (uintptr_t)line,
    };
    must(!(errno = ibv_query_gid(context, 1, GID_INDEX, &mine.gid)), "ibv_query_gid");
    exchange(peer, &mine, &theirs, sizeof mine);

    // 7. INIT to RTR, ready to receive: who the peer is, and the way to it.
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = theirs.qpn,
        .rq_psn = theirs.psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr.is_global = 1,
        .ah_attr.port_num = 1,
        .ah_attr.grh.dgid = theirs.gid,
        .ah_attr.grh.sgid_index = GID_INDEX,
        .ah_attr.grh.hop_limit = 64,
    };
    errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    must(!errno, "to RTR");

    // 8. RTR to RTS, ready to send: the first packet, and how long to try.
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .sq_psn = mine.psn,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 6,
        .max_rd_atomic = 1,
    };
    errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    must(!errno, "to RTS");

    // 9. Nobody sends before both ends are ready.
    char ready = 1;
    exchange(peer, &ready, &ready, 1);

    if (to) {
        // 10. The WRITE, from our memory to the peer's. The immediate data tells the peer that all of it is there.
        strcpy(line, "over the transom");
        struct ibv_sge from = {
            .addr = (uintptr_t)line,
            .length = sizeof line,
            .lkey = mr->lkey,
        };
        struct ibv_send_wr write = {
            .wr_id = 2,
            .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
            .send_flags = IBV_SEND_SIGNALED,
            .sg_list = &from,
            .num_sge = 1,
            .wr.rdma.remote_addr = theirs.address,
            .wr.rdma.rkey = theirs.key,
        }, *bad;
        must(!(errno = ibv_post_send(qp, &write, &bad)), "ibv_post_send");
        complete(cq, "the WRITE");
    } else {
        complete(cq, "the receive");
        puts(line);
    }

    // 11. The end, in reverse order.
    ibv_destroy_qp(qp);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(devices);
    close(peer);
    return 0;
}
