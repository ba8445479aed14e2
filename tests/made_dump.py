"""Builds dumps in memory: where ranks stand and what their recorders know, without a job.

dump = made_dump({0: WAITS, 1: WAITS, 2: SLEEPS}, recorder={0: [9, "open"], …})
"""

from __future__ import annotations

from distdbg.evidence.dump import Dump, Look, RankDump
from distdbg.evidence.recorder.log import GroupLog, Signatures
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.evidence.stacks.call_tree import call_tree, natives_of
from distdbg.evidence.stacks.classes import all_paths, classes_of
from distdbg.evidence.stacks.threads import Frame, Thread
from distdbg.protocol.dump import PageReading, ProcessState

T = 1_790_000_000.0
SCRIPT = "/job/train.py"
TORCH = "/env/lib/python3.11/site-packages/torch"
SOURCES = {SCRIPT: "\n".join([f"line_{n}()" for n in range(1, 41)])}


def frame(function, file=SCRIPT, line=1):
    return Frame(function, file, line)


BOOT = (
    frame("_run_script", "/env/distdbg/worker/bootstrap.py", 65),
    frame("<module>", "/env/distdbg/worker/boot.py", 16),
)
#: innermost first, as py-spy has them
WAITS = (
    frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252),
    frame("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
    frame("<module>", line=26),
    *BOOT,
)
SLEEPS = (frame("fetch", line=16), frame("<module>", line=24), *BOOT)
LOADS = (
    frame("select", "/usr/lib/python3.11/selectors.py", 415),
    frame("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1291),
    frame("<module>", line=20),
    *BOOT,
)
LOADER = (
    frame("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 374),
    frame("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314),
    frame("__iter__", f"{TORCH}/utils/data/dataloader.py", 505),
    frame("<module>", line=20),
    *BOOT,
)
WORKS = (frame("Data.__getitem__", line=5), frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 35), *LOADER)
IDLES = (frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 113), *LOADER)


def thread(pid, frames, *, os_id=None, name="MainThread"):
    return Thread(pid, pid if os_id is None else os_id, name, active=False, holds_gil=False, frames=tuple(frames))


def rank_dump(rank, frames=None, *, threads=(), recorder=None, process=None, page=None, per_node=2, missing=None):
    """`frames` are the main thread's; `threads` come beside it."""
    pid = 1000 + rank
    own = (thread(pid, frames),) if frames is not None else ()
    look = Look(
        T,
        process=ProcessState(**({"state": "S", "syscall": "futex"} if process is None else process)),
        page=PageReading(**({"step": 4, "phase": "backward", "quiet_s": 12.0} if page is None else page)),
        threads=(*own, *threads),
        recorder=recorder,
        missing=missing or {},
    )
    return RankDump(rank, pid, rank // per_node, f"node{rank // per_node}", (look,))


def made_dump(ranks, *, missing=None, signatures=None):
    """`ranks` is {rank: frames} or {rank: RankDump}."""
    found = {rank: r if isinstance(r, RankDump) else rank_dump(rank, r) for rank, r in ranks.items()}
    return Dump(
        "attempts/1/dumps/x",
        T,
        "asked",
        world_size=len(found),
        ranks=found,
        missing=missing or {},
        sources=SOURCES,
        signatures=signatures or Signatures(),
    )


def recorder(signatures, *groups):
    """Each group is (name, [(operation, seconds before the dump, done)], first number), or with a description."""
    entries = []
    for name, operations, first, *described in groups:
        description = described[0] if described else "default_pg" if name == "0" else "undefined"
        for number, (operation, before, done) in enumerate(operations):
            entries.append({
                "process_group": [name, description], "is_p2p": False, "collective_seq_id": first + number,
                "profiling_name": f"gloo:{operation}", "input_sizes": [[64]], "input_dtypes": ["Float"],
                "state": "scheduled", "retired": done, "time_created_ns": int((T - before) * 1e9), "timeout_ms": 1000,
            })  # fmt: skip
    log = read_recorder({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}, signatures)
    for name, *_ in groups:  # a group without an operation is in no dump
        if (name, "gloo") not in log.groups:
            log.groups[name, "gloo"] = GroupLog(name, "default_pg" if name == "0" else "undefined", comm="gloo")
    return log


def tree_of(dump):
    """The call tree of a dump, with the script's lines and the C code that single ranks were seen in."""
    return call_tree(classes_of(all_paths(dump)), dump.line, natives_of(dump))
