"""How `distdbg explain` grows with the ranks, against torchfrtrace on the same files in the same run.

    python benchmarks/explain_scale.py --ranks 64 512 2048 [--entries 2000] [--form pickle|json] [--ours-only]

Recorder dumps are generated in the form that ProcessGroupNCCL writes (pickle, protocol 2, without frames; or its JSON):
every rank does 2,000 collectives in the default group and in a group of eight, and one rank does not come to the last
of them. Measured are the CPU seconds of each command with its children, and the peak of their resident memory.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GROUP = 8
SIZE = 4096


def entry(number: int, group: tuple[str, str], members: int, sequence: int, *, done: bool, t: int) -> dict[str, Any]:
    operation = ("all_reduce", "_all_gather_base", "_reduce_scatter_base")[sequence % 3]
    more = [SIZE * (1 + sequence % 7), members]
    return {
        "frames": [],
        "record_id": number,
        "pg_id": 0 if group[1] == "default_pg" else 1,
        "process_group": group,
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": f"nccl:{operation}",
        "time_created_ns": t,
        "duration_ms": 0.5 if done else None,
        "input_sizes": [more if operation == "_reduce_scatter_base" else more[:1]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [more if operation == "_all_gather_base" else more[:1]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": t + 1000 if done else None,
        "time_discovered_completed_ns": t + 9000 if done else None,
        "retired": done,
        "timeout_ms": 600000,
        "is_p2p": False,
    }


def dump(rank: int, ranks: int, entries: int, culprit: int) -> dict[str, Any]:
    """Of the last collective of the default group the culprit knows nothing, and nobody has it finished."""
    first = rank // GROUP * GROUP
    own = (f"{1 + rank // GROUP}", "mesh_tp")
    groups = {("0", "default_pg"): list(range(ranks)), own: list(range(first, min(first + GROUP, ranks)))}
    t0 = 1_790_000_000_000_000_000 + rank * 1000
    found = []
    for number in range(entries):
        group = own if number % 2 and number != entries - 1 else ("0", "default_pg")
        last = number == entries - 1
        if last and rank == culprit:
            break
        sequence = number // 2 + 1 + (last and number % 2)
        found.append(entry(number, group, len(groups[group]), sequence, done=not last, t=t0 + number * 1_000_000))
    config = {name: {"name": name, "desc": desc, "ranks": str(members)} for (name, desc), members in groups.items()}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "comm_lib_version": "2.28.9", "entries": found}


def generate(folder: Path, ranks: int, entries: int, form: str) -> int:
    culprit = ranks * 3 // 5
    for rank in range(ranks):
        made = dump(rank, ranks, entries, culprit)
        data = pickle.dumps(made, 2) if form == "pickle" else json.dumps(made, separators=(",", ":")).encode()
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return culprit


def measure(command: list[str]) -> tuple[float, float, int, bytes]:
    """(CPU seconds of it and its children, peak resident MiB of all of them together, exit code, its output)."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        peak = 0
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, sum(map(resident, family(process.pid))))
            time.sleep(0.05)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss) / 1024, process.returncode, out.read()


def family(pid: int) -> list[int]:
    """A process and its descendants, without a child that has not called exec yet: its memory is its parent's."""
    found = [pid]
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in map(int, children):
        if command_line(child) != command_line(pid):
            found += family(child)
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def resident(pid: int) -> int:
    """KiB."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--form", choices=("pickle", "json"), default="pickle")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--folder", type=Path, help="where to generate; 0.6 MB a rank")
    options = parser.parse_args()
    print(f"{'ranks':>6} {'':14} {'CPU s':>8} {'peak MiB':>9}  exit code")
    for ranks in options.ranks:
        folder = Path(tempfile.mkdtemp(prefix="explain-scale-", dir=options.folder))
        try:
            culprit = generate(folder, ranks, options.entries, options.form)
            ours = measure([sys.executable, "-m", "distdbg", "explain", "--json", str(folder)])
            print(f"{ranks:>6} {'distdbg':14} {ours[0]:>8.2f} {ours[1]:>9.0f}  {ours[2]}", flush=True)
            named = [f["ranks"] for f in json.loads(ours[3])["findings"] if f["severity"] == "error"]
            assert named == [[culprit]], f"rank {culprit} was planted, {named} found"
            if options.ours_only or options.form == "json":  # torchfrtrace reads pickles alone
                continue
            theirs = measure([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)])
            print(f"{ranks:>6} {'torchfrtrace':14} {theirs[0]:>8.2f} {theirs[1]:>9.0f}  {theirs[2]}", flush=True)
            print(f"{'':6} {'theirs / ours':14} {theirs[0] / ours[0]:>8.1f} {theirs[1] / ours[1]:>9.1f}", flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
