/* How programs of several threads here wait until one of them sleeps. */
#include <sys/types.h>

#include "check.h"

/* Whether a thread sleeps. */
static int sleeps(pid_t thread)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && !fclose(file));
	return state == 'S';
}
