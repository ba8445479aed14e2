"""One program of tests/programs/nccl: its verdict, its launch on simulated GPUs, and the reports by every route."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.model import fold_ranks
from distdbg.report.json_form import as_json
from distdbg.rundir import RunDir
from gpu_box.box import gpu_box
from tests.conftest import Finished, environment_in
from tests.gpu.fixtures import NO_VALUES

_VERDICT = re.compile(
    r"^(?P<kind>Verdict|Hang|Slow): (?P<ids>[\w|-]+)(?:; ranks: (?P<ranks>[\d,|-]+))?(?:; says: (?P<says>[^;\n]+))?"
    r"(?:; side: (?P<side>host|device))?(?:; module: (?P<module>[\w.]+))?(?:; phase: (?P<phase>forward|backward))?"
    r"(?:; code: (?P<code>\d+) of rank (?P<code_of>\d+))?$",
    re.M,
)
_ENDS_SOON = ("--hang-timeout", "5", "--startup-timeout", "60", "--grace", "1")

Report = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What the docstring of a program promises."""

    ids: tuple[str, ...]
    ranks: tuple[str, ...]
    says: str
    side: str | None
    #: the part of the model that the others wait in, by the live verdict
    module: str | None
    phase: str | None
    #: torch's own timeout ends the job, and what it leaves must name the same ranks
    hangs: bool
    #: it ends well, and the finding is a warning
    slow: bool
    #: (exit code, rank) of the job; None where it is not promised
    code: tuple[int, int] | None
    #: by the evidence left, `recorders` or `logs`: the ranks that it names; empty where it decides nothing
    left: dict[str, str]

    def of_nccl2(self) -> Wanted:
        """The lines of this backend name no operation and no number: from logs alone nobody is named."""
        return replace(self, left=self.left | {"logs": ""})

    @property
    def silent(self) -> bool:
        return self.ids in (("none",), ("unknown",))


class Program:
    def __init__(self, path: Path) -> None:
        self.path, self._text = path, path.read_text()

    @property
    def wanted(self) -> Wanted:
        found = _VERDICT.search(self._text)
        assert found, f"{self.path} promises no verdict"
        ranks = tuple((found["ranks"] or "").split("|")) if found["ranks"] else ()
        left = dict.fromkeys(("recorders", "logs"), ranks[0] if ranks else "")
        left |= {
            what: "" if told == "unknown" else told for told, what in self._lines(r"Without stacks: (\S+) by (\w+)")
        }
        code = (int(found["code"]), int(found["code_of"])) if found["code"] else None
        ids = tuple(found["ids"].split("|"))
        hangs, slow = found["kind"] == "Hang", found["kind"] == "Slow"
        return Wanted(ids, ranks, found["says"] or "", *found.group("side", "module", "phase"), hangs, slow, code, left)

    def _lines(self, pattern: str) -> list[Any]:
        return re.findall(f"^{pattern}$", self._text, re.M)

    def launch(self, folder: Path, torch: Path, environment: Mapping[str, str]) -> Finished:
        """Run it in `folder`; each report that is written meanwhile is kept there, too."""
        ranks = next(iter(self._lines(r"Ranks: (\d+)")), "3")
        options = " ".join(self._lines("Options: (.*)")).split()
        own = environment_in(folder) | dict(environment)
        own |= {"OMP_NUM_THREADS": "1", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"}
        on_hang = "report" if self.wanted.hangs else "kill"
        words = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", ranks, *_ENDS_SOON]
        words += [
            *NO_VALUES,
            "--on-hang",
            on_hang,
            "--on-finding",
            f"cat > {folder}/report.$(date +%s%N).json",
            *options,
        ]
        devices = int(next(iter(self._lines(r"Devices: (\d+)")), ranks))
        with gpu_box(torch, devices=devices, memory="8G", faults={None: self._lines("Fault: (.*)")}) as box:
            done = subprocess.run(
                [*words, str(self.path)], cwd=folder, env=own | box.environment(own), stdin=subprocess.DEVNULL,
                capture_output=True, timeout=240, check=False,
            )  # fmt: skip
        return Finished(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr), folder)


