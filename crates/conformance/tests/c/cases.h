/* Programs of several cases: each run is told the name of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct named_case {
	const char *name;
	void (*run)(void);
};

#define CASE(name) { #name, name }
#define RUN_CASE(cases, argc, argv) run_case(cases, sizeof(cases) / sizeof(*cases), argc, argv)

/* Runs the case that the only argument names. */
static void run_case(const struct named_case *cases, size_t count, int argc, char **argv)
{
	size_t i;

	for (i = 0; argc == 2 && i < count; i++) {
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			return;
		}
	}
	fputs("which case?\n", stderr);
	exit(2);
}
