"""Start the ranks of a program as forks of one process that has imported torch: each rank saves that import.

    python gpu_box/tests/ranks_of_one.py N PROGRAM ARGUMENTS…
    python gpu_box/tests/ranks_of_one.py 2x4 PROGRAM ARGUMENTS…         two nodes of four ranks

As under torchrun: the same variables, a store outside of the ranks, and the first rank that fails ends the others. For
the tests of the box itself; those of distdbg have torchrun.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import signal
import sys
import time

import torch
import torch.distributed.fsdp  # what the programs would import one by one

#: Bytes of a port in the pipe.
PORT = 5
#: More ranks than these share the import of torch._dynamo, too, which fully_shard and most optimizers need: 0.6 s.
FEW = 4
#: How long the others have after SIGTERM.
GRACE_S = 30.0


def ended(pids: dict[int, int], flags: int = 0) -> int | None:
    """Exit code of a rank that has ended, as a shell has it."""
    pid, status = os.waitpid(-1, flags)
    if not pid:
        return None
    del pids[pid]
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main() -> int:
    nodes, each = map(int, (f"1x{sys.argv[1]}").split("x")[-2:])
    count, program = nodes * each, sys.argv[2]
    if count > FEW:
        importlib.import_module("torch._dynamo")
    # The store has a thread: it is made after the forks, which wait for its port.
    reading, writing = os.pipe()
    pids: dict[int, int] = {}
    gc.freeze()
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            port = os.read(reading, PORT)
            names = {"RANK": rank, "LOCAL_RANK": rank % each, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": each}
            names |= {"GROUP_RANK": rank // each}
            names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": int(port), "TORCHELASTIC_USE_AGENT_STORE": True}
            os.environ.update({name: str(value) for name, value in names.items()})
            sys.argv[:] = sys.argv[2:]
            runpy.run_path(program, run_name="__main__")
            return 0
        pids[pid] = rank
    os.close(reading)
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(writing, b"%5d" % store.port * count)
    os.close(writing)

    def end(number: int, frame: object) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    first = 0
    while pids and not first:
        first = ended(pids) or 0
    end(signal.SIGTERM, None)
    until = time.monotonic() + GRACE_S
    while pids:
        if ended(pids, os.WNOHANG) is None:
            time.sleep(0.02)
        if time.monotonic() > until:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    return first


if __name__ == "__main__":
    sys.exit(main())
