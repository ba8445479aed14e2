"""The verdict of every test program, recorded once and diagnosed again by any version of distdbg.

    python benchmarks/verdicts.py record RUNS            launch the programs, keep their run directories under RUNS
    python benchmarks/verdicts.py table RUNS [--save F]  diagnose these again: program, ids, ranks, line, confidence, s
    python benchmarks/verdicts.py compare BEFORE AFTER   two saved tables: what differs; exit code 1 if anything does

`record` needs a quiet machine and about half an hour; `table` takes a minute and uses the same evidence each time. So a
change of the diagnosis is compared without noise, and a change of the collection is recorded again and then compared.
`record RUNS --box 2.15.0` gives the ranks that torch of the GPU box, without a device.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_box.box import gpu_box
from gpu_box.build import build

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "programs"
_FOUR_RANKS = ("--nodes", "2", "--nproc-per-node", "2")
#: A program whose docstring has this line runs on one node, as its test does.
_ON_TWO_RANKS = re.compile(r"^On two ranks\.$", re.MULTILINE)
_ENDS_SOON = ("--hang-timeout", "6", "--startup-timeout", "30", "--on-hang", "kill", "--grace", "1")
#: Folder of programs -> options of `distdbg launch`, as the tests of these programs give them.
FOLDERS = {
    "dies": (*_FOUR_RANKS, "--worker-side", "on"),
    "dies_desync": (*_FOUR_RANKS, "--worker-side", "on"),
    "healthy": (*_FOUR_RANKS, "--worker-side", "on"),
    "healthy_slow": _FOUR_RANKS,
    "hangs": (*_FOUR_RANKS, *_ENDS_SOON),
    "memory": ("--memory", "--nproc-per-node", "1"),
}
#: Programs mostly wait: three at once keep two cores busy.
_AT_ONCE = 3
_LONGEST_S = 300


@dataclass(frozen=True)
class Verdict:
    """One finding of a program's report. `seconds`: of the diagnosis. A program without findings has one with no id."""

    program: str
    outcome: str
    exit_code: int | None
    id: str = ""
    ranks: str = ""
    line: str = ""
    confidence: str = ""
    explained_by: str = ""
    seconds: float = 0.0

    @property
    def compared(self) -> tuple[Any, ...]:
        return tuple(value for name, value in asdict(self).items() if name != "seconds")


def record(folder: Path, pattern: str, environment: Mapping[str, str]) -> None:
    def one(program: Path) -> None:
        place = folder / program.parent.name / program.stem
        place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "distdbg", "launch", "--run-dir", str(place / "run")]
        command += [*FOLDERS[program.parent.name], *_nodes(program), str(program)]
        with (place / "output.txt").open("wb") as output:
            subprocess.run(
                command, cwd=place, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=_LONGEST_S,
                check=False, env={**os.environ, **environment, "HOME": str(place), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        print(f"{program.parent.name}/{program.stem}", file=sys.stderr, flush=True)

    chosen = [p for name in FOLDERS for p in sorted((PROGRAMS / name).glob("*.py")) if re.search(pattern, str(p))]
    missing = [p for p in chosen if not (folder / p.parent.name / p.stem / "run" / "report" / "report.json").is_file()]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(one, missing))


def _nodes(program: Path) -> list[str]:
    return ["--nodes", "1"] if _ON_TWO_RANKS.search(program.read_text()) else []


def diagnosed(folder: Path) -> list[Verdict]:
    runs = sorted(folder.glob("*/*/run/job.json"))
    with ThreadPoolExecutor(2) as pool:
        return [verdict for found in pool.map(_diagnose, runs) for verdict in found]


def _diagnose(job: Path) -> list[Verdict]:
    begun = time.monotonic()
    command = [sys.executable, "-m", "distdbg", "explain", "--json", str(job.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=job.parent)
    seconds = round(time.monotonic() - begun, 1)
    program = "/".join(job.parts[-4:-2])
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return [Verdict(program, f"no report: {done.stderr.strip()[-200:]}", done.returncode)]
    head = program, report["outcome"], report["exit_code"]
    found = [
        Verdict(
            *head, one["id"], _ranks(one["ranks"]), _line(one), one["confidence"], one["explained_by"] or "", seconds
        )
        for one in report["findings"]
    ]
    return found or [Verdict(*head, seconds=seconds)]


def _ranks(ranks: list[int]) -> str:
    return ",".join(map(str, ranks))


def _line(finding: dict[str, Any]) -> str:
    """The line of the program that the finding names."""
    said = re.search(r"([\w.-]+\.py):(\d+)", finding["summary"] + " " + finding["cause"])
    return said[0] if said else ""


def table(verdicts: list[Verdict]) -> str:
    head = ("program", "outcome", "code", "id", "ranks", "line", "confidence", "explained by", "s")
    rows = [head, *(tuple(map(str, asdict(one).values())) for one in verdicts)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def compare(before: Path, after: Path) -> list[str]:
    def read(path: Path) -> dict[str, list[Verdict]]:
        found: dict[str, list[Verdict]] = {}
        for one in json.loads(path.read_text()):
            found.setdefault(one["program"], []).append(Verdict(**one))
        return found

    first, second = read(before), read(after)
    changed = []
    for program in sorted(first.keys() | second.keys()):
        was, now = first.get(program, []), second.get(program, [])
        if [one.compared for one in was] != [one.compared for one in now]:
            changed.append(f"{program}\n  before:\n{_indented(was)}\n  after:\n{_indented(now)}")
    return changed


def _indented(verdicts: list[Verdict]) -> str:
    return "\n".join(f"    {' '.join(str(cell) for cell in one.compared[1:])}" for one in verdicts) or "    nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "table"):
        commands.add_parser(name).add_argument("runs", type=Path)
    commands.choices["record"].add_argument("--only", default="", help="regular expression over a program's path")
    commands.choices["record"].add_argument("--box", metavar="VERSION", help="torch of the GPU box for the ranks")
    commands.choices["table"].add_argument("--save", type=Path, help="JSON file for `compare`")
    comparison = commands.add_parser("compare")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        if given.box is None:
            record(given.runs.resolve(), given.only, {})
        else:
            with gpu_box(build(given.box), devices=1, memory="1G") as box:
                record(given.runs.resolve(), given.only, {**box.environment(), "CUDA_VISIBLE_DEVICES": ""})
    elif given.command == "table":
        verdicts = diagnosed(given.runs.resolve())
        if given.save:
            given.save.write_text(json.dumps([asdict(one) for one in verdicts], indent=1))
        print(table(verdicts))
    else:
        changed = compare(given.before, given.after)
        print("\n".join(changed) or "no verdict differs")
        return 1 if changed else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
