"""Evidence of hanging jobs, made in code: one call a rank says where it stands and what its recorder knows.

    hang = hang_of(evidence({0: waits(9), 1: waits(9), 2: sleeps(8)}))

Numbers are of all_reduces in the default group: `waits(9)` has finished 8 of them and waits in the ninth.
"""

from __future__ import annotations

import random
from dataclasses import replace

from distdbg.evidence.dump import GONE, Dump, Look, RankDump
from distdbg.evidence.recorder.calls import Call
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.stacks.threads import Frame, Thread
from distdbg.protocol.dump import PageReading, ProcessState
from tests.made_dump import BOOT, SCRIPT, TORCH, T, frame, recorder, thread

C10D = f"{TORCH}/distributed/distributed_c10d.py"
SIGNATURES = Signatures()
PAGE = {"heard": 7, "quiet_s": 12.0, "step": 4}


def user(line, function="<module>", file=SCRIPT):
    return frame(function, file, line)


def c10d(function, line=26, *outer):
    """The main thread within `function` of torch.distributed, called from `line` of the script."""
    return (
        frame(function, C10D, 100),
        frame("wrapper", f"{TORCH}/distributed/c10d_logger.py", 83),
        user(line),
        *outer,
        *BOOT,
    )


def made(
    frames=None, *, call="futex", state="S", threads=(), log=None, native=(), calls=(), cpu=(0.0, 0.0), missing=None,
    line=None, page=PAGE, children=None, pages=None, holders=((), ()), lock=None,
):  # fmt: skip
    """`rank -> RankDump` of two looks, a second apart. `native` are functions of C; `cpu` the seconds burnt by
    then, and `holders` the processes that hold the lock that it waits for; it polls for `lock`."""

    def build(rank):
        pid = 1000 + rank
        stack = frames(rank) if callable(frames) else frames
        own = () if stack is None else (thread(pid, stack),)
        looks = tuple(
            Look(
                T - 1 + number,
                process=ProcessState(state=state, cpu_s=cpu[number], syscall=call or "", holders=holders[number])
                if state
                else GONE,
                page=PageReading(**numbers) if (numbers := pages[number] if pages else page) else None,
                threads=(*own, *(t(pid) for t in threads)),
                recorder=log(rank) if callable(log) else log,
                children={child: ProcessState(**seen) for child, seen in (children or {}).items()},
                missing=missing or {},
                threads_path="stacks",
                lock=lock,
            )
            for number in (0, 1)
        )
        natives = (Thread(pid, pid, "MainThread", False, False, tuple(Frame(f, "libtorch.so", 0) for f in native)),)
        return RankDump(rank, pid, rank // 2, f"node{rank // 2}", looks, natives if native else (), tuple(calls))

    return build


def history(number, *, waiting, operation="all_reduce", group="0", first=1, ago=12.0):
    """`number` operations, the last of which is open where the rank waits."""
    done = [("all_reduce", ago + number - n, True) for n in range(number - waiting)]
    return (group, [*done, *([(operation, ago, False)] if waiting else [])], first)


def waits(number, *, operation="all_reduce", line=26, groups=(), **more):
    log = recorder(SIGNATURES, history(number, waiting=True, operation=operation), *groups)
    return made(c10d(operation, line), log=log, **more)


def stands_at(frames, number=8, *, groups=(), log=True, **more):
    """Anything that is no wait for ranks, with `number` operations behind it."""
    return made(frames, log=recorder(SIGNATURES, history(number, waiting=False), *groups) if log else None, **more)


def sleeps(number=8, *, line=16, **more):
    return stands_at((user(line, "fetch"), user(24), *BOOT), number, **{"call": "clock_nanosleep"} | more)


def blind(operation="all_reduce", **more):
    """It waits, and its recorder was not had."""
    return made(c10d(operation), log=None, **more)


def in_groups(make, groups):
    """The same rank; its threads show that it has `groups` process groups."""

    def build(rank):
        dump = make(rank)
        state = ProcessState(**dump.last.process.fields() | {"groups": groups})
        return replace(dump, looks=tuple(replace(look, process=state) for look in dump.looks))

    return build


def evidence(ranks, *, missing=None, sources=None, quiet_s=6.0, members=None, reason="hang", **records):
    """`members` is {rank: {group: ranks}}, `records` are fields of all RankRecords."""
    built = {rank: make(rank) for rank, make in ranks.items()}
    dump = Dump(
        "attempts/1/dumps/x", T, reason, quiet_s=quiet_s, world_size=len(built) + len(missing or {}), ranks=built,
        missing=missing or {}, sources=sources or {}, signatures=SIGNATURES,
    )  # fmt: skip
    everybody = sorted({*built, *(missing or {})})
    known = tuple(
        RankRecord(r, r % 2, r // 2, f"node{r // 2}", pid=1000 + r, initialised=True,
                   groups=(members or {}).get(r, {}), **records)
        for r in everybody
    )  # fmt: skip
    return RunEvidence(job={"topology": {"world_size": len(everybody)}}, attempt=1, ranks=known, nodes=(), dump=dump)


def send(peer, number=0, line=5, t=1, tag=None):
    return Call(t, "send", SCRIPT, line, "<module>", peer, number, tag=tag)


def recv(peer, number=0, line=6, t=1, tag=None):
    return Call(t, "recv", SCRIPT, line, "<module>", peer, number, tag=tag)


def rooted(operation, root, created_before_s=12.001, line=9):
    return Call(int((T - created_before_s) * 1e9), operation, SCRIPT, line, "<module>", root)


def roots(report):
    """[(id, ranks)] of the errors that nothing explains."""
    return [(f.id, f.ranks) for f in report.findings if f.explained_by is None and f.severity == "error"]


def shuffled(ranks, seed):
    """The same ranks, come in another order."""
    items = list(ranks.items())
    random.Random(seed).shuffle(items)
    return dict(items)
