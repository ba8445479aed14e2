"""Take a dump of a running Slurm job, whoever started it: one srun for each of its nodes.

One srun a node, because one over all of them gives half an answer, late, where a node is dead. `--overlap` needs no
resource that the job's own steps do not hold already. A node's part comes as a tar through srun's standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.launch.backends.interface import RunningJob
from distdbg.launch.backends.slurm import commands
from distdbg.launch.io.folder_stream import receive_folder
from distdbg.launch.watch.requested_dump import DumpOptions, Say, write_manifest
from distdbg.model import Unknown
from distdbg.plain_text import first_words
from distdbg.whole_file import make_private_folder, write_whole

_NODE_DUMP = Path(__file__).with_name("node_dump.py")
_AT_ONCE = 16
#: For srun to reach a node and an interpreter to start there, beyond the time that the capture may take.
_REACHES_WITHIN_S = 20.0
_ENDS_WITHIN_S = 3.0
#: What a node may send, and of which names: the job's own user runs there, and may send what he likes.
_MOST_BYTES = 4 << 30
_FILES = re.compile(r"(stacks|recorder|calls|sources|nodes)/[A-Za-z0-9._+-]{1,200}")


@dataclass(frozen=True)
class SlurmTarget(RunningJob):
    """A running job. `nodes` in Slurm's order."""

    number: int
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"slurm-{self.number}"

    def dump(self, folder: Path, options: DumpOptions, say: Say) -> list[Unknown]:
        parts = _gather(self, folder, options, say)
        if not any(part.found for part in parts):
            why = "; ".join(sorted({f"{part.node}: {part.because}" for part in parts})[:4])
            raise NothingToAnalyse(f"no rank of Slurm job {self.number} was found: {why}", "Does it run Python by now?")
        votes = Counter({part.key: 0 for part in parts if part.found})
        for part in parts:
            votes[part.key] += len(part.ranks)
        chosen = max((part for part in parts if part.found), key=lambda part: votes[part.key]).key
        for number, part in enumerate(parts):
            if part.found and part.key != chosen:
                (folder / "nodes" / f"{number:04d}.json").unlink(missing_ok=True)
                part.because, part.found = f"another job's ranks run there: {part.found.get('name')}", {}
        had = [part for part in parts if part.found]
        size = max(
            [part.found.get("world_size") or 0 for part in had] + [max(part.ranks, default=-1) + 1 for part in had]
        )
        missed = [part for part in parts if part.because]
        missing = "; ".join(f"{part.node}: {part.because}" for part in missed[:4])
        because = dict.fromkeys(range(size), missing or "no process with this rank was found on any node")
        because |= {rank: part.because or part.cut or "answered" for part in had for rank in part.ranks}
        first = min(had, key=lambda part: min(part.ranks, default=size))
        known = {name: first.found.get(name) for name in ("name", "argv", "cwd")}
        doubles = [pid for part in had for pid in part.found.get("doubles") or ()]
        write_manifest(folder, options, because, {}, job={**known, "world_size": size, "doubles": doubles})
        others = sorted({str(name) for part in had for name in part.found.get("others") or ()})
        cut = [
            Unknown(f"a part of the evidence of node {part.node}", part.cut, decisive=True) for part in had if part.cut
        ]
        return [*cut, *(Unknown(f"node {part.node}", part.because) for part in missed)] + [
            Unknown(f"the job {name}", "it runs on these nodes too, and this dump is of the one with the most ranks")
            for name in others
        ]


@dataclass
class _Part:
    """What came of one node: `because` if nothing did, `cut` if not all did."""

    node: str
    found: dict[str, Any] = field(default_factory=dict)
    because: str = ""
    cut: str = ""

    @property
    def key(self) -> str:
        return json.dumps(self.found.get("key"))

    @property
    def ranks(self) -> list[int]:
        return [rank for rank in self.found.get("ranks") or () if isinstance(rank, int)]


def find_slurm_job(text: str) -> SlurmTarget:
    """`text` as squeue takes it: 12, 12_3, 12+1. Raises NothingToAnalyse, UsageError, ToolMissing."""
    if not re.fullmatch(r"\d+([_+]\d+)?", text):
        raise UsageError(f"--slurm-job {text!r} is no number of a job", "`squeue --me` lists yours.")
    state = commands.job_state(text)
    if state is None:
        raise NothingToAnalyse(f"Slurm does not know job {text}", "`squeue --me` lists yours.")
    if state.state != "RUNNING":
        raise NothingToAnalyse(f"Slurm job {text} does not run: {state.state}", "Nothing of it can be looked at.")
    return SlurmTarget(state.number, tuple(commands.node_names(state.nodes)))


def _gather(target: SlurmTarget, folder: Path, options: DumpOptions, say: Say) -> list[_Part]:
    parts: list[_Part] = [_Part(node) for node in target.nodes]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = {pool.submit(_reach, target, n, part, folder, options): part for n, part in enumerate(parts)}
        say(f"looking at {_names(list(waiting.values()))}")
        for done in as_completed(list(waiting)):
            del waiting[done]
            done.result()
            if waiting:
                say(f"waiting for {_names(list(waiting.values()))}")
    return parts


def _names(parts: Sequence[_Part]) -> str:
    return ", ".join(part.node for part in parts[:4]) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")


def _reach(target: SlurmTarget, number: int, part: _Part, folder: Path, options: DumpOptions) -> None:
    """Fills `part`, and the dump's folder with the node's files."""
    request = json.dumps({"job": str(target.number), "node_rank": number, "options": asdict(options)})
    command = ["srun", f"--jobid={target.number}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={part.node}",
               "--quiet", "--gres=none", "--mpi=none", "--input=none", "--chdir=/",
               sys.executable, str(_NODE_DUMP), request]  # fmt: skip
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("SLURM_", "SRUN_")) or n == "SLURM_CONF"}
    within = options.within + _REACHES_WITHIN_S
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=inherited)
        except OSError as error:
            part.because = f"srun cannot be started: {error.strerror}"
            return
        if not _ended(process, within):
            part.because = f"it did not answer within {within:g} s"
        _unpack(out, folder, part)
        if part.because and not part.found:
            part.because = _said(err) or part.because


def _ended(process: subprocess.Popen[bytes], within: float) -> bool:
    try:
        process.wait(within)
        return True
    except subprocess.TimeoutExpired:
        process.terminate()  # srun ends its step, where it still can
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_WITHIN_S)
        return False
    process.kill()
    process.wait()
    return False


def _unpack(out: IO[bytes], folder: Path, part: _Part) -> None:
    """Fill `part`, and the dump's folder. Only plain files of a dump's own names are taken."""

    def take(name: str, content: bytes) -> None:
        if _FILES.fullmatch(name):
            make_private_folder((folder / name).parent)
            write_whole(folder / name, content)

    out.seek(0)
    try:
        part.found, part.cut = receive_folder(out, take, most_bytes=_MOST_BYTES)
    except OSError as error:
        part.because = part.because or f"its part cannot be written here: {error.strerror}"
    if not part.found:
        part.because = part.because or "it sent no account of its ranks"
    part.because = part.because or str(part.found.get("because") or "")


def _said(err: IO[bytes]) -> str:
    err.seek(0)
    text = err.read(1 << 16).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line and "Exited with exit code" not in line]
    first = next(iter([line for line in errors or lines if not line.startswith("slurmstepd")] or lines), "")
    return first_words(re.sub(r"^srun: (error: |fatal: )?", "", first), 300)
