"""What torch does about faults of devices and of NCCL, on the GPU box: the figures of docs/tested-on.md.

    python benchmarks/gpu_box_reactions.py --torch 2.8.0          a table of every fault, about five minutes
    python benchmarks/gpu_box_reactions.py skipped kernel-hang    these alone

Each is a job of four ranks under plain torchrun (group timeout 8 s, TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=1000); rank 1
has the fault. Seconds are from the job's start to its end, of which torch's import takes a third here.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gpu_box.box import gpu_box  # noqa: E402
from gpu_box.build import TORCH, build  # noqa: E402

PROGRAM = ROOT / "gpu_box" / "tests" / "demos" / "faults.py"
#: A job that has not ended by then is ended.
MOST_S = 100
#: name -> (the program's argument, the line of the plan)
FAULTS = {
    "none": ("none", ""),
    "skipped": ("skipped", ""),
    "size": ("size", ""),
    "order": ("order", ""),
    "killed": ("killed", ""),
    "kernel-hang": ("none", "kernel-hang kernel=FillFunctor at=3"),
    "illegal-address": ("none", "illegal-address kernel=FillFunctor at=3"),
    "device-assert": ("none", "device-assert kernel=FillFunctor at=3"),
    "ecc-error": ("none", "ecc-error kernel=FillFunctor at=3"),
    "device-lost": ("none", "device-lost kernel=FillFunctor at=3"),
    "driver-blocked": ("none", "driver-blocked at=40"),
    "nccl-error": ("none", "nccl-error at=7 code=6"),
    "comm-error": ("none", "comm-error code=2"),
    "comm-hang": ("none", "comm-hang"),
}


@dataclass(frozen=True)
class Reaction:
    """What a job of four ranks said and left."""

    seconds: float
    exit_code: int
    exceptions: Counter[str]
    #: ranks in whose name the watchdog reported a timeout
    timeouts: tuple[int, ...]
    dumps: int
    last_enqueued: str


def react(root: Path, name: str) -> Reaction:
    argument, line = FAULTS[name]
    with tempfile.TemporaryDirectory() as folder, gpu_box(root, devices=4, faults={1: line} if line else {}) as box:
        env = {**os.environ, **box.environment(), "OMP_NUM_THREADS": "1"}
        env |= {
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        }
        env |= {f"TORCH_{x}_TEMP_FILE": f"{folder}/recorder_" for x in ("FR_DUMP", "NCCL_DEBUG_INFO")}
        env |= {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000", "GLOO_SOCKET_IFNAME": "lo"}
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        begun = time.monotonic()
        command = [*torchrun, str(PROGRAM), argument]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
            try:
                said, _ = job.communicate(timeout=MOST_S)
            except subprocess.TimeoutExpired:  # a reaction, too; torchrun then ends its ranks
                job.terminate()
                said, _ = job.communicate()
        seconds = time.monotonic() - begun
        timeouts = sorted(
            {int(r) for r in re.findall(r"\[Rank (\d+)\] Watchdog caught collective operation timeout", said)}
        )
        works = re.findall(
            r"last enqueued work: (\d+)(?:, last started work: (\d+))?, last completed work: (\d+)", said
        )
        return Reaction(
            seconds, job.returncode, Counter(re.findall(r"^rank \d+: (\w+)", said, re.M)), tuple(timeouts),
            len(list(Path(folder).glob("recorder_*"))), "/".join(w or "-" for w in works[-1]) if works else "",
        )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", choices=[*FAULTS, []])
    parser.add_argument("--torch", default=TORCH)
    options = parser.parse_args()
    root = build(options.torch)
    print(f"torch {options.torch}")
    print("| fault | s | exit | raised in the script | watchdog timeouts | dumps | enqueued/started/completed |")
    print("|---|---|---|---|---|---|---|")
    for name in options.faults or FAULTS:
        r = react(root, name)
        raised = ", ".join(f"{count} x {kind}" for kind, count in r.exceptions.items())
        timeouts = ",".join(map(str, r.timeouts))
        print(
            f"| {name} | {r.seconds:.0f} | {r.exit_code} | {raised} | {timeouts} | {r.dumps} | {r.last_enqueued} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
