"""Decide which processes of a machine are ranks of distributed jobs, and which number each of them has.

A rank is the topmost process of its number that runs Python and starts no ranks: launchers and drivers are above it,
a launcher's shell too, and its loader workers and other children are below. `_RANK_SOURCES` is the only table of where
a number comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath

from distdbg.evidence.frames import Activity, Origin, rank_variable_of
from distdbg.evidence.stacks.threads import Thread, judged_thread, main_thread
from distdbg.model import MOST_RANKS
from distdbg.protocol.names import LOCAL_RANK, RANK, WORLD_SIZE

#: What the ranks of one job have in common, and those of another on the same machine have not.
_JOB = ("DISTDBG_RUN_DIR", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID",
        "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")  # fmt: skip
#: They give their ranks numbers by variables of their own, and let RANK through.
_WITHOUT_RANK = {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun"}
_LAUNCHERS = _WITHOUT_RANK | {"torchrun", "accelerate", "accelerate-launch", "deepspeed", "ray", "hydra_pmi_proxy",
                              "orted", "prted", "slurmstepd", "distdbg"}  # fmt: skip
_OURS = tuple(
    f"/distdbg/{name}.py"
    for name in ("__main__", "launch/agent/agent", "launch/agent/torchrun", "launch/backends/remote_agent")
)
_LAUNCHER_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "distdbg",
                     "accelerate.commands.accelerate_cli", "deepspeed.launcher.launch",
                     "deepspeed.launcher.runner"}  # fmt: skip
_PYTHON = re.compile(r"^(python|pypy)[\d.]*[a-z]*$")
#: What multiprocessing gives its children, and its fork server's, in place of a script.
_OF_MULTIPROCESSING = re.compile(r"^from multiprocessing\.(?:spawn|forkserver|resource_tracker) import")
#: Arguments with that name of the function that a `Process` of multiprocessing runs.
_ARGUMENTS = ("rank", "local_rank")


@dataclass(frozen=True)
class SeenProcess:
    """One process. `environment` is as the process has it now, which may differ from that of its start.

    `torch`: torch's libraries are in its memory. `grouped`: a process group has begun its threads. `index` is the
    number that `start_index` found in its stack.
    """

    pid: int
    parent: int
    started: int
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    python: bool = False
    torch: bool = False
    grouped: bool = False
    index: int | None = None

    @property
    def launcher(self) -> bool:
        return is_launcher(self.argv)

    @property
    def world_size(self) -> int | None:
        return number_in(self.environment, WORLD_SIZE)

    @property
    def local_rank(self) -> int | None:
        found = number_in(self.environment, LOCAL_RANK)
        return self.index if found is None else found

    @property
    def job(self) -> tuple[str, ...]:
        return (*(self.environment.get(name, "") for name in _JOB), str(self.world_size or ""))


@dataclass(frozen=True)
class RankProcess:
    """A rank: its process, its number, and what distinguishes its job from others."""

    process: SeenProcess
    rank: int
    job: tuple[str, ...]


# -- where a number comes from -------------------------------------------------------------------------------------


def _own_variable(process: SeenProcess, parent: SeenProcess | None) -> int | None:
    """What a child of torch.multiprocessing has from its parent is the number of its parent, or of its node."""
    own = number_in(process.environment, RANK)
    inherited = process.index is not None and parent is not None and own == number_in(parent.environment, RANK)
    return None if inherited else own


def _index(process: SeenProcess, _: SeenProcess | None) -> int | None:
    return process.index


def _on_its_node(process: SeenProcess, _: SeenProcess | None) -> int | None:
    """Lightning's own launcher gives a local number, and its node's."""
    local, node = (number_in(process.environment, (name,)) for name in ("LOCAL_RANK", "NODE_RANK"))
    size = number_in(process.environment, ("LOCAL_WORLD_SIZE",))
    if local is None or not {"MASTER_PORT", "WORLD_SIZE"} & process.environment.keys() or (node and size is None):
        return None
    return local + (node or 0) * (size or 0)


def _argument(process: SeenProcess, _: SeenProcess | None) -> int | None:
    """`--local_rank=1`, as torch.distributed.launch gave it."""
    words = (word.partition("=") for word in process.argv)
    found = {name.lstrip("-").replace("-", "_"): value for name, _, value in words}
    return number_in(found, ("local_rank",))


#: Where the number of a rank comes from. The first that tells counts.
_RANK_SOURCES = (_own_variable, _index, _on_its_node, _argument)


def rank_of(process: SeenProcess, parent: SeenProcess | None = None) -> int | None:
    """The number of a process, whether it is a rank or not; None where nothing tells."""
    told = (source(process, parent) for source in _RANK_SOURCES)
    return next((number for number in told if number is not None), None)


def to_be_asked(processes: Mapping[int, SeenProcess]) -> list[SeenProcess]:
    """The children of multiprocessing whose stacks have to say their number: nothing else does, or they have that of a
    parent which is in no process group; with their siblings, whose job is the same."""
    started = [p for p in processes.values() if _of_multiprocessing(p, processes.get(p.parent))]
    unknown = {p.parent for p in started if rank_of(p) is None or _has_its_parents(p, processes[p.parent])}
    return [p for p in started if p.parent in unknown]


def _has_its_parents(process: SeenProcess, parent: SeenProcess) -> bool:
    return process.grouped and not parent.grouped and rank_of(process) == rank_of(parent)


def _of_multiprocessing(process: SeenProcess, parent: SeenProcess | None) -> bool:
    if not (process.python and process.torch) or parent is None or not parent.python or process.launcher:
        return False
    if any(map(_OF_MULTIPROCESSING.match, process.argv)):
        return True
    return process.argv == parent.argv  # a fork


def start_index(threads: Iterable[Thread], pid: int) -> int | None:
    """The number that a parent gave to a rank which it started by torch.multiprocessing, as the stack's variables have
    it: the index of `spawn`, or the argument `rank` of the function that a `Process` runs.

    A forked child has its parent's frames below its own: those are not read.
    """
    main = main_thread(threads, pid)
    frames = main.frames if main is not None else ()
    born = next((i for i, frame in enumerate(frames) if frame.activity is Activity.CHILD_START), 0)
    for frame in frames[:born]:
        if (variable := rank_variable_of(frame.file, frame.function)) is not None:
            return number_in(frame.variables, (variable,))
    return number_in(frames[born - 1].variables, _ARGUMENTS) if born else None


def waits_for_its_ranks(threads: Iterable[Thread], pid: int) -> bool:
    """A launcher's function is what a process is in: `spawn` that joins its children, a driver of Ray that waits."""
    judged = judged_thread(threads, pid)
    inner = (f.origin for f in (judged.frames if judged is not None else ()))
    return next((o for o in inner if o not in (Origin.STANDARD, Origin.NATIVE)), None) is Origin.LAUNCHER


