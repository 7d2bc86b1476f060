"""Writes over a device that C opens, from and to memory that is allocated by ctypes, while children that are forked
check and change their copies of it. Prints whether that memory was shared or private."""

import ctypes
import multiprocessing
import sys
from array import array

WORDS, BLOCKS, ROUNDS = 3 * 512 + 5, 16, 4
LENGTH = WORDS * 8

guest = ctypes.CDLL(sys.argv[1])
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
guest.guest_is_shared.argtypes = [ctypes.c_void_p]
guest.guest_write.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def content(tag):
    return array("Q", [(tag << 32 | at) * 0x9E3779B97F4A7C15 % 2**64 for at in range(WORDS)]).tobytes()


class Block:
    """Memory that is aligned to a page."""

    def __init__(self):
        place = ctypes.c_void_p()
        assert libc.posix_memalign(ctypes.byref(place), 4096, LENGTH) == 0
        self.place = place.value

    def fill(self, tag):
        ctypes.memmove(self.place, content(tag), LENGTH)

    def check(self, tag):
        assert ctypes.string_at(self.place, LENGTH) == content(tag), f"{tag} is not what was written"

    def is_shared(self):
        return bool(guest.guest_is_shared(self.place))

    def free(self):
        libc.free(self.place)


def child(blocks, tag, ready, go_on):
    for at, block in enumerate(blocks):
        block.check(tag + at)
        assert not block.is_shared()
        block.fill(tag + 1000 + at)
    ready.set()
    assert go_on.wait(60)
    for at, block in enumerate(blocks):
        block.check(tag + 1000 + at)
        block.free()
    more = [Block() for _ in blocks]
    for at, block in enumerate(more):
        block.fill(at)
    for at, block in enumerate(more):
        block.check(at)
        block.free()


def square(number):
    return number * number


def main():
    guest.guest_open()
    forking = multiprocessing.get_context("fork")
    blocks = [Block() for _ in range(BLOCKS)]
    shared = blocks[0].is_shared()
    for round in range(ROUNDS):
        tag = 10000 * round
        for at, block in enumerate(blocks):
            block.fill(tag + at)
        children = []
        for _ in range(3):
            ready, go_on = forking.Event(), forking.Event()
            process = forking.Process(target=child, args=(blocks, tag, ready, go_on))
            process.start()
            children.append((process, ready, go_on))
        for _, ready, _ in children:
            assert ready.wait(60)
        for at, block in enumerate(blocks):
            block.check(tag + at)
            block.fill(tag + 2000 + at)
        for at in range(0, BLOCKS, 2):
            guest.guest_write(blocks[at].place, blocks[at + 1].place, LENGTH)
        for process, _, go_on in children:
            go_on.set()
            process.join(60)
            assert process.exitcode == 0
        for at, block in enumerate(blocks):
            block.check(tag + 2000 + at // 2 * 2)
            assert block.is_shared() == shared
    with forking.Pool(4) as pool:
        assert pool.map(square, range(1000)) == [at * at for at in range(1000)]
    for block in blocks:
        block.free()
    print("shared" if shared else "private")


main()
