/*
 * What a program allocates aligned to a page, by chance: threads allocate, free, register, protect and empty blocks
 * and fork, while other processes write to the blocks, read them and add to them, and are killed in the middle.
 * Every byte of every block is known, and looked at: before the block is freed, after a peer has been there, in forked
 * children, and at random. The first byte that is not as it should be ends the program, which says where it is and what
 * was done to its block.
 *
 * Arguments: the seed; how much each thread does; whether blocks are to be `shared` or `private`.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define THREADS 3
#define SLOTS 40
#define EXTENTS 12
#define NOTES 12
#define CHILDREN 2
#define PSN 1234
#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define MOST ((size_t)5 << 20)
#define PATIENCE 60
#define RIGHTS                                                                                     \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)

extern char **environ;

/* Bytes of a block that were written together: a tag tells what they are, 0 that they are zeros. A peer adds to a
   word, which is what it is. */
struct extent {
    uint32_t start, end;
    uint64_t tag;
    bool is_word;
    uint64_t word;
};

struct extents {
    int count;
    struct extent all[EXTENTS];
};

enum kind { NONE, ALIGNED, PLAIN };

/* A block, or a place for one. Who has locked it may do anything with it. */
struct slot {
    atomic_bool locked;
    enum kind kind;
    bool is_shared;
    /* The program has freed it, and regions still have it. */
    bool freed;
    char *base;
    size_t size;
    uint64_t number;
    uint32_t generation;
    struct extents content;
    struct ibv_mr *mrs[2];
    /* Pages that have other rights. */
    size_t from, to;
    int rights;
    char notes[NOTES][96];
    unsigned noted;
};

/* What is asked of a peer, and how it went. */
enum what { CONNECT, RESET, WRITE, READ, ADD, HAMMER };
struct request {
    uint32_t generation;
    enum what what;
    uint32_t qpn;
    union ibv_gid gid;
    uint64_t address;
    uint32_t key, start, length;
    uint64_t tag, seed;
    uint64_t word, more;
    uint32_t times;
    struct extents content;
};
struct reply {
    uint32_t generation;
    enum what what;
    int status;
    uint32_t qpn;
    union ibv_gid gid;
    uint64_t offset, expected, found;
};
struct order {
    int peer;
    uint32_t generation;
};

/* A thread, with the peer that it has to itself. */
struct worker {
    int number, channel;
    uint32_t generation;
    uint64_t random;
    struct ibv_qp *qp;
    /* What the peer is at, with the block that is locked for it; none if it is at nothing. */
    struct slot *asked;
    int mr;
    struct request request;
    pid_t children[CHILDREN];
    bool killed[CHILDREN];
    uint64_t tags;
};

static uint64_t seed;
static long operations;
static bool wants_shared;
static struct slot slots[SLOTS];
/* Odd while a slot is locked. A child sees these as they are, not as they were at the fork. */
static atomic_uint *changes;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static struct worker workers[THREADS];
/* To the process that starts and kills the peers; one thread at a time. */
static int nursery;
static pthread_mutex_t of_nursery = PTHREAD_MUTEX_INITIALIZER;
/* What blocks have, those that are freed and pinned too. */
static struct range {
    char *start, *end;
} ranges[SLOTS];
static pthread_mutex_t of_ranges = PTHREAD_MUTEX_INITIALIZER;
static struct range shared_memory[16];
static atomic_long shared_blocks, blocks, forks, kills, visits, refusals, freed_early;
static atomic_uint forks_begun, forks_over;
static atomic_ulong numbers;

/* ---- The thread that finds a mistake reports it, in one piece. ---- */

static char said[8192];
static size_t length_said;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(said + length_said, sizeof said - length_said, format, arguments);
    va_end(arguments);
    if (added > 0)
        length_said += added;
    if (length_said >= sizeof said)
        length_said = sizeof said - 1;
}

__attribute__((noreturn)) static void end_badly(void)
{
    if (write(STDERR_FILENO, said, length_said) < 0)
        _exit(2);
    _exit(1);
}

static void say_block(const struct slot *slot)
{
    say("block %" PRIu64 ", generation %" PRIu32 ", slot %d: %zu bytes at %p, %s%s%s\n", slot->number,
        slot->generation, (int)(slot - slots), slot->size, (void *)slot->base,
        slot->is_shared ? "shared" : "private", slot->freed ? ", freed" : "",
        slot->mrs[0] || slot->mrs[1] ? ", registered" : "");
    for (int at = 0; at < slot->content.count; at++) {
        const struct extent *extent = &slot->content.all[at];
        say("  %#x to %#x: %s %#" PRIx64 "\n", extent->start, extent->end,
            extent->is_word ? "a word" : "tag", extent->is_word ? extent->word : extent->tag);
    }
    unsigned first = slot->noted > NOTES ? slot->noted - NOTES : 0;
    for (unsigned at = first; at < slot->noted; at++)
        say("  %s\n", slot->notes[at % NOTES]);
}

__attribute__((noreturn, format(printf, 2, 3))) static void wrong(const struct slot *slot,
                                                                  const char *format, ...)
{
    static atomic_bool saying;
    if (atomic_exchange(&saying, true))
        pause();
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    say("shared_stress %" PRIu64 " %ld, process %d: %s\n", seed, operations, (int)getpid(), what);
    if (slot)
        say_block(slot);
    end_badly();
}

