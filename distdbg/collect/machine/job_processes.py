"""Find the ranks of distributed jobs on this machine through /proc, by their environment.

A rank is the topmost process that carries its rank's variables and is no launcher: torchrun, srun and mpirun stand
above it, a shell that a launcher put between may, and its loader workers and other children stand below. All
processes are listed once, in about 50 us each. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distdbg.model import MOST_RANKS

#: The first that is set tells. Slurm's come last: all that mpirun starts in a batch script has the script's number.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "SLURM_NPROCS")
#: What the ranks of one job have in common, and those of another on the same machine have not.
_JOB = ("DISTDBG_RUN_DIR", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID",
        "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")  # fmt: skip
_LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun",
              "hydra_pmi_proxy", "orted", "prted", "slurmstepd", "distdbg"}  # fmt: skip
_OURS = tuple(
    f"/distdbg/launch/{name}.py" for name in ("agent/agent", "agent/container_torchrun", "backends/remote_agent")
)
_LAUNCHER_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "distdbg",
                     "deepspeed.launcher.launch"}  # fmt: skip
_PYTHON = re.compile(r"^(python|pypy)[\d.]*[a-z]*$")


@dataclass(frozen=True)
class RankProcess:
    """One rank's own process. `stem` begins its files in a distdbg agent's folder, None where no agent started it."""

    rank: int
    pid: int
    local_rank: int = 0
    stem: str | None = None


@dataclass(frozen=True)
class FoundJob:
    """One job's ranks on this machine, by rank. `world_size` is None where no variable tells it; `run_dir` names the
    run directory of a job that distdbg launched; `doubles` are pids that claim a rank which another one has;
    `slurm_job` is the number of the Slurm job that it runs in, `key` the same on all of its machines."""

    name: str
    argv: tuple[str, ...]
    cwd: str
    world_size: int | None
    ranks: tuple[RankProcess, ...]
    run_dir: str | None = None
    doubles: tuple[int, ...] = ()
    slurm_job: str | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    started: int
    rank: int | None
    environment: Mapping[str, str]
    argv: tuple[str, ...]

    @property
    def job(self) -> tuple[str, ...]:
        return (*(self.environment.get(name, "") for name in _JOB), str(self.world_size or ""))

    @property
    def world_size(self) -> int | None:
        return _number(self.environment, _WORLD_SIZE)

    @property
    def launcher(self) -> bool:
        return is_launcher(self.argv)


def find_jobs() -> list[FoundJob]:
    """Every job with ranks here that this user may look at, the one with most ranks first."""
    processes = {p.pid: p for p in _all_processes() if p.rank is not None}
    groups: dict[tuple[str, ...], list[_Process]] = {}
    for process in processes.values():
        if _is_rank(process, processes):
            groups.setdefault(_shared(process, processes), []).append(process)
    jobs = [_job(found) for found in groups.values()]
    return sorted(jobs, key=lambda job: (-len(job.ranks), job.ranks[0].pid))


def _shared(process: _Process, processes: Mapping[int, _Process]) -> tuple[str, ...]:
    """What tells its job from others. MPICH gives no name to one, and an allocation may hold several: then it is who
    started it, above a shell that bears the same rank."""
    if any(process.environment.get(name) for name in _JOB if not name.startswith("SLURM_")):
        return process.job
    while (above := processes.get(process.parent)) is not None and above.rank == process.rank:
        process = above
    return (*process.job, str(process.parent))


def job_of(pids: Iterable[int]) -> FoundJob:
    """These processes as one job, whatever their environment says; ranks that it does not tell are counted through.

    A launcher among them stands for the ranks below it.

    Raises ProcessLookupError or PermissionError for a process that is gone or may not be looked at.
    """
    found = [_read(pid) for pid in dict.fromkeys(pids)]
    found = [below for p in found for below in (_ranks_below(p.pid) if p.launcher else ()) or (p,)]
    known = {p.rank for p in found if p.rank is not None}
    if len(known) < len(found):  # not told, or told twice
        found = [_numbered(p, number) for number, p in enumerate(found)]
    return _job(found)


def _ranks_below(launcher: int) -> list[_Process]:
    """A launcher stands for the ranks that it started."""
    everybody = {p.pid: p for p in _all_processes()}
    ranks = []
    for process in everybody.values():
        above = everybody.get(process.parent)
        while above is not None and above.pid != launcher:
            above = everybody.get(above.parent)
        if above is not None and process.rank is not None and _is_rank(process, everybody):
            ranks.append(process)
    return ranks


def _is_rank(process: _Process, all_of_them: Mapping[int, _Process]) -> bool:
    """Python, no launcher, and nobody above it in the same rank is the one that runs torch."""
    if process.launcher or not _is_python(process.pid):
        return False
    if "RANK" not in process.environment and not _runs_torch(process.pid):
        return False  # whatever else runs in a scheduler's allocation bears a number too
    above = all_of_them.get(process.parent)
    same: list[_Process] = []
    while above is not None and above.rank == process.rank and above.job == process.job:
        if not above.launcher and _is_python(above.pid):
            same.append(above)
        above = all_of_them.get(above.parent)
    if not same:
        return _runs_torch(process.pid) or not _torch_below(process, all_of_them)
    return _runs_torch(process.pid) and not any(_runs_torch(p.pid) for p in same)


def _torch_below(process: _Process, all_of_them: Mapping[int, _Process]) -> bool:
    """A wrapper in Python that runs the script as its child is not the rank; the child is."""
    below = [p for p in all_of_them.values() if p.parent == process.pid and p.rank == process.rank]
    return any(p.job == process.job and not p.launcher and _runs_torch(p.pid) for p in below)


def _job(found: list[_Process]) -> FoundJob:
    by_rank: dict[int, _Process] = {}
    oldest_first = sorted(found, key=lambda p: (p.started, p.pid))
    doubles = [p.pid for p in oldest_first if by_rank.setdefault(p.rank or 0, p) is not p]
    ranks = tuple(_rank(rank, process) for rank, process in sorted(by_rank.items()))
    first = by_rank[ranks[0].rank]
    sizes = {p.world_size for p in by_rank.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    return FoundJob(
        name=script_of(first.argv),
        argv=first.argv,
        cwd=_cwd(first.pid),
        world_size=max(size, ranks[-1].rank + 1) if size is not None else None,
        ranks=ranks,
        run_dir=first.environment.get("DISTDBG_RUN_DIR"),
        doubles=tuple(doubles),
        slurm_job=first.environment.get("SLURM_JOB_ID"),
        key=_key(first.environment),
    )


def _key(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A step's number tells only where nothing else does: some start one step a node for one job of torch's."""
    names = ("DISTDBG_RUN_DIR", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    found = tuple(environment.get(name, "") for name in names)
    return found if any(found) else (environment.get("SLURM_STEP_ID", ""),)


def _rank(rank: int, process: _Process) -> RankProcess:
    folder = process.environment.get("DISTDBG_NODE_DIR")
    stem = f"{folder}/{rank:05d}" if folder else None
    return RankProcess(rank, process.pid, _number(process.environment, _LOCAL_RANK) or 0, stem)


def _numbered(process: _Process, number: int) -> _Process:
    return _Process(process.pid, process.parent, process.started, number, process.environment, process.argv)


def _runs(argv: tuple[str, ...]) -> tuple[str, bool]:
    """(the script or module that an interpreter runs, whether it is a module); of others the program itself."""
    if not argv or not _PYTHON.match(Path(argv[0]).name):
        return argv[0] if argv else "job", False
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "-m" and words:
            return words[0], True
        if word == "-c":
            break
        if word in ("-W", "-X"):
            words = words[1:]
        elif not word.startswith("-") and not word.endswith("/distdbg/worker/boot.py"):  # before every script of ours
            return word, False
    return argv[0], False


def script_of(argv: tuple[str, ...]) -> str:
    """`train` of `python -u train.py --lr 1`, `pkg.train` of `python -m pkg.train`."""
    name, module = _runs(argv)
    return name if module else Path(name).stem


def is_launcher(argv: tuple[str, ...]) -> bool:
    """True for what starts ranks and is none: by the program's name, or by the module or script that Python runs."""
    name, module = _runs(argv)
    if module:
        return name in _LAUNCHER_MODULES
    return Path(name).name in _LAUNCHERS or name.endswith(_OURS)


# -- /proc ------------------------------------------------------------------------------------------------------


def _all_processes() -> Iterable[_Process]:
    mine = os.getuid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mine in (0, entry.stat().st_uid):
                    yield _read(int(entry.name))


def _read(pid: int) -> _Process:
    folder = Path(f"/proc/{pid}")
    fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    raw = (folder / "environ").read_bytes()
    pairs = (os.fsdecode(item).partition("=") for item in raw.split(b"\0") if b"=" in item)
    environment = {name: value for name, _, value in pairs}
    argv = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    rank = _number(environment, _RANK)
    return _Process(pid, int(fields[1]), int(fields[19]), rank, environment, tuple(map(os.fsdecode, argv)))


def _number(environment: Mapping[str, str], names: Iterable[str]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= MOST_RANKS:
            return int(text)
    return None


def _is_python(pid: int) -> bool:
    """By the program's name: what embeds an interpreter under another name is told by torch in its memory."""
    with contextlib.suppress(OSError):
        return bool(_PYTHON.match(Path(f"/proc/{pid}/exe").readlink().name)) or _runs_torch(pid)
    return False


def _runs_torch(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"libtorch" in Path(f"/proc/{pid}/maps").read_bytes()
    return False


def _cwd(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/cwd").readlink())
    return ""
