"""The merged call tree from the stacks of 64 to 16,384 ranks, through per-node reductions.

    python benchmarks/call_tree_scale.py                 the curve; under a minute on two cores
    python benchmarks/call_tree_scale.py --check         exit code 1 where 16,384 ranks take over 60 s or 1 GB
    python benchmarks/call_tree_scale.py --json FILE

Ranks are made up in py-spy's own JSON: about 30 frames in the main thread, three more threads, a dozen places where
ranks stand and one rank in 500 that stands somewhere of its own. A node of 8 ranks parses its ranks' JSON and sends
each different stack once, by its hash, with the ranks that have it; the nodes are worked through by two processes. One
process then merges the parts and makes the tree, its text, and the drawings of the page. Each size runs in processes
of its own; memory is the largest of any of them plus the other worker's, as if all peaked at one time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.call_tree import call_tree
from distdbg.evidence.stacks.classes import StackClasses, paths_of
from distdbg.evidence.stacks.threads import Frame, read_threads
from distdbg.report.page.flame import flame
from distdbg.report.text.tree_text import tree_text

SIZES = (64, 256, 1024, 4096, 16384)
PER_NODE = 8
AT_ONCE = 2
KINDS = 12
ODD_ONE_IN = 500
MOST_S, MOST_MIB = 60.0, 1024.0
_TORCH = "/env/lib/python3.11/site-packages/torch"
_BLOCKS = ("attention", "mlp", "norm", "router", "embedding", "head")


def frames(rank: int) -> list[dict[str, Any]]:
    """A training script's main thread, innermost frame first."""
    kind = rank * 7919 % 9973 % KINDS
    odd = rank % ODD_ONE_IN == 137
    outer = [
        ("<module>", "/job/train.py", 400),
        ("main", "/job/train.py", 380),
        ("fit", "/job/loop.py", 120 + kind // 4),
    ]
    layers = []
    for depth in range(5):
        block = _BLOCKS[(kind + depth) % len(_BLOCKS)]
        layers += [
            ("Module._wrapped_call_impl", f"{_TORCH}/nn/modules/module.py", 1776),
            ("Module._call_impl", f"{_TORCH}/nn/modules/module.py", 1787),
            (f"{block.title()}.forward", f"/job/model/{block}.py", 40 + kind),
        ]
    inner = [(f"step_{n}", f"{_TORCH}/distributed/fsdp/_fully_shard/_fsdp_state.py", 200 + n) for n in range(9)]
    end = [
        ("wrapper", f"{_TORCH}/distributed/c10d_logger.py", 83),
        ("all_reduce", f"{_TORCH}/distributed/distributed_c10d.py", 3252),
    ]
    if odd:
        end = [("fetch", "/job/data.py", 10 + rank % 97), ("read", "/job/storage.py", 20 + rank % 89)]
    stack = outer + layers + inner + end
    return [{"name": name, "filename": file, "line": line, "locals": []} for name, file, line in reversed(stack)]


def pyspy_text(rank: int) -> str:
    """What py-spy would print of a rank, its other threads included."""
    pid = 10_000 + rank
    other = [
        {"name": "Condition.wait", "filename": "/usr/lib/python3.11/threading.py", "line": 327, "locals": None}
    ] * 5
    threads = [{"pid": pid, "os_thread_id": pid + n, "thread_name": f"Thread-{n}", "active": False, "owns_gil": False,
                "frames": other} for n in (1, 2, 3)]  # fmt: skip
    main = {"pid": pid, "os_thread_id": pid, "thread_name": "MainThread", "active": False, "owns_gil": False}
    return json.dumps([*threads, {**main, "frames": frames(rank)}])


def reduce_nodes(numbers: range, ranks: int) -> tuple[list[str], float, int]:
    """The parts of some nodes, the CPU seconds that they cost without making up their input, and its bytes."""
    parts, spent, read = [], 0.0, 0
    for number in numbers:
        texts = [(rank, pyspy_text(rank)) for rank in range(number * PER_NODE, min(ranks, (number + 1) * PER_NODE))]
        begun = time.process_time()
        classes, cache = StackClasses(), dict[Frame, Frame]()
        for rank, text in texts:
            classes.add(RankSet.of((rank,)), paths_of(read_threads(json.loads(text), cache), 10_000 + rank))
            read += len(text)
        parts.append(json.dumps(classes.part()))
        spent += time.process_time() - begun
    return parts, spent, read


def measure(ranks: int) -> dict[str, Any]:
    begun = time.perf_counter()
    nodes = (ranks + PER_NODE - 1) // PER_NODE
    size = max(1, nodes // 16)
    spans = [range(at, min(at + size, nodes)) for at in range(0, nodes, size)]
    with ProcessPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(reduce_nodes, spans, [ranks] * len(spans)))
    hub = time.process_time()
    classes = StackClasses()
    for parts, _, _ in done:
        for part in parts:
            classes.merge(json.loads(part))
    merged = time.process_time()
    tree = call_tree(classes)
    culprits = RankSet.of((137,))
    lines = tree_text(tree, culprits)
    drawing = flame(tree, culprits)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    if len(tree.ranks) != ranks or (ranks > 137) != any("rank 137" in line for line in lines):
        raise SystemExit(f"{ranks} ranks went in, {len(tree.ranks)} came out")
    return {
        "ranks": ranks,
        "stacks": tree.classes,
        "input_mb": round(sum(read for _, _, read in done) / 1e6, 1),
        "sent_mb": round(sum(len(part) for parts, _, _ in done for part in parts) / 1e6, 1),
        "nodes_cpu_s": round(sum(spent for _, spent, _ in done), 2),
        "merge_cpu_s": round(merged - hub, 2),
        "tree_cpu_s": round(time.process_time() - merged, 2),
        "wall_s": round(time.perf_counter() - begun, 2),
        "peak_mib": round(own + AT_ONCE * workers),
        "lines": len(lines),
        "boxes": len(drawing.boxes),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    rows = []
    print("ranks   stacks  input     sent      nodes' CPU  merge    tree+text  wall     memory")
    for ranks in SIZES:
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(ranks)], capture_output=True, text=True, check=True
        )
        row = json.loads(done.stdout)
        rows.append(row)
        mb, cpu = f"{row['input_mb']:>6.1f} MB {row['sent_mb']:>6.1f} MB", f"{row['nodes_cpu_s']:>9.2f} s"
        last = (
            f"{row['merge_cpu_s']:>6.2f} s {row['tree_cpu_s']:>8.2f} s {row['wall_s']:>6.1f} s {row['peak_mib']:>6} MiB"
        )
        print(f"{ranks:<7} {row['stacks']:<7} {mb} {cpu} {last}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    largest = rows[-1]
    over = largest["wall_s"] > MOST_S or largest["peak_mib"] > MOST_MIB
    print(
        f"{largest['ranks']} ranks: {largest['wall_s']} s of {MOST_S:.0f}, {largest['peak_mib']} MiB of {MOST_MIB:.0f}"
    )
    return int(over and options.check)


if __name__ == "__main__":
    sys.exit(main())