#define EXPECT(what, slot)                                                                         \
    do {                                                                                           \
        if (!(what))                                                                               \
            wrong(slot, "line %d: not so: %s (errno %d)", __LINE__, #what, errno);                 \
    } while (0)

__attribute__((format(printf, 2, 3))) static void note(struct slot *slot, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(slot->notes[slot->noted++ % NOTES], sizeof slot->notes[0], format, arguments);
    va_end(arguments);
}

/* ---- Chance. ---- */

static uint64_t mixed(uint64_t number)
{
    number += 0x9e3779b97f4a7c15;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}

static uint64_t any(uint64_t *random)
{
    *random += 0x9e3779b97f4a7c15;
    return mixed(*random);
}

static uint64_t below(uint64_t *random, uint64_t limit)
{
    return any(random) % limit;
}

static bool once_in(uint64_t *random, uint64_t times)
{
    return below(random, times) == 0;
}

/* ---- What bytes are. ---- */

static uint64_t word_of(uint64_t tag, uint64_t at)
{
    return tag ? mixed(tag ^ at * 0xd6e8feb86659fd93) : 0;
}

static unsigned char byte_of(const struct extent *extent, uint32_t offset)
{
    uint64_t word = extent->is_word ? extent->word : word_of(extent->tag, offset / 8);
    return word >> (offset % 8 * 8);
}

/* Bytes from `start` to `end` of a block, of which `to` is the one at `start`. */
static void fill(char *to, uint32_t start, uint32_t end, uint64_t tag)
{
    struct extent extent = { start, end, tag, false, 0 };
    uint32_t at = start;
    for (; at < end && at % 8; at++)
        to[at - start] = byte_of(&extent, at);
    for (; at + 8 <= end; at += 8) {
        uint64_t word = word_of(tag, at / 8);
        memcpy(to + (at - start), &word, 8);
    }
    for (; at < end; at++)
        to[at - start] = byte_of(&extent, at);
}

/* The first byte from `start` to `end` that is not as an extent has it; `end` if there is none. */
static uint32_t first_wrong(const char *from, uint32_t start, uint32_t end,
                            const struct extent *extent)
{
    uint32_t at = start;
    while (at < end) {
        if (at % 8 == 0 && at + 8 <= end) {
            uint64_t word, expected = extent->is_word ? extent->word : word_of(extent->tag, at / 8);
            memcpy(&word, from + (at - start), 8);
            if (word == expected) {
                at += 8;
                continue;
            }
        }
        if ((unsigned char)from[at - start] != byte_of(extent, at))
            return at;
        at++;
    }
    return end;
}

static const struct extent *extent_at(const struct extents *content, uint32_t offset)
{
    for (int at = 0; at < content->count; at++)
        if (content->all[at].start <= offset && offset < content->all[at].end)
            return &content->all[at];
    return NULL;
}

/* Notes that some bytes are others now. There is room for two more extents. */
static void set(struct extents *content, struct extent now)
{
    struct extents before = *content;
    content->count = 0;
    bool is_set = false;
    for (int at = 0; at < before.count; at++) {
        struct extent old = before.all[at];
        struct extent left = old, right = old;
        left.end = old.end < now.start ? old.end : now.start;
        right.start = old.start > now.end ? old.start : now.end;
        if (left.start < left.end)
            content->all[content->count++] = left;
        if (!is_set && now.start < old.end) {
            content->all[content->count++] = now;
            is_set = true;
        }
        if (right.start < right.end)
            content->all[content->count++] = right;
    }
}

static bool has_room(const struct slot *slot)
{
    return slot->content.count + 2 <= EXTENTS;
}

static void look(struct slot *slot, const char *when)
{
    for (int at = 0; at < slot->content.count; at++) {
        const struct extent *extent = &slot->content.all[at];
        uint32_t bad = first_wrong(slot->base + extent->start, extent->start, extent->end, extent);
        if (bad < extent->end)
            wrong(slot, "%s: byte %#x is %02x and should be %02x", when, bad,
                  (unsigned char)slot->base[bad], byte_of(extent, bad));
    }
}

/* ---- Connections. ---- */

static struct ibv_qp *new_qp(void)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS,
    };
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    return qp;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer, union ibv_gid there)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = peer,
        .rq_psn = PSN,
        .max_dest_rd_atomic = 8,
        .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = there, .hop_limit = 1 } },
    };
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .sq_psn = PSN, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7,
        .max_rd_atomic = 8,
    };
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    CHECK(pd && cq && !ibv_query_gid(context, 1, 0, &gid));
}

/* ---- Peers. ---- */

static struct ibv_qp *peer_qp;
static struct ibv_mr *peer_mr;
static char *peer_memory;

static int next_status(void)
{
    struct ibv_wc wc;
    int polled;
    while ((polled = ibv_poll_cq(cq, 1, &wc)) == 0)
        sched_yield();
    CHECK(polled == 1);
    return wc.status;
}

/* Posts requests for a range, in pieces, until all are complete: the first status that is no success. */
static int move(const struct request *asked, enum ibv_wr_opcode opcode, uint64_t *random)
{
    uint32_t done = 0, posted = 0, waiting = 0;
    int status = IBV_WC_SUCCESS;
    while (done < asked->length || waiting) {
        while (status == IBV_WC_SUCCESS && posted < asked->length && waiting < 8) {
            uint32_t left = asked->length - posted;
            uint32_t piece = once_in(random, 3) ? left : 1 + below(random, left);
            struct ibv_sge sge = { (uintptr_t)peer_memory + posted, piece, peer_mr->lkey };
            struct ibv_send_wr wr = {
                .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
                .wr.rdma = { asked->address + posted, asked->key },
            }, *bad;
            CHECK(!ibv_post_send(peer_qp, &wr, &bad));
            posted += piece;
            waiting++;
        }
        if (!waiting)
            break;
        int one = next_status();
        waiting--;
        if (status == IBV_WC_SUCCESS)
            status = one;
        if (!waiting && (status != IBV_WC_SUCCESS || posted == asked->length))
            done = asked->length;
    }
    return status;
}

