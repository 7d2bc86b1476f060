"""Two agents of NIXL in two processes: one writes into the other's memory, reads it back, and sends
a notification with each; both compare every byte. UCX_TLS and UCX_NET_DEVICES say over what.

nixl_transfer.py     Runs both; prints how many bytes went each way
nixl_transfer.py FD  The one whose memory it is, which talks to the other by this socket
"""

import pickle
import socket
import subprocess
import sys
import time

import numpy
from nixl._api import nixl_agent, nixl_agent_config

SIZES = [1, 4096, 1 << 20, 5_000_003]
LIMIT = 60


def pattern(seed, size):
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8)


def changed(content):
    return content[::-1] ^ 0x5A


def agent(name):
    return nixl_agent(name, nixl_agent_config(backends=["UCX"]))


def buffer(here):
    memory = numpy.zeros(max(SIZES), dtype=numpy.uint8)
    region = (memory.ctypes.data, memory.nbytes, 0, "")
    return memory, here.register_memory([region], "DRAM")


def until(what, done):
    """Waits for an event, for the agents have no call that does."""
    end = time.monotonic() + LIMIT
    while not (answer := done()):
        if time.monotonic() > end:
            sys.exit(f"waited {LIMIT} s in vain until {what}")
        time.sleep(0)
    return answer


def notified(here, message):
    """Waits for a notification: the next is sent only then, for they have no order."""
    notes = until("a notification comes", lambda: here.get_new_notifs().get("initiator"))
    assert notes == [message], notes


def say(pipe, value):
    data = pickle.dumps(value)
    pipe.write(len(data).to_bytes(4, "big") + data)
    pipe.flush()


def hear(pipe):
    head = pipe.read(4)
    if len(head) < 4:
        sys.exit("the other process has ended")
    return pickle.loads(pipe.read(int.from_bytes(head, "big")))


def target(talk):
    here = agent("target")
    memory, registered = buffer(here)
    say(talk, (here.get_agent_metadata(), memory.ctypes.data))
    for size in SIZES:
        expected = pattern(size, size)
        notified(here, b"written")
        assert numpy.array_equal(memory[:size], expected), f"{size} bytes are not as written"
        memory[:size] = changed(expected)
        say(talk, "changed")
        notified(here, b"read")
        say(talk, "done")
    here.deregister_memory(registered)
    del here


def initiator():
    ours, theirs = socket.socketpair()
    child = [sys.executable, __file__, str(theirs.fileno())]
    with subprocess.Popen(child, pass_fds=[theirs.fileno()]) as other, ours.makefile("rwb") as talk:
        theirs.close()
        here = agent("initiator")
        memory, registered = buffer(here)
        metadata, address = hear(talk)
        name = here.add_remote_agent(metadata)

        def transfer(operation, size, message):
            local = here.get_xfer_descs([(memory.ctypes.data, size, 0)], "DRAM")
            remote = here.get_xfer_descs([(address, size, 0)], "DRAM")
            handle = here.initialize_xfer(operation, local, remote, name, message)
            state = here.transfer(handle)
            states = ("DONE", "ERR")
            state = state if state in states else until(
                operation, lambda: (s := here.check_xfer_state(handle)) in states and s
            )
            assert state == "DONE", f"{operation} of {size} bytes: {state}"
            here.release_xfer_handle(handle)

        for size in SIZES:
            expected = pattern(size, size)
            memory[:size] = expected
            transfer("WRITE", size, b"written")
            assert hear(talk) == "changed"
            memory[:size] = 0
            transfer("READ", size, b"")
            assert numpy.array_equal(memory[:size], changed(expected)), f"READ of {size} bytes"
            here.send_notif(name, b"read")
            assert hear(talk) == "done"
        here.remove_remote_agent(name)
        here.deregister_memory(registered)
        del here
        if other.wait(LIMIT) != 0:
            sys.exit(f"the target ended with {other.returncode}")
    print(sum(SIZES), "bytes written and read")


if sys.argv[1:]:
    with socket.socket(fileno=int(sys.argv[1])) as theirs, theirs.makefile("rwb") as talk:
        target(talk)
else:
    initiator()
