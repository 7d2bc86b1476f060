/*
 * Memory of another process by librpma: `rpma_flush server ADDRESS PORT` offers memory, `rpma_flush client ADDRESS PORT`
 * writes there, flushes, and reads it back. Both check every byte.
 */
#include <librpma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH (1 << 20)
#define PART (1 << 16)

static void check(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
	exit(1);
}

#define CHECK(call) check(call, #call)

static unsigned char byte_at(size_t at)
{
	return (unsigned char)(at * 131 + (at >> 8) + 7);
}

static struct rpma_peer *peer_of(const char *address, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *context;
	struct rpma_peer *peer;

	CHECK(rpma_utils_get_ibv_context(address, type, &context));
	CHECK(rpma_peer_new(context, &peer));
	return peer;
}

static void expect(struct rpma_conn *connection, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;

	CHECK(rpma_conn_next_event(connection, &event));
	if (event != wanted) {
		fprintf(stderr, "%s, not %s\n", rpma_utils_conn_event_2str(event),
			rpma_utils_conn_event_2str(wanted));
		exit(1);
	}
}

/* Waits for the completion of the request that has one. */
static void completed(struct rpma_conn *connection, enum ibv_wc_opcode opcode)
{
	struct rpma_cq *queue;
	struct ibv_wc wc;

	CHECK(rpma_conn_get_cq(connection, &queue));
	CHECK(rpma_cq_wait(queue));
	CHECK(rpma_cq_get_wc(queue, 1, &wc, NULL));
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode) {
		fprintf(stderr, "%s, opcode %d\n", ibv_wc_status_str(wc.status), wc.opcode);
		exit(1);
	}
}

static void *memory_of(size_t length)
{
	void *memory = aligned_alloc(4096, length);

	if (memory == NULL)
		exit(1);
	memset(memory, 0, length);
	return memory;
}

static void serve(const char *address, const char *port)
{
	struct rpma_peer *peer = peer_of(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	unsigned char *memory = memory_of(LENGTH), description[64];
	struct rpma_conn_private_data offer = { .ptr = description };
	struct rpma_mr_local *region;
	struct rpma_conn_req *request;
	struct rpma_conn *connection;
	struct rpma_ep *listener;
	size_t length;

	CHECK(rpma_mr_reg(peer, memory, LENGTH,
			  RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC |
				  RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
			  &region));
	CHECK(rpma_mr_get_descriptor_size(region, &length));
	CHECK(rpma_mr_get_descriptor(region, description));
	offer.len = (uint8_t)length;
	CHECK(rpma_ep_listen(peer, address, port, &listener));
	CHECK(rpma_ep_next_conn_req(listener, NULL, &request));
	CHECK(rpma_conn_req_connect(&request, &offer, &connection));
	expect(connection, RPMA_CONN_ESTABLISHED);
	expect(connection, RPMA_CONN_CLOSED);
	for (size_t at = 0; at < LENGTH; at++) {
		if (memory[at] != byte_at(at)) {
			fprintf(stderr, "byte %zu is %#x\n", at, memory[at]);
			exit(1);
		}
	}
	CHECK(rpma_conn_disconnect(connection));
	CHECK(rpma_conn_delete(&connection));
	CHECK(rpma_ep_shutdown(&listener));
	CHECK(rpma_mr_dereg(&region));
	CHECK(rpma_peer_delete(&peer));
	free(memory);
	printf("%d bytes were written\n", LENGTH);
}

static void visit(const char *address, const char *port)
{
	struct rpma_peer *peer = peer_of(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	unsigned char *written = memory_of(LENGTH), *read = memory_of(LENGTH);
	struct rpma_conn_private_data offer;
	struct rpma_mr_local *source, *sink;
	struct rpma_mr_remote *remote;
	struct rpma_conn_req *request;
	struct rpma_conn *connection;

	for (size_t at = 0; at < LENGTH; at++)
		written[at] = byte_at(at);
	CHECK(rpma_mr_reg(peer, written, LENGTH, RPMA_MR_USAGE_WRITE_SRC, &source));
	CHECK(rpma_mr_reg(peer, read, LENGTH, RPMA_MR_USAGE_READ_DST, &sink));
	CHECK(rpma_conn_req_new(peer, address, port, NULL, &request));
	CHECK(rpma_conn_req_connect(&request, NULL, &connection));
	expect(connection, RPMA_CONN_ESTABLISHED);
	CHECK(rpma_conn_get_private_data(connection, &offer));
	/* What a connection's message carries is longer than what was put there. */
	if (offer.ptr == NULL)
		exit(1);
	size_t length;
	CHECK(rpma_mr_get_descriptor_size(source, &length));
	CHECK(rpma_mr_remote_from_descriptor(offer.ptr, length, &remote));
	for (size_t at = 0; at < LENGTH; at += PART) {
		CHECK(rpma_write(connection, remote, at, source, at, PART,
				 RPMA_F_COMPLETION_ON_ERROR, NULL));
		CHECK(rpma_flush(connection, remote, at, PART, RPMA_FLUSH_TYPE_VISIBILITY,
				 RPMA_F_COMPLETION_ALWAYS, NULL));
		completed(connection, IBV_WC_RDMA_READ);
	}
	for (size_t at = 0; at < LENGTH; at += PART) {
		CHECK(rpma_read(connection, sink, at, remote, at, PART, RPMA_F_COMPLETION_ALWAYS,
				NULL));
		completed(connection, IBV_WC_RDMA_READ);
	}
	if (memcmp(written, read, LENGTH) != 0) {
		fprintf(stderr, "what is read is not what was written\n");
		exit(1);
	}
	CHECK(rpma_conn_disconnect(connection));
	expect(connection, RPMA_CONN_CLOSED);
	CHECK(rpma_conn_delete(&connection));
	CHECK(rpma_mr_remote_delete(&remote));
	CHECK(rpma_mr_dereg(&source));
	CHECK(rpma_mr_dereg(&sink));
	CHECK(rpma_peer_delete(&peer));
	free(written);
	free(read);
	printf("%d bytes were read back\n", LENGTH);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	if (strcmp(argv[1], "server") == 0)
		serve(argv[2], argv[3]);
	else
		visit(argv[2], argv[3]);
	return 0;
}
