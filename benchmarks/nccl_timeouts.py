"""What `explain` finds after torch's own timeout: every program of tests/programs/nccl with one backend of NCCL.

    python benchmarks/nccl_timeouts.py [--torch 2.15.0] [--backend nccl2] [--only PATTERN] [--at-once 3]

Runs on the GPU box. A row a program: whether all its verdicts are as its docstring says, and, of those that torch's
timeout ends, the ranks that the live verdict names, that `explain` names by the logs alone, by the recorders' files
alone, and by both. The last lines count the programs in which each kind of evidence names the same ranks as the live
verdict. 70 programs take about ten minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from distdbg.model import fold_ranks
from gpu_box.build import TORCH, build
from tests.gpu.nccl_program import Program, Report, check, reports

PROGRAMS = Path(__file__).parents[1] / "tests" / "programs" / "nccl"
BACKENDS = {"nccl2": {}, "legacy": {"TORCH_DIST_USE_NCCL2": "0"}}
ROUTES = ("live", "logs", "recorders", "recorders and logs")


def culprits(report: Report) -> str:
    """The ranks of the first error that no other explains; torch's timeout alone names none."""
    roots = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == "error"]
    first = next((f for f in roots if (f["id"], f["confidence"]) != ("nccl-error", "possible")), None)
    return fold_ranks(first["ranks"]) if first is not None else "-"


def run(path: Path, root: Path, backend: str) -> tuple[str, dict[str, str]]:
    """(what is wrong or "", the ranks by route) of one program."""
    program = Program(path)
    wanted = program.wanted.of_nccl2() if backend == "nccl2" else program.wanted
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = program.launch(Path(folder), root, BACKENDS[backend])
        except subprocess.TimeoutExpired as error:
            return f"nothing ended the job in {error.timeout:.0f} s", {}
        told = dict(reports(wanted, done))
        problems = [problem for route, report in told.items() if (problem := check(wanted, route, report))]
    named = {route: culprits(told[route]) for route in ROUTES if route in told}
    return "; ".join(problems), named if wanted.hangs and not wanted.silent else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=TORCH)
    parser.add_argument("--backend", choices=BACKENDS, default="nccl2")
    parser.add_argument("--only", default="", help="regular expression over a program's name")
    parser.add_argument("--at-once", type=int, default=3)
    options = parser.parse_args()
    root = build(options.torch)
    chosen = [path for path in sorted(PROGRAMS.glob("*.py")) if re.search(options.only, path.stem)]
    hung = {}
    print(f"| torch {options.torch}, {options.backend} | as promised | {' | '.join(ROUTES)} |")
    with ThreadPoolExecutor(options.at_once) as pool:
        results = pool.map(lambda path: run(path, root, options.backend), chosen)
        for path, (problem, named) in zip(chosen, results, strict=True):
            cells = [named.get(route, "") for route in ROUTES]
            print(f"| {path.stem} | {problem or 'yes'} | {' | '.join(cells)} |", flush=True)
            if named:
                hung[path.stem] = named
    for route in ROUTES[1:]:
        same = sum(named[route] == named["live"] for named in hung.values())
        print(f"{route}: {same} of {len(hung)} programs, the ranks of the live verdict")
    return 0


if __name__ == "__main__":
    sys.exit(main())
