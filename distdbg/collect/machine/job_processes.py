"""Find the ranks of distributed jobs on this machine: through /proc, and where torch.multiprocessing has started a
process, through py-spy.

All processes are listed once, in about 50 us each, and some 2 ms each that runs torch. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from distdbg.collect.machine import procfs, pyspy
from distdbg.collect.machine.live_environment import live_environment
from distdbg.evidence.host.rank_processes import (
    RankProcess,
    SeenProcess,
    above_all,
    find_ranks,
    has_script,
    is_python,
    rank_of,
    script_of,
    start_index,
    to_be_asked,
    waits_for_its_ranks,
)
from distdbg.evidence.stacks.threads import Thread, read_threads
from distdbg.model import grouped

#: torch's names for the threads of its process groups
_OF_GROUPS = {"pt_gloo_runloop", "pt_nccl_watchdg"}
#: So many processes are asked for the number that torch.multiprocessing gave them.
_MOST_ASKED = 128
_ANSWERS_WITHIN_S = 5.0


class LauncherWithoutRanks(LookupError):
    """The process with this pid is a launcher, and no rank below it runs on this machine: not yet, or no longer."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid


@dataclass(frozen=True)
class FoundRank:
    """One rank's own process. `stem` begins its files in a distdbg agent's folder, None where no agent started it."""

    rank: int
    pid: int
    local_rank: int = 0
    stem: str | None = None


@dataclass(frozen=True)
class FoundJob:
    """One job's ranks on this machine, by rank. `world_size` is None where no variable gives it; `run_dir` names the
    run directory of a job that distdbg launched; `doubles` are pids that claim a rank which another one has;
    `slurm_job` is the number of the Slurm job that it runs in, `key` the same on all of its machines."""

    name: str
    argv: tuple[str, ...]
    cwd: str
    world_size: int | None
    ranks: tuple[FoundRank, ...]
    run_dir: str | None = None
    doubles: tuple[int, ...] = ()
    slurm_job: str | None = None
    key: tuple[str, ...] = ()


def find_jobs() -> list[FoundJob]:
    """Every job with ranks here that this user may look at, the one with most ranks first."""
    processes = _all_processes()
    groups = grouped((one.job, one) for one in find_ranks(processes))
    jobs = [_job(found, processes) for found in groups.values()]
    return sorted(jobs, key=lambda job: (-len(job.ranks), job.ranks[0].pid))


def job_of(pids: Iterable[int]) -> FoundJob:
    """These processes as one job, whatever their environment says; ranks that it does not name are numbered.

    A process that has ranks of one job below it, a launcher or a driver, is replaced by these. Raises
    LauncherWithoutRanks where there are none, ProcessLookupError or PermissionError for a process that is gone or may
    not be read.
    """
    named = {pid: _read(pid) for pid in dict.fromkeys(pids)}
    processes = _all_processes() | named
    ranks = find_ranks(processes)
    found = {one.process.pid: one for process in named.values() for one in _at(process, processes, ranks)}
    known = {one.rank for one in found.values()}
    numbered = list(found.values())
    if len(known) < len(found) or -1 in known:  # a rank is not known, or two processes have the same one
        numbered = [replace(one, rank=number) for number, one in enumerate(numbered)]
    return _job(numbered, processes)


def ranks_driven_by(pid: int) -> tuple[FoundRank, ...]:
    """The ranks that a process in a rank of ours has started, as a launcher or a driver does; with itself, where it is
    the first of them. None of others."""
    if not procfs.children(pid):
        return ()
    try:
        processes = _all_processes(top=pid)
        ranks = [one for one in find_ranks(processes) if one.process.torch]  # a launcher's services have RANK, too
        found = _ranks_at(processes[pid], processes, ranks)
    except (LookupError, OSError):
        return ()
    return _job(found, processes).ranks if any(one.process.pid != pid for one in found) else ()


def _ranks_at(
    process: SeenProcess, processes: Mapping[int, SeenProcess], ranks: Iterable[RankProcess]
) -> list[RankProcess]:
    """Those of one job: below a process, and it itself where it is one, as Lightning's first is."""
    own = next((one for one in ranks if one.process.pid == process.pid), None)
    below = [one for one in ranks if any(above.pid == process.pid for above in above_all(one.process, processes))]
    if own is not None:
        return [own, *(one for one in below if one.job == own.job)]
    most = max((one.job for one in below), key=[one.job for one in below].count, default=())
    return [one for one in below if one.job == most]