/* Adds to a word, which is to be what it was told each time. */
static void add(const struct request *asked, struct reply *reply)
{
    uint64_t *olds = (uint64_t *)peer_memory;
    for (uint32_t at = 0; at < asked->times && reply->status == IBV_WC_SUCCESS; at++) {
        struct ibv_sge sge = { (uintptr_t)&olds[at % 8], 8, peer_mr->lkey };
        struct ibv_send_wr wr = {
            .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
            .sg_list = &sge, .num_sge = 1,
            .wr.atomic = { .remote_addr = asked->address, .compare_add = asked->more,
                           .rkey = asked->key },
        }, *bad;
        CHECK(!ibv_post_send(peer_qp, &wr, &bad));
        reply->status = next_status();
        reply->expected = asked->word + at * asked->more;
        reply->found = olds[at % 8];
        if (reply->status == IBV_WC_SUCCESS && reply->found != reply->expected) {
            reply->offset = asked->start;
            return;
        }
    }
    reply->expected = reply->found = 0;
}

static void compare(const struct request *asked, struct reply *reply)
{
    uint32_t end = asked->start + asked->length;
    for (int at = 0; at < asked->content.count; at++) {
        const struct extent *extent = &asked->content.all[at];
        uint32_t from = extent->start > asked->start ? extent->start : asked->start;
        uint32_t to = extent->end < end ? extent->end : end;
        if (from >= to)
            continue;
        const char *read = peer_memory + (from - asked->start);
        uint32_t bad = first_wrong(read, from, to, extent);
        if (bad < to) {
            reply->offset = bad;
            reply->expected = byte_of(extent, bad);
            reply->found = (unsigned char)peer_memory[bad - asked->start];
            return;
        }
    }
}

static void say_hello(int channel, uint32_t generation)
{
    if (peer_qp)
        CHECK(!ibv_destroy_qp(peer_qp));
    peer_qp = new_qp();
    struct reply hello = {
        .generation = generation, .what = CONNECT, .qpn = peer_qp->qp_num, .gid = gid,
    };
    CHECK(send(channel, &hello, sizeof hello, 0) == sizeof hello);
}

__attribute__((noreturn)) static void be_peer(int channel, uint32_t generation)
{
    struct request asked;
    uint64_t random = generation;

    open_device();
    CHECK(!posix_memalign((void **)&peer_memory, PAGE, MOST));
    peer_mr = ibv_reg_mr(pd, peer_memory, MOST, IBV_ACCESS_LOCAL_WRITE);
    CHECK(peer_mr);
    say_hello(channel, generation);
    while (recv(channel, &asked, sizeof asked, 0) == sizeof asked) {
        /* What was asked of one that has been killed. */
        if (asked.generation != generation)
            continue;
        struct reply reply = { .generation = generation, .what = asked.what };
        random ^= asked.seed;
        switch (asked.what) {
        case CONNECT:
            connect_qp(peer_qp, asked.qpn, asked.gid);
            continue;
        case RESET:
            say_hello(channel, generation);
            continue;
        case WRITE:
            fill(peer_memory, asked.start, asked.start + asked.length, asked.tag);
            reply.status = move(&asked, IBV_WR_RDMA_WRITE, &random);
            break;
        case READ:
            memset(peer_memory, 0x5a, asked.length);
            reply.status = move(&asked, IBV_WR_RDMA_READ, &random);
            if (reply.status == IBV_WC_SUCCESS)
                compare(&asked, &reply);
            break;
        case ADD:
            add(&asked, &reply);
            break;
        case HAMMER:
            fill(peer_memory, asked.start, asked.start + asked.length, asked.tag);
            do
                reply.status = move(&asked, IBV_WR_RDMA_WRITE, &random);
            while (reply.status == IBV_WC_SUCCESS);
            break;
        }
        CHECK(send(channel, &reply, sizeof reply, 0) == sizeof reply);
    }
    _exit(0);
}

/* Starts a peer in the place of another, which it kills, as often as it is told. It never has a device. */
__attribute__((noreturn)) static void be_nursery(int orders, int channels[THREADS])
{
    pid_t peers[THREADS] = { 0 };
    struct order order;

    CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
    while (recv(orders, &order, sizeof order, 0) == sizeof order) {
        pid_t *peer = &peers[order.peer];
        if (*peer) {
            int status;
            CHECK(!kill(*peer, SIGKILL) && waitpid(*peer, &status, 0) == *peer);
            /* If it has ended by itself, it has said why. */
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                _exit(1);
        }
        *peer = fork();
        CHECK(*peer >= 0);
        if (!*peer) {
            CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
            be_peer(channels[order.peer], order.generation);
        }
        CHECK(send(orders, &order, sizeof order, 0) == sizeof order);
    }
    for (int at = 0; at < THREADS; at++)
        if (peers[at])
            CHECK(!kill(peers[at], SIGKILL) && waitpid(peers[at], NULL, 0) == peers[at]);
    _exit(0);
}

/* ---- Slots. ---- */

static bool lock(struct slot *slot)
{
    if (atomic_exchange(&slot->locked, true))
        return false;
    atomic_fetch_add(&changes[slot - slots], 1);
    return true;
}

static void unlock(struct slot *slot)
{
    atomic_fetch_add(&changes[slot - slots], 1);
    atomic_store(&slot->locked, false);
}

static uint64_t new_tag(struct worker *worker)
{
    return seed << 40 ^ (uint64_t)(worker->number + 1) << 32 ^ ++worker->tags;
}

