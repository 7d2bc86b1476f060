/* Functions with which a program tells `transom check` about its memory and its threads.
 *
 * Only a pool of buffers knows who uses a buffer now. So it says when a buffer is the program's again, as pools tell
 * AddressSanitizer. The functions behind these exist only under `transom check`. Elsewhere each call is a comparison
 * with zero. You link nothing. docs/check.md has an example.
 */
#ifndef TRANSOM_H
#define TRANSOM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_comp_channel;

void transom_claimed(const void *first, size_t length) __attribute__((weak));
void transom_released(const void *first, size_t length) __attribute__((weak));
void transom_waiting(struct ibv_comp_channel *channel) __attribute__((weak));
void transom_woken(void) __attribute__((weak));

/* These bytes are the program's own again. Until you release them, or deregister their memory, no device may touch them:
 * a request that names them, or a peer's write to them, is a mistake. Release bytes that no region has before you free
 * them. */
static inline void transom_claim(const void *first, size_t length)
{
	if (transom_claimed)
		transom_claimed(first, length);
}

/* A device may have these bytes. */
static inline void transom_release(const void *first, size_t length)
{
	if (transom_released)
		transom_released(first, length);
}

/* This thread now waits until a completion queue of the channel raises an event, and nothing else wakes it. It is a
 * mistake to wait while completions are in the queue and no event can come. */
static inline void transom_wait(struct ibv_comp_channel *channel)
{
	if (transom_waiting)
		transom_waiting(channel);
}

/* This thread no longer waits. */
static inline void transom_wake(void)
{
	if (transom_woken)
		transom_woken();
}

#ifdef __cplusplus
}
#endif

#endif
