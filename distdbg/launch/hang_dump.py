"""Run `distdbg hang-dump`: choose the job, take a dump of it, and read that as evidence."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from distdbg.collect.machine import procfs
from distdbg.collect.machine.job_processes import FoundJob, LauncherWithoutRanks, find_jobs, job_of
from distdbg.collect.runs.dump_evidence import load_dump_alone, unseen
from distdbg.collect.runs.dump_files import load_dump
from distdbg.collect.runs.known_secrets import remember_secrets
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.collect.runs.run_status import run_status
from distdbg.diagnosis.waits.movement import ENOUGH_LOOKS
from distdbg.errors import NothingToAnalyse, Refused, ToolMissing, UsageError
from distdbg.evidence.run import RunEvidence
from distdbg.launch.backends.interface import RunningJob
from distdbg.launch.watch.requested_dump import DumpOptions, Say, dump_foreign_run, dump_job, dump_run
from distdbg.protocol.dump import NoStacks
from distdbg.rundir import DUMPS_FOLDER, RunDir, find_run_dir, make_dump_folder, runs_here
from distdbg.whole_file import make_private_folder, refuse_foreign_folder

Target = RunDir | FoundJob | RunningJob
_ASK_AS_OWNER = "Ask on a machine where its ranks run, as the user who launched it (`sudo -u USER distdbg hang-dump`)."


@dataclass(frozen=True)
class TakenDump:
    """One dump: its folder, and what is known with it."""

    folder: Path
    evidence: RunEvidence


def choose(run: str | None, pids: Iterable[int], *, everything: bool) -> list[Target]:
    """The jobs that a person means; never none. Raises NothingToAnalyse or UsageError."""
    if run is not None:
        named = find_run_dir(run)
        status = run_status(named)
        if status.live is False:
            raise NothingToAnalyse(
                f"{named.id} has ended ({status.outcome}): nothing of it can be looked at any more",
                f"`distdbg report {named.id}` says how it ended.",
            )
        return [named]
    if pids:
        return [_by_pid(pids)]
    if not everything and (newest := _newest_live_run()) is not None:
        return [newest]
    jobs = find_jobs()
    found: list[Target] = [job for job in jobs if job.run_dir is None]
    runs = {Path(job.run_dir).resolve() for job in jobs if job.run_dir}
    found += [RunDir(path) for path in sorted(runs) if path.is_dir()]
    if not found:
        raise NothingToAnalyse(
            "no distributed job of yours runs here: no run of this folder lives, and no process on this machine has a "
            "rank, in its environment (RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK) or by `spawn`",
            "Name a run's directory, or the ranks' processes by --pid.",
        )
    return found


def described(target: Target) -> str:
    if isinstance(target, RunDir):
        return target.id
    if isinstance(target, RunningJob):
        return target.name
    pids = " ".join(f"--pid {rank.pid}" for rank in target.ranks[:4])
    return f"{target.name} ({len(target.ranks)} ranks: {pids}{' …' if len(target.ranks) > 4 else ''})"


def _newest_live_run() -> RunDir | None:
    """The newest run that this machine's process table shows as running; else the newest, where that cannot be decided
    here."""
    runs = runs_here()
    for run in reversed(runs):
        if run_status(run).live:
            return run
    return runs[-1] if runs and run_status(runs[-1]).live is None else None


def _by_pid(pids: Iterable[int]) -> FoundJob:
    try:
        return job_of(pids)
    except LauncherWithoutRanks as error:
        raise NothingToAnalyse(
            f"process {error.pid} is a launcher or a driver, and no rank that it started runs on this machine",
            "Try again once its ranks run, or name their pids. `py-spy dump --pid "
            f"{error.pid}` shows where the launcher itself is.",
        ) from None
    except PermissionError as error:
        pid = Path(error.filename).parent.name
        raise ToolMissing(
            f"process {pid} may not be looked at: it is another user's, or has more rights than you",
            "Look as its owner, or as root.",
        ) from None
    except OSError as error:
        pid = Path(error.filename or "?/").parent.name
        raise NothingToAnalyse(f"there is no process {pid}", "It may have ended; see `ps`.") from None


# -- taking one -------------------------------------------------------------------------------------------------


def looks_at(target: Target) -> int:
    """How many looks are enough: heartbeat pages show with two whether a rank moves, stacks alone need more."""
    return DumpOptions.looks if isinstance(target, RunDir) else ENOUGH_LOOKS


def take(target: Target, options: DumpOptions, output: Path | None, say: Say) -> TakenDump:
    """Take a dump and read it; with `output` it is written there (a run of this user keeps its own as well)."""
    if output is not None and output.is_dir() and any(output.iterdir()):
        raise UsageError(f"{str(output)!r} is not empty", "Name a folder that does not exist yet.")
    if isinstance(target, FoundJob):
        for rank in target.ranks:
            remember_secrets(procfs.environment_of(rank.pid), target.argv)
        folder = _folder_for(target, output)
        dump_job(target, folder, options, say)
        return TakenDump(folder, load_dump_alone(folder, _shown(folder)))
    if isinstance(target, RunningJob):
        folder = _folder_for(target, output)
        unknown = target.dump(folder, options, say)
        found = load_dump_alone(folder, _shown(folder))
        return TakenDump(folder, replace(found, unknown=(*unknown, *found.unknown)))
    if target.is_foreign:
        folder = _folder_for(target, output)
        dump_foreign_run(target, folder, options, say)
        return TakenDump(folder, _with_dump(target, folder, _shown(folder)))
    folder = dump_run(target, options, say)
    evidence = _with_dump(target, folder, target.relative(folder))
    if output is not None:
        shutil.copytree(folder, output, dirs_exist_ok=True)
        folder = output
    return TakenDump(folder, evidence)


def _shown(folder: Path) -> str:
    """The folder as a person in this directory would type it."""
    with contextlib.suppress(ValueError):
        return str(folder.absolute().relative_to(Path.cwd()))
    return str(folder)


def _with_dump(run: RunDir, folder: Path, name: str) -> RunEvidence:
    """The run as it is, judged by this dump and by no other that was taken meanwhile; `name`: as citations call it."""
    evidence = load_evidence(run)
    if evidence.dump is None or evidence.dump.path != name:
        dump, unknown = load_dump(folder, name)
        evidence = replace(evidence, dump=dump, unknown=(*evidence.unknown, *unknown))
    assert evidence.dump is not None
    return replace(evidence, unknown=(*evidence.unknown, *unseen(evidence.dump)))


def _folder_for(job: Target, output: Path | None) -> Path:
    try:
        if output is not None:
            make_private_folder(output)
            refuse_foreign_folder(output)
            return output
        return make_dump_folder(job.id if isinstance(job, RunDir) else job.name, DUMPS_FOLDER)
    except OSError as error:
        raise Refused(
            f"the dump cannot be written: {error.strerror}: {error.filename}", "Name another folder with -o."
        ) from None


def refuse_blind(taken: TakenDump) -> None:
    """Raises ToolMissing if no rank's stack was collected; the remedy depends on the reason."""
    dump = taken.evidence.dump
    if dump is None or any(look.threads for rank in dump.ranks.values() for look in rank.looks):
        return
    why = {rank.last.missing.get("stacks", "") for rank in dump.ranks.values()} - {""}
    if not why:
        because = min(dump.missing.values(), default="no reason is recorded")
        raise ToolMissing(f"nothing was collected of any rank: {because}", _ASK_AS_OWNER)
    reasons = {rank.last.no_stacks: rank.last.missing.get("stacks", "") for rank in dump.ranks.values()}
    kind = next((kind for kind in NoStacks if kind in reasons), None)
    what = "the ranks' stacks may not be read" if kind is NoStacks.REFUSED else "no rank's stack could be taken"
    raise ToolMissing(f"{what}: {reasons[kind] if kind else min(why)}", _remedy(kind))


