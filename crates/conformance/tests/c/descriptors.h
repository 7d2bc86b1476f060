/*
 * How many descriptors a program has, to see that none is left over.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether it waits for the end of another process of this host, which goes on. Two may wait for one process: for the
   port, and for connections. */
static int waits_for_an_end(int fd, const char *what)
{
	static struct {
		int of;
		char what[256];
	} seen[1024];
	struct pollfd end = {.fd = fd, .events = POLLIN};
	int other, others = 0;

	seen[fd].of = 0;
	if (!strstr(what, "/life-") || poll(&end, 1, 0))
		return 0;
	for (other = 0; other < fd; other++)
		others += seen[other].of && !strcmp(seen[other].what, what);
	seen[fd].of = 1;
	strcpy(seen[fd].what, what);
	return others < 2;
}

/* How many are open, and what they are if that is to be told. Those that wait for the ends of other processes do not
   count as long as those go on. */
static int descriptors(int told)
{
	int count = 0, fd;

	for (fd = 0; fd < 1024; fd++) {
		char path[32], what[256];
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, what, sizeof(what) - 1);
		if (length < 0)
			continue;
		what[length] = 0;
		if (waits_for_an_end(fd, what))
			continue;
		if (told)
			fprintf(stderr, "%d: %s\n", fd, what);
		count++;
	}
	return count;
}