static void rewrite(struct worker *worker, struct slot *slot, uint32_t start, uint32_t end)
{
    if (!has_room(slot))
        start = 0, end = slot->size;
    struct extent now = { start, end, new_tag(worker), false, 0 };
    fill(slot->base + start, start, end, now.tag);
    set(&slot->content, now);
    note(slot, "%d writes %#x to %#x with tag %#" PRIx64, worker->number, start, end, now.tag);
}

static bool is_in(const char *address, const struct range *range)
{
    return range->start <= address && address < range->end;
}

static bool lies_in_shared_memory(const char *address)
{
    for (size_t at = 0; at < sizeof shared_memory / sizeof *shared_memory; at++)
        if (is_in(address, &shared_memory[at]))
            return true;
    return false;
}

static void enter_range(struct slot *slot, size_t length)
{
    pthread_mutex_lock(&of_ranges);
    for (int at = 0; at < SLOTS; at++) {
        struct range *range = &ranges[at];
        if (range->start < slot->base + length && slot->base < range->end)
            wrong(&slots[at], "%p+%#zx has been given out again for block %" PRIu64,
                  (void *)slot->base, length, slot->number);
    }
    ranges[slot - slots] = (struct range){ slot->base, slot->base + length };
    pthread_mutex_unlock(&of_ranges);
}

static void leave_range(struct slot *slot)
{
    pthread_mutex_lock(&of_ranges);
    ranges[slot - slots] = (struct range){ NULL, NULL };
    pthread_mutex_unlock(&of_ranges);
}

static size_t any_size(uint64_t *random)
{
    switch (below(random, 10)) {
    case 0 ... 2:
        return 1 + below(random, 4096);
    case 3 ... 6:
        return 1 + below(random, 64 << 10);
    case 7 ... 8:
        return 1 + below(random, 512 << 10);
    default:
        return 1 + below(random, MOST);
    }
}

static void *allocate(uint64_t *random, size_t size, const char **how)
{
    size_t align = 4096 << below(random, 9);
    void *block = NULL;
    switch (below(random, 5)) {
    case 0:
        *how = "posix_memalign";
        return posix_memalign(&block, align, size) ? NULL : block;
    case 1:
        *how = "aligned_alloc";
        block = aligned_alloc(align, size);
        break;
    case 2:
        *how = "memalign";
        block = memalign(align, size);
        break;
    case 3:
        *how = "valloc";
        align = PAGE;
        block = valloc(size);
        break;
    default:
        *how = "pvalloc";
        align = PAGE;
        block = pvalloc(size);
        break;
    }
    return (uintptr_t)block % align ? NULL : block;
}

/* A new block's bytes are any, but those of calloc. */
static void come_to_be(struct worker *worker, struct slot *slot, size_t size, const char *how)
{
    slot->size = size;
    slot->generation++;
    slot->freed = false;
    slot->from = slot->to = 0;
    slot->is_shared = lies_in_shared_memory(slot->base);
    size_t usable = malloc_usable_size(slot->base);
    note(slot, "%d: %s gives %zu bytes at %p as generation %" PRIu32, worker->number, how, size,
         (void *)slot->base, slot->generation);
    EXPECT(usable >= size, slot);
    EXPECT(slot->is_shared == (wants_shared && slot->kind == ALIGNED), slot);
    enter_range(slot, usable);
    blocks++;
    if (slot->is_shared)
        shared_blocks++;
}

static void take(struct worker *worker, struct slot *slot)
{
    uint64_t *random = &worker->random;
    size_t size = any_size(random);
    const char *how = "malloc";
    bool is_zero = false;

    slot->noted = 0;
    slot->number = ++numbers;
    if (once_in(random, 5)) {
        slot->kind = PLAIN;
        is_zero = once_in(random, 2);
        how = is_zero ? "calloc" : "malloc";
        slot->base = is_zero ? calloc(1, size) : malloc(size);
    } else {
        unsigned over = forks_over;
        slot->kind = ALIGNED;
        slot->base = allocate(random, size, &how);
        /* While another thread forks, nothing shared is given out. */
        if (wants_shared && forks_begun != over && !lies_in_shared_memory(slot->base))
            slot->kind = PLAIN;
    }
    slot->size = size;
    EXPECT(slot->base, slot);
    slot->content = (struct extents){ 1, { { 0, size, 0, false, 0 } } };
    come_to_be(worker, slot, size, how);
    if (is_zero)
        look(slot, "calloc");
    rewrite(worker, slot, 0, size);
}

static void give_rights_back(struct slot *slot)
{
    if (slot->from < slot->to)
        EXPECT(!mprotect(slot->base + slot->from, slot->to - slot->from, PROT_READ | PROT_WRITE), slot);
    slot->from = slot->to = 0;
}

static bool is_registered(const struct slot *slot)
{
    return slot->mrs[0] || slot->mrs[1];
}

static void dereg(struct worker *worker, struct slot *slot, int mr)
{
    if (!slot->mrs[mr])
        return;
    EXPECT(!ibv_dereg_mr(slot->mrs[mr]), slot);
    slot->mrs[mr] = NULL;
    note(slot, "%d deregisters %d", worker->number, mr);
}

static void forget(struct slot *slot)
{
    slot->kind = NONE;
    slot->freed = false;
}

/* Frees a block, and leaves it to its regions if it is shared and has some. */
static void release(struct worker *worker, struct slot *slot)
{
    give_rights_back(slot);
    look(slot, "before it is freed");
    if (is_registered(slot) && !slot->is_shared) {
        dereg(worker, slot, 0);
        dereg(worker, slot, 1);
    }
    if (is_registered(slot)) {
        note(slot, "%d frees it early", worker->number);
        slot->freed = true;
        freed_early++;
        free(slot->base);
        return;
    }
    leave_range(slot);
    free(slot->base);
    forget(slot);
}