def _remedy(kind: NoStacks | None) -> str:
    match kind:
        case NoStacks.NO_TOOL:
            return "Install py-spy beside distdbg: `pip install --force-reinstall py-spy`."
        case NoStacks.REFUSED:
            return _permission_remedy()
        case NoStacks.NO_PYTHON:
            return "Name the processes that run Python: a rank may be the child of a shell or of a launcher."
        case NoStacks.FREE_THREADED:
            return (
                "Start the job with `distdbg launch`: then each rank writes its own Python stacks. "
                "Or use a build of Python with the GIL (python3.14, not python3.14t)."
            )
        case None:
            return "Try again. `py-spy dump --pid PID` on the rank's machine shows what py-spy prints."


def _permission_remedy() -> str:
    """The obstacle on this machine: Yama, a container without the capability, or another user."""
    words = []
    with contextlib.suppress(OSError, ValueError):
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
        if scope >= 3:
            words.append("Yama forbids it to everybody until the next boot (kernel.yama.ptrace_scope is 3).")
        elif scope:
            words.append(f"Yama allows it to root only (kernel.yama.ptrace_scope is {scope}): `sudo`, "
                         "or `sysctl kernel.yama.ptrace_scope=0`.")  # fmt: skip
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        words.append("In a container start it with `--cap-add SYS_PTRACE`.")
    return " ".join(words) or "Look as root, or as the user who owns the ranks; in a container it takes SYS_PTRACE."