# -- which processes are ranks -------------------------------------------------------------------------------------


def find_ranks(processes: Mapping[int, SeenProcess]) -> list[RankProcess]:
    """All ranks among processes, which are by pid.

    A process without a process group that has the ranks of another job below it drives that job, and is none itself.
    """
    table = _Table(processes)
    found = [
        RankProcess(process, rank, table.job_of(process))
        for process in processes.values()
        if (rank := table.ranks.get(process.pid)) is not None and table.is_rank(process)
    ]
    below: dict[int, set[tuple[str, ...]]] = {}
    for one in found:
        for above in above_all(one.process, processes):
            below.setdefault(above.pid, set()).add(one.job)
    return [one for one in found if one.process.grouped or one.job in below.get(one.process.pid, {one.job})]


def above_all(process: SeenProcess, processes: Mapping[int, SeenProcess]) -> Iterator[SeenProcess]:
    """Its parent, that one's parent, and so on."""
    above = processes.get(process.parent)
    while above is not None:
        yield above
        above = processes.get(above.parent)


class _Table:
    def __init__(self, processes: Mapping[int, SeenProcess]) -> None:
        self.processes = processes
        ranks = {p.pid: rank_of(p, processes.get(p.parent)) for p in processes.values()}
        self.ranks = {pid: rank for pid, rank in ranks.items() if rank is not None}

    def is_rank(self, process: SeenProcess) -> bool:
        """The process that runs torch: Python, no launcher, and without a parent in the same rank."""
        if process.launcher or not (process.python or process.torch):
            return False
        if "RANK" not in process.environment and not process.torch:
            return False  # whatever else runs in a scheduler's allocation bears a number too
        same = [above for above in self._same_rank(process) if not above.launcher and (above.python or above.torch)]
        if not same:
            return process.torch or not self._torch_below(process)
        return process.torch and not any(above.torch for above in same)

    def _same_rank(self, process: SeenProcess) -> list[SeenProcess]:
        """Those above it with its number and job."""
        rank, job = self.ranks[process.pid], self.job_of(process)
        above = above_all(process, self.processes)
        return list(takewhile(lambda p: self.ranks.get(p.pid) == rank and self.job_of(p) == job, above))

    def _torch_below(self, process: SeenProcess) -> bool:
        """A wrapper in Python that runs the script as its child is not the rank; the child is."""
        rank = self.ranks[process.pid]
        below = [p for p in self.processes.values() if p.parent == process.pid and self.ranks.get(p.pid) == rank]
        return any(p.job == process.job and not p.launcher and p.torch for p in below)

    def job_of(self, process: SeenProcess) -> tuple[str, ...]:
        """What distinguishes the process's job from others. MPICH does not name jobs, an allocation may have several,
        and a rank of torch.multiprocessing sets its variables when it gets there: then the process that started it,
        above a shell of the same rank."""
        rank = self.ranks.get(process.pid)
        above = takewhile(lambda p: self.ranks.get(p.pid) == rank, above_all(process, self.processes))
        chain = (process, *above)
        for one in chain:
            if one.index is not None:
                return (str(one.parent),)
        if any(process.environment.get(name) for name in _JOB if not name.startswith("SLURM_")):
            return process.job
        return (*process.job, str(chain[-1].parent))


