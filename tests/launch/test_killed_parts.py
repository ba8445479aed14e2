"""The launcher, an agent, torchrun or a rank is killed at a random moment of a run that restarts once.

What is true is known from the signal that the test sent and from the markers of the ranks. The report of each attempt
must say nothing else. The moments are seeded: an event of the run, and a delay after it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distdbg.collect.machine import procfs
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.collect.runs.run_status import run_status
from distdbg.diagnosis.verdict import build_report
from distdbg.model import Report
from distdbg.rundir import RunDir
from tests.conftest import processes_of

pytestmark = [pytest.mark.slow]
PROGRAM = Path(__file__).parents[1] / "programs" / "markers.py"
STEPS = 12
PARTS = ("launcher", "agent", "torchrun", "rank")
#: Files below the test's folder. The first that exists begins the delay.
MOMENTS = (
    "run", "run/job.json", "run/attempts/1/nodes/*", "run/attempts/1/nodes/0000-*/events.jsonl",
    "run/attempts/1/ranks/00000", "1-0.started", "1-3.started", "1-1.step", "1-1.ended",
    "run/attempts/1/ranks/00001/exit.json", "run/attempts/1/ranks/00003/exit.json", "run/attempts/2/nodes/*",
    "2-0.started", "2-3.started", "2-1.step", "2-0.ended", "2-3.ended", "run/attempts/2/ranks/00003/exit.json",
)  # fmt: skip
MOST_DELAY_S = 0.3
#: A rank ended by its agent or by torchrun
STOPPED = {-signal.SIGTERM, -signal.SIGKILL}


@dataclass
class Truth:
    """`killed` is the part that got SIGKILL while it lived; `node`, `rank` and `attempt` are its own."""

    markers: Path
    killed: str = ""
    pid: int = 0
    node: int | None = None
    rank: int | None = None
    attempt: int | None = None
    was_cancelled: bool = False
    out: str = ""
    code: int | None = None
    ended: dict[tuple[int, int], int] = field(default_factory=dict)
    started: set[tuple[int, int]] = field(default_factory=set)

    def read_markers(self) -> None:
        for path in self.markers.glob("*.*"):
            attempt, _, rank = path.stem.partition("-")
            if path.suffix == ".ended":
                self.ended[int(attempt), int(rank)] = int(path.read_text())
            elif path.suffix == ".started":
                self.started.add((int(attempt), int(rank)))


class Run:
    """A launch of two nodes with two ranks each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dir = folder, RunDir(folder / "run")
        self.log = (folder / "out").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distdbg", "launch", "--run-dir", str(self.dir.path), "--nodes", "2",
             "--nproc-per-node", "2", "--max-restarts", "1", "--grace", "3", str(PROGRAM), str(folder), str(STEPS)],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def wait_for(self, condition) -> bool:
        """Wait for the condition, or for the end of the launcher."""
        while not condition():
            if self.process.poll() is not None:
                return bool(condition())
            time.sleep(0.005)
        return True

    def agents(self) -> dict[int, int]:
        """The pid of the agent of each node."""
        lines = {pid: command_line(pid) for pid in procfs.children(self.process.pid)}
        return {int(line[line.index("--node-rank") + 1]): pid for pid, line in lines.items() if "--node-rank" in line}

    def torchruns(self, agent: int) -> list[int]:
        return [pid for pid in procfs.children(agent) if "--rdzv-backend" in command_line(pid)]

    def kill(self, truth: Truth, part: str, node: int, rank: int) -> None:
        """Kill the part once it exists, and note it as killed if it lived."""
        found: list[int] = []

        def exists() -> bool:
            agent = self.agents().get(node)
            if part == "launcher":
                found[:] = [self.process.pid]
            elif part == "agent":
                found[:] = [agent] if agent else []
            elif part == "torchrun":
                found[:] = self.torchruns(agent) if agent else []
            else:
                newest = max(self.folder.glob(f"*-{rank}.started"), default=None)
                found[:] = [int(newest.read_text())] if newest else []
                truth.attempt = int(newest.name[0]) if newest else None
            return bool(found)

        if not self.wait_for(exists):
            return
        try:
            descriptor = os.pidfd_open(found[0])
        except ProcessLookupError:
            return
        fields = procfs.stat_fields(found[0])
        if fields and fields[0] != "Z":
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            truth.killed, truth.pid, truth.node, truth.rank = part, found[0], node, rank
        os.close(descriptor)

    def finish(self, truth: Truth) -> int:
        """Wait for the end. A torchrun that waits for a node that has finished (five minutes) is cancelled."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            truth.was_cancelled = True
            self.process.terminate()
            code = self.process.wait(60)
        self.log.close()
        end = time.monotonic() + 60
        while (left := processes_of(self.folder)) and time.monotonic() < end:
            for pid in left:  # the server of a torchrun that is gone may start a rank after that (tests/fork_server)
                if "boot.py" in left[pid] and time.monotonic() > end - 50:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        return code


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def killed_at(folder: Path, seed: int) -> tuple[Run, Truth]:
    chance = random.Random(seed)
    part, moment = PARTS[seed % len(PARTS)], chance.choice(MOMENTS)
    delay_s, node = chance.uniform(0, MOST_DELAY_S), chance.randrange(2)
    rank = node * 2 + chance.randrange(2)
    run, truth = Run(folder), Truth(folder)
    run.wait_for(lambda: any(folder.glob(moment)))
    time.sleep(delay_s)
    run.kill(truth, part, node, rank)
    truth.code = run.finish(truth)
    truth.out = (folder / "out").read_text(errors="replace")
    truth.read_markers()
    return run, truth


def check_ranks(report: Report, attempt: int, truth: Truth) -> None:
    for rank in report.ranks:
        key, state = (attempt, rank.rank), rank.state
        killed = truth.killed == "rank" and key == (truth.attempt, truth.rank)
        if state == "finished":
            assert truth.ended.get(key) == 0, (key, state)
        elif state.startswith("failed"):
            assert truth.ended.get(key) == 3 and "exit code 3" in state, (key, state)
        elif state.startswith("killed"):
            assert killed, (key, state)
        else:
            assert state == "unknown" or state.startswith("stopped"), (key, state)
            assert not (killed and state.startswith("stopped (SIGTERM")), (key, state)


def check_findings(report: Report, attempt: int, truth: Truth) -> None:
    for finding in report.findings:
        if finding.id == "rank-exception":
            assert truth.ended.get((attempt, 1)) == 3 and finding.ranks == (1,), finding
        elif finding.id == "rank-killed":
            assert truth.killed == "rank" and (attempt, finding.ranks) == (truth.attempt, (truth.rank,)), finding
        elif finding.id == "launcher-lost":
            assert truth.killed == "launcher" and str(truth.pid) in finding.summary, finding
        elif finding.id == "node-lost":
            assert truth.killed in ("agent", "torchrun"), finding
            assert f"node {truth.node} " in finding.summary and truth.killed in finding.summary, finding
            assert {rank // 2 for rank in finding.ranks} <= {truth.node}, finding
            assert not any(rank.state == "finished" for rank in report.ranks if rank.rank in finding.ranks), finding
        elif finding.id == "launch-failed":
            assert truth.killed in ("agent", "torchrun") and attempt == 1, finding
            assert not any(number == attempt for number, _ in truth.started), finding
        else:
            assert finding.id == "restarted" and attempt >= 2, finding


def check_outcome(report: Report, attempt: int, truth: Truth) -> None:
    all_ended = {truth.ended.get((attempt, rank)) for rank in range(4)} == {0}
    assert report.outcome in ("succeeded", "failed", "unknown") or (report.outcome, truth.was_cancelled) == (
        "cancelled",
        True,
    )
    if report.outcome == "succeeded":
        assert all_ended and report.exit_code == 0
    if report.outcome == "failed":
        assert truth.killed or truth.ended.get((attempt, 1)) == 3
        assert report.verdict or report.exit_code not in (None, 0)
    whose = report.exit_code_of or ""
    assert "still running" not in whose and report.exit_code not in (75, 0 if truth.was_cancelled else 143), whose
    if whose.startswith("rank ") and report.outcome != "succeeded":
        key = attempt, int(whose.split()[1])
        killed = 137 if (truth.attempt, truth.rank) == key else None
        assert report.exit_code in (truth.ended.get(key), killed), (whose, report.exit_code)


def check_nothing_is_silent(report: Report, attempt: int, truth: Truth) -> None:
    """What was killed in this attempt, while its ranks had something to do, is in the report."""
    ids = {finding.id for finding in report.findings}
    if truth.killed == "rank" and truth.attempt == attempt and (attempt, truth.rank) not in truth.ended:
        assert "rank-killed" in ids or any("exit code of rank" in unknown.what for unknown in report.unknown)


@pytest.mark.parametrize("seed", range(30))
def test_reports_say_nothing_false_after_a_kill(tmp_path: Path, seed: int) -> None:
    run, truth = killed_at(tmp_path, seed)
    attempts = [attempt.number for attempt in run.dir.attempts()] if run.dir.path.exists() else []
    for attempt in attempts:
        report = build_report(load_evidence(run.dir, attempt))
        note = f"seed {seed}, killed {truth.killed} {truth.pid}, attempt {attempt}: {report}\n{truth}"
        try:
            check_ranks(report, attempt, truth)
            check_findings(report, attempt, truth)
            check_outcome(report, attempt, truth)
            check_nothing_is_silent(report, attempt, truth)
        except AssertionError as error:
            error.add_note(note) if hasattr(error, "add_note") else print(note)
            raise
    if not run.dir.path.exists():
        return
    status = run_status(run.dir)
    assert status.live is False or not run.dir.job.exists(), status
    if truth.killed == "launcher":
        assert truth.code == -signal.SIGKILL and status.outcome != "cancelled", (status, truth)
        over = any(json.loads(line)["event"] == "agents-gone" for line in run.dir.events.read_text().splitlines())
        left = [n for n in range(4) if truth.ended.get((max(attempts, default=1), n)) is None]
        if attempts and left and not over:
            report = build_report(load_evidence(run.dir))
            assert "launcher-lost" in {finding.id for finding in report.findings}, (report, truth)
    else:
        report = build_report(load_evidence(run.dir))
        assert report.exit_code in (truth.code, None), (report, truth)
