/*
 * Two ranks of MPI exchange memory that is aligned to a page, allocated for each message and freed behind it, and look
 * at every word. In the end they have not much more memory than in the beginning, whatever kept regions of it. Rank 0
 * prints whether that memory was shared or private.
 */
#include <mpi.h>

#include "maps.h"

#define ROUNDS 400
#define KEPT (256ul << 20)

static uint64_t word(uint64_t tag, uint64_t at)
{
    return (tag * 0x9e3779b97f4a7c15 ^ at) * 0xff51afd7ed558ccd;
}

static uint64_t *allocated(size_t length)
{
    void *memory;
    CHECK(!posix_memalign(&memory, 4096, length));
    return memory;
}

/* Bytes of this process in memory. */
static size_t resident(void)
{
    char text[256] = "";
    size_t all, pages;
    int file = open("/proc/self/statm", O_RDONLY);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    CHECK(sscanf(text, "%zu %zu", &all, &pages) == 2);
    return pages * sysconf(_SC_PAGESIZE);
}

int main(int count, char **words)
{
    static const size_t lengths[] = { 8, 4096, 12328, 65536, 300000, 1 << 20 };
    int rank, shared = 0;
    size_t before = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
            size_t length = lengths[at] / 8;
            uint64_t *out = allocated(lengths[at]), *in = allocated(lengths[at]);
            for (size_t word_at = 0; word_at < length; word_at++)
                out[word_at] = word(round * 2 + rank, word_at);
            MPI_Sendrecv(out, length, MPI_UINT64_T, 1 - rank, round, in, length, MPI_UINT64_T,
                         1 - rank, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (size_t word_at = 0; word_at < length; word_at++)
                CHECK(in[word_at] == word(round * 2 + 1 - rank, word_at));
            shared = is_shared(out);
            free(out);
            free(in);
        }
        if (round == 10)
            before = resident();
    }
    CHECK(resident() < before + KEPT);
    MPI_Finalize();
    if (!rank)
        puts(shared ? "shared" : "private");
    return 0;
}