# -- what a process runs -------------------------------------------------------------------------------------------


def is_python(program: str) -> bool:
    """By the path of its executable."""
    return bool(_PYTHON.match(PurePosixPath(program).name))


def _runs(argv: tuple[str, ...]) -> tuple[str, bool]:
    """(the script or module that an interpreter runs, whether it is a module); of others the program itself."""
    if not argv or not is_python(argv[0]):
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
    return name if module else PurePosixPath(name).stem


def has_script(argv: tuple[str, ...]) -> bool:
    """False for a child of multiprocessing, whose script is its parent's."""
    return not any(map(_OF_MULTIPROCESSING.match, argv))


def is_launcher(argv: tuple[str, ...]) -> bool:
    """True for what starts ranks and is none: by the program's name, or by the module or script that Python runs."""
    name, module = _runs(argv)
    if module:
        return name in _LAUNCHER_MODULES
    return PurePosixPath(name).name in _LAUNCHERS or name.endswith(_OURS)


def lets_rank_through(argv: tuple[str, ...]) -> bool:
    """Whether the ranks that this launcher starts keep a RANK which it was given, and all the same one."""
    return bool(argv) and PurePosixPath(argv[0]).name in _WITHOUT_RANK


def number_in(values: Mapping[str, str], names: Iterable[str]) -> int | None:
    """The first of `names` that is a number which a rank can have."""
    for name in names:
        text = values.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= MOST_RANKS:
            return int(text)
    return None
