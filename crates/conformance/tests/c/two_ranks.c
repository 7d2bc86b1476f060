/* Two ranks of MPI exchange messages that are long enough for several rails, and check what comes. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { LENGTH = 4 << 20, ROUNDS = 10 };

int main(int argc, char **argv)
{
	char *out = malloc(LENGTH), *in = malloc(LENGTH);
	int rank, ranks, i, at;

	CHECK(out && in && !MPI_Init(&argc, &argv));
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(ranks == 2);
	for (i = 0; i < ROUNDS; i++) {
		memset(out, i + 100 * rank, LENGTH);
		MPI_Sendrecv(out, LENGTH, MPI_CHAR, !rank, i, in, LENGTH, MPI_CHAR, !rank, i,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (at = 0; at < LENGTH; at++)
			CHECK(in[at] == (char)(i + 100 * !rank));
	}
	if (!rank)
		printf("ok - %d messages of %d bytes each way\n", ROUNDS, LENGTH);
	MPI_Finalize();
	return 0;
}
