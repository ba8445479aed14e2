"""A dump on request: of a run through its agents, of any other job by a process of ours. Who asks writes the manifest.

Agents are asked through the run's control file, which needs no port and no ssh. One that says nothing, though its
ranks run on this machine (it was killed, or stopped), is done without: its ranks are captured from here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_end, read_whole
from distdbg.collect.machine import procfs
from distdbg.collect.machine.job_processes import FoundJob, FoundRank, find_jobs
from distdbg.collect.machine.recorder import PIPE_ANSWERS_WITHIN_S
from distdbg.errors import DistdbgError, NothingToAnalyse
from distdbg.evidence import jsonl
from distdbg.evidence.records import ranks_seen
from distdbg.launch.io import processes
from distdbg.launch.io.control import refuse_unwritable_run
from distdbg.launch.watch.write_delay import patience
from distdbg.masking import mask_argv
from distdbg.protocol.agent_events import AgentFinished, Dumped
from distdbg.protocol.dump import (
    BUSY,
    COLLECTED,
    CaptureRequest,
    CaptureTarget,
    LookPart,
    Manifest,
    NodePart,
    RankPart,
    failed,
    not_tried,
)
from distdbg.protocol.requests import TakeDump
from distdbg.rundir import Attempt, RunDir
from distdbg.whole_file import write_json
from distdbg.wording import counted

#: Beyond the time that a capture may take, for another machine's file system to show what was written.
_SHOWS_WITHIN_S = 6.0
_LOOK_EVERY_S = 0.1
#: A job that hangs may be looked at by its own launch just then.
_BUSY_FOR_S, _ASKED_AGAIN_S = 15.0, 1.0
_MOST_EVENTS = 16 << 20
_MOST_NEWS = 1 << 20
_MOST_PART = 128 << 20
_GONE = "its process is gone"

Say = Callable[[str], None]


@dataclass(frozen=True)
class DumpOptions:
    """The options of a request for a dump (protocol/requests.py)."""

    looks: int = 2
    interval: float = 1.0
    within: float = 10.0
    native: int = 2
    values: bool = False

    def request(self, folder: Path) -> TakeDump:
        return TakeDump(folder=str(folder), **asdict(self))


@dataclass
class _Node:
    node_rank: int
    host: str
    events: Path
    ranks: set[int]
    #: what became of it: "" while it is waited for
    end: str = ""
    #: of its ranks, what its agent says that it has of each
    told: Mapping[str, object] = field(default_factory=dict)


@dataclass
class _Asked:
    """One dump of a run that is under way."""

    run: RunDir
    folder: Path
    options: DumpOptions
    nodes: list[_Node]
    begun: float = field(default_factory=time.monotonic)

    @property
    def waiting(self) -> list[_Node]:
        return [node for node in self.nodes if not node.end]


def dump_run(run: RunDir, options: DumpOptions, say: Say) -> Path:
    """Ask all agents of a run's newest attempt, wait for them with a deadline, and write the manifest.

    Raises NothingToAnalyse where no rank was started, Refused where the run's directory cannot be written.
    """
    _nodes_that_started(run)
    attempts = run.attempts()
    asked = _ask(run, attempts[-1], options, say)
    until = time.monotonic() + _BUSY_FOR_S
    while any(node.end == BUSY for node in asked.nodes) and time.monotonic() < until:
        say("another dump is being taken: asking again")
        shutil.rmtree(asked.folder, ignore_errors=True)
        time.sleep(_ASKED_AGAIN_S)
        asked = _ask(run, attempts[-1], options, say)
    told = {
        rank: said for node in asked.nodes for key, said in node.told.items() if (rank := jsonl.rank(key)) is not None
    }
    write_manifest(asked.folder, options, _ends_of_ranks(run.read_job(), asked.nodes), told)
    return asked.folder


def _ends_of_ranks(job: Mapping[str, Any], nodes: Sequence[_Node]) -> dict[int, str]:
    """What became of the node of each rank of the job."""
    unknown = dict.fromkeys(range(jsonl.world_size(jsonl.inner(job, "topology")) or 0), "no agent knows of it")
    return unknown | {rank: node.end for node in nodes for rank in node.ranks}


def dump_foreign_run(run: RunDir, folder: Path, options: DumpOptions, say: Say) -> None:
    """Capture the ranks of another user's run that run on this machine into `folder`: its agents could not write there.

    Raises NothingToAnalyse if no rank was started.
    """
    nodes = _nodes_that_started(run)
    _capture_from_here(run, folder, options, nodes, say)
    owner = run.path.stat().st_uid
    for node in nodes:
        node.end = node.end or f"it does not run here, and its agent was not asked: the run is that of user {owner}"
    job = run.read_job()
    known = {"name": job.get("name"), "argv": job.get("program"), "cwd": job.get("cwd")}
    known["world_size"] = jsonl.world_size(jsonl.inner(job, "topology"))
    write_manifest(folder, options, _ends_of_ranks(job, nodes), {}, job=known)


def _nodes_that_started(run: RunDir) -> list[_Node]:
    attempts = run.attempts()
    nodes = _nodes(attempts[-1]) if attempts else []
    if not nodes:
        raise NothingToAnalyse(f"no rank of {run.id} has been started yet", "Ask again when it has come so far.")
    return nodes


def _ask(run: RunDir, attempt: Attempt, options: DumpOptions, say: Say) -> _Asked:
    """Once, and wait for the answers. Raises Refused."""
    with refuse_unwritable_run():
        folder = attempt.make_dump("asked")
        asked = _Asked(run, folder, options, _nodes(attempt))
        run.ask(options.request(folder).record())
    _wait(asked, say)
    return asked


def _nodes(attempt: Attempt) -> list[_Node]:
    found = []
    for files in attempt.nodes():
        events, _ = jsonl.objects(read_whole(files.events, _MOST_EVENTS)[0] or "")
        node = _Node(files.node_rank, files.host, files.events, set(ranks_seen(events)))
        if AgentFinished.is_in(events):
            node.end = "its node had ended before"
        found.append(node)
    return found if any(node.ranks for node in found) else []


def _wait(asked: _Asked, say: Say) -> None:
    answers_within = patience(asked.run)  # one that shows no file by then does not answer
    most = asked.options.within + max(_SHOWS_WITHIN_S, answers_within)
    tried = False
    while asked.waiting:
        for node in asked.waiting:
            _hear(asked, node)
        lasted = time.monotonic() - asked.begun
        if lasted > answers_within and not tried:
            tried = True
            if silent := [node for node in asked.waiting if not _began(asked.folder, node)]:
                say(f"{_names(silent)} do not answer: ranks that run here are looked at from here")
                _capture_from_here(asked.run, asked.folder, asked.options, silent, say)
        if lasted > most:
            for node in asked.waiting:
                node.end = f"the agent of node {node.node_rank} ({node.host}) did not answer within {most:g} s"
        if asked.waiting:
            say(f"waiting for the stacks of {_names(asked.waiting)}")
            time.sleep(_LOOK_EVERY_S)


def _hear(asked: _Asked, node: _Node) -> None:
    """An agent tells by an event what it has of each rank; its part, written before, is proof enough for us."""
    if (asked.folder / "nodes" / f"{node.node_rank:04d}.json").exists():
        node.end = "answered"
    events, _ = jsonl.objects(read_end(node.events, _MOST_NEWS).text)
    for _, dumped in Dumped.among(reversed(events)):
        if dumped.folder == str(asked.folder):
            node.told = dict(dumped.ranks)
            node.end = dumped.because or "answered"


def _names(nodes: list[_Node]) -> str:
    shown = ", ".join(f"{node.node_rank} ({node.host})" for node in nodes[:4])
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    return f"node{'' if len(nodes) == 1 else 's'} {shown}{more}"


def _began(folder: Path, node: _Node) -> bool:
    """Whether any file of this node's ranks has come."""
    return any(
        True for rank in node.ranks for kind in ("stacks", "recorder") for _ in (folder / kind).glob(f"{rank:05d}.1.*")
    )


