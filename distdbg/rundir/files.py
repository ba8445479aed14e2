"""Names of a run's files: one class a folder, one attribute a file."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.rundir.reading import open_regular
from distdbg.whole_file import is_foreign_folder, make_private_folder, open_own

#: Bytes of job.json or slurm.json.
_MOST_OBJECT = 4 << 20
_PROFILE = re.compile(r"steps-\d{1,12}-\d{1,12}\.json\.gz", re.ASCII)


class _NamedPath:
    """A file or folder by its name in the folder of its owner."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: _FilesOf, _kind: object = None) -> Path:
        return owner.folder / self._name


@dataclass(frozen=True)
class _FilesOf:
    folder: Path


class RankFiles(_FilesOf):
    """Files of one rank in one attempt."""

    stdout, stderr, nccl = _NamedPath("stdout.log"), _NamedPath("stderr.log"), _NamedPath("nccl.log")
    #: torchelastic's own error file, as @record writes it
    error = _NamedPath("error.json")
    exit = _NamedPath("exit.json")
    #: what the worker side reported to its agent, one JSON object a line
    facts = _NamedPath("facts.jsonl")
    #: the flight recorder that torch's watchdog wrote at a timeout: a pickle
    recorder = _NamedPath("recorder.pickle")
    #: the flight recorder at the end of the script of a rehearsal: a pickle
    operations = _NamedPath("operations.pickle")
    #: what its memory did in some of its steps, one JSON object a step
    memory_lines = _NamedPath("memory.jsonl")
    #: its gradients' norms by layer in some of its steps, one JSON object a step
    gradients = _NamedPath("gradients.jsonl")
    #: a table of what its modules took and gave, for reading
    shapes = _NamedPath("shapes.txt")
    #: folders: the batch and the model with which a value first was not finite, memory snapshots, profiles
    nonfinite, memory, profile = _NamedPath("nonfinite"), _NamedPath("memory"), _NamedPath("profile")

    def stream(self, name: str) -> Path:
        """`name` is stdout or stderr."""
        return self.folder / f"{name}.log"

    def index(self, name: str) -> Path:
        """When which bytes of a stream arrived: what `logs --merge` sorts by."""
        return self.folder / f"{name}.index"

    def profiles(self) -> list[Path]:
        """Its profiles, in the order of their steps."""
        found = {p: _PROFILE.fullmatch(p.name) for p in self.profile.glob("steps-*.json.gz")}
        return sorted((p for p, name in found.items() if name), key=lambda p: int(p.name.split("-")[1]))


class NodeFiles(_FilesOf):
    #: the last words of an agent that died of an error of its own
    agent_log = _NamedPath("agent.log")
    torchrun_log = _NamedPath("torchrun.log")
    events, metrics = _NamedPath("events.jsonl"), _NamedPath("metrics.jsonl")

    @property
    def node_rank(self) -> int:
        return int(self.folder.name.partition("-")[0])

    @property
    def host(self) -> str:
        return self.folder.name.partition("-")[2]


class Attempt(_FilesOf):
    @property
    def number(self) -> int:
        return int(self.folder.name)

    def node(self, node_rank: int, host: str) -> NodeFiles:
        return NodeFiles(self.folder / "nodes" / f"{node_rank:04d}-{safe_name(host)}")

    def rank(self, rank: int) -> RankFiles:
        return RankFiles(self.folder / "ranks" / f"{rank:05d}")

    def nodes(self) -> list[NodeFiles]:
        return [NodeFiles(p) for p in _numbered(self.folder / "nodes", r"\d{1,9}-.*")]

    def dump(self, reason: str, t: float | None = None) -> Path:
        """The folder of a dump that begins now: hang, asked, timeout or death. make_dump keeps two from colliding."""
        return self.folder / "dumps" / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(t))}-{reason}"

    def make_dump(self, reason: str) -> Path:
        """The same, created exclusively: for processes that do not know of each other. Raises OSError."""
        wanted = self.dump(reason)
        for number in range(1, 100):
            path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            with contextlib.suppress(FileExistsError):
                make_private_folder(path.parent)
                path.mkdir(mode=0o700)
                return path
        raise FileExistsError(str(wanted))

    @property
    def is_foreign(self) -> bool:
        """Whether another user owns it, as its run. Raises OSError."""
        return is_foreign_folder(self.folder)

    def merged_profile(self, name: str) -> Path:
        """Profiles of that name of all ranks, on one clock."""
        return self.folder / "profile" / f"merged-{name}"

    def dumps(self) -> list[Path]:
        """The dumps in the order they were taken: their names begin with the time."""
        return sorted(_numbered(self.folder / "dumps", r"\d{8}T\d{6}Z-.*"))

    def ranks(self) -> dict[int, RankFiles]:
        """What is no folder of ours, such as a second spelling of a rank, is left out."""
        folders = _numbered(self.folder / "ranks")
        return {int(p.name): RankFiles(p) for p in folders if p.name == f"{int(p.name):05d}"}