/* The last region of a freed block ends. */
static void end_freed(struct worker *worker, struct slot *slot)
{
    int last = once_in(&worker->random, 2);
    look(slot, "freed, and registered");
    if (!slot->mrs[last])
        last = !last;
    dereg(worker, slot, !last);
    look(slot, "freed, and registered once");
    /* From here on, a thread that gets it may write to it. */
    leave_range(slot);
    dereg(worker, slot, last);
    forget(slot);
}

static void resize(struct worker *worker, struct slot *slot)
{
    uint64_t *random = &worker->random;
    size_t size = once_in(random, 2) ? any_size(random) : 1 + below(random, slot->size);
    struct extents before = slot->content;

    give_rights_back(slot);
    look(slot, "before realloc");
    if (is_registered(slot)) {
        dereg(worker, slot, 0);
        dereg(worker, slot, 1);
    }
    leave_range(slot);
    char *base = once_in(random, 2) ? realloc(slot->base, size) : reallocarray(slot->base, 1, size);
    EXPECT(base, slot);
    slot->base = base;
    if (slot->kind == ALIGNED && !lies_in_shared_memory(base))
        slot->kind = PLAIN;
    slot->content.count = 0;
    for (int at = 0; at < before.count; at++) {
        struct extent kept = before.all[at];
        if (kept.end > size)
            kept.end = size;
        if (kept.start < kept.end)
            slot->content.all[slot->content.count++] = kept;
    }
    size_t old = slot->size < size ? slot->size : size;
    come_to_be(worker, slot, size, "realloc");
    look(slot, "behind realloc");
    if (size > old) {
        struct extent *last = &slot->content.all[slot->content.count - 1];
        /* A word that was cut off is no word any more. */
        last->end = size;
        rewrite(worker, slot, last->start, size);
    }
}

/* Some whole pages of a block; false if it has none. */
static bool any_pages(uint64_t *random, const struct slot *slot, size_t *from, size_t *to)
{
    size_t pages = slot->size / PAGE;
    if (slot->kind != ALIGNED || (uintptr_t)slot->base % PAGE || !pages)
        return false;
    size_t first = below(random, pages);
    *from = first * PAGE;
    *to = *from + (1 + below(random, pages - first)) * PAGE;
    return true;
}

static void empty(struct worker *worker, struct slot *slot)
{
    size_t from, to;
    if (!has_room(slot) || !any_pages(&worker->random, slot, &from, &to))
        return;
    note(slot, "%d empties %#zx to %#zx", worker->number, from, to);
    EXPECT(!madvise(slot->base + from, to - from, MADV_DONTNEED), slot);
    set(&slot->content, (struct extent){ from, to, 0, false, 0 });
    give_rights_back(slot);
    look(slot, "emptied");
}

static void protect(struct worker *worker, struct slot *slot)
{
    size_t from, to;
    give_rights_back(slot);
    if (!any_pages(&worker->random, slot, &from, &to))
        return;
    slot->rights = once_in(&worker->random, 2) ? PROT_READ : PROT_NONE;
    EXPECT(!mprotect(slot->base + from, to - from, slot->rights), slot);
    slot->from = from;
    slot->to = to;
    note(slot, "%d lets %#zx to %#zx be %s", worker->number, from, to,
         slot->rights == PROT_READ ? "read" : "nothing");
}

static void fix(struct worker *worker, struct slot *slot)
{
    size_t from, to;
    give_rights_back(slot);
    if (!any_pages(&worker->random, slot, &from, &to))
        return;
    /* The limit may not allow it, and then some of it may be locked all the same. */
    int refused = mlock(slot->base + from, to - from);
    look(slot, refused ? "not locked" : "locked");
    EXPECT(!munlock(slot->base + from, to - from), slot);
    note(slot, "%d has had %#zx to %#zx locked", worker->number, from, to);
}

static void reg(struct worker *worker, struct slot *slot)
{
    int mr = slot->mrs[0] ? 1 : 0;
    if (slot->mrs[mr])
        return;
    uint64_t *random = &worker->random;
    size_t start = once_in(random, 2) ? 0 : below(random, slot->size);
    size_t length = once_in(random, 2) ? slot->size - start : 1 + below(random, slot->size - start);
    slot->mrs[mr] = ibv_reg_mr(pd, slot->base + start, length, RIGHTS);
    EXPECT(slot->mrs[mr], slot);
    note(slot, "%d registers %#zx+%#zx as %d", worker->number, start, length, mr);
}

/* ---- What peers do. ---- */

/* What the peer says next; false if it has not said anything and nobody waits. */
static bool hear(struct worker *worker, struct reply *reply, bool wait)
{
    for (;;) {
        ssize_t got = recv(worker->channel, reply, sizeof *reply, wait ? 0 : MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof *reply && !wait)
            return false;
        if (got != sizeof *reply)
            wrong(worker->asked, "peer %d says nothing", worker->number);
        if (reply->generation == worker->generation)
            return true;
    }
}

static void ask(struct worker *worker, struct request *request)
{
    request->generation = worker->generation;
    request->seed = any(&worker->random);
    CHECK(send(worker->channel, request, sizeof *request, 0) == sizeof *request);
}

static void meet(struct worker *worker)
{
    struct reply hello;
    struct request request = { .what = CONNECT };
    hear(worker, &hello, true);
    EXPECT(hello.what == CONNECT, worker->asked);
    worker->qp = new_qp();
    connect_qp(worker->qp, hello.qpn, hello.gid);
    request.qpn = worker->qp->qp_num;
    request.gid = gid;
    ask(worker, &request);
}

