"""Make the step that runs an agent on each node of an allocation: srun's command line, environment and container.

A step in a container is made by Slurm's pyxis plugin. The image brings Python and torch, and nothing of ours. What else
a job needs is mounted at its own path: the folder that it was launched in, the run directory, and distdbg itself, whose
agent and worker side run under any Python that distdbg supports; psutil beside it keeps to Python's stable ABI, and
py-spy is a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.launch.plan.dry_run import remote_shell
from distdbg.launch.plan.job import Plan
from distdbg.launch.plan.place import Container
from distdbg.launch.plan.shell_words import quote

#: Set by the allocation's own options, read by srun as if they were its own: they would cut the agent's node down to a
#: task's share, or refuse one task a node.
_WOULD_BIND = (
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_GPUS_PER_SOCKET", "SLURM_CPU_BIND",
    "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET", "SLURM_DISTRIBUTION",
    "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_THREADS_PER_CORE", "SLURM_HINT",
    "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_KILL_BAD_EXIT", "SLURM_WAIT", "SLURM_OPEN_MODE", "SLURM_LABELIO",
    "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SLURM_UNBUFFEREDIO", "SLURM_EXPORT_ENV",
)  # fmt: skip
PACKAGE = Path(__file__).resolve().parents[3]
#: Of an editable install they are elsewhere, and the image's own have to do.
_BESIDE_US = ("psutil", "pynvml.py")


def step_options(nodes: Sequence[str], container: Sequence[str] = ()) -> list[str]:
    """srun, up to the program: one task a node, with all that the job has there; `container` is Container.step's.

    --overlap: a later `srun --overlap` (hang-dump) and the user's own steps find room beside it. --no-kill: when a
    node dies the others are left to us, with their evidence. --wait=0: nodes that are done do not end those that are
    not.
    """
    number = str(len(nodes))
    return [
        "srun", "--nodes", number, "--ntasks", number, "--ntasks-per-node=1", "--nodelist", ",".join(nodes),
        "--job-name=distdbg", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mem=0",
        "--cpu-bind=none", "--distribution=block", "--export=ALL", "--input=all",
        *container,
    ]  # fmt: skip


def step_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _WOULD_BIND}


def container_options(container: Container, *folders: Path) -> list[str]:
    """srun's options for the step, with these folders and our own mounted where no mount of the user's covers them.

    Raises UsageError for a path that pyxis has no way to write.
    """
    covered = [Path(inside) for inside in _insides(container.options.get("container-mounts", ""))]
    mounts = [m for m in (container.options.get("container-mounts"),) if m]
    own = [] if "container-workdir" in container.options else [container.folder]
    for path in (*own, *folders, *_brought()):
        if not any(path.is_relative_to(seen) for seen in covered):
            mounts.append(f"{_written(path)}:{path}")
            covered.append(path)
    options = {"container-workdir": str(container.folder)} | dict(container.options)
    options["container-mounts"] = ",".join(mounts)
    return [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]


def _insides(mounts: str) -> Iterator[str]:
    """The target paths of `SRC:DST[:FLAGS],…`; a source without a target is mounted at its own path."""
    for mount in filter(None, mounts.split(",")):
        source, _, rest = mount.partition(":")
        yield rest.partition(":")[0] or source


def _written(path: Path) -> str:
    if path == path.parent:
        raise UsageError("a job in a container cannot be launched from /: it would hide the image", "Launch elsewhere.")
    if bad := next((c for c in ",:" if c in str(path)), None):
        raise UsageError(
            f"{path} cannot be mounted into a container: pyxis has no way to write a path with {bad!r}",
            "Launch from another folder, or name another with --run-dir.",
        )
    return str(path)


def _brought() -> Iterable[Path]:
    """What an agent needs of ours, where it looks for it."""
    from distdbg.collect.machine.pyspy import find_pyspy

    yield PACKAGE
    yield from (path for name in _BESIDE_US if (path := PACKAGE.with_name(name)).exists())
    if tool := find_pyspy():
        yield Path(tool)


def render_step(plan: Plan) -> str:
    shell = remote_shell(plan, "srun --nodes=1 --ntasks=1 --overlap -w")
    container = container_options(plan.place.container) if plan.place.container else []
    step = " ".join(map(quote, step_options(plan.place.hosts, container)))
    script = quote("\n".join(["NODE=$SLURM_PROCID", shell.address, shell.command]))
    return "\n".join([*shell.head, *shell.exports, "export FIRST", f"{step} bash -c {script}"])
