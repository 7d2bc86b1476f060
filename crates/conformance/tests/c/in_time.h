/*
 * Programs that prepare something, before a fault of TRANSOM_FAULT happens at a time that they are told ("at="). If they
 * are too slow, as on a busy machine, they end with 3, and whoever runs them tries a later time.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* All that is to be there before it happens is there. */
static int there;

static struct timespec begun;

/* The time that the program is told, in seconds after it opens a device. */
static double told(void)
{
	const char *fault = getenv("TRANSOM_FAULT");
	const char *at = fault ? strstr(fault, "at=") : NULL;
	double time;
	char *unit;

	CHECK(at);
	time = strtod(at + 3, &unit);
	return time * (*unit == 'n' ? 1e-9 : *unit == 'u' ? 1e-6 : *unit == 'm' ? 1e-3 : 1);
}

static int is_past(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - begun.tv_sec + (now.tv_nsec - begun.tv_nsec) * 1e-9 >= told();
}

/* What goes wrong before that time has another reason, and is a failure. */
static void too_early(void)
{
	if (!there && is_past())
		_exit(3);
}

/* All is there before the time. Otherwise some of what is to be seen may have passed already, and would be waited for. */
static void all_is_there(void)
{
	too_early();
	there = 1;
}

/* The first call of such a program. */
static void be_in_time(void)
{
	clock_gettime(CLOCK_MONOTONIC, &begun);
	CHECK(!atexit(too_early));
}
