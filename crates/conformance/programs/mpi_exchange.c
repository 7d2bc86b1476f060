/*
 * Ranks of MPI that check what they get: messages of all sizes around a ring in both directions, sums over
 * all ranks, blocks from each to each, and what others put into memory of theirs. Rank 0 says so at the end.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (1 << 20)
#define ROUNDS 20

static unsigned char content(int from, int round, int index)
{
    return (unsigned char)(from * 31 + round * 7 + index * 13 + (index >> 8));
}

static void check(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "wrong: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned char *bytes, int from, int round, int size)
{
    for (int index = 0; index < size; index++)
        bytes[index] = content(from, round, index);
}

static int is_filled(const unsigned char *bytes, int from, int round, int size)
{
    for (int index = 0; index < size; index++)
        if (bytes[index] != content(from, round, index))
            return 0;
    return 1;
}

int main(int count, char **words)
{
    int rank, ranks;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    for (int round = 0; round < ROUNDS; round++) {
        for (int size = 1; size <= LARGEST; size *= 8) {
            fill(out, rank, round, size);
            MPI_Sendrecv(out, size, MPI_BYTE, next, round, in, size, MPI_BYTE, last, round,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(is_filled(in, last, round, size), "a message from the rank before");
            MPI_Sendrecv(out, size, MPI_BYTE, last, round, in, size, MPI_BYTE, next, round,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(is_filled(in, next, round, size), "a message from the rank behind");
        }
        long own = rank + round, sum = 0;
        MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        check(sum == (long)ranks * round + ranks * (ranks - 1) / 2, "a sum over all ranks");
        int block = LARGEST / 16 / ranks;
        for (int to = 0; to < ranks; to++)
            fill(out + to * block, rank, round + to, block);
        MPI_Alltoall(out, block, MPI_BYTE, in, block, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < ranks; from++)
            check(is_filled(in + from * block, from, round + rank, block), "a block of a rank");
    }
    unsigned char *memory;
    MPI_Win window;
    MPI_Win_allocate(LARGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    for (int round = 0; round < ROUNDS; round++) {
        fill(out, rank, round, LARGEST);
        MPI_Win_fence(0, window);
        MPI_Put(out, LARGEST, MPI_BYTE, next, 0, LARGEST, MPI_BYTE, window);
        MPI_Win_fence(0, window);
        check(is_filled(memory, last, round, LARGEST), "what the rank before has put");
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    if (rank == 0)
        printf("%d ranks agree\n", ranks);
    return 0;
}
