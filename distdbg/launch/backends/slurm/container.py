"""A step in a container, as Slurm's pyxis plugin makes it: what is seen inside, by whose interpreter, in which folder.

The image brings Python and torch, and nothing of ours. What else a job needs is mounted at its own path: the folder
that it was launched in, the run directory, and distdbg itself, whose agent and worker side run under any Python that
distdbg supports; psutil beside it keeps to Python's stable ABI, and py-spy is a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.launch.plan.place import Container

PACKAGE = Path(__file__).resolve().parents[3]
#: Of an editable install they are elsewhere, and the image's own have to do.
_BESIDE_US = ("psutil", "pynvml.py")


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
    """Of `SRC:DST[:FLAGS],…`, where a source alone stands for both."""
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