static void connect_again(struct worker *worker)
{
    struct request request = { .what = RESET };
    ask(worker, &request);
    CHECK(!ibv_destroy_qp(worker->qp));
    meet(worker);
}

/* Kills the peer, if there is one, whatever it is at, and has another one. */
static void replace_peer(struct worker *worker)
{
    struct order order = { worker->number, ++worker->generation };
    pthread_mutex_lock(&of_nursery);
    CHECK(send(nursery, &order, sizeof order, 0) == sizeof order);
    if (recv(nursery, &order, sizeof order, 0) != sizeof order)
        wrong(worker->asked, "a peer has ended by itself");
    pthread_mutex_unlock(&of_nursery);
    if (worker->qp) {
        CHECK(!ibv_destroy_qp(worker->qp));
        kills++;
    }
    meet(worker);
}

/* Of what a peer was writing when it was killed or refused, each byte is as before or as it was to be. */
static void look_at_half_written(struct worker *worker)
{
    struct slot *slot = worker->asked;
    const struct request *asked = &worker->request;
    uint32_t end = asked->start + asked->length;
    struct extent now = { asked->start, end, asked->tag, false, 0 };
    for (uint32_t at = asked->start; at < end; at++) {
        unsigned char found = slot->base[at];
        const struct extent *old = extent_at(&slot->content, at);
        if (found != byte_of(old, at) && found != byte_of(&now, at))
            wrong(slot, "half written: byte %#x is %02x and was %02x or should be %02x", at, found,
                  byte_of(old, at), byte_of(&now, at));
    }
    note(slot, "%d: the peer wrote part of %#x to %#x", worker->number, asked->start, end);
    if (slot->freed) {
        /* Nobody writes there but peers; so it is as one of them left it. */
        leave_range(slot);
        dereg(worker, slot, 0);
        dereg(worker, slot, 1);
        forget(slot);
    } else {
        rewrite(worker, slot, asked->start, end);
        look(slot, "half written, and written again");
    }
}

static void look_at_half_added(struct worker *worker)
{
    struct slot *slot = worker->asked;
    const struct request *asked = &worker->request;
    uint64_t word;
    memcpy(&word, slot->base + asked->start, 8);
    uint32_t times = 0;
    while (times < asked->times && asked->word + times * asked->more != word)
        times++;
    if (asked->word + times * asked->more != word)
        wrong(slot, "the word at %#x is %#" PRIx64 " and was %#" PRIx64 ", to which %#" PRIx64
              " was to be added", asked->start, word, asked->word, asked->more);
    set(&slot->content, (struct extent){ asked->start, asked->start + 8, 0, true, word });
    note(slot, "%d: the peer added %#x times at %#x", worker->number, times, asked->start);
    look(slot, "half added");
}

static void asked_no_more(struct worker *worker)
{
    struct slot *slot = worker->asked;
    worker->asked = NULL;
    if (slot)
        unlock(slot);
}

static void kill_peer(struct worker *worker)
{
    replace_peer(worker);
    if (!worker->asked)
        return;
    switch (worker->request.what) {
    case WRITE:
    case HAMMER:
        look_at_half_written(worker);
        break;
    case ADD:
        look_at_half_added(worker);
        break;
    default:
        look(worker->asked, "half read");
    }
    asked_no_more(worker);
}

/* Looks at what the peer has done; false if it is still at it. */
static bool finish(struct worker *worker, bool wait)
{
    struct slot *slot = worker->asked;
    const struct request *asked = &worker->request;
    uint32_t end = asked->start + asked->length;
    struct reply reply;

    if (asked->what == HAMMER) {
        /* From here on the peer can write no more. A block that is freed may be given out. */
        if (slot->freed && !slot->mrs[!worker->mr])
            leave_range(slot);
        dereg(worker, slot, worker->mr);
        bool is_gone = slot->freed && !is_registered(slot);
        if (!is_gone)
            look_at_half_written(worker);
        /* Until it has been refused nothing of it arrives. */
        time_t until = time(NULL) + PATIENCE;
        while (!hear(worker, &reply, time(NULL) > until))
            if (!is_gone && slot->kind != NONE)
                look(slot, "while the peer is refused");
        if (reply.what != HAMMER || reply.status != IBV_WC_REM_ACCESS_ERR)
            wrong(slot, "the peer writes to what is not registered: status %d", reply.status);
        if (is_gone)
            forget(slot);
        else if (slot->kind != NONE)
            look(slot, "refused to the peer");
        connect_again(worker);
        refusals++;
        asked_no_more(worker);
        return true;
    }
    if (!hear(worker, &reply, wait))
        return false;
    if (reply.what != asked->what || reply.status != IBV_WC_SUCCESS)
        wrong(slot, "the peer's operation %d on %#x+%#x by region %d has status %d", asked->what,
              asked->start, asked->length, worker->mr, reply.status);
    if (reply.expected != reply.found)
        wrong(slot, "the peer finds %#" PRIx64 " at %#" PRIx64 " where %#" PRIx64 " should be (operation %d)",
              reply.found, reply.offset, reply.expected, asked->what);
    if (asked->what == WRITE)
        set(&slot->content, (struct extent){ asked->start, end, asked->tag, false, 0 });
    if (asked->what == ADD) {
        uint64_t word = asked->word + asked->times * asked->more;
        set(&slot->content, (struct extent){ asked->start, end, 0, true, word });
    }
    look(slot, "behind a peer");
    visits++;
    asked_no_more(worker);
    return true;
}

