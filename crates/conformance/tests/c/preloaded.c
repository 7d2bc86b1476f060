/* With librspreload.so before it: a stream socket is an rsocket, by its descriptor an epoll instance's, and
   others are the system's. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int is(int kind, const char *wanted)
{
	char path[64], is[64] = "";
	int fd = socket(AF_INET, kind, 0);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fd < 0 || readlink(path, is, sizeof(is) - 1) < 0 || strncmp(is, wanted, strlen(wanted))) {
		printf("kind %d is %s, not %s\n", kind, is, wanted);
		return 0;
	}
	return close(fd) == 0;
}

int main(void)
{
	return is(SOCK_STREAM, "anon_inode:[eventpoll]") && is(SOCK_DGRAM, "socket:") ? 0 : 1;
}
