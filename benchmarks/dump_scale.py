"""How `distdbg explain` grows with the ranks of one of our own dumps: stacks, recorder and heartbeats of every rank.

    python benchmarks/dump_scale.py [--ranks 512 2048 16384 100000] [--check] [--folder DIR]

--check: exit code 1 where 16,384 ranks take over 15 s of CPU or 200 MiB, or 100,000 over 60 s or 1 GB.

A real job of 2 nodes x 2 ranks is launched and dumped while one rank sleeps and three wait for it in a collective. Its
dump is then multiplied: more nodes of eight ranks with their own process ids and times of calls, each rank with the
files that a capture writes of it; the sleeper stays the only one. Measured are the wall and CPU seconds of the command
with its children, and the peak of their resident memory; the rank that sleeps has to be named.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from explain_scale import measure

PROGRAM = Path(__file__).parent.parent / "tests" / "programs" / "hangs" / "sleeps_in_step.py"
SLEEPER = 2
#: CPU seconds and MiB that a dump of so many ranks may take.
MOST = {16384: (15.0, 200.0), 100_000: (60.0, 1024.0)}
RANKS_A_NODE = 8


def real_dump(folder: Path) -> Path:
    command = [sys.executable, "-m", "distdbg", "launch", "--nodes", "2", "--nproc-per-node", "2",
               "--hang-timeout", "5", "--on-hang", "kill", "--run-dir", str(folder / "run"), str(PROGRAM)]  # fmt: skip
    subprocess.run(command, capture_output=True, check=False)
    return next((folder / "run" / "attempts" / "1" / "dumps").iterdir())


def multiplied(real: Path, to: Path, ranks: int) -> int:
    """Writes a dump of so many ranks; gives the rank that sleeps."""
    for name in ("nodes", "stacks", "recorder", "calls"):
        (to / name).mkdir(parents=True)
    shutil.copytree(real / "sources", to / "sources")
    manifest = json.loads((real / "manifest.json").read_text())
    parts = [json.loads(path.read_text()) for path in sorted((real / "nodes").glob("*.json"))]
    entries = {entry["rank"]: entry for part in parts for entry in part["ranks"]}
    sources = {file: name for part in parts for file, name in part["sources"].items()}
    sleeper = ranks * 3 // 5
    for first in range(0, ranks, RANKS_A_NODE):
        node, mine = first // RANKS_A_NODE, range(first, min(first + RANKS_A_NODE, ranks))
        made = [_rank(real, to, entries[SLEEPER if rank == sleeper else 0], rank, ranks) for rank in mine]
        part = {"node_rank": node, "host": f"node{node:04d}", "ranks": made, "sources": sources}
        (to / "nodes" / f"{node:04d}.json").write_text(json.dumps(part))
    manifest |= {"world_size": ranks, "ranks": {str(rank): "collected" for rank in range(ranks)}}
    (to / "manifest.json").write_text(json.dumps(manifest))
    return sleeper


def _rank(real: Path, to: Path, entry: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    old, pid = f"{entry['rank']:05d}", 10_000 + rank
    text = _with_pid(json.dumps(entry | {"rank": rank}), entry["pid"], pid).replace(f"/{old}.", f"/{rank:05d}.")
    for path in [*(real / "stacks").glob(f"{old}.*"), *(real / "recorder").glob(f"{old}.*")]:
        content = _with_pid(path.read_text(), entry["pid"], pid).replace('"[0, 1, 2, 3]"', f'"[0-{ranks - 1}]"')
        content = re.sub(r'(_ns": ?)([1-9]\d*)', lambda time: f"{time[1]}{int(time[2]) + 1000 * rank}", content)
        (to / path.parent.name / path.name.replace(old, f"{rank:05d}")).write_text(content)
    made: dict[str, Any] = json.loads(text)
    return made


def _with_pid(text: str, was: int, pid: int) -> str:
    return re.sub(rf'("(?:os_thread_id|pid)": ?){was}\b', rf"\g<1>{pid}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[512, 2048, 16384])
    parser.add_argument("--folder", type=Path, help="where to generate; about 10 KB a rank")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    over = 0
    top = Path(tempfile.mkdtemp(prefix="dump-scale-", dir=options.folder))
    try:
        real = real_dump(top)
        print(f"{'ranks':>6} {'files':>7} {'MB':>6} {'wall s':>7} {'CPU s':>7} {'peak MiB':>9}  exit code")
        for ranks in options.ranks:
            folder = top / f"dump-{ranks}"
            sleeper = multiplied(real, folder, ranks)
            files = [path for path in folder.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files) / 1e6
            begun = time.monotonic()
            cpu, peak, code, said = measure([sys.executable, "-m", "distdbg", "explain", "--json", str(folder)])
            wall = time.monotonic() - begun
            print(f"{ranks:>6} {len(files):>7} {size:>6.0f} {wall:>7.1f} {cpu:>7.1f} {peak:>9.0f}  {code}", flush=True)
            most_cpu, most_peak = MOST.get(ranks, (cpu, peak))
            over += cpu > most_cpu or peak > most_peak
            named = [f["ranks"] for f in json.loads(said)["findings"] if f["severity"] == "error"]
            assert named == [[sleeper]], f"rank {sleeper} sleeps, {named} found"
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(top)
    sys.exit(1 if options.check and over else 0)


if __name__ == "__main__":
    main()