/* Asks the peer to do something with a block, which stays locked; false if it cannot. */
static bool send_peer(struct worker *worker, struct slot *slot)
{
    uint64_t *random = &worker->random;
    int mr = once_in(random, 2);
    if (worker->asked || !has_room(slot))
        return false;
    if (!slot->mrs[mr])
        mr = !mr;
    if (!slot->mrs[mr])
        return false;
    if (!slot->freed)
        give_rights_back(slot);
    uint32_t first = (char *)slot->mrs[mr]->addr - slot->base, length = slot->mrs[mr]->length;
    uint32_t skip = once_in(random, 2) ? 0 : below(random, length);
    struct request *asked = &worker->request;
    *asked = (struct request){
        .what = (enum what[]){ WRITE, WRITE, READ, READ, ADD, HAMMER }[below(random, 6)],
        .start = first + skip,
        .length = once_in(random, 2) ? length - skip : 1 + below(random, length - skip),
        .key = slot->mrs[mr]->rkey,
        .tag = new_tag(worker),
        .content = slot->content,
    };
    if (asked->what == ADD) {
        uint32_t start = (asked->start + 7) & ~7u;
        if (start + 8 > first + length)
            return false;
        asked->start = start;
        asked->length = 8;
        memcpy(&asked->word, slot->base + start, 8);
        asked->more = any(random);
        asked->times = 1 + below(random, 40);
    }
    asked->address = (uintptr_t)slot->base + asked->start;
    note(slot, "%d asks its peer for %d at %#x+%#x by %d, tag %#" PRIx64, worker->number, asked->what,
         asked->start, asked->length, mr, asked->tag);
    worker->mr = mr;
    worker->asked = slot;
    ask(worker, asked);
    return true;
}

/* ---- Children. ---- */

static bool is_readable(const int ends[2], const char *at)
{
    char byte;
    return write(ends[1], at, 1) == 1 && read(ends[0], &byte, 1) == 1;
}

static bool is_writable(const int ends[2], char *at)
{
    char byte = 0;
    EXPECT(write(ends[1], &byte, 1) == 1, NULL);
    if (read(ends[0], at, 1) == 1)
        return true;
    EXPECT(errno == EFAULT && read(ends[0], &byte, 1) == 1, NULL);
    return false;
}

/* Looks at every block that nobody was at, writes over it, frees some, and has some more. */
__attribute__((noreturn)) static void be_child(struct worker *worker, const unsigned before[SLOTS],
                                               bool is_grandchild)
{
    uint64_t *random = &worker->random;
    bool is_quiet[SLOTS];
    char *more[8];
    int ends[2], count = 0;

    /* As they are now: whatever has been changed from before the fork until now is left alone. */
    for (int at = 0; at < SLOTS; at++)
        is_quiet[at] = before[at] % 2 == 0 && atomic_load(&changes[at]) == before[at];
    alarm(PATIENCE);
    EXPECT(!pipe(ends), NULL);
    for (int at = 0; at < SLOTS; at++) {
        struct slot *slot = &slots[at];
        is_quiet[at] = is_quiet[at] && slot->kind != NONE && !slot->freed;
        if (!is_quiet[at])
            continue;
        if (slot->from < slot->to) {
            for (size_t page = slot->from; page < slot->to; page += PAGE)
                if (is_readable(ends, slot->base + page) != (slot->rights == PROT_READ) ||
                    is_writable(ends, slot->base + page))
                    wrong(slot, "in a child: the rights at %#zx are others", page);
            give_rights_back(slot);
        }
        look(slot, is_grandchild ? "in a grandchild" : "in a child");
        rewrite(worker, slot, 0, slot->size);
    }
    for (int at = 0; at < SLOTS; at++) {
        struct slot *slot = &slots[at];
        if (!is_quiet[at] || !once_in(random, 3))
            continue;
        look(slot, "in a child, before it is freed there");
        size_t from, to;
        if (once_in(random, 3) && has_room(slot) && any_pages(random, slot, &from, &to)) {
            EXPECT(!madvise(slot->base + from, to - from, MADV_DONTNEED), slot);
            set(&slot->content, (struct extent){ from, to, 0, false, 0 });
            look(slot, "in a child, emptied there");
        }
        free(slot->base);
        is_quiet[at] = false;
    }
    for (; count < 8; count++) {
        const char *how;
        size_t size = any_size(random);
        more[count] = allocate(random, size, &how);
        EXPECT(more[count], NULL);
        memset(more[count], count, size);
    }
    for (int at = 0; at < SLOTS; at++)
        if (is_quiet[at])
            look(&slots[at], "in a child, written there");
    while (count-- > 0) {
        EXPECT(*more[count] == count, NULL);
        free(more[count]);
    }
    if (!is_grandchild && once_in(random, 3)) {
        unsigned now[SLOTS];
        for (int at = 0; at < SLOTS; at++) {
            /* Of this process nobody else has any. */
            now[at] = is_quiet[at] ? atomic_load(&changes[at]) : 1;
        }
        pid_t child = fork();
        EXPECT(child >= 0, NULL);
        if (!child)
            be_child(worker, now, true);
        int status;
        EXPECT(waitpid(child, &status, 0) == child, NULL);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, NULL);
        for (int at = 0; at < SLOTS; at++)
            if (is_quiet[at])
                look(&slots[at], "in a child that forked");
    }
    _exit(0);
}

static void join_child(struct worker *worker, int at)
{
    int status;
    pid_t child = worker->children[at];
    if (!child)
        return;
    worker->children[at] = 0;
    EXPECT(waitpid(child, &status, 0) == child, NULL);
    bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool has_ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!has_ended && !(is_killed && worker->killed[at]))
        wrong(NULL, "a child of thread %d ends with status %#x", worker->number, status);
}

