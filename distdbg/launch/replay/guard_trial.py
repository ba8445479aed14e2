"""Run programs with a mistake, and healthy look-alikes, under the guards: all of them in one pair of ranks.

Only the launcher is left out: the ranks start through boot.py, what they tell goes through the checks. A program says
in its docstring what is to be found in it:

    Guard: missing-set-epoch; line: for (x,) in batches:; ranks: 0-1
    Guard: none

and, where it is not to run under the defaults, `Modes: missing-set-epoch=fix`; `Arguments: --words and more`; `Ends:
RuntimeError` where it is to end with that. Its first argument is the folder that it stands in.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.diagnosis.rules import all_rules
from distdbg.evidence.records import RankTexts, rank_record
from distdbg.evidence.run import RunEvidence
from distdbg.launch.io.ports import ReservedPort
from distdbg.model import Finding, fold_ranks
from distdbg.protocol.chosen_ranks import ChosenRanks
from distdbg.protocol.facts import TrialDone, TrialRaised, failure_of
from distdbg.whole_file import open_own

RANKS = 2
_TRIAL_RANKS = ChosenRanks(nodes=1, gpus=RANKS, ranks=tuple(range(RANKS)))
_START_S, _PROGRAM_S = 120.0, 8.0
_BOOT = Path(__file__).resolve().parents[2] / "worker" / "boot.py"
_DRIVER = Path(__file__).resolve().parent / "guard_driver.py"
_PROMISE = re.compile(r"^Guard: (?P<id>[\w-]+)(?:; line: (?P<line>.+?))?(?:; ranks: (?P<ranks>[\d,-]+))?$", re.M)


@dataclass(frozen=True)
class GuardTrial:
    """One program: its findings, and what else its ranks reported (a guard that failed, an exception)."""

    program: Path
    findings: tuple[Finding, ...]
    trouble: tuple[str, ...]

    @property
    def complaint(self) -> str:
        """What is otherwise than the program promises; empty where all is well."""
        if self.trouble:
            return "; ".join(self.trouble)
        source = self.program.read_text(encoding="utf-8")
        promise = _PROMISE.search(source)
        if promise is None:
            return "its docstring promises nothing"
        found = [finding.id for finding in self.findings]
        if found != [promise["id"]] * (promise["id"] != "none"):
            return f"found {', '.join(found) or 'nothing'}, and not {promise['id']}" + "".join(
                f"; {f.summary}" for f in self.findings
            )
        for finding in self.findings:
            if promise["ranks"] and fold_ranks(finding.ranks) != promise["ranks"]:
                return f"found on ranks {fold_ranks(finding.ranks)}, and not {promise['ranks']}"
            if promise["line"] and self._line(finding, source) != promise["line"]:
                return f"found at {finding.evidence[0].where}: {self._line(finding, source)}"
        return ""

    def _line(self, finding: Finding, source: str) -> str:
        """The source at the place that the finding names."""
        place = re.search(r":(\d+)", finding.evidence[0].where or "")
        lines = source.splitlines()
        return lines[int(place[1]) - 1].strip() if place and int(place[1]) <= len(lines) else ""


def run_trials(programs: Sequence[Path], timeout: float | None = None) -> list[GuardTrial]:
    """Run them one after another. Raises TimeoutError where they do not come to their end in `timeout` seconds; None
    for what so many may take on a busy machine."""
    with tempfile.TemporaryDirectory(prefix="ddbg") as name:
        folder = Path(name)
        copies = []
        for number, program in enumerate(programs):  # a program within site-packages would not count as the user's
            copy = folder / f"{number:03}" / program.name
            copy.parent.mkdir()
            shutil.copy(program, copy)
            copies.append(copy)
        by_rank = _run(folder, copies, timeout or _START_S + _PROGRAM_S * len(copies))
    return [
        GuardTrial(program, tuple(_findings(by_rank, number)), tuple(_trouble(by_rank, number)))
        for number, program in enumerate(programs)
    ]


def _run(folder: Path, programs: list[Path], timeout: float) -> list[list[dict[str, Any]]]:
    """The messages of each rank, in their order."""
    port = ReservedPort()
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as stack:
        server.bind(str(folder / "agent.sock"))
        server.listen()
        lines: dict[socket.socket, bytes] = {}
        ranks = []
        for rank in range(RANKS):
            own = {**_TRIAL_RANKS.variables(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.number),
                   "DISTDBG_NODE_DIR": str(folder), "OMP_NUM_THREADS": "1"}  # fmt: skip
            command = [sys.executable, "-u", str(_BOOT), str(_DRIVER), *map(str, programs)]
            log = stack.enter_context(os.fdopen(open_own(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT), "wb"))
            process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            stack.callback(_end, process)
            ranks.append(process)
        _listen(server, lines, ranks, time.monotonic() + timeout, folder)
    return _by_rank(lines.values())


def _listen(
    server: socket.socket, lines: dict[socket.socket, bytes], ranks: list[subprocess.Popen[bytes]], until: float,
    folder: Path,
) -> None:  # fmt: skip
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        open_lines = len(ranks)
        while open_lines:
            if time.monotonic() > until or (not lines and all(r.poll() is not None for r in ranks)):
                logs = [(folder / f"{n}.log").read_text(errors="replace")[-2000:] for n in range(len(ranks))]
                raise TimeoutError("the programs did not come to their end\n" + "\n".join(logs))
            for key, _ in selector.select(0.5):
                if key.fileobj is server:
                    line, _ = server.accept()
                    lines[line] = b""
                    selector.register(line, selectors.EVENT_READ)
                    continue
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(1 << 16)
                lines[key.fileobj] += data
                if not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    open_lines -= 1


def _by_rank(lines: Iterable[bytes]) -> list[list[dict[str, Any]]]:
    by_rank: list[list[dict[str, Any]]] = [[] for _ in range(RANKS)]
    for line in lines:
        messages = [json.loads(text) for text in line.splitlines() if text]
        by_rank[messages[0]["rank"]] = messages
    return by_rank


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()
    process.wait()


def _of(messages: list[dict[str, Any]], number: int) -> Iterable[tuple[int, dict[str, Any]]]:
    """The facts of program `number`, with their lines."""
    running = -1
    for line, message in enumerate(messages, 1):
        if message.get("kind") == "trial":
            running = message["number"]
        elif running == number:
            yield line, message


def _findings(by_rank: list[list[dict[str, Any]]], number: int) -> Iterable[Finding]:
    ranks = [
        rank_record(rank, None, {"host": "here"}, _texts(f"ranks/{rank}", list(_of(said, number))))
        for rank, said in enumerate(by_rank)
    ]
    evidence = RunEvidence({}, 1, tuple(ranks), ())
    return (finding for rule in all_rules() for finding in rule.run(evidence))


def _texts(folder: str, said: list[tuple[int, dict[str, Any]]]) -> RankTexts:
    """Distribute the messages to the rank's files as an agent would."""
    gradients = tuple((line, message) for line, message in said if message.get("op") == "gradients")
    return RankTexts(folder, {"exit_code": 0}, tuple(said), gradients=gradients)


def _trouble(by_rank: list[list[dict[str, Any]]], number: int) -> Iterable[str]:
    for rank, said in enumerate(by_rank):
        facts = [fact for _, fact in _of(said, number)]
        for fact in facts:
            if failure_of(fact) is not None or fact.get("kind") == TrialRaised.spec.name:
                yield f"rank {rank}: {fact}"
        if not TrialDone.is_in([(0, fact) for fact in facts]):
            yield f"rank {rank} did not come to its end"
