"""A cluster of simulated GPUs for one test: how many, how large, and what is wrong with them.

    box = GpuBox(root, folder, devices=4, memory="8G", faults={1: "kernel-hang kernel=FillFunctor at=3"})
    subprocess.run([...], env={**os.environ, **box.environment()})

`root` is what build.py made; `folder` holds what the processes share, and is the test's to remove.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu_box.build import HERE
from gpu_box.gpus import DEFAULT, GPUS, GpuKind

#: Folders of boxes: node-local shared memory, since pages of communicators are written all the time.
SHARED_MEMORY = Path("/dev/shm")

#: rank -> faults of that rank; None -> lines of the plan that name a node or a device themselves
Faults = Mapping["int | None", "str | Sequence[str]"]


@dataclass(frozen=True)
class GpuBox:
    """Simulated devices, the same number and size on each node. Their state lives as long as `folder`."""

    root: Path
    folder: Path
    devices: int = 4
    memory: str = "80G"
    values: bool = True
    #: right values for programs that look at values, slowly: gpu_box_shadow.py
    shadow: bool = False
    kind: GpuKind = GPUS[DEFAULT]
    #: The ranks that are processes, where not all are. The other members of a communicator do as the first of these.
    real: tuple[int, ...] = ()
    #: Where to write the groups that the job forms: a process then ends at its first backward pass.
    groups: Path | None = None
    #: Kernels, collectives and calls that are not modelled, a line each
    trace: Path | None = None

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a process needs to see the devices; PYTHONPATH and LD_LIBRARY_PATH of `base` stay behind ours."""
        base = os.environ if base is None else base
        paths = {"PYTHONPATH": f"{self.root}{os.pathsep}{self.root.parent}", "LD_LIBRARY_PATH": str(self.root)}
        found = {name: os.pathsep.join(filter(None, (path, base.get(name)))) for name, path in paths.items()}
        found |= {"GPU_BOX_DIR": str(self.folder), "GPU_BOX_DEVICES": str(self.devices), "GPU_BOX_MEMORY": self.memory}
        found |= {"GPU_BOX_VALUES": str(int(self.values)), "GPU_BOX_SHADOW": str(int(self.shadow))}
        attributes = ",".join(f"{number}={value}" for number, value in self.kind.attributes.items())
        found |= {"GPU_BOX_NAME": self.kind.name, "GPU_BOX_ATTRIBUTES": attributes}
        if self.real:
            # Beyond 128 ranks torch would wait for identifiers of several of them. nccl2 (torch 2.15) takes no word of
            # configuration that tells NCCL who the others are.
            found |= {"GPU_BOX_REAL": ",".join(map(str, self.real))}
            found |= {"TORCH_NCCL_RANKS_PER_ROOT": str(1 << 30), "TORCH_DIST_USE_NCCL2": "0"}
        found |= {"GPU_BOX_GROUPS": str(self.groups)} if self.groups else {}
        ras = shlex.join([sys.executable, "-IS", str(HERE / "ras.py")])
        found |= {"GPU_BOX_PLAN": str(self.plan), "GPU_BOX_RAS": ras}
        return found | ({"GPU_BOX_TRACE": str(self.trace)} if self.trace else {})

    @property
    def plan(self) -> Path:
        return self.folder / "plan"

    def write_plan(self, faults: Faults) -> None:
        """Processes read it when they start."""
        lines = []
        for rank, planted in faults.items():
            planted_lines = [planted] if isinstance(planted, str) else planted
            lines += [line if rank is None else f"{line} rank={rank}" for line in planted_lines]
        self.plan.write_text("".join(f"{line}\n" for line in lines))


@contextmanager
def gpu_box(root: Path, *, faults: Faults | None = None, **options: object) -> Iterator[GpuBox]:
    """A box in a folder of its own. A shell removes the folder at the end, or when this process dies of SIGKILL."""
    folder = Path(tempfile.mkdtemp(prefix="gpu-box-", dir=SHARED_MEMORY))
    remove = ["/bin/sh", "-c", 'read _; until rm -rf "$0"; do sleep 1; done', str(folder)]
    # Without the environment of this process: it is not one of those that a test may not leave.
    remover = subprocess.Popen(remove, stdin=subprocess.PIPE, start_new_session=True, env={"PATH": os.defpath})
    try:
        box = GpuBox(root, folder, **options)  # type: ignore[arg-type]
        box.write_plan(faults or {})
        yield box
    finally:
        remover.communicate(b"\n")  # a forked child may still have the pipe: its end alone is not enough


def main() -> int:
    """`python -m gpu_box.box [--devices N] COMMAND…`: a command that sees simulated devices."""
    import argparse

    from gpu_box.build import TORCH, NotPossible, build

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--torch", default=TORCH)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--memory", default="80G")
    parser.add_argument("--no-values", action="store_true", help="move no bytes on the devices")
    parser.add_argument("--shadow", action="store_true", help="right values, slowly")
    parser.add_argument("--fault", action="append", default=[], metavar="'KIND word=value'", help="a line of the plan")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    try:
        root = build(options.torch)
    except NotPossible as error:
        print(f"the GPU box cannot be built: {error}", file=sys.stderr)
        return 1
    wanted = {"devices": options.devices, "memory": options.memory, "shadow": options.shadow, "trace": options.trace}
    with gpu_box(root, faults={None: options.fault}, values=not options.no_values, **wanted) as box:
        return subprocess.run(options.command, env={**os.environ, **box.environment()}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