static void have_child(struct worker *worker)
{
    int at = below(&worker->random, CHILDREN);
    unsigned before[SLOTS];

    join_child(worker, at);
    uint64_t random = any(&worker->random);
    for (int slot = 0; slot < SLOTS; slot++)
        before[slot] = atomic_load(&changes[slot]);
    forks_begun++;
    pid_t child = fork();
    EXPECT(child >= 0, NULL);
    if (!child) {
        worker->random = random;
        be_child(worker, before, false);
    }
    forks_over++;
    worker->children[at] = child;
    worker->killed[at] = once_in(&worker->random, 4);
    if (worker->killed[at])
        EXPECT(!kill(child, SIGKILL), NULL);
    forks++;
}

static pid_t start_by_vfork(void)
{
    pid_t child = vfork();
    if (!child) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return child;
}

/* Another program, with nothing copied for it. */
static void have_program(struct worker *worker)
{
    char *arguments[] = { "true", NULL };
    pid_t child;
    int status;

    if (once_in(&worker->random, 2))
        child = start_by_vfork();
    else
        EXPECT(!posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ), NULL);
    EXPECT(child > 0 && waitpid(child, &status, 0) == child, NULL);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, NULL);
}

/* ---- Threads. ---- */

static void do_something_with(struct worker *worker, struct slot *slot)
{
    uint64_t *random = &worker->random;

    if (slot->kind == NONE) {
        take(worker, slot);
    } else if (slot->freed) {
        if (once_in(random, 2) && send_peer(worker, slot))
            return;
        look(slot, "freed, and registered");
        if (once_in(random, 3))
            end_freed(worker, slot);
    } else {
        switch (below(random, 18)) {
        case 0 ... 1:
            release(worker, slot);
            break;
        case 2 ... 3:
            resize(worker, slot);
            break;
        case 4:
            empty(worker, slot);
            break;
        case 5:
            protect(worker, slot);
            break;
        case 6:
            fix(worker, slot);
            break;
        case 7 ... 9:
            give_rights_back(slot);
            reg(worker, slot);
            break;
        case 10:
            dereg(worker, slot, once_in(random, 2));
            break;
        case 11 ... 14:
            if (send_peer(worker, slot))
                return;
            break;
        case 15 ... 16: {
            uint32_t start = below(random, slot->size);
            give_rights_back(slot);
            rewrite(worker, slot, start, start + 1 + below(random, slot->size - start));
            break;
        }
        default:
            give_rights_back(slot);
            look(slot, "at random");
        }
    }
    unlock(slot);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t *random = &worker->random;

    replace_peer(worker);
    for (long at = 0; at < operations; at++) {
        if (once_in(random, 40))
            have_child(worker);
        else if (once_in(random, 100))
            have_program(worker);
        else if (once_in(random, 120))
            kill_peer(worker);
        struct slot *slot = &slots[below(random, SLOTS)];
        if (lock(slot))
            do_something_with(worker, slot);
        if (worker->asked && once_in(random, 3))
            finish(worker, once_in(random, 4));
    }
    if (worker->asked)
        finish(worker, true);
    for (int at = 0; at < CHILDREN; at++)
        join_child(worker, at);
    return NULL;
}

/* Where mappings of the file of shared memory lie. */
static void find_shared_memory(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    size_t count = 0;

    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        if (!strstr(line, "transom-shared"))
            continue;
        CHECK(sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2);
        CHECK(count < sizeof shared_memory / sizeof *shared_memory);
        shared_memory[count++] = (struct range){ (char *)start, (char *)end };
    }
    fclose(maps);
}

int main(int count, char **arguments)
{
    int orders[2], ours[THREADS], theirs[THREADS];
    pthread_t threads[THREADS];
    const struct timeval patience = { PATIENCE, 0 };

    CHECK(count == 4);
    seed = strtoull(arguments[1], NULL, 0);
    operations = strtol(arguments[2], NULL, 0);
    wants_shared = !strcmp(arguments[3], "shared");
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, orders));
    for (int at = 0; at < THREADS; at++) {
        int ends[2];
        CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
        ours[at] = ends[0];
        theirs[at] = ends[1];
        CHECK(!setsockopt(ours[at], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        /* So that a process that waits for this one sees its end. */
        close(orders[0]);
        for (int at = 0; at < THREADS; at++)
            close(ours[at]);
        be_nursery(orders[1], theirs);
    }
    close(orders[1]);
    nursery = orders[0];
    changes = mmap(NULL, sizeof *changes * SLOTS, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(changes != MAP_FAILED);
    open_device();
    find_shared_memory();
    for (int at = 0; at < THREADS; at++) {
        workers[at] = (struct worker){
            .number = at, .channel = ours[at], .random = mixed(seed * THREADS + at),
        };
        CHECK(!pthread_create(&threads[at], NULL, work, &workers[at]));
    }
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_join(threads[at], NULL));
    for (int at = 0; at < SLOTS; at++) {
        struct slot *slot = &slots[at];
        EXPECT(lock(slot), slot);
        if (slot->kind == NONE)
            continue;
        if (!slot->freed)
            release(&workers[0], slot);
        if (slot->freed)
            end_freed(&workers[0], slot);
    }
    EXPECT(wants_shared == (shared_blocks > 0), NULL);
    close(nursery);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int at = 0; at < THREADS; at++)
        CHECK(!ibv_destroy_qp(workers[at].qp));
    CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    printf("ok - seed %" PRIu64 ": %ld blocks, %ld shared, %ld freed early, %ld visits, %ld refusals, "
           "%ld kills, %ld forks\n", seed, blocks, shared_blocks, freed_early, visits, refusals, kills,
           forks);
    return 0;
}