class RunDir(_FilesOf):
    job, events, preflight = _NamedPath("job.json"), _NamedPath("events.jsonl"), _NamedPath("preflight.json")
    #: requests to the agents: exists from the start, is appended to, reopened at each look
    control = _NamedPath("control")
    #: of a job that was submitted: its number, and what was asked of Slurm
    slurm = _NamedPath("slurm.json")
    batch_script = _NamedPath("batch.sbatch")
    #: what the batch script prints: the launch on the first node, in all its starts
    batch_log = _NamedPath("batch.log")
    #: is there once Slurm has warned the job, where the ranks look for it (--on-preempt checkpoint-file)
    checkpoint_wanted = _NamedPath("checkpoint-wanted")
    report_json, report_html = _NamedPath("report/report.json"), _NamedPath("report/report.html")
    report_text = _NamedPath("report/report.txt")

    @property
    def path(self) -> Path:
        return self.folder

    @property
    def id(self) -> str:
        return self.folder.name

    def carrier_log(self, which: str) -> Path:
        """The standard error of srun, or of ssh to a host, which carry agents."""
        return self.folder / f"carrier-{safe_name(which)}.log"

    def attempt(self, number: int) -> Attempt:
        return Attempt(self.path / "attempts" / str(number))

    def attempts(self) -> list[Attempt]:
        """The attempts in the order they were started."""
        return [Attempt(p) for p in _numbered(self.path / "attempts")]

    def relative(self, path: Path) -> str:
        """The path as citations name files of this run."""
        return path.relative_to(self.path).as_posix()

    @property
    def next_attempt(self) -> int:
        """The number of the start of ranks that comes next: a run that was requeued counts on."""
        attempts = self.attempts()
        return attempts[-1].number + 1 if attempts else 1

    def read_job(self) -> dict[str, Any]:
        """job.json, or an empty dict where it is missing or cut short (a dying node is no error of the reader)."""
        return _read_object(self.job)

    def read_slurm(self) -> dict[str, Any]:
        """slurm.json; empty where the run was not submitted to Slurm."""
        return _read_object(self.slurm)

    @property
    def slurm_job(self) -> int | None:
        """The number of the batch job; None where the run was not submitted to Slurm."""
        number = self.read_slurm().get("job_id")
        return number if isinstance(number, int) else None

    @property
    def is_foreign(self) -> bool:
        """Whether another user owns the run, which only root can read then. Raises OSError."""
        return is_foreign_folder(self.path)

    def refuse_foreign(self) -> None:
        """Raise OSError if another user owns the run: files of root's in it could not be replaced by their owner."""
        if self.is_foreign:
            raise PermissionError(errno.EPERM, "the run is another user's", str(self.path))

    def ask(self, request: dict[str, Any]) -> str:
        """Append one request to the control file; every agent sees it at its next look. Gives its id."""
        asked = {"t": time.time(), "id": os.urandom(4).hex(), **request}
        line = json.dumps(asked) + "\n"
        descriptor = open_own(self.control, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
        return str(asked["id"])


def _read_object(path: Path) -> dict[str, Any]:
    """Empty for what is none: load_evidence, which reads the file too, says what is wrong with it."""
    try:
        with open_regular(path) as file:
            value = json.loads(file.read(_MOST_OBJECT).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _numbered(folder: Path, names: str = r"\d{1,9}") -> Iterator[Path]:
    """Entries whose name is a number, or begins with one as `names` says, in its order; what is foreign is not ours."""
    try:
        entries = [p for p in folder.iterdir() if re.fullmatch(names, p.name, re.ASCII | re.DOTALL)]
    except OSError:
        return iter(())
    return iter(sorted(entries, key=lambda p: int(re.match(r"\d+", p.name).group())))  # type: ignore[union-attr]


def safe_name(name: str) -> str:
    """A name for a file: what is not plain becomes `_`; never empty, never long."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", name).strip("._")[:40] or "job"
