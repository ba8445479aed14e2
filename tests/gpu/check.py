"""Run the tests of this folder on the GPU box and on this machine's GPUs; print one table of what differed.

    make gpu-check              or: python tests/gpu/check.py [--figures FOLDER]

The table compares the outcome of each test and each figure that a test wrote. Times are printed and not compared: a
box has none of a device's.

Exit codes: 0 nothing differs; 3 there is nothing to compare (it prints why, and runs no test); 10 rows differ. `make`
itself ends with 2 in place of 3 and 10, and prints them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
SIDES = ("box", "hardware")
#: Relative difference of a figure that counts as the same.
TOLERANCE = 0.02
NO_GPU, DIFFERS = 3, 10


def why_no_gpu() -> str:
    """Why the tests cannot run on this machine's GPUs; "" where they can."""
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi was not found: NVIDIA's driver is not installed on this machine"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} in {sys.prefix} is built without CUDA: install torch with CUDA there"
    return "" if torch.cuda.is_available() else "torch finds no GPU: `nvidia-smi` shows those of the driver"


def run(side: str, folder: Path) -> dict[str, object]:
    """Row name -> outcome of a test, or value of a figure."""
    figures, junit = folder / f"{side}.jsonl", folder / f"{side}.xml"
    figures.unlink(missing_ok=True)
    # In CI a skip is a failure, and on hardware the planted faults are skipped.
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    env |= {"DISTDBG_GPUS": side, "DISTDBG_GPU_FIGURES": str(figures)}
    subprocess.run([sys.executable, "-m", "pytest", "-q", f"--junit-xml={junit}", str(HERE)], env=env, check=False)
    rows: dict[str, object] = {}
    for case in ET.parse(junit).iter("testcase"):
        problem = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        rows[case.attrib["name"]] = problem
    for line in figures.read_text().splitlines() if figures.exists() else ():
        told = json.loads(line)
        rows[f"{told['test']}: {told['figure']}"] = told["value"]
    return rows


def differs(a: object, b: object) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) > TOLERANCE * max(abs(a), abs(b))
    return a != b


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="keep the figures of both sides in this folder")
    options = parser.parse_args()
    if reason := why_no_gpu():
        print(f"nothing to compare: {reason}.", file=sys.stderr)
        print("`pytest tests/gpu` runs the tests on simulated GPUs.", file=sys.stderr)
        return NO_GPU
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.figures or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        box, hardware = (run(side, folder) for side in SIDES)
    table = Table("", *SIDES, "")
    count = 0
    for row in sorted(box.keys() | hardware.keys()):
        a, b = box.get(row, "-"), hardware.get(row, "-")
        different = differs(a, b) and "skipped" not in (a, b)
        count += different
        table.add_row(row, str(a), str(b), "differs" if different else "")
    Console(width=160).print(table)
    print(f"{count} of {table.row_count} rows differ")
    return DIFFERS if count else 0


if __name__ == "__main__":
    sys.exit(main())