def _capture_from_here(run: RunDir, folder: Path, options: DumpOptions, nodes: Sequence[_Node], say: Say) -> None:
    """Capture the ranks of these nodes that run on this machine; their nodes count as answered."""
    path = run.path.resolve()  # a launch may name it by `..` or by a link
    here = [job for job in find_jobs() if job.run_dir and Path(job.run_dir).resolve() == path]
    for node in nodes:
        ranks = [rank for job in here for rank in job.ranks if rank.rank in node.ranks]
        if ranks:
            capture(folder, options, ranks, say, node_rank=node.node_rank, host=node.host)
            node.end = "answered"


# -- jobs that distdbg did not launch ---------------------------------------------------------------------------


def dump_job(job: FoundJob, folder: Path, options: DumpOptions, say: Say) -> None:
    """Capture the ranks of a job that run on this machine into `folder`, which exists."""
    host = socket.gethostname()
    capture(folder, options, job.ranks, say, node_rank=0, host=host)
    size = job.world_size or max(rank.rank for rank in job.ranks) + 1
    because = dict.fromkeys(range(size), f"it does not run on {host}, and distdbg did not launch this job")
    known: dict[str, Any] = {
        "name": job.name,
        "argv": mask_argv(job.argv),
        "cwd": job.cwd,
        "world_size": job.world_size,
    }
    known["doubles"] = list(job.doubles)
    write_manifest(folder, options, because, {}, job=known)


