"""What it costs to look at large runs: a look of `distdbg top`, and the report page with the run over its steps.

    python benchmarks/run_scale.py                              1,024 and 4,096 ranks
    python benchmarks/run_scale.py --ranks 64 --looks 8640      a day of 64 ranks
    python benchmarks/run_scale.py --check                      exit code 1 over 0.5 s a look, or a page of 2 MB

Run directories are generated: eight ranks and eight GPUs a node, a line of figures for every ten seconds. Measured are
the CPU seconds of the first look and of one that finds nothing new, on a terminal of 150 by 40; and of the page, and
how large it is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PER_NODE = 8
MOST_LOOK_S, MOST_PAGE_MB = 0.5, 2.0
T0 = 1_790_000_000.0


def write_run(folder: Path, ranks: int, looks: int) -> None:
    """A job that is healthy, but for one rank in a thousand that is slower and larger than the others."""
    from distdbg.rundir import RunDir

    attempt = RunDir(folder).attempt(1)
    (folder / "attempts").mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"id": folder.name, "topology": {"world_size": ranks}}))
    (folder / "events.jsonl").write_text(json.dumps({"t": T0, "event": "launched"}) + "\n")
    for node in range(ranks // PER_NODE):
        files = attempt.node(node, f"node{node}")
        files.folder.mkdir(parents=True)
        mine = range(node * PER_NODE, (node + 1) * PER_NODE)
        events = [{"event": "agent-started", "host": f"node{node}", "node_rank": node},
                  {"event": "attempt-started", "attempt": 1, "ranks": {str(r): r % PER_NODE for r in mine}},
                  *({"event": "rank-started", "rank": r, "pid": 1000 + r} for r in mine)]  # fmt: skip
        files.events.write_text("".join(json.dumps({"t": T0, **event}) + "\n" for event in events))
        with files.metrics.open("w") as file:
            for look in range(looks):
                file.write(json.dumps(figures(mine, look)) + "\n")
        for rank in mine:
            attempt.rank(rank).folder.mkdir(parents=True)


def figures(ranks: range, look: int) -> dict[str, Any]:
    rows = [
        {"rank": r, "pid": 1000 + r, "step": 12 * look, "phase": "backward", "rate": 9.8, "data_wait": 0.01,
         "step_ms": (18.0 if r % 1000 == 7 else 12.0) + (look * r) % 7 / 10, "epochs": 0, "cpu": 10.0 * look,
         "rss": (9 if r % 1000 == 7 else 4) << 30, "anon": 3 << 30, "alive": True, "exit_code": None}
        for r in ranks
    ]  # fmt: skip
    gpus = [
        {"index": r % PER_NODE, "utilisation": 90 + r % 9, "memory_used": 60 << 30, "memory_total": 80 << 30,
         "temperature": 60, "power": 650.0, "throttle": ["power cap"], "ecc_uncorrected": 0, "ranks": [r]}
        for r in ranks
    ]  # fmt: skip
    memory = {"oom_kill": 0, "limit": None, "current": 1 << 36, "available": 600 << 30}
    return {"t": T0 + 10 * look, "event": "metrics", "ranks": rows, "memory": memory, "gpus": gpus}


def measure(folder: Path, ranks: int, looks: int) -> dict[str, float]:
    write_run(folder, ranks, looks)
    first, again = (round(seconds, 2) for seconds in look_twice(folder))
    page_s, size = page(folder)
    return {"ranks": ranks, "looks": looks, "first_look_s": first, "next_look_s": again,
            "page_s": round(page_s, 2), "page_MB": round(size / 1e6, 2)}  # fmt: skip


def look_twice(folder: Path) -> list[float]:
    from rich.console import Console

    from distdbg.collect.runs.run_tail import RunTail
    from distdbg.launch.live.top import Top
    from distdbg.launch.live.top_view import TopView
    from distdbg.rundir import RunDir

    tail, view = RunTail(RunDir(folder)), TopView(Top())
    spent = []
    with Path("/dev/null").open("w") as nothing:
        console = Console(width=150, height=40, file=nothing)
        for _ in range(2):
            begun = time.process_time()
            for node, event in tail.poll():
                view.top.take(node, event, T0)
            view.look(T0, 40)
            console.print(view.render("run", 150, 40))
            spent.append(time.process_time() - begun)
    return spent


def page(folder: Path) -> tuple[float, int]:
    from distdbg.collect.runs.run_evidence import load_evidence
    from distdbg.diagnosis.verdict import build_report
    from distdbg.report.page.renderer import PageRenderer
    from distdbg.report.run_document import run_document
    from distdbg.rundir import RunDir

    begun = time.process_time()
    evidence = load_evidence(RunDir(folder))
    text = PageRenderer().render(run_document(build_report(evidence), evidence, whole=True))
    return time.process_time() - begun, len(text.encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1024, 4096], help="multiples of 8")
    parser.add_argument("--looks", type=int, default=100, help="of every node, ten seconds apart")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    too_much = False
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as name:
            found = measure(Path(name) / "20260101T000000Z-train-beef", ranks, options.looks)
        print("  ".join(f"{key} {value:,}" for key, value in found.items()), flush=True)
        too_much = too_much or found["next_look_s"] > MOST_LOOK_S or found["page_MB"] > MOST_PAGE_MB
    return int(options.check and too_much)


if __name__ == "__main__":
    sys.exit(main())
