/* With librspreload.so before it: more descriptors than there is memory for, of which one stands for an rsocket,
   are refused, and so are more than there can be. */
#define _GNU_SOURCE
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

int main(void)
{
	const size_t size = 1 << 28, many = size / sizeof(struct pollfd);
	/* The compiler knows better. */
	volatile nfds_t all = -1;
	struct pollfd *polled = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	FILE *statm = fopen("/proc/self/statm", "r");
	struct rlimit limit;
	long pages;

	CHECK(polled != MAP_FAILED && fd >= 0);
	memset(polled, 0xff, size);
	polled[many - 1] = (struct pollfd){.fd = fd, .events = POLLOUT};
	CHECK(statm && fscanf(statm, "%ld", &pages) == 1 && !getrlimit(RLIMIT_AS, &limit));
	limit.rlim_cur = pages * sysconf(_SC_PAGESIZE) + (8 << 20);
	CHECK(!setrlimit(RLIMIT_AS, &limit));
	CHECK(poll(polled, many, 0) == -1 && errno == ENOMEM);
	CHECK(ppoll(polled, many, &(struct timespec){}, NULL) == -1 && errno == ENOMEM);
	CHECK(poll(polled, all, 0) == -1 && errno == EINVAL);
	return 0;
}