def capture(
    folder: Path, options: DumpOptions, ranks: Sequence[FoundRank], say: Say, *, node_rank: int, host: str
) -> None:
    """Run launch/watch/capture.py over these processes. Raises DistdbgError where it wrote nothing."""
    targets = [CaptureTarget(rank=r.rank, pid=r.pid, stem=r.stem).fields() for r in ranks]
    request = CaptureRequest(
        **options.request(folder).fields(), node_rank=node_rank, host=host, targets=targets, parent=os.getpid()
    )
    pids = [r.pid for r in ranks]
    stopped = {pid for pid in pids if procfs.is_stopped(pid)}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("capture.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that py-spy dies with it
    )
    try:
        _see_through(
            process, json.dumps(request.fields()).encode(), PIPE_ANSWERS_WITHIN_S + options.within + _SHOWS_WITHIN_S,
            say, len(targets),
        )  # fmt: skip
    finally:
        if process.poll() is None:
            processes.kill_group(process.pid, signal.SIGKILL)
            process.wait()
        for pid in (p for p in pids if p not in stopped and procfs.is_stopped(p)):
            processes.kill(pid, signal.SIGCONT)  # py-spy stops one for milliseconds, and was killed in them
    if not (folder / "nodes" / f"{node_rank:04d}.json").exists():
        said = process.stderr.read().decode("utf-8", "replace").strip() if process.stderr else ""
        raise DistdbgError(
            f"the ranks could not be looked at: {said.rpartition(chr(10))[2] or 'it took too long'}",
            f"What was had of them is in {folder}.",
        )


def _see_through(process: subprocess.Popen[bytes], request: bytes, most: float, say: Say, ranks: int) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(request)
        process.stdin.close()
    until = time.monotonic() + most
    while process.poll() is None and time.monotonic() < until:
        say(f"looking at {counted(ranks, 'rank')}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_EVERY_S)


def write_manifest(
    folder: Path,
    options: DumpOptions,
    because: Mapping[int, str],
    told: Mapping[int, object],
    **more: Any,  # noqa: ANN401 -- `job`
) -> None:
    """The last file of a dump: what became of every rank of the job, by what is there, then by what agents told."""
    collected = _collected(folder)
    ranks: dict[str, object] = {}
    for rank in sorted({*because, *collected}):
        why = because.get(rank, "")
        silent = failed("it is in no node's part") if why == "answered" else not_tried(why)
        said = collected.get(rank)
        ranks[str(rank)] = told.get(rank, silent) if said is None else failed(said) if said else COLLECTED
    manifest = Manifest(
        t=time.time(), reason="asked", by=f"hang-dump, pid {os.getpid()}", world_size=len(ranks), looks=options.looks,
        ranks=ranks, **more,
    )  # fmt: skip
    write_json(folder / "manifest.json", manifest.fields())


def _collected(folder: Path) -> dict[int, str]:
    """Of every rank that a node's part has: why it gave nothing at all, "" where it gave something."""
    found: dict[int, str] = {}
    for path in sorted((folder / "nodes").glob("*.json")):
        part = NodePart.from_record(jsonl.whole(read_whole(path, _MOST_PART)[0] or "") or {})
        for item in map(RankPart.from_record, jsonl.dicts(part.ranks)):
            looks = map(LookPart.from_record, jsonl.dicts(item.looks))
            found[item.rank] = "" if any(look.process or "file" in look.stacks for look in looks) else _GONE
    return found