def _at(process: SeenProcess, processes: Mapping[int, SeenProcess], ranks: Iterable[RankProcess]) -> list[RankProcess]:
    """The ranks that a person means by a process."""
    if found := _ranks_at(process, processes, ranks):
        return found
    rank = rank_of(process, processes.get(process.parent))
    if process.launcher or (rank is None and process.python and waits_for_its_ranks(_threads(process), process.pid)):
        raise LauncherWithoutRanks(process.pid)
    return [RankProcess(process, -1 if rank is None else rank, process.job)]


def _job(found: list[RankProcess], processes: Mapping[int, SeenProcess]) -> FoundJob:
    by_rank: dict[int, SeenProcess] = {}
    oldest_first = sorted(found, key=lambda one: (one.process.started, one.process.pid))
    doubles = [one.process.pid for one in oldest_first if by_rank.setdefault(one.rank, one.process) is not one.process]
    ranks = tuple(
        FoundRank(
            rank,
            p.pid,
            p.local_rank or 0,
            f"{folder}/{rank:05d}" if (folder := p.environment.get("DISTDBG_NODE_DIR")) else None,
        )
        for rank, p in sorted(by_rank.items())
    )
    first = by_rank[ranks[0].rank]
    argv = next((p.argv for p in (first, *above_all(first, processes)) if has_script(p.argv)), first.argv)
    sizes = {p.world_size for p in by_rank.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    cwd = ""
    with contextlib.suppress(OSError):
        cwd = str(Path(f"/proc/{first.pid}/cwd").readlink())
    return FoundJob(
        name=script_of(argv),
        argv=argv,
        cwd=cwd,
        world_size=max(size, ranks[-1].rank + 1) if size is not None else None,
        ranks=ranks,
        run_dir=first.environment.get("DISTDBG_RUN_DIR"),
        doubles=tuple(doubles),
        slurm_job=first.environment.get("SLURM_JOB_ID"),
        key=_key(first.environment),
    )


def _key(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A step's number counts only where nothing else is known: a torch job may have one step on each node."""
    names = ("DISTDBG_RUN_DIR", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    found = tuple(environment.get(name, "") for name in names)
    return found if any(found) else (environment.get("SLURM_STEP_ID", ""),)


# -- /proc and py-spy -------------------------------------------------------------------------------------------


def _all_processes(top: int | None = None) -> dict[int, SeenProcess]:
    """Of this user; with `top`, that process and those below it alone."""
    mine = os.getuid()
    found: dict[int, SeenProcess] = {}
    names = [entry.name for entry in os.scandir("/proc") if entry.name.isdigit()] if top is None else _tree(top)
    for name in names:
        with contextlib.suppress(OSError):
            if mine in (0, Path(f"/proc/{name}").stat().st_uid):
                process = _read(int(name))
                found[process.pid] = process
    asked = to_be_asked(found)[:_MOST_ASKED]
    with ThreadPoolExecutor(4) as pool:
        indexes = pool.map(_index_of, asked)
        return found | {p.pid: replace(p, index=index) for p, index in zip(asked, indexes, strict=True)}


def _tree(top: int) -> list[str]:
    found = [top]
    for pid in found:
        found += procfs.children(pid)  # what is appended is looked at in its turn
    return list(map(str, found))


def _read(pid: int) -> SeenProcess:
    folder = Path(f"/proc/{pid}")
    environment = procfs.read_environment(pid)
    fields = procfs.stat_fields(pid)
    if not fields:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(folder / "stat"))
    argv = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    torch = _runs_torch(pid)
    return SeenProcess(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        argv=tuple(map(os.fsdecode, argv)),
        environment=(live_environment(pid) if torch else None) or environment,
        python=_is_python(pid),
        torch=torch,
        grouped=torch and not _OF_GROUPS.isdisjoint(procfs.thread_names(pid)),
    )


def _is_python(pid: int) -> bool:
    """Whether the process is Python, by its program's name; an interpreter embedded in another program is recognized by
    torch in its memory."""
    with contextlib.suppress(OSError):
        return is_python(str(Path(f"/proc/{pid}/exe").readlink()))
    return False


def _runs_torch(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"libtorch" in Path(f"/proc/{pid}/maps").read_bytes()
    return False


def _index_of(process: SeenProcess) -> int | None:
    if procfs.command_name(process.pid) == "pt_data_worker":
        return None
    return start_index(_threads(process), process.pid)


def _threads(process: SeenProcess) -> tuple[Thread, ...]:
    """With the variables of their frames; none where py-spy is not permitted."""
    with contextlib.suppress(pyspy.PySpyFailed):
        return read_threads(pyspy.stacks(process.pid, within_s=_ANSWERS_WITHIN_S, values=True))
    return ()