def reports(wanted: Wanted, done: Finished) -> Iterator[tuple[str, Report]]:
    """(route, report): the job's own at the end; of one that hung also what was said while it lived, and what follows
    from the files that torch left."""
    yield "end", json.loads(done.run.report_json.read_text())
    if not wanted.hangs:
        return
    if not wanted.silent:
        yield "live", json.loads(min(done.cwd.glob("report.*.json")).read_text())
    yield "run without dumps", _explained(_without_dumps(done.run, done.cwd / "bare"))
    recorders, logs = done.cwd / "recorders", done.cwd / "logs"
    for rank, files in done.run.attempt(1).ranks().items():
        _copy(files.recorder, recorders / f"recorder_{rank}")
        _copy(files.stderr, logs / f"rank{rank}.log")
    yield "recorders", _explained(recorders)
    yield "logs", _explained(logs)
    yield "recorders and logs", _explained(recorders, logs)


def check(wanted: Wanted, route: str, report: Report) -> str:
    """What is wrong with a report; empty where nothing is."""
    severity = "warning" if wanted.slow else "error"
    roots = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == severity]
    if wanted.silent:
        return _check_silent(wanted, route, report, roots)
    if route in ("end", "live"):
        return _check_verdict(wanted, route, report, roots)
    if not wanted.left.get(route, "undecided"):
        return _check_silent(wanted, route, report, roots)
    named = {fold_ranks(f["ranks"]) for f in roots}
    told = {wanted.left[route]} if route in wanted.left else set(wanted.left.values())
    told.discard("")
    if named != told:
        return f"{route}: ranks {sorted(named)} are named, not {sorted(told)}"
    return f"{route}: side {roots[0]['side']}" if roots and wanted.side not in (None, roots[0]["side"]) else ""


def _check_silent(wanted: Wanted, route: str, report: Report, roots: list[Report]) -> str:
    """Torch's timeout is a finding of its own, on the ranks that it ended."""
    named = [r["id"] for r in roots if (r["id"], r["confidence"], wanted.hangs) != ("nccl-error", "possible", True)]
    undecided = bool(report["unknown"]) or bool(roots) or wanted.ids == ("none",)
    return "" if not named and undecided else f"{route}: {named or 'not even unknown'}"


def _check_verdict(wanted: Wanted, route: str, report: Report, roots: list[Report]) -> str:
    if not roots or roots[0]["id"] not in wanted.ids:
        return f"{route}: {[r['id'] for r in roots]} instead of {wanted.ids}"
    first = roots[0]
    if wanted.slow:
        return "" if report["exit_code"] == 0 and _is(wanted, first) else f"{route}: {first}"
    said = first["summary"] + first["cause"] + "".join(e["quote"] for e in first["evidence"])
    beside = {rank for root in roots for rank in root["ranks"]} - set(first["ranks"])
    code = report["exit_code"], report["exit_code_of"]
    wrong = {
        f"ranks {fold_ranks(first['ranks'])}": wanted.ranks and fold_ranks(first["ranks"]) not in wanted.ranks,
        f"side {first['side']}": wanted.side not in (None, first["side"]),
        f"module {first['module']}": wanted.module not in (None, first["module"]),
        f"phase {first['phase']}": wanted.phase not in (None, first["phase"]),
        f"also ranks {sorted(beside)}": beside,
        f"nothing of {wanted.says}": wanted.says not in said,
        f"exit code {code}": wanted.code and code != (wanted.code[0], f"rank {wanted.code[1]}"),
    }
    return "; ".join(f"{route}: {what}" for what, is_wrong in wrong.items() if is_wrong)


def _is(wanted: Wanted, first: Report) -> bool:
    return fold_ranks(first["ranks"]) in wanted.ranks and first["side"] == wanted.side


def _without_dumps(run: RunDir, folder: Path) -> Path:
    shutil.copytree(run.path, folder, ignore=lambda _, names: {"dumps", "report"}.intersection(names))
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    if source.is_file():
        shutil.copyfile(source, target)


def _explained(*paths: Path) -> Report:
    return as_json(build_report(load(paths)))
